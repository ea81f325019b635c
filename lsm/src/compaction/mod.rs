//! Compaction: keeps the files of a range in levels, so that a read looks into few of them and
//! little space goes to what was overwritten. [`choose`] and [`expire`] decide, `run` carries out,
//! `merge` copies cells, `pace` holds back, `control` calls off, `aside` knows which files could
//! not be read.
//!
//! Merges change no answer but by dropping what retention allows (see `collect`).

mod aside;
mod choose;
mod control;
mod expire;
mod levels;
mod merge;
mod pace;
mod raw_copy;
mod regroup;
mod run;

pub use choose::choose as choose_compaction;
pub use choose::{Plan, Work};
pub(crate) use control::Control;
pub use control::{CompactionHold, delay_between};
pub use expire::choose_expired;
