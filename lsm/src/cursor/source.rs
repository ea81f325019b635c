use std::sync::Arc;

use sstable::{BlockHandle, RawBlock, Step, Table, TableCursor, ValueRef};
use types::{RowRange, SeqNo, key};

use crate::Result;
use crate::memtable::MemtableCursor;

/// A cursor in one memtable or table.
#[derive(Debug)]
pub struct Source(Kind);

enum Kind {
    Memtable(MemtableCursor),
    Table(Box<Clipped>),
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Memtable(cursor) => cursor.fmt(f),
            Kind::Table(table) => write!(f, "table {}", table.cursor.table().file()),
        }
    }
}

/// A cursor in a table of which only some rows count.
struct Clipped {
    cursor: TableCursor,
    /// Encoded positions: keys before `low`, or at or past `high`, are not there.
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    /// It stands on the table's smallest key, which the properties tell; no block was touched.
    unopened: bool,
}

impl Source {
    /// A cursor in a memtable.
    pub fn memtable(cursor: MemtableCursor) -> Source {
        Source(Kind::Memtable(cursor))
    }

    /// A cursor in those rows of a table that lie in `rows`.
    pub fn table(cursor: TableCursor, rows: &RowRange) -> Source {
        let encoded = |row: &[u8]| {
            let mut out = Vec::new();
            key::put_row_start(&mut out, row);
            out
        };
        let (mut low, mut high) = (encoded(&rows.start), rows.end.as_ref().map(|end| encoded(end)));
        // Bounds that leave nothing of the table out need not be looked at again.
        let properties = cursor.table().properties();
        if low <= properties.smallest {
            low.clear();
        }
        if high.as_ref().is_some_and(|high| *high > properties.largest) {
            high = None;
        }
        Source(Kind::Table(Box::new(Clipped { cursor, low, high, unopened: false })))
    }

    /// Is it a table?
    pub(super) fn is_table(&self) -> bool {
        matches!(self.0, Kind::Table(_))
    }

    /// To the first key at or after `key`.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<Step> {
        match &mut self.0 {
            Kind::Memtable(cursor) => Ok(found(cursor.seek(key))),
            Kind::Table(table) => table.seek(key),
        }
    }

    /// From a key to the next one.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Step> {
        match &mut self.0 {
            Kind::Memtable(cursor) => Ok(found(cursor.next())),
            Kind::Table(table) => table.next(),
        }
    }

    /// To the first key of the last row before `before`.
    pub(super) fn prev_row(&mut self, before: &[u8]) -> Result<Step> {
        match &mut self.0 {
            Kind::Memtable(cursor) => Ok(found(cursor.prev_row(before))),
            Kind::Table(table) => table.prev_row(before),
        }
    }

    /// Does it stand on a key whose block was not looked up yet? Then [`Source::open`] comes
    /// before [`Source::value`].
    #[inline]
    pub(super) fn is_unopened(&self) -> bool {
        match &self.0 {
            Kind::Memtable(_) => false,
            Kind::Table(table) => table.unopened,
        }
    }

    /// Looks up the block of the key that it stands on.
    pub(super) fn open(&mut self) -> Result<Step> {
        match &mut self.0 {
            Kind::Memtable(_) => Ok(Step::Cell),
            Kind::Table(table) => table.open(),
        }
    }

    /// Loads the block that it waits for.
    pub(super) async fn load(&mut self, handle: BlockHandle) -> Result<()> {
        match &mut self.0 {
            Kind::Memtable(_) => unreachable!("memtables need no blocks"),
            Kind::Table(table) => Ok(table.cursor.load(handle).await?),
        }
    }

    /// Reads a block of it as it is stored.
    pub(super) async fn load_raw(&mut self, handle: BlockHandle) -> Result<RawBlock> {
        match &mut self.0 {
            Kind::Memtable(_) => unreachable!("memtables have no blocks"),
            Kind::Table(table) => Ok(table.cursor.load_raw(handle).await?),
        }
    }

    pub(super) fn resume(&mut self) -> Result<Step> {
        match &mut self.0 {
            Kind::Memtable(_) => unreachable!("memtables need no blocks"),
            Kind::Table(table) => {
                let step = table.cursor.resume()?;
                Ok(table.clip(step))
            }
        }
    }

    /// The key that it stands on.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        match &self.0 {
            Kind::Memtable(cursor) => cursor.key(),
            Kind::Table(table) => table.key(),
        }
    }

    /// The value that it stands on.
    #[inline]
    pub(super) fn value(&self) -> ValueRef<'_> {
        match &self.0 {
            Kind::Memtable(cursor) => ValueRef::Inline(cursor.value()),
            Kind::Table(table) => table.cursor.value(),
        }
    }

    /// The table that it is in; `None` for a memtable.
    pub(super) fn in_table(&self) -> Option<&Arc<Table>> {
        match &self.0 {
            Kind::Memtable(_) => None,
            Kind::Table(table) => Some(table.cursor.table()),
        }
    }

    /// The block whose first entry it stands on, and that block's largest key, if all of the block
    /// is inside the clip.
    pub(super) fn begun_block(&self) -> Result<Option<(BlockHandle, Vec<u8>)>> {
        let Kind::Table(table) = &self.0 else {
            return Ok(None);
        };
        let begun = table.cursor.begun_block()?;
        let is_inside = |largest: &Vec<u8>| table.high.as_ref().is_none_or(|high| largest < high);
        Ok(begun.filter(|(_, largest)| is_inside(largest)))
    }

    /// No cell in it has a larger number; for an active memtable, none that a view pinned before
    /// can see.
    pub(super) fn largest_seq(&self) -> SeqNo {
        match &self.0 {
            Kind::Memtable(cursor) => cursor.memtable().largest_seq(),
            Kind::Table(table) => table.cursor.table().properties().largest_seq,
        }
    }
}

