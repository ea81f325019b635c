use std::collections::BTreeMap;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use types::{CellKey, FamilyId, Mutation, ParsedKey, RowMutations, Timestamp};

use super::*;

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros).unwrap()
}

fn seq(raw: u64) -> SeqNo {
    SeqNo::from_raw(raw).unwrap()
}

fn set(qualifier: Vec<u8>, value: Vec<u8>) -> Mutation {
    Mutation::SetCell {
        family: FamilyId::new(1),
        qualifier: Bytes::from(qualifier),
        timestamp: None,
        value: Bytes::from(value),
    }
}

fn all(memtable: &Arc<Memtable>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = memtable.cursor();
    let mut found = Vec::new();
    let mut more = cursor.seek(b"");
    while more {
        found.push((cursor.key().to_vec(), cursor.value().to_vec()));
        more = cursor.next();
    }
    found
}

/// Rows of few letters under a shared start, zero bytes among them.
fn random_row(random: &mut StdRng) -> Vec<u8> {
    let mut row = b"com.example/".to_vec();
    if random.random_range(0..20) == 0 {
        row.clear();
    }
    row.push(b'a');
    let len = random.random_range(0..12);
    row.extend((0..len).map(|_| [0, 1, b'a', 0xff][random.random_range(0..4)]));
    row
}

#[test]
fn a_memtable_agrees_with_a_sorted_map_whatever_prefix_it_was_given() {
    for seed in 0..40 {
        let mut random = StdRng::seed_from_u64(seed);
        let shared_prefix = match seed % 4 {
            0 => None,
            1 => Some(b"com.example/".to_vec()),
            2 => Some(b"com.zebra".to_vec()),
            _ => Some(random_row(&mut random)),
        };
        let memtable = Memtable::new(MemtableOptions { id: seed, shared_prefix });
        let mut model = BTreeMap::new();
        let mut next = seq(1);
        for _ in 0..30 {
            let rows: Vec<RowMutations> = (0..random.random_range(1..20))
                .map(|_| RowMutations {
                    row: Bytes::from(random_row(&mut random)),
                    mutations: (0..random.random_range(1..3))
                        .map(|_| set(vec![random.random_range(0..3)], random_row(&mut random)))
                        .collect(),
                })
                .collect();
            let mut batch = Batch::encode(&rows);
            batch.sequence(next, at(random.random_range(0..5)));
            next = batch.last_seq().next();
            memtable.insert_batch(&batch);
            model.extend(batch.cells().map(|c| (c.key.to_vec(), c.value.to_vec())));
        }
        let expected: Vec<_> = model.clone().into_iter().collect();
        assert_eq!(all(&memtable), expected, "seed {seed}");
        assert_eq!(memtable.cells(), model.len(), "seed {seed}");
        assert_eq!(memtable.largest_seq().next(), next, "seed {seed}");
        let mut cursor = memtable.cursor();
        for _ in 0..300 {
            let mut probe = Vec::new();
            key::put_row_start(&mut probe, &random_row(&mut random));
            let found = cursor.seek(&probe).then(|| cursor.key().to_vec());
            let expected = model.range(probe.clone()..).next().map(|(k, _)| k.clone());
            assert_eq!(found, expected, "seed {seed}");

            let found = cursor.prev_row(&probe).then(|| cursor.key().to_vec());
            let row = |key: &[u8]| key::row_prefix(key).unwrap().to_vec();
            let last = model.range(..probe).next_back().map(|(k, _)| row(k));
            let expected = last.map(|row| model.range(row..).next().unwrap().0.clone());
            assert_eq!(found, expected, "seed {seed}");
        }
    }
}

#[test]
fn a_replayed_cell_is_the_same_cell() {
    let memtable = Memtable::new(MemtableOptions::default());
    let key = CellKey::put(b"r", FamilyId::new(1), b"q", at(1), seq(5));
    memtable.insert(key.as_bytes(), b"v");
    memtable.insert(key.as_bytes(), b"v");
    assert_eq!(all(&memtable), [(key.as_bytes().to_vec(), b"v".to_vec())]);
    assert_eq!((memtable.cells(), memtable.largest_seq()), (1, seq(5)));
}

#[test]
fn big_values_have_memory_of_their_own_and_all_memory_is_counted() {
    let memtable = Memtable::new(MemtableOptions::default());
    assert_eq!((memtable.memory_bytes(), memtable.is_empty()), (0, true));
    let value = vec![7; 300 << 10];
    let mutations = vec![set(vec![1], value.clone()), set(vec![2], vec![8])];
    let row = Bytes::from_static(b"row");
    let mut batch = Batch::encode(&[RowMutations { row, mutations }]);
    batch.sequence(seq(1), at(1));
    memtable.insert_batch(&batch);
    let cells = all(&memtable);
    assert_eq!((&cells[0].1, &cells[1].1), (&value, &vec![8]));
    let bytes = memtable.memory_bytes();
    assert!((300 << 10..310 << 10).contains(&bytes), "{bytes}");
}

