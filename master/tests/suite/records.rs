//! The bytes of the records.

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use tepui_master::record::{
    Descriptor, NextIds, RangeRecord, Refusal, TableState, parse_range_key, range_key,
};
use types::{
    Aggregate, Bloom, ColumnFamily, Compression, Epoch, FamilyId, Generation, Granularity,
    GroupSettings, LocalityGroup, RangeId, Retention, RowRange, SessionId, TableId, TableSchema,
};

use super::cluster::name;

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(16) {
        let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&digits.join(" "));
        text.push('\n');
    }
    text
}

fn descriptor() -> Descriptor {
    let family = |id, name: &str, retention| ColumnFamily {
        id: FamilyId::new(id),
        name: name.to_owned(),
        retention,
        aggregate: (id == 2).then_some(Aggregate::Sum),
    };
    let both = vec![Retention::MaxVersions(3), Retention::MaxAge(86_400_000_000)];
    let nested = Retention::Union(vec![Retention::Intersection(both), Retention::MaxVersions(9)]);
    let schema = TableSchema {
        id: TableId::new(7),
        name: name("t"),
        generation: Generation::new(4),
        granularity: Granularity::Micros,
        families: vec![family(2, "plain", None), family(5, "cf", Some(nested))],
        next_family: FamilyId::new(6),
        groups: vec![LocalityGroup {
            name: "hot".to_owned(),
            families: vec![FamilyId::new(5)],
            settings: GroupSettings {
                block_bytes: Some(16 << 10),
                compression: Some(Compression::Lz4),
                bloom: Bloom::Row,
                in_memory: true,
            },
        }],
    };
    Descriptor { state: TableState::Enabled, schema }
}

fn range() -> RangeRecord {
    let rows = RowRange { start: Bytes::from_static(b"a"), end: Some(Bytes::from_static(b"m")) };
    RangeRecord { rows, epoch: Epoch::new(3), session: Some(SessionId::new(0xabc)) }
}

#[test]
fn records_have_exactly_these_bytes_and_read_back() {
    let ids = NextIds { table: TableId::new(8), range: RangeId::new(21) };
    let (table, range) = (descriptor(), range());
    let found = format!(
        "next ids\n{}descriptor\n{}range\n{}",
        hex(&ids.encode()),
        hex(&table.encode()),
        hex(&range.encode())
    );
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/records.hex");
        #[expect(clippy::disallowed_methods, reason = "the golden file is the source tree's")]
        std::fs::write(path, &found).unwrap();
    }
    assert_eq!(NextIds::decode(&ids.encode()), Ok(ids));
    assert_eq!(Descriptor::decode(&table.encode(), name("t")), Ok(table));
    assert_eq!(RangeRecord::decode(&range.encode()), Ok(range));
    assert_eq!(found, include_str!("../golden/records.hex"));
}

#[test]
fn a_descriptor_of_the_first_version_still_opens() {
    let digits = include_str!("../golden/descriptor_v1.hex").split_whitespace();
    let stored: Vec<u8> = digits.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let mut expected = descriptor();
    expected.schema.groups.clear();
    for family in &mut expected.schema.families {
        family.aggregate = None;
    }
    assert_eq!(Descriptor::decode(&Bytes::from(stored), name("t")), Ok(expected));
}

#[test]
fn range_keys_read_back_and_sort_by_number() {
    let key = range_key(TableId::new(7), RangeId::new(9));
    assert_eq!(parse_range_key(&key), Some((TableId::new(7), RangeId::new(9))));
    assert!(key < range_key(TableId::new(7), RangeId::new(10)));
    assert!(key < range_key(TableId::new(10), RangeId::new(1)));
    for bad in ["/ranges/7/9", "/ranges/", "/tables/t", "/ranges/00000000000000000007"] {
        assert_eq!(parse_range_key(bad), None, "{bad}");
    }
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let mut stored = range().encode().to_vec();
    stored[0] = 3;
    assert_eq!(RangeRecord::decode(&Bytes::from(stored)), Err(Refusal::TooNew(3)));
}

#[test]
fn damaged_records_are_refused_or_whole_but_never_a_panic() {
    let whole = [descriptor().encode(), range().encode()];
    for seed in 0..3_000 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut stored = whole[random.random_range(0..2)].to_vec();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..stored.len());
            stored[at] = random.next_u32() as u8;
        }
        stored.truncate(random.random_range(0..=stored.len()));
        let stored = Bytes::from(stored);
        if let Ok(table) = Descriptor::decode(&stored, name("t")) {
            assert_eq!(Descriptor::decode(&table.encode(), name("t")), Ok(table), "seed {seed}");
        }
        if let Ok(range) = RangeRecord::decode(&stored) {
            assert_eq!(RangeRecord::decode(&range.encode()), Ok(range), "seed {seed}");
        }
    }
    // Nested without end.
    let mut deep = descriptor().encode().to_vec();
    let retention = deep.len() - 9;
    deep.truncate(retention);
    for _ in 0..100_000 {
        deep.extend_from_slice(&[4, 1, 0, 0, 0]);
    }
    Descriptor::decode(&Bytes::from(deep), name("t")).unwrap_err();
}
