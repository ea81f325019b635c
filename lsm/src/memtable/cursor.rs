//! The skip list behind a memtable, and cursors that walk it without an epoch guard.
//!
//! The list defers the freeing of *removed* nodes until no thread is pinned. A memtable removes
//! none: its nodes go when it goes. So a cursor may point at a node for as long as it keeps the
//! memtable alive, with nothing pinned, across awaits and threads; a step is one pointer read.
//! Entries that count references were rejected: they write to every node they pass.
#![expect(
    unsafe_code,
    reason = "a cursor owns the memtable that its list entry borrows: lifetimes cannot say so"
)]

use std::fmt;
use std::ops::Bound;
use std::ptr;
use std::sync::Arc;

use crossbeam_epoch as epoch;
use crossbeam_skiplist::base::{Entry, SkipList};
use types::key;

use super::Memtable;
use super::arena::Slot;

/// Slots in key order. Grows only.
pub(super) struct SlotList(SkipList<Slot, ()>);

impl SlotList {
    pub(super) fn new() -> SlotList {
        SlotList(SkipList::new(epoch::default_collector().clone()))
    }

    /// Links `slots`; of equal keys the first stays.
    pub(super) fn insert(&self, slots: &[Slot]) {
        let guard = &epoch::pin();
        for &slot in slots {
            // Not `insert`, which would take an equal key's node out.
            self.0.get_or_insert(slot, (), guard).release(guard);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The first and the last slot.
    pub(super) fn ends(&self) -> Option<(Slot, Slot)> {
        let guard = &epoch::pin();
        let (first, last) = (self.0.front(guard)?, self.0.back(guard)?);
        Some((*first.key(), *last.key()))
    }
}

impl fmt::Debug for SlotList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotList({} slots)", self.len())
    }
}

/// A place in a memtable. It sees cells that are inserted ahead of it while it walks.
pub struct MemtableCursor {
    /// Points into `memtable`, which the cursor keeps alive and never exchanges.
    at: Option<Entry<'static, 'static, Slot, ()>>,
    /// The bytes under the probe of the current search.
    scratch: Vec<u8>,
    memtable: Arc<Memtable>,
}

// SAFETY: what keeps an `Entry` on its thread is its guard. This one is the unprotected guard: a
// static of the epoch crate that belongs to no thread. The rest of an entry is references to a
// list that is itself shared between threads.
unsafe impl Send for MemtableCursor {}
// SAFETY: as above; through a shared reference a cursor only reads.
unsafe impl Sync for MemtableCursor {}

impl MemtableCursor {
    pub(super) fn new(memtable: Arc<Memtable>) -> MemtableCursor {
        MemtableCursor { at: None, scratch: Vec::new(), memtable }
    }

    /// Moves to the first key at or after `key`. `false`: there is none.
    pub fn seek(&mut self, key: &[u8]) -> bool {
        let probe = self.memtable.probe(key, &mut self.scratch);
        self.at = self.list().lower_bound(Bound::Included(&probe), unprotected());
        self.at.is_some()
    }

    /// Moves to the next key. `false`: there is none. The cursor must stand on a cell.
    #[expect(
        clippy::should_implement_trait,
        reason = "all cursors of the engine have seek and next; none is an iterator"
    )]
    pub fn next(&mut self) -> bool {
        let at = self.at.as_ref().expect("the cursor stands on a cell");
        self.at = at.next();
        self.at.is_some()
    }

    /// Moves to the *first* key of the last row that sorts before `before`, a row prefix or any
    /// key. `false`: there is no such row.
    pub fn prev_row(&mut self, before: &[u8]) -> bool {
        // A key inside a row does not make that row sort before it: cut it to its row.
        let before = key::row_prefix(before).unwrap_or(before);
        let probe = self.memtable.probe(before, &mut self.scratch);
        let last = self.list().upper_bound(Bound::Excluded(&probe), unprotected());
        let Some(last) = last else {
            self.at = None;
            return false;
        };
        let row = key::row_prefix(last.key().cell().key).expect("a memtable holds valid keys");
        self.seek(row)
    }

    /// The key it stands on.
    pub fn key(&self) -> &[u8] {
        self.slot().cell().key
    }

    /// The value it stands on.
    pub fn value(&self) -> &[u8] {
        self.slot().cell().value
    }

    /// The memtable that it walks.
    pub fn memtable(&self) -> &Arc<Memtable> {
        &self.memtable
    }

    fn slot(&self) -> &Slot {
        self.at.as_ref().expect("the cursor stands on a cell").key()
    }

    fn list(&self) -> &'static SkipList<Slot, ()> {
        // SAFETY: the memtable lies in an `Arc` of which the cursor holds a count to its own end;
        // what comes of this reference is kept in `at` only, and handed out for `&self` only.
        unsafe { &*ptr::from_ref(&self.memtable.list.0) }
    }
}

fn unprotected() -> &'static epoch::Guard {
    // SAFETY: asked of the caller is that no other thread removes what it looks at. Nothing is ever
    // removed from a memtable's list; nodes are freed only when the list is dropped.
    unsafe { epoch::unprotected() }
}

impl fmt::Debug for MemtableCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemtableCursor")
            .field("memtable", &self.memtable.id())
            .field("at", &self.at.as_ref().map(|at| at.key().cell().key))
            .finish_non_exhaustive()
    }
}
