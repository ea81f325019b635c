//! The seam between whoever routes a request and the server that holds the range.
//!
//! A range server in this process implements [`RangeService`]; so does a connection to another.
//! Requests name a range and the epoch under which the caller believes it is served; a server that
//! does not serve it so answers `WrongRange`, and the caller looks the location up again. Replies
//! to reads are encoded wire messages, built once from block bytes and forwarded untouched.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use types::{Epoch, ErrorKind, Generation, RangeId, ReadSpec, RowMutations};

use crate::{Error, RangeScrub, Result};

/// Which range a request is for, and under which knowledge of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeTarget {
    /// The range.
    pub range: RangeId,
    /// The epoch its location was found with.
    pub epoch: Epoch,
    /// The generation of the table's schema that the request was validated against.
    pub generation: Generation,
    /// How long the caller will wait; the server may give up after it.
    pub deadline: Option<Duration>,
}

/// Mutations for rows of one range. Each row is applied atomically and in order; the whole request
/// is durable, or has failed, as one.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// Which range.
    pub target: RangeTarget,
    /// All inside the range's bounds.
    pub rows: Vec<RowMutations>,
}

/// Which chunks of a reply name their row, besides the first chunk of each row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowKeys {
    /// A message's first chunk, if it begins a cell. Every client but one reads this.
    #[default]
    AtCells,
    /// Every message's first chunk, also where it goes on with a divided value: the Python data
    /// client takes a message whose first chunk names no row for one out of order, while the Go
    /// client refuses a row key inside a value.
    AtMessages,
}

/// A read of the rows of one range.
#[derive(Clone, Debug)]
pub struct ReadRequest {
    /// Which range.
    pub target: RangeTarget,
    /// Cut to the range's bounds.
    pub spec: ReadSpec,
    /// How the reply names its rows.
    pub row_keys: RowKeys,
}

/// One message of a read's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadReply {
    /// An encoded `google.bigtable.v2.ReadRowsResponse`.
    pub encoded: Bytes,
    /// How many rows end in it.
    pub rows: u64,
    /// The last row that ends in it: where a broken read resumes.
    pub last_row: Option<Bytes>,
}

/// A running read: pulled, so it holds no more than one reply. Dropping it stops the read.
#[async_trait]
pub trait ReadReplies: Send {
    /// The next reply; `None` at the end.
    ///
    /// # Errors
    /// After an error the read is over.
    async fn next(&mut self) -> Result<Option<ReadReply>>;
}

/// A row at which a range could be divided, with the bytes before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeSample {
    /// Bytes that the range stores, approximately.
    pub bytes: u64,
}

/// Data operations on ranges.
#[async_trait]
pub trait RangeService: Send + Sync + 'static {
    /// Applies mutations; answers when they are durable and visible.
    ///
    /// # Errors
    /// `WrongRange` (not served here so), `ResourceExhausted` or `Unavailable` (not now; nothing
    /// has changed), `InvalidArgument`. After `Aborted` or `DeadlineExceeded` the outcome is
    /// unknown.
    async fn write(&self, request: WriteRequest) -> Result<()>;

    /// Starts a read.
    ///
    /// # Errors
    /// As [`RangeService::write`]; also `Corrupt`.
    async fn read(&self, request: ReadRequest) -> Result<Box<dyn ReadReplies>>;

    /// The approximate size of a range.
    ///
    /// # Errors
    /// `WrongRange`.
    async fn sample(&self, target: RangeTarget) -> Result<RangeSample>;

    /// Starts to read all files of a range again, paced, telling what is damaged.
    ///
    /// # Errors
    /// `WrongRange`.
    async fn scrub(&self, target: RangeTarget) -> Result<Box<dyn RangeScrub>> {
        let text = format!("range {} cannot be scrubbed here", target.range);
        Err(Error::new(ErrorKind::Unimplemented, text))
    }
}
