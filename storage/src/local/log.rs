//! Logs of a local disk, and the pool of their former files.
//!
//! A removed log's file goes to the pool, and a new log takes one from there if it is large enough:
//! overwriting blocks that the disk knows makes a sync cheaper than growing a file.
//!
//! Invariants
//! - A recycled file is overwritten only after its new name, and the loss of its old one, are
//!   durable. Else a power cut could show the new bytes under the old name.
//! - A log that can still be appended to is never recycled.
//! - After a failed append or sync a log takes no more: a later sync may claim success for pages
//!   that the kernel has dropped.

use std::fs::File;
use std::io::ErrorKind::AlreadyExists;
use std::os::unix::fs::FileExt;
use std::path::Path as DiskPath;
use std::sync::{Arc, Mutex};

use types::ErrorKind;

use super::{LOG_SUFFIX, RECYCLED_FOLDER, Shared, disk, poisoned};
use crate::{BlockingLog, Error, Operation, Path, Result, SealedLog};

/// How many names are tried for a file in the pool.
const POOL_NAME_TRIES_MAX: u32 = 1000;

/// Whether a log may still be appended to. Held locked for the length of each append, so that no
/// append is under way when a seal returns.
pub(super) type Fence = Arc<Mutex<FenceState>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FenceState {
    Open,
    Failed,
    Sealed,
}

/// A log open for appending.
pub(super) struct LocalLog {
    shared: Arc<Shared>,
    path: Path,
    file: File,
    fence: Fence,
    len: u64,
    reserved: u64,
}

impl LocalLog {
    pub(super) fn create(shared: &Arc<Shared>, path: &Path, reserve: u64) -> Result<LocalLog> {
        assert!(path.name().ends_with(LOG_SUFFIX), "{path:?} is not a log's name");
        let (file, reserved) = match shared.reuse(path, reserve)? {
            Some(reused) => reused,
            None => (shared.create_log_file(path, reserve)?, reserve),
        };
        let fence = Arc::new(Mutex::new(FenceState::Open));
        shared
            .open_logs
            .lock()
            .expect("no holder of this lock panics")
            .insert(path.clone(), Arc::clone(&fence));
        let shared = Arc::clone(shared);
        Ok(LocalLog { shared, path: path.clone(), file, fence, len: 0, reserved })
    }

    /// Runs one write if the log still takes any; a failure is its last.
    fn guarded(
        &self,
        operation: Operation,
        write: impl FnOnce(&File) -> std::io::Result<()>,
    ) -> Result<()> {
        let mut fence = self.fence.lock().expect("no holder of this lock panics");
        let refused = |kind, reason| Err(Error::new(operation, &self.path, kind, reason));
        match *fence {
            FenceState::Open => {}
            FenceState::Failed => {
                return refused(ErrorKind::Poisoned, "an earlier append or sync failed");
            }
            FenceState::Sealed => {
                return refused(ErrorKind::FailedPrecondition, "the log has been sealed");
            }
        }
        write(&self.file).map_err(|error| {
            *fence = FenceState::Failed;
            poisoned(operation, &self.path, &error)
        })
    }
}

impl BlockingLog for LocalLog {
    fn append(&mut self, content: &[u8]) -> Result<()> {
        self.guarded(Operation::Append, |file| file.write_all_at(content, self.len))?;
        self.len += content.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.guarded(Operation::SyncLog, File::sync_data)
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn reserved(&self) -> u64 {
        self.reserved
    }
}

impl Drop for LocalLog {
    fn drop(&mut self) {
        let mut open = self.shared.open_logs.lock().expect("no holder of this lock panics");
        // Under the same path there may be a later log.
        if open.get(&self.path).is_some_and(|fence| Arc::ptr_eq(fence, &self.fence)) {
            open.remove(&self.path);
        }
    }
}

impl Shared {
    /// Fills the pool with what a former process left, within the limit.
    pub(super) fn load_pool(&self) -> Result<()> {
        let folder = self.root.join(RECYCLED_FOLDER);
        let root = Path::root();
        let failed = |error| Error::from_io(Operation::OpenFileSystem, &root, &error);
        // The former process may have died between a file's move and its sync.
        disk::sync_folder(&folder).map_err(failed)?;
        let found = disk::list(&folder, "").map_err(failed)?.unwrap_or_default();
        let mut pool = self.lock_pool();
        pool.extend(found.into_iter().map(|entry| (entry.len, entry.name)));
        while pool.len() > self.options.recycled_logs_max {
            let Some((_, name)) = pool.pop_first() else {
                break;
            };
            disk::remove_file(&folder.join(name)).map_err(failed)?;
        }
        Ok(())
    }

