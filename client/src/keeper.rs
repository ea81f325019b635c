//! The seam through which ranges are looked after: rows dropped, ranges divided, flushed, merged.
//!
//! A range server implements [`RangeKeeper`]; the master asks it on behalf of operators. Each
//! operation names its range as a data request does, and a server that does not serve it so answers
//! `WrongRange`: whoever asks looks the layout up again. Each may be repeated.

use async_trait::async_trait;
use bytes::Bytes;
use types::{Epoch, RangeActivity, RangeId, RowRange, SessionId, TableId};

use crate::{RangeTarget, Result};

/// What a range holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeStatus {
    /// Bytes in SSTables, about; of files shared with other ranges the part that is its own.
    pub bytes: u64,
    /// Bytes in memory, not yet in SSTables.
    pub memory_bytes: u64,
    /// SSTables that it refers to.
    pub files: u64,
    /// Sorted runs that a read may have to look into.
    pub sorted_runs: u64,
    /// What its storage has done since the range was opened, and how its files stand.
    pub activity: RangeActivity,
}

/// Two ranges in the place of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// The table.
    pub table: TableId,
    /// The range that is divided.
    pub range: RangeId,
    /// The epoch and the session that it is granted under.
    pub epoch: Epoch,
    /// See `epoch`.
    pub session: SessionId,
    /// Fresh ids with the rows of each: together the range's, none twice.
    pub children: [(RangeId, RowRange); 2],
}

/// Looks after ranges.
#[async_trait]
pub trait RangeKeeper: Send + Sync + 'static {
    /// Removes all cells of `rows`, as far as they are the range's, for good. When it returns that
    /// is durable, and in force for every later read.
    ///
    /// # Errors
    /// `WrongRange`; others leave it open whether the rows are gone, or will be.
    async fn drop_rows(&self, target: RangeTarget, rows: &RowRange) -> Result<()>;

    /// Divides the range at `at`, or near the middle of its bytes; returns the row. `None`: there
    /// is no row to divide it at.
    ///
    /// # Errors
    /// `WrongRange`; `InvalidArgument` for a row that is not inside; others leave the range whole
    /// or divided, never in between.
    async fn split(&self, target: RangeTarget, at: Option<Bytes>) -> Result<Option<Bytes>>;

    /// Writes the range's memtables out.
    ///
    /// # Errors
    /// `WrongRange`; what the disk fails with.
    async fn flush(&self, target: RangeTarget) -> Result<()>;

    /// Writes the range's memtables out and merges its files into one sorted run.
    ///
    /// # Errors
    /// As [`RangeKeeper::flush`].
    async fn compact(&self, target: RangeTarget) -> Result<RangeStatus>;

    /// What the range holds.
    ///
    /// # Errors
    /// `WrongRange`.
    async fn status(&self, target: RangeTarget) -> Result<RangeStatus>;
}
