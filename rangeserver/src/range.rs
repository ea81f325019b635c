//! One range that this server serves: its storage, its schema, and the lock that orders its writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use client::{RangeTarget, Result};
use lsm::{Batch, FamilyRules, LogPosition, Reason, Store};
use types::{
    ErrorKind, Generation, RangeActivity, RangeId, RowMutations, RowRange, SeqNo, TableId,
    TableSchema,
};
use wal::Reservation;

use crate::budget::Budget;
use crate::error::{from_store, wrong_range};
use crate::write::clock::ServerTime;
use crate::write::commit::Ticket;
use crate::write::group::{LogCommit, Pipeline, Sequenced};
use crate::write::stalls::Stalls;
use crate::write::stripes::Stripes;

/// A range in service.
pub(crate) struct Range {
    store: Arc<Store>,
    table: TableId,
    /// The short lock: orders batches. No await and no file access under it.
    writing: Mutex<ServerTime>,
    /// Changed only under `writing`.
    is_closed: AtomicBool,
    /// The range is being divided: batches wait. Changed only under `writing`.
    is_barred: AtomicBool,
    /// Held by whoever divides the range or cuts rows out of it.
    pub(crate) alteration: tokio::sync::Mutex<()>,
    stripes: Stripes,
    pub(crate) stalls: Stalls,
    /// Changed only under `writing`.
    schema: RwLock<InForce>,
    budget: Arc<Budget>,
    /// The memtables' bytes as the budget has them.
    counted: AtomicU64,
}

/// A schema, and what the storage needs of it.
#[derive(Clone)]
pub(crate) struct InForce {
    pub(crate) schema: Arc<TableSchema>,
    pub(crate) rules: Arc<FamilyRules>,
}

impl InForce {
    fn new(schema: Arc<TableSchema>) -> InForce {
        InForce { rules: Arc::new(FamilyRules::of(&schema)), schema }
    }
}

impl Range {
    pub(crate) fn new(store: Arc<Store>, schema: Arc<TableSchema>, budget: Arc<Budget>) -> Range {
        let time = ServerTime::after(store.last_timestamp_bound());
        store.set_groups(&schema.groups);
        let in_force = InForce::new(schema);
        store.set_rules(&in_force.rules);
        Range {
            table: in_force.schema.id,
            store,
            writing: Mutex::new(time),
            is_closed: AtomicBool::new(false),
            is_barred: AtomicBool::new(false),
            alteration: tokio::sync::Mutex::new(()),
            stripes: Stripes::default(),
            stalls: Stalls::default(),
            schema: RwLock::new(in_force),
            budget,
            counted: AtomicU64::new(0),
        }
    }

    pub(crate) fn id(&self) -> RangeId {
        self.store.range()
    }

