use types::key::SUFFIX_BYTES;
use types::{FamilyId, Kind, ParsedKey, SeqNo, Timestamp, TimestampRange};

use sstable::ValueRef;

use super::hiding::Hiding;
use crate::{Error, Result};

/// What a step from one key to the next has entered, the narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entered {
    /// Nothing: the key is of the column of the one before.
    Nothing,
    /// Another column, or the tombstones of a family or row.
    Column,
    /// Another family.
    Family,
    /// Another row.
    Row,
}

/// A key's part after its column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suffix {
    pub(crate) timestamp: Timestamp,
    pub(crate) seq: SeqNo,
    pub(crate) kind: Kind,
}

/// The row, family and column that a walk in key order has come to, and the tombstones in force
/// there.
#[derive(Debug, Default)]
pub(crate) struct Position {
    /// Escaped, with the end mark; empty before the first row.
    pub(crate) row: Vec<u8>,
    pub(crate) family: FamilyId,
    /// What all keys of the column begin with; empty outside columns.
    pub(crate) column: Vec<u8>,
    pub(crate) hiding: Hiding,
}

impl Position {
    pub(crate) fn enter_row(&mut self, row: &[u8]) {
        self.row.clear();
        self.row.extend_from_slice(row);
        self.hiding.enter_row();
        self.family = FamilyId::ROW;
        self.column.clear();
    }

    /// Takes `key` apart and enters its row, family and column.
    #[inline]
    pub(crate) fn follow(&mut self, key: &[u8]) -> Result<(Suffix, Entered)> {
        let column_len = key.len().saturating_sub(SUFFIX_BYTES);
        if !self.column.is_empty() && key[..column_len] == self.column[..] {
            // Most keys are of the column of the one before: it need not be parsed again.
            let suffix = suffix(key).ok_or_else(|| corrupt("not a cell key", key))?;
            return Ok((suffix, Entered::Nothing));
        }
        let parsed = ParsedKey::parse(key).ok_or_else(|| corrupt("not a cell key", key))?;
        let mut entered = Entered::Column;
        if parsed.row_prefix() != self.row {
            self.enter_row(parsed.row_prefix());
            entered = Entered::Row;
        }
        if parsed.family != self.family {
            self.family = parsed.family;
            self.hiding.enter_family();
            entered = entered.max(Entered::Family);
        }
        self.column.clear();
        self.hiding.enter_column();
        if matches!(parsed.kind, Kind::Put | Kind::Add | Kind::DeleteCells) {
            self.column.extend_from_slice(parsed.column_prefix());
        }
        let suffix = Suffix { timestamp: parsed.timestamp, seq: parsed.seq, kind: parsed.kind };
        Ok((suffix, entered))
    }
}

/// Reads the end of a key whose column prefix is known to be valid.
#[inline]
fn suffix(key: &[u8]) -> Option<Suffix> {
    let kind = types::key::kind_of(key)?;
    let seq = types::key::seq_of(key)?;
    let age = key.get(key.len().checked_sub(SUFFIX_BYTES)?..)?.get(..8)?;
    let raw = !u64::from_be_bytes(age.try_into().ok()?);
    let timestamp = match kind {
        Kind::Put | Kind::Add => Timestamp::from_micros(i64::try_from(raw).ok()?)?,
        Kind::DeleteCells => Timestamp::MAX,
        Kind::DeleteFamily | Kind::DeleteRow => return None,
    };
    Some(Suffix { timestamp, seq, kind })
}

/// The time range of a column's tombstone.
pub(crate) fn range_of(key: &[u8], value: ValueRef<'_>) -> Result<TimestampRange> {
    let range = match value {
        ValueRef::Inline(stored) => TimestampRange::decode(stored),
        ValueRef::Stored(_) => None,
    };
    range.ok_or_else(|| corrupt("a tombstone without a range", key))
}

/// The number that an operand is.
pub(crate) fn operand_of(key: &[u8], value: ValueRef<'_>) -> Result<i64> {
    let operand = match value {
        ValueRef::Inline(stored) => types::key::operand(stored),
        ValueRef::Stored(_) => None,
    };
    operand.ok_or_else(|| corrupt("an operand that is no number", key))
}

pub(crate) fn corrupt(what: &str, key: &[u8]) -> Error {
    let start = &key[..key.len().min(64)];
    Error::CorruptCell { what: format!("{what}: key {}", start.escape_ascii()) }
}
