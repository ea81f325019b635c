//! What was written is what is read, by every movement.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tepui_sstable::{
    BlockCache, CacheForm, Properties, Step, Table, TableWriter, ValueRef, WriterOptions,
    verify_file,
};
use types::{Bloom, Compression, ErrorKind, FamilyId, Kind, ParsedKey, Timestamp, key};

use crate::files::{
    Cells, FILE, Reader, next, open, prev_row, scan, seek, settle, value, write, writer,
};
use crate::samples::{bytes, cell, column_prefix, random_cells, row_prefix, seq};

fn random_options(random: &mut StdRng) -> WriterOptions {
    WriterOptions {
        block_bytes: [1, 64, 512, 4096, 16 << 10][random.random_range(0..5)],
        index_block_bytes: [1, 128, 4096][random.random_range(0..3)],
        restart_interval: [1, 2, 16][random.random_range(0..3)],
        compression: match random.random_bool(0.5) {
            true => Compression::Lz4,
            false => Compression::None,
        },
        bloom: [Bloom::RowAndColumn, Bloom::Row, Bloom::None][random.random_range(0..3)],
        bloom_bits_per_key: [0, 1, 10, 20][random.random_range(0..4)],
        value_block_threshold: [1, 100, 16 << 10][random.random_range(0..3)],
    }
}

/// The first key of the row that holds the last key before `before`.
fn expected_prev_row<'a>(cells: &'a Cells, before: &[u8]) -> Option<&'a Vec<u8>> {
    let (last, _) = cells.range(..before.to_vec()).next_back()?;
    let row = key::row_prefix(last).unwrap();
    cells.range(row.to_vec()..).next().map(|(first, _)| first)
}

#[tokio::test]
async fn every_movement_agrees_with_a_sorted_map() {
    for seed in 0..40 {
        let random = &mut StdRng::seed_from_u64(seed);
        let count = random.random_range(1..400);
        let cells = random_cells(random, count);
        let options = random_options(random);
        let (meta, content) = write(&cells, options).await;
        let cache = random.random_bool(0.5).then(|| Arc::new(BlockCache::new(1 << 20)));
        let table = open(content.clone(), cache).await.unwrap();
        if random.random_bool(0.3) {
            table.keep_in_memory().await.unwrap();
        }
        assert_eq!(scan(&table).await.unwrap(), cells, "seed {seed} {options:?}");
        let reader = Arc::new(Reader(content));
        verify_file(reader, FILE, meta.len, meta.checksum).await.unwrap();

        let mut cursor = table.cursor(true);
        let mut targets: Vec<Vec<u8>> = cells.keys().cloned().collect();
        for key in cells.keys() {
            targets.push(key[..random.random_range(0..key.len())].to_vec());
            targets.push([key.as_slice(), &[0]].concat());
            targets.push(key::row_prefix(key).unwrap().to_vec());
        }
        targets.push(vec![0xff; 20]);
        for _ in 0..targets.len() {
            let target = &targets[random.random_range(0..targets.len())];
            let mut expected = cells.range(target.clone()..);
            let mut found = seek(&mut cursor, target).await.unwrap();
            for _ in 0..random.random_range(1..6) {
                let Some((key, content)) = expected.next() else {
                    assert!(!found, "seed {seed}");
                    assert_eq!(cursor.next().unwrap(), Step::End);
                    break;
                };
                assert!(found, "seed {seed} {target:02x?}");
                assert_eq!(cursor.key(), key, "seed {seed}");
                assert_eq!(value(&cursor).await.unwrap(), *content, "seed {seed}");
                found = next(&mut cursor).await.unwrap();
            }
            let found = prev_row(&mut cursor, target).await.unwrap();
            let first = expected_prev_row(&cells, target);
            assert_eq!(found.then(|| cursor.key()), first.map(Vec::as_slice), "seed {seed}");
        }
    }
}

