//! Levels at work: what a merge costs, how it is held back and called off, what writers feel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use storage::faulty::{Action, FaultyFileSystem, Rule};
use storage::memory::MemoryFileSystem;
use storage::{FileSystem, Operation};
use tepui_lsm::{Reason, Store, StoreConfig, StoreOptions};
use types::{ErrorKind, RowRange};

use super::bed::{Log, config, flush, on_row, put, set, tiny_options, visible, write};

async fn store_with(files: Arc<dyn FileSystem>, options: StoreOptions) -> Arc<Store> {
    Store::create(StoreConfig { options, ..config(files, 1) }).await.unwrap()
}

fn memory() -> Arc<dyn FileSystem> {
    Arc::new(MemoryFileSystem::new())
}

/// Compacts until nothing is to be done.
async fn settle(store: &Arc<Store>) {
    let mut steps = 0;
    while store.compact_once().await.unwrap() {
        steps += 1;
        assert!(steps < 1_000, "it never ends");
    }
    assert!(store.compaction_score() < 1_000, "{}", store.compaction_score());
    assert_eq!(store.compaction_debt(), 0);
}

fn levels(store: &Store) -> Vec<u32> {
    let mut levels: Vec<u32> = store.version().tables().map(|table| table.level).collect();
    levels.dedup();
    levels
}

#[tokio::test]
async fn ordered_writes_are_moved_and_never_rewritten() {
    let store = store_with(memory(), tiny_options()).await;
    for round in 0..60 {
        for place in 0..8 {
            put(&store, &format!("row {:05}", round * 8 + place), "q", 1, &[7; 100]);
        }
        flush(&store).await.unwrap();
        settle(&store).await;
    }
    let statistics = store.statistics();
    assert_eq!((statistics.merges, statistics.merge_written_bytes), (0, 0));
    assert!(statistics.moved_bytes >= statistics.flushed_bytes, "{statistics:?}");
    assert!((statistics.write_amplification() - 1.0).abs() < 1e-9);
    assert!(levels(&store).contains(&6), "{:?}", levels(&store));
    assert_eq!(visible(&store).await.unwrap().len(), 480);
    store.close().await;
}

/// Options whose sizes are to each other as the defaults are.
fn small_levels() -> StoreOptions {
    StoreOptions {
        table_bytes: 4 << 10,
        level0_merge_runs: 4,
        level_base_bytes: 16 << 10,
        level_ratio: 10,
        compaction_bytes_per_second: 0,
        ..tiny_options()
    }
}

#[tokio::test]
async fn a_random_load_keeps_reads_and_space_and_writes_bounded() {
    let store = store_with(memory(), small_levels()).await;
    let mut random = StdRng::seed_from_u64(11);
    for _ in 0..150 {
        for _ in 0..40 {
            let value: Vec<u8> = (0..100).map(|_| random.random()).collect();
            put(&store, &format!("row {:05}", random.random_range(0..20_000)), "q", 1, &value);
        }
        flush(&store).await.unwrap();
        settle(&store).await;
        let runs = store.statistics().sorted_runs;
        assert!(runs <= 3 + 4, "{runs} sorted runs: {:?}", levels(&store));
    }
    let statistics = store.statistics();
    assert!(statistics.live_bytes > 500_000, "{statistics:?}");
    let space = statistics.space_amplification();
    assert!(space < 1.3, "space {space}: {statistics:?}");
    let writes = statistics.write_amplification();
    assert!(writes > 2.0 && writes < 25.0, "writes {writes}: {statistics:?}");
    for row in 0..200 {
        let row = format!("row {row:05}");
        let view = store.view().unwrap();
        view.merge(&RowRange::row(&Bytes::from(row)), true);
    }
    let statistics = store.statistics();
    assert_eq!(statistics.row_reads, 200);
    let tables = statistics.tables_per_row();
    assert!(tables < 2.0, "filters leave {tables} tables for a row");
}

/// HBASE-18145: readers saw wrong cells while a memtable was flushed; cockroachdb/cockroach#52720:
/// a writer of SSTables that raced with another damaged a block.
#[tokio::test(start_paused = true)]
async fn writes_and_merges_at_once_answer_as_the_model_does() {
    for seed in 0..6 {
        let mut random = StdRng::seed_from_u64(seed);
        // Merges drop what is hidden, so little is left: every second flush asks for one.
        let options = StoreOptions { level0_merge_runs: 2, ..tiny_options() };
        let store = store_with(memory(), options).await;
        let is_done = Arc::new(AtomicBool::new(false));
        let merging = store_task(&store, &is_done);
        let mut log = Log::default();
        for step in 0..300 {
            let row = format!("row {}", random.random_range(0..40));
            let value: Vec<u8> = (0..60).map(|_| random.random()).collect();
            let change = match random.random_range(0..8) {
                0 => types::Mutation::DeleteRow,
                1 => super::bed::delete_cells("q"),
                _ => set("q", random.random_range(0..3), &value),
            };
            log.write(&store, &[on_row(&row, vec![change])]).unwrap();
            if step % 4 == 0 {
                flush(&store).await.unwrap();
            }
            if step % 25 == 0 {
                assert_eq!(visible(&store).await.unwrap(), log.model.cells(), "seed {seed}");
            }
            tokio::task::yield_now().await;
        }
        is_done.store(true, SeqCst);
        assert!(merging.join().await.unwrap() > 5, "seed {seed}: few merges");
        assert_eq!(visible(&store).await.unwrap(), log.model.cells(), "seed {seed}");
    }
}

