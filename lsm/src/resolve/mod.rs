//! Resolving: from the merged stream of everything written to the cells that a reader sees.
//!
//! At a view's number S, walking in key order:
//! 1. What carries a number above S is not there.
//! 2. Families that the schema no longer has are not there, whatever is stored of them.
//! 3. Tombstones come before what they hide; they are remembered for their scope (row, family,
//!    column). A cell is hidden if one of them has a larger number and covers its timestamp. What
//!    was written after a delete is seen, whatever its timestamp.
//! 4. Of cells with one column and one timestamp the first, which is the latest write, counts, if
//!    it is not hidden; those after it are overwritten.
//! 5. In a family of aggregates, all operands of one column and timestamp that are not hidden are
//!    one cell: the scan steps past them, folds them and then shows what they make together.
//! 6. All else is seen. A row none of whose cells is seen does not exist.
//!
//! Whoever begins inside a row ([`Scan::seek_column`]) reads the tombstones of row and family
//! first.
//!
//! Skipping: after sixteen steps in a row were decided by one reason, the scan seeks past what that
//! reason decides. A tombstone decides only over cells older than it, so there only sources without
//! younger cells are moved. [`ScanCounts`] tells.

mod fold;
pub(crate) mod hiding;
mod place;
pub(crate) mod position;
mod scan;

pub(crate) use scan::past_all_rows;
pub use scan::{Scan, ScanCounts, ScanStep, VisibleCell};

#[cfg(test)]
mod tests;
