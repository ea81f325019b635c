use storage::Path;
use types::ErrorKind;

/// The result of a log operation.
pub type Result<T> = std::result::Result<T, Error>;

/// A log operation that failed: what, where, why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Stored bytes are damaged.
    #[error("log segment {path:?} is damaged at offset {offset}: {what}")]
    Corrupt {
        /// The segment.
        path: Path,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// A newer program wrote the segment.
    #[error(
        "log segment {path:?} needs a reader of version {needed}; this one reads up to {known}"
    )]
    TooNew {
        /// The segment.
        path: Path,
        /// The version that it asks for.
        needed: u16,
        /// The newest version that this program reads.
        known: u16,
    },
    /// The text of an inspection could not be written.
    #[error("cannot write the text")]
    Text(#[from] std::fmt::Error),
    /// A file could not be read, created or removed; the log itself is as it was.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// A write or sync of the live log, or a sync of its folder, failed just now: what is durable
    /// is unknown, and the log refuses everything from here on.
    #[error("the log failed and is closed for good: {0}")]
    Failed(#[source] storage::Error),
    /// An earlier write or sync failed.
    #[error("the log is closed for good because of an earlier failure: {0}")]
    Poisoned(String),
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
    /// One frame cannot be that large.
    #[error("{bytes} bytes do not fit one log frame of at most {limit} bytes")]
    TooLarge {
        /// What was asked for.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// An append found no room because it was not reserved; nothing was written.
    #[error("no room was reserved for a log frame of {bytes} bytes")]
    NotReserved {
        /// The frame's length.
        bytes: u64,
    },
}

impl Error {
    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Corrupt { .. } => ErrorKind::Corrupt,
            Error::TooNew { .. } | Error::Closed => ErrorKind::FailedPrecondition,
            Error::Storage(source) => source.kind(),
            Error::Text(_) => ErrorKind::Io,
            Error::Failed(_) | Error::Poisoned(_) => ErrorKind::Poisoned,
            Error::TooLarge { .. } => ErrorKind::InvalidArgument,
            Error::NotReserved { .. } => ErrorKind::ResourceExhausted,
        }
    }

    pub(crate) fn corrupt(path: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error::Corrupt { path: path.clone(), offset, what: what.into() }
    }
}
