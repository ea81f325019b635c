//! Work in the background: flushes, log release, compactions, divisions and sweeps, and leading for
//! writers who left.
//!
//! Each kind has a task of its own with a name, woken by whoever knows of work and by a timer, and
//! ended by [`Shared::is_stopping`]. What to flush is decided by [`plan`], a pure function.

mod compaction;
mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use env::Task;
use env::planted::{PlantedBug, planted};
use lsm::{Event, Reason};
use types::{ErrorKind, SeqNo};

use crate::keep::split_large_ranges;
use crate::keep::sweep::Sweeps;
use crate::range::Range;
use crate::server::Shared;
pub(crate) use compaction::Claims;
use plan::{Pressure, RangeLoad, plan};

/// Between two looks at whether something is published.
const PUBLISHED_POLL: Duration = Duration::from_millis(1);
/// The longest wait before a flush is tried again after a full disk.
const FULL_DISK_RETRY_MAX: Duration = Duration::from_secs(2);

/// Starts the tasks of a server.
pub(crate) fn start(shared: &Arc<Shared>) -> Vec<Task<()>> {
    let env = &shared.pipeline.env;
    let mut tasks = vec![
        env.spawn("flush", flush_loop(Arc::clone(shared))),
        env.spawn("divide and sweep", order_loop(Arc::clone(shared))),
        env.spawn("commit for writers who left", orphans_loop(Arc::clone(shared))),
    ];
    for _ in 0..shared.config.options.compactions_max {
        tasks.push(env.spawn("compaction", compaction::run(Arc::clone(shared))));
    }
    tasks
}

async fn orphans_loop(shared: Arc<Shared>) {
    let Shared { pipeline, config, .. } = &*shared;
    while !shared.is_stopping() {
        let wait = pipeline.queue.env().orphans.notified();
        let _ = pipeline.env.timeout(config.options.maintenance_interval, wait).await;
        if !pipeline.queue.is_idle() {
            pipeline.env.blocking(|| pipeline.queue.lead_orphans());
        }
    }
}

async fn flush_loop(shared: Arc<Shared>) {
    let interval = shared.config.options.maintenance_interval;
    let mut retry = interval;
    loop {
        let _ = shared.pipeline.env.timeout(interval, shared.budget.flush_work.notified()).await;
        if shared.is_stopping() {
            return;
        }
        match flush_what_is_due(&shared).await {
            Ok(()) => retry = interval,
            Err(()) => {
                shared.pipeline.env.sleep(retry).await;
                retry = (retry * 2).min(FULL_DISK_RETRY_MAX);
            }
        }
        shared.parking.clear_outdated();
        shared.budget.look();
        release_log(&shared).await;
        remove_retired(&shared).await;
    }
}

/// One round. `Err`: a flush failed; it is worth another try later.
async fn flush_what_is_due(shared: &Arc<Shared>) -> Result<(), ()> {
    let ranges = shared.ranges.all();
    let loads: Vec<RangeLoad> = ranges.iter().map(load).collect();
    end_slowdowns(shared, &ranges);
    for (place, reason) in plan(&loads, &pressure(shared)) {
        let Some(range) = ranges.get(place) else {
            continue;
        };
        if shared.is_stopping() {
            return Ok(());
        }
        flush_range(shared, range, reason).await?;
        release_log(shared).await;
    }
    shared.disk_full.store(false, SeqCst);
    Ok(())
}

fn end_slowdowns(shared: &Shared, ranges: &[Arc<Range>]) {
    for range in ranges {
        if shared.slowdown(range).0.is_zero() {
            shared.tell(range, range.stalls.end_slow(shared.pipeline.env.monotonic()));
        }
    }
}

fn load(range: &Arc<Range>) -> RangeLoad {
    range.recount();
    let store = range.store();
    RangeLoad {
        bytes: store.memory_bytes() as u64,
        frozen: store.frozen_count(),
        wants_freeze: store.wants_freeze(),
        oldest_segment: store.oldest_needed().map(|position| position.segment),
    }
}

fn pressure(shared: &Shared) -> Pressure {
    Pressure {
        memtables_most: shared.budget.memtables_most(),
        goal: shared.budget.goal(),
        log_retained: shared.pipeline.log.retained_bytes(),
        log_bytes_max: shared.config.options.log_bytes_max,
        current_segment: shared.pipeline.log.end().segment,
    }
}

/// Freezes a range's memtable and writes all frozen ones out.
async fn flush_range(shared: &Arc<Shared>, range: &Arc<Range>, reason: Reason) -> Result<(), ()> {
    let last = range.freeze(reason);
    if !wait_published(shared, range, last).await {
        return Ok(());
    }
    loop {
        let flushed = range.store().flush().await;
        range.recount();
        match flushed {
            Ok(Some(_)) => {
                shared.budget.wake_waiters();
                shared.compaction_work.notify_one();
            }
            Ok(None) => return Ok(()),
            Err(error) => {
                shared.note_store_failure(range, &error);
                // Writers who wait for memory are told at once.
                shared.budget.wake_waiters();
                return Err(());
            }
        }
    }
}

/// Waits until everything up to `seq` is visible. `false`: it will not be, or the server stops.
pub(crate) async fn wait_published(shared: &Shared, range: &Range, seq: SeqNo) -> bool {
    while range.store().published() < seq {
        if shared.poison.reason().is_some() || shared.is_stopping() {
            return false;
        }
        shared.pipeline.env.sleep(PUBLISHED_POLL).await;
    }
    true
}

/// Gives back the log segments that no range needs any more.
pub(crate) async fn release_log(shared: &Arc<Shared>) {
    let log = &shared.pipeline.log;
    // Read before the ranges are asked: a batch that is placed later lies behind it.
    let end = log.end().segment;
    let needed = shared.ranges.all().into_iter().filter_map(|range| {
        let position = range.store().oldest_needed()?;
        Some((position.segment, range.id()))
    });
    let (mut floor, range) = needed.min().map_or((end, None), |(at, range)| (at, Some(range)));
    floor = floor.min(end);
    if planted(PlantedBug::ReleaseLogEarly) {
        floor = end;
    }
    if floor <= log.oldest_segment() {
        return;
    }
    let before = log.retained_bytes();
    if let Err(error) = log.release_before(floor).await {
        if error.kind() == ErrorKind::Poisoned {
            shared.poison(&error.to_string());
        }
        return;
    }
    shared.budget.wake_waiters();
    let bytes = before.saturating_sub(log.retained_bytes());
    let told = range.unwrap_or_default();
    shared.config.events.on_event(told, &Event::LogReleased { bytes });
}

async fn remove_retired(shared: &Arc<Shared>) {
    for range in shared.ranges.all() {
        if range.store().retired_count() > 0 {
            range.store().remove_retired().await;
        }
    }
}

/// Divides ranges that are too large, and sweeps what divided ranges leave.
async fn order_loop(shared: Arc<Shared>) {
    let options = &shared.config.options;
    let interval = (options.maintenance_interval * 10).min(options.sweep_interval);
    let (mut undividable, mut sweeps) = (BTreeMap::new(), Sweeps::default());
    let mut swept = shared.pipeline.env.monotonic();
    loop {
        let _ = shared.pipeline.env.timeout(interval, shared.order_work.notified()).await;
        if shared.is_stopping() {
            return;
        }
        split_large_ranges(&shared, &mut undividable).await;
        let now = shared.pipeline.env.monotonic();
        if now.saturating_sub(swept) >= options.sweep_interval {
            sweeps.pass(&shared).await;
            swept = now;
        }
    }
}
