//! A block in memory, and a cursor that decodes it in place.
//!
//! The checksum has been checked, yet every number is validated where it is used: a crafted block
//! gives [`Malformed`], never a panic or an endless loop (every entry takes at least three bytes).
//!
//! The search: binary over the restarts, comparing whole keys where they lie, then forward to the
//! next restart at most. One key buffer is reused; no step allocates once it has grown.

use bytes::Bytes;

use crate::coding::{u32_at, varint};
use crate::error::Malformed;

type Decoded<T> = std::result::Result<T, Malformed>;

/// A data or index block, plain, with a valid frame of restarts. Cloning it is cheap.
#[derive(Clone, Debug, Default)]
pub struct Block {
    bytes: Bytes,
    entries_end: usize,
    restarts: usize,
}

impl Block {
    pub(crate) fn parse(bytes: Bytes) -> Decoded<Block> {
        let wrong = Malformed("a block's restarts are damaged");
        let count_at = bytes.len().checked_sub(4).ok_or(wrong)?;
        let restarts = u32_at(&bytes, count_at).ok_or(wrong)? as usize;
        let restart_bytes = restarts.checked_mul(4).ok_or(wrong)?;
        let entries_end = count_at.checked_sub(restart_bytes).ok_or(wrong)?;
        if restarts == 0 || entries_end == 0 || u32_at(&bytes, entries_end) != Some(0) {
            return Err(wrong);
        }
        Ok(Block { bytes, entries_end, restarts })
    }

    /// Plain bytes, which is what the block cache counts.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn restart(&self, index: usize) -> Decoded<usize> {
        u32_at(&self.bytes, self.entries_end + 4 * index)
            .map(|at| at as usize)
            .filter(|&at| at < self.entries_end)
            .ok_or(Malformed("a restart outside its block"))
    }

    fn entry(&self, start: usize) -> Decoded<Entry> {
        let entries = &self.bytes[..self.entries_end];
        Entry::decode(entries, start).ok_or(Malformed("an entry outside its block"))
    }

    /// The whole key at a restart, where it lies.
    fn restart_key(&self, index: usize) -> Decoded<&[u8]> {
        let entry = self.entry(self.restart(index)?)?;
        if entry.shared != 0 {
            return Err(Malformed("a restart with a shortened key"));
        }
        Ok(&self.bytes[entry.key_start..entry.value_start])
    }

    /// The number of restarts, from the first on, whose key is `bound` `target`.
    fn restarts_before(&self, target: &[u8], bound: Bound) -> Decoded<usize> {
        let (mut low, mut high) = (0, self.restarts);
        while low < high {
            let middle = low + (high - low) / 2;
            if bound.holds(self.restart_key(middle)?, target) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

/// Which keys count as before a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Smaller ones.
    Below,
    /// Smaller ones and the target itself.
    AtOrBelow,
}

impl Bound {
    #[inline]
    fn holds(self, key: &[u8], target: &[u8]) -> bool {
        match self {
            Bound::Below => key < target,
            Bound::AtOrBelow => key <= target,
        }
    }
}

/// Where the parts of one entry lie. All offsets are inside the block's entries.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    start: usize,
    shared: usize,
    key_start: usize,
    value_start: usize,
    end: usize,
    stored: bool,
}

impl Entry {
    #[inline]
    fn decode(entries: &[u8], start: usize) -> Option<Entry> {
        let mut at = start;
        let shared = usize::try_from(varint(entries, &mut at)?).ok()?;
        let rest = usize::try_from(varint(entries, &mut at)?).ok()?;
        let tag = varint(entries, &mut at)?;
        let value_start = at.checked_add(rest)?;
        let end = value_start.checked_add(usize::try_from(tag >> 1).ok()?)?;
        if end > entries.len() {
            return None;
        }
        Some(Entry { start, shared, key_start: at, value_start, end, stored: tag & 1 == 1 })
    }
}

