//! Collecting: which keys a merge writes, which it leaves out, and which it folds.
//!
//! A [`Collector`] is told the keys of a merge in order and says what becomes of each. It knows the
//! families' rules, the time, and which files outside the merge hold keys of a row.
//!
//! The *floor* of a row is the smallest sequence number that any file outside the merge may hold of
//! it (memtables hold larger numbers than every file). So the merge has everything of the row below
//! the floor: it knows the row as it was just before the floor's number was given.
//!
//! 1. A cell of a dropped family goes.
//! 2. A cell that a tombstone of the merge hides, that a later write in the merge overwrites, or a
//!    tombstone that others of the merge make needless, goes: what stands in for it stays, or goes
//!    by rule 3.
//! 3. A tombstone below the floor goes: there is nothing that it could hide.
//! 4. A visible cell below the floor goes if its family's retention allows it. Cells newer than it
//!    count as versions only if they are below the floor too: then all were visible at once, so
//!    that the cell was one too many at that moment. What is at or above the floor may have been
//!    deleted by a tombstone outside before the others were written, and proves nothing.
//! 5. The operands of one cell that no tombstone of the merge hides fold to one, which gets the
//!    newest key; but only over numbers among which no file outside has any of that row. So nothing
//!    that could part them is, or ever will be, anywhere else.
//!
//! What rule 4 keeps only because of the floor is counted as expired: a merge with the files below
//! will drop it. Whatever is dropped, nothing older can come back: neither now nor when a rule is
//! relaxed later.
//!
//! A cell that was once over its limit of versions may go though newer ones are deleted meanwhile.
//! Of an aggregate that retention lets go, operands in different files may go at different times:
//! so readers are not shown such cells ([`Scan::as_of`]). What is left of one comes to light when
//! the rule is relaxed before all are gone.
//! A clock that is moved back only keeps cells for longer.

mod outside;
mod retention;

pub(crate) use outside::{Outside, OutsideFile};
pub(crate) use retention::allows as retention_allows;

use env::planted::{PlantedBug, planted};
use sstable::ValueRef;
use types::{Aggregate, Kind, Retention, SeqNo, Timestamp};

use crate::Result;
#[cfg(doc)]
use crate::resolve::Scan;
use crate::resolve::position::{Entered, Position, Suffix, corrupt, operand_of, range_of};
use crate::rules::{FamilyRules, Standing};

/// What a merge has left out, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Keys that the merge met, each once.
    pub met: u64,
    /// Cells and tombstones of dropped families.
    pub of_dropped_families: u64,
    /// Cells that a tombstone hid.
    pub hidden: u64,
    /// Cells that a later write had overwritten.
    pub overwritten: u64,
    /// Cells that retention allowed to drop.
    pub expired: u64,
    /// Tombstones that had nothing more to hide.
    pub tombstones: u64,
    /// Operands that were folded into others.
    pub folded: u64,
    /// Bytes of keys and values of all these.
    pub bytes: u64,
    /// Bytes of keys and values that retention allowed to drop, but that had to stay.
    pub expired_bytes_left: u64,
}

impl Collected {
    /// Keys that were met and not written.
    pub fn left_out(&self) -> u64 {
        self.of_dropped_families
            + self.hidden
            + self.overwritten
            + self.expired
            + self.tombstones
            + self.folded
    }
}

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is written.
    Keep,
    /// It is written, though retention would drop it.
    KeepExpired,
    /// It is not written now: left out, or an operand that comes back in [`Collector::ready`].
    Pass,
}

/// One operand to be written: several, folded, or one as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operand {
    pub(crate) key: Vec<u8>,
    pub(crate) value: [u8; 8],
    pub(crate) is_expired: bool,
}

/// An operand that waits for those after it.
struct Held {
    operand: Operand,
    how: Aggregate,
    newest: SeqNo,
}

/// What was seen of the present column.
#[derive(Default)]
struct Column {
    /// The timestamp that a visible cell has decided, and whether that cell goes.
    decided: Option<(Timestamp, Verdict)>,
    /// Visible cells.
    visible: u64,
    /// Those of them that are below the floor, but for `first`.
    settled: u64,
    /// The first visible cell, as long as nobody asked for the floor.
    first: Option<SeqNo>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Stays,
    StaysExpired,
    Goes,
}

