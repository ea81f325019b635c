use bytes::Bytes;

use crate::limits::SPLICED_BYTES_MIN;
use crate::{FamilyId, Timestamp, TimestampRange};

/// One change to a row, validated and with its family resolved; names no row itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Writes a cell; the same (family, qualifier, timestamp) is overwritten.
    SetCell {
        /// The column's family.
        family: FamilyId,
        /// The column's qualifier; may be empty.
        qualifier: Bytes,
        /// `None` asks for the server's time when the mutation is sequenced.
        timestamp: Option<Timestamp>,
        /// The cell's content.
        value: Bytes,
    },
    /// Lets a number take part in a cell of an aggregate family.
    AddToCell {
        /// The column's family.
        family: FamilyId,
        /// The column's qualifier; may be empty.
        qualifier: Bytes,
        /// `None` asks for the server's time when the mutation is sequenced.
        timestamp: Option<Timestamp>,
        /// The number.
        operand: i64,
    },
    /// Hides the cells of one column in a time range that were written before.
    DeleteCells {
        /// The column's family.
        family: FamilyId,
        /// The column's qualifier.
        qualifier: Bytes,
        /// Which timestamps.
        range: TimestampRange,
    },
    /// Hides the cells of one family that were written before.
    DeleteFamily {
        /// Which family.
        family: FamilyId,
    },
    /// Hides all cells of the row that were written before.
    DeleteRow,
}

impl Mutation {
    /// Bytes that it carries: what budgets and statistics count.
    pub fn bytes(&self) -> usize {
        match self {
            Mutation::SetCell { qualifier, value, .. } => qualifier.len() + value.len() + 24,
            Mutation::AddToCell { qualifier, .. } => qualifier.len() + 32,
            Mutation::DeleteCells { qualifier, .. } => qualifier.len() + 40,
            Mutation::DeleteFamily { .. } | Mutation::DeleteRow => 24,
        }
    }
}

/// The mutations of one row, applied in order and atomically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowMutations {
    /// The row's key.
    pub row: Bytes,
    /// At least one.
    pub mutations: Vec<Mutation>,
}

impl RowMutations {
    /// Bytes that it carries: what budgets and statistics count.
    pub fn bytes(&self) -> usize {
        self.row.len() + self.mutations.iter().map(Mutation::bytes).sum::<usize>()
    }

    /// Copies values that are large, but have fewer bytes than `kept_from`: so that whoever keeps
    /// one ([`crate::limits::SPLICED_BYTES_MIN`]) does not keep the request that it came in.
    pub fn detach_values(&mut self, kept_from: usize) {
        for mutation in &mut self.mutations {
            if let Mutation::SetCell { value, .. } = mutation
                && (SPLICED_BYTES_MIN..kept_from).contains(&value.len())
            {
                *value = Bytes::copy_from_slice(value);
            }
        }
    }
}
