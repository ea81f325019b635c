use std::fmt;

use types::ErrorKind;

use crate::Path;

/// The result of a file operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Which kind of file operation: in errors, and what fault rules select by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Starting a blob.
    Create,
    /// Adding bytes to an unfinished blob.
    WriteBlob,
    /// Making a blob durable and visible.
    FinishBlob,
    /// `put_if_absent`.
    PutIfAbsent,
    /// Opening for reads.
    Open,
    /// A positional read.
    Read,
    /// Listing a folder.
    List,
    /// Removing a file or folder.
    Remove,
    /// Making a folder's entries durable.
    SyncFolder,
    /// Creating a log.
    CreateLog,
    /// Appending to a log.
    Append,
    /// Syncing a log.
    SyncLog,
    /// Sealing a folder of logs.
    Seal,
    /// Opening the file system itself (lock, version).
    OpenFileSystem,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Operation::Create => "create",
            Operation::WriteBlob => "write",
            Operation::FinishBlob => "finish",
            Operation::PutIfAbsent => "put",
            Operation::Open => "open",
            Operation::Read => "read",
            Operation::List => "list",
            Operation::Remove => "remove",
            Operation::SyncFolder => "sync folder",
            Operation::CreateLog => "create log",
            Operation::Append => "append to log",
            Operation::SyncLog => "sync log",
            Operation::Seal => "seal",
            Operation::OpenFileSystem => "open the data folder",
        };
        f.write_str(text)
    }
}

/// A file operation that failed: what, where, why.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation}{}: {reason}", place(path))]
pub struct Error {
    operation: Operation,
    path: Path,
    kind: ErrorKind,
    reason: String,
}

/// The path as it stands in the text; the root needs no mention.
fn place(path: &Path) -> String {
    if path.as_str().is_empty() {
        return String::new();
    }
    format!(" {path:?}")
}

impl Error {
    /// Builds an error with a reason in words.
    pub fn new(
        operation: Operation,
        path: &Path,
        kind: ErrorKind,
        reason: impl Into<String>,
    ) -> Error {
        Error { operation, path: path.clone(), kind, reason: reason.into() }
    }

    /// Builds an error from the operating system's.
    pub fn from_io(operation: Operation, path: &Path, source: &std::io::Error) -> Error {
        let kind = match source.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                ErrorKind::ResourceExhausted
            }
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                ErrorKind::PermissionDenied
            }
            std::io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
            _ => ErrorKind::Io,
        };
        Error::new(operation, path, kind, source.to_string())
    }

    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Which operation failed.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// On which path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
