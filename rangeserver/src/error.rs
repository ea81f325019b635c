use storage::Path;
use types::{ErrorKind, RangeId};

/// The result of running a range server.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a range server could not start, recover or stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// The log could not be written or read.
    #[error(transparent)]
    Log(#[from] wal::Error),
    /// A range's storage failed.
    #[error("range {range}: {source}")]
    Store {
        /// The range.
        range: RangeId,
        /// What failed.
        source: lsm::Error,
    },
    /// The sweep of a table's folder failed.
    #[error("cannot sweep {folder:?}: {source}")]
    Sweep {
        /// The table's folder.
        folder: Path,
        /// What failed.
        source: lsm::Error,
    },
    /// The catalog did not answer.
    #[error("cannot ask the catalog: {0}")]
    Catalog(client::Error),
    /// The record of a sealed log is damaged.
    #[error("the seal {path:?} is damaged: {what}")]
    CorruptSeal {
        /// Which file.
        path: Path,
        /// What is wrong.
        what: &'static str,
    },
    /// An option has a value that is not allowed.
    #[error("option {name}: {reason}")]
    InvalidOption {
        /// Which option.
        name: &'static str,
        /// What is allowed.
        reason: String,
    },
    /// An earlier failed write left the durable state unknown: nothing goes on before the next
    /// start.
    #[error("the server is poisoned: {0}")]
    Poisoned(String),
    /// Writes that were under way did not come to an end in time.
    #[error("writes are still under way")]
    Busy,
}

impl Error {
    pub(crate) fn store(range: RangeId) -> impl Fn(lsm::Error) -> Error {
        move |source| Error::Store { range, source }
    }

    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Storage(source) => source.kind(),
            Error::Log(source) => source.kind(),
            Error::Store { source, .. } | Error::Sweep { source, .. } => source.kind(),
            Error::Catalog(source) => source.kind(),
            Error::CorruptSeal { .. } => ErrorKind::Corrupt,
            Error::InvalidOption { .. } => ErrorKind::InvalidArgument,
            Error::Poisoned(_) => ErrorKind::Poisoned,
            Error::Busy => ErrorKind::Unavailable,
        }
    }
}

impl From<Error> for client::Error {
    fn from(error: Error) -> client::Error {
        client::Error::new(error.kind(), error.to_string())
    }
}

/// The same failure as it crosses the seam to callers.
pub(crate) fn from_store(error: &lsm::Error) -> client::Error {
    client::Error::new(error.kind(), error.to_string())
}

pub(crate) fn from_log(error: &wal::Error) -> client::Error {
    let kind = match error.kind() {
        // A log is closed when its server stops.
        ErrorKind::FailedPrecondition => ErrorKind::Unavailable,
        kind => kind,
    };
    client::Error::new(kind, error.to_string())
}

/// The answer to a request for a range that is not served so here.
pub(crate) fn wrong_range(range: RangeId, why: &str) -> client::Error {
    client::Error::new(ErrorKind::WrongRange, format!("range {range}: {why}"))
}