    /// Takes a file of at least `reserve` bytes from the pool, if there is one.
    fn reuse(&self, path: &Path, reserve: u64) -> Result<Option<(File, u64)>> {
        let operation = Operation::CreateLog;
        let failed = |error: std::io::Error| Error::from_io(operation, path, &error);
        let taken = {
            let mut pool = self.lock_pool();
            let fitting = pool.range((reserve, String::new())..).next().cloned();
            fitting.inspect(|found| {
                pool.remove(found);
            })
        };
        let Some((len, name)) = taken else {
            return Ok(None);
        };
        let recycled = self.root.join(RECYCLED_FOLDER);
        let from = recycled.join(&name);
        let file = disk::open_for_writes(&from).map_err(failed)?;
        if let Err(error) = self.commit(operation, &from, path) {
            if error.kind() != ErrorKind::Poisoned {
                self.lock_pool().insert((len, name));
            }
            return Err(error);
        }
        // Before the first overwrite: see the invariants.
        disk::sync_folder(&recycled).map_err(|error| poisoned(operation, path, &error))?;
        Ok(Some((file, len)))
    }

    /// A new file with `reserve` bytes set aside; nothing stays behind when that fails.
    fn create_log_file(&self, path: &Path, reserve: u64) -> Result<File> {
        let operation = Operation::CreateLog;
        let (file, tmp) =
            self.create_tmp().map_err(|error| Error::from_io(operation, path, &error))?;
        let fill = || {
            disk::reserve(&file, reserve)?;
            if reserve > self.options.unzeroed_log_bytes_max {
                disk::write_zeros(&file, reserve)?;
            }
            file.sync_all()
        };
        let made = fill()
            .map_err(|error| Error::from_io(operation, path, &error))
            .and_then(|()| self.commit(operation, &tmp, path));
        if let Err(error) = made {
            // Left for the next open if it cannot be removed.
            let _ = disk::remove_file(&tmp);
            return Err(error);
        }
        Ok(file)
    }

    /// Removes a log, keeping its file in the pool if there is room.
    pub(super) fn recycle(&self, path: &Path) -> Result<()> {
        let failed = |error: std::io::Error| Error::from_io(Operation::Remove, path, &error);
        let file = self.resolve(path);
        let is_open =
            self.open_logs.lock().expect("no holder of this lock panics").contains_key(path);
        if is_open || self.options.recycled_logs_max == 0 {
            return disk::remove_file(&file).map(drop).map_err(failed);
        }
        let Some(len) = disk::file_len(&file).map_err(failed)? else {
            return Ok(());
        };
        let recycled = self.root.join(RECYCLED_FOLDER);
        let name = self.move_to_pool(&file, &recycled).map_err(failed)?;
        disk::sync_folder(&recycled).map_err(|error| poisoned(Operation::Remove, path, &error))?;
        self.sync_entries(Operation::Remove, path, &path.parent())?;
        let surplus = {
            let mut pool = self.lock_pool();
            pool.insert((len, name));
            let is_full = pool.len() > self.options.recycled_logs_max;
            // The smallest goes: it fits the fewest new logs.
            if is_full { pool.pop_first() } else { None }
        };
        if let Some((_, name)) = surplus {
            disk::remove_file(&recycled.join(name)).map_err(failed)?;
        }
        Ok(())
    }

    /// Moves a file to the pool's folder under a name of its own, and returns that.
    fn move_to_pool(&self, file: &DiskPath, recycled: &DiskPath) -> std::io::Result<String> {
        let mut tries = 0;
        loop {
            let name = format!("{:016x}{LOG_SUFFIX}", self.env.random_u64());
            match disk::move_new(file, &recycled.join(&name)) {
                Ok(()) => return Ok(name),
                // A repeated seed draws the names of the former run again.
                Err(error) if error.kind() == AlreadyExists && tries < POOL_NAME_TRIES_MAX => {}
                Err(error) => return Err(error),
            }
            tries += 1;
        }
    }

    /// Ends appends to the logs in `folder`. Those of another process have ended already: this
    /// one holds the folder's lock.
    pub(super) fn seal(&self, folder: &Path) -> Result<Vec<SealedLog>> {
        let fences: Vec<Fence> = {
            let open = self.open_logs.lock().expect("no holder of this lock panics");
            let inside = open.iter().filter(|(path, _)| path.parent() == *folder);
            inside.map(|(_, fence)| Arc::clone(fence)).collect()
        };
        for fence in fences {
            *fence.lock().expect("no holder of this lock panics") = FenceState::Sealed;
        }
        self.sync_folder(folder)?;
        let found = disk::list(&self.resolve(folder), "")
            .map_err(|error| Error::from_io(Operation::Seal, folder, &error))?
            .unwrap_or_default();
        let logs = found.into_iter().filter(|it| !it.is_folder && it.name.ends_with(LOG_SUFFIX));
        Ok(logs.map(|it| SealedLog { path: folder.join(&it.name), len: it.len }).collect())
    }
}
