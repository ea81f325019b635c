//! The range server: its start, its admission of requests, its stop.
//!
//! Start: take up dead sessions' logs ([`crate::recover`]) → begin this session's log → serve.
//!
//! A write: not stopping or poisoned → the range is served so → rows inside its bounds → memory →
//! log space → place (sequence, queue, insert) → wait for its commit group. Until it is placed,
//! nothing has changed.
//!
//! Stop: admit nothing → let what is queued commit → flush everything → end the log → remove it,
//! since nothing needs it: the next start finds nothing to take up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use client::{
    RangeSample, RangeScrub, RangeService, RangeTarget, ReadReplies, ReadRequest, SchemaObserver,
    WriteRequest,
};
use env::Task;
use lsm::{Batch, Event, Reason, delay_between};
use sstable::{BlockCache, CacheCounts, Pins};
use storage::Path;
use tokio::sync::Notify;
use types::{ErrorKind, RangeActivity, RangeId, RowMutations, TableId, TableSchema};
use wal::{Log, Reservation};

use crate::budget::{Budget, HeldLarge, RETRY_AFTER};
use crate::error::{Error, Result, from_log};
use crate::maintenance::{self, Claims};
use crate::options::Config;
use crate::range::{Range, check_rows};
use crate::ranges::{Ranges, table_folder};
use crate::read::parking::Parking;
use crate::read::replies::{READ_BYTES, RangeRead};
use crate::recover::{LOGS_FOLDER, Recovery, recover};
use crate::scrub::Scrubbing;
use crate::write::counters::CommitStatistics;
use crate::write::group::{Pipeline, Poison};

/// How long a stop waits for batches that are queued.
const DRAIN_MAX: Duration = Duration::from_secs(30);
const DRAIN_POLL: Duration = Duration::from_millis(1);

/// Serves ranges. See the module's words.
pub struct RangeServer {
    pub(crate) shared: Arc<Shared>,
    tasks: Mutex<Vec<Task<()>>>,
    recovery: Recovery,
}

/// What requests and background tasks share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) pipeline: Pipeline,
    pub(crate) budget: Arc<Budget>,
    pub(crate) ranges: Arc<Ranges>,
    pub(crate) poison: Arc<Poison>,
    /// Wakes a compaction task.
    pub(crate) compaction_work: Notify,
    /// What reads leave while nobody pulls them.
    pub(crate) parking: Parking,
    /// Ranges that a compaction task works on.
    pub(crate) compacting: Claims,
    /// Wakes the task that divides and sweeps: at the stop.
    pub(crate) order_work: Notify,
    /// The last flush met a full disk.
    pub(crate) disk_full: AtomicBool,
    is_stopping: AtomicBool,
}

/// Numbers of a running server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Commit groups since the start.
    pub commits: CommitStatistics,
    /// Bytes of all memtables.
    pub memtable_bytes: u64,
    /// Bytes of memtables that were flushed, or of closed ranges, and that reads still hold.
    pub outlived_bytes: u64,
    /// Bytes of requests and replies under way.
    pub request_bytes: u64,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// Look-ups in the block cache.
    pub cache: CacheCounts,
    /// What locality groups that are kept in memory have of the block cache.
    pub pins: Pins,
    /// Bytes of log that a recovery would read.
    pub log_bytes: u64,
    /// The oldest log segment that is kept.
    pub oldest_log_segment: u64,
    /// Open ranges.
    pub ranges: u64,
    /// What the storage of the open ranges did, in all.
    pub storage: RangeActivity,
}

/// Memory of a large request.
#[derive(Debug)]
pub struct LargeRequest {
    _held: HeldLarge,
}