#[tokio::test]
async fn properties_count_what_was_written_and_filters_know_all_of_it() {
    for seed in 0..20 {
        let random = &mut StdRng::seed_from_u64(seed);
        let cells = random_cells(random, 300);
        let (meta, content) = write(&cells, WriterOptions::default()).await;
        let table = open(content, None).await.unwrap();
        let properties = table.properties();
        assert_eq!(*properties, meta.properties);
        let keys: Vec<ParsedKey<'_>> =
            cells.keys().map(|key| ParsedKey::parse(key).unwrap()).collect();
        let of_kind = |kind| keys.iter().filter(|key| key.kind == kind).count() as u64;
        assert_eq!(properties.cells, cells.len() as u64);
        assert_eq!(properties.row_tombstones, of_kind(Kind::DeleteRow));
        assert_eq!(properties.family_tombstones, of_kind(Kind::DeleteFamily));
        assert_eq!(properties.tombstones, properties.cells - of_kind(Kind::Put));
        let mut rows: Vec<&[u8]> = keys.iter().map(ParsedKey::row_prefix).collect();
        rows.dedup();
        assert_eq!(properties.rows, rows.len() as u64);
        let raw: usize = cells.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert_eq!(properties.raw_bytes, raw as u64);
        assert_eq!(Some(properties.smallest_seq), keys.iter().map(|key| key.seq).min());
        assert_eq!(Some(properties.largest_seq), keys.iter().map(|key| key.seq).max());
        assert_eq!(meta.smallest.as_bytes(), cells.first_key_value().unwrap().0);
        assert_eq!(meta.largest.as_bytes(), cells.last_key_value().unwrap().0);
        for key in &keys {
            assert!(table.may_contain_row(key.row_prefix()));
            if matches!(key.kind, Kind::Put | Kind::DeleteCells) {
                assert!(table.may_contain_column(key.column_prefix()));
            }
        }
    }
}

#[tokio::test]
async fn a_column_probe_meets_the_tombstones_of_its_row_and_family() {
    let mut cells = Cells::new();
    let mut key = Vec::new();
    key::put_delete_row(&mut key, b"row gone", seq(1));
    cells.insert(std::mem::take(&mut key), Vec::new());
    key::put_delete_family(&mut key, b"row", FamilyId::new(2), seq(2));
    cells.insert(key, Vec::new());
    cells.insert(cell(b"row", 3, b"q", 1, 3), b"value".to_vec());
    let (_, content) = write(&cells, WriterOptions::default()).await;
    let table = open(content, None).await.unwrap();
    let maybe = |row: &[u8], family, qualifier: &[u8]| {
        table.may_contain_column(&column_prefix(row, family, qualifier))
    };
    assert!(maybe(b"row gone", 1, b"any"), "the row has a tombstone");
    assert!(maybe(b"row", 2, b"any"), "the family has a tombstone");
    assert!(maybe(b"row", 3, b"q"), "the cell itself");
    assert!(table.may_contain_row(&row_prefix(b"row gone")));
    let absent = (0..200u32).filter(|n| maybe(b"row", 1, &n.to_be_bytes())).count();
    assert!(absent < 60, "a family without tombstone is mostly denied: {absent} of 200");
}

#[tokio::test]
async fn filters_are_seldom_wrong() {
    let mut cells = Cells::new();
    for row in 0..10_000u32 {
        cells.insert(cell(&row.to_be_bytes(), 1, b"q", 1, 1), Vec::new());
    }
    let (_, content) = write(&cells, WriterOptions::default()).await;
    let table = open(content, None).await.unwrap();
    let probes = 10_000..110_000u32;
    let rows = probes.clone().filter(|row| table.may_contain_row(&row_prefix(&row.to_be_bytes())));
    let rows = rows.count();
    assert!((1..1_500).contains(&rows), "{rows} of 100,000 absent rows");
    let columns = probes
        .filter(|row| table.may_contain_column(&column_prefix(&row.to_be_bytes(), 1, b"q")))
        .count();
    assert!((1..1_500).contains(&columns), "{columns} of 100,000 absent columns");
    assert!(table.memory_bytes() > 2 * 12_500, "filters count as memory");
}

