use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use types::FileId;

use crate::block::Block;
use crate::frame::{BlockHandle, BlockKind, StoredPayload};

/// What an entry costs besides its block's bytes.
const ENTRY_BYTES: u64 = 96;
/// For sizing the cache's table; more or fewer entries only cost speed.
const EXPECTED_BLOCK_BYTES: u64 = 4 << 10;
const STRIPES: usize = 16;
/// One part of so many is left to blocks that are not pinned.
const OTHERS_SHARE_MIN: u64 = 8;

/// Plain data blocks and index partitions of all tables, bounded by bytes; what is read again
/// stays, what was read once goes first.
///
/// Up to half of it may be pinned: blocks of tables that are kept in memory stay as long as their
/// table is open. What every open table must hold (top index, filters, properties) is taken from
/// the same bytes, and the owner of all memory may take some away for a time
/// ([`BlockCache::lend`]). What is left serves all other blocks: an eighth at least.
pub struct BlockCache {
    blocks: Cache<(FileId, u64), Held, HeldWeight>,
    form: CacheForm,
    counts: [Stripe; STRIPES],
    bytes: u64,
    pinned: Mutex<Pins>,
    /// Bytes that are not to be used now.
    lent: AtomicU64,
}

/// How a [`BlockCache`] keeps data blocks; index partitions and pinned blocks are always plain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheForm {
    /// As they are read: a hit costs nothing.
    #[default]
    Plain,
    /// As they are stored: more of them fit, and each hit decompresses one.
    Compressed,
}

/// A cached block.
#[derive(Clone)]
enum Held {
    Plain(Block),
    /// Checked, and decompressed once before.
    Stored(StoredPayload),
}

impl Held {
    fn bytes(&self) -> usize {
        match self {
            Held::Plain(block) => block.bytes(),
            Held::Stored(payload) => payload.len(),
        }
    }

    fn block(self, kind: BlockKind) -> Option<Block> {
        match self {
            Held::Plain(block) => Some(block),
            Held::Stored(payload) => payload.plain(kind).and_then(Block::parse).ok(),
        }
    }
}

/// What is pinned in a [`BlockCache`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    /// Bytes of pinned blocks.
    pub bytes: u64,
    /// Tables that were to be kept in memory and did not fit whole, since the cache was made.
    pub too_large: u64,
    /// Bytes that open tables hold besides blocks.
    pub tables: u64,
}

/// Look-ups of a [`BlockCache`] since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Look-ups that found their block.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
}

/// Counters of one stripe, on a cache line of their own so that readers do not share one.
#[derive(Default)]
#[repr(align(64))]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Clone)]
struct HeldWeight;

impl Weighter<(FileId, u64), Held> for HeldWeight {
    fn weight(&self, _key: &(FileId, u64), held: &Held) -> u64 {
        weight_of(held.bytes())
    }
}

fn weight_of(bytes: usize) -> u64 {
    bytes as u64 + ENTRY_BYTES
}

impl BlockCache {
    /// A cache of at most `bytes` bytes, of plain blocks.
    pub fn new(bytes: u64) -> BlockCache {
        BlockCache::with_form(bytes, CacheForm::default())
    }

    /// A cache of at most `bytes` bytes.
    pub fn with_form(bytes: u64, form: CacheForm) -> BlockCache {
        let expected = (bytes / EXPECTED_BLOCK_BYTES).clamp(16, 1 << 24) as usize;
        BlockCache {
            blocks: Cache::with_weighter(expected, bytes, HeldWeight),
            form,
            counts: Default::default(),
            bytes,
            pinned: Mutex::default(),
            lent: AtomicU64::new(0),
        }
    }

    /// Bytes held now, those of pinned blocks and of open tables and entries' own cost included.
    pub fn used_bytes(&self) -> u64 {
        let pins = self.pins();
        self.blocks.weight() + pins.bytes + pins.tables
    }

    /// Uses `bytes` less than it might, until told otherwise.
    pub fn lend(&self, bytes: u64) {
        if self.lent.swap(bytes, Ordering::Relaxed) != bytes {
            self.make_room();
        }
    }

    /// What is pinned now.
    pub fn pins(&self) -> Pins {
        *self.pinned()
    }

    fn pinned(&self) -> MutexGuard<'_, Pins> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Look-ups so far.
    pub fn counts(&self) -> CacheCounts {
        let mut counts = CacheCounts::default();
        for stripe in &self.counts {
            counts.hits += stripe.hits.load(Ordering::Relaxed);
            counts.misses += stripe.misses.load(Ordering::Relaxed);
        }
        counts
    }

