//! One range's storage: memtable, version, manifest, read view, cursors, flush and compaction

mod batch;
mod entry;
mod error;
mod events;
mod memtable;
mod options;

pub use batch::{Batch, Cells, decode_payload};
pub use error::{Damage, Error, Result};
pub use events::{CountingListener, Event, EventListener, NoListener, Reason};
pub use memtable::{Memtable, MemtableCursor, MemtableOptions};
pub use options::{BlockCompression, StoreOptions};
