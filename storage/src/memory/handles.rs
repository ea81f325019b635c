use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use types::ErrorKind;

use super::state::{Inode, State};
use crate::local::check_bounds;
use crate::{BlobReader, BlobWriter, BlockingLog, Error, Operation, Path, PlantedBug, Result};

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A blob being written; a crash leaves nothing of it.
pub(super) struct Writer {
    state: Arc<Mutex<State>>,
    path: Path,
    content: Vec<u8>,
}

impl Writer {
    pub(super) fn new(state: Arc<Mutex<State>>, path: &Path) -> Writer {
        Writer { state, path: path.clone(), content: Vec::new() }
    }
}

#[async_trait]
impl BlobWriter for Writer {
    async fn append(&mut self, content: Bytes) -> Result<()> {
        let mut state = lock(&self.state);
        let len = content.len() as u64;
        state.check_space(Operation::WriteBlob, &self.path, len)?;
        state.step(Operation::WriteBlob, &self.path)?;
        state.unfinished += len;
        self.content.extend_from_slice(&content);
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<()> {
        let content = std::mem::take(&mut self.content);
        let mut state = lock(&self.state);
        state.unfinished = state.unfinished.saturating_sub(content.len() as u64);
        state.put_blob(Operation::FinishBlob, &self.path, content)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.unfinished = state.unfinished.saturating_sub(self.content.len() as u64);
    }
}

/// An open file.
pub(super) struct Reader {
    state: Arc<Mutex<State>>,
    path: Path,
    inode: Inode,
    len: u64,
}

impl Reader {
    pub(super) fn new(state: Arc<Mutex<State>>, path: &Path, inode: Inode, len: u64) -> Reader {
        Reader { state, path: path.clone(), inode, len }
    }
}

#[async_trait]
impl BlobReader for Reader {
    fn len(&self) -> u64 {
        self.len
    }

    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        check_bounds(&self.path, self.len, offset, len)?;
        let state = lock(&self.state);
        state.check_life(Operation::Read, &self.path)?;
        let file = state.files.get(&self.inode).expect("a file with a reader is kept");
        Ok(Bytes::from(file.read(offset, len)))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        lock(&self.state).close_reader(self.inode);
    }
}

/// A log open for appending.
pub(super) struct Log {
    state: Arc<Mutex<State>>,
    path: Path,
    inode: Inode,
    writer: u64,
    len: u64,
    reserved: u64,
}

impl Log {
    pub(super) fn new(
        state: Arc<Mutex<State>>,
        path: &Path,
        inode: Inode,
        writer: u64,
        reserved: u64,
    ) -> Log {
        Log { state, path: path.clone(), inode, writer, len: 0, reserved }
    }

    fn check_writer(&self, state: &State, operation: Operation) -> Result<()> {
        state.check_life(operation, &self.path)?;
        let file = state.files.get(&self.inode);
        if file.and_then(|file| file.writer) == Some(self.writer) {
            return Ok(());
        }
        let kind = ErrorKind::FailedPrecondition;
        Err(Error::new(operation, &self.path, kind, "the log has been sealed"))
    }
}

impl BlockingLog for Log {
    fn append(&mut self, content: &[u8]) -> Result<()> {
        let mut state = lock(&self.state);
        self.check_writer(&state, Operation::Append)?;
        let end = self.len + content.len() as u64;
        let more = end.saturating_sub(self.reserved.max(self.len));
        if more > 0 {
            state.check_space(Operation::Append, &self.path, more)?;
        }
        state.step(Operation::Append, &self.path)?;
        let file = state.files.get_mut(&self.inode).expect("checked with the writer");
        file.append(content);
        self.len = end;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let mut state = lock(&self.state);
        self.check_writer(&state, Operation::SyncLog)?;
        state.step(Operation::SyncLog, &self.path)?;
        if state.planted == Some(PlantedBug::SkipLogSync) {
            return Ok(());
        }
        state.files.get_mut(&self.inode).expect("checked with the writer").sync();
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn reserved(&self) -> u64 {
        self.reserved
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if let Some(file) = state.files.get_mut(&self.inode)
            && file.writer == Some(self.writer)
        {
            file.writer = None;
        }
    }
}
