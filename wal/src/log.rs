//! The writer: one session's log.
//!
//! 1. [`Log::reserve`] makes sure, before a write is admitted, that its frame has space on disk
//!    (see [`crate::space`]), preparing segments ahead as needed.
//! 2. [`Log::append`] frames the entries of one commit group and writes them at once; when the
//!    current segment is full it syncs it and goes on in the next prepared one.
//! 3. [`Log::sync`] makes everything appended durable.
//! 4. [`Log::release_before`] removes segments that nobody needs any more.
//!
//! Invariants
//! - A segment is begun (its header written, with its first frame) only after its predecessor was
//!   synced to its end.
//! - After a failed write or sync nothing is written any more: the durable state is unknown.
//! - The current segment and those behind `synced` are never released, and older ones go oldest
//!   first, each removal durable before the next: the numbers found never have a gap.
//! - Files are created and counted in tasks of their own, which a caller that goes away does not
//!   cancel: no segment exists uncounted.

mod writer;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use env::Env;
use storage::{FileSystem, LogFile, Path};
use types::{ErrorKind, SessionId};

use crate::format::{
    ENTRY_HEADER_BYTES, Entry, FRAME_PAYLOAD_BYTES_MAX, SEGMENT_HEADER_BYTES, SegmentName,
    frame_len,
};
use crate::space::Space;
use crate::{Error, Result};
use writer::Writer;

/// A place in a session's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// The segment's number.
    pub segment: u64,
    /// Bytes from its start.
    pub offset: u64,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{}", self.segment, self.offset)
    }
}

/// How large segments are.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Bytes of the first segment: small, so that a start is quick.
    pub first_segment_bytes: u64,
    /// Bytes of the others; a frame that needs more gets more.
    pub segment_bytes: u64,
    /// How many segments stand ready once the current one is half full.
    pub segments_ahead: usize,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions { first_segment_bytes: 1 << 20, segment_bytes: 64 << 20, segments_ahead: 1 }
    }
}

/// One session's log, open for writing. At most one thread appends at a time; others wait.
pub struct Log {
    inner: Arc<Inner>,
}

struct Inner {
    files: Arc<dyn FileSystem>,
    env: Env,
    folder: Path,
    options: LogOptions,
    /// Held across writes and syncs. Taken before `books`, never after.
    writer: Mutex<Writer>,
    /// Held for moments only.
    books: Mutex<Books>,
    /// Whoever creates or removes files.
    turn: tokio::sync::Mutex<()>,
}

/// What is known without touching the file.
struct Books {
    state: State,
    space: Space,
    end: Position,
    synced: Position,
    /// Finished segments that were not released, with their final lengths.
    finished: BTreeMap<u64, (SegmentName, u64)>,
    /// The name of the next segment. Kept over a failed attempt, of which a crash may bring the
    /// empty file back: a second name for one number would not be told from a stray segment.
    next_name: SegmentName,
    preparing_ahead: bool,
}

enum State {
    Open,
    Closed,
    Poisoned(String),
}

/// Space for one append; given back when dropped, which is after the append.
#[must_use = "dropping it gives the space back"]
pub struct Reservation {
    inner: Arc<Inner>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.inner.books().space.give_back(self.bytes);
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservation").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("folder", &self.inner.folder).finish_non_exhaustive()
    }
}

