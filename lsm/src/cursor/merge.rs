//! The merge: a heap of sources by the keys they stand on.
//!
//! Sources are given newest first. A key that several hold (a tombstone that every locality group
//! has, a cell replayed into two files) is the same cell: it appears once, from the newest.
//!
//! A movement moves some sources; those that lack a block leave the heap and wait. When none waits,
//! the smallest key is known. Invariants
//! - In the heap are just the sources that stand on a key; the smallest is at its root.
//! - A movement is over only when no source waits.
//! - After an error the cursor must be sought anew.

use std::sync::Arc;

use sstable::{BlockHandle, RawBlock, Step, Table, ValueRef};
use types::{SeqNo, key};

use super::Source;
use crate::io::{IoClass, RateLimiter};
use crate::statistics::Counters;
use crate::{Error, Result};

/// What a movement came to.
#[derive(Debug)]
pub enum MergeStep {
    /// The cursor stands on a cell or tombstone.
    Cell,
    /// There is none in that direction.
    End,
    /// A block is missing: [`MergeCursor::load`] it, then [`MergeCursor::resume`].
    NeedBlock(PendingBlock),
}

/// A block that a source waits for.
#[derive(Clone, Debug)]
pub struct PendingBlock {
    source: usize,
    handle: BlockHandle,
}

impl PendingBlock {
    /// Bytes of the block as it is stored.
    pub fn stored_bytes(&self) -> u64 {
        u64::from(self.handle.len)
    }
}

/// A block of which all entries come next, one after the other.
pub(crate) struct LoneBlock {
    source: usize,
    handle: BlockHandle,
    /// The key of its last entry.
    pub(crate) largest: Vec<u8>,
}

/// A position in the merged stream of several sources.
#[derive(Debug)]
pub struct MergeCursor {
    sources: Vec<Source>,
    /// Places in `sources`.
    heap: Vec<usize>,
    waiting: Vec<PendingBlock>,
    /// A `prev_row` has moved the sources but not yet found the row.
    finding_row: bool,
    /// Keys that were passed over because another source held them too.
    repeated: u64,
    /// No table is opened for keys at or past this position: nobody wants them.
    end: Option<Vec<u8>>,
    /// Counts the blocks that are loaded.
    counters: Option<Arc<Counters>>,
    /// Holds its loads to a rate; a merge paces itself.
    limiter: Option<Arc<RateLimiter>>,
    /// The one row that is read, escaped and with its end mark.
    row: Option<Vec<u8>>,
    /// Of a read of one row: which sources held a key of it, as far as that is known.
    met: Vec<Option<bool>>,
}

impl MergeCursor {
    /// Merges `sources`, the newest first. The cursor is not yet placed.
    pub fn new(sources: Vec<Source>) -> MergeCursor {
        MergeCursor {
            heap: Vec::with_capacity(sources.len()),
            sources,
            waiting: Vec::new(),
            finding_row: false,
            repeated: 0,
            end: None,
            counters: None,
            limiter: None,
            row: None,
            met: Vec::new(),
        }
    }

    /// The same cursor, whose loads are counted, and of a read of one `row` the tables that hold
    /// nothing of it.
    #[must_use]
    pub(crate) fn counted_by(
        mut self,
        counters: &Arc<Counters>,
        row: Option<Vec<u8>>,
    ) -> MergeCursor {
        self.counters = Some(Arc::clone(counters));
        if row.is_some() {
            self.met = vec![None; self.sources.len()];
        }
        self.row = row;
        self
    }

    /// The same cursor, whose loads are reads that are held to a rate.
    #[must_use]
    pub(crate) fn limited_by(mut self, limiter: &Arc<RateLimiter>) -> MergeCursor {
        self.limiter = Some(Arc::clone(limiter));
        self
    }

    /// Who counts.
    pub(crate) fn counters(&self) -> Option<&Counters> {
        self.counters.as_deref()
    }

    /// Of a read of one row: the tables that were looked into and hold nothing of it.
    pub(crate) fn tables_in_vain(&self) -> u64 {
        let tables = self.sources.iter().zip(&self.met);
        let in_vain = tables.filter(|(source, met)| source.is_table() && **met == Some(false));
        in_vain.count() as u64
    }

    /// The same cursor for somebody who wants no key at or past `end`. It may still show some.
    #[must_use]
    pub fn ending_before(mut self, end: Option<Vec<u8>>) -> MergeCursor {
        self.end = end;
        self
    }

