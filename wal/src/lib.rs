//! The commit log: frames, segments, sync, roll, replay, seal and release.
//!
//! [`Log`] writes one session's log, [`recover`] reads a sealed one, [`inspect`] prints a segment.
//! Payloads are opaque: the crate knows frames and segments only. The bytes are specified in
//! [`mod@format`].

mod error;
pub mod format;
mod inspect;
mod log;
mod reader;
mod remove;
mod segment;
mod space;

pub use error::{Error, Result};
pub use format::{Entry, EntryKind, OwnedEntry, SegmentName};
pub use inspect::{PayloadText, inspect};
pub use log::{Log, LogOptions, Position, Reservation};
pub use reader::{Frame, LogReader, recover};
pub use remove::remove_log;
