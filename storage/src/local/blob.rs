use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use env::Env;
use types::ErrorKind;

use super::handles::Handle;
use super::{Shared, disk};
use crate::{BlobReader, BlobWriter, Error, Operation, Path, Result};

/// A blob being written, in `tmp`.
pub(super) struct Writer {
    shared: Arc<Shared>,
    path: Path,
    file: File,
    unfinished: Unfinished,
}

/// A file in `tmp`, removed when dropped; by then it may have moved to its path.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Not as a blocking section: a drop may run where none is allowed. What cannot be removed
        // now is removed at the next open.
        let _ = disk::remove_file(&self.0);
    }
}

impl Writer {
    pub(super) fn new(shared: &Arc<Shared>, path: &Path) -> Result<Writer> {
        let (file, tmp) =
            shared.create_tmp().map_err(|error| Error::from_io(Operation::Create, path, &error))?;
        let shared = Arc::clone(shared);
        Ok(Writer { shared, path: path.clone(), file, unfinished: Unfinished(tmp) })
    }

    fn write(&self, operation: Operation, content: &[u8]) -> Result<()> {
        (&self.file)
            .write_all(content)
            .map_err(|error| Error::from_io(operation, &self.path, &error))
    }

    fn commit(&self, operation: Operation) -> Result<()> {
        self.file.sync_all().map_err(|error| Error::from_io(operation, &self.path, &error))?;
        self.shared.commit(operation, &self.unfinished.0, &self.path)
    }
}

#[async_trait]
impl BlobWriter for Writer {
    async fn append(&mut self, content: Bytes) -> Result<()> {
        let place = self.shared.env.blocking_permit().await;
        place.run(|| self.write(Operation::WriteBlob, &content))
    }

    async fn finish(self: Box<Self>) -> Result<()> {
        let place = self.shared.env.blocking_permit().await;
        place.run(|| self.commit(Operation::FinishBlob))
    }
}

pub(super) fn put_if_absent(shared: &Arc<Shared>, path: &Path, content: &[u8]) -> Result<()> {
    let operation = Operation::PutIfAbsent;
    let found = disk::file_len(&shared.resolve(path))
        .map_err(|error| Error::from_io(operation, path, &error))?;
    if found.is_some() {
        return Err(Error::new(operation, path, ErrorKind::AlreadyExists, "it is there already"));
    }
    let writer = Writer::new(shared, path)?;
    writer.write(operation, content)?;
    writer.commit(operation)
}

/// A file that can be read; see `handles.rs` for when it is open.
pub(super) struct Reader {
    env: Env,
    path: Path,
    handle: Arc<Handle>,
}

impl Reader {
    pub(super) fn open(shared: &Shared, path: &Path) -> Result<Reader> {
        let handle = shared.handles.open(shared.resolve(path));
        let handle = handle.map_err(|error| Error::from_io(Operation::Open, path, &error))?;
        Ok(Reader { env: shared.env.clone(), path: path.clone(), handle })
    }
}

#[async_trait]
impl BlobReader for Reader {
    fn len(&self) -> u64 {
        self.handle.len()
    }

    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        check_bounds(&self.path, self.len(), offset, len)?;
        let mut content = env::zeros(len);
        let read = |file: &File| file.read_exact_at(&mut content, offset);
        self.env
            .blocking(|| self.handle.with(read))
            .map_err(|error| Error::from_io(Operation::Read, &self.path, &error))?;
        Ok(Bytes::from(content))
    }
}

/// A read outside the file is refused before anything is allocated for it: its bounds may come
/// from damaged bytes.
pub(crate) fn check_bounds(path: &Path, file_len: u64, offset: u64, len: usize) -> Result<()> {
    let end = offset.checked_add(len as u64);
    if end.is_some_and(|end| end <= file_len) {
        return Ok(());
    }
    let reason = format!("{len} bytes at offset {offset} are not all in a file of {file_len}");
    Err(Error::new(Operation::Read, path, ErrorKind::Corrupt, reason))
}
