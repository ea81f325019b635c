use std::collections::BTreeMap;
use std::sync::Arc;

use types::ErrorKind;

use super::Counters;
use crate::{Error, Operation, Path, PlantedBug, Result};

/// A file's number, apart from its names.
pub(super) type Inode = u64;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Folder,
    File(Inode),
}

/// A name given or taken away, not yet durable.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) path: Path,
    pub(super) node: Option<Node>,
}

/// Bytes written to a log and not yet synced.
#[derive(Clone)]
pub(super) struct Write {
    pub(super) offset: u64,
    pub(super) content: Vec<u8>,
}

/// A file: what the disk has, and what was written since.
#[derive(Clone, Default)]
pub(super) struct File {
    /// Length as processes see it; bytes that `synced` does not have are zero.
    pub(super) len: u64,
    /// Length on the disk.
    pub(super) synced_len: u64,
    /// Content on the disk.
    pub(super) synced: Arc<Vec<u8>>,
    /// Later writes, in order.
    pub(super) writes: Vec<Write>,
    /// Is it a log? Else it is a blob, which never changes.
    pub(super) is_log: bool,
    /// Bytes appended in this life as a log.
    pub(super) appended: u64,
    /// How many of them were synced.
    pub(super) appended_synced: u64,
    /// The handle that may append.
    pub(super) writer: Option<u64>,
}

impl File {
    pub(super) fn blob(content: Vec<u8>) -> File {
        let len = content.len() as u64;
        File { len, synced_len: len, synced: Arc::new(content), ..File::default() }
    }

    pub(super) fn log(len: u64) -> File {
        File { len, synced_len: len, is_log: true, ..File::default() }
    }

    /// The bytes from `offset`; the caller has checked that they are there.
    pub(super) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        overlay(&mut out, offset, 0, &self.synced);
        for write in &self.writes {
            overlay(&mut out, offset, write.offset, &write.content);
        }
        out
    }

    pub(super) fn append(&mut self, content: &[u8]) {
        self.writes.push(Write { offset: self.appended, content: content.to_vec() });
        self.appended += content.len() as u64;
        self.len = self.len.max(self.appended);
    }

    pub(super) fn sync(&mut self) {
        for write in std::mem::take(&mut self.writes) {
            self.keep(write.offset, &write.content);
        }
        self.synced_len = self.len;
        self.appended_synced = self.appended;
    }

    /// Puts bytes on the disk.
    pub(super) fn keep(&mut self, offset: u64, content: &[u8]) {
        let start = usize::try_from(offset).expect("files in memory fit in memory");
        let end = start + content.len();
        let synced = Arc::make_mut(&mut self.synced);
        if synced.len() < end {
            synced.resize(end, 0);
        }
        synced[start..end].copy_from_slice(content);
        self.synced_len = self.synced_len.max(end as u64);
    }
}

/// Copies into `out`, which begins at `out_start` of a file, what lies there of `content`, which
/// begins at `start`.
fn overlay(out: &mut [u8], out_start: u64, start: u64, content: &[u8]) {
    let from = out_start.max(start);
    let to = (out_start + out.len() as u64).min(start + content.len() as u64);
    if from >= to {
        return;
    }
    let position = |at: u64| usize::try_from(at).expect("files in memory fit in memory");
    out[position(from - out_start)..position(to - out_start)]
        .copy_from_slice(&content[position(from - start)..position(to - start)]);
}

/// Is it in use?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Life {
    #[default]
    Running,
    Crashed,
}