fn found(on_cell: bool) -> Step {
    if on_cell { Step::Cell } else { Step::End }
}

impl Clipped {
    fn seek(&mut self, key: &[u8]) -> Result<Step> {
        self.unopened = false;
        let target = key.max(&self.low);
        let smallest = self.smallest();
        let is_past = |key: &[u8]| self.high.as_deref().is_some_and(|high| key >= high);
        if is_past(target) {
            return Ok(Step::End);
        }
        if target <= smallest {
            if is_past(smallest) {
                return Ok(Step::End);
            }
            // A table whose turn never comes is never read.
            self.unopened = true;
            return Ok(Step::Cell);
        }
        let step = self.cursor.seek(target)?;
        Ok(self.clip(step))
    }

    fn open(&mut self) -> Result<Step> {
        assert!(self.unopened, "the table is open");
        self.unopened = false;
        let smallest = self.smallest().to_vec();
        let step = self.cursor.seek(&smallest)?;
        Ok(self.clip(step))
    }

    #[inline]
    fn next(&mut self) -> Result<Step> {
        if self.unopened {
            self.unopened = false;
            let mut after = self.smallest().to_vec();
            after.push(0);
            let step = self.cursor.seek(&after)?;
            return Ok(self.clip(step));
        }
        let step = self.cursor.next()?;
        Ok(self.clip(step))
    }

    fn prev_row(&mut self, before: &[u8]) -> Result<Step> {
        self.unopened = false;
        let before = match &self.high {
            Some(high) => before.min(high),
            None => before,
        };
        let step = self.cursor.prev_row(before)?;
        Ok(self.clip(step))
    }

    /// Clips are row bounds: a row's first key is inside just when the row is.
    #[inline]
    fn clip(&self, step: Step) -> Step {
        if step != Step::Cell {
            return step;
        }
        let key = self.cursor.key();
        let inside = key >= &self.low[..] && self.high.as_deref().is_none_or(|high| key < high);
        found(inside)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        if self.unopened {
            return self.smallest();
        }
        self.cursor.key()
    }

    fn smallest(&self) -> &[u8] {
        &self.cursor.table().properties().smallest
    }
}
