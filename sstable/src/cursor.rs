//! A position in a table that moves without waiting.
//!
//! A step is synchronous. When it needs a block that is neither at hand nor cached it answers
//! [`Step::NeedBlock`]; the driver loads the block, supplies it, and resumes:
//!
//! ```text
//! seek / next / prev_row ──► Cell | End
//!            │
//!            └► NeedBlock(h) ── load(h).await ── resume() ──► …
//! ```
//!
//! Each movement is a small machine whose states ([`Plan`]) can be run again from their beginning:
//! resuming repeats the searches of the state that lacked a block, which costs nothing beside the
//! read. Invariant: `key` and `value` are meaningful only after `Cell`.

use std::sync::Arc;

use types::key;

use crate::block::{Block, BlockCursor, Bound};
use crate::error::{Malformed, Result};
use crate::frame::{BlockHandle, BlockKind};
use crate::index;
use crate::raw::RawBlock;
use crate::read_ahead::ReadAhead;
use crate::table::Table;
use crate::value::{StoredValue, ValueRef};

/// What a movement of a cursor came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The cursor stands on an entry.
    Cell,
    /// There is none in that direction.
    End,
    /// Load this block, supply it, and resume.
    NeedBlock(BlockHandle),
}

/// The rest of a movement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// None: the cursor stands still.
    Rest,
    /// To the first entry at or after the target.
    Seek,
    /// To the first entry of the next block.
    NextBlock,
    /// The top index stands on the partition whose first block is wanted.
    FirstOfPartition,
    /// The partition stands on the block whose first entry is wanted.
    FirstOfBlock,
    /// To the last entry before the target, then to the first of its row.
    Before,
    /// The same, for all entries of the blocks before this one.
    PrevBlock,
    /// The top index stands on the partition whose last block is wanted.
    LastOfPartition,
    /// The partition stands on the block whose last entry is wanted.
    LastOfBlock,
    /// The block stands on an entry whose row's first entry is wanted.
    RowStart,
}

enum Turn {
    Go(Plan),
    Stop(Step),
}

/// A cursor in a block that may be changed for another one.
#[derive(Default)]
struct Level {
    handle: Option<BlockHandle>,
    cursor: BlockCursor,
}

impl Level {
    /// Where in the file its block is.
    fn offset(&self) -> u64 {
        self.handle.map_or(0, |handle| handle.offset)
    }
}

/// A position in a table; see the module's description.
pub struct TableCursor {
    table: Arc<Table>,
    fill_cache: bool,
    top: BlockCursor,
    partition: Level,
    data: Level,
    supplied: Option<(BlockHandle, Block)>,
    target: Vec<u8>,
    plan: Plan,
    on_cell: bool,
    stored: StoredValue,
    /// Nobody wants a key at or past it.
    end: Option<Vec<u8>>,
    read_ahead: ReadAhead,
}

impl TableCursor {
    pub(crate) fn new(table: Arc<Table>, fill_cache: bool) -> TableCursor {
        let top = BlockCursor::new(table.top_index().clone());
        TableCursor {
            table,
            fill_cache,
            top,
            partition: Level::default(),
            data: Level::default(),
            supplied: None,
            target: Vec::new(),
            plan: Plan::Rest,
            on_cell: false,
            stored: StoredValue::default(),
            end: None,
            read_ahead: ReadAhead::default(),
        }
    }

    /// The same cursor for somebody who wants no key at or past `end`: on its way forward it enters
    /// no block that has only such keys, as far as the index tells. It may still show some.
    #[must_use]
    pub fn ending_before(mut self, end: Option<Vec<u8>>) -> TableCursor {
        self.end = end;
        self
    }

    /// Moves to the first entry at or after `key`, which may be any bytes.
    ///
    /// # Errors
    /// `Corrupt`; then the cursor must be sought anew.
    pub fn seek(&mut self, key: &[u8]) -> Result<Step> {
        self.on_cell = false;
        if key > self.table.properties().largest.as_slice() {
            self.plan = Plan::Rest;
            return Ok(Step::End);
        }
        self.target.clear();
        self.target.extend_from_slice(key);
        self.plan = Plan::Seek;
        self.run()
    }

