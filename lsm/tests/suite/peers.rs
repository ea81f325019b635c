//! What went wrong in other stores, and does not here. Above each test is the report that it is of.

use std::sync::Arc;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use storage::FileSystem;
use storage::memory::{Crash, MemoryFileSystem};
use tepui_lsm::{FamilyRule, FamilyRules, Store, StoreConfig};
use types::limits::{QUALIFIER_BYTES_MAX, ROW_KEY_BYTES_MAX};
use types::{FamilyId, Mutation, Retention, RowMutations, RowRange, TimestampRange, key};

use super::bed::{
    Action, Cell, FAMILY, Log, SUMS, act, at, config, delete_cells, flush, on_row, put, rules, set,
    tiny_options, visible, write,
};

fn new_disk() -> Arc<dyn FileSystem> {
    Arc::new(MemoryFileSystem::new())
}

async fn new_store() -> Arc<Store> {
    let store = Store::create(config(new_disk(), 1)).await.unwrap();
    store.set_rules(&rules());
    store
}

fn cell(row: &str, qualifier: &str, micros: i64, value: &str) -> Cell {
    (row.to_owned(), FAMILY.get(), qualifier.to_owned(), micros, value.as_bytes().to_vec())
}

/// The cells must be these: as they are, flushed, and merged.
async fn always(store: &Arc<Store>, expected: &[Cell]) {
    assert_eq!(visible(store).await.unwrap(), expected, "before a flush");
    flush(store).await.unwrap();
    assert_eq!(visible(store).await.unwrap(), expected, "after a flush");
    store.compact_all().await.unwrap();
    assert_eq!(visible(store).await.unwrap(), expected, "after a merge");
}

/// HBASE-2256, HBASE-8770: a put at the timestamp of an earlier delete was masked until a major
/// compaction.
#[tokio::test]
async fn a_put_after_a_delete_is_seen_whatever_its_timestamp_now_and_after_a_merge() {
    let store = new_store().await;
    let upto = |end| Mutation::DeleteCells {
        family: FAMILY,
        qualifier: Bytes::from_static(b"q"),
        range: TimestampRange { start: at(0), end: Some(at(end)) },
    };
    put(&store, "a", "q", 9, b"old");
    put(&store, "b", "q", 9, b"old");
    put(&store, "c", "q", 9, b"old");
    let gone = [
        on_row("a", vec![Mutation::DeleteRow]),
        on_row("b", vec![Mutation::DeleteFamily { family: FAMILY }]),
        on_row("c", vec![upto(10)]),
    ];
    write(&store, &gone).unwrap();
    let mut expected = Vec::new();
    for row in ["a", "b", "c"] {
        put(&store, row, "q", 9, b"same");
        put(&store, row, "q", 8, b"before");
        expected.extend([cell(row, "q", 9, "same"), cell(row, "q", 8, "before")]);
    }
    always(&store, &expected).await;
}

/// HBASE-15968: with two versions kept, three put and the newest deleted, the oldest was visible
/// until a major compaction and then was not.
#[tokio::test]
async fn a_deleted_version_does_not_count_against_the_versions_kept() {
    let store = new_store().await;
    let rule = |retention| FamilyRule { id: FAMILY, retention, aggregate: None };
    let two = rule(Some(Retention::MaxVersions(2)));
    store.set_rules(&Arc::new(FamilyRules::new(vec![two], FamilyId::new(2))));
    for micros in 1..=3 {
        put(&store, "r", "q", micros, b"v");
    }
    let newest = TimestampRange { start: at(3), end: None };
    let qualifier = Bytes::from_static(b"q");
    let gone = Mutation::DeleteCells { family: FAMILY, qualifier, range: newest };
    write(&store, &[on_row("r", vec![gone])]).unwrap();
    always(&store, &[cell("r", "q", 2, "v"), cell("r", "q", 1, "v")]).await;
}

/// HBASE-10118: a delete with a timestamp of the future was kept or dropped wrongly by a major
/// compaction. Here a delete hides what was written before it, and nothing else.
#[tokio::test]
async fn a_delete_that_reaches_into_the_future_hides_nothing_written_later() {
    let store = new_store().await;
    put(&store, "r", "q", 5, b"old");
    let tomorrow = TimestampRange { start: at(0), end: Some(at(86_400_000_000)) };
    let qualifier = Bytes::from_static(b"q");
    let gone = Mutation::DeleteCells { family: FAMILY, qualifier, range: tomorrow };
    write(&store, &[on_row("r", vec![gone])]).unwrap();
    always(&store, &[]).await;
    put(&store, "r", "q", 5, b"new");
    always(&store, &[cell("r", "q", 5, "new")]).await;
}

