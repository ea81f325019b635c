//! Memory that entries are copied into and never leave: given out piece by piece, freed at once.
//!
//! The first block has 4 KiB and each further one twice as much, up to 1 MiB, so that a range with
//! three cells costs a page and a busy one a call to the allocator per MiB. The payload of a large
//! batch, and a large value that its request still holds, are not copied: the arena keeps them.
//!
//! ```text
//! entry in an arena = key length · value length · key · value      of fewer than 256 KiB
//!                   | key length · value length · key · address    all others lie elsewhere
//! ```
//!
//! Invariants, on which every `unsafe` here rests
//! - A piece is written once, by the thread that allocated it, before any [`Slot`] points into it;
//!   afterwards it only is read. Handing a slot to another thread orders the two (the skip list
//!   links nodes with sequentially consistent operations).
//! - A [`Slot`] points at a whole entry, whose lengths are varints written by us; an address in it
//!   is that of as many bytes as it says, which the arena keeps.
//! - Blocks and what is kept neither move nor go before the arena does, and a slot is not used
//!   after that: slots live in a memtable's list, which is dropped before its arena, or in its
//!   cursors, which keep the memtable alive. Probes (slots over scratch bytes) do not outlive the
//!   call they serve.
#![expect(
    unsafe_code,
    reason = "entries of many sizes share blocks; a slot of two words keeps the list's nodes small"
)]

use std::alloc::Layout;
use std::cmp::Ordering;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use types::CellRef;
use types::limits::SPLICED_BYTES_MIN;

const FIRST_BLOCK_BYTES: usize = 4 << 10;
const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Larger pieces have a block of their own; larger payloads are kept.
pub(super) const SHARED_PIECE_BYTES_MAX: usize = 64 << 10;
/// Values of at least so many bytes lie outside their entries.
pub(super) const ELSEWHERE_BYTES_MIN: usize = SPLICED_BYTES_MIN;
const ADDRESS_BYTES: usize = size_of::<*const u8>();

/// Gives out memory; see the module's words.
#[derive(Debug)]
pub(super) struct Arena {
    blocks: Mutex<Blocks>,
    bytes: AtomicUsize,
}

#[derive(Debug)]
struct Blocks {
    all: Vec<Block>,
    /// Where the next piece goes, and how many bytes are free there.
    free: NonNull<u8>,
    left: usize,
    next_bytes: usize,
    kept: Vec<Kept>,
}

/// Memory that was filled before the arena got it.
#[derive(Debug)]
#[expect(dead_code, reason = "held, and read through the addresses of its bytes only")]
enum Kept {
    Payload(Arc<Vec<u8>>),
    Value(Bytes),
}

#[derive(Debug)]
struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the pointers own plain bytes; all access to the fields goes through the mutex.
unsafe impl Send for Blocks {}

