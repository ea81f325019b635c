//! What a store knows of its compactions while they run: whose turn it is, whether they shall stop,
//! and how much is to be done.
//!
//! A merge looks at the call to stop at every await: whoever *holds* compactions gets the range
//! without one after a moment, not after the merge's end. A commit that has begun is waited for.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::aside::Aside;
use super::levels::{Need, need};
use crate::error::Result;
use crate::options::StoreOptions;
use crate::store::{Store, Turn};
use crate::version::Version;

/// The longest that a writer is made to wait before it is stopped, µs.
const WRITE_DELAY_MAX_MICROS: u64 = 30_000;

/// See the module's words.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// One compaction at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// How many want none.
    holds: AtomicUsize,
    held: Notify,
    need: Mutex<Need>,
    pub(crate) aside: Aside,
}

impl Control {
    /// A version was installed.
    pub(crate) fn recount(&self, version: &Version, options: &StoreOptions) {
        let need = need(version, options);
        *self.need.lock().unwrap_or_else(PoisonError::into_inner) = need;
        self.aside.keep_only(version);
    }

    /// What is to be done, as of the version installed last.
    pub(crate) fn need(&self) -> Need {
        *self.need.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no compaction is going on, its commit included.
    pub(crate) async fn turn(&self) -> Turn {
        Turn::new(Arc::clone(&self.turn).lock_owned().await)
    }

    /// Calls off what runs and what will be begun, until [`Control::release`].
    pub(crate) fn hold(&self) {
        self.holds.fetch_add(1, SeqCst);
        self.held.notify_waiters();
    }

    fn release(&self) {
        self.holds.fetch_sub(1, SeqCst);
    }

    /// Does somebody want no compaction?
    pub(crate) fn is_held(&self) -> bool {
        self.holds.load(SeqCst) > 0
    }

    /// Comes back when somebody wants no compaction.
    pub(crate) async fn called_off(&self) {
        loop {
            // Registered before the look, so that no hold after it is missed.
            let mut held = std::pin::pin!(self.held.notified());
            held.as_mut().enable();
            if self.is_held() {
                return;
            }
            held.await;
        }
    }
}

/// While it lives, the range has no compaction.
#[derive(Debug)]
pub struct CompactionHold(Arc<Store>);

impl Drop for CompactionHold {
    fn drop(&mut self) {
        self.0.compactions.release();
    }
}

impl Store {
    /// Calls off the compaction that is going on and begins none while the hold lives: before the
    /// range's files are changed in another way, or the range is given up. Comes back when none is
    /// going on any more, its commit included.
    ///
    /// # Errors
    /// The store is poisoned, fenced or closed.
    pub async fn hold_compactions(self: &Arc<Self>) -> Result<CompactionHold> {
        let hold = self.call_off_compactions();
        self.turn_to_compact().await?;
        Ok(hold)
    }

    /// The same without waiting.
    pub fn call_off_compactions(self: &Arc<Self>) -> CompactionHold {
        self.compactions.hold();
        CompactionHold(Arc::clone(self))
    }

    /// Files of level 0 that a read of one row may have to look into.
    pub fn level0_runs(&self) -> u64 {
        self.compactions.need().level0_runs
    }

    /// About how many bytes are to be written until no level holds too much.
    pub fn compaction_debt(&self) -> u64 {
        self.compactions.need().debt
    }

    /// How full the fullest level is for its target: from 1000 on there is work to do.
    pub fn compaction_score(&self) -> u64 {
        self.compactions.need().score
    }

    /// How long a writer should wait before its batch is placed, so that merges keep up with
    /// flushes: longer with each run of level 0 from `level0_slow_runs` on.
    pub fn write_delay(&self) -> Duration {
        let StoreOptions { level0_slow_runs: slow, level0_stop_runs: stop, .. } = *self.options();
        let steps = (self.level0_runs().min(stop) + 1).saturating_sub(slow);
        let all_steps = stop + 1 - slow;
        Duration::from_micros(WRITE_DELAY_MAX_MICROS * steps / all_steps)
    }

    /// Has level 0 so many runs that writers must wait for a merge?
    pub fn is_level0_full(&self) -> bool {
        self.level0_runs() >= self.options().level0_stop_runs
    }
}

/// How long a writer should wait before its batch is placed, so that it need not be stopped when
/// `full` bytes are held: nothing up to `from`, then longer with each byte.
pub fn delay_between(held: u64, from: u64, full: u64) -> Duration {
    let past = u128::from(held.min(full).saturating_sub(from));
    let all = u128::from(full.saturating_sub(from).max(1));
    let micros = u128::from(WRITE_DELAY_MAX_MICROS) * past / all;
    Duration::from_micros(u64::try_from(micros).unwrap_or(WRITE_DELAY_MAX_MICROS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_grows_from_nothing_to_the_longest() {
        let millis = |held| delay_between(held, 50, 100).as_micros();
        assert_eq!([0, 50, 60, 75, 100, 999].map(millis), [0, 0, 6_000, 15_000, 30_000, 30_000]);
        assert_eq!(delay_between(7, 7, 7), Duration::ZERO);
        assert_eq!(delay_between(u64::MAX, 0, u64::MAX).as_millis(), 30);
    }
}
