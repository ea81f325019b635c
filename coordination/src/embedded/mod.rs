//! A coordinator inside one process, durable in a folder: a log and, now and then, a snapshot.
//!
//! A commit, under one lock (the *turn*):
//! 1. check the guards against the state in memory;
//! 2. reserve space in the log (the last await);
//! 3. in one section without await: append the changes, sync, apply them to the state, tell the
//!    watchers.
//!
//! Invariants
//! - The state in memory is durable: what a read returns no crash takes back.
//! - A caller that goes away cancels a commit before step 3 or not at all.
//! - After a failed write nothing is known of the last transaction, so nothing is answered any
//!   more, not even a read.
//! - The newest snapshot is never removed; older ones and the log before it go only when it is
//!   durable.

pub mod format;
mod open;
mod state;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use env::Env;
use storage::{FileSystem, Path};
use tokio::sync::broadcast;
use types::{Epoch, ErrorKind, RangeId, SeqNo, SessionId};
use wal::{Entry, EntryKind, Log, LogOptions};

use crate::limits::{PAGE_MAX, WATCH_BACKLOG};
use crate::watch::Notice;
use crate::{
    Change, Coordinator, Error, Outcome, Page, Result, Revision, Transaction, Versioned, Watch,
};
use format::{Snapshot, encode_record};
use state::{Prepared, State};

/// How often an embedded coordinator writes a snapshot, and its log.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedOptions {
    /// Bytes of records after which a snapshot is due.
    pub snapshot_bytes: u64,
    /// Records after which a snapshot is due.
    pub snapshot_records: u64,
    /// The log's segments.
    pub log: LogOptions,
}

impl Default for EmbeddedOptions {
    fn default() -> EmbeddedOptions {
        EmbeddedOptions {
            snapshot_bytes: 16 << 20,
            snapshot_records: 20_000,
            log: LogOptions {
                first_segment_bytes: 256 << 10,
                segment_bytes: 4 << 20,
                segments_ahead: 1,
            },
        }
    }
}

/// A durable coordinator in one process. Whoever opens it holds its folder alone.
pub struct EmbeddedCoordinator {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for EmbeddedCoordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedCoordinator")
            .field("folder", &self.inner.folder)
            .finish_non_exhaustive()
    }
}

struct Inner {
    files: Arc<dyn FileSystem>,
    env: Env,
    folder: Path,
    options: EmbeddedOptions,
    log: Log,
    log_session: SessionId,
    /// Whoever changes anything. Taken before `state`, never after.
    turn: tokio::sync::Mutex<Turn>,
    /// Held for moments only.
    state: Mutex<State>,
    notices: broadcast::Sender<Notice>,
}

/// What belongs to whoever changes the state.
struct Turn {
    /// The newest snapshot.
    snapshot: u64,
    /// What the log holds since then.
    bytes: u64,
    records: u64,
    snapshot_started: bool,
}

impl EmbeddedCoordinator {
    /// Opens the coordinator in `folder`, new or as it was left.
    ///
    /// # Errors
    /// `Corrupt` when what was left is damaged: it never starts empty instead. `FailedPrecondition`
    /// when a newer version wrote it; those of the file system.
    pub async fn open(
        files: Arc<dyn FileSystem>,
        env: Env,
        folder: Path,
        options: EmbeddedOptions,
    ) -> Result<EmbeddedCoordinator> {
        let found = open::read(&files, &folder).await?;
        let started = open::start(&files, &env, &folder, &options, &found).await?;
        open::remove_former(&files, &folder, &found).await?;
        let inner = Inner {
            files,
            env,
            folder,
            options,
            log: started.log,
            log_session: started.session,
            turn: tokio::sync::Mutex::new(Turn {
                snapshot: started.snapshot.number,
                bytes: 0,
                records: 0,
                snapshot_started: false,
            }),
            state: Mutex::new(State::new(started.snapshot.revision, started.snapshot.entries)),
            notices: broadcast::Sender::new(WATCH_BACKLOG),
        };
        Ok(EmbeddedCoordinator { inner: Arc::new(inner) })
    }

    /// The last transaction.
    pub fn revision(&self) -> Revision {
        self.inner.state().revision
    }

