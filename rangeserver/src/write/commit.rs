//! Group commit: turns concurrent batches into one log append and one sync.
//!
//! ```text
//! sequence + place in queue ─► insert (invisible) ─► wait
//!                    │
//!                    └─► [leader takes all waiting] ─► log ─► sync ─► lease? ─► publish ─► answer
//! ```
//!
//! 1. A writer gets its place with [`CommitQueue::enqueue`] under its range's short lock, so that
//!    places are in sequence order within each range; then it inserts its cells and says so with
//!    [`Ticket::inserted`].
//! 2. The writer that finds nobody leading is *chosen*. It leads when it is polled: takes what
//!    waits, commits it as one group, answers all, and goes on for a bounded number of groups.
//!    Then it hands over to a waiter.
//! 3. A slot belongs to the queue: a writer that is cancelled after its batch was sequenced leaves
//!    the batch in its group. A chosen writer that is cancelled before it leads hands over. When
//!    nobody who waits is left, [`CommitEnv::orphaned`] asks for somebody else to lead.
//!
//! Invariants
//! - Batches of a range are logged and published in sequence order.
//! - A batch is visible only after its frame is synced and the lease was checked after that.
//! - Leading has no await: it cannot be cancelled half-way.
//! - At most one leader is chosen or leading. After a failure there is none, and every batch,
//!   waiting or to come, is answered with that failure: the log's tail is unknown.
//!
//! One leader serves all ranges because they share one log: the sync is what is shared.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use env::planted::{PlantedBug, planted};
use types::ErrorKind;

use super::counters::CommitCounters;
use super::sync::{Arc, AtomicU8, Mutex, MutexGuard, Ordering, yield_now};

/// What the queue needs of the world, so that its tests need no server.
pub(crate) trait CommitEnv: Send + Sync + 'static {
    /// One sequenced batch.
    type Batch: Send + Sync;

    /// Appends the group to the log as one frame.
    fn log(&self, group: &[&Self::Batch]) -> Result<(), CommitError>;

    /// Makes everything logged durable.
    fn sync(&self) -> Result<(), CommitError>;

    /// May this server still answer for its ranges?
    fn check_lease(&self) -> Result<(), CommitError>;

    /// Makes a batch visible; its cells are inserted.
    fn publish(&self, batch: &Self::Batch);

    /// Told once, after the first failure: nothing can be committed any more.
    fn poisoned(&self, failure: &CommitError);

    /// Batches wait and nobody who awaits them is left: somebody must call
    /// [`CommitQueue::lead_orphans`] soon.
    fn orphaned(&self);
}

/// Why a group was not committed. Shared by all its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommitError {
    /// What the caller can do.
    pub(crate) kind: ErrorKind,
    /// What failed.
    pub(crate) reason: std::sync::Arc<str>,
}

impl CommitError {
    pub(crate) fn new(kind: ErrorKind, reason: impl Into<String>) -> CommitError {
        CommitError { kind, reason: std::sync::Arc::from(reason.into()) }
    }
}

/// What a member of a group is told.
pub(crate) type Outcome = Result<(), CommitError>;

/// How much one leader does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupLimits {
    /// Bytes of batches after which a group takes no further one.
    pub(crate) group_bytes: usize,
    /// Batches of one group.
    pub(crate) group_batches: usize,
    /// Groups that one leader commits before it hands over.
    pub(crate) groups_per_leader: usize,
}

impl Default for GroupLimits {
    fn default() -> GroupLimits {
        GroupLimits { group_bytes: 4 << 20, group_batches: 1024, groups_per_leader: 4 }
    }
}

/// The batches that wait for their commit, and who commits them.
pub(crate) struct CommitQueue<E: CommitEnv> {
    env: E,
    limits: GroupLimits,
    state: Mutex<State<E::Batch>>,
    counters: CommitCounters,
}

struct State<B> {
    waiting: VecDeque<Arc<Slot<B>>>,
    /// Is a leader chosen or leading?
    led: bool,
    failure: Option<CommitError>,
}

struct Slot<B> {
    batch: B,
    bytes: usize,
    insertion: AtomicU8,
    place: Mutex<Place>,
}

/// Where a slot's writer stands.
enum Place {
    Waiting(Option<Waker>),
    Chosen,
    /// Its writer was cancelled.
    Left,
    Done(Outcome),
}

const NOT_INSERTED: u8 = 0;
const INSERTED: u8 = 1;
/// The writer ended between its place and its insertion: only a panic does that.
const INSERTION_FAILED: u8 = 2;

