//! One range's storage: memtable, version, manifest, read view, cursors, flush and compaction

mod error;
mod events;
mod options;

pub use error::{Damage, Error, Result};
pub use events::{CountingListener, Event, EventListener, NoListener, Reason};
pub use options::{BlockCompression, StoreOptions};
