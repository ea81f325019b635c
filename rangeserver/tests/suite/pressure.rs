//! Little memory, a full disk, a log that must shrink.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use lsm::StoreOptions;
use storage::Operation;
use storage::faulty::{Action, FaultyFileSystem, Rule};
use storage::memory::MemoryFileSystem;
use tepui_rangeserver::Options;
use types::ErrorKind;
use wal::LogOptions;

use super::world::*;

#[tokio::test(start_paused = true)]
async fn many_times_the_memory_is_written_within_the_budget() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&["r3", "r6"]));
    let world = Arc::new(started(&disk, &catalog, 1).await);
    let share = small_options().memtables_share();
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let world = Arc::clone(&world);
            world.env.clone().spawn("writer", async move {
                for number in 0..150 {
                    let row = format!("r{}-{writer}-{number:03}", number % 10);
                    world.put(&row, &[writer; 2000]).await.unwrap();
                    let held = world.server.statistics().memtable_bytes;
                    // Each of the others may have been admitted just below the share.
                    assert!(held < share + 8 * 8000, "{held} bytes of memtables");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().await.unwrap();
    }
    assert_eq!(world.read_all().await.unwrap().len(), 8 * 150);
    assert!(world.events.count("flush_finished") > 3, "{:?}", world.events);
    let statistics = world.server.statistics();
    assert_eq!(statistics.request_bytes, 0, "everything is given back");
    world.server.close().await.unwrap();
    let world = started(&disk, &catalog, 2).await;
    assert_eq!(world.read_all().await.unwrap().len(), 8 * 150);
    world.server.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn on_a_full_disk_writes_are_refused_reads_go_on_and_space_heals() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
    let world = started(&disk, &catalog, 1).await;
    world.put("first", b"v").await.unwrap();
    disk.set_capacity(Some(disk.used() + (200 << 10)));
    let mut acknowledged = 0;
    let mut refusals = 0;
    for number in 0..600 {
        match world.put(&format!("r{number:04}"), &[1; 2000]).await {
            Ok(()) => {
                assert_eq!(refusals, 0, "nothing frees space yet");
                acknowledged += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
                assert!(error.retry_delay().is_some());
                refusals += 1;
            }
        }
        if refusals > 5 {
            break;
        }
    }
    assert!(acknowledged > 10 && refusals > 5, "{acknowledged} and {refusals}");
    assert_eq!(world.get("first").await.unwrap().unwrap(), b"v");
    assert_eq!(world.read_all().await.unwrap().len(), acknowledged + 1);
    assert_eq!(world.server.poisoned(), None);

    disk.set_capacity(None);
    world.env.sleep(Duration::from_secs(5)).await;
    world.put("last", b"v").await.unwrap();
    assert_eq!(world.read_all().await.unwrap().len(), acknowledged + 2);
    world.server.close().await.unwrap();
    let world = started(&disk, &catalog, 2).await;
    assert_eq!(world.read_all().await.unwrap().len(), acknowledged + 2);
    world.server.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cold_range_does_not_pin_the_log() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&["m"]));
    let world = started(&disk, &catalog, 1).await;
    world.put("cold", b"v").await.unwrap();
    let limit = small_options().log_bytes_max;
    let segment = 64 << 10;
    for number in 0..1500 {
        world.put(&format!("s{number:04}"), &[1; 1000]).await.unwrap();
        let log = world.server.statistics().log_bytes;
        assert!(log < limit + segment, "{log} bytes of log");
    }
    let statistics = world.server.statistics();
    assert!(statistics.oldest_log_segment > 10, "{statistics:?}");
    assert!(world.events.count("log_released") > 0);
    // What was released is not needed: a crash loses nothing.
    world.server.abandon().await;
    let disk = disk.crash(storage::memory::Crash::Process);
    let world = started(&disk, &catalog, 2).await;
    assert_eq!(world.get("cold").await.unwrap().unwrap(), b"v");
    assert_eq!(world.read_all().await.unwrap().len(), 1501);
    world.server.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_write_that_cannot_get_memory_in_time_is_refused_and_changes_nothing() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
    let options = Options { stall_max: Duration::from_millis(50), ..small_options() };
    let files = Arc::new(disk.clone());
    let world = Arc::new(start(files, &catalog, 1, options).await.unwrap());
    world.put("a", b"v").await.unwrap();
    // Stopping the flushes is what a very slow disk amounts to.
    let half = vec![3; 300 << 10];
    world.put("b", &half).await.unwrap();
    world.put("c", &half).await.unwrap();
    disk.set_capacity(Some(disk.used()));
    let mut refused = None;
    for _ in 0..5 {
        if let Err(error) = world.put("d", &half).await {
            refused = Some(error);
            break;
        }
    }
    if let Some(error) = refused {
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
        assert_eq!(world.get("d").await.unwrap(), None);
    }
    disk.set_capacity(None);
    world.env.sleep(Duration::from_secs(3)).await;
    world.put("d", b"v").await.unwrap();
    assert_eq!(world.read_all().await.unwrap().len(), 4);
    world.server.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn writers_are_slowed_before_they_are_stopped_and_none_is_refused() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
    // Merges read many blocks, flushes few: a slow disk lets merges fall behind.
    let slow = Rule::new(Action::Delay(Duration::from_millis(20))).on(Operation::Read);
    let files = Arc::new(FaultyFileSystem::new(Arc::new(disk.clone()), vec![slow]));
    let (slow_runs, stop_runs) = (5, 8);
    let store = StoreOptions {
        level0_slow_runs: slow_runs,
        level0_stop_runs: stop_runs,
        ..small_options().store
    };
    let options = Options { store, stall_max: Duration::from_secs(30), ..small_options() };
    let world = start(files, &catalog, 1, options).await.unwrap();
    let (mut most_runs, mut slowed) = (0, 0);
    for number in 0..600_u32 {
        let row = format!("r{:03}", number.wrapping_mul(7919) % 500);
        let runs = world.server.statistics().storage.sorted_runs;
        let before = world.env.monotonic();
        world.put(&row, &[number as u8; 2000]).await.unwrap();
        let taken = world.env.monotonic() - before;
        slowed += u32::from(runs >= slow_runs && taken >= Duration::from_millis(5));
        most_runs = most_runs.max(runs);
    }
    assert!(slowed > 10, "{slowed} writes were slowed");
    let storage = world.server.statistics().storage;
    assert!(storage.slowed_writes >= u64::from(slowed), "{storage:?}");
    assert!(storage.slowed_micros >= storage.slowed_writes * 5_000, "{storage:?}");
    let began = world.events.count("slowdown_started");
    assert!(began > 0 && began <= storage.slowed_writes, "{began} slowdowns: {storage:?}");
    world.env.sleep(Duration::from_secs(60)).await;
    let ended = world.events.count("slowdown_finished");
    assert_eq!(ended, world.events.count("slowdown_started"), "nobody is slowed any more");
    // Memtables that were frozen before the stop may still come.
    assert!(most_runs >= slow_runs && most_runs <= stop_runs + 4, "{most_runs} runs");
    assert_eq!(world.read_all().await.unwrap().len(), 500);
    world.server.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn writers_are_slowed_and_then_stopped_while_a_flush_hangs_and_go_on_after_it() {
    slowed_then_stopped(64 << 20, 256 << 20).await;
}

