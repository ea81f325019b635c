//! Takes up the logs of dead sessions, before this one serves anything.
//!
//! For each folder `wal/<session>` other than our own:
//!
//! 1. Seal the log and record its lengths, once (see [`crate::seal`]).
//! 2. Read it to its end: a damaged log is refused as a whole, so nothing is built on it before.
//!    Payloads are kept by range on the way, as long as they fit the memory given.
//! 3. Open the ranges that have records, under new epochs. Ranges that the catalog does not know
//!    any more are passed over.
//! 4. Each range sorts its records into SSTables and commits a manifest, a few ranges at a time.
//!    Where the log was too large to keep, it is read a second time and the ranges are fed in
//!    several runs, each a prefix of the range's records: a crash in between starts again after the
//!    last run.
//! 5. Note that nothing needs the log, and remove it.
//!
//! Invariants
//! - A range serves only what is in synced SSTables that a manifest names, never an old log's
//!   pages.
//! - An old log is never written to; it is removed only after all its records are in manifests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use env::{Env, Task};
use storage::{FileSystem, Path, SealedLog};
use types::{RangeId, SeqNo, SessionId, TableId};
use wal::{EntryKind, Frame};

use crate::error::{Error, Result};
use crate::options::Config;
use crate::range::Range;
use crate::ranges::{Ranges, table_folder};
use crate::seal;

/// Ranges that write their records at the same time: some sort while others wait for the disk.
const FEEDS_MAX: usize = 4;

/// The folder of all sessions' logs.
pub(crate) const LOGS_FOLDER: &str = "wal";

/// What a start found and took up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Logs of former sessions.
    pub logs: u64,
    /// Of these, how many ended with a clean close.
    pub closed_cleanly: u64,
    /// Frames (commit groups) read.
    pub frames: u64,
    /// Bytes of batches read.
    pub bytes: u64,
    /// Ranges that had records.
    pub ranges: u64,
    /// Cells written to SSTables.
    pub cells: u64,
    /// SSTables that no manifest named, removed.
    pub swept_files: u64,
    /// How long it took.
    pub duration: Duration,
}

/// Takes up all dead sessions' logs.
pub(crate) async fn recover(ranges: &Arc<Ranges>, config: &Config) -> Result<Recovery> {
    let started = config.env.monotonic();
    let logs = Path::new(LOGS_FOLDER);
    config.files.sync_folder(&logs).await?;
    let mut recovery = Recovery::default();
    let mut known = None;
    for entry in config.files.list(&logs, "").await? {
        let session = SessionId::parse(&entry.name).filter(|_| entry.is_folder);
        if session.is_none_or(|session| session == config.session) {
            continue;
        }
        if known.is_none() {
            let listed = config.assignments.ranges().await.map_err(Error::Catalog)?;
            let tables: BTreeSet<TableId> = listed.iter().map(|(_, table)| *table).collect();
            let ranges: BTreeSet<RangeId> = listed.into_iter().map(|(range, _)| range).collect();
            for table in tables {
                recovery.swept_files += sweep(&config.files, table, &ranges).await?;
            }
            known = Some(ranges);
        }
        let known: &BTreeSet<RangeId> = known.as_ref().expect("just set");
        take_up(&logs.join(&entry.name), known, ranges, config, &mut recovery).await?;
    }
    recovery.duration = config.env.monotonic().saturating_sub(started);
    Ok(recovery)
}

/// Removes what a crash left of divided ranges and of unfinished flushes and compactions.
async fn sweep(
    files: &Arc<dyn FileSystem>,
    table: TableId,
    known: &BTreeSet<RangeId>,
) -> Result<u64> {
    let folder = table_folder(table);
    let failed = |source| Error::Sweep { folder: folder.clone(), source };
    lsm::remove_ranges_but(known, files, &folder).await.map_err(failed)?;
    let removed = lsm::sweep_table(files, &folder).await.map_err(failed)?;
    Ok(removed.len() as u64)
}

async fn take_up(
    folder: &Path,
    known: &BTreeSet<RangeId>,
    ranges: &Arc<Ranges>,
    config: &Config,
    recovery: &mut Recovery,
) -> Result<()> {
    let files = &config.files;
    if seal::is_unneeded(files, folder).await? {
        return Ok(wal::remove_log(files, folder).await?);
    }
    let sealed = seal::seal(files, folder).await?;
    recovery.logs += 1;
    let memory = config.options.memtables_share() / 2;
    let mut gathered = Gathered::new(known, memory);
    let mut reader = wal::recover(files, folder, sealed.clone()).await?;
    while let Some(frame) = reader.next().await? {
        recovery.frames += 1;
        recovery.bytes += gathered.add(frame);
    }
    recovery.closed_cleanly += u64::from(reader.ended_cleanly());
    let ids: Vec<RangeId> = gathered.with_records.iter().copied().collect();
    recovery.ranges += ids.len() as u64;
    let opened = ranges.open_for_recovery(&ids).await?;
    let mut feed = Feed::new(config.env.clone(), opened, memory);
    if gathered.overflowed {
        feed_again(folder, sealed, known, config, &mut feed).await?;
    } else {
        feed.take(gathered.records);
    }
    feed.finish().await?;
    recovery.cells += feed.cells;
    seal::mark_unneeded(files, folder).await?;
    Ok(wal::remove_log(files, folder).await?)
}

/// Reads the log a second time, feeding whenever the memory is full.
async fn feed_again(
    folder: &Path,
    sealed: Vec<SealedLog>,
    known: &BTreeSet<RangeId>,
    config: &Config,
    feed: &mut Feed,
) -> Result<()> {
    let mut reader = wal::recover(&config.files, folder, sealed).await?;
    while let Some(frame) = reader.next().await? {
        let mut gathered = Gathered::new(known, u64::MAX);
        gathered.add(frame);
        feed.take(gathered.records);
        feed.make_room().await?;
    }
    Ok(())
}

