#![doc = include_str!("../../LAYOUT.md")]

mod blob;
mod disk;
mod handles;
mod log;
mod open;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use env::Env;
use types::ErrorKind;

use crate::{
    BlobReader, BlobWriter, Entry, Error, FileSystem, LogFile, Operation, Path, Result, SealedLog,
};

pub(crate) use blob::check_bounds;
use handles::Handles;
pub use open::parse_version;

/// The newest format of the data folder that this program reads, and the one it writes.
pub const FORMAT: u32 = 1;
/// The file that says which format the folder has.
pub const VERSION_FILE: &str = "VERSION";
/// The file that the folder's user holds locked.
pub const LOCK_FILE: &str = "LOCK";
/// The folder of former logs that are kept for their disk space.
pub const RECYCLED_FOLDER: &str = "recycled";
/// The folder of unfinished files.
pub const TMP_FOLDER: &str = "tmp";
/// What the names of logs end with; a removed file of that kind may be recycled.
pub const LOG_SUFFIX: &str = ".log";

/// Names in the data folder that are not the callers'.
const RESERVED: [&str; 4] = [VERSION_FILE, LOCK_FILE, RECYCLED_FOLDER, TMP_FOLDER];

/// How a local file system behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalOptions {
    /// How many former logs are kept for their disk space.
    pub recycled_logs_max: usize,
    /// A new log that reserves more bytes than this is filled with zeros, so that later syncs of
    /// it change no metadata; for a smaller one its creation should be quick.
    pub unzeroed_log_bytes_max: u64,
    /// Files that readers have open at the same time, about; others are opened again when they are
    /// read.
    pub open_files_max: usize,
}

impl Default for LocalOptions {
    fn default() -> LocalOptions {
        LocalOptions { recycled_logs_max: 4, unzeroed_log_bytes_max: 1 << 20, open_files_max: 500 }
    }
}

/// Files in one folder of a local disk. A clone is the same file system; the folder stays locked
/// until every clone and every open writer and log is dropped.
#[derive(Clone)]
pub struct LocalFileSystem {
    shared: Arc<Shared>,
}

/// What all clones, writers and logs of one open folder have in common.
struct Shared {
    root: PathBuf,
    env: Env,
    options: LocalOptions,
    folder_id: String,
    /// Folders whose names are known to be durable in their parents.
    durable_folders: Mutex<BTreeSet<Path>>,
    /// Files in `recycled`, by length and name.
    pool: Mutex<BTreeSet<(u64, String)>>,
    /// The files that readers have open.
    handles: Arc<Handles>,
    /// Logs that can be appended to.
    open_logs: Mutex<BTreeMap<Path, log::Fence>>,
    /// Dropped last.
    _lock: disk::Lock,
}

impl LocalFileSystem {
    /// Opens the data folder `root`, making it if it is absent. Blocks the thread.
    ///
    /// # Errors
    /// `FailedPrecondition` for a network file system, a folder in use by another process, one of
    /// a newer format or one that is not Tepui's; `PermissionDenied` when it cannot be written to.
    pub fn open(root: &std::path::Path, env: Env, options: LocalOptions) -> Result<Self> {
        let inner = env.clone();
        let shared = env.blocking(|| open::open(root, inner, &options))?;
        Ok(LocalFileSystem { shared: Arc::new(shared) })
    }

    /// The random id that the folder got when it was made: 32 hexadecimal digits.
    pub fn folder_id(&self) -> &str {
        &self.shared.folder_id
    }

    /// How many former logs wait in the pool.
    pub fn recycled_logs(&self) -> usize {
        self.shared.lock_pool().len()
    }

    /// How many files readers have open.
    pub fn open_files(&self) -> usize {
        self.shared.handles.count()
    }

    /// Runs a section that blocks, in one of the environment's places for that.
    async fn blocking<T>(&self, section: impl FnOnce(&Arc<Shared>) -> T) -> T {
        self.shared.env.blocking_permit().await.run(|| section(&self.shared))
    }
}

impl Shared {
    fn new(
        root: PathBuf,
        env: Env,
        options: &LocalOptions,
        folder_id: String,
        lock: disk::Lock,
    ) -> Shared {
        Shared {
            root,
            env,
            options: options.clone(),
            folder_id,
            durable_folders: Mutex::new(BTreeSet::from([Path::root()])),
            pool: Mutex::default(),
            handles: Handles::new(options.open_files_max),
            open_logs: Mutex::default(),
            _lock: lock,
        }
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        let first = path.as_str().split('/').next().unwrap_or_default();
        assert!(!RESERVED.contains(&first), "{path:?} belongs to the file system itself");
        self.root.join(path.as_str())
    }

