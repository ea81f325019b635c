use std::fmt;

use storage::Path;
use types::{Epoch, ErrorKind, FileId};

/// The result of an operation on a range's storage.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong in a range's storage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// An SSTable could not be written or read.
    #[error(transparent)]
    Table(#[from] sstable::Error),
    /// A manifest's bytes are damaged.
    #[error("manifest {path}: {what}")]
    CorruptManifest {
        /// Which file.
        path: Path,
        /// What is wrong, and where.
        what: Damage,
    },
    /// A manifest was written by a later release and this one may not read or follow it.
    #[error("manifest {path} needs a later release: {what}")]
    NewerManifest {
        /// Which file.
        path: Path,
        /// What is not understood.
        what: String,
    },
    /// A batch's stored bytes are damaged.
    #[error("batch: {what} at offset {offset}")]
    CorruptBatch {
        /// Offset within the payload, bytes.
        offset: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A stored key or value breaks the key format or the order of its file.
    #[error("stored cell: {what}")]
    CorruptCell {
        /// What is wrong.
        what: String,
    },
    /// Another owner has taken the range: this one may serve it no longer.
    #[error("range taken over by {newest}; this owner has {own}")]
    Fenced {
        /// The epoch found.
        newest: Epoch,
        /// This owner's epoch.
        own: Epoch,
    },
    /// The range has no manifest.
    #[error("no manifest in {folder}")]
    NoManifest {
        /// The range's folder.
        folder: Path,
    },
    /// The range has a manifest already.
    #[error("{folder} holds a range already")]
    RangeExists {
        /// The range's folder.
        folder: Path,
    },
    /// A failed write left the durable state unknown: nothing goes on before the next open.
    #[error("storage of the range is poisoned: {reason}")]
    Poisoned {
        /// The failure that did it.
        reason: String,
    },
    /// An edit was made for another version: a bug, stopped before it was stored.
    #[error("edit of a version: {0}")]
    Edit(#[from] crate::version::EditError),
    /// An option has a value that is not allowed.
    #[error("option {name}: {reason}")]
    InvalidOption {
        /// Which option.
        name: &'static str,
        /// What is allowed.
        reason: String,
    },
    /// A merge met inputs that are damaged or cannot be read: nothing has changed, and merges leave
    /// them alone for a while.
    #[error("merge: {failed}; set aside: {}", listed(files))]
    DamagedInput {
        /// The files.
        files: Vec<FileId>,
        /// What was met.
        #[source]
        failed: Box<Error>,
    },
    /// The work was called off before it changed anything.
    #[error("called off")]
    Cancelled,
    /// The range's storage is closed.
    #[error("the range is closed")]
    Closed,
}

impl Error {
    /// What the caller can do: all of an error that crosses a boundary besides its text.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Storage(source) => source.kind(),
            Error::Table(source) => source.kind(),
            Error::CorruptManifest { .. }
            | Error::CorruptBatch { .. }
            | Error::CorruptCell { .. } => ErrorKind::Corrupt,
            Error::NewerManifest { .. } => ErrorKind::FailedPrecondition,
            Error::Fenced { .. } => ErrorKind::WrongRange,
            Error::NoManifest { .. } => ErrorKind::NotFound,
            Error::RangeExists { .. } => ErrorKind::AlreadyExists,
            Error::Poisoned { .. } => ErrorKind::Poisoned,
            Error::InvalidOption { .. } => ErrorKind::InvalidArgument,
            Error::DamagedInput { failed, .. } => failed.kind(),
            Error::Cancelled | Error::Edit(_) => ErrorKind::Aborted,
            Error::Closed => ErrorKind::Unavailable,
        }
    }
}

fn listed(files: &[FileId]) -> String {
    let names: Vec<_> = files.iter().map(FileId::to_string).collect();
    names.join(", ")
}

/// What is wrong with stored bytes, and at which offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset from the start of the stored bytes.
    pub offset: usize,
    /// What is wrong.
    pub what: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.what, self.offset)
    }
}