async fn rows_descending(store: &Arc<Store>) -> Vec<(String, usize)> {
    let mut scan = store.view().unwrap().scan(&RowRange::all(), &rules(), true).descending();
    let mut rows: Vec<(String, usize)> = Vec::new();
    while scan.next().await.unwrap() {
        let mut row = Vec::new();
        scan.cell().row_into(&mut row);
        let row = String::from_utf8(row).unwrap();
        match rows.last_mut() {
            Some((last, cells)) if *last == row => *cells += 1,
            _ => rows.push((row, 1)),
        }
    }
    rows
}

/// HBASE-21621: a reverse scan of large rows, with a flush between every few of them, gave fewer.
#[tokio::test]
async fn a_descending_scan_of_large_rows_over_many_files_misses_none() {
    let store = new_store().await;
    for number in 0..100 {
        put(&store, &format!("r{number:02}"), "q", 1, &vec![b'v'; 128 << 10]);
        if number % 10 == 9 && number < 99 {
            flush(&store).await.unwrap();
        }
    }
    let expected: Vec<_> = (0..100).rev().map(|number| (format!("r{number:02}"), 1)).collect();
    assert_eq!(rows_descending(&store).await, expected);
    flush(&store).await.unwrap();
    assert_eq!(rows_descending(&store).await, expected);
}

/// HBASE-14155, HBASE-14497: a reverse scan used the stack for every cell that it passed over.
#[tokio::test]
async fn a_descending_scan_passes_over_a_hundred_thousand_hidden_cells() {
    let store = new_store().await;
    put(&store, "a", "q", 1, b"v");
    for _ in 0..100 {
        let cells = (0..1_000).map(|micros| set("q", micros, b"v")).collect();
        write(&store, &[on_row("b", cells)]).unwrap();
    }
    write(&store, &[on_row("b", vec![delete_cells("q")])]).unwrap();
    put(&store, "c", "q", 1, b"v");
    let expected = [("c".to_owned(), 1), ("a".to_owned(), 1)];
    assert_eq!(rows_descending(&store).await, expected);
}

/// HBASE-16288, OpenTSDB#490: keys larger than an index block made an index of endless levels.
#[tokio::test]
async fn keys_far_larger_than_a_block_are_flushed_merged_and_found() {
    let store = new_store().await;
    assert!(tiny_options().block_bytes < 1 << 10);
    let mut expected = Vec::new();
    for letter in ["a", "b", "c"] {
        let row = letter.repeat(ROW_KEY_BYTES_MAX);
        for qualifier in ["x", "y"].map(|letter| letter.repeat(QUALIFIER_BYTES_MAX)) {
            put(&store, &row, &qualifier, 1, b"v");
            expected.push(cell(&row, &qualifier, 1, "v"));
        }
        flush(&store).await.unwrap();
    }
    always(&store, &expected).await;
}

/// apache/accumulo#449: a tablet that left a server, came back to it and was written to lost what
/// was written when the server crashed.
#[tokio::test]
async fn a_range_that_left_and_came_back_is_recovered_whole() {
    let disk = MemoryFileSystem::new();
    let config = |epoch| config(Arc::new(disk.clone()), epoch);
    let mut log = Log::default();
    let store = log.recover(config(1)).await.unwrap();
    log.write(&store, &[on_row("a", vec![set("q", 1, b"first stay")])]).unwrap();
    flush(&store).await.unwrap();
    store.close().await;
    // The same server's session and log, a later epoch.
    let back = StoreConfig { session: config(1).session, ..config(2) };
    let store = Store::open(back).await.unwrap();
    log.write(&store, &[on_row("b", vec![set("q", 1, b"second stay")])]).unwrap();
    log.write(&store, &[on_row("a", vec![set("q", 2, b"second stay")])]).unwrap();
    let disk = disk.crash(Crash::PowerCut { seed: 1 });
    let store = log.recover(super::bed::config(Arc::new(disk), 3)).await.unwrap();
    assert_eq!(visible(&store).await.unwrap(), log.model.cells());
    assert_eq!(log.model.cells().len(), 3);
}

