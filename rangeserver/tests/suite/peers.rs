//! What went wrong in other stores, and does not here. Above each test is the report that it is of.

use std::sync::Arc;

use bytes::Bytes;
use env::{Env, ManualClock};
use storage::memory::{Crash, MemoryFileSystem};
use types::{Mutation, TimestampRange};

use super::world::*;

const HOUR_MICROS: i64 = 3_600_000_000;
const NOON: i64 = 1_800_000_000_000_000;
/// Set back by this much, a clock is made up for; by more, only in part, so that a clock that ran
/// far ahead for a moment does not hold a range there.
const DRIFT: i64 = 900_000;

async fn at(disk: &MemoryFileSystem, catalog: &Arc<Catalog>, seed: u64, micros: i64) -> World {
    let env = Env::simulated(seed).with_clock(Arc::new(ManualClock::new(micros)));
    start_in(Arc::new(disk.clone()), catalog, env, small_options()).await.unwrap()
}

/// The cells of the one row, newest first.
async fn cells(world: &World) -> Vec<Cell> {
    world.read_all().await.unwrap().into_values().next().unwrap_or_default()
}

fn unstamped(value: &[u8]) -> Vec<Mutation> {
    vec![set(F, "q", -1, value)]
}

/// HBASE-14054: after the server's clock had been set back, an acknowledged write lay behind an
/// older one and was not seen.
#[tokio::test(start_paused = true)]
async fn a_write_is_the_newest_after_the_clock_was_set_back_and_never_lost() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
    let clock = Arc::new(ManualClock::new(NOON));
    let env = Env::simulated(1).with_clock(clock.clone());
    let files = Arc::new(disk.clone());
    let world = start_in(files, &catalog, env, small_options()).await.unwrap();
    world.write(vec![mutate("r", unstamped(b"before"))]).await.unwrap();
    clock.set(NOON - DRIFT);
    world.write(vec![mutate("r", unstamped(b"after"))]).await.unwrap();
    let found = cells(&world).await;
    assert_eq!(found[0].3, b"after", "{found:?}");
    // By an hour: it is told by its timestamp, and is a version like any other.
    clock.set(NOON - HOUR_MICROS);
    world.write(vec![mutate("r", unstamped(b"long after"))]).await.unwrap();
    let found = cells(&world).await;
    let last = found.last().unwrap();
    assert_eq!((found.len(), &last.3[..]), (2, &b"long after"[..]), "{found:?}");
    assert!(last.2 - (NOON - HOUR_MICROS) <= 1_000_000, "{found:?}");
    world.server.close().await.unwrap();
}

/// HBASE-14054 again, over a restart and over a crash: the bound lies in the manifest and the log.
#[tokio::test(start_paused = true)]
async fn a_restart_on_a_clock_set_back_gives_no_older_timestamps() {
    for is_crash in [false, true] {
        let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
        let world = at(&disk, &catalog, 1, NOON).await;
        world.write(vec![mutate("r", unstamped(b"before"))]).await.unwrap();
        let before = cells(&world).await[0].2;
        let disk = if is_crash {
            world.server.abandon().await;
            disk.crash(Crash::PowerCut { seed: 1 })
        } else {
            world.server.close().await.unwrap();
            disk
        };
        let world = at(&disk, &catalog, 2, NOON - DRIFT).await;
        world.write(vec![mutate("r", unstamped(b"after"))]).await.unwrap();
        let found = cells(&world).await;
        assert_eq!(found[0].3, b"after", "crash: {is_crash}, {found:?}");
        assert!(found[0].2 >= before, "crash: {is_crash}, {found:?}");
        world.server.close().await.unwrap();
    }
}

/// HBASE-14054's other half: a delete before the clock was set back hides nothing written later.
#[tokio::test(start_paused = true)]
async fn a_put_after_a_delete_is_seen_though_the_clock_went_back_between() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
    let clock = Arc::new(ManualClock::new(NOON));
    let env = Env::simulated(1).with_clock(clock.clone());
    let files = Arc::new(disk.clone());
    let world = start_in(files, &catalog, env, small_options()).await.unwrap();
    world.write(vec![mutate("r", unstamped(b"old"))]).await.unwrap();
    let gone = Mutation::DeleteCells {
        family: F,
        qualifier: Bytes::from_static(b"q"),
        range: TimestampRange::ALL,
    };
    world.write(vec![mutate("r", vec![gone])]).await.unwrap();
    clock.set(NOON - HOUR_MICROS);
    world.write(vec![mutate("r", unstamped(b"new"))]).await.unwrap();
    assert_eq!(cells(&world).await.len(), 1);
    world.server.flush_all().await.unwrap();
    assert_eq!(cells(&world).await[0].3, b"new");
    world.server.close().await.unwrap();
}

/// RocksDB 10.9.0's notes: a clock that was set back made it delete the newest log.
#[tokio::test(start_paused = true)]
async fn a_clock_set_back_costs_no_log() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&["m"]));
    let clock = Arc::new(ManualClock::new(NOON));
    let env = Env::simulated(1).with_clock(clock.clone());
    let files = Arc::new(disk.clone());
    let world = start_in(files, &catalog, env, small_options()).await.unwrap();
    for number in 0..60 {
        clock.set(NOON - number * HOUR_MICROS);
        world.put(&format!("s{number:02}"), &[1; 1_000]).await.unwrap();
    }
    world.put("cold", b"v").await.unwrap();
    world.server.abandon().await;
    let world = at(&disk.crash(Crash::Process), &catalog, 2, NOON - 99 * HOUR_MICROS).await;
    assert_eq!(world.read_all().await.unwrap().len(), 61);
    world.server.close().await.unwrap();
}
