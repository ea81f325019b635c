//! Holds a merge back, so that it leaves the disk and the processor to requests.
//!
//! A merge may read and write a number of bytes in a second: the least that is set, and as much
//! again for each `level_base_bytes` of debt, so that it never falls behind for long. When writers
//! are slowed for its sake, it is not held back at all. Nothing is locked while it waits.

use std::sync::Arc;
use std::time::Duration;

use crate::io::IoClass;
use crate::store::Store;

/// The longest sleep before the debt is looked at again.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// The pace of one merge.
#[derive(Debug)]
pub(crate) struct Pace {
    store: Arc<Store>,
    /// The merge is on time if it has done so many bytes by then.
    due: Duration,
}

impl Pace {
    /// Begins now.
    pub(crate) fn new(store: &Arc<Store>) -> Pace {
        Pace { store: Arc::clone(store), due: store.env().monotonic() }
    }

    /// Lets others run, and waits until `bytes` more may be read or written.
    pub(crate) async fn spend(&mut self, bytes: u64) {
        let env = self.store.env().clone();
        env.yield_now().await;
        let class = if self.is_urgent() { IoClass::Flush } else { IoClass::Background };
        self.store.limiter().spend(class, bytes).await;
        // Time that was not used is not saved up.
        self.due = self.due.max(env.monotonic());
        let Some(rate) = self.rate() else {
            return;
        };
        self.due = self.due.saturating_add(time_for(bytes, rate));
        loop {
            let ahead = self.due.saturating_sub(env.monotonic());
            // Short sleeps are not worth their cost: they add up to a longer one.
            if ahead < Duration::from_millis(2) || self.rate().is_none() {
                return;
            }
            env.sleep(ahead.min(SLEEP_MAX)).await;
        }
    }

    /// Are writers slowed for its sake?
    fn is_urgent(&self) -> bool {
        self.store.level0_runs() >= self.store.options().level0_slow_runs
    }

    /// Bytes in a second; `None` when nothing shall hold the merge back.
    fn rate(&self) -> Option<u64> {
        let options = self.store.options();
        let least = options.compaction_bytes_per_second;
        (least > 0 && !self.is_urgent()).then(|| {
            let debts = self.store.compaction_debt() / options.level_base_bytes;
            least.saturating_mul(debts.saturating_add(1))
        })
    }
}

fn time_for(bytes: u64, rate: u64) -> Duration {
    let micros = u128::from(bytes) * 1_000_000 / u128::from(rate);
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}
