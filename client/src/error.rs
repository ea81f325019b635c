use std::time::Duration;

use types::ErrorKind;

/// The result of a request.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a request failed, as it crosses a seam or the network: a kind, a text for people and,
/// where waiting helps, how long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    retry_after: Option<Duration>,
}

impl Error {
    /// An error of `kind` that says `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), retry_after: None }
    }

    /// The request is malformed.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidArgument, message)
    }

    /// The named thing does not exist.
    pub fn not_found(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::NotFound, message)
    }

    /// Adds how long to wait before trying again.
    pub fn retry_after(mut self, delay: Duration) -> Error {
        self.retry_after = Some(delay);
        self
    }

    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The text.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// How long to wait before trying again, where the server says so.
    pub fn retry_delay(&self) -> Option<Duration> {
        self.retry_after
    }
}
