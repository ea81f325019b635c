//! A load whose every operation follows from (seed, client, number), and the model of its outcome.
//!
//! Each client has rows of its own and waits for every answer, so that what a row holds is known
//! exactly: all operations up to the last acknowledged one, and of the one after it each row
//! change either whole or not at all.

use std::collections::BTreeMap;

use bytes::Bytes;
use client::{Row, RowMutation};
use rand::rngs::{SmallRng, StdRng};
use rand::{Rng, RngCore, SeedableRng};
use types::{Timestamp, TimestampRange};

pub(crate) const FAMILIES: [&str; 2] = ["a", "b"];
pub(crate) const ROWS: u32 = 12;
const QUALIFIERS: u8 = 3;
const TIMESTAMPS: i64 = 3;
const MILLISECOND: i64 = 1000;

/// A cell's value, told by where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    seed: u64,
    len: usize,
}

impl Content {
    fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        SmallRng::seed_from_u64(self.seed).fill_bytes(&mut bytes);
        bytes
    }
}

/// (family, qualifier, timestamp in microseconds), of families and qualifiers by number.
type Column = (usize, u8, i64);

/// What a row holds.
pub(crate) type Cells = BTreeMap<Column, Content>;

#[derive(Clone, Debug)]
enum Change {
    Set(Column, Content),
    /// Timestamps from, to; the second is not included.
    DeleteCells(usize, u8, i64, i64),
    DeleteFamily(usize),
    DeleteRow,
}

/// The changes to one row, which take effect together.
#[derive(Clone, Debug)]
pub(crate) struct RowChange {
    pub(crate) row: u32,
    changes: Vec<Change>,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// Of different rows; more than one goes as a batch.
    pub(crate) rows: Vec<RowChange>,
}

/// The prefix of a client's row keys.
pub(crate) fn prefix(client: u32) -> String {
    format!("client{client}/")
}

pub(crate) fn key(client: u32, row: u32) -> String {
    format!("{}{row:02}", prefix(client))
}

impl Operation {
    /// The operation that `client` sends as its `number`th.
    pub(crate) fn new(seed: u64, client: u32, number: u64) -> Operation {
        let mixed = seed ^ (u64::from(client) << 56) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut rng = StdRng::seed_from_u64(mixed);
        let mut rows: Vec<u32> = (0..ROWS).collect();
        let count = if rng.random_bool(0.2) { rng.random_range(2..=5) } else { 1 };
        let rows = (0..count).map(|_| {
            let row = rows.swap_remove(rng.random_range(0..rows.len()));
            RowChange { row, changes: changes(&mut rng) }
        });
        Operation { rows: rows.collect() }
    }
}

fn changes(rng: &mut StdRng) -> Vec<Change> {
    let mut changes = Vec::new();
    match rng.random_range(0..20) {
        0 => changes.push(Change::DeleteRow),
        1 => changes.push(Change::DeleteFamily(rng.random_range(0..FAMILIES.len()))),
        2 | 3 => {
            let from = rng.random_range(0..TIMESTAMPS);
            let to = rng.random_range(from + 1..=TIMESTAMPS);
            let family = rng.random_range(0..FAMILIES.len());
            let qualifier = rng.random_range(0..QUALIFIERS);
            let (from, to) = (from * MILLISECOND, to * MILLISECOND);
            changes.push(Change::DeleteCells(family, qualifier, from, to));
        }
        _ => {}
    }
    // A delete alone, or one that what is set with it survives.
    let sets = if changes.is_empty() { rng.random_range(1..6) } else { rng.random_range(0..3) };
    for _ in 0..sets {
        let family = rng.random_range(0..FAMILIES.len());
        let at = rng.random_range(0..TIMESTAMPS) * MILLISECOND;
        let column = (family, rng.random_range(0..QUALIFIERS), at);
        let len = match rng.random_range(0..400) {
            // More than one message of an answer.
            0 => rng.random_range(1 << 20..3 << 19),
            1..10 => rng.random_range(64 << 10..256 << 10),
            _ => rng.random_range(0..3000),
        };
        changes.push(Change::Set(column, Content { seed: rng.random(), len }));
    }
    changes
}