impl RangeServer {
    /// Recovers what dead sessions left, begins this session's log, and serves.
    ///
    /// # Errors
    /// Damage found, a full disk, a catalog that does not answer.
    pub async fn start(config: Config) -> Result<Arc<RangeServer>> {
        config.options.validate()?;
        let options = &config.options;
        let cache = BlockCache::with_form(options.cache_share(), options.cache_form);
        let cache = Arc::new(cache);
        let budget = Arc::new(Budget::new(options.shares(), Arc::clone(&cache)));
        let ranges = Arc::new(Ranges::new(config.clone(), Arc::clone(&budget), cache));
        let recovery = recover(&ranges, &config).await?;
        let poison = Arc::new(Poison::new(Arc::clone(&config.on_poison)));
        let folder = log_folder(&config);
        let (files, env) = (Arc::clone(&config.files), config.env.clone());
        let log = Log::create(files, env.clone(), folder, config.options.log).await?;
        let shared = Arc::new(Shared {
            pipeline: Pipeline::new(log, Arc::clone(&poison), env, Arc::clone(ranges.limiter())),
            config,
            budget,
            ranges,
            poison,
            compaction_work: Notify::new(),
            parking: Parking::default(),
            compacting: Claims::default(),
            order_work: Notify::new(),
            disk_full: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
        });
        let tasks = Mutex::new(maintenance::start(&shared));
        Ok(Arc::new(RangeServer { shared, tasks, recovery }))
    }

    /// What the start took up.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Numbers as they are now.
    pub fn statistics(&self) -> Statistics {
        let Shared { pipeline, budget, ranges, .. } = &*self.shared;
        let open = ranges.all();
        let mut storage = RangeActivity::default();
        open.iter().for_each(|range| storage.add(&range.activity()));
        Statistics {
            commits: pipeline.queue.counters().read(),
            memtable_bytes: budget.memtables(),
            outlived_bytes: budget.outlived().bytes(),
            request_bytes: budget.requests(),
            cache_bytes: ranges.cache().used_bytes(),
            cache: ranges.cache().counts(),
            pins: ranges.cache().pins(),
            log_bytes: pipeline.log.retained_bytes(),
            oldest_log_segment: pipeline.log.oldest_segment(),
            ranges: open.len() as u64,
            storage,
        }
    }

    /// Why the server refuses all work, if it does for good.
    pub fn poisoned(&self) -> Option<String> {
        self.shared.poison.reason().map(str::to_owned)
    }

    /// The process has `bytes` of memory, whoever for. Told now and then, the server keeps within
    /// its budget for all of them, not only for what it counts. Gives how many are past what it
    /// counts and a fixed allowance.
    pub fn note_resident_memory(&self, bytes: u64) -> u64 {
        self.shared.budget.note_resident(bytes)
    }

    /// Waits until there is memory for a request of `bytes` that is still to be received; it is
    /// held until what this returns is dropped.
    ///
    /// # Errors
    /// `ResourceExhausted` when there is none in time, or never will be.
    pub async fn admit_large(&self, bytes: u64) -> client::Result<LargeRequest> {
        let Shared { budget, pipeline, config, .. } = &*self.shared;
        let held = budget.admit_large(&pipeline.env, bytes, config.options.stall_max).await?;
        Ok(LargeRequest { _held: held })
    }

    /// Flushes all ranges: for tools and tests.
    ///
    /// # Errors
    /// Those of a flush; `Poisoned`.
    pub async fn flush_all(&self) -> Result<()> {
        for range in self.shared.ranges.all() {
            self.shared.flush_whole(&range, Reason::Asked).await?;
        }
        maintenance::release_log(&self.shared).await;
        Ok(())
    }

    /// Stops cleanly: what was acknowledged is in SSTables, and the log is gone.
    ///
    /// # Errors
    /// When not all could be flushed; the log stays then, and the next start takes it up.
    pub async fn close(&self) -> Result<()> {
        let shared = &self.shared;
        shared.pipeline.close();
        let ranges = shared.ranges.all();
        for range in &ranges {
            range.close_writing();
        }
        let drained = shared.drain().await;
        self.stop_tasks().await;
        drained?;
        let mut outcome = Ok(());
        for range in &ranges {
            let _no_division = range.alteration.lock().await;
            if !shared.ranges.has(range) {
                continue;
            }
            let flushed = shared.flush_whole(range, Reason::Closing).await;
            range.close().await;
            outcome = outcome.and(flushed);
        }
        shared.pipeline.log.close().await?;
        outcome?;
        wal::remove_log(&shared.config.files, &log_folder(&shared.config)).await?;
        Ok(())
    }

    /// Stops the background tasks and refuses requests, and leaves everything else as it is: what a
    /// crash does. For tests of recovery.
    pub async fn abandon(&self) {
        self.shared.pipeline.close();
        self.stop_tasks().await;
    }

