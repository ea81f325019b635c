//! What happens inside a range's storage, told as typed events.
//!
//! Tests, metrics and logs listen to the same events, so that none of them reads another's text.
//! A listener is called on the thread that does the work, with no lock held: it must be quick.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use types::{FileId, RangeId, SeqNo};

use crate::collect::Collected;

/// Why work was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The memtable reached its size.
    MemtableFull,
    /// The log must shrink: the range pins its oldest segment.
    LogPressure,
    /// Memory must be given back.
    MemoryPressure,
    /// The range is being closed or moved.
    Closing,
    /// Somebody asked for it.
    Asked,
    /// A row may be in too many files of level 0.
    LevelZeroRuns,
    /// A level holds more than it should.
    LevelFull,
    /// A level is in use that should not be.
    LevelShape,
    /// Retention allows to drop much of a file.
    Expired,
    /// Little is left of a file that is clipped.
    Clipped,
    /// A file has many tombstones.
    Tombstones,
    /// A file holds families that belong to another locality group now.
    Regroup,
    /// Batches of a former session's log were taken up.
    Recovery,
    /// Rows are cut out of the range.
    Excise,
    /// The range is about to be divided.
    Split,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A frozen memtable begins to be written out.
    FlushStarted {
        /// Why.
        reason: Reason,
        /// The memtable's size, bytes of memory.
        bytes: u64,
    },
    /// A frozen memtable is in SSTables that a manifest names.
    FlushFinished {
        /// Locality groups that got SSTables.
        groups: usize,
        /// SSTables written.
        files: usize,
        /// Their bytes.
        bytes: u64,
        /// Everything up to this number is in SSTables.
        flushed: SeqNo,
        /// How long it took.
        duration: Duration,
    },
    /// A flush failed; the memtable is kept.
    FlushFailed {
        /// The failure's text.
        error: String,
    },
    /// A merge of SSTables begins.
    CompactionStarted {
        /// Why.
        reason: Reason,
        /// SSTables to be merged.
        files: usize,
        /// Their bytes.
        bytes: u64,
        /// The level that the outcome comes to.
        level: u32,
    },
    /// A merge is done and a manifest names its outcome.
    CompactionFinished {
        /// SSTables written.
        files: usize,
        /// Bytes written.
        bytes: u64,
        /// How long it took.
        duration: Duration,
    },
    /// A merge that is done left cells out, or had to keep some that retention would drop.
    CellsCollected(Collected),
    /// A merge failed or was called off; nothing has changed.
    CompactionFailed {
        /// The failure's text.
        error: String,
    },
    /// A merge could not read an SSTable: merges leave it alone for a while.
    FileSetAside {
        /// The file.
        file: FileId,
        /// What is wrong with it.
        what: String,
        /// For how long.
        pause: Duration,
    },
    /// SSTables came to another level as they are, by a manifest alone.
    FilesMoved {
        /// Why.
        reason: Reason,
        /// How many.
        files: usize,
        /// Their bytes.
        bytes: u64,
        /// The level that they came to.
        level: u32,
    },
    /// A new version begins to be committed; a commit that fails ends without a word of its own.
    ManifestStarted,
    /// A manifest was committed.
    ManifestCommitted {
        /// Its number.
        number: u64,
        /// Its bytes.
        bytes: u64,
        /// How long the commit took.
        duration: Duration,
    },
    /// An SSTable that no version names any more was removed.
    FileRemoved {
        /// Its bytes.
        bytes: u64,
    },
    /// SSTables were given up whole: all their cells were past their age.
    FilesExpired {
        /// How many.
        files: usize,
        /// Their bytes.
        bytes: u64,
    },
    /// A file that no range of its table needs was removed.
    FileSwept,
    /// A manifest cut rows out of all files.
    RowsExcised {
        /// Cells of the rows up to this number are gone.
        seq: SeqNo,
    },
    /// The range was divided: two others have its rows now.
    RangeSplit {
        /// The first.
        left: RangeId,
        /// The second.
        right: RangeId,
        /// How long writers waited.
        duration: Duration,
    },
    /// Segments of the log were given back.
    LogReleased {
        /// Bytes of log given back.
        bytes: u64,
    },
    /// Writers begin to be slowed.
    SlowdownStarted {
        /// Why.
        reason: Reason,
        /// How long the first of them waits.
        delay: Duration,
    },
    /// Writers are not slowed any more.
    SlowdownFinished {
        /// Why they were.
        reason: Reason,
        /// For how long.
        duration: Duration,
    },
    /// A writer begins to wait for room.
    StallStarted {
        /// What there is no room for.
        reason: Reason,
    },
    /// No writer waits for room any more.
    StallFinished {
        /// Why the first of them had to.
        reason: Reason,
        /// How long some writer did.
        duration: Duration,
    },
    /// Batches of a former session's log are in SSTables that a manifest names.
    RecoveryFinished {
        /// Cells taken up.
        cells: u64,
        /// Bytes of SSTables written.
        bytes: u64,
        /// How long it took.
        duration: Duration,
    },
    /// The durable state is unknown after a failed write: the range stops.
    Poisoned {
        /// The failure's text.
        error: String,
    },
}