/// The whole disk.
#[derive(Clone, Default)]
pub(super) struct State {
    /// Names as processes see them.
    pub(super) names: BTreeMap<Path, Node>,
    /// Names as the disk has them.
    pub(super) durable_names: BTreeMap<Path, Node>,
    /// What leads from `durable_names` to `names`, in order.
    pub(super) changes: Vec<Change>,
    pub(super) files: BTreeMap<Inode, File>,
    /// Files of removed logs, with the name each had.
    pub(super) pool: Vec<(Inode, Path)>,
    /// How many readers each file has.
    pub(super) readers: BTreeMap<Inode, u32>,
    /// Bytes of unfinished blobs.
    pub(super) unfinished: u64,
    pub(super) last_number: u64,
    pub(super) operations: u64,
    pub(super) crash_after: Option<u64>,
    pub(super) capacity: Option<u64>,
    pub(super) planted: Option<PlantedBug>,
    pub(super) life: Life,
    pub(super) counters: Counters,
}

impl State {
    pub(super) fn is_frozen(&self) -> bool {
        self.life == Life::Crashed || self.crash_after.is_some_and(|last| self.operations >= last)
    }

    /// Fails once the disk has crashed or stands still.
    pub(super) fn check_life(&self, operation: Operation, path: &Path) -> Result<()> {
        if self.is_frozen() {
            return Err(Error::new(operation, path, ErrorKind::Unavailable, "crashed"));
        }
        Ok(())
    }

    /// Counts one operation that is about to change the disk.
    pub(super) fn step(&mut self, operation: Operation, path: &Path) -> Result<()> {
        self.check_life(operation, path)?;
        self.operations += 1;
        Ok(())
    }

    pub(super) fn check_space(&self, operation: Operation, path: &Path, more: u64) -> Result<()> {
        self.check_life(operation, path)?;
        let Some(capacity) = self.capacity else {
            return Ok(());
        };
        if self.used().saturating_add(more) > capacity {
            let reason = "no space left on the device";
            return Err(Error::new(operation, path, ErrorKind::ResourceExhausted, reason));
        }
        Ok(())
    }

    pub(super) fn used(&self) -> u64 {
        self.files.values().map(|file| file.len).sum::<u64>() + self.unfinished
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) fn file(&self, path: &Path) -> Option<&File> {
        match self.names.get(path)? {
            Node::File(inode) => self.files.get(inode),
            Node::Folder => None,
        }
    }

    pub(super) fn synced_len(&self, path: &Path) -> Option<u64> {
        let file = self.file(path)?;
        if self.durable_names.get(path) != self.names.get(path)
            || self.changes.iter().any(|change| change.path == *path)
        {
            return Some(0);
        }
        Some(if file.is_log { file.appended_synced } else { file.synced_len })
    }

    pub(super) fn corrupt(&mut self, path: &Path, offset: u64, xor: u8) {
        let Some(Node::File(inode)) = self.names.get(path) else {
            return;
        };
        let Some(file) = self.files.get_mut(inode) else {
            return;
        };
        if offset >= file.len {
            return;
        }
        let byte = file.read(offset, 1)[0] ^ xor;
        for write in &mut file.writes {
            let inside = offset.checked_sub(write.offset).and_then(|at| usize::try_from(at).ok());
            if let Some(found) = inside.and_then(|at| write.content.get_mut(at)) {
                *found = byte;
            }
        }
        file.keep(offset, &[byte]);
    }

    /// Drops files that nothing leads to any more.
    pub(super) fn collect(&mut self) {
        let mut reachable: std::collections::BTreeSet<Inode> =
            self.readers.keys().copied().collect();
        reachable.extend(self.pool.iter().map(|(inode, _)| *inode));
        let nodes = self.names.values().chain(self.durable_names.values()).copied();
        let nodes = nodes.chain(self.changes.iter().filter_map(|change| change.node));
        reachable.extend(nodes.filter_map(|node| match node {
            Node::File(inode) => Some(inode),
            Node::Folder => None,
        }));
        self.files.retain(|inode, _| reachable.contains(inode));
    }

    /// The same disk as a process finds it that has opened nothing yet.
    pub(super) fn without_handles(&self) -> State {
        let mut state = self.clone();
        state.readers.clear();
        state.unfinished = 0;
        for file in state.files.values_mut() {
            file.writer = None;
        }
        state.collect();
        state
    }
}
