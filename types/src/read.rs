use crate::RowSet;

/// What one read asks of a table or, cut to its bounds, of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadSpec {
    /// Which rows.
    pub rows: RowSet,
    /// At most this many rows that have a cell; 0 means all.
    pub rows_limit: u64,
}
