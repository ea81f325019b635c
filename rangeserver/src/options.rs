//! The settings of a range server, and how its memory budget is shared out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use client::Assignments;
use env::Env;
use lsm::{EventListener, StoreOptions};
use sstable::CacheForm;
use storage::FileSystem;
use types::SessionId;
use types::limits::ROW_BYTES_MAX;
use wal::LogOptions;

use crate::budget::Shares;
use crate::error::{Error, Result};

/// The least memory that a server runs in, bytes.
pub const MEMORY_BUDGET_MIN: u64 = 1 << 20;

/// More merges at once than this only get into each other's way.
const COMPACTIONS_MAX: usize = 64;

/// The settings of a range server.
#[derive(Clone, Debug)]
pub struct Options {
    /// One budget for memtables, block cache and requests, bytes.
    pub memory_budget: u64,
    /// The block cache takes at most this of the budget, bytes; 0: there is none.
    pub cache_bytes_max: u64,
    /// How the block cache keeps blocks.
    pub cache_form: CacheForm,
    /// The settings of each range's storage. A memtable is at most a quarter of the memtables'
    /// share of the budget, whatever stands here.
    pub store: StoreOptions,
    /// The sizes of log segments.
    pub log: LogOptions,
    /// The log may hold this much that is not yet in SSTables, bytes: what a recovery reads.
    pub log_bytes_max: u64,
    /// How long a write waits for memory before it is refused.
    pub stall_max: Duration,
    /// How long a scan keeps its view before it takes a new one at the next row.
    pub view_age_max: Duration,
    /// How many bytes a second the log, flushes, reads and merges may read and write together, in
    /// that order of precedence; 0 is without limit.
    pub io_bytes_per_second: u64,
    /// Bytes of a row that a read answers with at most: a larger one is refused.
    pub row_bytes_max: u64,
    /// How fast a scrub reads, bytes a second; 0 is without limit.
    pub scrub_bytes_per_second: u64,
    /// How often the server looks for work that nobody announced.
    pub maintenance_interval: Duration,
    /// Ranges whose files are merged at once, at most.
    pub compactions_max: usize,
    /// A range with more bytes than this is divided, unless all of them are in one row; 0: never.
    pub range_bytes_max: u64,
    /// Files of divided ranges are looked for this often, and removed when they were not needed
    /// twice in a row.
    pub sweep_interval: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory_budget: 512 << 20,
            cache_bytes_max: u64::MAX,
            cache_form: CacheForm::default(),
            store: StoreOptions::default(),
            log: LogOptions::default(),
            log_bytes_max: 1 << 30,
            stall_max: Duration::from_secs(5),
            view_age_max: Duration::from_secs(3),
            io_bytes_per_second: 0,
            row_bytes_max: ROW_BYTES_MAX as u64,
            scrub_bytes_per_second: 64 << 20,
            maintenance_interval: Duration::from_millis(100),
            compactions_max: 1,
            range_bytes_max: 8 << 30,
            sweep_interval: Duration::from_secs(60),
        }
    }
}

impl Options {
    /// Checks every value.
    ///
    /// # Errors
    /// `InvalidArgument` names the first bad one.
    pub fn validate(&self) -> Result<()> {
        if self.memory_budget < MEMORY_BUDGET_MIN {
            let reason = format!("{} is less than {MEMORY_BUDGET_MIN} bytes", self.memory_budget);
            return Err(Error::InvalidOption { name: "memory_budget", reason });
        }
        if self.log_bytes_max < self.log.first_segment_bytes {
            let reason = format!("{} bytes are less than a segment", self.log_bytes_max);
            return Err(Error::InvalidOption { name: "log_bytes_max", reason });
        }
        if !(1..=COMPACTIONS_MAX).contains(&self.compactions_max) {
            let reason = format!("{} is not from 1 to {COMPACTIONS_MAX}", self.compactions_max);
            return Err(Error::InvalidOption { name: "compactions_max", reason });
        }
        self.effective_store()
            .validate()
            .map_err(|error| Error::InvalidOption { name: "store", reason: error.to_string() })
    }

    /// What memtables may take, frozen ones included, bytes.
    pub fn memtables_share(&self) -> u64 {
        self.memory_budget / 2
    }

    /// What the block cache may take, with the indices and filters of open tables, bytes.
    pub fn cache_share(&self) -> u64 {
        (self.memory_budget / 8 * 3).min(self.cache_bytes_max)
    }

    /// What requests may take as they are received, until they are answered, bytes: for whoever
    /// receives them. Large ones ask for their memory each ([`RangeServer::admit_large`]).
    ///
    /// [`RangeServer::admit_large`]: crate::RangeServer::admit_large
    pub fn bodies_share(&self) -> u64 {
        self.memory_budget / 16
    }

    /// What batches and replies under way may take, bytes.
    pub fn requests_share(&self) -> u64 {
        self.memory_budget - self.memtables_share() - self.cache_share() - self.bodies_share()
    }

    pub(crate) fn shares(&self) -> Shares {
        Shares {
            all: self.memory_budget - self.bodies_share(),
            memtables: self.memtables_share(),
            requests: self.requests_share(),
        }
    }

    /// The storage settings, with memtables that fit the budget.
    pub(crate) fn effective_store(&self) -> StoreOptions {
        let mut store = self.store.clone();
        store.memtable_bytes = store.memtable_bytes.min(self.memtables_share() / 4);
        store
    }
}

/// What a range server is made of.
#[derive(Clone)]
pub struct Config {
    /// Where its files are.
    pub files: Arc<dyn FileSystem>,
    /// Clock, randomness, tasks.
    pub env: Env,
    /// This run of the server; it never ran before.
    pub session: SessionId,
    /// Grants ranges.
    pub assignments: Arc<dyn Assignments>,
    /// Is told what happens in ranges.
    pub events: Arc<dyn EventListener>,
    /// Is told, once, that the durable state is unknown. The binary aborts: a restart finds the
    /// truth.
    pub on_poison: Arc<dyn Fn(&str) + Send + Sync>,
    /// The settings.
    pub options: Options,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("session", &self.session)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_make_up_the_budget_and_bound_a_memtable() {
        let options = Options { memory_budget: 10 << 20, ..Options::default() };
        options.validate().unwrap();
        let shares = options.memtables_share()
            + options.cache_share()
            + options.requests_share()
            + options.bodies_share();
        assert_eq!(shares, options.memory_budget);
        assert_eq!(options.effective_store().memtable_bytes, (10 << 20) / 8);
        let tiny = Options { memory_budget: 1000, ..Options::default() };
        assert!(tiny.validate().unwrap_err().to_string().contains("memory_budget"));
    }
}
