//! Keys sort as cells do, and the batches made of them are read back or refused.

use std::cmp::Reverse;

use bytes::Bytes;
use lsm::{Batch, decode_payload};
use rand::Rng;
use rand::rngs::StdRng;
use types::{
    CellKey, ErrorKind, FamilyId, Mutation, ParsedKey, RowMutations, SeqNo, Timestamp,
    TimestampRange, key,
};

use super::{damage, short_bytes};

type Cell = (Vec<u8>, u32, Vec<u8>, Reverse<i64>, Reverse<u64>);

fn cell(random: &mut StdRng) -> Cell {
    let row = short_bytes(random, 4);
    let family = [1, 2, 255, 256, u32::MAX][random.random_range(0..5)];
    let time = [0, 1, 1000, i64::MAX][random.random_range(0..4)];
    let seq = [1, 2, 255, SeqNo::MAX.get()][random.random_range(0..4)];
    let qualifier = short_bytes(random, 4);
    (row, family, qualifier, Reverse(time), Reverse(seq))
}

fn encoded(cell: &Cell) -> CellKey {
    let (row, family, qualifier, time, seq) = cell;
    CellKey::put(
        row,
        FamilyId::new(*family),
        qualifier,
        at(time.0),
        SeqNo::from_raw(seq.0).expect("a legal number"),
    )
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros).expect("not negative")
}

/// Byte order is cell order; a key is read back as it was; damaged keys are refused or read.
pub(super) fn key_order(random: &mut StdRng) {
    let (a, b) = (cell(random), cell(random));
    let (key_a, key_b) = (encoded(&a), encoded(&b));
    assert_eq!(key_a.cmp(&key_b), a.cmp(&b), "{key_a:?} and {key_b:?}");
    let parsed = ParsedKey::parse(key_a.as_bytes()).expect("an encoded key is one");
    assert_eq!((parsed.row(), parsed.qualifier()), (a.0.clone(), a.2));
    let mut start = Vec::new();
    key::put_row_start(&mut start, &a.0);
    assert_eq!(start.as_slice() <= key_b.as_bytes(), a.0 <= b.0);
    let mut damaged = key_a.as_bytes().to_vec();
    damage(random, &mut damaged);
    damaged.truncate(random.random_range(0..=damaged.len()));
    if let Some(parsed) = ParsedKey::parse(&damaged) {
        let _ = (parsed.row(), parsed.qualifier(), format!("{parsed:?}"));
    }
    let _ = (key::row_prefix(&damaged), key::seq_of(&damaged), key::kind_of(&damaged));
}

fn mutation(random: &mut StdRng) -> Mutation {
    let family = FamilyId::new(random.random_range(1..4));
    let qualifier = Bytes::from(short_bytes(random, 5));
    match random.random_range(0..6) {
        0 => Mutation::DeleteRow,
        1 => Mutation::DeleteFamily { family },
        2 => Mutation::DeleteCells {
            family,
            qualifier,
            range: TimestampRange {
                start: at(random.random_range(0..9)),
                end: random.random_bool(0.5).then(|| at(random.random_range(10..19))),
            },
        },
        _ => Mutation::SetCell {
            family,
            qualifier,
            timestamp: random.random_bool(0.8).then(|| at(random.random_range(0..20))),
            value: Bytes::from(short_bytes(random, 40)),
        },
    }
}

/// A batch is read back as it was; a damaged one is refused or holds valid cells.
pub(super) fn batch(random: &mut StdRng) {
    let rows: Vec<RowMutations> = (0..random.random_range(1..4))
        .map(|_| RowMutations {
            row: Bytes::from([b"r".to_vec(), short_bytes(random, 5)].concat()),
            mutations: (0..random.random_range(1..5)).map(|_| mutation(random)).collect(),
        })
        .collect();
    let mut batch = Batch::encode(&rows);
    let first = SeqNo::from_raw(random.random_range(1..1000)).expect("a legal number");
    batch.sequence(first, at(77));
    let payload = batch.payload();
    let read = decode_payload(&payload).expect("an encoded batch is one");
    assert!(read.eq(batch.cells()), "read back as it was");
    let mut damaged = batch.payload().to_vec();
    damage(random, &mut damaged);
    damaged.truncate(random.random_range(0..=damaged.len()));
    match decode_payload(&damaged) {
        Ok(cells) => cells.for_each(|cell| {
            ParsedKey::parse(cell.key).expect("a checked batch holds keys");
        }),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt),
    }
}
