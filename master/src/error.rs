use types::ErrorKind;

/// The result of a catalog operation.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// A catalog operation that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A record is damaged.
    #[error("catalog record {key:?} is damaged: {what}")]
    Corrupt { key: String, what: String },
    /// A newer program wrote the record.
    #[error("catalog record {key:?} needs version {needed}; this program has version {known}")]
    TooNew { key: String, needed: u16, known: u16 },
    /// Others changed the same records, again and again.
    #[error("catalog record {key:?} keeps changing")]
    Contended { key: String },
    /// The coordinator failed.
    #[error(transparent)]
    Coordinator(#[from] coordination::Error),
    /// The request is refused, or a server failed.
    #[error(transparent)]
    Request(#[from] client::Error),
}

impl Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Error::Corrupt { .. } => ErrorKind::Corrupt,
            Error::TooNew { .. } => ErrorKind::FailedPrecondition,
            Error::Contended { .. } => ErrorKind::Unavailable,
            Error::Coordinator(source) => source.kind(),
            Error::Request(source) => source.kind(),
        }
    }
}

impl From<Error> for client::Error {
    fn from(error: Error) -> client::Error {
        match error {
            Error::Request(request) => request,
            other => client::Error::new(other.kind(), other.to_string()),
        }
    }
}
