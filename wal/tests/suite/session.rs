//! A session on a disk in memory, and what it remembers of what it wrote.

use std::sync::Arc;

use env::Env;
use rand::rngs::StdRng;
use rand::{Rng, RngCore};
use storage::memory::MemoryFileSystem;
use storage::{FileSystem, Path};
use tepui_wal::{Entry, EntryKind, Error, Frame, Log, LogOptions, OwnedEntry, Position, recover};
use types::{Epoch, RangeId, SeqNo, SessionId};

/// Small enough that a few frames fill a segment.
pub(super) const SMALL: LogOptions =
    LogOptions { first_segment_bytes: 1024, segment_bytes: 4096, segments_ahead: 1 };

pub(super) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(test)
}

pub(super) fn folder(session: u128) -> Path {
    Path::new("wal").join(&SessionId::new(session).to_string())
}

pub(super) fn entry(range: u64, first: u64, payload: Vec<u8>) -> OwnedEntry {
    OwnedEntry {
        kind: EntryKind::Batch,
        range: RangeId::new(range),
        epoch: Epoch::new(1),
        first_seq: SeqNo::from_raw(first).unwrap(),
        count: 1,
        payload: payload.into(),
    }
}

/// One to three entries of up to `bytes_max` bytes each.
pub(super) fn random_group(random: &mut StdRng, bytes_max: usize) -> Vec<OwnedEntry> {
    (0..random.random_range(1..=3))
        .map(|_| {
            let mut payload = vec![0; random.random_range(0..=bytes_max)];
            random.fill_bytes(&mut payload);
            entry(random.random_range(1..5), random.random_range(1..1000), payload)
        })
        .collect()
}

/// A log and a memory of what was appended to it.
pub(super) struct Session {
    pub(super) log: Log,
    pub(super) written: Vec<(Position, Vec<OwnedEntry>)>,
}

impl Session {
    pub(super) async fn start(
        disk: &MemoryFileSystem,
        session: u128,
        options: LogOptions,
    ) -> Result<Session, Error> {
        Session::start_on(Arc::new(disk.clone()), session, options).await
    }

    pub(super) async fn start_on(
        files: Arc<dyn FileSystem>,
        session: u128,
        options: LogOptions,
    ) -> Result<Session, Error> {
        let env = Env::simulated(session as u64);
        let log = Log::create(files, env, folder(session), options).await?;
        Ok(Session { log, written: Vec::new() })
    }

    /// Reserves, appends; remembers the group before it is known to be written.
    pub(super) async fn append(&mut self, group: Vec<OwnedEntry>) -> Result<Position, Error> {
        let payload = group.iter().map(|entry| entry.payload.len()).sum();
        let _space = self.log.reserve(payload, group.len()).await?;
        let entries: Vec<Entry<'_>> = group.iter().map(OwnedEntry::as_entry).collect();
        let appended = self.log.append(&entries);
        let unknown = Position { segment: u64::MAX, offset: 0 };
        let at = *appended.as_ref().unwrap_or(&unknown);
        self.written.push((at, group));
        appended
    }
}

/// Everything that recovery finds, and whether the log was closed.
pub(super) async fn read_all(
    disk: &MemoryFileSystem,
    session: u128,
) -> Result<(Vec<Frame>, bool), Error> {
    read_from(Arc::new(disk.clone()), session).await
}

pub(super) async fn read_from(
    files: Arc<dyn FileSystem>,
    session: u128,
) -> Result<(Vec<Frame>, bool), Error> {
    let sealed = files.seal(&folder(session)).await?;
    let mut reader = recover(&files, &folder(session), sealed).await?;
    let mut frames = Vec::new();
    while let Some(frame) = reader.next().await? {
        frames.push(frame);
    }
    Ok((frames, reader.ended_cleanly()))
}

/// Are `frames` a part of what was written, without gap, up to at least `acknowledged`?
pub(super) fn check_prefix(
    frames: &[Frame],
    written: &[(Position, Vec<OwnedEntry>)],
    released_below: u64,
    acknowledged: usize,
) -> Result<(), String> {
    let first = written.iter().position(|(at, _)| at.segment >= released_below);
    let first = first.unwrap_or(written.len());
    let last = frames.last().map_or(0, |frame| frame.number as usize);
    if last < acknowledged && first < acknowledged {
        return Err(format!("frame {acknowledged} was acknowledged, the last found is {last}"));
    }
    if let Some(oldest) = frames.first()
        && oldest.number as usize > first + 1
    {
        return Err(format!("frames before {} are gone, {first} were released", oldest.number));
    }
    for (before, frame) in std::iter::once(None).chain(frames.iter().map(Some)).zip(frames) {
        if before.is_some_and(|before| before.number + 1 != frame.number) {
            return Err(format!("a gap before frame {}", frame.number));
        }
        match written.get(frame.number as usize - 1) {
            Some((_, group)) if *group == frame.entries => {}
            Some(_) => return Err(format!("frame {} is not what was written", frame.number)),
            None => return Err(format!("frame {} was never written", frame.number)),
        }
    }
    Ok(())
}