/// A position in a block. Methods that move it return whether it stands on an entry.
#[derive(Default)]
pub(crate) struct BlockCursor {
    block: Block,
    entry: Entry,
    key: Vec<u8>,
}

impl BlockCursor {
    pub(crate) fn new(block: Block) -> BlockCursor {
        BlockCursor { block, ..BlockCursor::default() }
    }

    /// Goes to another block; stands nowhere in it.
    pub(crate) fn enter(&mut self, block: Block) {
        self.block = block;
        self.entry = Entry::default();
        self.key.clear();
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The block that it goes through.
    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        &self.block.bytes[self.entry.value_start..self.entry.end]
    }

    /// Does it stand on the block's first entry, if on any?
    #[inline]
    pub(crate) fn is_first(&self) -> bool {
        self.entry.start == 0
    }

    /// The largest key of the block.
    pub(crate) fn largest_key(&self) -> Decoded<Vec<u8>> {
        let mut cursor = BlockCursor::new(self.block.clone());
        cursor.last()?;
        Ok(cursor.key)
    }

    /// Are the value's bytes the handle of a value outside the blocks?
    #[inline]
    pub(crate) fn is_stored(&self) -> bool {
        self.entry.stored
    }

    /// The next entry; stays on the last one at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Decoded<bool> {
        if self.entry.end >= self.block.entries_end {
            return Ok(false);
        }
        let entry = self.block.entry(self.entry.end)?;
        if entry.shared > self.key.len() {
            return Err(Malformed("a key shares more than there is"));
        }
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(&self.block.bytes[entry.key_start..entry.value_start]);
        self.entry = entry;
        Ok(true)
    }

    pub(crate) fn first(&mut self) -> Decoded<bool> {
        self.stand_before(0);
        self.next()
    }

    pub(crate) fn last(&mut self) -> Decoded<bool> {
        self.stand_before(self.block.restart(self.block.restarts - 1)?);
        let mut found = false;
        while self.next()? {
            found = true;
        }
        Ok(found)
    }

    /// The entry before this one; stays on the first one at the start.
    pub(crate) fn prev(&mut self) -> Decoded<bool> {
        let here = self.entry.start;
        if here == 0 {
            return Ok(false);
        }
        let (mut low, mut high) = (0, self.block.restarts);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.block.restart(middle)? < here {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let restart = self.block.restart(low.saturating_sub(1))?;
        self.walk(restart, here)
    }

    /// The first entry whose key is at or after `target`; false: all are before it.
    pub(crate) fn seek(&mut self, target: &[u8]) -> Decoded<bool> {
        let before = self.block.restarts_before(target, Bound::AtOrBelow)?;
        self.stand_before(self.block.restart(before.saturating_sub(1))?);
        while self.next()? {
            if self.key.as_slice() >= target {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The last entry whose key is `bound` `target`; false: there is none.
    pub(crate) fn seek_last(&mut self, target: &[u8], bound: Bound) -> Decoded<bool> {
        let before = self.block.restarts_before(target, bound)?;
        let Some(restart) = before.checked_sub(1) else {
            return Ok(false);
        };
        let restart = self.block.restart(restart)?;
        // Entries from the next restart on are known to be past the target.
        let limit = match before < self.block.restarts {
            true => self.block.restart(before)?,
            false => self.block.entries_end,
        };
        self.stand_before(restart);
        let mut found = None;
        while self.entry.end < limit && self.next()? {
            if !bound.holds(&self.key, target) {
                let past = self.entry.start;
                return match found {
                    Some(()) => self.walk(restart, past),
                    None => Err(Malformed("keys of a block do not ascend")),
                };
            }
            found = Some(());
        }
        Ok(found.is_some())
    }

    /// From `restart` on to the entry that ends at `end`.
    fn walk(&mut self, restart: usize, end: usize) -> Decoded<bool> {
        self.stand_before(restart);
        while self.next()? {
            if self.entry.end >= end {
                break;
            }
        }
        if self.entry.end != end {
            return Err(Malformed("restarts of a block do not ascend"));
        }
        Ok(true)
    }

    /// Makes the entry at `restart` the next one.
    fn stand_before(&mut self, restart: usize) {
        self.key.clear();
        self.entry = Entry { end: restart, ..Entry::default() };
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::block_builder::{BlockBuilder, Place, common_prefix};

    fn block_of(keys: &[Vec<u8>], restart_interval: usize) -> Block {
        let mut builder = BlockBuilder::new(restart_interval);
        let mut last: &[u8] = &[];
        for key in keys {
            let shared = common_prefix(last, key);
            let size = builder.bytes() + builder.entry_bytes(key.len(), shared, key.len());
            builder.add(key, shared, key, Place::Inline);
            assert_eq!(builder.bytes(), size, "the predicted size");
            last = key;
        }
        Block::parse(Bytes::copy_from_slice(builder.finish())).unwrap()
    }

    #[test]
    fn searches_agree_with_a_sorted_list() {
        let mut random = StdRng::seed_from_u64(1);
        for round in 0..300 {
            let mut keys: Vec<Vec<u8>> = (0..random.random_range(1..60))
                .map(|_| {
                    (0..random.random_range(0..5)).map(|_| random.random_range(0..3)).collect()
                })
                .collect();
            keys.sort();
            keys.dedup();
            let mut cursor = BlockCursor::new(block_of(&keys, random.random_range(1..20)));
            for _ in 0..40 {
                let target: Vec<u8> =
                    (0..random.random_range(0..5)).map(|_| random.random_range(0..3)).collect();
                let at = keys.partition_point(|key| key < &target);
                assert_eq!(cursor.seek(&target).unwrap(), at < keys.len(), "round {round}");
                if at < keys.len() {
                    assert_eq!((cursor.key(), cursor.value()), (&keys[at][..], &keys[at][..]));
                    assert_eq!(cursor.prev().unwrap(), at > 0);
                    assert_eq!(cursor.key(), keys[at.saturating_sub(1)]);
                }
                assert_eq!(cursor.seek_last(&target, Bound::Below).unwrap(), at > 0);
                if at > 0 {
                    assert_eq!(cursor.key(), keys[at - 1]);
                    assert_eq!(cursor.next().unwrap(), at < keys.len());
                }
                let past = keys.partition_point(|key| key <= &target);
                assert_eq!(cursor.seek_last(&target, Bound::AtOrBelow).unwrap(), past > 0);
                if past > 0 {
                    assert_eq!(cursor.key(), keys[past - 1]);
                }
            }
            assert!(cursor.last().unwrap());
            assert_eq!(cursor.key(), keys[keys.len() - 1]);
        }
    }

    #[test]
    fn damaged_blocks_never_panic_or_loop() {
        let mut random = StdRng::seed_from_u64(2);
        let keys: Vec<Vec<u8>> = (0..50u8).map(|n| vec![n / 16, n % 16, 7]).collect();
        let whole = block_of(&keys, 4).bytes;
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut bytes = whole.to_vec();
            for _ in 0..random.random_range(1..4) {
                let place = random.random_range(0..bytes.len());
                bytes[place] = random.random();
            }
            if random.random_bool(0.2) {
                bytes.truncate(random.random_range(0..bytes.len()));
            }
            let Ok(block) = Block::parse(Bytes::from(bytes)) else {
                refused += 1;
                continue;
            };
            let mut cursor = BlockCursor::new(block);
            let target = [random.random_range(0..4), random.random_range(0..17)];
            let _ = cursor.seek(&target);
            let _ = cursor.prev();
            let _ = cursor.seek_last(&target, Bound::Below);
            let _ = cursor.prev();
            let _ = cursor.last();
            let _ = cursor.first();
            while let Ok(true) = cursor.next() {}
        }
        assert!(refused > 100, "the mutations reach the restarts: {refused}");
    }
}
