//! The cells of a range that no file holds yet, sorted, open to concurrent inserts and reads.
//!
//! A skip list of slots (eight deciding bytes of the key, a pointer) over an arena of entries.
//! 1. A batch's entries are copied into the arena in one piece, just as the log keeps them; those
//!    of a large batch are not copied, but kept.
//! 2. Their slots are linked into the list, in key order.
//! 3. Cursors walk the list while others insert. What they may show is decided by sequence numbers,
//!    not here: a cell is inserted before its batch is published.
//!
//! Invariants
//! - Nothing is ever removed or changed. So a cursor needs no protection from reclamation, and an
//!   equal key (a replayed cell) is the same cell: the first stays.
//! - The chosen shared prefix never changes once the first cell is in.

mod arena;
mod cursor;
mod outlived;
mod prefix;

use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use types::{SeqNo, key};

use self::arena::{Arena, ELSEWHERE_BYTES_MIN, SHARED_PIECE_BYTES_MAX, Slot};
pub use self::cursor::MemtableCursor;
use self::cursor::SlotList;
pub use self::outlived::{Outlived, OutlivedMemory};
pub(crate) use self::prefix::common;
use self::prefix::prefix_after;
use crate::batch::{Batch, Place};
use crate::entry;

/// Mean bytes of a list node: slot, reference count, two links, the allocator's word.
const NODE_BYTES: usize = 48;
/// A memtable or table with fewer cells says nothing about what keys share.
pub(crate) const LEARNING_CELLS_MIN: usize = 1_024;
/// A first batch with fewer cells does not choose the shared prefix.
const FIRST_BATCH_CELLS_MIN: usize = 16;

/// How to make a memtable.
#[derive(Clone, Debug, Default)]
pub struct MemtableOptions {
    /// Tells the memtables of a range apart in logs and tests.
    pub id: u64,
    /// What keys are expected to begin with: the former memtable's [`Memtable::learned_prefix`],
    /// or what the keys of the range's tables share. `None` leaves the choice to the first batch.
    pub shared_prefix: Option<Vec<u8>>,
}

/// See the module's words. Shared as `Arc<Memtable>`.
#[derive(Debug)]
pub struct Memtable {
    // The list points into the arena: it stands first, so that it is dropped first.
    list: SlotList,
    arena: Arena,
    shared_prefix: OnceLock<Vec<u8>>,
    largest_seq: AtomicU64,
    id: u64,
    // Dropped last: counted until the memory is free.
    outlived: OnceLock<Outlived>,
}

impl Memtable {
    /// An empty memtable.
    pub fn new(options: MemtableOptions) -> Arc<Memtable> {
        Arc::new(Memtable {
            list: SlotList::new(),
            arena: Arena::new(),
            shared_prefix: options.shared_prefix.map_or_else(OnceLock::new, OnceLock::from),
            largest_seq: AtomicU64::new(0),
            id: options.id,
            outlived: OnceLock::new(),
        })
    }

    /// The id it was made with.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Inserts a sequenced batch. Readers see it when they read at its sequence numbers.
    pub fn insert_batch(&self, batch: &Batch) {
        let places = batch.places();
        let (Some(first), Some(last)) = (places.first(), places.last()) else {
            return;
        };
        assert!(batch.first_seq() > SeqNo::ZERO, "the batch is sequenced");
        let shared = self.shared_prefix.get_or_init(|| choose_from_first_batch(batch));
        let prefix = |place: &Place| prefix_after(shared, batch.key(place));
        let (start, end) = (first.start as usize, last.end as usize);
        let payload = batch.shared_payload();
        let piece = if end - start <= SHARED_PIECE_BYTES_MAX {
            self.arena.store(&[&payload[start..end]])
        } else {
            self.arena.keep_payload(payload, start, end)
        };
        batch.parts().1.iter().for_each(|splice| self.arena.keep_value(&splice.bytes));
        let slot = |place: &Place| {
            let value = batch.value(place);
            if value.len() < ELSEWHERE_BYTES_MIN {
                return piece.slot(place.start as usize - start, prefix(place));
            }
            let beginning = &payload[place.start as usize..place.key_end as usize];
            self.arena.store_outside(beginning, value).slot(0, prefix(place))
        };
        let mut slots: Vec<Slot> = places.iter().map(slot).collect();
        slots.sort_unstable();
        self.link(&slots, batch.last_seq());
    }