/// Compacts until told to end; how many pieces of work were done.
fn store_task(store: &Arc<Store>, is_done: &Arc<AtomicBool>) -> env::Task<u64> {
    let (store, is_done) = (Arc::clone(store), Arc::clone(is_done));
    env::Env::simulated(1).spawn("compact", async move {
        let mut done = 0;
        while !is_done.load(SeqCst) {
            done += u64::from(store.compact_once().await.unwrap());
            tokio::task::yield_now().await;
        }
        done
    })
}

/// Four runs of the same rows.
async fn four_runs(store: &Arc<Store>) {
    for round in 0..4 {
        for row in 0..30 {
            let row = format!("row {row:03}");
            write(store, &[on_row(&row, vec![set("q", round, &[round as u8; 100])])]).unwrap();
        }
        flush(store).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_merge_on_a_slow_disk_is_called_off_within_a_second() {
    for by_close in [false, true] {
        let faulty = Arc::new(FaultyFileSystem::new(memory(), Vec::new()));
        let store = store_with(faulty.clone(), tiny_options()).await;
        four_runs(&store).await;
        let before = store.version();
        let slow = Rule::new(Action::Delay(Duration::from_secs(60))).on(Operation::Read);
        faulty.set_rules(vec![slow]);
        let env = env::Env::simulated(1);
        let merge = env.spawn("compact", {
            let store = Arc::clone(&store);
            async move { store.compact_once().await }
        });
        env.sleep(Duration::from_millis(100)).await;
        let started = env.monotonic();
        let hold = if by_close {
            store.close().await;
            None
        } else {
            Some(store.hold_compactions().await.unwrap())
        };
        assert!(env.monotonic() - started < Duration::from_secs(1));
        let called_off = merge.join().await.unwrap().unwrap_err();
        assert_eq!(called_off.kind(), ErrorKind::Aborted, "{called_off}");
        assert_eq!(store.version(), before);
        if let Some(hold) = hold {
            store.compact_once().await.unwrap_err();
            drop(hold);
            faulty.set_rules(Vec::new());
            assert!(store.compact_once().await.unwrap());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_merge_keeps_its_pace_unless_writers_wait_for_it() {
    for (slow_runs, at_least, at_most) in [(8, 3_000, 60_000), (4, 0, 100)] {
        let options = StoreOptions {
            compaction_bytes_per_second: 4 << 10,
            level_base_bytes: 1 << 20,
            level0_slow_runs: slow_runs,
            ..tiny_options()
        };
        let store = store_with(memory(), options).await;
        four_runs(&store).await;
        let env = env::Env::simulated(1);
        let started = env.monotonic();
        assert!(store.compact_once().await.unwrap());
        let taken = (env.monotonic() - started).as_millis();
        assert!((at_least..=at_most).contains(&taken), "{taken} ms, slow from {slow_runs} runs");
    }
}

#[tokio::test]
async fn writers_wait_longer_with_each_run_until_they_must_stop() {
    let options = StoreOptions { level0_slow_runs: 4, level0_stop_runs: 7, ..tiny_options() };
    let store = store_with(memory(), options).await;
    let mut delays = Vec::new();
    for run in 0..8 {
        put(&store, "r", "q", run, b"v");
        flush(&store).await.unwrap();
        assert_eq!(store.level0_runs(), run as u64 + 1);
        assert_eq!(store.is_level0_full(), run >= 6);
        delays.push(store.write_delay().as_micros());
    }
    assert_eq!(delays, [0, 0, 0, 7_500, 15_000, 22_500, 30_000, 30_000]);
    store.compact_all().await.unwrap();
    assert!(!store.is_level0_full() && store.write_delay().is_zero());
}

#[tokio::test]
async fn a_hold_ends_when_it_is_dropped() {
    let store = store_with(memory(), tiny_options()).await;
    four_runs(&store).await;
    let (first, second) = (store.call_off_compactions(), store.call_off_compactions());
    drop(first);
    assert_eq!(store.compact_once().await.unwrap_err().kind(), ErrorKind::Aborted);
    drop(second);
    assert!(store.compact_once().await.unwrap());
    store.freeze(Reason::Asked);
}

#[tokio::test]
async fn blocks_that_nothing_else_touches_are_taken_over() {
    let options = StoreOptions { level0_merge_runs: 2, ..small_levels() };
    let store = store_with(memory(), options).await;
    let mut log = Log::default();
    let mut random = StdRng::seed_from_u64(3);
    for row in 0..400 {
        let value: Vec<u8> = (0..40).map(|_| random.random()).collect();
        log.write(&store, &[on_row(&format!("row {row:03}"), vec![set("q", 1, &value)])]).unwrap();
    }
    flush(&store).await.unwrap();
    // Two rows, far apart: what lies between them is not touched.
    for row in ["row 010", "row 390"] {
        log.write(&store, &[on_row(row, vec![set("q", 2, b"new")])]).unwrap();
    }
    flush(&store).await.unwrap();
    assert!(store.compact_all().await.unwrap());
    let statistics = store.statistics();
    let (taken, blocks) = (statistics.merge_blocks_taken, statistics.merge_blocks);
    assert!(taken * 10 > blocks * 8, "{taken} of {blocks} blocks");
    assert_eq!(visible(&store).await.unwrap(), log.model.cells());
}
