//! Little memory, a full disk, a log that must shrink.

use std::sync::Arc;
use std::time::Duration;

use lsm::StoreOptions;
use storage::Operation;
use storage::faulty::{Action, FaultyFileSystem, Rule};
use storage::memory::MemoryFileSystem;
use tepui_rangeserver::Options;
use types::ErrorKind;

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
