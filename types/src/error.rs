use std::fmt;

/// What a caller can do about a failure; all of an error that crosses a crate or RPC boundary
/// besides its text. Inside a crate errors are rich (file, offset, what); at its edge they map to
/// one of these kinds by one exhaustive match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// The request is malformed or breaks a limit; repeating it cannot help.
    InvalidArgument,
    /// The named thing does not exist.
    NotFound,
    /// The named thing exists already.
    AlreadyExists,
    /// The request is well formed but the state forbids it (a protected table, a row too large to
    /// read).
    FailedPrecondition,
    /// A part of the interface that is not built.
    Unimplemented,
    /// A limit of space or memory; it may pass. The operation has changed nothing.
    ResourceExhausted,
    /// Not now or not here: retry, perhaps elsewhere. The operation has changed nothing.
    Unavailable,
    /// The range moved, split or changed owner: look its location up again.
    WrongRange,
    /// The deadline passed; the outcome of a write is unknown.
    DeadlineExceeded,
    /// The caller or the server gave up; the outcome of a write is unknown.
    Aborted,
    /// Stored bytes are damaged. Never retried, never skipped.
    Corrupt,
    /// A write or sync failed in a way that leaves the durable state unknown: the engine refuses
    /// all further work until it is opened again.
    Poisoned,
    /// An input or output error that does not by itself poison the engine (a failed read).
    Io,
    /// The process or user lacks the right to do this.
    PermissionDenied,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            ErrorKind::InvalidArgument => "invalid argument",
            ErrorKind::NotFound => "not found",
            ErrorKind::AlreadyExists => "already exists",
            ErrorKind::FailedPrecondition => "failed precondition",
            ErrorKind::Unimplemented => "not implemented",
            ErrorKind::ResourceExhausted => "resource exhausted",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::WrongRange => "wrong range",
            ErrorKind::DeadlineExceeded => "deadline exceeded",
            ErrorKind::Aborted => "aborted",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Poisoned => "poisoned",
            ErrorKind::Io => "input/output error",
            ErrorKind::PermissionDenied => "permission denied",
        };
        f.write_str(text)
    }
}