impl Arena {
    pub(super) fn new() -> Arena {
        Arena {
            blocks: Mutex::new(Blocks {
                all: Vec::new(),
                free: NonNull::dangling(),
                left: 0,
                next_bytes: FIRST_BLOCK_BYTES,
                kept: Vec::new(),
            }),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Bytes of all blocks, and of what is kept.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Copies `parts`, one after the other, to where they stay.
    pub(super) fn store(&self, parts: &[&[u8]]) -> Stored {
        let len = parts.iter().map(|part| part.len()).sum();
        assert!(len > 0, "nothing to store");
        let start = self.allocate(len);
        let mut at = 0;
        for part in parts {
            // SAFETY: the piece has `len` bytes, the sum of the parts, and nobody else knows it
            // yet.
            unsafe {
                start.add(at).as_ptr().copy_from_nonoverlapping(part.as_ptr(), part.len());
            }
            at += part.len();
        }
        Stored { start, len }
    }

    /// Stores the beginning of an entry, lengths and key, whose value lies elsewhere. The caller
    /// has the arena keep the value.
    pub(super) fn store_outside(&self, beginning: &[u8], value: &[u8]) -> Stored {
        assert!(value.len() >= ELSEWHERE_BYTES_MIN, "a value that belongs into its entry");
        let len = beginning.len() + ADDRESS_BYTES;
        let start = self.allocate(len);
        // SAFETY: the piece has room for both, and nobody else knows it yet; an address may stand
        // at any byte.
        unsafe {
            start.as_ptr().copy_from_nonoverlapping(beginning.as_ptr(), beginning.len());
            let address = start.add(beginning.len()).cast::<*const u8>();
            address.write_unaligned(value.as_ptr());
        }
        Stored { start, len }
    }

    /// Keeps a payload; the part of it from `from` to `to` is the piece.
    pub(super) fn keep_payload(&self, payload: &Arc<Vec<u8>>, from: usize, to: usize) -> Stored {
        let piece = &payload[from..to];
        let stored = Stored { start: NonNull::from(piece).cast(), len: piece.len() };
        self.keep(Kept::Payload(Arc::clone(payload)), payload.capacity());
        stored
    }

    /// Keeps a value.
    pub(super) fn keep_value(&self, value: &Bytes) {
        self.keep(Kept::Value(value.clone()), value.len());
    }

    fn keep(&self, kept: Kept, bytes: usize) {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).kept.push(kept);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn allocate(&self, len: usize) -> NonNull<u8> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if len > SHARED_PIECE_BYTES_MAX {
            return self.add_block(&mut blocks, len);
        }
        if len > blocks.left {
            let bytes = blocks.next_bytes.max(len);
            blocks.next_bytes = (blocks.next_bytes * 2).min(BLOCK_BYTES_MAX);
            blocks.free = self.add_block(&mut blocks, bytes);
            blocks.left = bytes;
        }
        let piece = blocks.free;
        // SAFETY: `left >= len` bytes of the block follow `free`; one past its end is in bounds.
        blocks.free = unsafe { piece.add(len) };
        blocks.left -= len;
        piece
    }

    fn add_block(&self, blocks: &mut Blocks, bytes: usize) -> NonNull<u8> {
        let layout = Layout::array::<u8>(bytes).expect("a block fits the address space");
        // SAFETY: the layout's size is not zero: `store` refuses empty pieces.
        let start = NonNull::new(unsafe { std::alloc::alloc(layout) })
            .unwrap_or_else(|| std::alloc::handle_alloc_error(layout));
        blocks.all.push(Block { start, layout });
        self.bytes.fetch_add(bytes, Relaxed);
        start
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for block in &self.all {
            // SAFETY: allocated by `add_block` with this layout, and freed only here.
            unsafe { std::alloc::dealloc(block.start.as_ptr(), block.layout) };
        }
    }
}

/// A piece of an arena, filled with bytes.
pub(super) struct Stored {
    start: NonNull<u8>,
    len: usize,
}

impl Stored {
    /// The slot of the entry that begins at `offset` of the piece.
    ///
    /// The caller vouches, as everywhere in this folder, that a whole entry begins there.
    pub(super) fn slot(&self, offset: usize, prefix: u64) -> Slot {
        assert!(offset < self.len, "an entry past its piece");
        // SAFETY: inside the piece, as just asserted.
        let entry = unsafe { self.start.add(offset) };
        Slot { prefix, entry }
    }
}

/// What the skip list sorts: eight bytes of the key that mostly decide, and where the entry is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    prefix: u64,
    entry: NonNull<u8>,
}

// SAFETY: a slot only reads bytes that nobody writes any more (first invariant).
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    /// A slot to search with: `entry` holds a whole entry, and lives longer than the search.
    pub(super) fn probe(entry: &[u8], prefix: u64) -> Slot {
        debug_assert!(crate::entry::split(entry).is_some(), "not an entry");
        Slot { prefix, entry: NonNull::from(entry).cast() }
    }

    /// The entry's key and value. The caller chooses the lifetime: that of the memtable which the
    /// slot is of, or of the scratch bytes under a probe.
    pub(super) fn cell<'a>(&self) -> CellRef<'a> {
        let (key_len, value_len, start) = self.lengths();
        // SAFETY: a whole entry lies here (second invariant), and stays (third invariant).
        unsafe {
            let key = start.as_ptr().cast_const();
            let mut value = key.add(key_len);
            if value_len >= ELSEWHERE_BYTES_MIN {
                value = value.cast::<*const u8>().read_unaligned();
            }
            CellRef {
                key: std::slice::from_raw_parts(key, key_len),
                value: std::slice::from_raw_parts(value, value_len),
            }
        }
    }

    fn lengths(&self) -> (usize, usize, NonNull<u8>) {
        let (key_len, rest) = read_varint(self.entry);
        let (value_len, start) = read_varint(rest);
        (key_len, value_len, start)
    }
}

/// Reads a varint that we wrote ourselves.
fn read_varint(mut at: NonNull<u8>) -> (usize, NonNull<u8>) {
    let mut value = 0;
    let mut shift = 0;
    loop {
        // SAFETY: an entry begins with two whole varints (second invariant), and the walk ends
        // with the first byte below 0x80.
        let byte = unsafe {
            let byte = at.read();
            at = at.add(1);
            byte
        };
        value |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return (value, at);
        }
        shift += 7;
    }
}

impl PartialEq for Slot {
    fn eq(&self, other: &Slot) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Slot {}

impl PartialOrd for Slot {
    fn partial_cmp(&self, other: &Slot) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slot {
    fn cmp(&self, other: &Slot) -> Ordering {
        self.prefix.cmp(&other.prefix).then_with(|| self.cell().key.cmp(other.cell().key))
    }
}