    /// Moves from an entry to the next one. After `End` it stays there.
    ///
    /// # Errors
    /// `Corrupt`; then the cursor must be sought anew.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its item")]
    pub fn next(&mut self) -> Result<Step> {
        assert!(self.plan == Plan::Rest, "a movement is not finished");
        if !self.on_cell {
            return Ok(Step::End);
        }
        self.on_cell = false;
        match self.data.cursor.next() {
            Ok(true) => self.arrive(),
            Ok(false) => {
                self.plan = Plan::NextBlock;
                self.run()
            }
            Err(malformed) => Err(self.table.corrupt(self.data.offset(), malformed)),
        }
    }

    /// Moves to the first entry of the row that has the last entry before `before`: given a row's
    /// prefix, to the start of the row before it. `before` may be any bytes.
    ///
    /// # Errors
    /// `Corrupt`; then the cursor must be sought anew.
    pub fn prev_row(&mut self, before: &[u8]) -> Result<Step> {
        self.on_cell = false;
        self.target.clear();
        self.target.extend_from_slice(before);
        self.plan = Plan::Before;
        self.run()
    }

    /// Loads the block that [`Step::NeedBlock`] asked for; then the movement is resumed. Dropping
    /// the call half-way changes nothing.
    ///
    /// A cursor that does not fill the cache reads ahead when it is asked for blocks in order.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`; then the cursor must be sought anew.
    pub async fn load(&mut self, handle: BlockHandle) -> Result<()> {
        let block = if self.fill_cache || handle.kind != BlockKind::Data {
            self.table.load(handle, self.fill_cache).await?
        } else {
            self.table.load_in_order(handle, &mut self.read_ahead).await?
        };
        self.supplied = Some((handle, block));
        Ok(())
    }

    /// Goes on with the movement that needed a block.
    ///
    /// # Errors
    /// `Corrupt`; then the cursor must be sought anew.
    pub fn resume(&mut self) -> Result<Step> {
        assert!(self.plan != Plan::Rest, "no movement to resume");
        self.run()
    }

    /// Loads the block asked for and resumes: all a driver without other cursors needs.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`; then the cursor must be sought anew.
    pub async fn load_and_resume(&mut self, handle: BlockHandle) -> Result<Step> {
        self.load(handle).await?;
        self.resume()
    }

    /// The entry's key. The cursor stands on one: asserted in debug builds.
    #[inline]
    pub fn key(&self) -> &[u8] {
        debug_assert!(self.on_cell, "the cursor stands on no entry");
        self.data.cursor.key()
    }

