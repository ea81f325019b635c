//! Serves ranges: admission, group commit, reads, flush, recovery and maintenance.
//!
//! [`RangeServer::start`] takes up what former sessions left in their logs and then serves the
//! ranges that the catalog grants it, behind [`client::RangeService`]. All ranges share one log,
//! one commit queue, one block cache and one memory budget; each has its own storage
//! ([`lsm::Store`]).

mod budget;
mod error;
mod keep;
mod maintenance;
mod options;
mod range;
mod ranges;
mod read;
mod recover;
mod remove;
mod scrub;
mod seal;
mod server;
mod write;

pub use error::{Error, Result};
pub use options::{Config, MEMORY_BUDGET_MIN, Options};
pub use recover::Recovery;
pub use seal::inspect_sealed;
pub use server::{LargeRequest, RangeServer, Statistics};
pub use write::counters::{CommitStatistics, GROUP_SIZE_CLASSES};
