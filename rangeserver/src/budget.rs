//! The memory budget, enforced at admission.
//!
//! Memtables, block cache and requests have a share each (see [`crate::Options`]); the cache keeps
//! to its own. A request waits until its bytes fit the requests' share, and a write also until the
//! memtables are below theirs, which a flush brings about; each for a limited time. What is
//! admitted may exceed a share by that one request, never by more: so a request larger than the
//! whole share is possible, alone.
//!
//! What exceeds a share is taken from the cache, which gives up blocks for as long. Memtables that
//! are flushed and that reads still hold ([`OutlivedMemory`]) have no share: a slow reader shall
//! not stop the writers while there is something to take.
//!
//! So all together stay within the budget if whoever needs more than a share leaves others room:
//! [`Budget::admit_large`] and, for a batch larger than the requests' share, [`Budget::admit`] wait
//! until the whole fits, and ask for flushes down to what it leaves ([`Budget::goal`]). For as long
//! as they hold it, the memtables get no more than what is left ([`Budget::memtables_most`]).
//!
//! The budget is the whole process's, which also holds what nobody counts ([`Uncounted`]). Somebody
//! who sees how much the process has tells it ([`Budget::note_resident`]).

mod held;
mod uncounted;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use client::Error;
use env::Env;
use lsm::OutlivedMemory;
use sstable::BlockCache;
use tokio::sync::Notify;
use types::ErrorKind;

pub(crate) use self::held::{Held, HeldLarge};
use self::uncounted::Uncounted;

/// After a refusal for want of memory, a caller should wait this long.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The cache keeps one of so many parts of the budget in any case.
const KEPT_PARTS: u64 = 16;
/// What the cache lends changes in steps of this, so that it seldom changes.
const LENT_STEP_BYTES: u64 = 1 << 20;

/// How the budget is divided, bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    pub(crate) all: u64,
    pub(crate) memtables: u64,
    pub(crate) requests: u64,
}

/// Counts memory in use.
pub(crate) struct Budget {
    shares: Shares,
    cache: Arc<BlockCache>,
    memtables: AtomicU64,
    outlived: OutlivedMemory,
    uncounted: Uncounted,
    requests: Mutex<Requests>,
    /// Requests exceed their share, or the cache has lent.
    is_beyond: AtomicBool,
    /// Something was given back.
    freed: Notify,
    /// Memtables are to be flushed.
    pub(crate) flush_work: Notify,
}

#[derive(Debug, Default)]
struct Requests {
    /// Bytes of batches and replies under way.
    held: u64,
    /// Bytes of large requests that were admitted before they were received.
    large: u64,
    /// What the memtables must come down to, for each who waits for it.
    goals: Vec<u64>,
    /// What the cache has lent.
    lent: u64,
    /// How many flushed memtables had been let go at the last look.
    let_go: u64,
}

/// A wish that the memtables come down, withdrawn when dropped.
struct Wish<'a> {
    budget: &'a Budget,
    goal: Option<u64>,
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("memtables", &self.memtables())
            .field("requests", &*self.held())
            .finish_non_exhaustive()
    }
}

impl Budget {
    pub(crate) fn new(shares: Shares, cache: Arc<BlockCache>) -> Budget {
        assert!(shares.memtables > 0 && shares.requests > 0, "shares of a budget");
        Budget {
            shares,
            cache,
            memtables: AtomicU64::new(0),
            outlived: OutlivedMemory::default(),
            uncounted: Uncounted::default(),
            requests: Mutex::default(),
            is_beyond: AtomicBool::new(false),
            freed: Notify::new(),
            flush_work: Notify::new(),
        }
    }

    /// Bytes of all memtables.
    pub(crate) fn memtables(&self) -> u64 {
        // The sum dips below zero for a moment: see `recount_memtables`.
        self.memtables.load(SeqCst).cast_signed().max(0).cast_unsigned()
    }

    /// Counts memtables that were flushed and are still held.
    pub(crate) fn outlived(&self) -> &OutlivedMemory {
        &self.outlived
    }

    /// Bytes that all memtables may take at present: their share, or what others have left of it.
    pub(crate) fn memtables_most(&self) -> u64 {
        let Shares { memtables: share, .. } = self.shares;
        let others = self.requests().saturating_add(self.kept_from_large());
        share.min(self.most().saturating_sub(others)).max(share / KEPT_PARTS)
    }

    /// May no batch be placed until memtables are flushed, or let go?
    pub(crate) fn is_full(&self) -> bool {
        self.memtables() >= self.memtables_most()
    }

    /// Bytes of requests and replies under way.
    pub(crate) fn requests(&self) -> u64 {
        let requests = self.held();
        requests.held + requests.large
    }

    /// What the memtables are to come down to, if somebody waits for that.
    pub(crate) fn goal(&self) -> Option<u64> {
        self.held().goals.iter().min().copied()
    }

