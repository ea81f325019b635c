use std::sync::Arc;

use sstable::{Table, ValueRef};
use types::{FamilyId, RowRange, SeqNo, Timestamp, key};

use super::fold::Fold;
use super::place::{Place, Verdict};
use crate::Result;
use crate::collect::retention_allows;
use crate::cursor::{MergeCursor, MergeStep, PendingBlock};
use crate::rules::FamilyRules;

/// Steps in a row that one reason decides before a scan seeks past what it decides.
const STEPS_BEFORE_SEEK: u32 = 16;

/// What a step of a scan came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// The scan stands on a visible cell.
    Cell,
    /// There is no further cell.
    End,
    /// A block is missing: [`Scan::load`] it, then step again.
    NeedBlock,
}

/// A cell that a reader sees.
#[derive(Clone, Copy)]
pub struct VisibleCell<'a> {
    /// The row, escaped and with its end mark (see [`key::row_prefix`]): equal for cells of one
    /// row.
    pub row_prefix: &'a [u8],
    /// Row, family and qualifier: equal for cells of one column.
    pub column_prefix: &'a [u8],
    /// The column's family.
    pub family: FamilyId,
    /// The cell's timestamp.
    pub timestamp: Timestamp,
    /// The cell's content, or where it is.
    pub value: ValueRef<'a>,
    /// The table that holds the value: pieces of a stored one are read from it.
    pub table: Option<&'a Arc<Table>>,
}

impl VisibleCell<'_> {
    /// Appends the plain row to `out`.
    pub fn row_into(&self, out: &mut Vec<u8>) {
        key::unescape_row_into(out, self.row_prefix);
    }

    /// Appends the plain qualifier to `out`.
    pub fn qualifier_into(&self, out: &mut Vec<u8>) {
        // Between them stand the family's four bytes and the mark.
        key::unescape_row_into(out, &self.column_prefix[self.row_prefix.len() + 5..]);
    }
}

/// What a scan has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanCounts {
    /// Keys looked at, the visible ones among them.
    pub keys: u64,
    /// Cells seen.
    pub visible: u64,
    /// Seeks instead of further steps.
    pub seeks: u64,
    /// Blocks that were not at hand.
    pub loads: u64,
}

/// What the merge cursor is to do next.
#[derive(Debug)]
enum Movement {
    Start,
    Next,
    SkipTo,
    SkipOlder(SeqNo),
    /// To the row before the current one.
    PrevRow,
    Resume,
    /// It stands on a key that is still to be judged: a folded cell was shown before.
    Here,
    /// It has no further key: a folded cell was shown before.
    AtEnd,
    /// Nowhere: the scan is over.
    Rest,
}

/// A scan that begins at a column: what it still has to read first.
#[derive(Debug)]
struct Entering {
    family_prefix: Vec<u8>,
    column_prefix: Vec<u8>,
    /// The row's tombstones are read, and the family's are next.
    row_is_read: bool,
}

/// The visible cells of some rows, in order. Rows ascend, or descend if it was made so; within a
/// row the order is always that of keys.
#[derive(Debug)]
pub struct Scan {
    merge: MergeCursor,
    at: SeqNo,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    descends: bool,
    /// The movement under way goes to an earlier row.
    backward: bool,
    movement: Movement,
    pending: Option<PendingBlock>,
    entering: Option<Entering>,
    place: Place,
    fold: Fold,
    /// What cells are as old by, µs; `None`: nothing is too old.
    now_micros: Option<i64>,
    counts: ScanCounts,
}

impl Scan {
    /// Will scan `rows` as of `at`. Families that the rules do not know are not there.
    pub fn new(merge: MergeCursor, rows: &RowRange, at: SeqNo, rules: &Arc<FamilyRules>) -> Scan {
        let encoded = |row: &[u8]| {
            let mut out = Vec::new();
            key::put_row_start(&mut out, row);
            out
        };
        let high = rows.end.as_ref().map(|end| encoded(end));
        Scan::between(merge, encoded(&rows.start), high, at, rules)
    }

    /// The same for rows that are given as positions of encoded keys.
    pub(crate) fn between(
        merge: MergeCursor,
        low: Vec<u8>,
        high: Option<Vec<u8>>,
        at: SeqNo,
        rules: &Arc<FamilyRules>,
    ) -> Scan {
        Scan {
            merge: merge.ending_before(high.clone()),
            at,
            low,
            high,
            descends: false,
            backward: false,
            movement: Movement::Start,
            pending: None,
            entering: None,
            place: Place::new(Arc::clone(rules), STEPS_BEFORE_SEEK),
            fold: Fold::default(),
            now_micros: None,
            counts: ScanCounts::default(),
        }
    }

    /// The same scan with its rows in descending order. Not begun yet.
    #[must_use]
    pub fn descending(mut self) -> Scan {
        assert!(matches!(self.movement, Movement::Start), "the scan has begun");
        self.descends = true;
        self
    }

