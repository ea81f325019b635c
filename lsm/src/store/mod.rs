//! The storage of one range: memtables above SSTables, under one owner.
//!
//! The life of a write
//! 1. The owner sequences a batch under its own lock and there asks for a seat
//!    ([`Store::place`]): which memtable the batch goes to is settled in sequence order.
//! 2. [`Seat::insert`] puts the cells into the memtable, invisible: reads stop at `published`.
//! 3. When the log has it durable, [`Store::publish`] shows it.
//! 4. [`Store::freeze`], under the owner's lock again, ends the memtable at a sequence number.
//! 5. [`Store::flush`] writes a frozen memtable, whose last number is published, to SSTables, and
//!    commits a manifest that names them.
//!
//! Invariants
//! - A memtable holds the numbers after the one frozen before it, up to its own.
//! - `flushed ≤ published < next`; nothing above `published` is in an SSTable.
//! - The state that a read pins names only files that are durable and checked.
//! - After a failed write whose outcome is unknown the store is *poisoned*: every call fails until
//!   the range is opened again, which finds the truth.
//! - After another owner's manifest was met the store is *fenced*, likewise for good.

mod commit;
mod config;
mod open;
mod split;
mod state;
mod view;

pub use config::{StoreConfig, range_folder};
pub use state::LogPosition;
pub(crate) use state::{Layer, State};
pub use view::ReadView;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use storage::{FileSystem, Path};
use tokio::sync::OwnedMutexGuard;
use types::{Epoch, LocalityGroup, RangeActivity, RangeId, RowRange, SeqNo, Timestamp};

use crate::batch::Batch;
use crate::compaction::Control;
use crate::error::{Error, Result};
use crate::events::{Event, Reason};
use crate::files::TableFiles;
use crate::io::RateLimiter;
use crate::layout::Layout;
use crate::manifest::Chain;
use crate::memtable::MemtableOptions;
use crate::options::StoreOptions;
use crate::pin::Pinned;
use crate::rules::FamilyRules;
use crate::statistics::Counters;
use crate::version::Version;

/// How far ahead of the wall clock a timestamp may push those that the server hands out, µs.
pub const TIMESTAMP_DRIFT_MAX_MICROS: i64 = 1_000_000;

/// What only the writing side knows. Its lock is short and never held across an await; every
/// change of the pinned state is made under it.
#[derive(Debug)]
pub(crate) struct Writing {
    /// The last number that was given a seat.
    pub(crate) placed: SeqNo,
    /// The newest timestamp of the cells placed, at most the drift ahead of the clock.
    last_timestamp: Timestamp,
    memtables: u64,
}

/// The newest manifest, as this owner committed it.
#[derive(Clone, Copy, Debug)]
struct Head {
    number: u64,
    checksum: u64,
}

/// Why nothing goes on.
#[derive(Clone, Debug)]
enum Stop {
    Poisoned(String),
    Fenced(Epoch),
    Closed,
}

/// The storage of one range. See the module's words.
pub struct Store {
    config: StoreConfig,
    chain: Chain,
    pub(crate) files: Arc<TableFiles>,
    pinned: Pinned<State>,
    writing: Mutex<Writing>,
    /// Where the next flush writes to.
    layout: Mutex<Arc<Layout>>,
    /// One commit at a time.
    head: tokio::sync::Mutex<Head>,
    /// One flush at a time.
    flushing: Arc<tokio::sync::Mutex<()>>,
    pub(crate) compactions: Control,
    pub(crate) counters: Arc<Counters>,
    /// The newest schema's.
    rules: Mutex<Arc<FamilyRules>>,
    stop: OnceLock<Stop>,
    /// Nothing is committed or placed while it stands: see [`Store::seal`].
    is_sealed: AtomicBool,
}

/// The right to be the only flush, or the only compaction, until its commit has ended: the commit
/// holds it, since it goes on when its caller goes away.
#[derive(Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "held, not read")] OwnedMutexGuard<()>);

impl Turn {
    pub(crate) fn new(held: OwnedMutexGuard<()>) -> Turn {
        Turn(held)
    }
}

/// Where a sequenced batch goes.
#[derive(Debug)]
pub struct Seat(Arc<Layer>);

impl Seat {
    /// Inserts the batch, invisible until it is published.
    pub fn insert(&self, batch: &Batch) {
        self.0.memtable.insert_batch(batch);
    }
}

impl Store {
    /// The range.
    pub fn range(&self) -> RangeId {
        self.config.range
    }

    /// The range's rows.
    pub fn bounds(&self) -> &RowRange {
        &self.config.bounds
    }

    /// The owner's epoch.
    pub fn epoch(&self) -> Epoch {
        self.config.epoch
    }

    /// The settings.
    pub fn options(&self) -> &StoreOptions {
        &self.config.options
    }

    pub(crate) fn env(&self) -> &env::Env {
        &self.config.env
    }

    /// What reads and writes of its files are held to.
    pub fn limiter(&self) -> &Arc<RateLimiter> {
        &self.config.limiter
    }