impl Event {
    /// The event's name, as counters and logs use it.
    pub fn name(&self) -> &'static str {
        match self {
            Event::FlushStarted { .. } => "flush_started",
            Event::FlushFinished { .. } => "flush_finished",
            Event::FlushFailed { .. } => "flush_failed",
            Event::CompactionStarted { .. } => "compaction_started",
            Event::CompactionFinished { .. } => "compaction_finished",
            Event::CellsCollected(_) => "cells_collected",
            Event::CompactionFailed { .. } => "compaction_failed",
            Event::FileSetAside { .. } => "file_set_aside",
            Event::FilesMoved { .. } => "files_moved",
            Event::ManifestStarted => "manifest_started",
            Event::ManifestCommitted { .. } => "manifest_committed",
            Event::FileRemoved { .. } => "file_removed",
            Event::FilesExpired { .. } => "files_expired",
            Event::FileSwept => "file_swept",
            Event::RowsExcised { .. } => "rows_excised",
            Event::RangeSplit { .. } => "range_split",
            Event::LogReleased { .. } => "log_released",
            Event::SlowdownStarted { .. } => "slowdown_started",
            Event::SlowdownFinished { .. } => "slowdown_finished",
            Event::StallStarted { .. } => "stall_started",
            Event::StallFinished { .. } => "stall_finished",
            Event::RecoveryFinished { .. } => "recovery_finished",
            Event::Poisoned { .. } => "poisoned",
        }
    }
}

/// Somebody who wants to know. Called on the working thread: must not block.
pub trait EventListener: Send + Sync + 'static {
    /// `event` happened in `range`.
    fn on_event(&self, range: RangeId, event: &Event);
}

/// Listens to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoListener;

impl EventListener for NoListener {
    fn on_event(&self, _range: RangeId, _event: &Event) {}
}

/// Counts events by name, flushes of more than one group as `flush_of_many_groups`, and what merges
/// left out as `cells_expired` and `operands_folded`.
#[derive(Default)]
pub struct CountingListener {
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl CountingListener {
    /// How often an event of this name happened.
    pub fn count(&self, name: &str) -> u64 {
        self.counts().get(name).copied().unwrap_or(0)
    }

    /// All counts, by name.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl EventListener for CountingListener {
    fn on_event(&self, _range: RangeId, event: &Event) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(event.name()).or_insert(0) += 1;
        if matches!(event, Event::FlushFinished { groups: 2.., .. }) {
            *counts.entry("flush_of_many_groups").or_insert(0) += 1;
        }
        if let Event::CellsCollected(collected) = event {
            *counts.entry("cells_expired").or_insert(0) += collected.expired;
            *counts.entry("operands_folded").or_insert(0) += collected.folded;
        }
    }
}

impl fmt::Debug for CountingListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.counts()).finish()
    }
}
