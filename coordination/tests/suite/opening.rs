//! Opens embedded coordinators on disks in memory.

use std::sync::Arc;

use env::Env;
use storage::memory::MemoryFileSystem;
use storage::{FileSystem, Path};
use tepui_coordination::{
    Coordinator, EmbeddedCoordinator, EmbeddedOptions, Error, Keyed, Outcome, Revision, Transaction,
};
use wal::LogOptions;

/// Snapshots and segments so small that short histories have many.
pub(super) const SMALL: EmbeddedOptions = EmbeddedOptions {
    snapshot_bytes: 1 << 20,
    snapshot_records: 7,
    log: LogOptions { first_segment_bytes: 512, segment_bytes: 1024, segments_ahead: 1 },
};

pub(super) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(test)
}

pub(super) fn folder() -> Path {
    Path::new("coordination")
}

pub(super) async fn open(disk: &MemoryFileSystem, seed: u64) -> Result<EmbeddedCoordinator, Error> {
    open_on(Arc::new(disk.clone()), seed).await
}

pub(super) async fn open_on(
    files: Arc<dyn FileSystem>,
    seed: u64,
) -> Result<EmbeddedCoordinator, Error> {
    EmbeddedCoordinator::open(files, Env::simulated(seed), folder(), SMALL).await
}

pub(super) async fn committed(coordinator: &dyn Coordinator, change: Transaction) -> Revision {
    match coordinator.commit(change).await.unwrap() {
        Outcome::Committed { revision } => revision,
        refused @ Outcome::Refused { .. } => panic!("{refused:?}"),
    }
}

/// Every key, page by page.
pub(super) async fn everything(coordinator: &dyn Coordinator) -> Result<Vec<Keyed>, Error> {
    let mut all: Vec<Keyed> = Vec::new();
    loop {
        let after = all.last().map_or("", |last| last.key.as_str());
        let page = coordinator.list("", after, 3).await?;
        all.extend(page.entries);
        if !page.more {
            return Ok(all);
        }
    }
}