    pub(crate) fn disk(&self) -> &Arc<dyn FileSystem> {
        &self.config.files
    }

    pub(crate) fn table_folder(&self) -> &Path {
        &self.config.table_folder
    }

    pub(crate) fn chain(&self) -> &Chain {
        &self.chain
    }

    /// The number that the next mutation gets.
    pub fn next_seq(&self) -> SeqNo {
        self.writing().placed.next()
    }

    /// Everything up to this number is in SSTables.
    pub fn flushed_seq(&self) -> SeqNo {
        self.state().version.flushed()
    }

    /// The present version.
    pub fn version(&self) -> Arc<Version> {
        Arc::clone(&self.state().version)
    }

    /// Declares the locality groups that the schema has now: the next flush writes to them and
    /// records them.
    pub fn set_groups(&self, declared: &[LocalityGroup]) {
        let mut layout = self.layout.lock().unwrap_or_else(PoisonError::into_inner);
        *layout = Arc::new(Layout::new(declared));
    }

    /// The locality groups that the next flush writes to.
    pub fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// No server timestamp after this was handed out: the next is at least this. Learned from the
    /// manifest and from every cell placed or recovered, but at most the allowed drift ahead of
    /// the wall clock, since clients may write any timestamp.
    pub fn last_timestamp_bound(&self) -> Timestamp {
        let learned = self.writing().last_timestamp;
        learned.max(self.state().version.last_timestamp())
    }

    /// Gives a sequenced batch its seat. To be called under the owner's lock, in sequence order;
    /// `log_floor` is a position at or before the one that the batch will get in the log.
    ///
    /// # Errors
    /// The store is poisoned, fenced or closed.
    pub fn place(&self, batch: &Batch, log_floor: LogPosition) -> Result<Seat> {
        self.check()?;
        let mut writing = self.writing();
        assert!(batch.first_seq() > writing.placed, "batches are placed in sequence order");
        writing.placed = batch.last_seq();
        self.counters.placed_bytes.add(batch.payload_len() as u64);
        if let Some(newest) = batch.newest_timestamp()
            && newest > writing.last_timestamp
        {
            writing.last_timestamp = writing.last_timestamp.max(self.at_most_drifted(newest));
        }
        // Under the lock: a freeze cannot come between.
        let active = Arc::clone(&self.state().active);
        active.floor.get_or_init(|| log_floor);
        Ok(Seat(active))
    }

    /// Places and inserts a batch: for owners that need not insert outside their lock.
    ///
    /// # Errors
    /// As [`Store::place`].
    pub fn insert(&self, batch: &Batch, log_floor: LogPosition) -> Result<()> {
        self.place(batch, log_floor)?.insert(batch);
        Ok(())
    }

    /// `newest`, but at most the allowed drift ahead of the wall clock.
    pub(crate) fn at_most_drifted(&self, newest: Timestamp) -> Timestamp {
        let limit = self.env().now_micros().saturating_add(TIMESTAMP_DRIFT_MAX_MICROS);
        newest.min(Timestamp::from_micros(limit).unwrap_or_default())
    }

    /// Shows everything up to `seq`: it is durable in the log, and inserted.
    pub fn publish(&self, seq: SeqNo) {
        self.pinned.publish(seq);
    }

    /// Reads see everything up to this number.
    pub fn published(&self) -> SeqNo {
        self.pinned.published()
    }

    /// Pins what a read sees: the newest published state.
    ///
    /// # Errors
    /// The store is poisoned, fenced or closed.
    pub fn view(self: &Arc<Self>) -> Result<ReadView> {
        self.check_stop()?;
        let (state, seq) = self.pinned.pin();
        Ok(ReadView::new(Arc::clone(self), state, seq))
    }

    /// What was done since the open, and how the files stand.
    pub fn statistics(&self) -> RangeActivity {
        let files = self.compactions.need();
        RangeActivity {
            live_bytes: files.live_bytes,
            largest_level_bytes: files.largest_level_bytes,
            sorted_runs: files.sorted_runs,
            merge_debt: files.debt,
            files_set_aside: self.compactions.aside.count(),
            ..self.counters.read()
        }
    }

