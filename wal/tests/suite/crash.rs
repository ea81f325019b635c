//! Random histories of several sessions on one disk, crashed at every operation: what was
//! acknowledged is found, what is found was written, in order.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use storage::FileSystem;
use storage::memory::{Counters, Crash, MemoryFileSystem};
use tepui_wal::{Error, remove_log};

use super::session::{SMALL, Session, check_prefix, folder, random_group, read_all, run};

/// What one history reached before its crash.
struct Reached {
    session: Session,
    acknowledged: usize,
    released_below: u64,
    closed: bool,
}

/// An earlier session whose files the next one gets.
async fn leave_recycled_files(disk: &MemoryFileSystem, random: &mut StdRng) {
    let mut session = Session::start(disk, 1, SMALL).await.unwrap();
    for _ in 0..random.random_range(10..40) {
        session.append(random_group(random, 150)).await.unwrap();
        session.log.sync().unwrap();
    }
    session.log.close().await.unwrap();
    let files: Arc<dyn FileSystem> = Arc::new(disk.clone());
    remove_log(&files, &folder(1)).await.unwrap();
}

/// Runs a history until its end or the first error, which is the crash.
async fn history(disk: &MemoryFileSystem, random: &mut StdRng) -> Option<Reached> {
    let session = Session::start(disk, 2, SMALL).await.ok()?;
    let mut reached = Reached { session, acknowledged: 0, released_below: 0, closed: false };
    let _crashed: Result<(), Error> = steps(&mut reached, random).await;
    Some(reached)
}

async fn steps(reached: &mut Reached, random: &mut StdRng) -> Result<(), Error> {
    for _ in 0..random.random_range(10..30) {
        let log = &reached.session.log;
        match random.random_range(0..10) {
            0..6 => {
                let largest = if random.random_bool(0.05) { 6_000 } else { 150 };
                let group = random_group(random, largest);
                reached.session.append(group).await?;
            }
            6..9 => {
                log.sync()?;
                reached.acknowledged = reached.session.written.len();
            }
            _ => {
                let below = log.synced().segment;
                reached.released_below = reached.released_below.max(below);
                log.release_before(below).await?;
            }
        }
    }
    if random.random_bool(0.5) {
        reached.session.log.close().await?;
        reached.closed = true;
    }
    Ok(())
}

/// What stays of the disk: a power cut, a process crash, or one and then the other.
fn crashed(disk: &MemoryFileSystem, random: &mut StdRng) -> (MemoryFileSystem, bool) {
    let cut = Crash::PowerCut { seed: random.random() };
    match random.random_range(0..4) {
        0 => (disk.crash(Crash::Process), false),
        1 => (disk.crash(Crash::Process).crash(cut), true),
        _ => (disk.crash(cut), true),
    }
}

/// One history with one crash point, recovered twice.
async fn check(seed: u64, crash_at: Option<u64>) -> Result<(u64, Counters), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let disk = MemoryFileSystem::new();
    leave_recycled_files(&disk, &mut random).await;
    let before = disk.operations();
    if let Some(operation) = crash_at {
        disk.crash_after(before + operation);
    }
    let reached = history(&disk, &mut random).await;
    let operations = disk.operations() - before;
    let mut random = StdRng::seed_from_u64(seed ^ crash_at.unwrap_or(0).rotate_left(32));
    let (disk, _) = crashed(&disk, &mut random);
    let first = read_all(&disk, 2).await.map_err(|error| error.to_string())?;
    let Some(reached) = reached else {
        let nothing = first.0.is_empty();
        return nothing.then(|| (operations, disk.counters())).ok_or("frames of nobody".into());
    };
    let Reached { session, acknowledged, released_below, closed } = reached;
    check_prefix(&first.0, &session.written, released_below, acknowledged)?;
    if closed && !first.1 {
        return Err("a clean close was forgotten".into());
    }
    let again = read_all(&disk, 2).await.map_err(|error| error.to_string())?;
    if again != first {
        return Err("a second recovery found something else".into());
    }
    // A power cut before the second recovery may take what was never acknowledged, no more.
    let disk = disk.crash(Crash::PowerCut { seed });
    let after = read_all(&disk, 2).await.map_err(|error| error.to_string())?;
    check_prefix(&after.0, &session.written, released_below, acknowledged)?;
    Ok((operations, disk.counters()))
}

