//! The operating system's calls, each with what it promises. No other module touches real files.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the one module that may touch real files"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{CWD, FallocateFlags, FlockOperation, RenameFlags};
use rustix::io::Errno;

use crate::Entry;

/// Zeros are written in pieces of this many bytes.
const ZEROS_BYTES: usize = 1 << 20;

/// What tells a file from all others as long as it exists, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    pub(super) len: u64,
}

pub(super) fn open_for_reads(path: &Path) -> io::Result<(File, Identity)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "it is a folder"));
    }
    let identity = Identity { device: metadata.dev(), inode: metadata.ino(), len: metadata.len() };
    Ok((file, identity))
}

pub(super) fn open_for_writes(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Creates a file; fails if there is one.
pub(super) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// A lock file, held locked until this is dropped: unlocked then, and not merely closed, for a
/// child process that was forked and not yet given its program has the file open too.
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Refused, it ends with the last descriptor.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Opens the lock file, creating it if absent, and tries to lock it for this file description.
/// When another holds the lock: what the file says.
pub(super) fn lock(path: &Path) -> io::Result<Result<Lock, String>> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Ok(Lock(file))),
        Err(Errno::WOULDBLOCK) => {
            let mut text = String::new();
            // The text is only a courtesy to the reader of the error.
            let _ = file.take(32).read_to_string(&mut text);
            Ok(Err(text))
        }
        Err(other) => Err(other.into()),
    }
}

/// Replaces the content of the lock file.
pub(super) fn write_lock(lock: &Lock, text: &str) -> io::Result<()> {
    lock.0.set_len(0)?;
    lock.0.write_all_at(text.as_bytes(), 0)
}

/// At most `limit` bytes of a small file.
pub(super) fn read_small(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut content)?;
    Ok(content)
}

/// Makes the entries of a folder durable.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes one folder; its parent must exist. One that is there is not an error.
pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        other => other,
    }
}

/// Gives a file a new path; fails with `AlreadyExists`, changing nothing, if anything is there.
pub(super) fn move_new(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system lacks the flag: a hard link does the same in two steps.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            std::fs::hard_link(from, to)?;
            std::fs::remove_file(from)
        }
        other => Ok(other?),
    }
}

/// Removes a file; returns whether it was there.
pub(super) fn remove_file(path: &Path) -> io::Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes an empty folder; an absent one is not an error.
pub(super) fn remove_folder(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Length of a file, or `None` when there is none.
pub(super) fn file_len(path: &Path) -> io::Result<Option<u64>> {
    match std::fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a folder holds under names greater than `after`, sorted; `None` when the folder is absent.
pub(super) fn list(path: &Path, after: &str) -> io::Result<Option<Vec<Entry>>> {
    let found = match std::fs::read_dir(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut entries = Vec::new();
    for entry in found {
        let entry = entry?;
        // Our names are UTF-8: any other is a stranger's and stays unseen.
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name.as_str() <= after {
            continue;
        }
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let is_folder = metadata.is_dir();
        entries.push(Entry { name, len: if is_folder { 0 } else { metadata.len() }, is_folder });
    }
    entries.sort();
    Ok(Some(entries))
}

/// Sets disk space aside; the file is then `len` bytes of zeros.
pub(super) fn reserve(file: &File, len: u64) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    // The call below takes what there is before it fails, and others would meet the full disk.
    let disk = rustix::fs::fstatvfs(file)?;
    if disk.f_bavail.saturating_mul(disk.f_frsize) < len {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let reserved =
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len));
    match reserved {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, len),
        Err(error) => Err(error.into()),
    }
}

/// Overwrites the first `len` bytes with zeros, so that the disk has seen every block of them.
pub(super) fn write_zeros(file: &File, len: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS_BYTES];
    let mut at = 0;
    while at < len {
        let piece = usize::try_from(len - at).map_or(ZEROS_BYTES, |left| left.min(ZEROS_BYTES));
        file.write_all_at(&zeros[..piece], at)?;
        at += piece as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_holder_while_a_child_still_has_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("LOCK");
        let first = lock(&path).unwrap().expect("nobody holds it");
        write_lock(&first, "7").unwrap();
        assert_eq!(lock(&path).unwrap().err().as_deref(), Some("7"));
        // What a fork leaves its child with: the same open file.
        let of_child = first.0.try_clone().unwrap();
        drop(first);
        assert!(lock(&path).unwrap().is_ok());
        drop(of_child);
    }
}
