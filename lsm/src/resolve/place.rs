use std::sync::Arc;

use sstable::ValueRef;
use types::key::SUFFIX_BYTES;
use types::{Aggregate, FamilyId, Kind, Retention, SeqNo, Timestamp};

use super::hiding::Scope;
use super::position::{Entered, Position, Suffix, corrupt, operand_of, range_of};
use crate::Result;
use crate::rules::FamilyRules;

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A cell that the reader sees.
    Visible,
    /// A number that takes part in a cell that the reader sees.
    Operand(Aggregate, i64),
    /// Nothing to see: step on.
    Pass,
    /// Nothing to see up to [`Place::target`]: go there.
    SkipTo,
    /// Nothing older than this number to see up to [`Place::target`].
    SkipOlder(SeqNo),
}

/// Why keys are passed over, the narrow reasons first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// Written after the view.
    TooNew,
    /// A later write of the same column and timestamp was met.
    Overwritten,
    Hidden(SeqNo, Scope),
    /// The schema has no such family.
    Dropped,
}

impl Reason {
    /// Does it decide over one column at most?
    fn is_of_column(self) -> bool {
        match self {
            Reason::TooNew | Reason::Overwritten | Reason::Hidden(_, Scope::CellsFrom(_)) => true,
            Reason::Dropped | Reason::Hidden(_, Scope::Row | Scope::Family) => false,
        }
    }
}

/// What the schema says of the cells of a place's family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Declared {
    /// The row itself, which is no family.
    #[default]
    Row,
    /// There is no such family.
    Nothing,
    Put,
    Aggregate(Aggregate),
}

/// Where a scan is: its row, family, column and timestamp, and what is in force there.
#[derive(Debug)]
pub(super) struct Place {
    position: Position,
    declared: Declared,
    rules: Arc<FamilyRules>,
    /// The timestamp of the column that a cell has decided already.
    decided: Option<Timestamp>,
    passed: Option<(Reason, u32)>,
    /// Steps that one reason decides before the scan seeks instead.
    pub(super) steps_before_seek: u32,
    /// Where a verdict says to go.
    pub(super) target: Vec<u8>,
}

impl Place {
    pub(super) fn new(rules: Arc<FamilyRules>, steps_before_seek: u32) -> Place {
        Place {
            position: Position::default(),
            declared: Declared::default(),
            rules,
            decided: None,
            passed: None,
            steps_before_seek,
            target: Vec::new(),
        }
    }

    pub(super) fn enter_row(&mut self, row: &[u8]) {
        self.position.enter_row(row);
        self.declared = Declared::Row;
        self.decided = None;
    }

    /// The row, escaped and with its end mark; empty before the first.
    #[inline]
    pub(super) fn row(&self) -> &[u8] {
        &self.position.row
    }

    /// What all keys of the column begin with.
    #[inline]
    pub(super) fn column(&self) -> &[u8] {
        &self.position.column
    }

    pub(super) fn family(&self) -> FamilyId {
        self.position.family
    }

    /// The timestamp of the visible cell just judged.
    pub(super) fn timestamp(&self) -> Timestamp {
        self.decided.expect("the scan stands on a visible cell")
    }

    /// What may be dropped of the family that the scan is in.
    pub(super) fn retention(&self) -> Option<&Retention> {
        self.rules.get(self.position.family)?.retention.as_ref()
    }

    /// Follows the scan to `key`, and says what becomes of it.
    pub(super) fn judge(&mut self, key: &[u8], value: ValueRef<'_>, at: SeqNo) -> Result<Verdict> {
        let parsed = self.follow(key)?;
        if self.declared == Declared::Nothing {
            return Ok(self.pass(Reason::Dropped, key, at));
        }
        if parsed.seq > at {
            return Ok(self.pass(Reason::TooNew, key, at));
        }
        match parsed.kind {
            Kind::Add => {
                self.decided = Some(parsed.timestamp);
                if let Some((seq, scope)) = self.position.hiding.hides(parsed.timestamp, parsed.seq)
                {
                    return Ok(self.pass(Reason::Hidden(seq, scope), key, at));
                }
                self.passed = None;
                return self.operand(key, value);
            }
            Kind::Put => {
                if self.declared != Declared::Put {
                    return Err(corrupt("a value among aggregates", key));
                }
                let overwritten = self.decided == Some(parsed.timestamp);
                self.decided = Some(parsed.timestamp);
                if let Some((seq, scope)) = self.position.hiding.hides(parsed.timestamp, parsed.seq)
                {
                    return Ok(self.pass(Reason::Hidden(seq, scope), key, at));
                }
                if overwritten {
                    return Ok(self.pass(Reason::Overwritten, key, at));
                }
                self.passed = None;
                return Ok(Verdict::Visible);
            }
            Kind::DeleteRow => self.position.hiding.delete_row(parsed.seq),
            Kind::DeleteFamily => self.position.hiding.delete_family(parsed.seq),
            Kind::DeleteCells => {
                self.position.hiding.delete_cells(parsed.seq, range_of(key, value)?);
            }
        }
        Ok(Verdict::Pass)
    }