    /// The same scan, of a range whose merges drop what retention allows by this time, µs: it does
    /// not show folded cells that they may drop. Merges drop the operands of such a cell one after
    /// the other, and what is left of them is not what was added. (Other cells go at once.)
    #[must_use]
    pub fn as_of(mut self, now_micros: i64) -> Scan {
        self.now_micros = Some(now_micros);
        self
    }

    /// The same scan, seeking after `steps` in a row that one reason decides; at least one.
    #[must_use]
    pub fn seeking_after(mut self, steps: u32) -> Scan {
        self.place.steps_before_seek = steps.max(1);
        self
    }

    /// Moves on until a visible cell, the end, or a block that is missing.
    ///
    /// # Errors
    /// Damage found in a table. The scan is over then.
    pub fn step(&mut self) -> Result<ScanStep> {
        if self.pending.is_some() {
            return Ok(ScanStep::NeedBlock);
        }
        loop {
            match self.run_movement() {
                Ok(Some(step)) => return Ok(step),
                Ok(None) => {}
                Err(error) => {
                    self.movement = Movement::Rest;
                    return Err(error);
                }
            }
        }
    }

    /// Loads the block that a step was missing. Dropping the call half-way changes nothing.
    ///
    /// # Errors
    /// A failed read, or damage found in the block.
    pub async fn load(&mut self) -> Result<()> {
        if let Some(pending) = &self.pending {
            self.merge.load(pending).await?;
            self.pending = None;
            self.counts.loads += 1;
        }
        Ok(())
    }

    /// Moves to the next visible cell, loading what is missing. `false`: there is none.
    ///
    /// # Errors
    /// A failed read, or damage found in a table.
    pub async fn next(&mut self) -> Result<bool> {
        loop {
            match self.step()? {
                ScanStep::Cell => return Ok(true),
                ScanStep::End => return Ok(false),
                ScanStep::NeedBlock => self.load().await?,
            }
        }
    }