/// Says what becomes of the keys of a merge. See the module's words.
pub(crate) struct Collector<'a> {
    rules: &'a FamilyRules,
    now_micros: i64,
    outside: Outside,
    position: Position,
    standing: Standing<'a>,
    column: Column,
    held: Option<Held>,
    ready: Option<Operand>,
    counts: Collected,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(rules: &'a FamilyRules, outside: Outside, now_micros: i64) -> Collector<'a> {
        Collector {
            rules,
            now_micros,
            outside,
            position: Position::default(),
            standing: Standing::Unknown,
            column: Column::default(),
            held: None,
            ready: None,
            counts: Collected::default(),
        }
    }

    /// Takes the next key. Afterwards, [`Collector::ready`] comes before the key itself.
    ///
    /// # Errors
    /// A key or a value that is damaged, or not of its family's kind.
    pub(crate) fn push(&mut self, key: &[u8], value: ValueRef<'_>) -> Result<Fate> {
        assert!(self.ready.is_none(), "what is ready was taken");
        self.counts.met += 1;
        let (suffix, entered) = self.position.follow(key)?;
        if entered > Entered::Nothing {
            self.enter(entered);
        }
        if self.standing == Standing::Dropped {
            return Ok(self.leave_out(key, value, |counts| &mut counts.of_dropped_families));
        }
        match suffix.kind {
            Kind::Put => self.put(key, value, suffix),
            Kind::Add => self.add(key, value, suffix),
            Kind::DeleteRow | Kind::DeleteFamily | Kind::DeleteCells => {
                self.tombstone(key, value, suffix)
            }
        }
    }

    /// The operand to be written before anything else, if there is one.
    pub(crate) fn ready(&mut self) -> Option<Operand> {
        self.ready.take()
    }

    /// No key follows: an operand that waited is ready.
    pub(crate) fn finish(&mut self) {
        assert!(self.ready.is_none(), "what is ready was taken");
        self.release();
    }

    /// What was left out so far.
    pub(crate) fn counts(&self) -> Collected {
        self.counts
    }

    fn enter(&mut self, entered: Entered) {
        self.release();
        self.column = Column::default();
        if entered == Entered::Row {
            self.outside.enter_row(&self.position.row);
        }
        if entered >= Entered::Family {
            self.standing = match self.position.family {
                types::FamilyId::ROW => Standing::Unknown,
                family => self.rules.standing(family),
            };
        }
    }

    fn retention(&self) -> Option<&'a Retention> {
        match self.standing {
            Standing::Alive(rule) => rule.retention.as_ref(),
            Standing::Dropped | Standing::Unknown => None,
        }
    }

    fn tombstone(&mut self, key: &[u8], value: ValueRef<'_>, suffix: Suffix) -> Result<Fate> {
        let Suffix { seq, kind, .. } = suffix;
        let hiding = &mut self.position.hiding;
        let is_needless = match kind {
            Kind::DeleteRow => {
                let needless = hiding.row_hides(seq);
                hiding.delete_row(seq);
                needless
            }
            Kind::DeleteFamily => {
                let needless = hiding.family_hides(seq);
                hiding.delete_family(seq);
                needless
            }
            Kind::DeleteCells | Kind::Put | Kind::Add => {
                let range = range_of(key, value)?;
                hiding.family_hides(seq) || !hiding.delete_cells(seq, range)
            }
        };
        let is_last = seq < self.outside.floor() || planted(PlantedBug::DropTombstoneEarly);
        if is_needless || is_last {
            return Ok(self.leave_out(key, value, |counts| &mut counts.tombstones));
        }
        Ok(Fate::Keep)
    }

    fn put(&mut self, key: &[u8], value: ValueRef<'_>, suffix: Suffix) -> Result<Fate> {
        if let Standing::Alive(rule) = self.standing
            && rule.aggregate.is_some()
        {
            return Err(corrupt("a value among aggregates", key));
        }
        let Suffix { timestamp, seq, .. } = suffix;
        if self.position.hiding.hides(timestamp, seq).is_some() {
            return Ok(self.leave_out(key, value, |counts| &mut counts.hidden));
        }
        if self.column.decided.is_some_and(|(at, _)| at == timestamp) {
            return Ok(self.leave_out(key, value, |counts| &mut counts.overwritten));
        }
        Ok(match self.decide(timestamp, seq) {
            Verdict::Stays => Fate::Keep,
            Verdict::StaysExpired => {
                self.counts.expired_bytes_left += bytes(key, value.len());
                Fate::KeepExpired
            }
            Verdict::Goes => self.leave_out(key, value, |counts| &mut counts.expired),
        })
    }

    fn add(&mut self, key: &[u8], value: ValueRef<'_>, suffix: Suffix) -> Result<Fate> {
        let how = match self.standing {
            Standing::Alive(rule) => match rule.aggregate {
                Some(how) => Some(how),
                None => return Err(corrupt("an operand where values are put", key)),
            },
            Standing::Dropped | Standing::Unknown => None,
        };
        let number = operand_of(key, value)?;
        let Suffix { timestamp, seq, .. } = suffix;
        if self.position.hiding.hides(timestamp, seq).is_some() {
            return Ok(self.leave_out(key, value, |counts| &mut counts.hidden));
        }
        let (verdict, is_first) = match self.column.decided {
            Some((at, verdict)) if at == timestamp => (verdict, false),
            _ => (self.decide(timestamp, seq), true),
        };
        if verdict == Verdict::Goes {
            // The cell goes whole: its newest operand is below the floor, so the others are too.
            return Ok(self.leave_out(key, value, |counts| &mut counts.expired));
        }
        let Some(how) = how else {
            return Ok(Fate::Keep);
        };
        if !is_first && self.fold(number, seq) {
            return Ok(self.leave_out(key, value, |counts| &mut counts.folded));
        }
        self.release();
        let is_expired = verdict == Verdict::StaysExpired;
        let operand = Operand { key: key.to_vec(), value: number.to_be_bytes(), is_expired };
        self.held = Some(Held { operand, how, newest: seq });
        Ok(Fate::Pass)
    }

    /// Folds an operand into the one that waits, if nothing outside can lie between.
    fn fold(&mut self, number: i64, seq: SeqNo) -> bool {
        let Some(held) = &mut self.held else {
            return false;
        };
        let may_be_parted = self.outside.intersects(seq, held.newest);
        if may_be_parted && !planted(PlantedBug::FoldAcrossTombstone) {
            return false;
        }
        let whole = held.how.fold(i64::from_be_bytes(held.operand.value), number);
        held.operand.value = whole.to_be_bytes();
        true
    }

    /// The operand that waits is complete.
    fn release(&mut self) {
        let Some(held) = self.held.take() else {
            return;
        };
        if held.operand.is_expired {
            self.counts.expired_bytes_left += held.operand.bytes();
        }
        assert!(self.ready.is_none(), "one operand waits at most");
        self.ready = Some(held.operand);
    }

    /// Decides over a visible cell, the newest of its timestamp.
    fn decide(&mut self, timestamp: Timestamp, seq: SeqNo) -> Verdict {
        let verdict = match self.retention() {
            Some(retention) => self.apply(retention, timestamp, seq),
            None => Verdict::Stays,
        };
        self.column.decided = Some((timestamp, verdict));
        verdict
    }

    fn apply(&mut self, retention: &Retention, timestamp: Timestamp, seq: SeqNo) -> Verdict {
        let age = self.now_micros.saturating_sub(timestamp.micros());
        let newer = self.column.visible;
        self.column.visible += 1;
        let allowed = retention::allows(retention, newer, age);
        if newer == 0 && !allowed {
            // Most columns have one cell: the floor is looked for when it is needed.
            self.column.first = Some(seq);
            return Verdict::Stays;
        }
        let floor = self.outside.floor();
        let column = &mut self.column;
        if column.first.take().is_some_and(|first| first < floor) {
            column.settled += 1;
        }
        let is_below = seq < floor;
        let settled = column.settled;
        column.settled += u64::from(is_below);
        match allowed {
            false => Verdict::Stays,
            true if is_below && retention::allows(retention, settled, age) => Verdict::Goes,
            true => Verdict::StaysExpired,
        }
    }

    fn leave_out(
        &mut self,
        key: &[u8],
        value: ValueRef<'_>,
        reason: impl Fn(&mut Collected) -> &mut u64,
    ) -> Fate {
        *reason(&mut self.counts) += 1;
        self.counts.bytes += bytes(key, value.len());
        Fate::Pass
    }
}

impl Operand {
    /// Bytes of key and value.
    pub(crate) fn bytes(&self) -> u64 {
        bytes(&self.key, self.value.len() as u64)
    }
}

/// Bytes of key and value.
pub(crate) fn bytes(key: &[u8], value_len: u64) -> u64 {
    key.len() as u64 + value_len
}

#[cfg(test)]
mod tests;