#[tokio::test]
async fn the_largest_keys_and_empty_values_are_kept() {
    let mut cells = Cells::new();
    for n in 0..20u8 {
        let row = vec![0; 4096 - usize::from(n)];
        let mut qualifier = vec![0; 16 << 10];
        qualifier[100] = n;
        cells.insert(cell(&row, 1, &qualifier, 5, 1), Vec::new());
        cells.insert(cell(&row, 1, &[], 5, 2), Vec::new());
    }
    assert!(cells.keys().any(|key| key.len() > 40_000));
    let (meta, content) = write(&cells, WriterOptions::default()).await;
    let table = open(content.clone(), None).await.unwrap();
    assert_eq!(scan(&table).await.unwrap(), cells);
    let mut cursor = table.cursor(false);
    for key in cells.keys() {
        assert!(seek(&mut cursor, key).await.unwrap());
        assert_eq!(cursor.key(), key);
        assert!(cursor.value().is_empty());
    }
    verify_file(Arc::new(Reader(content)), FILE, meta.len, meta.checksum).await.unwrap();
}

#[tokio::test]
async fn a_value_of_16_mib_is_stored_in_pieces_and_copied_without_its_block() {
    let random = &mut StdRng::seed_from_u64(3);
    let mut cells = Cells::new();
    cells.insert(cell(b"a", 1, b"", 1, 1), b"small".to_vec());
    cells.insert(cell(b"b", 1, b"", 1, 2), bytes(random, 16 << 20));
    cells.insert(cell(b"c", 1, b"", 1, 3), bytes(random, (1 << 20) + 1));
    cells.insert(cell(b"d", 1, b"", 1, 4), bytes(random, 16 << 10));
    cells.insert(cell(b"e", 1, b"", 1, 5), bytes(random, (16 << 10) - 1));
    let (meta, content) = write(&cells, WriterOptions::default()).await;
    assert_eq!(meta.properties.value_block_bytes, (17 << 20) + 1 + (16 << 10));
    let table = open(content, None).await.unwrap();
    assert_eq!(scan(&table).await.unwrap(), cells);

    let (mut copy, copied) = writer(WriterOptions::default());
    copy_all(&table, &mut copy).await;
    let copied_meta = copy.finish().await.unwrap();
    let copied = copied.lock().unwrap().clone();
    assert_eq!(copied_meta, meta, "the copy is the same file");
    verify_file(Arc::new(Reader(copied)), FILE, meta.len, meta.checksum).await.unwrap();
}

/// Copies all entries; stored values raw.
async fn copy_all(table: &Arc<Table>, into: &mut TableWriter) {
    let mut cursor = table.cursor(false);
    let mut found = seek(&mut cursor, &[]).await.unwrap();
    let mut pieces = 0;
    while found {
        match cursor.value() {
            ValueRef::Inline(content) => into.add(cursor.key(), content).await.unwrap(),
            ValueRef::Stored(stored) => {
                pieces += stored.pieces();
                into.add_stored(cursor.key(), table, stored).await.unwrap();
            }
        }
        found = next(&mut cursor).await.unwrap();
    }
    assert_eq!(pieces, 16 + 2 + 1);
}

#[tokio::test]
async fn cached_blocks_are_found_without_waiting_and_a_scan_leaves_no_trace() {
    let mut cells = Cells::new();
    for row in 0..5_000u32 {
        cells.insert(cell(&row.to_be_bytes(), 1, b"q", 1, 1), vec![7; 50]);
    }
    let (_, content) = write(&cells, WriterOptions::default()).await;
    let cache = Arc::new(BlockCache::new(8 << 20));
    let table = open(content, Some(Arc::clone(&cache))).await.unwrap();
    scan(&table).await.unwrap();
    let tables = cache.pins().tables;
    assert_eq!(cache.used_bytes(), tables, "a scan without fill_cache");

    let mut cursor = table.cursor(true);
    let key = cells.keys().nth(2_500).unwrap();
    assert!(matches!(cursor.seek(key).unwrap(), Step::NeedBlock(_)));
    let step = cursor.seek(key).unwrap();
    assert!(settle(&mut cursor, step).await.unwrap());
    assert!(cache.used_bytes() > tables);
    let mut second = table.cursor(true);
    assert_eq!(second.seek(key).unwrap(), Step::Cell, "no wait for what is cached");
    assert_eq!(second.key(), key);
    assert!(cache.counts().hits >= 2, "{:?}", cache.counts());
    assert_eq!(second.seek(&[0xff]).unwrap(), Step::End, "past the end needs no block");
}

