//! One sorted stream out of a view's memtables and tables.
//!
//! A [`Source`] is a cursor in one of them, clipped to the rows that belong to the range; a
//! [`MergeCursor`] always stands on the smallest key of its sources. Steps are synchronous; what
//! is not in memory is asked for, loaded by whoever drives, and the movement resumed.

mod merge;
mod source;

pub use merge::{MergeCursor, MergeStep, PendingBlock};
pub use source::Source;
