use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use types::FileId;

use crate::block::Block;

/// What an entry costs besides its block's bytes.
const ENTRY_BYTES: u64 = 96;
/// For sizing the cache's table; more or fewer entries only cost speed.
const EXPECTED_BLOCK_BYTES: u64 = 4 << 10;
const STRIPES: usize = 16;

/// Plain data blocks and index partitions of all tables, bounded by bytes; what is read again
/// stays, what was read once goes first.
pub struct BlockCache {
    blocks: Cache<(FileId, u64), Block, BlockWeight>,
    counts: [Stripe; STRIPES],
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
struct BlockWeight;

impl Weighter<(FileId, u64), Block> for BlockWeight {
    fn weight(&self, _key: &(FileId, u64), block: &Block) -> u64 {
        block.bytes() as u64 + ENTRY_BYTES
    }
}

impl BlockCache {
    /// A cache of at most `bytes` bytes.
    pub fn new(bytes: u64) -> BlockCache {
        let expected = (bytes / EXPECTED_BLOCK_BYTES).clamp(16, 1 << 24) as usize;
        BlockCache {
            blocks: Cache::with_weighter(expected, bytes, BlockWeight),
            counts: Default::default(),
        }
    }

    /// Bytes held now, entries' own cost included.
    pub fn used_bytes(&self) -> u64 {
        self.blocks.weight()
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

    pub(crate) fn get(&self, file: FileId, offset: u64) -> Option<Block> {
        let found = self.blocks.get(&(file, offset));
        // Blocks begin about 4 KiB apart: the bits above spread them over the stripes.
        let stripe = &self.counts[((offset >> 12) ^ file.counter) as usize % STRIPES];
        let counter = if found.is_some() { &stripe.hits } else { &stripe.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    pub(crate) fn insert(&self, file: FileId, offset: u64, block: Block) {
        self.blocks.insert((file, offset), block);
    }
}
