//! Memory of memtables whose cells are in files, or that were given up, and that somebody still
//! holds: reads that pinned them, or their own drop, which takes a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Counts it, for all ranges that share it.
#[derive(Clone, Debug, Default)]
pub struct OutlivedMemory(Arc<AtomicU64>);

/// One memtable's part, given back when dropped.
#[derive(Debug)]
pub(super) struct Outlived {
    memory: OutlivedMemory,
    bytes: u64,
}

impl OutlivedMemory {
    /// Bytes at present.
    pub fn bytes(&self) -> u64 {
        self.0.load(SeqCst)
    }

    pub(super) fn count(&self, bytes: u64) -> Outlived {
        self.0.fetch_add(bytes, SeqCst);
        Outlived { memory: self.clone(), bytes }
    }
}

impl Drop for Outlived {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, SeqCst);
    }
}
