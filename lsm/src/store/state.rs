//! What a read pins: the version with its open SSTables, and the memtables above it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use sstable::Table;
use types::{FileId, RowRange, SeqNo};

use crate::events::Reason;
use crate::memtable::{Memtable, MemtableOptions};
use crate::version::Version;

/// A place in the log of the session. This crate knows no log: it only keeps what it is given, so
/// that the owner can tell from where on the range still needs its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// The log's segment.
    pub segment: u64,
    /// Bytes into the segment.
    pub offset: u64,
}

/// A memtable in its life: active, frozen, dropped.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) memtable: Arc<Memtable>,
    /// The log holds nothing of this memtable before here. Set by its first batch.
    pub(crate) floor: OnceLock<LogPosition>,
    /// The last sequence number that may be in it, and why it was frozen. Set when it is.
    pub(crate) frozen: OnceLock<(SeqNo, Reason)>,
    /// Rows that are cut out of the range together with its flush. Set when it is frozen.
    pub(crate) excised: OnceLock<RowRange>,
}

impl Layer {
    pub(crate) fn new(options: MemtableOptions) -> Arc<Layer> {
        Arc::new(Layer {
            memtable: Memtable::new(options),
            floor: OnceLock::new(),
            frozen: OnceLock::new(),
            excised: OnceLock::new(),
        })
    }

    /// Has a batch been placed in it (though perhaps not yet inserted)?
    pub(crate) fn is_used(&self) -> bool {
        self.floor.get().is_some()
    }
}

/// What makes the range at one moment. Immutable but for the inserts into the active memtable.
pub(crate) struct State {
    pub(crate) version: Arc<Version>,
    /// The version's files, open.
    pub(crate) tables: BTreeMap<FileId, Arc<Table>>,
    pub(crate) active: Arc<Layer>,
    /// Oldest first.
    pub(crate) frozen: Vec<Arc<Layer>>,
}

impl State {
    /// Memtables that may hold something, oldest first.
    pub(crate) fn layers(&self) -> impl DoubleEndedIterator<Item = &Arc<Layer>> {
        self.frozen.iter().chain([&self.active])
    }
}
