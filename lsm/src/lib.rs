//! One range's storage: memtable, version, manifest, read view, cursors, flush and compaction.
//!
//! It knows no log and no RPC: the owner of a [`Store`] logs batches, tells when they are durable,
//! and after a crash gives back what its log holds.
//!
//! ```text
//! write    Batch::encode → sequence → Store::place → Seat::insert → (log) → Store::publish
//! read     Store::view → ReadView::scan → Scan (tombstones, versions) over MergeCursor
//! flush    Store::freeze → Store::flush → SSTables, checked → manifest → new state
//! merge    choose_compaction → Store::compact_once → Collector → SSTables, checked → manifest →
//!          new state
//! restart  sweep_table → Store::open (fence) → Store::ingest (log) → SSTables → manifest
//! ```

mod batch;
mod clip;
mod collect;
mod compaction;
mod cursor;
mod entry;
mod error;
mod events;
mod excise;
mod files;
mod flush;
pub mod inspect;
mod io;
mod layout;
mod manifest;
mod memtable;
mod options;
mod output;
mod outputs;
mod pin;
mod recover;
mod resolve;
mod rules;
mod scrub;
mod statistics;
mod store;
mod sweep;
mod sync;
mod version;

pub use batch::{Batch, Cells, decode_payload};
pub use collect::Collected;
pub use compaction::{
    CompactionHold, Plan, Work, choose_compaction, choose_expired, delay_between,
};
pub use cursor::{MergeCursor, MergeStep, PendingBlock, Source};
pub use error::{Damage, Error, Result};
pub use events::{CountingListener, Event, EventListener, NoListener, Reason};
pub use excise::{decode_excise, encode_excise};
pub use files::{FileIds, table_path};
pub use flush::Flushed;
pub use io::{IoClass, RateLimiter};
pub use layout::Layout;
pub use manifest::{Manifest, manifest_name, manifest_number};
pub use memtable::{Memtable, MemtableCursor, MemtableOptions, Outlived, OutlivedMemory};
pub use options::StoreOptions;
pub use pin::Pinned;
pub use recover::{Ingest, Ingested};
pub use resolve::{Scan, ScanCounts, ScanStep, VisibleCell};
pub use rules::{FamilyRule, FamilyRules};
pub use scrub::{Finding, Scrub, Scrubbed};
pub use store::{
    LogPosition, ReadView, Seat, Store, StoreConfig, TIMESTAMP_DRIFT_MAX_MICROS, range_folder,
};
pub use sweep::{Sweep, remove_ranges_but, sweep_table};
pub use version::{Edit, EditError, Group, TableRef, Version};