impl RowChange {
    /// As the client sends it.
    pub(crate) fn mutation(&self, client: u32) -> RowMutation {
        let at = |micros| Timestamp::from_micros(micros).unwrap();
        let mut mutation = RowMutation::new(key(client, self.row));
        for change in &self.changes {
            mutation = match *change {
                Change::Set((family, qualifier, micros), content) => {
                    let value = content.bytes();
                    mutation.set(FAMILIES[family], name(qualifier), Some(at(micros)), value)
                }
                Change::DeleteCells(family, qualifier, from, to) => {
                    let range = TimestampRange { start: at(from), end: Some(at(to)) };
                    mutation.delete_cells(FAMILIES[family], name(qualifier), range)
                }
                Change::DeleteFamily(family) => mutation.delete_family(FAMILIES[family]),
                Change::DeleteRow => mutation.delete_row(),
            };
        }
        mutation
    }

    /// What it makes of a row.
    pub(crate) fn apply(&self, cells: &mut Cells) {
        for change in &self.changes {
            match *change {
                Change::Set(column, content) => {
                    cells.insert(column, content);
                }
                Change::DeleteCells(family, qualifier, from, to) => cells.retain(|column, _| {
                    let hit = (column.0, column.1) == (family, qualifier);
                    !(hit && (from..to).contains(&column.2))
                }),
                Change::DeleteFamily(family) => cells.retain(|column, _| column.0 != family),
                Change::DeleteRow => cells.clear(),
            }
        }
    }
}

fn name(qualifier: u8) -> Bytes {
    Bytes::from(format!("q{qualifier}"))
}

/// Compares a row as read with what it should hold; the error says where they differ first.
pub(crate) fn compare(read: Option<&Row>, expected: &Cells) -> Result<(), String> {
    let mut left = expected.clone();
    for family in read.iter().flat_map(|row| &row.families) {
        for cell in &family.cells {
            let place = FAMILIES.iter().position(|name| *name == family.name);
            let qualifier = (0..QUALIFIERS).find(|&number| name(number) == cell.qualifier);
            let shown = format!("{}:{:?}@{}", family.name, cell.qualifier, cell.timestamp.micros());
            let column = place.zip(qualifier).map(|(f, q)| (f, q, cell.timestamp.micros()));
            let content = column.and_then(|column| left.remove(&column));
            let content = content.ok_or(format!("{shown} should not be there"))?;
            if content.bytes() != cell.value {
                let (read, expected) = (cell.value.len(), content.len);
                return Err(format!("{shown} has another value ({read} bytes, not {expected})"));
            }
        }
    }
    match left.first_key_value() {
        Some((column, content)) => Err(format!("{column:?} {content:?} is missing")),
        None => Ok(()),
    }
}

#[test]
fn a_lost_a_changed_and_an_extra_cell_are_seen() {
    let column = (1, 2, MILLISECOND);
    let expected = Cells::from([(column, Content { seed: 7, len: 20 })]);
    let row = |value: Vec<u8>| Row {
        key: key(0, 0).into(),
        families: vec![client::RowFamily {
            name: FAMILIES[column.0].to_owned(),
            cells: vec![client::Cell {
                qualifier: name(column.1),
                timestamp: Timestamp::from_micros(column.2).unwrap(),
                value: value.into(),
                labels: Vec::new(),
            }],
        }],
    };
    let right = expected[&column].bytes();
    compare(Some(&row(right.clone())), &expected).unwrap();
    compare(None, &Cells::new()).unwrap();
    compare(None, &expected).unwrap_err();
    compare(Some(&row(right[1..].to_vec())), &expected).unwrap_err();
    compare(Some(&row(right)), &Cells::new()).unwrap_err();
}