    async fn stop_tasks(&self) {
        let shared = &self.shared;
        shared.is_stopping.store(true, SeqCst);
        shared.budget.flush_work.notify_one();
        shared.compaction_work.notify_waiters();
        shared.compaction_work.notify_one();
        shared.order_work.notify_one();
        shared.pipeline.queue.env().orphans.notify_one();
        let ranges = shared.ranges.all();
        let _no_compactions: Vec<_> =
            ranges.iter().map(|range| range.store().call_off_compactions()).collect();
        let tasks = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *tasks)
        };
        for task in tasks {
            task.join().await;
        }
    }
}

fn log_folder(config: &Config) -> Path {
    Path::new(LOGS_FOLDER).join(&config.session.to_string())
}

impl Shared {
    pub(crate) fn tell(&self, range: &Range, event: Option<Event>) {
        if let Some(event) = event {
            self.config.events.on_event(range.id(), &event);
        }
    }

    /// Must background tasks end?
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(SeqCst)
    }

    /// May requests be answered?
    ///
    /// # Errors
    /// `Poisoned`, `Unavailable`.
    pub(crate) fn check_serving(&self) -> client::Result<()> {
        if let Some(reason) = self.poison.reason() {
            let text = format!("the server stopped: {reason}");
            return Err(client::Error::new(ErrorKind::Poisoned, text));
        }
        self.pipeline.check_open()
    }

    /// Stops everything for good.
    pub(crate) fn poison(&self, reason: &str) {
        let failure = crate::write::commit::CommitError::new(ErrorKind::Poisoned, reason);
        self.pipeline.queue.poison(&failure);
        self.poison.set(reason);
        self.budget.wake_waiters();
    }

    /// Draws the consequence of a failure in the background.
    pub(crate) fn note_store_failure(&self, range: &Range, error: &lsm::Error) {
        if matches!(error, lsm::Error::DamagedInput { .. }) {
            // It has been told, and nothing was written that anybody relies on.
            return;
        }
        match error.kind() {
            ErrorKind::ResourceExhausted => self.disk_full.store(true, SeqCst),
            // Closed, or called off by the stop.
            ErrorKind::Unavailable | ErrorKind::Aborted => {}
            _ => self.poison(&format!("range {}: {error}", range.id())),
        }
    }

    pub(crate) async fn flush_whole(&self, range: &Arc<Range>, reason: Reason) -> Result<()> {
        let last = range.freeze(reason);
        if !maintenance::wait_published(self, range, last).await {
            let poisoned = self.poison.reason().map(|reason| Error::Poisoned(reason.to_owned()));
            return Err(poisoned.unwrap_or(Error::Busy));
        }
        let flushed = range.store().flush_all(reason).await;
        range.recount();
        self.budget.wake_waiters();
        flushed.map_err(|error| {
            self.note_store_failure(range, &error);
            Error::store(range.id())(error)
        })
    }

    /// Waits until nothing is queued any more.
    async fn drain(&self) -> Result<()> {
        let env = &self.pipeline.env;
        let until = env.monotonic() + DRAIN_MAX;
        while !self.pipeline.queue.is_idle() {
            env.blocking(|| self.pipeline.queue.lead_orphans());
            if env.monotonic() >= until {
                return Err(Error::Busy);
            }
            env.sleep(DRAIN_POLL).await;
        }
        match self.poison.reason() {
            Some(reason) => Err(Error::Poisoned(reason.to_owned())),
            None => Ok(()),
        }
    }

    /// How long a request waits for memory.
    fn patience(&self, target: &RangeTarget) -> Duration {
        let longest = self.config.options.stall_max;
        target.deadline.map_or(longest, |deadline| deadline.min(longest))
    }

    /// Is it time to write memtables out for the log's sake?
    fn is_log_long(&self) -> bool {
        self.pipeline.log.retained_bytes() > self.config.options.log_bytes_max / 4 * 3
    }

    /// Has the log all that it may have, some of which can be given back?
    fn is_log_full(&self) -> bool {
        self.log_releasable() >= self.config.options.log_bytes_max
    }

    /// Bytes of the log, if some of them can be given back.
    fn log_releasable(&self) -> u64 {
        let log = &self.pipeline.log;
        if log.oldest_segment() < log.end().segment { log.retained_bytes() } else { 0 }
    }

    /// Why a write may not be placed now, if it may not.
    fn no_room(&self, range: &Range) -> Option<Reason> {
        let store = range.store();
        if store.is_level0_full() {
            return Some(Reason::LevelZeroRuns);
        }
        let reason = if self.budget.is_full() || store.must_stall() {
            Reason::MemoryPressure
        } else if self.is_log_full() {
            Reason::LogPressure
        } else {
            return None;
        };
        self.budget.flush_work.notify_one();
        Some(reason)
    }

    /// How long a writer is to wait before its batch is placed, and why: so that flushes and merges
    /// keep up, and it need not be stopped.
    pub(crate) fn slowdown(&self, range: &Range) -> (Duration, Reason) {
        let near = |held, most: u64| delay_between(held, most / 8 * 7, most);
        let for_memory = near(self.budget.memtables(), self.budget.memtables_most());
        let for_log = near(self.log_releasable(), self.config.options.log_bytes_max);
        [
            (range.store().write_delay(), Reason::LevelZeroRuns),
            (for_memory, Reason::MemoryPressure),
            (for_log, Reason::LogPressure),
        ]
        .into_iter()
        .max_by_key(|(delay, _)| *delay)
        .expect("there are three")
    }

    /// Waits until memtables and log have room and merges keep up. On a full disk there is no point
    /// in waiting.
    async fn wait_for_room(&self, range: &Range, limit: Duration) -> client::Result<()> {
        let env = &self.pipeline.env;
        let (delay, reason) = self.slowdown(range);
        let delay = delay.min(limit);
        self.tell(range, range.stalls.slow(env.monotonic(), delay, reason));
        if !delay.is_zero() {
            self.budget.flush_work.notify_one();
            env.sleep(delay).await;
        }
        let Some(reason) = self.no_room(range) else {
            return Ok(());
        };
        let _stopped = Stop::new(self, range, reason);
        self.wait_while_full(range, limit.saturating_sub(delay)).await
    }

    async fn wait_while_full(&self, range: &Range, limit: Duration) -> client::Result<()> {
        let what = "memtables, the log or the files that wait for a merge are all there may be";
        let ready = || {
            if self.no_room(range).is_none() {
                return Some(Ok(()));
            }
            if let Err(error) = self.check_serving() {
                return Some(Err(error));
            }
            if self.disk_full.load(SeqCst) {
                let text = "the disk is full; memtables cannot be written out";
                let error = client::Error::new(ErrorKind::ResourceExhausted, text);
                return Some(Err(error.retry_after(RETRY_AFTER)));
            }
            None
        };
        self.budget.wait_until(&self.pipeline.env, limit, what, ready).await?
    }

    /// Waits while rows are cut out of the range, or the range is divided.
    async fn wait_for_bar(&self, range: &Range, limit: Duration) -> client::Result<()> {
        let what = "rows are being dropped from the range, or it is being divided";
        let ready = || {
            if !range.is_barred() {
                return Some(Ok(()));
            }
            self.budget.flush_work.notify_one();
            self.check_serving().err().map(Err)
        };
        self.budget.wait_until(&self.pipeline.env, limit, what, ready).await?
    }

    /// Waits while the catalog is about to put other ranges in this one's place, or not.
    pub(crate) async fn wait_for_division(&self, range: &Range) -> client::Result<()> {
        let what = "the range is being divided";
        let ready = || {
            if !range.is_between() {
                return Some(Ok(()));
            }
            self.check_serving().err().map(Err)
        };
        let limit = self.config.options.stall_max;
        self.budget.wait_until(&self.pipeline.env, limit, what, ready).await?
    }

    /// Sets space in the log aside.
    pub(crate) async fn log_space(&self, bytes: usize) -> client::Result<Reservation> {
        let space = self.pipeline.log.reserve(bytes, 1).await;
        space.map_err(|error| match error.kind() {
            ErrorKind::ResourceExhausted => from_log(&error).retry_after(RETRY_AFTER),
            ErrorKind::Poisoned => {
                self.poison(&error.to_string());
                from_log(&error)
            }
            _ => from_log(&error),
        })
    }

    async fn write_rows(&self, target: RangeTarget, rows: Vec<RowMutations>) -> client::Result<()> {
        self.check_serving()?;
        let range = self.ranges.serving(&target).await?;
        check_rows(range.store(), &rows)?;
        if rows.is_empty() {
            return Ok(());
        }
        let env = &self.pipeline.env;
        let limit = self.patience(&target);
        // The batch: the request itself is in the books of whoever has received it.
        let bytes = Batch::payload_bytes(&rows);
        let held = self.budget.admit(env, bytes as u64, limit).await?;
        let ticket = loop {
            self.wait_for_room(&range, limit).await?;
            self.wait_for_bar(&range, limit).await?;
            let batch = Batch::encode(&rows);
            let space = self.log_space(batch.payload_len()).await?;
            self.check_serving()?;
            if let Some(ticket) = range.place(&target, &rows, batch, space, &self.pipeline)? {
                break ticket;
            }
        };
        drop(rows);
        if range.store().wants_freeze() || self.is_log_long() {
            self.budget.flush_work.notify_one();
        }
        let outcome = ticket.wait(env).await;
        drop(held);
        outcome.map_err(|failed| client::Error::new(failed.kind, &*failed.reason))
    }
}

