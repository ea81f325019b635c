//! Bugs planted on purpose, so that the tests can show that they would find them.
//!
//! A build with `RUSTFLAGS="--cfg tepui_planted_bugs"` asks [`planted`] at a few documented places
//! whether to misbehave there. Any other build has the answer `false` inlined, and the wrong
//! branches are gone. The choice belongs to a thread, so that parallel tests do not disturb each
//! other: a test that plants a bug runs on one thread (a current-thread runtime).

/// A bug that a test can plant; each has exactly one place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlantedBug {
    /// Syncing a log does nothing (the file system).
    SkipFsync,
    /// Syncing a folder does nothing (the file system).
    SkipFolderFsync,
    /// A batch becomes visible before the log is synced (the range server's commit group).
    PublishBeforeSync,
    /// Checksums forget the segment's seed and the offset, so that what a recycled segment held
    /// in its former life passes for new (the log reader).
    AcceptStaleFrame,
    /// A segment is released although a range still needs it (the range server's log release).
    ReleaseLogEarly,
    /// A view is pinned in an order that a rotation in between breaks (the range's store).
    PinViewInWrongOrder,
    /// A recovered range gives out the newest number of the log once more (the range's store).
    ReuseSequenceNumber,
    /// An SSTable ends where it is full, be it inside a row (the writer of sorted files).
    CutOutputInsideRow,
    /// A memtable is flushed before its last batch is published (flush).
    FlushUnpublishedCell,
    /// A merge drops tombstones although a file outside may hold what they hide (the collector).
    DropTombstoneEarly,
    /// A merge folds operands although a file outside may hold a tombstone between them (the
    /// collector).
    FoldAcrossTombstone,
}

/// Must the caller misbehave in this way? Always `false` in an ordinary build.
#[cfg(not(tepui_planted_bugs))]
#[inline(always)]
pub fn planted(_bug: PlantedBug) -> bool {
    false
}

#[cfg(tepui_planted_bugs)]
pub use armed::{planted, set};

#[cfg(tepui_planted_bugs)]
mod armed {
    use std::cell::Cell;

    use super::PlantedBug;

    thread_local! {
        static PLANTED: Cell<Option<PlantedBug>> = const { Cell::new(None) };
    }

    /// Must the caller misbehave in this way?
    pub fn planted(bug: PlantedBug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Plants one bug in this thread, or none.
    pub fn set(bug: Option<PlantedBug>) {
        PLANTED.set(bug);
    }
}