    /// The cell that it stands on.
    #[inline]
    pub fn cell(&self) -> VisibleCell<'_> {
        let (value, table) = match self.fold.shown() {
            Some(folded) => (ValueRef::Inline(folded), None),
            None => (self.merge.value(), self.merge.table()),
        };
        VisibleCell {
            row_prefix: self.place.row(),
            column_prefix: self.place.column(),
            family: self.place.family(),
            timestamp: self.place.timestamp(),
            value,
            table,
        }
    }

    /// Leaves the current row: the next cell is of another one.
    pub fn skip_row(&mut self) {
        let on_cell = matches!(self.movement, Movement::Next) || self.fold.shown().is_some();
        assert!(on_cell, "the scan stands on a cell");
        self.movement = if self.descends {
            Movement::PrevRow
        } else {
            self.place.target_row_end();
            Movement::SkipTo
        };
    }

    /// Leaves the current column: the next cell is of another one.
    pub fn skip_column(&mut self) {
        let on_cell = matches!(self.movement, Movement::Next) || self.fold.shown().is_some();
        assert!(on_cell, "the scan stands on a cell");
        self.place.target_column_end();
        self.movement = Movement::SkipTo;
    }

    /// Goes to the first visible cell at or after the start of a column, forward only. The
    /// tombstones of its row and family are read first, so what they hide stays hidden.
    pub fn seek_column(&mut self, row: &[u8], family: FamilyId, qualifier: &[u8]) {
        assert!(!self.descends, "a scan in descending order stays on its way");
        let mut row_prefix = Vec::new();
        key::put_row_prefix(&mut row_prefix, row);
        let mut column_prefix = Vec::new();
        key::put_column_prefix(&mut column_prefix, row, family, qualifier);
        let mut family_prefix = row_prefix.clone();
        family_prefix.extend_from_slice(&family.get().to_be_bytes());
        self.entering = Some(Entering { family_prefix, column_prefix, row_is_read: false });
        self.place.enter_row(&row_prefix);
        self.low = self.low.as_slice().max(&row_prefix).to_vec();
        self.pending = None;
        self.fold.abandon();
        self.movement = Movement::Start;
    }

    /// It sees everything up to this number, and nothing after.
    pub fn seq(&self) -> SeqNo {
        self.at
    }

    /// What it has done so far.
    pub fn counts(&self) -> ScanCounts {
        self.counts
    }

    /// Does one movement of the merge cursor. `None`: another one follows.
    fn run_movement(&mut self) -> Result<Option<ScanStep>> {
        self.fold.leave();
        let merged = match std::mem::replace(&mut self.movement, Movement::Rest) {
            Movement::Start if self.descends => {
                self.backward = true;
                match &self.high {
                    Some(high) => self.merge.prev_row(high)?,
                    None => self.merge.prev_row(&past_all_rows())?,
                }
            }
            Movement::Start => self.merge.seek(&self.low)?,
            Movement::Next => self.merge.next()?,
            Movement::SkipTo => {
                self.counts.seeks += 1;
                self.merge.skip_to(&self.place.target)?
            }
            Movement::SkipOlder(seq) => {
                self.counts.seeks += 1;
                self.merge.skip_older(&self.place.target, seq)?
            }
            Movement::PrevRow => {
                self.backward = true;
                self.merge.prev_row(self.place.row())?
            }
            Movement::Resume => self.merge.resume()?,
            Movement::Here => return self.arrive(),
            Movement::AtEnd => return self.end_of_keys(),
            Movement::Rest => return Ok(Some(ScanStep::End)),
        };
        match merged {
            MergeStep::NeedBlock(pending) => {
                self.pending = Some(pending);
                self.movement = Movement::Resume;
                Ok(Some(ScanStep::NeedBlock))
            }
            MergeStep::End => self.end_of_keys(),
            MergeStep::Cell => self.arrive(),
        }
    }

    /// No key follows: the end, or, in descending order, the end of the table's last row.
    fn end_of_keys(&mut self) -> Result<Option<ScanStep>> {
        if self.fold.is_open() {
            return Ok(self.show_folded(Movement::AtEnd));
        }
        if !self.descends || self.backward {
            return Ok(Some(ScanStep::End));
        }
        self.movement = Movement::PrevRow;
        Ok(None)
    }

    /// Decides over the key that the merge cursor stands on.
    fn arrive(&mut self) -> Result<Option<ScanStep>> {
        let key = self.merge.key();
        if self.fold.ends_before(key) {
            return Ok(self.show_folded(Movement::Here));
        }
        if self.descends {
            if self.backward && key < &self.low[..] {
                return Ok(Some(ScanStep::End));
            }
            if !self.backward && !key.starts_with(self.place.row()) {
                self.movement = Movement::PrevRow;
                return Ok(None);
            }
            self.backward = false;
        } else if self.high.as_deref().is_some_and(|high| key >= high) {
            return Ok(Some(ScanStep::End));
        }
        if let Some(target) = next_target(&mut self.entering, key, self.place.row()) {
            self.place.target = target;
            self.movement = Movement::SkipTo;
            return Ok(None);
        }
        self.counts.keys += 1;
        let verdict = self.place.judge(key, self.merge.value(), self.at)?;
        self.movement = match verdict {
            Verdict::Visible => {
                self.counts.visible += 1;
                self.movement = Movement::Next;
                return Ok(Some(ScanStep::Cell));
            }
            Verdict::Operand(how, operand) => {
                self.fold.take(key, how, operand);
                Movement::Next
            }
            Verdict::Pass => Movement::Next,
            Verdict::SkipTo => Movement::SkipTo,
            Verdict::SkipOlder(seq) => Movement::SkipOlder(seq),
        };
        Ok(None)
    }

    /// All operands of a cell were met: the scan stands on it, if it is shown, and goes on with
    /// `movement`.
    fn show_folded(&mut self, movement: Movement) -> Option<ScanStep> {
        self.fold.show();
        self.movement = movement;
        if self.may_be_parted() {
            return None;
        }
        self.counts.visible += 1;
        Some(ScanStep::Cell)
    }

    /// Does retention allow merges to drop the folded cell?
    fn may_be_parted(&self) -> bool {
        self.now_micros.is_some_and(|now| {
            let age = now.saturating_sub(self.place.timestamp().micros());
            let retention = self.place.retention();
            retention.is_some_and(|rule| retention_allows(rule, self.fold.newer(), age))
        })
    }
}

impl Drop for Scan {
    /// Tells the range's statistics what it has done.
    fn drop(&mut self) {
        if let Some(counters) = self.merge.counters() {
            counters.add_scan(&self.counts, self.merge.tables_in_vain());
        }
    }
}

/// Where a scan that begins at a column goes from `key`, if it has read enough here.
fn next_target(entering: &mut Option<Entering>, key: &[u8], row: &[u8]) -> Option<Vec<u8>> {
    let stage = entering.as_mut()?;
    let tombstones = if stage.row_is_read { &stage.family_prefix[..] } else { row };
    let is_tombstone = match types::key::kind_of(key) {
        Some(types::Kind::DeleteRow) => !stage.row_is_read,
        Some(types::Kind::DeleteFamily) => stage.row_is_read,
        _ => false,
    };
    if is_tombstone && key.starts_with(tombstones) {
        return None;
    }
    if !stage.row_is_read {
        stage.row_is_read = true;
        return Some(stage.family_prefix.clone());
    }
    entering.take().map(|stage| stage.column_prefix)
}

/// Sorts after every key: no row is this long.
pub(crate) fn past_all_rows() -> Vec<u8> {
    vec![0xff; types::limits::ROW_KEY_BYTES_MAX + 1]
}
