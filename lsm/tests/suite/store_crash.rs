//! Crashes at every operation of random histories: whatever is reopened answers as the log says.

use std::ops::Range;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use storage::memory::{Crash, MemoryFileSystem};
use tepui_lsm::{LogPosition, Reason, Result, Store};

use super::bed::{Action, Log, act, config, history, random_rows_to_write, sequenced, visible};

/// Runs until the end or the first error.
pub(super) async fn run(
    files: &MemoryFileSystem,
    epoch: u64,
    script: &[Action],
    log: &mut Log,
) -> Result<()> {
    let store = log.recover(config(Arc::new(files.clone()), epoch)).await?;
    for action in script {
        act(&store, log, action).await?;
        assert_eq!(visible(&store).await?, log.model.cells());
    }
    Ok(())
}

/// Reopens for `epoch` and compares with the log.
async fn check(files: MemoryFileSystem, epoch: u64, log: &Log, context: &str) -> MemoryFileSystem {
    let config = config(Arc::new(files.clone()), epoch);
    let store: Arc<Store> = match log.recover(config).await {
        Ok(store) => store,
        Err(failed) => panic!("{context}: {failed}"),
    };
    assert_eq!(visible(&store).await.unwrap(), log.model.cells(), "{context}");
    files
}

fn crash_of(random: &mut StdRng) -> Crash {
    if random.random() { Crash::Process } else { Crash::PowerCut { seed: random.random() } }
}

/// HBASE-13877: an interrupted flush lost data. facebook/rocksdb#2722, #2752, #2989: after rows
/// were cut out, deleted keys came back and live ones vanished.
#[tokio::test(start_paused = true)]
async fn a_crash_at_any_operation_loses_nothing() {
    let mut points = 0;
    for seed in 0..8 {
        let mut random = StdRng::seed_from_u64(seed);
        let script = history(&mut random, 30);
        let whole = MemoryFileSystem::new();
        run(&whole, 1, &script, &mut Log::default()).await.unwrap();
        for point in 0..whole.operations() {
            let context = format!("seed {seed}, crash after operation {point}");
            let files = MemoryFileSystem::new();
            files.crash_after(point);
            let mut log = Log::default();
            run(&files, 1, &script, &mut log).await.expect_err(&context);
            let files = files.crash(crash_of(&mut random));
            // The recovery crashes too, somewhere.
            files.crash_after(random.random_range(0..20));
            let _ = log.recover(config(Arc::new(files.clone()), 2)).await;
            let files = files.crash(crash_of(&mut random));
            let files = check(files, 3, &log, &context).await;
            check(files.crash(crash_of(&mut random)), 4, &log, &context).await;
            points += 1;
        }
    }
    assert!(points > 200, "only {points} crash points");
}

#[tokio::test(start_paused = true)]
async fn work_goes_on_after_many_crashes() {
    for seed in 0..40 {
        let mut random = StdRng::seed_from_u64(1_000 + seed);
        let mut files = MemoryFileSystem::new();
        let mut log = Log::default();
        for epoch in 1..8 {
            let script = history(&mut random, 25);
            files.crash_after(random.random_range(0..60));
            let _ = run(&files, epoch, &script, &mut log).await;
            files = files.crash(crash_of(&mut random));
        }
        check(files, 9, &log, &format!("seed {seed}")).await;
    }
}

/// A batch that was inserted, and neither logged nor published, when its owner died.
fn place_only(store: &Store, random: &mut StdRng) {
    let batch = sequenced(store, &random_rows_to_write(random));
    let floor = LogPosition { segment: 1, offset: batch.first_seq().get() };
    store.insert(&batch, floor).unwrap();
}

/// Runs random histories, ends each with a batch that the log never had, tries to flush, and
/// crashes.
pub(super) async fn unlogged_campaign(seeds: Range<u64>) -> std::result::Result<(), String> {
    for seed in seeds {
        let mut random = StdRng::seed_from_u64(seed);
        let script = history(&mut random, 6);
        let files = MemoryFileSystem::new();
        let mut log = Log::default();
        run(&files, 1, &script, &mut log).await.map_err(|failed| failed.to_string())?;
        let config = config(Arc::new(files.clone()), 2);
        let store = log.recover(config).await.map_err(|failed| failed.to_string())?;
        place_only(&store, &mut random);
        store.freeze(Reason::Asked);
        store.flush().await.map_err(|failed| failed.to_string())?;
        drop(store);
        let files = files.crash(crash_of(&mut random));
        let config = super::bed::config(Arc::new(files), 3);
        let store = log.recover(config).await.map_err(|failed| failed.to_string())?;
        if visible(&store).await.map_err(|failed| failed.to_string())? != log.model.cells() {
            return Err(format!("seed {seed}: the answer is not what the log says"));
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_the_log_never_had_does_not_appear() {
    unlogged_campaign(0..40).await.unwrap();
}
