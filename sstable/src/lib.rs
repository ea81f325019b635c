#![doc = include_str!("../FORMAT.md")]

mod block;
mod block_builder;
mod cache;
mod coding;
mod cursor;
mod error;
mod filter;
mod footer;
mod frame;
mod index;
pub mod inspect;
mod options;
mod properties;
mod raw;
mod read_ahead;
mod sizes;
mod table;
mod value;
mod verify;
mod writer;

pub use block::Block;
pub use cache::{BlockCache, CacheCounts, CacheForm, Pins};
pub use cursor::{Step, TableCursor};
pub use error::{Error, Result};
pub use frame::{BlockHandle, BlockKind};
pub use options::WriterOptions;
pub use properties::Properties;
pub use raw::{RawBlock, RawEntries};
pub use table::{Table, file_id};
pub use value::{PIECE_BYTES, StoredValue, ValueRef};
pub use verify::{verify_checksum, verify_file};
pub use writer::{NextKey, TableMeta, TableWriter};
