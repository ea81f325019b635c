use std::time::Duration;

use bytes::Bytes;
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
    large_row: Option<Bytes>,
}

impl Error {
    /// An error of `kind` that says `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), retry_after: None, large_row: None }
    }

    /// The request is malformed.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidArgument, message)
    }

    /// The named thing does not exist.
    pub fn not_found(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::NotFound, message)
    }

    /// A row has more bytes than may be read, `most`.
    pub fn large_row(row: Bytes, most: u64) -> Error {
        let text =
            format!("row {} has more than {most} bytes: too large to read", row.escape_ascii());
        let error = Error::new(ErrorKind::FailedPrecondition, text);
        Error { large_row: Some(row), ..error }
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

    /// The row that is too large to read, if that is what failed: whoever leaves it out can go on.
    pub fn too_large(&self) -> Option<&Bytes> {
        self.large_row.as_ref()
    }

    /// How long to wait before trying again, where the server says so.
    pub fn retry_delay(&self) -> Option<Duration> {
        self.retry_after
    }
}