    fn lock_pool(&self) -> MutexGuard<'_, BTreeSet<(u64, String)>> {
        self.pool.lock().expect("no holder of this lock panics")
    }

    /// A file of its own in `tmp`.
    fn create_tmp(&self) -> std::io::Result<(File, PathBuf)> {
        let path = self.root.join(TMP_FOLDER).join(format!("{:016x}", self.env.random_u64()));
        Ok((disk::create_new(&path)?, path))
    }

    /// Makes `folder` and those above it, and their names durable. A folder that is there may still
    /// be unknown to the disk: each is synced once in the life of this process.
    fn ensure_folder(&self, operation: Operation, folder: &Path) -> Result<()> {
        let mut durable = self.durable_folders.lock().expect("no holder of this lock panics");
        let mut unknown = Vec::new();
        let mut at = folder.clone();
        while !durable.contains(&at) {
            unknown.push(at.clone());
            at = at.parent();
        }
        while let Some(folder) = unknown.pop() {
            disk::make_folder(&self.resolve(&folder))
                .map_err(|error| Error::from_io(operation, &folder, &error))?;
            self.sync_entries(operation, &folder, &folder.parent())?;
            durable.insert(folder);
        }
        Ok(())
    }

    /// Gives a finished, synced file its path, durably. It stays where it was when that fails
    /// before the move.
    fn commit(&self, operation: Operation, file: &std::path::Path, path: &Path) -> Result<()> {
        self.ensure_folder(operation, &path.parent())?;
        disk::move_new(file, &self.resolve(path))
            .map_err(|error| Error::from_io(operation, path, &error))?;
        self.sync_entries(operation, path, &path.parent())
    }

    /// Makes the entries of `folder` durable after one of them, `path`, was changed.
    fn sync_entries(&self, operation: Operation, path: &Path, folder: &Path) -> Result<()> {
        disk::sync_folder(&self.resolve(folder)).map_err(|error| poisoned(operation, path, &error))
    }

    fn sync_folder(&self, folder: &Path) -> Result<()> {
        if !self.resolve(folder).is_dir() {
            return Ok(());
        }
        self.ensure_folder(Operation::SyncFolder, folder)?;
        self.sync_entries(Operation::SyncFolder, folder, folder)
    }

    fn remove_folder(&self, folder: &Path) -> Result<()> {
        // Under the lock, so that it is never known as durable once it is gone.
        let mut durable = self.durable_folders.lock().expect("no holder of this lock panics");
        disk::remove_folder(&self.resolve(folder)).map_err(|error| match error.kind() {
            std::io::ErrorKind::DirectoryNotEmpty => Error::new(
                Operation::Remove,
                folder,
                ErrorKind::FailedPrecondition,
                "the folder is not empty",
            ),
            _ => Error::from_io(Operation::Remove, folder, &error),
        })?;
        durable.remove(folder);
        Ok(())
    }
}

/// What was done may or may not survive a power cut: nothing can be built on it.
fn poisoned(operation: Operation, path: &Path, source: &std::io::Error) -> Error {
    let reason = format!("{source}; whether it is on the disk is unknown");
    Error::new(operation, path, ErrorKind::Poisoned, reason)
}

#[async_trait]
impl FileSystem for LocalFileSystem {
    async fn create(&self, path: &Path) -> Result<Box<dyn BlobWriter>> {
        self.blocking(|shared| {
            let writer = blob::Writer::new(shared, path)?;
            Ok(Box::new(writer) as Box<dyn BlobWriter>)
        })
        .await
    }

    async fn put_if_absent(&self, path: &Path, content: Bytes) -> Result<()> {
        self.blocking(|shared| blob::put_if_absent(shared, path, &content)).await
    }

    async fn open(&self, path: &Path) -> Result<Arc<dyn BlobReader>> {
        self.blocking(|shared| {
            let reader = blob::Reader::open(shared, path)?;
            Ok(Arc::new(reader) as Arc<dyn BlobReader>)
        })
        .await
    }

    async fn list(&self, folder: &Path, after: &str) -> Result<Vec<Entry>> {
        self.blocking(|shared| {
            let mut found = disk::list(&shared.resolve(folder), after)
                .map_err(|error| Error::from_io(Operation::List, folder, &error))?
                .unwrap_or_default();
            if *folder == Path::root() {
                found.retain(|entry| !RESERVED.contains(&entry.name.as_str()));
            }
            Ok(found)
        })
        .await
    }

    async fn remove(&self, path: &Path) -> Result<()> {
        self.blocking(|shared| {
            if path.name().ends_with(LOG_SUFFIX) {
                return shared.recycle(path);
            }
            disk::remove_file(&shared.resolve(path))
                .map(drop)
                .map_err(|error| Error::from_io(Operation::Remove, path, &error))
        })
        .await
    }

    async fn remove_folder(&self, folder: &Path) -> Result<()> {
        self.blocking(|shared| shared.remove_folder(folder)).await
    }

    async fn sync_folder(&self, folder: &Path) -> Result<()> {
        self.blocking(|shared| shared.sync_folder(folder)).await
    }

    async fn create_log(&self, path: &Path, reserve: u64) -> Result<LogFile> {
        self.blocking(|shared| {
            let log = log::LocalLog::create(shared, path, reserve)?;
            Ok(LogFile::Blocking(Box::new(log)))
        })
        .await
    }

    async fn seal(&self, folder: &Path) -> Result<Vec<SealedLog>> {
        self.blocking(|shared| shared.seal(folder)).await
    }
}