impl Log {
    /// Starts the log of a session in a folder of its own, which is named by the session's id (as
    /// [`SessionId`] displays it) and holds no other log.
    ///
    /// # Errors
    /// Those of creating a file; `ResourceExhausted` when the disk is full.
    pub async fn create(
        files: Arc<dyn FileSystem>,
        env: Env,
        folder: Path,
        options: LogOptions,
    ) -> Result<Log> {
        let session = SessionId::parse(folder.name());
        let session = session.expect("a log's folder is named by its session");
        let name = SegmentName { number: 1, seed: env.random_u64() };
        let bytes = options.first_segment_bytes.max(2 * SEGMENT_HEADER_BYTES as u64);
        let LogFile::Blocking(log) =
            files.create_log(&folder.join(&name.to_string()), bytes).await?;
        let room = log.reserved().saturating_sub(SEGMENT_HEADER_BYTES as u64);
        let start = Position { segment: 1, offset: 0 };
        let books = Books {
            state: State::Open,
            space: Space::new(room),
            end: start,
            synced: start,
            finished: BTreeMap::new(),
            next_name: SegmentName { number: 2, seed: env.random_u64() },
            preparing_ahead: false,
        };
        let inner = Inner {
            files,
            env,
            folder,
            options,
            writer: Mutex::new(Writer::new(session, name, log)),
            books: Mutex::new(books),
            turn: tokio::sync::Mutex::new(()),
        };
        Ok(Log { inner: Arc::new(inner) })
    }

    /// Sets aside the space of one append: `entries` entries with `payload_bytes` of payload in
    /// all. Several reservations may be used by one append.
    ///
    /// # Errors
    /// `InvalidArgument` past the largest frame; `ResourceExhausted` when the disk is full, with
    /// nothing changed; `Poisoned`.
    pub async fn reserve(&self, payload_bytes: usize, entries: usize) -> Result<Reservation> {
        let bytes = payload_len(payload_bytes, entries).map(frame_len)?;
        loop {
            {
                let mut books = self.inner.books();
                books.check()?;
                if books.space.reserve(bytes) {
                    self.prepare_ahead(&mut books);
                    return Ok(Reservation { inner: Arc::clone(&self.inner), bytes });
                }
            }
            let preparing = Arc::clone(&self.inner).prepare(bytes);
            let task = self.inner.env.spawn("prepare a log segment", preparing);
            task.join().await.unwrap_or(Err(Error::Closed))?;
        }
    }

    /// Starts to prepare the next segment when the current one is half full, so that writers
    /// seldom wait for it.
    fn prepare_ahead(&self, books: &mut Books) {
        if books.preparing_ahead || !books.space.wants_ahead(self.inner.options.segments_ahead) {
            return;
        }
        books.preparing_ahead = true;
        let inner = Arc::downgrade(&self.inner);
        // Detached: should it fail, the writer that needs the segment tries again and is told.
        drop(self.inner.env.spawn("prepare a log segment ahead", async move {
            if let Some(inner) = inner.upgrade() {
                let _ = Arc::clone(&inner).prepare(0).await;
                inner.books().preparing_ahead = false;
            }
        }));
    }