/// One entry of one range.
struct Record {
    kind: EntryKind,
    last: SeqNo,
    payload: Bytes,
}

#[derive(Default)]
struct RangeRecords {
    records: Vec<Record>,
    bytes: u64,
}

/// The records of a log by range, as long as they fit.
struct Gathered<'a> {
    known: &'a BTreeSet<RangeId>,
    memory: u64,
    bytes: u64,
    records: BTreeMap<RangeId, RangeRecords>,
    with_records: BTreeSet<RangeId>,
    overflowed: bool,
}

impl<'a> Gathered<'a> {
    fn new(known: &'a BTreeSet<RangeId>, memory: u64) -> Gathered<'a> {
        Gathered {
            known,
            memory,
            bytes: 0,
            records: BTreeMap::new(),
            with_records: BTreeSet::new(),
            overflowed: false,
        }
    }

    /// Takes in a frame; the bytes of its payloads.
    fn add(&mut self, frame: Frame) -> u64 {
        let mut bytes = 0;
        for entry in frame.entries {
            bytes += entry.payload.len() as u64;
            if !self.known.contains(&entry.range) {
                continue;
            }
            self.with_records.insert(entry.range);
            if self.overflowed {
                continue;
            }
            let numbers = u64::from(entry.count.max(1)) - 1;
            let last = entry.first_seq.advance(numbers);
            let records = self.records.entry(entry.range).or_default();
            records.add(Record { kind: entry.kind, last, payload: entry.payload });
        }
        self.bytes += bytes;
        if self.bytes > self.memory {
            self.overflowed = true;
            self.records.clear();
        }
        bytes
    }
}

impl RangeRecords {
    fn add(&mut self, record: Record) {
        self.bytes += record.payload.len() as u64;
        self.records.push(record);
    }
}

/// Feeds records to their ranges, holding at most `memory` bytes of them.
struct Feed {
    env: Env,
    ranges: BTreeMap<RangeId, Arc<Range>>,
    waiting: BTreeMap<RangeId, RangeRecords>,
    memory: u64,
    cells: u64,
}

impl Feed {
    fn new(env: Env, ranges: Vec<Arc<Range>>, memory: u64) -> Feed {
        let ranges = ranges.into_iter().map(|range| (range.id(), range)).collect();
        Feed { env, ranges, waiting: BTreeMap::new(), memory, cells: 0 }
    }

    fn take(&mut self, records: BTreeMap<RangeId, RangeRecords>) {
        for (range, records) in records {
            // A range without a place was dropped since the catalog listed it.
            if self.ranges.contains_key(&range) {
                let waiting = self.waiting.entry(range).or_default();
                for record in records.records {
                    waiting.add(record);
                }
            }
        }
    }

    /// Feeds the largest ranges until the others fit the memory.
    async fn make_room(&mut self) -> Result<()> {
        loop {
            let held: u64 = self.waiting.values().map(|records| records.bytes).sum();
            let largest = self.waiting.iter().max_by_key(|(_, records)| records.bytes);
            match largest {
                Some((range, _)) if held > self.memory => {
                    let range = *range;
                    self.feed(&[range]).await?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Feeds all ranges, a few at a time.
    async fn finish(&mut self) -> Result<()> {
        let all: Vec<RangeId> = self.waiting.keys().copied().collect();
        self.feed(&all).await
    }

    /// Feeds these ranges, a few at a time.
    async fn feed(&mut self, ids: &[RangeId]) -> Result<()> {
        let at_once = ids.len().clamp(1, FEEDS_MAX);
        let memory = usize::try_from(self.memory / at_once as u64).unwrap_or(usize::MAX);
        let mut feeding = VecDeque::new();
        let mut outcome = Ok(());
        for id in ids {
            if feeding.len() == at_once {
                outcome = outcome.and(self.fed(feeding.pop_front()).await);
            }
            if let (Some(records), Some(range)) = (self.waiting.remove(id), self.ranges.get(id))
                && outcome.is_ok()
            {
                let task = feed_one(Arc::clone(range), records, memory);
                feeding.push_back(self.env.spawn("recover a range", task));
            }
        }
        // All are waited for, whatever becomes of one: nothing goes on behind an error.
        while let Some(task) = feeding.pop_front() {
            outcome = outcome.and(self.fed(Some(task)).await);
        }
        outcome
    }

    /// Waits for a range.
    async fn fed(&mut self, task: Option<Task<Result<u64>>>) -> Result<()> {
        if let Some(task) = task {
            self.cells += task.join().await.unwrap_or(Err(Error::Busy))?;
        }
        Ok(())
    }
}

/// Sorts a range's records into SSTables that its manifest names; how many cells.
async fn feed_one(range: Arc<Range>, records: RangeRecords, memory: usize) -> Result<u64> {
    let failed = Error::store(range.id());
    let mut ingest = range.store().ingest(memory).map_err(&failed)?;
    for record in records.records {
        ingest.note_seq(record.last);
        match record.kind {
            EntryKind::Batch => ingest.add_payload(record.payload).await.map_err(&failed)?,
            EntryKind::Excise => {
                let rows = lsm::decode_excise(&record.payload).map_err(&failed)?;
                ingest.add_excise(rows, record.last).await.map_err(&failed)?;
            }
            EntryKind::NoOp => {}
        }
    }
    let cells = ingest.finish().await.map_err(&failed)?.cells;
    range.learn_time();
    Ok(cells)
}
