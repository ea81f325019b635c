//! The open files of readers, bounded in number.
//!
//! 1. A reader's file is opened with the reader, and again when it is read after it was closed.
//! 2. When more than the bound are open, a hand goes round over them: a file that was read since
//!    the hand last passed has another turn, any other is closed.
//!
//! Invariants
//! - Past the bound are only files that are opened or read at that moment.
//! - A file that is opened again is the one that it was, or the read fails: never another's bytes.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError, Weak};

use super::disk;

/// All open files of one file system's readers.
pub(super) struct Handles {
    most: usize,
    open: AtomicUsize,
    /// Those that are open, the next to be looked at first; some are gone.
    ring: Mutex<VecDeque<Weak<Handle>>>,
}

/// One reader's file, open or not.
pub(super) struct Handle {
    all: Arc<Handles>,
    path: PathBuf,
    identity: disk::Identity,
    file: RwLock<Option<File>>,
    /// Since the hand last passed.
    was_read: AtomicBool,
}

impl Handles {
    pub(super) fn new(most: usize) -> Arc<Handles> {
        Arc::new(Handles { most, open: AtomicUsize::new(0), ring: Mutex::default() })
    }

    /// Files that are open now.
    pub(super) fn count(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Opens a file.
    pub(super) fn open(self: &Arc<Self>, path: PathBuf) -> io::Result<Arc<Handle>> {
        let (file, identity) = disk::open_for_reads(&path)?;
        let handle = Arc::new(Handle {
            all: Arc::clone(self),
            path,
            identity,
            file: RwLock::new(Some(file)),
            was_read: AtomicBool::new(true),
        });
        self.note(&handle);
        Ok(handle)
    }

    /// A file was opened: closes others.
    fn note(&self, opened: &Arc<Handle>) {
        self.open.fetch_add(1, Relaxed);
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.push_back(Arc::downgrade(opened));
        // Twice round: the first time every file may have been read.
        for _ in 0..2 * ring.len() {
            if self.count() <= self.most && ring.len() <= 2 * self.most {
                return;
            }
            let Some(next) = ring.pop_front() else {
                return;
            };
            let Some(handle) = next.upgrade() else {
                continue;
            };
            if handle.was_read.swap(false, Relaxed) || !handle.close() {
                ring.push_back(next);
            }
        }
    }
}

impl Handle {
    /// Length in bytes when it was first opened.
    pub(super) fn len(&self) -> u64 {
        self.identity.len
    }

    /// Does something with the file, opened again if need be.
    pub(super) fn with<T>(
        self: &Arc<Self>,
        read: impl FnOnce(&File) -> io::Result<T>,
    ) -> io::Result<T> {
        self.was_read.store(true, Relaxed);
        {
            let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(file) = &*file {
                return read(file);
            }
        }
        let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
        let file = match &mut *file {
            Some(file) => file,
            closed => {
                let (again, identity) = disk::open_for_reads(&self.path)?;
                if identity != self.identity {
                    let what = "another file has taken its place";
                    return Err(io::Error::new(io::ErrorKind::NotFound, what));
                }
                // The lock is held: nobody closes it before it is read.
                self.all.note(self);
                closed.insert(again)
            }
        };
        read(file)
    }

    /// Closes the file unless it is being read.
    fn close(&self) -> bool {
        let closed = match self.file.try_write() {
            Ok(mut file) => file.take(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().take(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if closed.is_some() {
            self.all.open.fetch_sub(1, Relaxed);
        }
        true
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}
