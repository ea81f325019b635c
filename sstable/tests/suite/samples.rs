//! Cells to write.

use rand::Rng;
use rand::rngs::StdRng;
use types::{FamilyId, SeqNo, Timestamp, TimestampRange, key};

use crate::files::Cells;

pub(crate) fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros).unwrap()
}

pub(crate) fn seq(raw: u64) -> SeqNo {
    SeqNo::from_raw(raw).unwrap()
}

pub(crate) fn cell(row: &[u8], family: u32, qualifier: &[u8], micros: i64, seqno: u64) -> Vec<u8> {
    let mut out = Vec::new();
    key::put_cell(&mut out, row, FamilyId::new(family), qualifier, at(micros), seq(seqno));
    out
}

pub(crate) fn row_prefix(row: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    key::put_row_prefix(&mut out, row);
    out
}

pub(crate) fn column_prefix(row: &[u8], family: u32, qualifier: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    key::put_column_prefix(&mut out, row, FamilyId::new(family), qualifier);
    out
}

/// Bytes from a few letters, so that prefixes, equal parts and zeros are frequent.
pub(crate) fn text(random: &mut StdRng, len_max: usize) -> Vec<u8> {
    let len = random.random_range(0..=len_max);
    (0..len).map(|_| [0, 1, b'a', b'b', 0xff][random.random_range(0..5)]).collect()
}

pub(crate) fn bytes(random: &mut StdRng, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.random()).collect()
}

/// About `count` cells and tombstones of any kind; few rows are wide, some keys and values long.
pub(crate) fn random_cells(random: &mut StdRng, count: usize) -> Cells {
    let rows: Vec<Vec<u8>> = (0..count.div_ceil(5))
        .map(|_| {
            let mut row = text(random, 6);
            row.push(random.random());
            row
        })
        .collect();
    let mut cells = Cells::new();
    for number in 1..=count as u64 {
        let row = match random.random_bool(0.4) {
            true => &rows[0],
            false => &rows[random.random_range(0..rows.len())],
        };
        let family = FamilyId::new(random.random_range(1..4));
        let qualifier = match random.random_range(0..30) {
            0 => bytes(random, 300),
            _ => text(random, 4),
        };
        let mut key = Vec::new();
        let value = match random.random_range(0..20) {
            0 => {
                key::put_delete_row(&mut key, row, seq(number));
                Vec::new()
            }
            1 => {
                key::put_delete_family(&mut key, row, family, seq(number));
                Vec::new()
            }
            2 => {
                key::put_delete_cells(&mut key, row, family, &qualifier, seq(number));
                TimestampRange::ALL.encode().to_vec()
            }
            _ => {
                let time = at(random.random_range(0..5));
                key::put_cell(&mut key, row, family, &qualifier, time, seq(number));
                let len = [0, 1, 10, 100, 1000][random.random_range(0..5)];
                match random.random_bool(0.5) {
                    true => bytes(random, len),
                    false => vec![b'x'; len],
                }
            }
        };
        cells.insert(key, value);
    }
    cells
}
