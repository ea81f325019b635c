//! The coordinator's snapshots and records are read back as they were, or refused when damaged.

use std::collections::BTreeMap;

use bytes::Bytes;
use coordination::format::{Refusal, Snapshot, decode_record, encode_record};
use coordination::{Change, Revision, Versioned};
use rand::Rng;
use rand::rngs::StdRng;
use types::SessionId;

use super::coding::forge_tail;
use super::{damage, short_bytes};

fn key(random: &mut StdRng) -> String {
    format!("/tables/{}", random.random_range(0..20))
}

fn session(random: &mut StdRng) -> Option<SessionId> {
    random.random_bool(0.3).then(|| SessionId::new(random.random_range(1..u128::MAX)))
}

fn some(random: &mut StdRng) -> Snapshot {
    let revision: u64 = random.random_range(100..1000);
    let mut entries = BTreeMap::new();
    for _ in 0..random.random_range(0..5) {
        let created = random.random_range(1..50);
        let found = Versioned {
            value: Bytes::from(short_bytes(random, 30)),
            created: Revision::new(created),
            modified: Revision::new(created + random.random_range(0..50)),
            session: session(random),
        };
        entries.insert(key(random), found);
    }
    Snapshot {
        number: random.random(),
        revision: Revision::new(revision),
        log: session(random),
        entries,
    }
}

/// Snapshots: half of the damaged ones with a forged checksum.
pub(super) fn snapshot(random: &mut StdRng) {
    let snapshot = some(random);
    let stored = snapshot.encode();
    assert_eq!(Snapshot::decode(&stored), Ok(snapshot.clone()), "read back as it was");
    let mut damaged = stored.to_vec();
    damage(random, &mut damaged);
    if random.random_bool(0.1) {
        damaged.truncate(random.random_range(0..=damaged.len()));
    }
    let is_forged = random.random_bool(0.5);
    if is_forged {
        forge_tail(&mut damaged);
    }
    match Snapshot::decode(&Bytes::from(damaged)) {
        Ok(read) if is_forged => {
            assert_eq!(Snapshot::decode(&read.encode()), Ok(read), "what was read can be written");
        }
        Ok(read) => assert_eq!(read, snapshot, "damage that no checksum saw"),
        Err(Refusal::Damaged(_) | Refusal::TooNew(_)) => {}
    }
}

/// Records of transactions; the log around them has the checksums.
pub(super) fn record(random: &mut StdRng) {
    let change = |random: &mut StdRng| {
        if random.random_bool(0.3) {
            return Change::Delete { key: key(random) };
        }
        Change::Put {
            key: key(random),
            value: Bytes::from(short_bytes(random, 30)),
            session: session(random),
        }
    };
    let changes: Vec<Change> = (0..random.random_range(1..6)).map(|_| change(random)).collect();
    let stored = encode_record(&changes);
    assert_eq!(decode_record(&Bytes::from(stored.clone())), Ok(changes), "read back as it was");
    let mut damaged = stored;
    damage(random, &mut damaged);
    damaged.truncate(random.random_range(0..=damaged.len()));
    if let Ok(read) = decode_record(&Bytes::from(damaged)) {
        let again = decode_record(&Bytes::from(encode_record(&read)));
        assert_eq!(again, Ok(read), "what was read can be written");
    }
}
