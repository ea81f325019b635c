use crate::RowSet;

/// The order in which a read answers with rows. Cells inside a row always have the same order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowOrder {
    /// The smallest row first.
    #[default]
    Ascending,
    /// The largest row first.
    Descending,
}

/// What one read asks of a table or, cut to its bounds, of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadSpec {
    /// Which rows.
    pub rows: RowSet,
    /// At most this many rows that have a cell, the first in their order; 0 means all.
    pub rows_limit: u64,
    /// Which of them first.
    pub order: RowOrder,
}
