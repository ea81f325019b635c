//! A file system that lets a test look around at the moment before a log is synced.
//!
//! Committing has no await, so in a simulation on one thread no reader runs in the middle of it.
//! The watcher is that reader: what it sees then, a client on another thread could have seen.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use storage::{
    BlobReader, BlobWriter, BlockingLog, Entry, FileSystem, LogFile, Path, Result, SealedLog,
};

type Watcher = Box<dyn FnMut() + Send>;

/// See the module.
#[derive(Clone)]
pub struct WatchedFileSystem {
    inner: Arc<dyn FileSystem>,
    watcher: Arc<Mutex<Option<Watcher>>>,
}

impl WatchedFileSystem {
    /// Wraps a file system; nobody watches yet.
    pub fn new(inner: Arc<dyn FileSystem>) -> WatchedFileSystem {
        WatchedFileSystem { inner, watcher: Arc::default() }
    }

    /// From now on `watcher` is called before every sync of a log. It must not wait.
    pub fn watch(&self, watcher: impl FnMut() + Send + 'static) {
        let mut place = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(Box::new(watcher));
    }

    /// Lets the watcher go, with all that it holds: it may hold whoever holds these files.
    pub fn unwatch(&self) {
        let mut place = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        *place = None;
    }
}

struct WatchedLog {
    inner: Box<dyn BlockingLog>,
    watcher: Arc<Mutex<Option<Watcher>>>,
}

impl BlockingLog for WatchedLog {
    fn append(&mut self, content: &[u8]) -> Result<()> {
        self.inner.append(content)
    }

    fn sync(&mut self) -> Result<()> {
        // `try_lock`: a watcher that itself leads to a sync is not watched.
        if let Ok(mut watcher) = self.watcher.try_lock()
            && let Some(watch) = &mut *watcher
        {
            watch();
        }
        self.inner.sync()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn reserved(&self) -> u64 {
        self.inner.reserved()
    }
}

#[async_trait]
impl FileSystem for WatchedFileSystem {
    async fn create(&self, path: &Path) -> Result<Box<dyn BlobWriter>> {
        self.inner.create(path).await
    }

    async fn put_if_absent(&self, path: &Path, content: Bytes) -> Result<()> {
        self.inner.put_if_absent(path, content).await
    }

    async fn open(&self, path: &Path) -> Result<Arc<dyn BlobReader>> {
        self.inner.open(path).await
    }

    async fn list(&self, folder: &Path, after: &str) -> Result<Vec<Entry>> {
        self.inner.list(folder, after).await
    }

    async fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path).await
    }

    async fn remove_folder(&self, folder: &Path) -> Result<()> {
        self.inner.remove_folder(folder).await
    }

    async fn sync_folder(&self, folder: &Path) -> Result<()> {
        self.inner.sync_folder(folder).await
    }

    async fn create_log(&self, path: &Path, reserve: u64) -> Result<LogFile> {
        let LogFile::Blocking(inner) = self.inner.create_log(path, reserve).await?;
        let watcher = Arc::clone(&self.watcher);
        Ok(LogFile::Blocking(Box::new(WatchedLog { inner, watcher })))
    }

    async fn seal(&self, folder: &Path) -> Result<Vec<SealedLog>> {
        self.inner.seal(folder).await
    }
}