/// What a waiting writer has to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Call [`CommitQueue::lead`] now.
    Lead,
    /// The batch's group is finished.
    Done(Outcome),
}

impl<E: CommitEnv> CommitQueue<E> {
    pub(crate) fn new(env: E, limits: GroupLimits) -> CommitQueue<E> {
        assert!(limits.group_batches > 0 && limits.groups_per_leader > 0, "a leader leads");
        let state = State { waiting: VecDeque::new(), led: false, failure: None };
        CommitQueue { env, limits, state: Mutex::new(state), counters: CommitCounters::default() }
    }

    pub(crate) fn env(&self) -> &E {
        &self.env
    }

    pub(crate) fn counters(&self) -> &CommitCounters {
        &self.counters
    }

    /// The failure after which nothing is committed.
    #[cfg(test)]
    pub(crate) fn failure(&self) -> Option<CommitError> {
        self.lock().failure.clone()
    }

    /// Does nothing wait, and does nobody lead?
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.waiting.is_empty() && !state.led
    }

    /// Gives a sequenced batch its place. Called under the lock that sequences the range's batches.
    pub(crate) fn enqueue(self: &Arc<Self>, batch: E::Batch, bytes: usize) -> Ticket<E> {
        let mut state = self.lock();
        let place = match &state.failure {
            Some(failure) => Place::Done(Err(failure.clone())),
            None if state.led => Place::Waiting(None),
            None => Place::Chosen,
        };
        let is_queued = !matches!(place, Place::Done(_));
        let insertion = AtomicU8::new(NOT_INSERTED);
        let slot = Arc::new(Slot { batch, bytes, insertion, place: Mutex::new(place) });
        if is_queued {
            state.led = true;
            state.waiting.push_back(Arc::clone(&slot));
        }
        Ticket { queue: Arc::clone(self), slot }
    }

    /// Leads: commits what waits. The caller was told [`Signal::Lead`]. Blocks the thread.
    pub(crate) fn lead(&self) {
        let mut leading = Leading { queue: self, group: Vec::new(), is_finished: false };
        for _ in 0..self.limits.groups_per_leader {
            let Some(group) = self.take_group() else {
                leading.is_finished = true;
                return;
            };
            leading.group = group;
            self.run_group(&leading.group);
        }
        leading.is_finished = true;
        self.hand_over();
    }

    /// Commits what waits if nobody leads. Blocks the thread.
    pub(crate) fn lead_orphans(&self) {
        {
            let mut state = self.lock();
            if state.led || state.waiting.is_empty() {
                return;
            }
            state.led = true;
        }
        self.lead();
    }

    /// Takes the next group; with nothing waiting, gives up the lead.
    fn take_group(&self) -> Option<Vec<Arc<Slot<E::Batch>>>> {
        let mut state = self.lock();
        if state.failure.is_some() || state.waiting.is_empty() {
            state.led = false;
            return None;
        }
        let (mut bytes, mut count) = (0_usize, 0_usize);
        while let Some(next) = state.waiting.get(count) {
            let full = bytes.saturating_add(next.bytes) > self.limits.group_bytes;
            if count > 0 && (full || count == self.limits.group_batches) {
                break;
            }
            bytes = bytes.saturating_add(next.bytes);
            count += 1;
        }
        Some(state.waiting.drain(..count).collect())
    }

    fn run_group(&self, group: &[Arc<Slot<E::Batch>>]) {
        let outcome = self.commit(group);
        if let Err(failure) = &outcome {
            self.poison(failure);
        } else {
            let bytes = group.iter().map(|slot| slot.bytes).sum();
            self.counters.count_group(group.len(), bytes);
        }
        for slot in group {
            slot.finish(&outcome);
        }
    }

    fn commit(&self, group: &[Arc<Slot<E::Batch>>]) -> Outcome {
        let batches: Vec<&E::Batch> = group.iter().map(|slot| &slot.batch).collect();
        self.env.log(&batches)?;
        let is_early = planted(PlantedBug::PublishBeforeSync);
        if is_early {
            self.publish(group)?;
        }
        self.env.sync()?;
        self.env.check_lease()?; // After the last effect, before anyone hears of it.
        if !is_early {
            self.publish(group)?;
        }
        Ok(())
    }

    fn publish(&self, group: &[Arc<Slot<E::Batch>>]) -> Outcome {
        for slot in group {
            slot.wait_inserted()?;
            self.env.publish(&slot.batch);
        }
        Ok(())
    }

    /// Ends all committing with `failure`, unless an earlier one did.
    pub(crate) fn poison(&self, failure: &CommitError) {
        let waiting = {
            let mut state = self.lock();
            if state.failure.is_some() {
                return;
            }
            state.failure = Some(failure.clone());
            std::mem::take(&mut state.waiting)
        };
        self.env.poisoned(failure);
        for slot in waiting {
            slot.finish(&Err(failure.clone()));
        }
    }

    /// Chooses the next leader among those who wait.
    fn hand_over(&self) {
        let is_orphaned = {
            let mut state = self.lock();
            if state.waiting.iter().any(|slot| slot.choose()) {
                return;
            }
            state.led = false;
            !state.waiting.is_empty()
        };
        if is_orphaned {
            self.env.orphaned();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<E::Batch>> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

/// A leader that ends by a panic must not leave the others waiting for ever.
struct Leading<'a, E: CommitEnv> {
    queue: &'a CommitQueue<E>,
    /// The group that it has taken from the queue.
    group: Vec<Arc<Slot<E::Batch>>>,
    is_finished: bool,
}

impl<E: CommitEnv> Drop for Leading<'_, E> {
    fn drop(&mut self) {
        if !self.is_finished {
            let failure = CommitError::new(ErrorKind::Poisoned, "the leader of a commit panicked");
            self.queue.poison(&failure);
            for slot in &self.group {
                slot.finish(&Err(failure.clone()));
            }
        }
    }
}

