//! The bytes themselves: golden ones, and hostile ones.

use std::collections::BTreeMap;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use tepui_coordination::format::{Refusal, Snapshot, decode_record, encode_record};
use tepui_coordination::{Revision, Transaction, Versioned};
use types::SessionId;

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(16) {
        let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&digits.join(" "));
        text.push('\n');
    }
    text
}

fn check_golden(name: &str, found: &[u8], expected: &str) {
    let found = hex(found);
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
        #[expect(clippy::disallowed_methods, reason = "the golden file is the source tree's")]
        std::fs::write(path, &found).unwrap();
    }
    assert_eq!(found, expected);
}

fn snapshot() -> Snapshot {
    let entry = |value: &'static str, created, session| Versioned {
        value: Bytes::from_static(value.as_bytes()),
        created: Revision::new(created),
        modified: Revision::new(9),
        session,
    };
    Snapshot {
        number: 3,
        revision: Revision::new(12),
        log: Some(SessionId::new(0xabc)),
        entries: BTreeMap::from([
            ("/a".to_owned(), entry("one", 4, None)),
            ("/b".to_owned(), entry("", 9, Some(SessionId::new(0xdef)))),
        ]),
    }
}

fn transaction() -> Transaction {
    let put = Transaction::new().put("/a", "one").delete("/b");
    put.put_bound("/c", "", SessionId::new(0xdef))
}

#[test]
fn a_small_snapshot_and_record_have_exactly_these_bytes() {
    let stored = snapshot().encode();
    check_golden("snapshot.hex", &stored, include_str!("../golden/snapshot.hex"));
    assert_eq!(Snapshot::decode(&stored), Ok(snapshot()));
    let stored = encode_record(&transaction().changes);
    check_golden("record.hex", &stored, include_str!("../golden/record.hex"));
    let read = decode_record(&Bytes::from(stored)).unwrap();
    assert_eq!(read, transaction().changes);
}

fn unhex(text: &str) -> Bytes {
    text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// The files are never written anew: they are what the first release wrote.
#[test]
fn a_snapshot_and_a_record_of_format_1_are_read_for_ever() {
    let stored = unhex(include_str!("../golden/snapshot_v1.hex"));
    assert_eq!(Snapshot::decode(&stored), Ok(snapshot()));
    let stored = unhex(include_str!("../golden/record_v1.hex"));
    assert_eq!(decode_record(&stored), Ok(transaction().changes));
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let mut stored = encode_record(&transaction().changes);
    stored[2] = 2;
    assert_eq!(decode_record(&Bytes::from(stored)), Err(Refusal::TooNew(2)));
}

#[test]
fn damaged_bytes_are_refused_without_a_panic() {
    let snapshot = snapshot().encode();
    let record = encode_record(&transaction().changes);
    for seed in 0..3_000 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut bytes = if random.random_bool(0.5) { snapshot.to_vec() } else { record.clone() };
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.next_u32() as u8;
        }
        bytes.truncate(random.random_range(0..=bytes.len()));
        let bytes = Bytes::from(bytes);
        if bytes != snapshot {
            assert!(Snapshot::decode(&bytes).is_err(), "seed {seed}");
        }
        // A record has no checksum of its own (the log's frame has): any answer but a panic.
        let _ = decode_record(&bytes);
    }
}