#[tokio::test]
async fn a_cache_of_compressed_blocks_holds_more_of_them_and_answers_the_same() {
    let row = |row: u32| (cell(&row.to_be_bytes(), 1, b"q", 1, 1), vec![7; 200]);
    let cells: Cells = (0..20_000).map(row).collect();
    let (_, content) = write(&cells, WriterOptions::default()).await;
    let mut misses = Vec::new();
    for form in [CacheForm::Plain, CacheForm::Compressed] {
        let cache = Arc::new(BlockCache::with_form(600 << 10, form));
        let table = open(content.clone(), Some(Arc::clone(&cache))).await.unwrap();
        let mut cursor = table.cursor(true);
        for round in 0..3 {
            for (key, content) in &cells {
                assert!(seek(&mut cursor, key).await.unwrap());
                assert_eq!(value(&cursor).await.unwrap(), *content, "round {round}, {form:?}");
            }
        }
        assert!(cache.used_bytes() <= 600 << 10);
        misses.push(cache.counts().misses);
    }
    assert!(misses[1] * 2 < misses[0], "misses of plain and compressed blocks: {misses:?}");
}

#[tokio::test]
async fn what_open_tables_hold_is_taken_from_the_cache_and_given_back() {
    let row = |row: u32| (cell(&row.to_be_bytes(), 1, b"q", 1, 1), vec![7; 50]);
    let cells: Cells = (0..20_000).map(row).collect();
    let (_, content) = write(&cells, WriterOptions::default()).await;
    let bytes = 400 << 10;
    let cache = Arc::new(BlockCache::new(bytes));
    let read_all = async |table: &Arc<Table>| {
        let mut cursor = table.cursor(true);
        let mut found = seek(&mut cursor, &[]).await.unwrap();
        while found {
            found = next(&mut cursor).await.unwrap();
        }
    };
    let table = open(content.clone(), Some(Arc::clone(&cache))).await.unwrap();
    let one = cache.pins().tables;
    assert_eq!(one, table.memory_bytes() as u64);
    assert!(one > 20_000 * 10 / 8, "the row filter alone has more than {one} bytes");
    read_all(&table).await;
    assert!(cache.used_bytes() > bytes - (20 << 10), "the cache is full");
    let mut others = Vec::new();
    for count in 2..=5 {
        others.push(open(content.clone(), Some(Arc::clone(&cache))).await.unwrap());
        assert_eq!(cache.pins().tables, count * one);
        assert!(cache.used_bytes() <= bytes, "blocks made room for a table");
    }
    for _ in 6..40 {
        others.push(open(content.clone(), Some(Arc::clone(&cache))).await.unwrap());
    }
    read_all(&table).await;
    let blocks = cache.used_bytes() - cache.pins().tables;
    assert!((1..=bytes / 8).contains(&blocks), "{blocks} bytes of blocks beside too many tables");
    drop(others);
    assert_eq!(cache.pins().tables, one);
    read_all(&table).await;
    assert!(cache.used_bytes() > bytes - (20 << 10), "the room came back");
}

#[tokio::test]
async fn the_cache_keeps_to_its_bytes() {
    let mut cells = Cells::new();
    let random = &mut StdRng::seed_from_u64(4);
    for row in 0..4_000u32 {
        cells.insert(cell(&row.to_be_bytes(), 1, b"q", 1, 1), bytes(random, 200));
    }
    let (_, content) = write(&cells, WriterOptions::default()).await;
    let cache = Arc::new(BlockCache::new(100 << 10));
    let table = open(content, Some(Arc::clone(&cache))).await.unwrap();
    let mut cursor = table.cursor(true);
    for key in cells.keys() {
        assert!(seek(&mut cursor, key).await.unwrap());
        assert!(cache.used_bytes() <= 100 << 10);
    }
    assert!(cache.used_bytes() > 50 << 10, "{} bytes used", cache.used_bytes());
}