    pub(crate) fn table(&self) -> TableId {
        self.table
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// What was done since the range was opened.
    pub(crate) fn activity(&self) -> RangeActivity {
        self.stalls.add_to(self.store.statistics())
    }

    /// The schema in force.
    pub(crate) fn schema(&self) -> Arc<TableSchema> {
        self.in_force().schema
    }

    /// The schema in force, with its rules.
    pub(crate) fn in_force(&self) -> InForce {
        self.schema.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Is the range served as `target` says?
    ///
    /// # Errors
    /// `WrongRange`.
    pub(crate) fn check(&self, target: &RangeTarget) -> Result<()> {
        if target.epoch != self.store.epoch() {
            let why = format!("served under {}, not {}", self.store.epoch(), target.epoch);
            return Err(wrong_range(self.id(), &why));
        }
        self.check_generation(target.generation)
    }

    /// Is `generation` the one in force?
    ///
    /// # Errors
    /// `WrongRange`: whoever asks must look the schema up again.
    pub(crate) fn check_generation(&self, generation: Generation) -> Result<()> {
        let in_force = self.schema.read().unwrap_or_else(PoisonError::into_inner);
        let own = in_force.schema.generation;
        drop(in_force);
        if generation == own {
            return Ok(());
        }
        Err(wrong_range(self.id(), &format!("the schema is at {own}, not {generation}")))
    }

    /// Sequences, queues and inserts a batch: no await in between. `None`: batches must wait now
    /// ([`Range::is_barred`]); nothing has changed.
    ///
    /// # Errors
    /// `WrongRange`, or the range's storage has stopped: nothing has changed.
    pub(crate) fn place(
        &self,
        target: &RangeTarget,
        rows: &[RowMutations],
        mut batch: Batch,
        reservation: Reservation,
        pipeline: &Pipeline,
    ) -> Result<Option<Ticket<LogCommit>>> {
        let _stripes = self.stripes.shared(rows.iter().map(|row| &row.row[..]));
        let (ticket, seat) = {
            let mut time = self.writing();
            if self.is_closed() {
                return Err(self.closed());
            }
            if self.is_barred() {
                return Ok(None);
            }
            pipeline.check_open()?;
            let schema = self.schema();
            self.check_generation(target.generation)?;
            let at = time.next(pipeline.env.now_micros(), schema.granularity);
            batch.sequence(self.store.next_seq(), at);
            let end = pipeline.log.end();
            let floor = LogPosition { segment: end.segment, offset: end.offset };
            let seat = self.store.place(&batch, floor).map_err(|error| from_store(&error))?;
            let bytes = batch.payload_len();
            let store = Arc::clone(&self.store);
            (pipeline.queue.enqueue(Sequenced::new(store, batch, reservation), bytes), seat)
        };
        seat.insert(ticket.batch().batch().expect("a batch was placed"));
        ticket.inserted();
        self.recount();
        Ok(Some(ticket))
    }

    /// Sequences and queues the cut of `rows`, and ends the memtable with it. From then on batches
    /// wait until it is flushed.
    ///
    /// # Errors
    /// As [`Range::place`].
    pub(crate) fn place_excise(
        &self,
        rows: &RowRange,
        payload: Vec<u8>,
        reservation: Reservation,
        pipeline: &Pipeline,
    ) -> Result<Ticket<LogCommit>> {
        let _writing = self.writing();
        if self.is_closed() {
            return Err(self.closed());
        }
        pipeline.check_open()?;
        let end = pipeline.log.end();
        let floor = LogPosition { segment: end.segment, offset: end.offset };
        let (seq, bytes) = (self.store.next_seq(), payload.len());
        self.store.excise(rows, seq, floor).map_err(|error| from_store(&error))?;
        let store = Arc::clone(&self.store);
        let sequenced = Sequenced::excise(store, seq, payload, reservation);
        let ticket = pipeline.queue.enqueue(sequenced, bytes);
        ticket.inserted();
        Ok(ticket)
    }

    /// Must batches wait: for a cut that is not flushed, or for a division?
    pub(crate) fn is_barred(&self) -> bool {
        self.is_barred.load(SeqCst) || self.store.has_pending_excise()
    }

    /// Is it closed only until the catalog has answered a division?
    pub(crate) fn is_between(&self) -> bool {
        self.is_barred.load(SeqCst) && self.is_closed()
    }

    /// Lets batches wait, or go on.
    pub(crate) fn bar(&self, is_barred: bool) {
        let _writing = self.writing();
        self.is_barred.store(is_barred, SeqCst);
    }

    /// Takes back [`Range::close_writing`], of a range whose storage is open.
    pub(crate) fn reopen(&self) {
        let _writing = self.writing();
        self.is_closed.store(false, SeqCst);
    }

    /// Tells the budget how much memory the memtables take now.
    pub(crate) fn recount(&self) {
        let now = self.store.memory_bytes() as u64;
        let before = self.counted.swap(now, SeqCst);
        self.budget.recount_memtables(before, now);
    }

    /// Learns the newest timestamp of what was recovered: the server's time goes on from there.
    pub(crate) fn learn_time(&self) {
        let mut time = self.writing();
        *time = ServerTime::after(self.store.last_timestamp_bound());
    }

    /// Ends the active memtable; the last number that was given out.
    pub(crate) fn freeze(&self, reason: Reason) -> SeqNo {
        let _writing = self.writing();
        self.store.freeze(reason);
        self.last_placed()
    }

    /// Puts `schema` in force, unless a later one is. Returns the last number given out before:
    /// once it is published, nothing validated against an older schema is still to be applied.
    pub(crate) fn adopt(&self, schema: &Arc<TableSchema>) -> SeqNo {
        let _writing = self.writing();
        let mut own = self.schema.write().unwrap_or_else(PoisonError::into_inner);
        if schema.generation > own.schema.generation {
            *own = InForce::new(Arc::clone(schema));
            self.store.set_rules(&own.rules);
            self.store.set_groups(&schema.groups);
        }
        self.last_placed()
    }

    /// No batch is placed from now on. Returns the last number given out.
    pub(crate) fn close_writing(&self) -> SeqNo {
        let _writing = self.writing();
        self.is_closed.store(true, SeqCst);
        self.last_placed()
    }

    /// Has it been closed?
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(SeqCst)
    }

    /// Ends the range's service: what is not flushed stays in the log.
    pub(crate) async fn close(&self) {
        self.close_writing();
        self.store.close().await;
        let before = self.counted.swap(0, SeqCst);
        self.budget.recount_memtables(before, 0);
    }

    /// The error of a request that met a closed range.
    pub(crate) fn closed(&self) -> client::Error {
        wrong_range(self.id(), "it is closed")
    }

    fn last_placed(&self) -> SeqNo {
        let next = self.store.next_seq().get();
        SeqNo::from_raw(next - 1).expect("one before a sequence number")
    }

    fn writing(&self) -> MutexGuard<'_, ServerTime> {
        self.writing.lock().expect("no holder of this lock panics")
    }
}

/// Are all the rows inside the range's bounds?
///
/// # Errors
/// `WrongRange` for a row outside; `InvalidArgument` for a row without a mutation.
pub(crate) fn check_rows(store: &Store, rows: &[RowMutations]) -> Result<()> {
    for row in rows {
        if !store.bounds().contains(&row.row) {
            return Err(wrong_range(store.range(), "a row is outside its bounds"));
        }
        if row.mutations.is_empty() {
            return Err(client::Error::new(ErrorKind::InvalidArgument, "No mutations provided"));
        }
    }
    Ok(())
}
