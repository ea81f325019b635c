//! Memory that was admitted, for as long as it is held.

use std::sync::Arc;

use super::Budget;

/// Bytes that a request holds; given back when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    pub(super) budget: Arc<Budget>,
    pub(super) bytes: u64,
}

/// Memory of a large request, given back when dropped.
#[derive(Debug)]
pub(crate) struct HeldLarge {
    pub(super) budget: Arc<Budget>,
    pub(super) bytes: u64,
}

impl Drop for HeldLarge {
    fn drop(&mut self) {
        let mut requests = self.budget.held();
        requests.large -= self.bytes;
        self.budget.settle(&mut requests);
        drop(requests);
        self.budget.freed.notify_waiters();
    }
}

impl Held {
    /// Holds `bytes` from now on, which may be past the share: for replies, whose size is known
    /// only when they are there.
    pub(crate) fn resize(&mut self, bytes: u64) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        let mut requests = self.budget.held();
        requests.held = requests.held - before + bytes;
        self.budget.settle(&mut requests);
        drop(requests);
        if bytes < before {
            self.budget.freed.notify_waiters();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.resize(0);
    }
}