    /// Looks again at what has changed without a word: memtables that were let go. Who waits is
    /// woken only if some were: he may ask for a flush again, whose round ends with a look.
    pub(crate) fn look(&self) {
        let mut requests = self.held();
        self.settle(&mut requests);
        let let_go = self.outlived.let_go();
        let before = std::mem::replace(&mut requests.let_go, let_go);
        drop(requests);
        if let_go > before {
            self.freed.notify_waiters();
        }
    }

    /// The process holds `resident` bytes; how many of them are past what is counted and allowed.
    /// To be called now and then.
    pub(crate) fn note_resident(&self, resident: u64) -> u64 {
        let counted = self.memtables() + self.outlived.bytes() + self.cache.used_bytes();
        let (now, has_faded) = self.uncounted.note(resident, counted + self.requests());
        self.settle(&mut self.held());
        if has_faded {
            self.freed.notify_waiters();
        }
        now
    }

    /// Bytes in use that have no share.
    fn shareless(&self) -> u64 {
        self.outlived.bytes().saturating_add(self.uncounted.bytes())
    }

    /// The same, and what is likely to be.
    fn kept_from_large(&self) -> u64 {
        self.outlived.bytes().saturating_add(self.uncounted.likely(self.shares.all))
    }

    /// A range's memtables grew or shrank from `before` to `after` bytes.
    pub(crate) fn recount_memtables(&self, before: u64, after: u64) {
        // Each change says what it replaces, so the sum is right in any order of the changes,
        // though it may dip below zero for a moment.
        self.memtables.fetch_add(after.wrapping_sub(before), SeqCst);
        let memtables = self.memtables().saturating_add(self.shareless());
        if memtables > self.shares.memtables || self.is_beyond.load(SeqCst) {
            self.settle(&mut self.held());
        }
        if after < before {
            self.freed.notify_waiters();
        }
    }

    /// Has the cache lend what exceeds the shares.
    fn settle(&self, requests: &mut Requests) {
        let memtables = self.memtables().saturating_add(self.shareless());
        let used = memtables.saturating_add(requests.held).saturating_add(requests.large);
        let excess = used.saturating_sub(self.shares.memtables + self.shares.requests);
        let lent = excess.next_multiple_of(LENT_STEP_BYTES);
        let is_beyond = lent > 0 || requests.held + requests.large > self.shares.requests;
        self.is_beyond.store(is_beyond, SeqCst);
        if lent != requests.lent {
            requests.lent = lent;
            self.cache.lend(lent);
        }
    }

    /// Somebody who waits should look again.
    pub(crate) fn wake_waiters(&self) {
        self.freed.notify_waiters();
    }

    /// Waits until `bytes` fit the requests' share; those that never do wait until they fit the
    /// budget beside all else.
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
        let mut wish = Wish { budget: self, goal: None };
        self.wait_until(env, limit, what, || {
            let mut requests = self.held();
            let after = requests.held.saturating_add(bytes);
            let fits_share = after <= self.shares.requests;
            let fits = fits_share
                || (requests.held == 0 && wish.fits(&mut requests, bytes, self.most(), 0));
            fits.then(|| {
                requests.held = after;
                self.settle(&mut requests);
            })
        })
        .await?;
        drop(wish);
        Ok(Held { budget: Arc::clone(self), bytes })
    }

    /// Waits until a request of `bytes` that is still to be received fits the budget beside all
    /// else.
    ///
    /// # Errors
    /// `ResourceExhausted` when it does not within `limit`, or would not beside nothing else.
    pub(crate) async fn admit_large(
        self: &Arc<Self>,
        env: &Env,
        bytes: u64,
        limit: Duration,
    ) -> client::Result<HeldLarge> {
        let most = self.most();
        if bytes > most {
            let text = format!("a request of {bytes} bytes, but the memory for all is {most}");
            return Err(Error::new(ErrorKind::ResourceExhausted, text));
        }
        let what = "memtables and requests under way hold all the memory that they may";
        let mut wish = Wish { budget: self, goal: None };
        self.wait_until(env, limit, what, || {
            let mut requests = self.held();
            let others = requests.large + self.outlived.bytes();
            wish.fits(&mut requests, bytes, most, others).then(|| {
                requests.large += bytes;
                self.settle(&mut requests);
            })
        })
        .await?;
        drop(wish);
        Ok(HeldLarge { budget: Arc::clone(self), bytes })
    }

    /// All that may be held at the same time.
    fn most(&self) -> u64 {
        self.shares.all - self.shares.all / KEPT_PARTS
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

    fn held(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().expect("no holder of this lock panics")
    }
}