    /// Moves to the first key at or after `key`, which may be any bytes.
    ///
    /// # Errors
    /// Damage found in a table.
    pub fn seek(&mut self, key: &[u8]) -> Result<MergeStep> {
        self.begin();
        for i in 0..self.sources.len() {
            let step = self.sources[i].seek(key)?;
            self.place(i, step);
        }
        self.settle()
    }

    /// Moves from a key to the next one.
    ///
    /// # Errors
    /// Damage found in a table.
    #[expect(
        clippy::should_implement_trait,
        reason = "all cursors of the engine have seek and next; none is an iterator"
    )]
    pub fn next(&mut self) -> Result<MergeStep> {
        assert!(self.waiting.is_empty(), "a movement is not finished");
        self.leave_key()?;
        self.settle()
    }

    /// Moves to the *first* key of the last row that sorts before `before`: a row's prefix, or a
    /// position from [`key::put_row_start`].
    ///
    /// # Errors
    /// Damage found in a table.
    pub fn prev_row(&mut self, before: &[u8]) -> Result<MergeStep> {
        self.begin();
        self.finding_row = true;
        for i in 0..self.sources.len() {
            let step = self.sources[i].prev_row(before)?;
            self.place(i, step);
        }
        self.settle()
    }

    /// Moves past the current key, and sources that then stand before `target` to it, if they hold
    /// no number from `below` on: what a tombstone of that number hides to the last cell.
    ///
    /// # Errors
    /// Damage found in a table.
    pub fn skip_older(&mut self, target: &[u8], below: SeqNo) -> Result<MergeStep> {
        assert!(self.waiting.is_empty(), "a movement is not finished");
        self.leave_key()?;
        self.skip_where(target, |source| source.largest_seq() < below)
    }

    /// Moves to the first key at or after `target`, forward only: a cursor that is past it stays.
    ///
    /// # Errors
    /// Damage found in a table.
    pub fn skip_to(&mut self, target: &[u8]) -> Result<MergeStep> {
        assert!(self.waiting.is_empty(), "a movement is not finished");
        self.skip_where(target, |_| true)
    }

    fn skip_where(&mut self, target: &[u8], may: impl Fn(&Source) -> bool) -> Result<MergeStep> {
        for i in std::mem::take(&mut self.heap) {
            let source = &mut self.sources[i];
            let moves = source.key() < target && may(source);
            let step = if moves { source.seek(target)? } else { Step::Cell };
            self.place(i, step);
        }
        self.settle()
    }

    /// Goes on with the movement that needed a block.
    ///
    /// # Errors
    /// Damage found in a table.
    pub fn resume(&mut self) -> Result<MergeStep> {
        for pending in std::mem::take(&mut self.waiting) {
            let step = self.sources[pending.source].resume()?;
            self.place(pending.source, step);
        }
        self.settle()
    }

    /// Loads a block that is missing. Dropping the call half-way changes nothing.
    ///
    /// # Errors
    /// A failed read, or damage found in the block.
    pub async fn load(&mut self, pending: &PendingBlock) -> Result<()> {
        if let Some(limiter) = &self.limiter {
            limiter.spend(IoClass::Read, pending.stored_bytes()).await;
        }
        self.sources[pending.source].load(pending.handle).await?;
        if let Some(counters) = &self.counters {
            counters.blocks_loaded.add(1);
            counters.block_bytes_loaded.add(pending.stored_bytes());
        }
        Ok(())
    }

    /// The key that it stands on.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.root().key()
    }

    /// The value that it stands on.
    #[inline]
    pub fn value(&self) -> ValueRef<'_> {
        self.root().value()
    }

    /// The table that holds the value; `None` for a memtable.
    pub fn table(&self) -> Option<&Arc<Table>> {
        self.root().in_table()
    }

    /// Keys that single steps have passed over because another source held them too.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// The block whose first entry it stands on, if no other source has a key among its entries.
    ///
    /// # Errors
    /// Damage found in the block.
    pub(crate) fn lone_block(&self) -> Result<Option<LoneBlock>> {
        let Some((handle, largest)) = self.root().begun_block()? else {
            return Ok(None);
        };
        // The second smallest key lies directly below the smallest.
        let mut others = (1..self.heap.len().min(3)).map(|at| self.sources[self.heap[at]].key());
        let is_alone = others.all(|other| other > largest.as_slice());
        Ok(is_alone.then(|| LoneBlock { source: self.heap[0], handle, largest }))
    }

    /// A lone block as it is stored.
    pub(crate) async fn load_raw(&mut self, block: &LoneBlock) -> Result<RawBlock> {
        self.sources[block.source].load_raw(block.handle).await
    }

    #[inline]
    fn root(&self) -> &Source {
        let root = self.heap.first().expect("the cursor stands on a cell");
        &self.sources[*root]
    }

    fn begin(&mut self) {
        self.heap.clear();
        self.waiting.clear();
        self.finding_row = false;
    }

    /// Ends a movement: the root is known, and its block at hand.
    #[inline]
    fn settle(&mut self) -> Result<MergeStep> {
        loop {
            if let Some(pending) = self.waiting.first() {
                return Ok(MergeStep::NeedBlock(pending.clone()));
            }
            if self.finding_row {
                self.gather_at_last_row()?;
                continue;
            }
            let Some(&root) = self.heap.first() else {
                return Ok(MergeStep::End);
            };
            let source = &self.sources[root];
            if !source.is_unopened() {
                return Ok(MergeStep::Cell);
            }
            if self.end.as_deref().is_some_and(|end| source.key() >= end) {
                return Ok(MergeStep::End);
            }
            let step = self.sources[root].open()?;
            self.replace(0, step);
        }
    }

    /// Each source stands on its own last row before the wanted place, if it has one. The last of
    /// these rows is the answer: all others go to its start, or to what they have after it.
    fn gather_at_last_row(&mut self) -> Result<()> {
        self.finding_row = false;
        let mut last: &[u8] = &[];
        for &i in &self.heap {
            let key = self.sources[i].key();
            let row = key::row_prefix(key).ok_or_else(|| Error::CorruptCell {
                what: format!("a key without a row in {:?}", self.sources[i]),
            })?;
            last = last.max(row);
        }
        if last.is_empty() {
            return Ok(());
        }
        let last = last.to_vec();
        let stands = std::mem::take(&mut self.heap);
        for i in 0..self.sources.len() {
            let source = &mut self.sources[i];
            let there = stands.contains(&i) && source.key().starts_with(&last);
            let step = if there { Step::Cell } else { source.seek(&last)? };
            self.place(i, step);
        }
        Ok(())
    }

    /// Moves every source that stands on the current key.
    #[inline]
    fn leave_key(&mut self) -> Result<()> {
        while let Some(place) = self.twin_of_root() {
            self.repeated += 1;
            self.step_source(place)?;
        }
        self.step_source(0)
    }

    /// A place in the heap, besides the root, that stands on the root's key.
    #[inline]
    fn twin_of_root(&self) -> Option<usize> {
        // Keys equal to the smallest lie directly below it.
        (1..self.heap.len().min(3))
            .find(|&place| self.sources[self.heap[place]].key() == self.root().key())
    }

    #[inline]
    fn step_source(&mut self, place: usize) -> Result<()> {
        let step = self.sources[self.heap[place]].next()?;
        self.replace(place, step);
        Ok(())
    }

    /// Files a source that is not in the heap.
    fn place(&mut self, source: usize, step: Step) {
        if let (Some(row), Some(met)) = (&self.row, self.met.get_mut(source))
            && !matches!(step, Step::NeedBlock(_))
        {
            let meets = step == Step::Cell && self.sources[source].key().starts_with(row);
            *met = Some(meets || *met == Some(true));
        }
        match step {
            Step::Cell => {
                self.heap.push(source);
                self.sift_up(self.heap.len() - 1);
            }
            Step::End => {}
            Step::NeedBlock(handle) => self.waiting.push(PendingBlock { source, handle }),
        }
    }

    /// Files a source anew that is in the heap and has moved forward.
    #[inline]
    fn replace(&mut self, place: usize, step: Step) {
        if step == Step::Cell {
            self.sift_down(place);
            return;
        }
        let source = self.heap.swap_remove(place);
        if place < self.heap.len() {
            // What came from the end of the heap may belong on either side.
            self.sift_up(place);
            self.sift_down(place);
        }
        self.place(source, step);
    }

    #[inline]
    fn is_before(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.heap[a], self.heap[b]);
        let order = self.sources[a].key().cmp(self.sources[b].key());
        order.then(a.cmp(&b)).is_lt()
    }

    fn sift_up(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if !self.is_before(place, parent) {
                return;
            }
            self.heap.swap(place, parent);
            place = parent;
        }
    }

    #[inline]
    fn sift_down(&mut self, mut place: usize) {
        loop {
            let mut least = 2 * place + 1;
            if least >= self.heap.len() {
                return;
            }
            if least + 1 < self.heap.len() && self.is_before(least + 1, least) {
                least += 1;
            }
            if !self.is_before(least, place) {
                return;
            }
            self.heap.swap(place, least);
            place = least;
        }
    }
}