    /// The entry's value. The cursor stands on one: asserted in debug builds.
    #[inline]
    pub fn value(&self) -> ValueRef<'_> {
        debug_assert!(self.on_cell, "the cursor stands on no entry");
        if self.data.cursor.is_stored() {
            return ValueRef::Stored(&self.stored);
        }
        ValueRef::Inline(self.data.cursor.value())
    }

    /// The block whose first entry the cursor stands on, and that block's largest key.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn begun_block(&self) -> Result<Option<(BlockHandle, Vec<u8>)>> {
        let Some(handle) = self.data.handle.filter(|_| self.data.cursor.is_first()) else {
            return Ok(None);
        };
        let largest = self.at(self.data.cursor.largest_key(), handle.offset)?;
        Ok(self.on_cell.then_some((handle, largest)))
    }

    /// Reads and checks the data block that the cursor stands in, as it is stored: to be taken over
    /// by another table. That `handle` is this block's is asserted.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`.
    pub async fn load_raw(&mut self, handle: BlockHandle) -> Result<RawBlock> {
        assert_eq!(self.data.handle, Some(handle), "the block that the cursor stands in");
        // Both come from stored bytes with this checksum, so they are the same.
        let block = self.data.cursor.block().clone();
        self.table.load_raw(handle, block, &mut self.read_ahead).await
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Runs the plan to its end or to a block that is missing.
    fn run(&mut self) -> Result<Step> {
        loop {
            let turn = match self.plan {
                Plan::Rest => Turn::Stop(Step::End),
                Plan::Seek => self.seek_target()?,
                Plan::NextBlock => self.next_block()?,
                Plan::FirstOfPartition => self.first_of_partition()?,
                Plan::FirstOfBlock => self.first_of_block()?,
                Plan::Before => self.seek_before_target()?,
                Plan::PrevBlock => self.prev_block()?,
                Plan::LastOfPartition => self.last_of_partition()?,
                Plan::LastOfBlock => self.last_of_block()?,
                Plan::RowStart => self.row_start()?,
            };
            match turn {
                Turn::Go(plan) => self.plan = plan,
                Turn::Stop(need @ Step::NeedBlock(_)) => return Ok(need),
                Turn::Stop(Step::End) => {
                    self.plan = Plan::Rest;
                    return Ok(Step::End);
                }
                Turn::Stop(Step::Cell) => {
                    self.plan = Plan::Rest;
                    return self.arrive();
                }
            }
        }
    }

    fn seek_target(&mut self) -> Result<Turn> {
        let found = self.top.seek_last(&self.target, Bound::AtOrBelow);
        let found = found.and_then(|found| if found { Ok(true) } else { self.top.first() });
        self.must(found, self.top_offset())?;
        if let Some(need) = self.enter_partition()? {
            return Ok(need);
        }
        let partition = &mut self.partition.cursor;
        let found = partition.seek_last(&self.target, Bound::AtOrBelow);
        let found = found.and_then(|found| if found { Ok(true) } else { partition.first() });
        self.must(found, self.partition.offset())?;
        if let Some(need) = self.enter_data()? {
            return Ok(need);
        }
        let found = self.data.cursor.seek(&self.target);
        match self.at(found, self.data.offset())? {
            true => Ok(Turn::Stop(Step::Cell)),
            false => Ok(Turn::Go(Plan::NextBlock)),
        }
    }

    fn next_block(&mut self) -> Result<Turn> {
        let found = self.partition.cursor.next();
        if self.at(found, self.partition.offset())? {
            return Ok(match self.is_past_end(self.partition.cursor.key()) {
                true => Turn::Stop(Step::End),
                false => Turn::Go(Plan::FirstOfBlock),
            });
        }
        let found = self.top.next();
        let more = self.at(found, self.top_offset())? && !self.is_past_end(self.top.key());
        Ok(if more { Turn::Go(Plan::FirstOfPartition) } else { Turn::Stop(Step::End) })
    }

    /// Are all keys from this separator on at or past the end?
    fn is_past_end(&self, separator: &[u8]) -> bool {
        self.end.as_deref().is_some_and(|end| separator >= end)
    }

    fn first_of_partition(&mut self) -> Result<Turn> {
        if let Some(need) = self.enter_partition()? {
            return Ok(need);
        }
        let found = self.partition.cursor.first();
        self.must(found, self.partition.offset())?;
        Ok(Turn::Go(Plan::FirstOfBlock))
    }

    fn first_of_block(&mut self) -> Result<Turn> {
        if let Some(need) = self.enter_data()? {
            return Ok(need);
        }
        let found = self.data.cursor.first();
        self.must(found, self.data.offset())?;
        Ok(Turn::Stop(Step::Cell))
    }

    fn seek_before_target(&mut self) -> Result<Turn> {
        let found = self.top.seek_last(&self.target, Bound::Below);
        if !self.at(found, self.top_offset())? {
            return Ok(Turn::Stop(Step::End));
        }
        if let Some(need) = self.enter_partition()? {
            return Ok(need);
        }
        let found = self.partition.cursor.seek_last(&self.target, Bound::Below);
        self.must(found, self.partition.offset())?;
        if let Some(need) = self.enter_data()? {
            return Ok(need);
        }
        let found = self.data.cursor.seek_last(&self.target, Bound::Below);
        match self.at(found, self.data.offset())? {
            true => Ok(Turn::Go(Plan::RowStart)),
            false => Ok(Turn::Go(Plan::PrevBlock)),
        }
    }

    fn prev_block(&mut self) -> Result<Turn> {
        let found = self.partition.cursor.prev();
        if self.at(found, self.partition.offset())? {
            return Ok(Turn::Go(Plan::LastOfBlock));
        }
        let found = self.top.prev();
        match self.at(found, self.top_offset())? {
            true => Ok(Turn::Go(Plan::LastOfPartition)),
            false => Ok(Turn::Stop(Step::End)),
        }
    }

    fn last_of_partition(&mut self) -> Result<Turn> {
        if let Some(need) = self.enter_partition()? {
            return Ok(need);
        }
        let found = self.partition.cursor.last();
        self.must(found, self.partition.offset())?;
        Ok(Turn::Go(Plan::LastOfBlock))
    }

    fn last_of_block(&mut self) -> Result<Turn> {
        if let Some(need) = self.enter_data()? {
            return Ok(need);
        }
        let found = self.data.cursor.last();
        self.must(found, self.data.offset())?;
        Ok(Turn::Go(Plan::RowStart))
    }

    fn row_start(&mut self) -> Result<Turn> {
        let Some(row) = key::row_prefix(self.data.cursor.key()) else {
            return Err(self.table.corrupt(self.data.offset(), Malformed("a key without a row")));
        };
        self.target.clear();
        self.target.extend_from_slice(row);
        Ok(Turn::Go(Plan::Seek))
    }

    /// Makes the partition that the top index stands on the current one.
    fn enter_partition(&mut self) -> Result<Option<Turn>> {
        let kind = BlockKind::IndexPartition;
        let handle = index::handle(self.top.value(), kind, self.table.end_max(kind));
        let handle =
            handle.map_err(|malformed| self.table.corrupt(self.top_offset(), malformed))?;
        Ok(enter(&self.table, &mut self.supplied, &mut self.partition, handle))
    }

    /// Makes the data block that the partition stands on the current one.
    fn enter_data(&mut self) -> Result<Option<Turn>> {
        let kind = BlockKind::Data;
        let handle = index::handle(self.partition.cursor.value(), kind, self.table.end_max(kind));
        let offset = self.partition.offset();
        let handle = handle.map_err(|malformed| self.table.corrupt(offset, malformed))?;
        Ok(enter(&self.table, &mut self.supplied, &mut self.data, handle))
    }

    /// Reads the handle of a stored value on arrival at an entry, so that `value` cannot fail.
    #[inline]
    fn arrive(&mut self) -> Result<Step> {
        if self.data.cursor.is_stored() {
            let data_end = self.table.footer().data_end;
            let decoded = self.stored.decode_from(self.data.cursor.value(), data_end);
            decoded.map_err(|malformed| self.table.corrupt(self.data.offset(), malformed))?;
        }
        self.on_cell = true;
        Ok(Step::Cell)
    }

    fn top_offset(&self) -> u64 {
        self.table.footer().top_index.offset
    }

    fn at<T>(&self, found: std::result::Result<T, Malformed>, offset: u64) -> Result<T> {
        found.map_err(|malformed| self.table.corrupt(offset, malformed))
    }

    /// The search must have found an entry.
    fn must(&self, found: std::result::Result<bool, Malformed>, offset: u64) -> Result<()> {
        match self.at(found, offset)? {
            true => Ok(()),
            false => Err(self.table.corrupt(offset, Malformed("an index contradicts itself"))),
        }
    }
}

/// Makes `handle`'s block the level's, from what was supplied or from the cache; else says that it
/// is needed.
fn enter(
    table: &Table,
    supplied: &mut Option<(BlockHandle, Block)>,
    level: &mut Level,
    handle: BlockHandle,
) -> Option<Turn> {
    if level.handle == Some(handle) {
        return None;
    }
    let block = match supplied.take_if(|(supplied, _)| *supplied == handle) {
        Some((_, block)) => Some(block),
        None => table.cached(handle),
    };
    let Some(block) = block else {
        return Some(Turn::Stop(Step::NeedBlock(handle)));
    };
    level.cursor.enter(block);
    level.handle = Some(handle);
    None
}
