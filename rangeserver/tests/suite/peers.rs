//! What went wrong in other stores, and does not here. Above each test is the report that it is of.

use std::sync::Arc;

use bytes::Bytes;
use client::{RangeService, RangeTarget, ReadRequest, RowKeys};
use env::{Env, ManualClock};
use storage::memory::{Crash, MemoryFileSystem};
use types::{ErrorKind, Mutation, ReadSpec, RowOrder, RowSet, TimestampRange};

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
/// tikv/tikv#12680: timestamps of a new leader were before the old one's.
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

/// googleapis/google-cloud-go#826: under load, a read of one row gave its neighbour.
#[tokio::test(start_paused = true)]
async fn reads_of_one_row_give_that_row_and_no_other_under_load() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&["row 30"]));
    let world = Arc::new(started(&disk, &catalog, 1).await);
    let names: Vec<String> = (0..60).map(|number| format!("row {number}")).collect();
    for row in names.iter().step_by(2) {
        world.put(row, row.as_bytes()).await.unwrap();
    }
    let readers: Vec<_> = (0..8_usize)
        .map(|reader| {
            let (world, names) = (Arc::clone(&world), names.clone());
            world.env.clone().spawn("read or write", async move {
                for turn in 0..120 {
                    let place = (turn * 7 + reader * 13) % names.len();
                    if reader == 0 && turn % 30 == 29 {
                        world.server.flush_all().await.unwrap();
                    }
                    let row = &names[place];
                    if reader < 2 && place % 2 == 0 {
                        let value = [row.as_bytes(), &[b' '; 900]].concat();
                        world.put(row, &value).await.unwrap();
                    }
                    let key = Bytes::from(row.clone());
                    let found = world.read(types::RowRange::row(&key), 0).await.unwrap();
                    let expected = usize::from(place % 2 == 0);
                    assert_eq!(found.len(), expected, "{row}: {:?}", found.keys());
                    for (name, cells) in found {
                        assert!(name == *row && cells[0].3.starts_with(row.as_bytes()));
                    }
                }
            })
        })
        .collect();
    for reader in readers {
        reader.join().await.unwrap();
    }
    world.server.close().await.unwrap();
}

/// tikv/tikv#8034: while regions changed hands, a read by their former owner was stale.
#[tokio::test(start_paused = true)]
async fn a_read_of_a_range_that_was_divided_is_sent_away_and_never_stale() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
    let world = started(&disk, &catalog, 1).await;
    for row in ["a", "m", "z"] {
        world.put(row, b"old").await.unwrap();
    }
    let spec = |rows| ReadSpec {
        rows: RowSet::new(vec![rows]),
        rows_limit: 0,
        order: RowOrder::Ascending,
    };
    let request = |target: &RangeTarget| ReadRequest {
        target: *target,
        spec: spec(types::RowRange::all()),
        row_keys: RowKeys::AtCells,
    };
    let former = catalog.target(b"a").unwrap();
    let mut begun = world.server.read(request(&former)).await.unwrap();
    world.split("a", Some("m")).await.unwrap();
    world.put("a", b"new").await.unwrap();
    let refused = world.server.read(request(&former)).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::WrongRange);
    let ended = loop {
        match begun.next().await {
            Ok(Some(reply)) => assert!(!String::from_utf8_lossy(&reply.encoded).contains("old")),
            Ok(None) => panic!("it ended as if nothing had happened"),
            Err(error) => break error,
        }
    };
    assert_eq!(ended.kind(), ErrorKind::WrongRange);
    assert_eq!(world.get("a").await.unwrap().unwrap(), b"new");
    world.server.close().await.unwrap();
}