#[test]
fn large_values_and_batches_are_kept_where_they_are() {
    let memtable = Memtable::new(MemtableOptions::default());
    let alone = Bytes::from(vec![7; 1 << 20]);
    let row = |mutations| RowMutations { row: Bytes::from_static(b"row"), mutations };
    let spliced = |qualifier, value: &Bytes| Mutation::SetCell {
        family: FamilyId::new(1),
        qualifier: Bytes::from(vec![qualifier]),
        timestamp: Some(at(1)),
        value: value.clone(),
    };
    let few = vec![set(vec![9], vec![1]), spliced(1, &alone), Mutation::DeleteRow];
    let mut first = Batch::encode(&[row(few)]);
    assert_eq!(first.parts().1.len(), 1, "it is most of its request");
    first.sequence(seq(1), at(1));
    let many: Vec<_> = (0..4).map(|at| set(vec![2 + at], vec![at; 300 << 10])).collect();
    let mut second = Batch::encode(&[row(many)]);
    assert!(second.parts().1.is_empty(), "each is a small part of its request");
    second.sequence(seq(4), at(1));
    memtable.insert_batch(&first);
    memtable.insert_batch(&second);
    for batch in [&first, &second] {
        let whole = batch.payload();
        assert_eq!(whole.len(), batch.payload_len());
        let read: Vec<_> = crate::batch::decode_payload(&whole).unwrap().collect();
        assert!(read.iter().zip(batch.cells()).all(|(a, b)| a.key == b.key && a.value == b.value));
    }
    let mut cursor = memtable.cursor();
    assert!(cursor.seek(b""));
    let mut found = Vec::new();
    loop {
        found.push((cursor.value().as_ptr(), cursor.value().len()));
        if !cursor.next() {
            break;
        }
    }
    assert_eq!(found.len(), 7);
    assert_eq!(found[1], (alone.as_ptr(), alone.len()), "the very bytes of the request");
    let of_second: Vec<_> = second.cells().map(|c| (c.value.as_ptr(), c.value.len())).collect();
    assert_eq!(found[2..6], of_second, "the very bytes of the batch");
    drop((first, second, alone));
    assert!(cursor.seek(b"") && cursor.next());
    assert_eq!(cursor.value(), vec![7; 1 << 20]);
    let bytes = memtable.memory_bytes();
    assert!(((1 << 20) + (1200 << 10)..2300 << 10).contains(&bytes), "{bytes}");
}

#[test]
fn the_next_memtable_learns_what_keys_share() {
    let memtable = Memtable::new(MemtableOptions::default());
    for i in 0..2_000_u64 {
        let row = format!("user{i:012}");
        let key = CellKey::put(row.as_bytes(), FamilyId::new(1), b"", at(1), seq(i + 1));
        memtable.insert(key.as_bytes(), b"");
    }
    assert_eq!(memtable.learned_prefix(), b"user00000000");
    let small =
        Memtable::new(MemtableOptions { id: 2, shared_prefix: Some(memtable.learned_prefix()) });
    assert_eq!(small.learned_prefix(), b"user00000000");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "real threads race here; nothing of it depends on their order"
)]
fn readers_walk_in_order_while_writers_insert() {
    let memtable = Memtable::new(MemtableOptions::default());
    const EACH: u64 = 20_000;
    let writers: Vec<_> = (0..2_u64)
        .map(|writer| {
            let memtable = Arc::clone(&memtable);
            std::thread::spawn(move || {
                let mut order: Vec<u64> = (0..EACH).collect();
                order.shuffle(&mut StdRng::seed_from_u64(writer));
                for i in order {
                    let row = format!("row{:08}", i * 2 + writer);
                    let number = seq(i * 2 + writer + 1);
                    let key = CellKey::put(row.as_bytes(), FamilyId::new(1), b"q", at(1), number);
                    memtable.insert(key.as_bytes(), row.as_bytes());
                }
            })
        })
        .collect();
    let reader = {
        let memtable = Arc::clone(&memtable);
        std::thread::spawn(move || {
            let mut seen = 0;
            while (seen as u64) < 2 * EACH {
                let before = seen;
                let cells = all(&memtable);
                assert!(cells.is_sorted() && cells.len() >= before);
                for (key, value) in &cells {
                    assert_eq!(ParsedKey::parse(key).unwrap().row(), *value);
                }
                seen = cells.len();
            }
        })
    };
    for thread in writers.into_iter().chain([reader]) {
        thread.join().unwrap();
    }
    assert_eq!(memtable.cells() as u64, 2 * EACH);
}

#[test]
fn a_cursor_outlives_every_other_holder_of_the_memtable_and_may_change_threads() {
    fn assert_send<T: Send + Sync>(_: &T) {}
    let memtable = Memtable::new(MemtableOptions::default());
    let key = CellKey::put(b"r", FamilyId::new(1), b"q", at(1), seq(5));
    memtable.insert(key.as_bytes(), b"v");
    let mut cursor = memtable.cursor();
    assert_send(&cursor);
    assert!(cursor.seek(b""));
    drop(memtable);
    assert_eq!((cursor.key(), cursor.value()), (key.as_bytes(), &b"v"[..]));
    assert!(!cursor.next());
}
