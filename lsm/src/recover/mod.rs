//! Takes up what a former session's log holds of a range: sorted straight into SSTables.
//!
//! 1. Cells arrive in log order; those that the manifest says are flushed are passed over.
//! 2. They gather in a chunk of bounded memory: the payloads as the log has them, and where in them
//!    each cell is.
//! 3. A full chunk is divided by rows into buckets that fit a processor's own cache, small cells
//!    copied, and neighbouring buckets are gathered in a few parts. Bucket by bucket, a part is
//!    sorted, equal keys once (a log may repeat a batch), and written to the SSTables of its
//!    locality groups, as many parts at the same time as there are processors; while one waits for
//!    the disk, the next has its turn.
//! 4. Rows that the log cuts out ([`Ingest::add_excise`]) are cut out of the files written before.
//! 5. [`Ingest::finish`] commits one manifest with all files and with `flushed` at the last number.
//!
//! The tables are compressed as all others are: that is an eighth of the processor's time, but
//! without it twice as many bytes go to the disk before the range serves.
//!
//! Sorting an index of plain numbers is several times faster than inserting into a skip list, and
//! the range then serves only what is synced and checked, never the pages of an old log.
//! Nothing is committed before the end: a crash in between starts again.

mod chunk;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chunk::{Chunk, Part};
use types::{ParsedKey, RowRange, SeqNo, Timestamp, key};

use crate::batch::CheckedCells;
use crate::error::{Error, Result};
use crate::events::Event;
use crate::flush::level_zero;
use crate::layout::Layout;
use crate::output::Written;
use crate::outputs::Outputs;
use crate::store::Store;
use crate::version::{Edit, TableRef};

/// Chunks stay below this, bytes: offsets are 32 bits.
const CHUNK_BYTES_MAX: usize = 1 << 30;
/// The least memory that a chunk makes sense with, bytes.
const CHUNK_BYTES_MIN: usize = 4 << 10;
/// Cells between two points at which other tasks may run.
const CELLS_PER_TURN: usize = 4096;
/// Parts of a chunk that are sorted and written at the same time: a few more than small machines
/// have cores, since the parts differ in size.
const PARTS_MAX: usize = 4;
/// Cells that are sorted at once: small ones fit a processor's own cache, with their index.
const CELLS_PER_BUCKET: usize = 3 << 10;
/// Fewer cells than this are not worth a part of their own.
const CELLS_PER_PART_MIN: usize = 128 << 10;

/// What was taken up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ingested {
    /// Cells and tombstones, each key once in its chunk.
    pub cells: u64,
    /// SSTables written.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// Takes up the cells of one range. See the module's words.
pub struct Ingest {
    store: Arc<Store>,
    layout: Arc<Layout>,
    chunk: Chunk,
    chunk_bytes: usize,
    written: Written,
    flushed: SeqNo,
    newest: SeqNo,
    newest_timestamp: Timestamp,
    cells: u64,
    /// Rows cut out, each with the number of files that were written before.
    cuts: Vec<(usize, RowRange)>,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    started: Duration,
}

impl Store {
    /// Begins to take up cells of a former session, before the first batch is placed.
    /// `memory_bytes` bounds what is gathered before it is written.
    ///
    /// # Errors
    /// The store is poisoned, fenced or closed.
    pub fn ingest(self: &Arc<Self>, memory_bytes: usize) -> Result<Ingest> {
        self.check()?;
        let encoded = |row: &[u8]| {
            let mut bound = Vec::new();
            key::put_row_start(&mut bound, row);
            bound
        };
        let flushed = self.flushed_seq();
        Ok(Ingest {
            chunk: Chunk::default(),
            // The copies of small cells take as much again, and their index less than that.
            chunk_bytes: (memory_bytes / 3).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX),
            written: Written::none(&self.files),
            flushed,
            newest: flushed,
            newest_timestamp: Timestamp::ZERO,
            cells: 0,
            cuts: Vec::new(),
            low: encoded(&self.bounds().start),
            high: self.bounds().end.as_deref().map(encoded),
            started: self.env().monotonic(),
            layout: self.layout(),
            store: Arc::clone(self),
        })
    }
}

impl Ingest {
    /// Adds the cells of one batch's payload, as the log kept it.
    ///
    /// # Errors
    /// [`Error::CorruptBatch`]; [`Error::CorruptCell`] for a row that is not of this range; a full
    /// disk, after which nothing of the range has changed; [`Error::Poisoned`].
    pub async fn add_payload(&mut self, payload: Bytes) -> Result<()> {
        let mut cells = CheckedCells::new(&payload)?;
        let mut place = None;
        while let Some(cell) = cells.next()? {
            if self.is_new(&cell.key)? {
                let place = *place.get_or_insert_with(|| self.chunk.add_payload(&payload));
                self.chunk.add_cell(place, cell.offset, cell.key.as_bytes());
            }
        }
        if self.chunk.bytes() >= self.chunk_bytes {
            self.write_chunk().await?;
        }
        Ok(())
    }

