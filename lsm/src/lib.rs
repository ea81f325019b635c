//! One range's storage: memtable, version, manifest, read view, cursors, flush and compaction

mod batch;
mod compaction;
mod cursor;
mod entry;
mod error;
mod events;
mod files;
mod flush;
pub mod inspect;
mod manifest;
mod memtable;
mod options;
mod output;
mod pin;
mod recover;
mod resolve;
mod store;
mod sync;
mod version;

pub use batch::{Batch, Cells, decode_payload};
pub use compaction::{Plan, choose_compaction};
pub use cursor::{MergeCursor, MergeStep, PendingBlock, Source};
pub use error::{Damage, Error, Result};
pub use events::{CountingListener, Event, EventListener, NoListener, Reason};
pub use files::{FileIds, sweep_table, table_path};
pub use flush::Flushed;
pub use manifest::{Manifest, manifest_name, manifest_number};
pub use memtable::{Memtable, MemtableCursor, MemtableOptions};
pub use options::{BlockCompression, StoreOptions};
pub use pin::Pinned;
pub use recover::{Ingest, Ingested};
pub use resolve::{Scan, ScanCounts, ScanStep, VisibleCell};
pub use store::{LogPosition, ReadView, Seat, Store, StoreConfig, TIMESTAMP_DRIFT_MAX_MICROS, range_folder};
pub use version::{Edit, EditError, Group, TableRef, Version};
