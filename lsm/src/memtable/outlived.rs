//! Memory of memtables whose cells are in files, or that were given up, and that somebody still
//! holds: reads that pinned them, or their own drop, which takes a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Counts it, for all ranges that share it.
#[derive(Clone, Debug, Default)]
pub struct OutlivedMemory(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    let_go: AtomicU64,
}

/// One memtable's part, given back when dropped.
#[derive(Debug)]
pub struct Outlived {
    memory: OutlivedMemory,
    bytes: u64,
}

impl OutlivedMemory {
    /// Bytes at present.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(SeqCst)
    }

    /// How many memtables were held and are no longer.
    pub fn let_go(&self) -> u64 {
        self.0.let_go.load(SeqCst)
    }

    /// Counts a memtable of `bytes` until what this gives is dropped.
    pub fn count(&self, bytes: u64) -> Outlived {
        self.0.bytes.fetch_add(bytes, SeqCst);
        Outlived { memory: self.clone(), bytes }
    }
}

impl Drop for Outlived {
    fn drop(&mut self) {
        self.memory.0.bytes.fetch_sub(self.bytes, SeqCst);
        self.memory.0.let_go.fetch_add(1, SeqCst);
    }
}
