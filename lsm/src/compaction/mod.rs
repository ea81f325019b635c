//! Compaction: merges sorted runs into fewer. [`choose`] decides, `run` does.
//!
//! This form keeps every cell: it bounds the number of runs that a read must look into, and
//! changes no answer. Dropping what retention allows is its next step.

mod choose;
mod run;

pub use choose::Plan;
pub use choose::choose as choose_compaction;