#[test]
fn a_crash_at_any_operation_keeps_what_was_acknowledged() {
    run(async {
        let mut total = Counters::default();
        let mut pairs = 0;
        for seed in 0..60 {
            let context = |at: u64| format!("seed {seed}, crash after operation {at}");
            let (operations, _) = check(seed, None).await.unwrap();
            for at in 0..=operations {
                let (_, counters) =
                    check(seed, Some(at)).await.unwrap_or_else(|e| panic!("{}: {e}", context(at)));
                pairs += 1;
                total.recycled_logs += counters.recycled_logs;
                total.torn_writes += counters.torn_writes;
                total.lost_writes += counters.lost_writes;
                total.lost_names += counters.lost_names;
            }
        }
        println!("{pairs} pairs of history and crash point: {total:?}");
        assert!(total.recycled_logs > 0 && total.torn_writes > 0 && total.lost_writes > 0);
        assert!(total.lost_names > 0 && pairs > 1000);
    });
}

/// Recycled segments of the same shape: stale frames stand exactly where new ones would.
async fn check_stale(seed: u64) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let disk = MemoryFileSystem::new();
    for number in 1..=2 {
        let mut session = Session::start(&disk, number, SMALL).await.unwrap();
        let frames = if number == 1 { 6 } else { random.random_range(1..5) };
        for first in 1..=frames {
            let payload = vec![number as u8; 50];
            session.append(vec![super::session::entry(1, first, payload)]).await.unwrap();
            session.log.sync().unwrap();
        }
        if number == 2 {
            let found = read_all(&disk, 2).await.map_err(|error| error.to_string())?.0;
            check_prefix(&found, &session.written, 0, frames as usize)?;
        }
        drop(session);
        let files: Arc<dyn FileSystem> = Arc::new(disk.clone());
        remove_log(&files, &folder(number)).await.unwrap();
    }
    assert!(disk.counters().recycled_logs > 0);
    Ok(())
}

/// RocksDB 9.2.0's notes: records of a recycled log's former life were replayed.
#[test]
fn frames_of_a_recycled_segments_former_life_are_never_accepted() {
    run(async {
        for seed in 0..10 {
            check_stale(seed).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    });
}

#[cfg(tepui_planted_bugs)]
#[test]
fn a_reader_that_accepts_stale_frames_is_caught() {
    env::planted::set(Some(env::planted::PlantedBug::AcceptStaleFrame));
    let caught = run(async {
        let mut caught = false;
        for seed in 0..10 {
            caught |= check_stale(seed).await.is_err();
        }
        caught
    });
    env::planted::set(None);
    assert!(caught);
}

/// A session of one segment, with another that stands ready, is closed and its log removed; the
/// disk stops after `point` operations and loses power. True when it came to its end before.
async fn close_and_remove(seed: u64, point: u64) -> bool {
    let disk = MemoryFileSystem::new();
    let mut random = StdRng::seed_from_u64(seed);
    let mut session = Session::start(&disk, 2, SMALL).await.unwrap();
    // Filled past its half, so that the next segment is prepared.
    while disk.paths().len() < 2 {
        session.append(random_group(&mut random, 150)).await.unwrap();
        session.log.sync().unwrap();
        tokio::task::yield_now().await;
    }
    let files: Arc<dyn FileSystem> = Arc::new(disk.clone());
    session.log.release_before(session.log.synced().segment).await.unwrap();
    disk.crash_after(point);
    let closed = session.log.close().await;
    if closed.is_ok() {
        let _crashed = remove_log(&files, &folder(2)).await;
    }
    let ended = !disk.is_frozen();
    let left = disk.crash(Crash::PowerCut { seed: random.random() });
    let found = read_all(&left, 2).await;
    found.unwrap_or_else(|error| panic!("seed {seed}, point {point}: {error}"));
    ended
}

#[test]
fn a_removed_log_never_leaves_only_a_segment_that_stood_ready() {
    run(async {
        for seed in 0..40 {
            for point in 0.. {
                if close_and_remove(seed, point).await {
                    break;
                }
            }
        }
    });
}