    /// Must the cell be taken up, or is it flushed already?
    fn is_new(&mut self, key: &ParsedKey<'_>) -> Result<bool> {
        if key.seq <= self.flushed {
            return Ok(false);
        }
        let bytes = key.as_bytes();
        if bytes < &self.low[..] || self.high.as_ref().is_some_and(|high| bytes >= &high[..]) {
            return Err(corrupt("a logged row is outside its range"));
        }
        self.newest = self.newest.max(key.seq);
        if !key.kind.is_tombstone() {
            self.newest_timestamp = self.newest_timestamp.max(key.timestamp);
        }
        Ok(true)
    }

    /// Cuts `rows` out of everything before `seq`: of what was added, and of the range's files.
    ///
    /// # Errors
    /// As [`Ingest::add_payload`].
    pub async fn add_excise(&mut self, rows: RowRange, seq: SeqNo) -> Result<()> {
        if seq <= self.flushed {
            return Ok(());
        }
        self.newest = self.newest.max(seq);
        self.write_chunk().await?;
        self.cuts.push((self.written.tables().len(), rows));
        Ok(())
    }

    /// Notes that numbers up to `seq` were given to batches, whether or not they left cells.
    pub fn note_seq(&mut self, seq: SeqNo) {
        self.newest = self.newest.max(seq);
    }

    /// Writes the rest and commits; then the range may serve.
    ///
    /// # Errors
    /// As [`Ingest::add_payload`]; [`Error::Fenced`].
    pub async fn finish(mut self) -> Result<Ingested> {
        self.write_chunk().await?;
        let added = self.added();
        let Ingest { store, layout, written, newest, newest_timestamp, .. } = self;
        let Ingest { cells, cuts, started, .. } = self;
        let done = Ingested { cells, files: written.tables().len(), bytes: written.bytes() };
        let last_timestamp = store.at_most_drifted(newest_timestamp);
        if done.files > 0 || !cuts.is_empty() {
            let edit = Edit {
                excised: cuts.into_iter().map(|(_, rows)| rows).collect(),
                added,
                layout: Some(layout),
                flushed: Some(newest),
                last_timestamp: Some(last_timestamp),
                ..Edit::default()
            };
            let turn = store.turn_to_flush().await?;
            store.commit(edit, written, None, turn).await?;
        }
        store.skip_to(newest, last_timestamp);
        let duration = store.env().monotonic().saturating_sub(started);
        store.counters.flushed_bytes.add(done.bytes);
        store.tell(&Event::RecoveryFinished { cells, bytes: done.bytes, duration });
        Ok(done)
    }

    /// References to the new files, without what was cut out after each was written.
    fn added(&self) -> Vec<(usize, TableRef)> {
        let mut added = Vec::new();
        for (place, (group, table)) in level_zero(&self.written).into_iter().enumerate() {
            let mut parts = vec![Arc::new(table)];
            for (_, rows) in self.cuts.iter().filter(|(written, _)| place < *written) {
                parts = parts.iter().flat_map(|part| part.without(rows)).collect();
            }
            added.extend(parts.into_iter().map(|part| (group, Arc::unwrap_or_clone(part))));
        }
        added
    }

    async fn write_chunk(&mut self) -> Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        self.store.check()?;
        let chunk = std::mem::take(&mut self.chunk);
        let most = (chunk.len() / CELLS_PER_PART_MIN).clamp(1, PARTS_MAX);
        let parts = self.store.env().blocking(|| chunk.divide(most, CELLS_PER_BUCKET));
        let writing: Vec<_> = parts
            .into_iter()
            .map(|part| {
                let (store, layout) = (Arc::clone(&self.store), Arc::clone(&self.layout));
                self.store.env().spawn("write recovered cells", write_part(store, layout, part))
            })
            .collect();
        // All are waited for, whatever becomes of one: nothing goes on behind an error.
        let mut failure = None;
        for part in writing {
            match part.join().await.unwrap_or(Err(Error::Closed)) {
                Ok((cells, written)) => {
                    self.cells += cells;
                    self.written.append(written);
                }
                Err(failed) => failure = failure.or(Some(failed)),
            }
        }
        failure.map_or(Ok(()), |failed| Err(self.store.note_failure(failed)))
    }
}

/// Sorts a part and writes it; how many cells it has, equal keys once.
async fn write_part(store: Arc<Store>, layout: Arc<Layout>, part: Part) -> Result<(u64, Written)> {
    // Parts that went side by side to their end would all wait for the disk at the same time.
    let place = store.env().computing_permit().await;
    let mut output = Outputs::new(&store.files, store.options(), &layout);
    let mut cells = 0;
    for mut bucket in part {
        bucket.sort();
        for cell in bucket.cells() {
            if !output.put(cell.key, cell.value)? {
                output.add(cell.key, cell.value).await?;
            }
            cells += 1;
            if cells % CELLS_PER_TURN == 0 {
                store.env().yield_now().await;
                store.check()?;
            }
        }
    }
    drop(place);
    Ok((cells as u64, output.finish().await?))
}

fn corrupt(what: &str) -> Error {
    Error::CorruptCell { what: what.to_owned() }
}
