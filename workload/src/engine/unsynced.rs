//! A file system whose logs are written and not synced: what other engines do when they are told
//! that a put need not be durable at once. Everything else is the wrapped one's.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use storage::{
    BlobReader, BlobWriter, BlockingLog, Entry, FileSystem, LogFile, Path, Result, SealedLog,
};

/// See the module's words.
pub(crate) struct Unsynced(pub(crate) Arc<dyn FileSystem>);

struct UnsyncedLog(Box<dyn BlockingLog>);

#[async_trait]
impl FileSystem for Unsynced {
    async fn create(&self, path: &Path) -> Result<Box<dyn BlobWriter>> {
        self.0.create(path).await
    }

    async fn put_if_absent(&self, path: &Path, content: Bytes) -> Result<()> {
        self.0.put_if_absent(path, content).await
    }

    async fn open(&self, path: &Path) -> Result<Arc<dyn BlobReader>> {
        self.0.open(path).await
    }

    async fn list(&self, folder: &Path, after: &str) -> Result<Vec<Entry>> {
        self.0.list(folder, after).await
    }

    async fn remove(&self, path: &Path) -> Result<()> {
        self.0.remove(path).await
    }

    async fn remove_folder(&self, folder: &Path) -> Result<()> {
        self.0.remove_folder(folder).await
    }

    async fn sync_folder(&self, folder: &Path) -> Result<()> {
        self.0.sync_folder(folder).await
    }

    async fn create_log(&self, path: &Path, reserve: u64) -> Result<LogFile> {
        let LogFile::Blocking(log) = self.0.create_log(path, reserve).await?;
        Ok(LogFile::Blocking(Box::new(UnsyncedLog(log))))
    }

    async fn seal(&self, folder: &Path) -> Result<Vec<SealedLog>> {
        self.0.seal(folder).await
    }
}

impl BlockingLog for UnsyncedLog {
    fn append(&mut self, content: &[u8]) -> Result<()> {
        self.0.append(content)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn reserved(&self) -> u64 {
        self.0.reserved()
    }
}
