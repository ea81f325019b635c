//! Compaction: merges sorted runs into fewer. [`choose`] decides, `run` does, and
//! [`merge`] writes the cells.
//!
//! This form keeps every cell: it bounds the number of runs that a read must look into, and
//! changes no answer. Dropping what retention allows is its next step.

mod choose;
mod merge;
mod run;

pub use choose::Plan;
pub use choose::choose as choose_compaction;