impl<B> Slot<B> {
    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().expect("no holder of this lock panics")
    }

    /// Makes its writer the leader, if it still waits.
    fn choose(&self) -> bool {
        let mut place = self.place();
        let Place::Waiting(waker) = &mut *place else {
            return false;
        };
        let waker = waker.take();
        *place = Place::Chosen;
        drop(place);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    fn finish(&self, outcome: &Outcome) {
        let mut place = self.place();
        let waker = match &mut *place {
            Place::Waiting(waker) => waker.take(),
            Place::Chosen => None,
            Place::Left | Place::Done(_) => return,
        };
        *place = Place::Done(outcome.clone());
        drop(place);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Its writer runs: the insertion follows the place without an await in between.
    fn wait_inserted(&self) -> Outcome {
        loop {
            match self.insertion.load(Ordering::Acquire) {
                NOT_INSERTED => yield_now(),
                INSERTED => return Ok(()),
                _ => {
                    let reason = "a sequenced batch was not inserted";
                    return Err(CommitError::new(ErrorKind::Poisoned, reason));
                }
            }
        }
    }
}

/// A writer's hold on its batch's place. Dropping it leaves the batch in the queue.
pub(crate) struct Ticket<E: CommitEnv> {
    queue: Arc<CommitQueue<E>>,
    slot: Arc<Slot<E::Batch>>,
}

impl<E: CommitEnv> Ticket<E> {
    /// The batch, to insert it.
    pub(crate) fn batch(&self) -> &E::Batch {
        &self.slot.batch
    }

    /// The batch's cells are inserted: it may be published.
    pub(crate) fn inserted(&self) {
        self.slot.insertion.store(INSERTED, Ordering::Release);
    }

    /// Waits until there is something to do.
    pub(crate) async fn signal(&mut self) -> Signal {
        poll_fn(|context| {
            let mut place = self.slot.place();
            match &mut *place {
                Place::Done(outcome) => Poll::Ready(Signal::Done(outcome.clone())),
                Place::Chosen => Poll::Ready(Signal::Lead),
                Place::Waiting(waker) => {
                    *waker = Some(context.waker().clone());
                    Poll::Pending
                }
                Place::Left => unreachable!("only dropping the ticket leaves"),
            }
        })
        .await
    }

    /// Waits until the batch is durable and visible, and leads when chosen.
    pub(crate) async fn wait(mut self, env: &env::Env) -> Outcome {
        loop {
            match self.signal().await {
                Signal::Done(outcome) => return outcome,
                Signal::Lead => {
                    // So that those who are about to enqueue make it into this group.
                    env.yield_now().await;
                    env.blocking(|| self.queue.lead());
                }
            }
        }
    }
}

impl<E: CommitEnv> Drop for Ticket<E> {
    fn drop(&mut self) {
        let _ = self.slot.insertion.compare_exchange(
            NOT_INSERTED,
            INSERTION_FAILED,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        let was_chosen = {
            let mut place = self.slot.place();
            match *place {
                Place::Done(_) => return,
                Place::Chosen => {
                    *place = Place::Left;
                    true
                }
                Place::Waiting(_) | Place::Left => {
                    *place = Place::Left;
                    false
                }
            }
        };
        if was_chosen {
            self.queue.hand_over();
        }
    }
}

#[cfg(test)]
mod tests;
