//! The commit queue's world in the server: the session's log and the ranges' storage.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use env::Env;
use lsm::{Batch, RateLimiter, Store};
use tokio::sync::Notify;
use types::{ErrorKind, SeqNo};
use wal::{Entry, EntryKind, Log, Reservation};

use super::commit::{CommitEnv, CommitError, CommitQueue, GroupLimits};

/// A change of a range that has its sequence numbers.
pub(crate) struct Sequenced {
    store: Arc<Store>,
    change: Change,
    /// Its space in the log, until it is written.
    _reservation: Reservation,
}

enum Change {
    Batch(Batch),
    /// Rows cut out at this number, as the log keeps them.
    Excise(SeqNo, Vec<u8>),
}

impl Sequenced {
    pub(crate) fn new(store: Arc<Store>, batch: Batch, reservation: Reservation) -> Sequenced {
        Sequenced { store, change: Change::Batch(batch), _reservation: reservation }
    }

    pub(crate) fn excise(
        store: Arc<Store>,
        seq: SeqNo,
        payload: Vec<u8>,
        reservation: Reservation,
    ) -> Sequenced {
        Sequenced { store, change: Change::Excise(seq, payload), _reservation: reservation }
    }

    /// What is to be inserted.
    pub(crate) fn batch(&self) -> Option<&Batch> {
        match &self.change {
            Change::Batch(batch) => Some(batch),
            Change::Excise(..) => None,
        }
    }

    fn last_seq(&self) -> SeqNo {
        match &self.change {
            Change::Batch(batch) => batch.last_seq(),
            Change::Excise(seq, _) => *seq,
        }
    }

    fn entry(&self) -> Entry<'_> {
        let (kind, first_seq, count, (payload, splices)) = match &self.change {
            Change::Batch(batch) => {
                (EntryKind::Batch, batch.first_seq(), batch.mutations(), batch.parts())
            }
            Change::Excise(seq, payload) => {
                (EntryKind::Excise, *seq, 1, (payload.as_slice(), &[][..]))
            }
        };
        let (range, epoch) = (self.store.range(), self.store.epoch());
        Entry { kind, range, epoch, first_seq, count, payload, splices }
    }
}

/// Is told, once, why nothing can be committed any more.
pub(crate) type OnPoison = Arc<dyn Fn(&str) + Send + Sync>;

/// Whether the server is poisoned, and why. Shared by everything that may find out.
pub(crate) struct Poison {
    reason: OnceLock<String>,
    on_poison: OnPoison,
}

impl Poison {
    pub(crate) fn new(on_poison: OnPoison) -> Poison {
        Poison { reason: OnceLock::new(), on_poison }
    }

    /// Why, if it is.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Poisons the server; the first reason stays.
    pub(crate) fn set(&self, reason: &str) {
        if self.reason.set(reason.to_owned()).is_ok() {
            (self.on_poison)(reason);
        }
    }
}

/// Commits groups to the session's log.
pub(crate) struct LogCommit {
    log: Arc<Log>,
    limiter: Arc<RateLimiter>,
    poison: Arc<Poison>,
    /// Wakes the task that leads for writers who went away.
    pub(crate) orphans: Notify,
}

/// The way of all batches: the session's log, and the queue before it.
pub(crate) struct Pipeline {
    pub(crate) log: Arc<Log>,
    pub(crate) queue: Arc<CommitQueue<LogCommit>>,
    pub(crate) env: Env,
    /// Checked under each range's lock: once it is set and a range's lock was taken after that, no
    /// further batch of the range is placed.
    is_closed: AtomicBool,
}

impl Pipeline {
    pub(crate) fn new(
        log: Log,
        poison: Arc<Poison>,
        env: Env,
        limiter: Arc<RateLimiter>,
    ) -> Pipeline {
        let log = Arc::new(log);
        let commit = LogCommit { log: Arc::clone(&log), limiter, poison, orphans: Notify::new() };
        let queue = Arc::new(CommitQueue::new(commit, GroupLimits::default()));
        Pipeline { log, queue, env, is_closed: AtomicBool::new(false) }
    }

    /// No batch is placed from now on.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, SeqCst);
    }

    /// May batches be placed?
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) fn check_open(&self) -> client::Result<()> {
        if self.is_closed.load(SeqCst) {
            let text = "the server is being stopped";
            return Err(client::Error::new(ErrorKind::Unavailable, text));
        }
        Ok(())
    }
}

fn failed(error: &wal::Error) -> CommitError {
    CommitError::new(error.kind(), error.to_string())
}

impl CommitEnv for LogCommit {
    type Batch = Sequenced;

    fn log(&self, group: &[&Sequenced]) -> Result<(), CommitError> {
        let entries: Vec<Entry<'_>> = group.iter().map(|sequenced| sequenced.entry()).collect();
        self.limiter.note(entries.iter().map(|entry| entry.payload_len() as u64).sum());
        self.log.append(&entries).map_err(|error| failed(&error)).map(drop)
    }

    fn sync(&self) -> Result<(), CommitError> {
        self.log.sync().map_err(|error| failed(&error)).map(drop)
    }

    fn check_lease(&self) -> Result<(), CommitError> {
        // A session that holds the data folder's lock cannot lose its lease while it runs.
        Ok(())
    }

    fn publish(&self, sequenced: &Sequenced) {
        sequenced.store.publish(sequenced.last_seq());
    }

    fn poisoned(&self, failure: &CommitError) {
        self.poison.set(&failure.reason);
    }

    fn orphaned(&self) {
        self.orphans.notify_one();
    }
}