    fn operand(&self, key: &[u8], value: ValueRef<'_>) -> Result<Verdict> {
        let Declared::Aggregate(how) = self.declared else {
            return Err(corrupt("an operand where values are put", key));
        };
        Ok(Verdict::Operand(how, operand_of(key, value)?))
    }

    /// Follows the scan to `key`, and into what it enters.
    #[inline]
    fn follow(&mut self, key: &[u8]) -> Result<Suffix> {
        let (suffix, entered) = self.position.follow(key)?;
        if entered == Entered::Nothing {
            return Ok(suffix);
        }
        self.decided = None;
        if matches!(self.passed, Some((reason, _)) if reason.is_of_column()) {
            self.passed = None;
        }
        if entered >= Entered::Family {
            self.declared = self.declared_here();
        }
        Ok(suffix)
    }

    fn declared_here(&self) -> Declared {
        if self.position.family == FamilyId::ROW {
            return Declared::Row;
        }
        match self.rules.get(self.position.family).map(|rule| rule.aggregate) {
            None => Declared::Nothing,
            Some(None) => Declared::Put,
            Some(Some(how)) => Declared::Aggregate(how),
        }
    }

    /// Counts a key that is passed over; after enough of them, says how far to skip.
    fn pass(&mut self, reason: Reason, key: &[u8], at: SeqNo) -> Verdict {
        let count = match self.passed {
            Some((former, count)) if former == reason => count + 1,
            _ => 1,
        };
        self.passed = Some((reason, count));
        if count < self.steps_before_seek {
            return Verdict::Pass;
        }
        self.passed = None;
        self.target.clear();
        let suffix_start = key.len() - SUFFIX_BYTES;
        match reason {
            Reason::TooNew => {
                // To the first number of this timestamp that the view sees. A key's own number is
                // too new, so this is further on.
                self.target.extend_from_slice(&key[..suffix_start + 8]);
                self.target.extend_from_slice(&(!at.get()).to_be_bytes());
            }
            Reason::Overwritten => {
                self.target.extend_from_slice(&key[..suffix_start + 8]);
                self.target.extend_from_slice(&[0xff; SUFFIX_BYTES - 8]);
            }
            Reason::Dropped | Reason::Hidden(_, Scope::Family) => self.target_family_end(),
            Reason::Hidden(_, Scope::Row) => self.target_row_end(),
            Reason::Hidden(_, Scope::CellsFrom(start)) => {
                self.target.extend_from_slice(&self.position.column);
                match (!(start.micros() as u64)).checked_add(1) {
                    Some(age) => self.target.extend_from_slice(&age.to_be_bytes()),
                    None => bump_end_mark(&mut self.target),
                }
            }
        }
        match reason {
            Reason::Hidden(seq, _) => Verdict::SkipOlder(seq),
            Reason::TooNew | Reason::Overwritten | Reason::Dropped => Verdict::SkipTo,
        }
    }

    /// Sets the target past the current row.
    pub(super) fn target_row_end(&mut self) {
        self.target.clear();
        self.target.extend_from_slice(&self.position.row);
        bump_end_mark(&mut self.target);
    }

    /// Sets the target past the current column.
    pub(super) fn target_column_end(&mut self) {
        self.target.clear();
        self.target.extend_from_slice(&self.position.column);
        bump_end_mark(&mut self.target);
    }

    fn target_family_end(&mut self) {
        let Some(next) = self.position.family.get().checked_add(1) else {
            return self.target_row_end();
        };
        self.target.clear();
        self.target.extend_from_slice(&self.position.row);
        self.target.extend_from_slice(&next.to_be_bytes());
    }
}

/// Turns a prefix that ends with an escape's end mark into the first position past all keys that
/// begin with it.
fn bump_end_mark(prefix: &mut [u8]) {
    let last = prefix.last_mut().expect("a prefix ends with its end mark");
    assert!(*last == 0, "not an end mark");
    *last = 1;
}
