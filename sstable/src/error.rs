use types::{ErrorKind, FileId};

/// The result of an operation on a table file.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a table file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file's bytes are not what was written.
    #[error("sstable {file}: {what} at offset {offset}")]
    Corrupt {
        /// The file.
        file: FileId,
        /// Where in the file: the start of the block, value or field that is damaged.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The file was written by a newer release, which says that this one cannot read it.
    #[error("sstable {file}: needs a reader of format {needed}, this one knows {known}")]
    NewerFormat {
        /// The file.
        file: FileId,
        /// The least format version that a reader must know.
        needed: u16,
        /// The newest that this reader knows.
        known: u16,
    },
    /// The file system failed.
    #[error("sstable {file}: {source}")]
    Storage {
        /// The file.
        file: FileId,
        /// What the file system says.
        source: storage::Error,
    },
    /// Bytes given to the writer are no cell key.
    #[error("sstable {file}: {key_len} bytes given as a key are none: {key_start}")]
    NotAKey {
        /// The file being written.
        file: FileId,
        /// How many bytes were given.
        key_len: usize,
        /// The first of them, escaped.
        key_start: String,
    },
}

impl Error {
    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Corrupt { .. } | Error::NotAKey { .. } => ErrorKind::Corrupt,
            Error::NewerFormat { .. } => ErrorKind::FailedPrecondition,
            Error::Storage { source, .. } => source.kind(),
        }
    }
}

/// Bytes that do not keep the format: what is wrong, before it is known where they came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl Malformed {
    /// Says where the bytes came from.
    pub(crate) fn at(self, file: FileId, offset: u64) -> Error {
        Error::Corrupt { file, offset, what: self.0 }
    }
}