/// Hypertable's issues 873 and 1124: after a counter was reset, what it had been was added again;
/// its issue 1032: below zero it was a huge number.
#[tokio::test]
async fn a_sum_that_was_deleted_begins_anew_and_goes_below_zero() {
    let store = new_store().await;
    let add = |operand| {
        let qualifier = Bytes::from_static(b"q");
        let sum = Mutation::AddToCell { family: SUMS, qualifier, timestamp: Some(at(5)), operand };
        write(&store, &[on_row("r", vec![sum])]).unwrap();
    };
    let is = |sum: i64| {
        let value = sum.to_be_bytes().to_vec();
        vec![("r".to_owned(), SUMS.get(), "q".to_owned(), 5, value)]
    };
    add(40);
    always(&store, &is(40)).await;
    let reset = Mutation::DeleteFamily { family: SUMS };
    write(&store, &[on_row("r", vec![reset])]).unwrap();
    add(3);
    add(-10);
    always(&store, &is(-7)).await;
    add(7);
    always(&store, &is(0)).await;
    write(&store, &[on_row("r", vec![Mutation::DeleteRow])]).unwrap();
    always(&store, &[]).await;
    add(i64::MIN);
    add(-1);
    always(&store, &is(i64::MAX)).await;
}

/// slatedb/slatedb#1769: a compaction that was resumed lost operands that lay on both sides of the
/// end of an output file.
#[tokio::test]
async fn sums_survive_merges_that_are_called_off_anywhere_and_small_files() {
    let store = new_store().await;
    let mut random = StdRng::seed_from_u64(1);
    let add = |row: u32, operand| RowMutations {
        row: Bytes::from(format!("row {row:02}")),
        mutations: vec![Mutation::AddToCell {
            family: SUMS,
            qualifier: Bytes::from(vec![b'q'; 100]),
            timestamp: Some(at(1)),
            operand,
        }],
    };
    let mut sums = vec![0_i64; 40];
    for round in 0..12 {
        for (row, sum) in (0..).zip(&mut sums) {
            let operand = random.random_range(-9..100);
            *sum += operand;
            write(&store, &[add(row, operand)]).unwrap();
        }
        flush(&store).await.unwrap();
        // Called off after a few steps, then whole.
        let mut merge = Box::pin(store.compact_all());
        for _ in 0..round * 3 {
            if futures::poll!(&mut merge).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(merge);
        if round % 3 == 2 {
            store.compact_all().await.unwrap();
        }
        let found: Vec<i64> = visible(&store)
            .await
            .unwrap()
            .iter()
            .map(|cell| key::operand(&cell.4).unwrap())
            .collect();
        assert_eq!(found, sums, "round {round}");
    }
    assert!(store.version().tables().count() > 1, "all fits one file");
}

/// fjall-rs/fjall#241: what was cleared came back on recovery; googleapis/google-cloud-go#489: what
/// was written again after everything was dropped could not be seen.
#[tokio::test]
async fn rows_that_were_cut_out_stay_out_after_a_crash_and_may_be_written_again() {
    let disk = MemoryFileSystem::new();
    let mut log = Log::default();
    let store = log.recover(config(Arc::new(disk.clone()), 1)).await.unwrap();
    for row in ["a", "b", "c"] {
        log.write(&store, &[on_row(row, vec![set("q", 7, b"old")])]).unwrap();
    }
    act(&store, &mut log, &Action::Excise(RowRange::all())).await.unwrap();
    assert_eq!(visible(&store).await.unwrap(), []);
    act(&store, &mut log, &Action::Write(vec![on_row("b", vec![set("q", 0, b"new")])]))
        .await
        .unwrap();
    assert_eq!(visible(&store).await.unwrap(), [cell("b", "q", 0, "new")]);
    let disk = disk.crash(Crash::Process);
    let store = log.recover(config(Arc::new(disk), 2)).await.unwrap();
    assert_eq!(visible(&store).await.unwrap(), [cell("b", "q", 0, "new")]);
}

/// dgraph-io/badger#2278: a compaction from level 0 past other levels dropped a tombstone while the
/// cell that it hid lay in one of these.
#[tokio::test]
async fn a_tombstone_in_new_files_hides_a_cell_in_a_deep_level_through_every_merge() {
    let store = new_store().await;
    put(&store, "deep", "q", 1, b"v");
    flush(&store).await.unwrap();
    store.compact_all().await.unwrap();
    let deepest = store.version().tables().map(|table| table.level).max().unwrap();
    assert!(deepest > 1, "level {deepest}");
    write(&store, &[on_row("deep", vec![delete_cells("q")])]).unwrap();
    for number in 0..40 {
        put(&store, &format!("other {number}"), "q", 1, &[b'v'; 100]);
        flush(&store).await.unwrap();
        store.compact_once().await.unwrap();
        let cells = visible(&store).await.unwrap();
        assert_eq!(cells.len(), number + 1, "after {number} merges");
        assert!(cells.iter().all(|cell| cell.0 != "deep"), "it is back after {number} merges");
    }
}

/// facebook/rocksdb#4024, #12872; Hypertable's issue 1017: filters of tiny tables and of one key
/// said no to keys that were there.
#[tokio::test]
async fn every_key_is_found_in_tables_of_one_row_by_itself() {
    let store = new_store().await;
    let names = ["", "\u{0}", "a", "a\u{0}", "a\u{0}b", "ab", "b"];
    let rows: Vec<String> = names.iter().map(|name| format!("\u{1}{name}")).collect();
    for row in &rows {
        put(&store, row, "", 1, b"v");
        flush(&store).await.unwrap();
    }
    for is_merged in [false, true] {
        for row in &rows {
            let range = RowRange::row(&Bytes::copy_from_slice(row.as_bytes()));
            let mut scan = store.view().unwrap().scan(&range, &rules(), true);
            assert!(scan.next().await.unwrap(), "{row:?}, merged: {is_merged}");
            assert!(!scan.next().await.unwrap(), "{row:?}, merged: {is_merged}");
        }
        store.compact_all().await.unwrap();
    }
}

/// RocksDB 9.10.0's notes: a snapshot at sequence number 0 was dropped, and with it what it must
/// not see.
#[tokio::test]
async fn a_view_from_before_the_first_write_sees_nothing_ever() {
    let store = new_store().await;
    let view = store.view().unwrap();
    put(&store, "r", "q", 1, b"v");
    flush(&store).await.unwrap();
    put(&store, "r", "q", 2, b"v");
    flush(&store).await.unwrap();
    let between = store.view().unwrap();
    write(&store, &[on_row("r", vec![Mutation::DeleteRow])]).unwrap();
    flush(&store).await.unwrap();
    store.compact_all().await.unwrap();
    let mut scan = view.scan(&RowRange::all(), &rules(), true);
    assert!(!scan.next().await.unwrap(), "it sees what came later");
    let mut scan = between.scan(&RowRange::all(), &rules(), true);
    assert!(scan.next().await.unwrap(), "it sees what was deleted later");
    assert_eq!(visible(&store).await.unwrap(), []);
}

/// palantir/atlasdb#156: an empty value was taken for a deleted cell.
#[tokio::test]
async fn an_empty_value_is_a_cell_like_any_other() {
    let store = new_store().await;
    put(&store, "r", "", 1, b"");
    put(&store, "r", "q", 1, b"full");
    put(&store, "r", "q", 2, b"");
    let newest = [cell("r", "", 1, ""), cell("r", "q", 2, ""), cell("r", "q", 1, "full")];
    always(&store, &newest).await;
    write(&store, &[on_row("r", vec![delete_cells("")])]).unwrap();
    always(&store, &newest[1..]).await;
}

/// Hypertable 0.9.8.11's notes: a memtable that held nothing but deletes was not written out.
#[tokio::test]
async fn a_memtable_of_deletes_alone_is_written_out_and_found_again() {
    let disk = new_disk();
    let store = Store::create(config(Arc::clone(&disk), 1)).await.unwrap();
    put(&store, "a", "q", 1, b"v");
    put(&store, "b", "q", 1, b"v");
    flush(&store).await.unwrap();
    write(&store, &[on_row("a", vec![Mutation::DeleteRow])]).unwrap();
    flush(&store).await.unwrap();
    assert!(store.oldest_needed().is_none(), "the log may go");
    let store = Store::open(config(disk, 2)).await.unwrap();
    always(&store, &[cell("b", "q", 1, "v")]).await;
}
