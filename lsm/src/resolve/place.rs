use sstable::ValueRef;
use types::key::SUFFIX_BYTES;
use types::{FamilyId, Kind, ParsedKey, SeqNo, Timestamp, TimestampRange};

use super::hiding::{Hiding, Scope};
use crate::{Error, Result};

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A cell that the reader sees.
    Visible,
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

/// Where a scan is: its row, family, column and timestamp, and what is in force there.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Escaped, with the end mark; empty before the first row.
    pub(super) row: Vec<u8>,
    family: FamilyId,
    /// What all keys of the column begin with; empty before the first column.
    pub(super) column: Vec<u8>,
    /// The timestamp of the column that a cell has decided already.
    decided: Option<Timestamp>,
    hiding: Hiding,
    passed: Option<(Reason, u32)>,
    /// Steps that one reason decides before the scan seeks instead.
    pub(super) steps_before_seek: u32,
    /// Where a verdict says to go.
    pub(super) target: Vec<u8>,
}

impl Place {
    pub(super) fn new(steps_before_seek: u32) -> Place {
        Place { steps_before_seek, ..Place::default() }
    }

    pub(super) fn enter_row(&mut self, row: &[u8]) {
        self.row.clear();
        self.row.extend_from_slice(row);
        self.hiding.enter_row();
        self.family = FamilyId::ROW;
        self.leave_column();
    }

    pub(super) fn family(&self) -> FamilyId {
        self.family
    }

    /// The timestamp of the visible cell just judged.
    pub(super) fn timestamp(&self) -> Timestamp {
        self.decided.expect("the scan stands on a visible cell")
    }

    fn leave_column(&mut self) {
        self.column.clear();
        self.decided = None;
    }

    /// Follows the scan to `key`, and says what becomes of it.
    pub(super) fn judge(
        &mut self,
        key: &[u8],
        value: ValueRef<'_>,
        at: SeqNo,
        families: &[FamilyId],
    ) -> Result<Verdict> {
        let parsed = self.follow(key)?;
        if parsed.family != FamilyId::ROW && families.binary_search(&parsed.family).is_err() {
            return Ok(self.pass(Reason::Dropped, key, at));
        }
        if parsed.seq > at {
            return Ok(self.pass(Reason::TooNew, key, at));
        }
        match parsed.kind {
            Kind::Put => {
                let overwritten = self.decided == Some(parsed.timestamp);
                self.decided = Some(parsed.timestamp);
                if let Some((seq, scope)) = self.hiding.hides(parsed.timestamp, parsed.seq) {
                    return Ok(self.pass(Reason::Hidden(seq, scope), key, at));
                }
                if overwritten {
                    return Ok(self.pass(Reason::Overwritten, key, at));
                }
                self.passed = None;
                return Ok(Verdict::Visible);
            }
            Kind::DeleteRow => self.hiding.delete_row(parsed.seq),
            Kind::DeleteFamily => self.hiding.delete_family(parsed.seq),
            Kind::DeleteCells => {
                let range = match value {
                    ValueRef::Inline(stored) => TimestampRange::decode(stored),
                    ValueRef::Stored(_) => None,
                };
                let range = range.ok_or_else(|| corrupt("a tombstone without a range", key))?;
                self.hiding.delete_cells(parsed.seq, range);
            }
        }
        Ok(Verdict::Pass)
    }

    /// Takes `key` apart and enters its row, family and column.
    #[inline]
    fn follow(&mut self, key: &[u8]) -> Result<Suffix> {
        let column_len = key.len().saturating_sub(SUFFIX_BYTES);
        if !self.column.is_empty() && key[..column_len] == self.column[..] {
            // Most keys are of the column of the one before: it need not be parsed again.
            return suffix(key, self.family).ok_or_else(|| corrupt("not a cell key", key));
        }
        let parsed = ParsedKey::parse(key).ok_or_else(|| corrupt("not a cell key", key))?;
        if parsed.row_prefix() != self.row {
            self.enter_row(parsed.row_prefix());
        }
        if parsed.family != self.family {
            self.family = parsed.family;
            self.hiding.enter_family();
        }
        self.leave_column();
        self.hiding.enter_column();
        if matches!(self.passed, Some((reason, _)) if reason.is_of_column()) {
            self.passed = None;
        }
        if matches!(parsed.kind, Kind::Put | Kind::DeleteCells) {
            self.column.extend_from_slice(parsed.column_prefix());
        }
        Ok(Suffix {
            family: parsed.family,
            timestamp: parsed.timestamp,
            seq: parsed.seq,
            kind: parsed.kind,
        })
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
                self.target.extend_from_slice(&self.column);
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
        self.target.extend_from_slice(&self.row);
        bump_end_mark(&mut self.target);
    }

    fn target_family_end(&mut self) {
        let Some(next) = self.family.get().checked_add(1) else {
            return self.target_row_end();
        };
        self.target.clear();
        self.target.extend_from_slice(&self.row);
        self.target.extend_from_slice(&next.to_be_bytes());
    }
}

/// What follows a key's column prefix, and its family.
struct Suffix {
    family: FamilyId,
    timestamp: Timestamp,
    seq: SeqNo,
    kind: Kind,
}

/// Reads the end of a key whose column prefix is known to be valid.
#[inline]
fn suffix(key: &[u8], family: FamilyId) -> Option<Suffix> {
    let kind = types::key::kind_of(key)?;
    let seq = types::key::seq_of(key)?;
    let age = key.get(key.len().checked_sub(SUFFIX_BYTES)?..)?.get(..8)?;
    let raw = !u64::from_be_bytes(age.try_into().ok()?);
    let timestamp = match kind {
        Kind::Put => Timestamp::from_micros(i64::try_from(raw).ok()?)?,
        Kind::DeleteCells => Timestamp::MAX,
        Kind::DeleteFamily | Kind::DeleteRow => return None,
    };
    Some(Suffix { family, timestamp, seq, kind })
}

/// Turns a prefix that ends with an escape's end mark into the first position past all keys that
/// begin with it.
fn bump_end_mark(prefix: &mut [u8]) {
    let last = prefix.last_mut().expect("a prefix ends with its end mark");
    assert!(*last == 0, "not an end mark");
    *last = 1;
}

fn corrupt(what: &str, key: &[u8]) -> Error {
    let start = &key[..key.len().min(64)];
    Error::CorruptCell { what: format!("{what}: key {}", start.escape_ascii()) }
}
