//! A file system in memory that can crash.
//!
//! It keeps apart what processes see and what the disk is sure to have. Two kinds of crash:
//!
//! * a **process crash** keeps everything that was written. What was not synced stays so: a later
//!   power cut can still take it.
//! * a **power cut** keeps what was synced. Of the rest a seed decides: a write to a log stays
//!   whole, in part or not at all, by sectors, and a later sector may stay while an earlier one is
//!   lost; a name that was given or taken away stays so or is as before.
//!
//! Each change is an *operation* with a number, and what an operation of a caller does in parts
//! (give a name, then make it durable) has a number for each part. So a test can stop the disk
//! after every operation of a history: [`MemoryFileSystem::crash_after`].
//!
//! Removed logs leave their files, with all their bytes, to later logs. Nothing here depends on
//! anything but the calls and the seeds: the same calls give the same bytes.

mod crash;
mod entries;
mod handles;
mod state;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use types::ErrorKind;

use crate::{
    BlobReader, BlobWriter, Entry, Error, FileSystem, LogFile, Operation, Path, PlantedBug, Result,
    SealedLog,
};
use handles::{Log, Reader, Writer};
use state::{Life, State};

/// The end of a process, or of the machine's power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process dies; everything it wrote is still there, synced or not.
    Process,
    /// The power is cut; the seed decides about everything that was not synced.
    PowerCut {
        /// Draws what stays.
        seed: u64,
    },
}

/// What happened to a disk, over all its crashes: a test that never tore a write proves little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Logs that got the file of a former log.
    pub recycled_logs: u64,
    /// Un-synced writes of which a power cut kept a part.
    pub torn_writes: u64,
    /// Un-synced writes of which a power cut kept nothing.
    pub lost_writes: u64,
    /// Given or removed names that a power cut set back.
    pub lost_names: u64,
    /// Process crashes.
    pub process_crashes: u64,
    /// Power cuts.
    pub power_cuts: u64,
}

/// A crashable file system in memory. A clone is the same disk.
#[derive(Clone, Default)]
pub struct MemoryFileSystem {
    state: Arc<Mutex<State>>,
}

impl MemoryFileSystem {
    /// An empty disk.
    pub fn new() -> MemoryFileSystem {
        MemoryFileSystem::default()
    }

    fn of(state: State) -> MemoryFileSystem {
        MemoryFileSystem { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A test may panic with the lock held; what it then looks at is still whole.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Crashes: returns the disk as the next process finds it. Everything that was opened through
    /// this one fails from now on. The new one counts operations from zero, has no
    /// [`MemoryFileSystem::crash_after`] set, and keeps capacity and planted bug.
    pub fn crash(&self, crash: Crash) -> MemoryFileSystem {
        let mut state = self.lock();
        let next = state.crashed(crash);
        state.life = Life::Crashed;
        MemoryFileSystem::of(next)
    }

    /// A disk of its own with the same content, synced or not: a crash of the copy leaves this one
    /// as it is.
    pub fn deep_clone(&self) -> MemoryFileSystem {
        MemoryFileSystem::of(self.lock().without_handles())
    }

    /// After `operation` operations in all every further one fails with `Unavailable` and changes
    /// nothing, as do reads; [`MemoryFileSystem::crash`] then crashes at that point.
    pub fn crash_after(&self, operation: u64) {
        self.lock().crash_after = Some(operation);
    }

    /// How many operations changed the disk so far. Reads are none: a crash between two reads is
    /// the crash before them.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Has the point set by [`MemoryFileSystem::crash_after`] been reached, or is it crashed?
    pub fn is_frozen(&self) -> bool {
        self.lock().is_frozen()
    }

    /// Limits the disk to `bytes`; `None` lifts the limit. What is over it already stays.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity = bytes;
    }

    /// Bytes in use: files, reserved space, unfinished blobs and recycled logs.
    pub fn used(&self) -> u64 {
        self.lock().used()
    }

    /// Plants a bug, or removes it: a test of a test.
    pub fn set_planted(&self, bug: Option<PlantedBug>) {
        self.lock().planted = bug;
    }

    /// How many bytes at the start of a file are sure to survive a power cut, name and content;
    /// `None` when there is no such file. To ask whether an acknowledged (log, offset) was synced.
    pub fn synced_len(&self, path: &Path) -> Option<u64> {
        self.lock().synced_len(path)
    }

    /// Flips bits of one byte, as a failing disk does. Does nothing where there is no byte.
    pub fn corrupt(&self, path: &Path, offset: u64, xor: u8) {
        self.lock().corrupt(path, offset, xor);
    }

    /// The whole content of a file, for logs with everything past the last append.
    pub fn read_all(&self, path: &Path) -> Option<Bytes> {
        let state = self.lock();
        let file = state.file(path)?;
        let len = usize::try_from(file.len).ok()?;
        Some(Bytes::from(file.read(0, len)))
    }

    /// All files, sorted.
    pub fn paths(&self) -> Vec<Path> {
        self.lock().file_paths()
    }

    /// What happened to this disk so far.
    pub fn counters(&self) -> Counters {
        self.lock().counters
    }

    /// Content of every file: equal for equal disks.
    pub fn snapshot(&self) -> BTreeMap<Path, Bytes> {
        let paths = self.paths();
        paths.into_iter().filter_map(|path| Some((path.clone(), self.read_all(&path)?))).collect()
    }
}

#[async_trait]
impl FileSystem for MemoryFileSystem {
    async fn create(&self, path: &Path) -> Result<Box<dyn BlobWriter>> {
        self.lock().check_life(Operation::Create, path)?;
        Ok(Box::new(Writer::new(Arc::clone(&self.state), path)))
    }

    async fn put_if_absent(&self, path: &Path, content: Bytes) -> Result<()> {
        let mut state = self.lock();
        state.check_space(Operation::PutIfAbsent, path, content.len() as u64)?;
        state.put_blob(Operation::PutIfAbsent, path, content.to_vec())
    }

    async fn open(&self, path: &Path) -> Result<Arc<dyn BlobReader>> {
        let mut state = self.lock();
        state.check_life(Operation::Open, path)?;
        let Some((inode, len)) = state.open_reader(path) else {
            let reason = "there is no such file";
            return Err(Error::new(Operation::Open, path, ErrorKind::NotFound, reason));
        };
        Ok(Arc::new(Reader::new(Arc::clone(&self.state), path, inode, len)))
    }

    async fn list(&self, folder: &Path, after: &str) -> Result<Vec<Entry>> {
        let state = self.lock();
        state.check_life(Operation::List, folder)?;
        Ok(state.list(folder, after))
    }

    async fn remove(&self, path: &Path) -> Result<()> {
        self.lock().remove_file(path)
    }

    async fn remove_folder(&self, folder: &Path) -> Result<()> {
        self.lock().remove_folder(folder)
    }

    async fn sync_folder(&self, folder: &Path) -> Result<()> {
        let mut state = self.lock();
        state.step(Operation::SyncFolder, folder)?;
        state.settle_folder(folder);
        Ok(())
    }

    async fn create_log(&self, path: &Path, reserve: u64) -> Result<LogFile> {
        let (inode, writer, reserved) = self.lock().create_log(path, reserve)?;
        let log = Log::new(Arc::clone(&self.state), path, inode, writer, reserved);
        Ok(LogFile::Blocking(Box::new(log)))
    }

    async fn seal(&self, folder: &Path) -> Result<Vec<SealedLog>> {
        self.lock().seal(folder)
    }
}