    /// Inserts one cell; an equal key is the same cell and changes nothing. `key` is a valid key.
    pub fn insert(&self, key: &[u8], value: &[u8]) {
        let shared = self.shared_prefix.get_or_init(Vec::new);
        let mut header = Vec::with_capacity(2 * entry::VARINT_BYTES_MAX);
        entry::put_header(&mut header, key.len(), value.len());
        let piece = if value.len() < ELSEWHERE_BYTES_MIN {
            self.arena.store(&[&header, key, value])
        } else {
            let value = Bytes::copy_from_slice(value);
            self.arena.keep_value(&value);
            self.arena.store_outside(&[&header, key].concat(), &value)
        };
        let seq = key::seq_of(key).expect("a memtable takes valid keys only");
        self.link(&[piece.slot(0, prefix_after(shared, key))], seq);
    }

    fn link(&self, slots: &[Slot], last: SeqNo) {
        // Raised first: whoever meets one of these cells finds a number at least as large.
        self.largest_seq.fetch_max(last.get(), AcqRel);
        self.list.insert(slots);
    }

    /// Bytes that it takes: the arena's blocks and the list's nodes.
    pub fn memory_bytes(&self) -> usize {
        self.arena.bytes() + self.cells() * NODE_BYTES
    }

    /// Nobody looks for its cells here any more: from now on its memory is counted in `memory`,
    /// until the last holder has dropped it.
    pub(crate) fn outlive(&self, memory: &OutlivedMemory) {
        self.outlived.get_or_init(|| memory.count(self.memory_bytes() as u64));
    }

    /// Cells and tombstones in it.
    pub fn cells(&self) -> usize {
        self.list.len()
    }

    /// Does it hold nothing?
    pub fn is_empty(&self) -> bool {
        self.cells() == 0
    }

    /// No cell in it has a larger sequence number. Zero when it is empty.
    pub fn largest_seq(&self) -> SeqNo {
        SeqNo::from_raw(self.largest_seq.load(Acquire)).expect("taken from a sequence number")
    }

    /// A cursor, not yet placed, that keeps the memtable alive.
    pub fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor::new(Arc::clone(self))
    }

    /// What the keys of the next memtable may be expected to begin with.
    pub fn learned_prefix(&self) -> Vec<u8> {
        if self.cells() >= LEARNING_CELLS_MIN
            && let Some((first, last)) = self.list.ends()
        {
            return common(first.cell().key, last.cell().key).to_vec();
        }
        self.shared_prefix.get().cloned().unwrap_or_default()
    }

    /// The list and the probe to search it with; `scratch` will hold the probe's bytes.
    fn probe(&self, key: &[u8], scratch: &mut Vec<u8>) -> Slot {
        scratch.clear();
        entry::put_header(scratch, key.len(), 0);
        scratch.extend_from_slice(key);
        // Before the first cell nothing is chosen, and there is nothing to find.
        let shared = self.shared_prefix.get().map_or(&[][..], Vec::as_slice);
        Slot::probe(scratch, prefix_after(shared, key))
    }
}

fn choose_from_first_batch(batch: &Batch) -> Vec<u8> {
    if batch.places().len() < FIRST_BATCH_CELLS_MIN {
        return Vec::new();
    }
    let mut keys = batch.cells().map(|cell| cell.key);
    let first = keys.next().unwrap_or_default();
    keys.fold(first, common).to_vec()
}

#[cfg(test)]
mod tests;
