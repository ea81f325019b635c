use std::fmt;
use std::sync::Arc;

use env::Env;
use sstable::BlockCache;
use storage::{FileSystem, Path};
use types::{Epoch, RangeId, RowRange, SessionId, TableId};

use crate::events::EventListener;
use crate::files::{FileIds, RANGES_FOLDER};
use crate::io::RateLimiter;
use crate::memtable::OutlivedMemory;
use crate::options::StoreOptions;

/// What a range's storage is made of.
#[derive(Clone)]
pub struct StoreConfig {
    /// Where its files are.
    pub files: Arc<dyn FileSystem>,
    /// Clock, randomness, tasks.
    pub env: Env,
    /// The table's folder, `tables/<table id>`.
    pub table_folder: Path,
    /// The table.
    pub table: TableId,
    /// The range.
    pub range: RangeId,
    /// The range's rows, as the catalog has them; the manifest must agree.
    pub bounds: RowRange,
    /// The owner's epoch: an owner with a lower one is fenced by the open.
    pub epoch: Epoch,
    /// The server run that owns the range.
    pub session: SessionId,
    /// Names new SSTables; shared by all ranges of the session.
    pub file_ids: Arc<FileIds>,
    /// Keeps blocks; shared. `None`: every read goes to the file.
    pub cache: Option<Arc<BlockCache>>,
    /// Holds reads and writes to a rate; shared.
    pub limiter: Arc<RateLimiter>,
    /// Counts the memory of memtables that reads hold longer than the store; shared.
    pub outlived: OutlivedMemory,
    /// Is told what happens.
    pub events: Arc<dyn EventListener>,
    /// The settings.
    pub options: StoreOptions,
}

impl StoreConfig {
    /// The range's folder, which holds its manifests.
    pub fn range_folder(&self) -> Path {
        range_folder(&self.table_folder, self.range)
    }
}

/// The folder of a range's manifests in its table's folder.
pub fn range_folder(table_folder: &Path, range: RangeId) -> Path {
    table_folder.join(RANGES_FOLDER).join(&range.get().to_string())
}

impl fmt::Debug for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreConfig")
            .field("table_folder", &self.table_folder)
            .field("range", &self.range)
            .field("bounds", &self.bounds)
            .field("epoch", &self.epoch)
            .field("session", &self.session)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