    /// Ends all sessions, closes the log and leaves a snapshot that needs no log. Everything later
    /// fails.
    ///
    /// # Errors
    /// Those of writing; the next opening then recovers as after a crash.
    pub async fn close(&self) -> Result<()> {
        let inner = &self.inner;
        let turn = inner.turn.lock().await;
        let (entries, revision) = {
            let mut state = inner.state();
            state.check_open()?;
            state.close();
            state::without_sessions(&state.entries, state.revision)
        };
        inner.log.close().await?;
        let last = Snapshot { number: turn.snapshot + 1, revision, log: None, entries };
        open::write_snapshot(&inner.files, &inner.folder, &last).await?;
        open::remove_snapshots_below(&inner.files, &inner.folder, last.number).await?;
        let log = inner.folder.join(&inner.log_session.to_string());
        wal::remove_log(&inner.files, &log).await?;
        Ok(())
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Makes changes durable, then visible.
    async fn write(self: &Arc<Self>, turn: &mut Turn, changes: Vec<Change>) -> Result<Revision> {
        let payload = encode_record(&changes);
        let space = self.log.reserve(payload.len(), 1).await;
        let space = space.map_err(|error| self.note(error))?;
        let revision = self.env.blocking(|| self.write_now(&payload, changes))?;
        drop(space);
        turn.records += 1;
        turn.bytes += payload.len() as u64;
        self.snapshot_when_due(turn);
        Ok(revision)
    }

    fn write_now(&self, payload: &[u8], changes: Vec<Change>) -> Result<Revision> {
        let revision = self.state().revision.next();
        let entry = Entry {
            kind: EntryKind::Batch,
            range: RangeId::new(0),
            epoch: Epoch::new(0),
            first_seq: SeqNo::ZERO.advance(revision.get()),
            count: 1,
            payload,
            splices: &[],
        };
        let appended = self.log.append(&[entry]);
        let written = appended.and_then(|_| self.log.sync());
        written.map_err(|error| self.note(error))?;
        let keys = changes.iter().map(|change| change.key().to_owned());
        let keys: Arc<[String]> = keys.collect();
        self.state().apply(revision, changes);
        // Nobody listening is not an error.
        let _ = self.notices.send(Notice { revision, keys });
        Ok(revision)
    }

    /// Stops everything if the log's state is unknown.
    fn note(&self, error: wal::Error) -> Error {
        if error.kind() == ErrorKind::Poisoned {
            self.state().poison(&error);
        }
        error.into()
    }

    fn is_snapshot_due(&self, turn: &Turn) -> bool {
        turn.bytes >= self.options.snapshot_bytes || turn.records >= self.options.snapshot_records
    }

    /// Writes a snapshot in a task of its own: it must not be cancelled half-way.
    fn snapshot_when_due(self: &Arc<Self>, turn: &mut Turn) {
        if turn.snapshot_started || !self.is_snapshot_due(turn) {
            return;
        }
        turn.snapshot_started = true;
        let inner = Arc::downgrade(self);
        let task = async move {
            if let Some(inner) = inner.upgrade() {
                inner.snapshot().await;
            }
        };
        // Detached: should it fail for lack of space, the next commit starts another.
        drop(self.env.spawn("write a coordination snapshot", task));
    }

    async fn snapshot(&self) {
        let mut turn = self.turn.lock().await;
        turn.snapshot_started = false;
        let (snapshot, end) = {
            let state = self.state();
            if state.check_open().is_err() {
                return;
            }
            let snapshot = Snapshot {
                number: turn.snapshot + 1,
                revision: state.revision,
                log: Some(self.log_session),
                entries: state.entries.clone(),
            };
            (snapshot, self.log.end())
        };
        match open::write_snapshot(&self.files, &self.folder, &snapshot).await {
            Ok(()) => {}
            Err(full) if full.kind() == ErrorKind::ResourceExhausted => return,
            Err(error) => return self.state().poison(&error),
        }
        turn.snapshot = snapshot.number;
        turn.bytes = 0;
        turn.records = 0;
        // What fails to go now goes after the next snapshot or at the next opening.
        let _ = open::remove_snapshots_below(&self.files, &self.folder, snapshot.number).await;
        let released = self.log.release_before(end.segment).await;
        if let Err(error) = released {
            self.note(error);
        }
    }
}

#[async_trait]
impl Coordinator for EmbeddedCoordinator {
    async fn get(&self, key: &str) -> Result<Option<Versioned>> {
        let state = self.inner.state();
        state.check_open()?;
        Ok(state.entries.get(key).cloned())
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        let state = self.inner.state();
        state.check_open()?;
        Ok(state.list(prefix, after, limit.min(PAGE_MAX)))
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome> {
        transaction.check()?;
        let mut turn = self.inner.turn.lock().await;
        let prepared = self.inner.state().prepare(transaction)?;
        let changes = match prepared {
            Prepared::Answer(outcome) => return Ok(outcome),
            Prepared::Write(changes) => changes,
        };
        let revision = self.inner.write(&mut turn, changes).await?;
        Ok(Outcome::Committed { revision })
    }

    /// A session ends with its process at the latest: the time to live is not needed.
    async fn open_session(&self, _ttl: Duration) -> Result<SessionId> {
        let session = SessionId::new(self.inner.env.random_u128());
        let mut state = self.inner.state();
        state.check_open()?;
        state.sessions.insert(session);
        Ok(session)
    }

    async fn end_session(&self, session: SessionId) -> Result<()> {
        let mut turn = self.inner.turn.lock().await;
        let changes = {
            let mut state = self.inner.state();
            state.check_open()?;
            state.sessions.remove(&session);
            state.deletes_of(session)
        };
        if !changes.is_empty() {
            self.inner.write(&mut turn, changes).await?;
        }
        Ok(())
    }

    async fn watch(&self, prefix: &str) -> Result<Watch> {
        self.inner.state().check_open()?;
        Ok(Watch::new(prefix, self.inner.notices.subscribe()))
    }
}