#[tokio::test(start_paused = true)]
async fn writers_are_slowed_and_then_stopped_while_the_log_cannot_be_released() {
    slowed_then_stopped(512 << 20, 32 << 20).await;
}

/// Flushes hang. Writers are slowed as memory or the log fills, then stopped; when flushes come to
/// an end in time they go on, else they are told to come again, and nothing of theirs is there.
async fn slowed_then_stopped(memory_budget: u64, log_bytes_max: u64) {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
    let files = Arc::new(FaultyFileSystem::new(Arc::new(disk.clone()), Vec::new()));
    let options = Options {
        memory_budget,
        log: LogOptions { segment_bytes: 4 << 20, ..small_options().log },
        log_bytes_max,
        stall_max: Duration::from_secs(30),
        ..small_options()
    };
    let world = start(files.clone(), &catalog, 1, options).await.unwrap();
    let hang = |seconds| {
        let slow = Rule::new(Action::Delay(Duration::from_secs(seconds)));
        files.set_rules(vec![slow.on(Operation::FinishBlob).path(".sst")]);
    };
    let acknowledged = Cell::new(0);
    let put = async || {
        let before = world.env.monotonic();
        let outcome = world.put(&format!("r{:04}", acknowledged.get()), &[1; 60_000]).await;
        acknowledged.set(acknowledged.get() + usize::from(outcome.is_ok()));
        (outcome, world.env.monotonic() - before)
    };

    hang(10);
    let mut slowed = 0;
    let stopped = loop {
        let (outcome, taken) = put().await;
        outcome.unwrap();
        match taken {
            short if short < Duration::from_millis(1) => assert_eq!(slowed, 0, "it was slow"),
            moment if moment <= Duration::from_millis(30) => slowed += 1,
            long => break long,
        }
    };
    assert!(slowed > 5, "{slowed} writes were slowed before one was stopped");
    assert!(stopped < Duration::from_secs(25), "{stopped:?}");
    let storage = world.server.statistics().storage;
    assert_eq!(storage.stopped_writes, 1, "{storage:?}");
    assert!(storage.slowed_writes > slowed, "{slowed} of {storage:?}");
    let waited = u128::from(storage.stopped_micros + 30_000);
    assert!(waited >= stopped.as_micros(), "{storage:?} of {stopped:?}");
    let told = |name| world.events.count(name);
    assert_eq!((told("stall_started"), told("stall_finished")), (1, 1));
    assert!(told("slowdown_started") > 0);

    hang(100);
    let refused = loop {
        if let (Err(refused), taken) = put().await {
            assert!((29..31).contains(&taken.as_secs()), "{taken:?}");
            break refused;
        }
    };
    assert_eq!(refused.kind(), ErrorKind::ResourceExhausted, "{refused}");
    assert!(refused.retry_delay().is_some());
    assert_eq!(told("stall_started"), told("stall_finished"));
    assert_eq!(world.read_all().await.unwrap().len(), acknowledged.get(), "reads go on");
    assert_eq!(world.server.poisoned(), None);

    files.set_rules(Vec::new());
    world.env.sleep(Duration::from_secs(300)).await;
    assert_eq!(told("slowdown_started"), told("slowdown_finished"), "nobody is slowed any more");
    let (outcome, taken) = put().await;
    outcome.unwrap();
    assert!(taken < Duration::from_millis(1), "{taken:?}");
    assert_eq!(world.read_all().await.unwrap().len(), acknowledged.get());
    world.server.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ranges_are_merged_side_by_side() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&["m"]));
    let options = Options { compactions_max: 2, ..small_options() };
    let world = start(Arc::new(disk.clone()), &catalog, 1, options).await.unwrap();
    for number in 0..800_u32 {
        let side = if number % 2 == 0 { "a" } else { "z" };
        let row = format!("{side}{:03}", number.wrapping_mul(7919) % 400);
        world.put(&row, &[number as u8; 1000]).await.unwrap();
    }
    world.env.sleep(Duration::from_secs(5)).await;
    let storage = world.server.statistics().storage;
    assert!(storage.merges > 1 && storage.merge_debt == 0, "{storage:?}");
    assert!(storage.sorted_runs < 6, "{storage:?}");
    world.server.close().await.unwrap();
}