impl Wish<'_> {
    /// Do `bytes` fit `most` beside all that is held? If not, the memtables are to come down. Those
    /// that are too large for that wait until there is nothing `else_held`, and no memtable.
    fn fits(&mut self, requests: &mut Requests, bytes: u64, most: u64, else_held: u64) -> bool {
        self.withdraw(requests);
        let memtables = self.budget.memtables();
        let held = requests.held.saturating_add(requests.large).saturating_add(bytes);
        let held = held.saturating_add(self.budget.kept_from_large());
        let is_alone = memtables == 0 && else_held == 0;
        if is_alone || memtables.saturating_add(held) <= most {
            return true;
        }
        let goal = most.saturating_sub(held);
        requests.goals.push(goal);
        self.goal = Some(goal);
        self.budget.flush_work.notify_one();
        false
    }

    fn withdraw(&mut self, requests: &mut Requests) {
        if let Some(goal) = self.goal.take()
            && let Some(place) = requests.goals.iter().position(|other| *other == goal)
        {
            requests.goals.swap_remove(place);
        }
    }
}

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        let budget = self.budget;
        self.withdraw(&mut budget.held());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(memtables: u64, requests: u64, cache: u64) -> Arc<Budget> {
        let shares = Shares { all: memtables + requests + cache, memtables, requests };
        Arc::new(Budget::new(shares, Arc::new(BlockCache::new(cache))))
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_room_and_is_refused_in_the_end() {
        let env = Env::simulated(1);
        let budget = budget(100, 100, 100);
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
        let budget = budget(100, 100, 100);
        budget.recount_memtables(10, 0);
        assert_eq!(budget.memtables(), 0, "the change that made it 10 is still to come");
        assert!(!budget.is_full());
        budget.recount_memtables(0, 10);
        assert_eq!(budget.memtables(), 0);
        budget.recount_memtables(70, 90);
        budget.recount_memtables(0, 70);
        assert_eq!(budget.memtables(), 90);
        budget.recount_memtables(90, 10);
        assert_eq!(budget.memtables(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_large_waits_until_the_memtables_leave_it_room() {
        const MIB: u64 = 1 << 20;
        let env = Env::simulated(1);
        let budget = budget(128 * MIB, 32 * MIB, 96 * MIB);
        let limit = Duration::from_secs(1);
        budget.recount_memtables(0, 160 * MIB);
        assert_eq!(budget.goal(), None);
        for large in [true, false] {
            let waiting = env.spawn("waiting", {
                let (budget, env) = (Arc::clone(&budget), env.clone());
                async move {
                    let bytes = 100 * MIB;
                    if large {
                        return budget.admit_large(&env, bytes, limit).await.map(drop);
                    }
                    budget.admit(&env, bytes, limit).await.map(drop)
                }
            });
            env.sleep(Duration::from_millis(10)).await;
            assert_eq!(
                budget.goal(),
                Some(108 * MIB),
                "a sixteenth is the cache's, an eighth for what nobody counts"
            );
            budget.recount_memtables(160 * MIB, 150 * MIB);
            env.sleep(Duration::from_millis(10)).await;
            assert_eq!((budget.goal(), budget.requests()), (Some(108 * MIB), 0));
            budget.recount_memtables(150 * MIB, 108 * MIB);
            waiting.join().await.unwrap().unwrap();
            assert_eq!((budget.goal(), budget.requests()), (None, 0));
            budget.recount_memtables(108 * MIB, 160 * MIB);
        }
        assert!(budget.admit_large(&env, 241 * MIB, limit).await.is_err(), "it never fits");
        assert!(budget.admit_large(&env, 100 * MIB, limit).await.is_err(), "not in time");
        assert_eq!(budget.goal(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn memtables_get_no_more_than_large_requests_leave_of_their_share() {
        const MIB: u64 = 1 << 20;
        let env = Env::simulated(1);
        let budget = budget(128 * MIB, 32 * MIB, 96 * MIB);
        assert_eq!(budget.memtables_most(), 128 * MIB);
        let large = budget.admit_large(&env, 60 * MIB, Duration::ZERO).await.unwrap();
        assert_eq!(budget.memtables_most(), 128 * MIB, "the cache lends enough");
        let reply = budget.admit(&env, 30 * MIB, Duration::ZERO).await.unwrap();
        assert_eq!(
            budget.memtables_most(),
            118 * MIB,
            "a sixteenth is the cache's, an eighth for what nobody counts"
        );
        budget.recount_memtables(0, 118 * MIB - 1);
        assert!(!budget.is_full());
        budget.recount_memtables(118 * MIB - 1, 118 * MIB);
        assert!(budget.is_full());
        drop(reply);
        assert!(!budget.is_full());
        let larger = budget.admit_large(&env, 30 * MIB, Duration::ZERO).await.unwrap();
        budget.recount_memtables(118 * MIB, 0);
        let mut all = budget.admit(&env, MIB, Duration::ZERO).await.unwrap();
        all.resize(145 * MIB);
        assert_eq!(budget.memtables_most(), 8 * MIB, "some is theirs in any case");
        drop((large, larger, all));
        assert_eq!(budget.memtables_most(), 128 * MIB);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_and_the_rounds_that_look_do_not_wake_each_other_without_end() {
        let env = Env::simulated(1);
        let budget = budget(100, 100, 100);
        budget.recount_memtables(0, 200);
        let limit = Duration::from_secs(1);
        let rounds = env.spawn("rounds", {
            let budget = Arc::clone(&budget);
            async move {
                for round in 0.. {
                    budget.flush_work.notified().await;
                    assert!(round < 100, "nothing has changed in {round} rounds");
                    budget.look();
                }
            }
        });
        let refused = budget.admit_large(&env, 200, limit).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
        assert!(!rounds.is_finished(), "it gave up");
        rounds.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_wakes_who_waits_for_a_flushed_memtable_to_be_let_go() {
        let env = Env::simulated(1);
        let budget = budget(100, 100, 100);
        let memtable = budget.outlived().count(200);
        let waiting = env.spawn("waiting", {
            let (budget, env) = (Arc::clone(&budget), env.clone());
            async move { budget.admit_large(&env, 200, Duration::from_secs(1)).await.map(drop) }
        });
        env.sleep(Duration::from_millis(10)).await;
        drop(memtable);
        budget.look();
        waiting.join().await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_counts_is_taken_from_the_cache_and_then_from_the_memtables() {
        const MIB: u64 = 1 << 20;
        let env = Env::simulated(1);
        let budget = budget(128 * MIB, 32 * MIB, 96 * MIB);
        budget.recount_memtables(0, 100 * MIB);
        assert_eq!(budget.note_resident(124 * MIB), 0);
        assert_eq!((budget.memtables_most(), budget.held().lent), (128 * MIB, 0), "it is allowed");
        assert_eq!(budget.note_resident(224 * MIB), 100 * MIB);
        assert_eq!((budget.memtables_most(), budget.held().lent), (128 * MIB, 40 * MIB));
        budget.note_resident(244 * MIB);
        assert_eq!(budget.memtables_most(), 120 * MIB, "a sixteenth is the cache's");
        let waiting = env.spawn("waiting", {
            let (budget, env) = (Arc::clone(&budget), env.clone());
            let limit = Duration::from_secs(1);
            async move { budget.admit_large(&env, 60 * MIB, limit).await.map(drop) }
        });
        env.sleep(Duration::from_millis(10)).await;
        assert_eq!(budget.goal(), Some(60 * MIB));
        budget.note_resident(0);
        env.sleep(Duration::from_millis(10)).await;
        assert!(budget.goal().is_some_and(|goal| goal > 60 * MIB), "it fades");
        for _ in 0..1000 {
            budget.note_resident(0);
        }
        waiting.join().await.unwrap().unwrap();
        assert_eq!((budget.memtables_most(), budget.held().lent), (128 * MIB, 0));
        budget.note_resident(1 << 40);
        assert_eq!(budget.memtables_most(), 8 * MIB, "some is theirs in any case");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_large_waits_for_flushed_memtables_that_are_read_and_for_others_as_large() {
        const MIB: u64 = 1 << 20;
        let env = Env::simulated(1);
        let budget = budget(128 * MIB, 32 * MIB, 96 * MIB);
        let admit = || {
            let (budget, limit) = (Arc::clone(&budget), Duration::from_secs(1));
            let env = env.clone();
            async move { budget.admit_large(&env, 150 * MIB, limit).await }
        };
        let memtable = budget.outlived().count(100 * MIB);
        assert!(admit().await.is_err(), "250 MiB of 256 would be taken by two");
        drop(memtable);
        let first = admit().await.unwrap();
        assert!(admit().await.is_err());
        drop(first);
        admit().await.unwrap();
        // More than is left beside what nobody counts, and nothing else to wait for.
        budget.note_resident(256 * MIB);
        admit().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_lends_what_exceeds_the_shares() {
        const MIB: u64 = 1 << 20;
        let env = Env::simulated(1);
        let budget = budget(128 * MIB, 32 * MIB, 96 * MIB);
        let lent = || budget.held().lent;
        budget.recount_memtables(0, 128 * MIB);
        let reply = budget.admit(&env, 32 * MIB, Duration::ZERO).await.unwrap();
        assert_eq!(lent(), 0);
        drop(reply);
        let large = budget.admit_large(&env, 50 * MIB + 1, Duration::ZERO).await.unwrap();
        assert_eq!(lent(), 19 * MIB);
        budget.recount_memtables(128 * MIB, 0);
        assert_eq!(lent(), 0);
        budget.recount_memtables(0, 150 * MIB);
        drop(large);
        assert_eq!(lent(), 0);
    }
}