/// A writer that waits for room; until it is dropped, since it may be given up.
struct Stop<'a> {
    shared: &'a Shared,
    range: &'a Range,
    since: Duration,
}

impl<'a> Stop<'a> {
    fn new(shared: &'a Shared, range: &'a Range, reason: Reason) -> Stop<'a> {
        let since = shared.pipeline.env.monotonic();
        shared.tell(range, range.stalls.stop(since, reason));
        Stop { shared, range, since }
    }
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        let now = self.shared.pipeline.env.monotonic();
        let waited = now.saturating_sub(self.since);
        self.shared.tell(self.range, self.range.stalls.go_on(now, waited));
    }
}

#[async_trait]
impl RangeService for RangeServer {
    async fn write(&self, request: WriteRequest) -> client::Result<()> {
        self.shared.write_rows(request.target, request.rows).await
    }

    async fn read(&self, request: ReadRequest) -> client::Result<Box<dyn ReadReplies>> {
        let shared = &self.shared;
        shared.check_serving()?;
        let range = shared.ranges.serving(&request.target).await?;
        shared.wait_for_division(&range).await?;
        if range.is_closed() {
            return Err(range.closed());
        }
        let limit = shared.patience(&request.target);
        let held = shared.budget.admit(&shared.pipeline.env, READ_BYTES, limit).await?;
        let read = RangeRead::start(Arc::clone(shared), range, &request, held)?;
        Ok(Box::new(read))
    }

