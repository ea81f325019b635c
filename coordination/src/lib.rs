//! Guarded transactions, watches and sessions over a small set of keys: the cluster's single source
//! of truth.
//!
//! [`Coordinator`] is the seam; [`EmbeddedCoordinator`] implements it inside one process, durably.

mod coordinator;
mod embedded;
mod error;
pub mod inspect;
mod limits;
mod watch;

pub use coordinator::{
    Change, Coordinator, Expect, Guard, Keyed, Outcome, Page, Revision, Transaction, Versioned,
};
pub use embedded::{EmbeddedCoordinator, EmbeddedOptions, format};
pub use error::{Error, Result};
pub use limits::{OPERATIONS_MAX, PAGE_MAX, TRANSACTION_BYTES_MAX, WATCH_BACKLOG};
pub use watch::{Watch, WatchEvent};