    pub(crate) fn get(&self, file: FileId, handle: BlockHandle) -> Option<Block> {
        let offset = handle.offset;
        let found = self.blocks.get(&(file, offset));
        // Blocks begin about 4 KiB apart: the bits above spread them over the stripes.
        let stripe = &self.counts[((offset >> 12) ^ file.counter) as usize % STRIPES];
        let counter = if found.is_some() { &stripe.hits } else { &stripe.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        // One that cannot be had is read again, which tells what is wrong with it.
        found?.block(handle.kind)
    }

    /// Keeps a block that was read; `stored` is the same as it was found in the file.
    pub(crate) fn insert(
        &self,
        file: FileId,
        handle: BlockHandle,
        block: &Block,
        stored: StoredPayload,
    ) {
        let is_kept_stored = self.form == CacheForm::Compressed
            && handle.kind == BlockKind::Data
            && stored.is_compressed();
        let held = if is_kept_stored { Held::Stored(stored) } else { Held::Plain(block.clone()) };
        self.blocks.insert((file, handle.offset), held);
    }
}

/// The pinned blocks of one table, by offset; their share of the cache comes back when they go.
pub(crate) struct PinnedBlocks {
    cache: Arc<BlockCache>,
    blocks: Vec<(u64, Block)>,
    bytes: u64,
}

impl PinnedBlocks {
    /// None yet.
    pub(crate) fn none(cache: &Arc<BlockCache>) -> PinnedBlocks {
        PinnedBlocks { cache: Arc::clone(cache), blocks: Vec::new(), bytes: 0 }
    }

    /// Pins a block; offsets in any order. `false`: there is no room.
    pub(crate) fn add(&mut self, offset: u64, block: Block) -> bool {
        let bytes = weight_of(block.bytes());
        let mut pins = self.cache.pinned();
        if pins.bytes + bytes > self.cache.bytes / 2 {
            pins.too_large += 1;
            return false;
        }
        pins.bytes += bytes;
        drop(pins);
        self.bytes += bytes;
        self.blocks.push((offset, block));
        true
    }

    /// Takes the room from the blocks that are not pinned.
    pub(crate) fn settle(&mut self) {
        self.blocks.sort_unstable_by_key(|(offset, _)| *offset);
        self.cache.make_room();
    }

    pub(crate) fn get(&self, offset: u64) -> Option<Block> {
        let place = self.blocks.binary_search_by_key(&offset, |(offset, _)| *offset).ok()?;
        Some(self.blocks[place].1.clone())
    }
}

impl Drop for PinnedBlocks {
    fn drop(&mut self) {
        self.cache.pinned().bytes -= self.bytes;
        self.cache.make_room();
    }
}

impl BlockCache {
    /// Fits what is not pinned into what the pinned blocks, the open tables and the owner leave.
    fn make_room(&self) {
        // Under the lock: the last to come sets the capacity that holds.
        let pins = self.pinned();
        let taken = pins.tables.saturating_add(self.lent.load(Ordering::Relaxed));
        let left = (self.bytes - pins.bytes).saturating_sub(taken);
        self.blocks.set_capacity(left.max(self.bytes / OTHERS_SHARE_MIN));
    }
}

/// What an open table holds, taken from the cache's bytes until it is dropped.
pub(crate) struct Resident {
    cache: Arc<BlockCache>,
    bytes: u64,
}

impl Resident {
    pub(crate) fn new(cache: &Arc<BlockCache>, bytes: u64) -> Resident {
        cache.pinned().tables += bytes;
        cache.make_room();
        Resident { cache: Arc::clone(cache), bytes }
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.cache.pinned().tables -= self.bytes;
        self.cache.make_room();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// A block whose entries take so many bytes.
    fn block(entries: usize) -> Block {
        let restarts = [0_u32, 1].map(u32::to_le_bytes).concat();
        Block::parse(Bytes::from([vec![7; entries], restarts].concat())).unwrap()
    }

    /// Hypertable 0.9.7.13's notes: past 4 GiB of a file, a block was taken for another one.
    #[test]
    fn blocks_that_lie_4_gib_apart_are_told_apart() {
        let cache = Arc::new(BlockCache::new(1 << 20));
        let file = FileId { session: 1, counter: 1 };
        let places: Vec<u64> = (0..4).map(|part| 4096 + (part << 32)).collect();
        let mut pinned = PinnedBlocks::none(&cache);
        for (size, offset) in (1..).zip(&places) {
            cache.blocks.insert((file, *offset), Held::Plain(block(size)));
            assert!(pinned.add(*offset, block(size)));
        }
        pinned.settle();
        for (size, offset) in (1..).zip(&places) {
            let handle = BlockHandle { offset: *offset, len: 9, kind: BlockKind::Data };
            let bytes = |found: Option<Block>| found.map(|block| block.bytes());
            assert_eq!(bytes(cache.get(file, handle)), Some(block(size).bytes()));
            assert_eq!(bytes(pinned.get(*offset)), Some(block(size).bytes()));
        }
    }
}