    async fn sample(&self, target: RangeTarget) -> client::Result<RangeSample> {
        self.shared.check_serving()?;
        let range = self.shared.ranges.serving(&target).await?;
        let store = range.store();
        Ok(RangeSample { bytes: store.version().bytes() + store.memory_bytes() as u64 })
    }

    async fn scrub(&self, target: RangeTarget) -> client::Result<Box<dyn RangeScrub>> {
        self.shared.check_serving()?;
        let range = self.shared.ranges.serving(&target).await?;
        let pace = self.shared.config.options.scrub_bytes_per_second;
        Ok(Box::new(Scrubbing::start(range, pace).await?))
    }
}

#[async_trait]
impl SchemaObserver for RangeServer {
    async fn schema_changed(&self, schema: Arc<TableSchema>) -> client::Result<()> {
        for (range, last) in self.shared.ranges.adopt(&schema).await {
            // Batches placed under the older schema come to their end first.
            if !maintenance::wait_published(&self.shared, &range, last).await {
                return self.shared.check_serving();
            }
        }
        Ok(())
    }

    async fn table_dropped(&self, table: TableId, ranges: &[RangeId]) -> client::Result<()> {
        let shared = &self.shared;
        for range in shared.ranges.drop_table(table, ranges).await {
            let last = range.close_writing();
            maintenance::wait_published(shared, &range, last).await;
            range.close().await;
        }
        maintenance::release_log(shared).await;
        let files = &shared.config.files;
        let removed = crate::remove::remove_tree(files, &table_folder(table)).await;
        removed.map_err(|error| client::Error::new(error.kind(), error.to_string()))
    }
}