    /// Writes the entries of one commit group as one frame. Blocks: call it inside
    /// `env.blocking`. Returns the position past the frame: it is durable once
    /// [`Log::synced`] has reached that.
    ///
    /// # Errors
    /// `ResourceExhausted` when no space was reserved, `InvalidArgument` past the largest frame,
    /// both with nothing written; `Poisoned` when the write failed, now or earlier.
    pub fn append(&self, entries: &[Entry<'_>]) -> Result<Position> {
        assert!(!entries.is_empty(), "a frame has entries");
        let payload = entries.iter().map(Entry::payload_len).sum();
        let bytes = payload_len(payload, entries.len()).map(frame_len)?;
        self.inner.writer().append(&self.inner, entries, bytes)
    }

    /// Makes everything appended durable and returns how far that is. Blocks: call it inside
    /// `env.blocking`.
    ///
    /// # Errors
    /// `Poisoned` when it failed, now or earlier.
    pub fn sync(&self) -> Result<Position> {
        self.inner.writer().sync(&self.inner)
    }

    /// The position past the last frame.
    pub fn end(&self) -> Position {
        self.inner.books().end
    }

    /// Everything before it is durable.
    pub fn synced(&self) -> Position {
        self.inner.books().synced
    }

    /// The number of the oldest segment that was not released.
    pub fn oldest_segment(&self) -> u64 {
        let books = self.inner.books();
        books.finished.first_key_value().map_or(books.end.segment, |(number, _)| *number)
    }

    /// Bytes written to the segments that were not released: what a recovery would read.
    pub fn retained_bytes(&self) -> u64 {
        let books = self.inner.books();
        books.finished.values().map(|(_, len)| len).sum::<u64>() + books.end.offset
    }

    /// Removes the segments older than `segment`, oldest first; of those not yet synced past, and
    /// the current one, none.
    ///
    /// # Errors
    /// Those of removing files; `Poisoned`, also when a removal could not be made durable.
    pub async fn release_before(&self, segment: u64) -> Result<()> {
        let _turn = self.inner.turn.lock().await;
        loop {
            let (number, name) = {
                let books = self.inner.books();
                books.check()?;
                let limit = segment.min(books.synced.segment);
                match books.finished.first_key_value() {
                    Some((number, (name, _))) if *number < limit => (*number, *name),
                    _ => return Ok(()),
                }
            };
            let path = self.inner.folder.join(&name.to_string());
            self.inner.files.remove(&path).await?;
            let synced = self.inner.files.sync_folder(&self.inner.folder).await;
            synced.map_err(|error| self.inner.poison(error))?;
            self.inner.books().finished.remove(&number);
        }
    }

    /// Ends the log: syncs, writes the end mark, syncs again, removes the segments that stood
    /// ready. Everything later fails.
    ///
    /// # Errors
    /// `Poisoned` when the end could not be written; an error of removing a file comes after the
    /// end is durable.
    pub async fn close(&self) -> Result<()> {
        let inner = &self.inner;
        let _turn = inner.turn.lock().await;
        inner.env.blocking(|| inner.writer().close(inner))?;
        let unused = inner.books().space.drain();
        for segment in unused {
            drop(segment.log);
            inner.files.remove(&inner.folder.join(&segment.name.to_string())).await?;
        }
        Ok(())
    }
}

impl Inner {
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().expect("no holder of this lock panics")
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("no holder of this lock panics")
    }

    /// Closes the log for good.
    fn poison(&self, source: storage::Error) -> Error {
        self.books().state = State::Poisoned(source.to_string());
        Error::Failed(source)
    }

    /// Creates the next segment unless `bytes` more can be reserved already.
    async fn prepare(self: Arc<Self>, bytes: u64) -> Result<()> {
        let _turn = self.turn.lock().await;
        let (name, len) = {
            let books = self.books();
            books.check()?;
            let LogOptions { segment_bytes, segments_ahead, .. } = self.options;
            let Some(len) = books.space.plan(bytes, segment_bytes, segments_ahead) else {
                return Ok(());
            };
            (books.next_name, len)
        };
        let created = self.files.create_log(&self.folder.join(&name.to_string()), len).await;
        let LogFile::Blocking(log) = match created {
            Ok(file) => file,
            Err(full) if full.kind() == ErrorKind::ResourceExhausted => return Err(full.into()),
            Err(error) => return Err(self.poison(error)),
        };
        let mut books = self.books();
        books.space.add(name, log);
        books.next_name = SegmentName { number: name.number + 1, seed: self.env.random_u64() };
        Ok(())
    }
}

impl Books {
    fn check(&self) -> Result<()> {
        match &self.state {
            State::Open => Ok(()),
            State::Closed => Err(Error::Closed),
            State::Poisoned(reason) => Err(Error::Poisoned(reason.clone())),
        }
    }
}

/// Bytes of a frame's payload.
fn payload_len(payload: usize, entries: usize) -> Result<usize> {
    let headers = entries.saturating_mul(ENTRY_HEADER_BYTES);
    let bytes = payload.saturating_add(headers);
    if bytes > FRAME_PAYLOAD_BYTES_MAX {
        let (bytes, limit) = (bytes as u64, FRAME_PAYLOAD_BYTES_MAX as u64);
        return Err(Error::TooLarge { bytes, limit });
    }
    Ok(bytes)
}
