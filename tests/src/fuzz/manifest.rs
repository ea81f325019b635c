//! Manifests are read back as they were; damaged ones are refused, and forged ones refused or read
//! as something that a manifest can say.

use bytes::Bytes;
use lsm::{Edit, Manifest, StoreOptions, TableRef, Version, manifest_name};
use rand::Rng;
use rand::rngs::StdRng;
use sstable::{Properties, TableMeta};
use storage::Path;
use types::{
    CellKey, Epoch, ErrorKind, FamilyId, FileId, RangeId, RowRange, SeqNo, SessionId, TableId,
    Timestamp,
};

use super::coding::forge_tail;
use super::{damage, short_bytes};

fn reference(random: &mut StdRng, counter: u64) -> TableRef {
    let seq = SeqNo::from_raw(random.random_range(1..1000)).expect("a legal number");
    let key = |row: &[u8]| CellKey::put(row, FamilyId::new(1), b"q", Timestamp::ZERO, seq);
    let (smallest, largest) = (key(b"a"), key(b"z"));
    TableRef {
        meta: TableMeta {
            file: FileId { session: random.random(), counter },
            len: random.random_range(200..1 << 40),
            checksum: random.random(),
            properties: Properties {
                cells: 2,
                rows: 2,
                timestamps: Some((Timestamp::ZERO, Timestamp::ZERO)),
                smallest_seq: seq,
                largest_seq: seq,
                smallest: smallest.as_bytes().to_vec(),
                largest: largest.as_bytes().to_vec(),
                ..Properties::default()
            },
            smallest,
            largest,
        },
        level: 0,
        clip: random.random_bool(0.3).then(|| rows(random)),
    }
}

fn rows(random: &mut StdRng) -> RowRange {
    let end = [b"m".to_vec(), short_bytes(random, 3)].concat();
    RowRange {
        start: Bytes::from([b"b".to_vec(), short_bytes(random, 3)].concat()),
        end: random.random_bool(0.7).then(|| Bytes::from(end)),
    }
}

fn some(random: &mut StdRng, number: u64) -> Option<Manifest> {
    let edit = Edit {
        added: (0..random.random_range(0..4))
            .map(|counter| (0, reference(random, counter)))
            .collect(),
        flushed: SeqNo::from_raw(random.random_range(1000..2000)),
        last_timestamp: Timestamp::from_micros(random.random_range(0..1 << 50)),
        ..Edit::default()
    };
    Some(Manifest {
        table: TableId::new(random.random()),
        range: RangeId::new(random.random()),
        number,
        epoch: Epoch::new(random.random()),
        writer: random.random(),
        session: SessionId::new(random.random()),
        previous: random.random(),
        bounds: RowRange::all(),
        options: StoreOptions::default(),
        version: Version::empty().apply(&edit).ok()?,
        min_writer: 1,
    })
}

/// See the module.
pub(super) fn manifest(random: &mut StdRng) {
    let number = random.random_range(1..100);
    let path = Path::new("tables/1/ranges/1").join(&manifest_name(number));
    let Some(manifest) = some(random, number) else {
        return;
    };
    let stored = manifest.encode();
    let read = Manifest::decode(&path, &stored).expect("an encoded manifest is read");
    assert_eq!(read, manifest);
    let mut damaged = stored.clone();
    damage(random, &mut damaged);
    if random.random_bool(0.1) {
        damaged.truncate(random.random_range(0..=damaged.len()));
    }
    let is_forged = random.random_bool(0.7);
    if is_forged {
        forge_tail(&mut damaged);
    }
    let refused = |error: lsm::Error| {
        let kind = error.kind();
        assert!(
            matches!(kind, ErrorKind::Corrupt | ErrorKind::FailedPrecondition),
            "{kind}: {error}"
        );
    };
    match Manifest::decode(&path, &damaged) {
        Ok(read) if is_forged => {
            let again = Manifest::decode(&path, &read.encode());
            assert_eq!(again.expect("what was read can be written"), read);
        }
        Ok(read) => assert_eq!(read, manifest, "damage that no checksum saw"),
        Err(error) => refused(error),
    }
    let _ = lsm::inspect::manifest(&path, &damaged);
}
