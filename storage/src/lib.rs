//! The file system seam: all files of Tepui go through [`FileSystem`].
//!
//! There are two kinds of file, because storage backends differ exactly there:
//!
//! * **blobs** (SSTables, manifests, snapshots) appear whole or not at all and never change. The
//!   only commit primitive is [`FileSystem::put_if_absent`], atomic *with* its content.
//! * **logs** (write-ahead log segments) grow by appends that are durable once synced. Bytes past
//!   the last append are undefined: a recycled segment still holds those of its former life.
//!
//! Backends: [`local`], [`memory`] (crashable) and [`faulty`] (wraps another). One conformance
//! suite runs on each.

mod error;
pub mod faulty;
pub mod local;
pub mod memory;
mod path;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

pub use error::{Error, Operation, Result};
pub use faulty::PlantedBug;
pub use path::Path;

/// One name found by [`FileSystem::list`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name inside the listed folder, without its path.
    pub name: String,
    /// Length in bytes; for logs an upper bound of what was appended. Zero for folders.
    pub len: u64,
    /// Is it a folder?
    pub is_folder: bool,
}

/// A log as it stood when its folder was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedLog {
    /// Where it is.
    pub path: Path,
    /// An upper bound of the bytes that were appended; no writer can add more.
    pub len: u64,
}

/// A place that keeps files. Paths are relative to its root; folders come into being with their
/// first file. Every method is durable when it returns `Ok`, unless it says otherwise.
#[async_trait]
pub trait FileSystem: Send + Sync + 'static {
    /// Starts a blob. It appears whole under `path` when its writer is finished, and not before.
    ///
    /// # Errors
    /// `Exists` may be reported here or by [`BlobWriter::finish`].
    async fn create(&self, path: &Path) -> Result<Box<dyn BlobWriter>>;

    /// Commits `content` under `path`, atomically with its content: after a crash the blob is there
    /// whole or not at all. The only commit primitive.
    ///
    /// # Errors
    /// `AlreadyExists` if anything is there; then nothing has changed.
    async fn put_if_absent(&self, path: &Path, content: Bytes) -> Result<()>;

    /// Opens a blob or a log for positional reads.
    ///
    /// # Errors
    /// `NotFound`.
    async fn open(&self, path: &Path) -> Result<Arc<dyn BlobReader>>;

    /// Names in `folder` greater than `after` (all for ""), sorted; empty when the folder is
    /// absent. Unfinished blobs are not listed. Names are as durable as their files: what a crash
    /// could still take back is not built upon before [`FileSystem::sync_folder`].
    async fn list(&self, folder: &Path, after: &str) -> Result<Vec<Entry>>;

    /// Removes a blob or log (a log's space may be kept for recycling). Absent is not an error.
    /// Reads through a reader of it that is still open either go on or fail with `NotFound`.
    /// The removal itself need not be durable: after a crash the file may be back.
    async fn remove(&self, path: &Path) -> Result<()>;

    /// Removes an empty folder. Absent is not an error; not empty is.
    async fn remove_folder(&self, folder: &Path) -> Result<()>;

    /// Makes the present entries of `folder` (and `folder` itself) durable: called at open before
    /// anything is built on what was found there.
    async fn sync_folder(&self, folder: &Path) -> Result<()>;

    /// Creates a log, exclusively, under a name that ends with `.log`, with space for `reserve`
    /// bytes set aside, so that appends within it never meet a full disk. The name is durable when
    /// this returns. Bytes past the last append are undefined.
    ///
    /// # Errors
    /// `AlreadyExists`; `ResourceExhausted` when the space is not there (nothing is left behind).
    async fn create_log(&self, path: &Path, reserve: u64) -> Result<LogFile>;

    /// When this returns, logs opened earlier under `folder` by another session can append no more,
    /// and the found names are durable. Returns the logs, sorted by name.
    async fn seal(&self, folder: &Path) -> Result<Vec<SealedLog>>;
}

/// Writes one blob. Dropping it unfinished discards what was written.
#[async_trait]
pub trait BlobWriter: Send + Sync {
    /// Adds bytes at the end.
    async fn append(&mut self, content: Bytes) -> Result<()>;

    /// Makes the blob durable and visible under its path.
    ///
    /// # Errors
    /// `AlreadyExists` if something is there. After any error the blob may or may not be there,
    /// but never in part.
    async fn finish(self: Box<Self>) -> Result<()>;
}

/// Reads one blob or log at any position.
#[async_trait]
pub trait BlobReader: Send + Sync {
    /// Length in bytes when it was opened.
    fn len(&self) -> u64;

    /// Is it empty?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Exactly `len` bytes from `offset`.
    ///
    /// # Errors
    /// `Corrupt` when the file ends before; perhaps `NotFound` when it was removed.
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes>;
}

/// A log open for appending. Local files append and sync on the calling thread; a remote log, which
/// needs a committer task of its own, will be a second kind here.
pub enum LogFile {
    /// Appends and syncs block the calling thread; enter through `env.blocking`.
    Blocking(Box<dyn BlockingLog>),
}

/// A log whose appends and syncs block the calling thread.
///
/// After any error its durable state is unknown: it must not be written again.
pub trait BlockingLog: Send {
    /// Adds bytes at the end. Not durable before [`BlockingLog::sync`].
    fn append(&mut self, content: &[u8]) -> Result<()>;

    /// Makes everything appended so far durable.
    fn sync(&mut self) -> Result<()>;

    /// Bytes appended so far.
    fn len(&self) -> u64;

    /// Has nothing been appended?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes set aside when it was created; appends beyond it may meet a full disk.
    fn reserved(&self) -> u64;
}