#[tokio::test]
async fn a_row_that_begins_a_block_is_found_without_the_block_before() {
    let mut cells = Cells::new();
    for row in 0..200u32 {
        cells.insert(cell(format!("row{row:04}").as_bytes(), 1, b"q", 1, 1), vec![1; 3000]);
    }
    let options = WriterOptions { compression: Compression::None, ..WriterOptions::default() };
    let (meta, content) = write(&cells, options).await;
    assert_eq!(meta.properties.data_blocks, 200, "one row in each block");
    let table = open(content, None).await.unwrap();
    for row in 0..200u32 {
        let mut cursor = table.cursor(false);
        let mut step = cursor.seek(&row_prefix(format!("row{row:04}").as_bytes())).unwrap();
        let mut loads = 0;
        while let Step::NeedBlock(handle) = step {
            loads += 1;
            step = cursor.load_and_resume(handle).await.unwrap();
        }
        assert_eq!((step, loads), (Step::Cell, 2), "one index partition and one data block");
    }
}

#[tokio::test]
async fn bytes_that_are_no_key_are_refused() {
    let (mut writer, _) = writer(WriterOptions::default());
    let error = writer.add(b"apple", b"red").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("apple"), "{error}");
}

#[tokio::test]
async fn parts_of_a_table_have_about_its_bytes_between_them() {
    for seed in 0..20 {
        let random = &mut StdRng::seed_from_u64(seed);
        let cells = random_cells(random, 300);
        let (meta, content) = write(&cells, random_options(random)).await;
        let table = open(content, None).await.unwrap();
        let keys: Vec<&Vec<u8>> = cells.keys().collect();
        let mut cuts: Vec<&[u8]> =
            (0..3).map(|_| keys[random.random_range(0..keys.len())].as_slice()).collect();
        cuts.sort_unstable();
        let mut sum = table.approximate_bytes(&[], Some(cuts[0])).await.unwrap();
        for pair in cuts.windows(2) {
            sum += table.approximate_bytes(pair[0], Some(pair[1])).await.unwrap();
        }
        sum += table.approximate_bytes(cuts[2], None).await.unwrap();
        assert!(sum.abs_diff(meta.len) <= 8, "seed {seed}: {sum} of {}", meta.len);
        assert_eq!(table.approximate_bytes(&[0xff; 20], None).await.unwrap(), 0);
        let spread = table.spread().await.unwrap();
        assert!(spread.is_sorted_by(|a, b| a.0 < b.0), "seed {seed}");
        let all: u64 = spread.iter().map(|(_, bytes)| bytes).sum();
        assert!(all <= meta.len && !spread.is_empty(), "seed {seed}: {all} of {}", meta.len);
    }
}

#[tokio::test]
async fn a_filter_that_was_not_asked_for_is_not_written_and_answers_maybe() {
    let cells = Cells::from([(cell(b"r", 1, b"q", 5, 9), b"v".to_vec())]);
    let with = async |bloom| {
        let (_, content) = write(&cells, WriterOptions { bloom, ..WriterOptions::default() }).await;
        let table = open(content, None).await.unwrap();
        let row = table.may_contain_row(&row_prefix(b"absent"));
        (row, table.may_contain_column(&column_prefix(b"absent", 1, b"q")))
    };
    assert_eq!(with(Bloom::RowAndColumn).await, (false, false));
    assert_eq!(with(Bloom::Row).await, (false, true));
    assert_eq!(with(Bloom::None).await, (true, true));
}

/// HBASE-15133: a row of more columns than 31 bits count was lost by a compaction.
#[test]
fn counts_past_31_and_32_bits_are_kept() {
    for count in [u64::from(i32::MAX.unsigned_abs()) + 1, u64::from(u32::MAX) + 1, u64::MAX >> 1] {
        let counted = Properties {
            cells: count,
            tombstones: count - 1,
            rows: count - 2,
            raw_bytes: count,
            value_block_bytes: count,
            data_blocks: count,
            expired_bytes: count,
            families: Some(vec![FamilyId::new(1)]),
            timestamps: Some((Timestamp::ZERO, Timestamp::ZERO)),
            smallest: cell(b"a", 1, b"q", 1, 1),
            largest: cell(b"b", 1, b"q", 1, 1),
            ..Properties::default()
        };
        assert_eq!(Properties::decode(&counted.encode()), Some(counted));
    }
}
