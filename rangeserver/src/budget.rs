//! The memory budget, enforced at admission.
//!
//! Memtables, block cache and requests have a share each (see [`crate::Options`]); the cache keeps
//! to its own. A request waits until its bytes fit the requests' share, and a write also until the
//! memtables are below theirs, which a flush brings about; each for a limited time. What is
//! admitted may exceed a share by that one request, never by more: so a request larger than the
//! whole share is possible, alone.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use client::Error;
use env::Env;
use tokio::sync::Notify;
use types::ErrorKind;

/// After a refusal for want of memory, a caller should wait this long.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Counts memory in use.
#[derive(Debug)]
pub(crate) struct Budget {
    memtables_share: u64,
    requests_share: u64,
    memtables: AtomicU64,
    requests: Mutex<u64>,
    /// Something was given back.
    freed: Notify,
}

/// Bytes that a request holds; given back when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    pub(crate) fn new(memtables_share: u64, requests_share: u64) -> Budget {
        assert!(memtables_share > 0 && requests_share > 0, "shares of a budget");
        Budget {
            memtables_share,
            requests_share,
            memtables: AtomicU64::new(0),
            requests: Mutex::new(0),
            freed: Notify::new(),
        }
    }

    /// Bytes of all memtables.
    pub(crate) fn memtables(&self) -> u64 {
        self.memtables.load(SeqCst)
    }

    pub(crate) fn memtables_share(&self) -> u64 {
        self.memtables_share
    }

    /// Bytes of requests and replies under way.
    pub(crate) fn requests(&self) -> u64 {
        *self.held()
    }

    /// A range's memtables grew or shrank from `before` to `after` bytes.
    pub(crate) fn recount_memtables(&self, before: u64, after: u64) {
        // Each change says what it replaces, so the sum is right in any order of the changes,
        // though it may dip below zero for a moment.
        self.memtables.fetch_add(after.wrapping_sub(before), SeqCst);
        if after < before {
            self.freed.notify_waiters();
        }
    }

    /// Somebody who waits should look again.
    pub(crate) fn wake_waiters(&self) {
        self.freed.notify_waiters();
    }

    /// Waits until `bytes` fit the requests' share.
    ///
    /// # Errors
    /// `ResourceExhausted` when they do not within `limit`.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        env: &Env,
        bytes: u64,
        limit: Duration,
    ) -> client::Result<Held> {
        let what = "requests under way hold all the memory that they may";
        self.wait_until(env, limit, what, || {
            let mut held = self.held();
            let fits = *held == 0 || held.saturating_add(bytes) <= self.requests_share;
            fits.then(|| *held += bytes)
        })
        .await?;
        Ok(Held { budget: Arc::clone(self), bytes })
    }

    /// Waits until `ready` gives a value; it is asked again when something is given back.
    ///
    /// # Errors
    /// `ResourceExhausted`, which says `what`, when it does not within `limit`.
    pub(crate) async fn wait_until<T>(
        &self,
        env: &Env,
        limit: Duration,
        what: &str,
        mut ready: impl FnMut() -> Option<T>,
    ) -> client::Result<T> {
        if let Some(value) = ready() {
            return Ok(value);
        }
        let wait = async {
            loop {
                // Registered before the look, so that nothing given back after it is missed.
                let mut freed = std::pin::pin!(self.freed.notified());
                freed.as_mut().enable();
                if let Some(value) = ready() {
                    return value;
                }
                freed.await;
            }
        };
        let waited = env.timeout(limit, wait).await;
        waited.map_err(|_| {
            Error::new(ErrorKind::ResourceExhausted, what.to_owned()).retry_after(RETRY_AFTER)
        })
    }

    fn held(&self) -> MutexGuard<'_, u64> {
        self.requests.lock().expect("no holder of this lock panics")
    }
}

impl Held {
    /// Holds `bytes` from now on, which may be past the share: for replies, whose size is known
    /// only when they are there.
    pub(crate) fn resize(&mut self, bytes: u64) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        let mut held = self.budget.held();
        *held = *held - before + bytes;
        drop(held);
        if bytes < before {
            self.budget.freed.notify_waiters();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_room_and_is_refused_in_the_end() {
        let env = Env::simulated(1);
        let budget = Arc::new(Budget::new(100, 100));
        let limit = Duration::from_secs(1);
        let first = budget.admit(&env, 80, limit).await.unwrap();
        let refused = budget.admit(&env, 30, limit).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
        assert_eq!(refused.retry_delay(), Some(RETRY_AFTER));
        let waiting = env.spawn("waiting", {
            let (budget, env) = (Arc::clone(&budget), env.clone());
            async move { budget.admit(&env, 30, limit).await }
        });
        env.sleep(Duration::from_millis(10)).await;
        drop(first);
        let second = waiting.join().await.unwrap().unwrap();
        assert_eq!(budget.requests(), 30);
        drop(second);
        let huge = budget.admit(&env, 1000, limit).await.unwrap();
        assert_eq!(budget.requests(), 1000, "alone, anything is admitted");
        drop(huge);
        assert_eq!(budget.requests(), 0);
    }

    #[test]
    fn memtables_add_up_in_any_order_of_their_changes() {
        let budget = Budget::new(100, 100);
        budget.recount_memtables(70, 90);
        budget.recount_memtables(0, 70);
        assert_eq!(budget.memtables(), 90);
        budget.recount_memtables(90, 10);
        assert_eq!(budget.memtables(), 10);
    }
}