    /// Memory of all memtables, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.state().layers().map(|layer| layer.memtable.memory_bytes()).sum()
    }

    /// Memory of the active memtable, bytes.
    pub fn active_bytes(&self) -> usize {
        self.state().active.memtable.memory_bytes()
    }

    /// Memory of what is always kept of the open SSTables (top index, filters), bytes.
    pub fn tables_memory_bytes(&self) -> usize {
        self.state().tables.values().map(|table| table.memory_bytes()).sum()
    }

    /// Frozen memtables that wait for their flush.
    pub fn frozen_count(&self) -> usize {
        self.state().frozen.len()
    }

    /// Has the active memtable reached its size?
    pub fn wants_freeze(&self) -> bool {
        self.active_bytes() as u64 >= self.config.options.memtable_bytes
    }

    /// Has the range so many frozen memtables that writers must wait?
    pub fn must_stall(&self) -> bool {
        self.frozen_count() as u64 >= self.config.options.frozen_max && self.wants_freeze()
    }

    /// The range needs nothing of the log before this position; `None`: it needs nothing at all
    /// of what was placed so far. A position that the log reached before this call is thus safe
    /// to release up to, if no batch is placed in between.
    pub fn oldest_needed(&self) -> Option<LogPosition> {
        // Under the lock: neither a freeze nor a first batch can come between.
        let _writing = self.writing();
        self.state().layers().find_map(|layer| layer.floor.get().copied())
    }

    /// Ends the active memtable at the last number placed; later batches go to a new one. To be
    /// called under the owner's lock. `false`: there is nothing to freeze.
    pub fn freeze(&self, reason: Reason) -> bool {
        let mut writing = self.writing();
        self.freeze_active(&mut writing, reason)
    }

    /// As [`Store::freeze`], under the lock.
    pub(crate) fn freeze_active(&self, writing: &mut Writing, reason: Reason) -> bool {
        let state = self.state();
        if !state.active.is_used() {
            return false;
        }
        let ended = state.active.frozen.set((writing.placed, reason));
        assert!(ended.is_ok(), "a memtable is frozen once");
        writing.memtables += 1;
        let active = Layer::new(MemtableOptions {
            id: writing.memtables,
            shared_prefix: Some(state.active.memtable.learned_prefix()),
        });
        let mut frozen = state.frozen.clone();
        frozen.push(Arc::clone(&state.active));
        self.pinned.install(Arc::new(State {
            version: Arc::clone(&state.version),
            tables: state.tables.clone(),
            active,
            frozen,
        }));
        true
    }

    /// Removes the SSTables that were given up and that nobody reads any more.
    pub async fn remove_retired(&self) {
        for bytes in self.files.remove_retired().await {
            self.tell(&Event::FileRemoved { bytes });
        }
    }

    /// SSTables that were given up but are still read.
    pub fn retired_count(&self) -> usize {
        self.files.retired_count()
    }

    /// Ends all work: later calls fail. What is not flushed stays in the log.
    pub async fn close(&self) {
        let _ = self.stop.set(Stop::Closed);
        self.compactions.hold();
        // Whoever is in the middle of something sees the stop or finishes first.
        drop((self.flushing.lock().await, self.compactions.turn().await, self.head.lock().await));
        self.state().layers().for_each(|layer| layer.memtable.outlive(&self.config.outlived));
    }

    /// From now on merges drop and fold what these rules allow: the newest schema's. Before the
    /// first call they know no family, and so keep all that a reader could see.
    pub fn set_rules(&self, rules: &Arc<FamilyRules>) {
        *self.rules_held() = Arc::clone(rules);
    }

    /// The rules that merges go by.
    pub(crate) fn rules(&self) -> Arc<FamilyRules> {
        Arc::clone(&self.rules_held())
    }

    fn rules_held(&self) -> MutexGuard<'_, Arc<FamilyRules>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no flush is going on, its commit included.
    pub(crate) async fn turn_to_flush(&self) -> Result<Turn> {
        let turn = Arc::clone(&self.flushing).lock_owned().await;
        self.check()?;
        Ok(Turn(turn))
    }

    /// Waits until no compaction is going on, its commit included.
    pub(crate) async fn turn_to_compact(&self) -> Result<Turn> {
        let turn = self.compactions.turn().await;
        self.check()?;
        Ok(turn)
    }

    /// May work go on?
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_sealed.load(SeqCst) {
            return Err(Error::Closed);
        }
        self.check_stop()
    }

    /// May reads go on?
    fn check_stop(&self) -> Result<()> {
        match self.stop.get() {
            None => Ok(()),
            Some(Stop::Poisoned(reason)) => Err(Error::Poisoned { reason: reason.clone() }),
            Some(Stop::Fenced(newest)) => {
                Err(Error::Fenced { newest: *newest, own: self.config.epoch })
            }
            Some(Stop::Closed) => Err(Error::Closed),
        }
    }

    /// Stops for good when `failed` leaves the durable state in doubt; gives it back.
    pub(crate) fn note_failure(&self, failed: Error) -> Error {
        let stop = match &failed {
            Error::Poisoned { reason } => Stop::Poisoned(reason.clone()),
            Error::Fenced { newest, .. } => Stop::Fenced(*newest),
            _ => return failed,
        };
        let first = self.stop.set(stop).is_ok();
        if let (true, Error::Poisoned { reason }) = (first, &failed) {
            self.tell(&Event::Poisoned { error: reason.clone() });
        }
        failed
    }

    pub(crate) fn tell(&self, event: &Event) {
        self.config.events.on_event(self.config.range, event);
    }

    pub(crate) fn state(&self) -> Arc<State> {
        self.pinned.current()
    }

    pub(crate) fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("range", &self.config.range)
            .field("epoch", &self.config.epoch)
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}
