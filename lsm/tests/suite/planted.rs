//! Bugs planted on purpose are noticed by the histories. Runs in builds with
//! `--cfg tepui_planted_bugs` only.
#![cfg(tepui_planted_bugs)]

use std::panic::AssertUnwindSafe;

use env::planted::{PlantedBug, set};
use futures::FutureExt;
use rand::SeedableRng;
use rand::rngs::StdRng;
use storage::memory::MemoryFileSystem;

use super::bed::{Log, history};
use super::store_crash::{run, unlogged_campaign};

/// Histories tried before a bug counts as not found.
const HISTORIES: u64 = 400;
/// Histories that must be clean without the bug.
const CLEAN: u64 = 20;

/// Random histories, every answer compared with the model's.
async fn campaign(count: u64) -> Result<(), String> {
    for seed in 0..count {
        let script = history(&mut StdRng::seed_from_u64(seed), 60);
        let files = MemoryFileSystem::new();
        let mut log = Log::default();
        let whole = AssertUnwindSafe(run(&files, 1, &script, &mut log)).catch_unwind();
        match whole.await {
            Ok(Ok(())) => {}
            Ok(Err(failed)) => return Err(format!("seed {seed}: {failed}")),
            Err(_) => return Err(format!("seed {seed}: an answer or an invariant is wrong")),
        }
    }
    Ok(())
}

async fn is_caught(bug: PlantedBug) {
    campaign(CLEAN).await.expect("without a planted bug");
    set(Some(bug));
    let caught = campaign(HISTORIES).await;
    set(None);
    println!("{bug:?} caught: {}", caught.expect_err("it was not caught"));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_tombstone_early_is_caught() {
    is_caught(PlantedBug::DropTombstoneEarly).await;
}

#[tokio::test(start_paused = true)]
async fn flushing_an_unpublished_cell_is_caught() {
    unlogged_campaign(0..20).await.expect("without a planted bug");
    set(Some(PlantedBug::FlushUnpublishedCell));
    let caught = unlogged_campaign(0..200).await;
    set(None);
    println!("caught: {}", caught.expect_err("it was not caught"));
}
