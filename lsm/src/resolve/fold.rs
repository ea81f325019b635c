use types::Aggregate;
use types::key::SUFFIX_BYTES;

/// The operands of one cell, folded as far as they were met.
#[derive(Debug, Default)]
pub(super) struct Fold {
    /// What the keys of all its operands begin with: column and age.
    prefix: Vec<u8>,
    value: [u8; 8],
    stage: Stage,
    /// Cells of the same column that were open before.
    newer: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// There is no cell.
    #[default]
    Empty,
    /// More operands may follow.
    Open,
    /// The scan stands on the cell.
    Shown,
}

impl Fold {
    /// Takes in an operand of the cell that is open, or of a new one.
    pub(super) fn take(&mut self, key: &[u8], how: Aggregate, operand: i64) {
        assert!(self.stage != Stage::Shown, "a shown cell was left");
        let whole = match self.stage {
            Stage::Open => how.fold(i64::from_be_bytes(self.value), operand),
            Stage::Empty | Stage::Shown => {
                let is_same_column = column_of(&self.prefix) == column_of(prefix_of(key));
                self.newer = if is_same_column { self.newer + 1 } else { 0 };
                self.prefix.clear();
                self.prefix.extend_from_slice(prefix_of(key));
                operand
            }
        };
        self.value = whole.to_be_bytes();
        self.stage = Stage::Open;
    }

    /// Is a cell open that `key`, which comes next, does not belong to?
    #[inline]
    pub(super) fn ends_before(&self, key: &[u8]) -> bool {
        self.stage == Stage::Open && prefix_of(key) != self.prefix
    }

    /// Is a cell open?
    pub(super) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// No operand follows: the scan stands on the cell.
    pub(super) fn show(&mut self) {
        assert!(self.stage == Stage::Open, "a cell is shown once");
        self.stage = Stage::Shown;
    }

    /// How many newer cells of the open or shown cell's column were met.
    pub(super) fn newer(&self) -> u64 {
        self.newer
    }

    /// The value of the cell that the scan stands on, if it is folded.
    #[inline]
    pub(super) fn shown(&self) -> Option<&[u8; 8]> {
        (self.stage == Stage::Shown).then_some(&self.value)
    }

    /// The scan moves on.
    #[inline]
    pub(super) fn leave(&mut self) {
        if self.stage == Stage::Shown {
            self.stage = Stage::Empty;
        }
    }

    /// The scan goes elsewhere.
    pub(super) fn abandon(&mut self) {
        self.stage = Stage::Empty;
        self.prefix.clear();
    }
}

/// The column of column and age. Nothing for nothing.
fn column_of(prefix: &[u8]) -> Option<&[u8]> {
    prefix.len().checked_sub(8).map(|end| &prefix[..end])
}

/// Column and age of a key.
fn prefix_of(key: &[u8]) -> &[u8] {
    &key[..key.len().saturating_sub(SUFFIX_BYTES - 8)]
}
