use storage::Path;
use types::{ErrorKind, SessionId};

/// The result of a call to a coordinator.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call to a coordinator failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The transaction breaks a limit or contradicts itself. Nothing has changed.
    #[error("invalid transaction: {0}")]
    Invalid(String),
    /// The session that a key was to be bound to has ended. Nothing has changed.
    #[error("session {0} has ended")]
    SessionEnded(SessionId),
    /// Stored bytes are damaged.
    #[error("coordination file {path:?} is damaged: {what}")]
    Corrupt {
        /// The file or folder.
        path: Path,
        /// What is wrong.
        what: String,
    },
    /// A newer program wrote the file.
    #[error("coordination file {path:?} needs version {needed}; this program has version {known}")]
    TooNew {
        /// The file or folder.
        path: Path,
        /// The version that it asks for.
        needed: u16,
        /// The version of this program.
        known: u16,
    },
    /// A file could not be read or written. Nothing has changed.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// The log refused or failed.
    #[error(transparent)]
    Log(#[from] wal::Error),
    /// An earlier failure left unknown what is durable: everything is refused.
    #[error("the coordinator stopped because of an earlier failure: {0}")]
    Poisoned(String),
    /// The coordinator was closed.
    #[error("the coordinator is closed")]
    Closed,
}

impl Error {
    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Invalid(_) => ErrorKind::InvalidArgument,
            Error::SessionEnded(_) | Error::TooNew { .. } => ErrorKind::FailedPrecondition,
            Error::Corrupt { .. } => ErrorKind::Corrupt,
            Error::Storage(source) => source.kind(),
            Error::Log(source) => source.kind(),
            Error::Poisoned(_) => ErrorKind::Poisoned,
            Error::Closed => ErrorKind::Unavailable,
        }
    }

    pub(crate) fn corrupt(path: &Path, what: impl Into<String>) -> Error {
        Error::Corrupt { path: path.clone(), what: what.into() }
    }
}
