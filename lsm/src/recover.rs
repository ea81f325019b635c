//! Takes up what a former session's log holds of a range: sorted straight into SSTables.
//!
//! 1. Cells arrive in log order; those that the manifest says are flushed are passed over.
//! 2. They gather in a chunk of bounded memory: the bytes, and an index of (8 bytes of the key
//!    after what all keys share, offset).
//! 3. A full chunk is sorted, equal keys once (a log may repeat a batch), and written to SSTables.
//! 4. Rows that the log cuts out ([`Ingest::add_excise`]) are cut out of the files written before.
//! 5. [`Ingest::finish`] commits one manifest with all files and with `flushed` at the last number.
//!
//! Sorting an index of plain numbers is several times faster than inserting into a skip list, and
//! the range then serves only what is synced and checked, never the pages of an old log.
//! Nothing is committed before the end: a crash in between starts again.

use std::sync::Arc;
use std::time::Duration;

use types::{ParsedKey, RowRange, SeqNo, Timestamp, key};

use crate::batch::decode_payload;
use crate::error::{Error, Result};
use crate::events::Event;
use crate::flush::level_zero;
use crate::output::{Output, Written};
use crate::store::Store;
use crate::version::{Edit, TableRef};

/// Chunks stay below this, bytes: offsets are 32 bits.
const CHUNK_BYTES_MAX: usize = 1 << 30;
/// The least memory that a chunk makes sense with, bytes.
const CHUNK_BYTES_MIN: usize = 4 << 10;
/// Cells between two points at which other tasks may run.
const CELLS_PER_TURN: usize = 4096;

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
            // The index takes about as much again for the smallest cells.
            chunk_bytes: (memory_bytes / 2).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX),
            written: Written::none(&self.files),
            flushed,
            newest: flushed,
            newest_timestamp: Timestamp::ZERO,
            cells: 0,
            cuts: Vec::new(),
            low: encoded(&self.bounds().start),
            high: self.bounds().end.as_deref().map(encoded),
            started: self.env().monotonic(),
            store: Arc::clone(self),
        })
    }
}

impl Ingest {
    /// Adds the cells of one batch's payload, as the log kept it.
    ///
    /// # Errors
    /// [`Error::CorruptBatch`]; and as [`Ingest::add`].
    pub async fn add_payload(&mut self, payload: &[u8]) -> Result<()> {
        for cell in decode_payload(payload)? {
            self.add(cell.key, cell.value).await?;
        }
        Ok(())
    }

    /// Adds one cell or tombstone.
    ///
    /// # Errors
    /// [`Error::CorruptCell`] for what is no key or no row of this range; a full disk, after which
    /// nothing of the range has changed; [`Error::Poisoned`].
    pub async fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let parsed = ParsedKey::parse(key).ok_or_else(|| corrupt("a logged key is none"))?;
        if parsed.seq <= self.flushed {
            return Ok(());
        }
        if key < &self.low[..] || self.high.as_ref().is_some_and(|high| key >= &high[..]) {
            return Err(corrupt("a logged row is outside its range"));
        }
        self.newest = self.newest.max(parsed.seq);
        if !parsed.kind.is_tombstone() {
            self.newest_timestamp = self.newest_timestamp.max(parsed.timestamp);
        }
        self.chunk.push(key, value);
        if self.chunk.bytes.len() >= self.chunk_bytes {
            self.write_chunk().await?;
        }
        Ok(())
    }

    /// Cuts `rows` out of everything before `seq`: of what was added, and of the range's files.
    ///
    /// # Errors
    /// As [`Ingest::add`].
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
    /// As [`Ingest::add`]; [`Error::Fenced`].
    pub async fn finish(mut self) -> Result<Ingested> {
        self.write_chunk().await?;
        let added = self.added();
        let Ingest { store, written, newest, newest_timestamp, cells, cuts, started, .. } = self;
        let done = Ingested { cells, files: written.tables().len(), bytes: written.bytes() };
        let last_timestamp = store.at_most_drifted(newest_timestamp);
        if done.files > 0 || !cuts.is_empty() {
            let edit = Edit {
                excised: cuts.into_iter().map(|(_, rows)| rows).collect(),
                added,
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
        if self.chunk.index.is_empty() {
            return Ok(());
        }
        self.store.check()?;
        let store = Arc::clone(&self.store);
        let written = self.write_sorted().await.map_err(|failed| store.note_failure(failed))?;
        self.written.append(written);
        self.chunk.clear();
        Ok(())
    }

    async fn write_sorted(&mut self) -> Result<Written> {
        let chunk = &mut self.chunk;
        self.store.env().blocking(|| chunk.sort());
        let mut output = Output::new(&self.store.files, self.store.options());
        for (turn, (key, value)) in self.chunk.cells().enumerate() {
            output.add(key, value).await?;
            self.cells += 1;
            if turn % CELLS_PER_TURN == 0 {
                self.store.env().yield_now().await;
            }
        }
        output.finish().await
    }
}

fn corrupt(what: &str) -> Error {
    Error::CorruptCell { what: what.to_owned() }
}

/// Where a cell is, and eight bytes of its key that mostly decide its place.
#[derive(Clone, Copy)]
struct Spot {
    prefix: u64,
    offset: u32,
}

/// Cells as they arrived: key length, value length (32 bits each), key, value; and their index.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    index: Vec<Spot>,
    /// How many bytes all keys begin with.
    shared: usize,
}

impl Chunk {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        let offset = u32::try_from(self.bytes.len()).expect("a chunk is far below 4 GiB");
        let len = |part: &[u8]| u32::try_from(part.len()).expect("cells are far below 4 GiB");
        if let Some(first) = self.index.first() {
            let first = self.key(*first);
            let same = first.iter().zip(key).take(self.shared).take_while(|(a, b)| a == b).count();
            self.shared = same;
        } else {
            self.shared = key.len();
        }
        self.bytes.extend_from_slice(&len(key).to_le_bytes());
        self.bytes.extend_from_slice(&len(value).to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.index.push(Spot { prefix: 0, offset });
    }

    /// The cell's key and value.
    fn cell(&self, spot: Spot) -> (&[u8], &[u8]) {
        let rest = &self.bytes[spot.offset as usize..];
        let len = |at: usize| {
            let stored: [u8; 4] = rest[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(stored) as usize
        };
        let (key_len, value_len) = (len(0), len(4));
        let (key, rest) = rest[8..].split_at(key_len);
        (key, &rest[..value_len])
    }

    fn key(&self, spot: Spot) -> &[u8] {
        self.cell(spot).0
    }

    fn sort(&mut self) {
        let mut index = std::mem::take(&mut self.index);
        for spot in &mut index {
            spot.prefix = prefix_after(self.key(*spot), self.shared);
        }
        index.sort_unstable_by(|a, b| {
            a.prefix.cmp(&b.prefix).then_with(|| self.key(*a).cmp(self.key(*b)))
        });
        index.dedup_by(|a, b| a.prefix == b.prefix && self.key(*a) == self.key(*b));
        self.index = index;
    }

    fn cells(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.index.iter().map(|spot| self.cell(*spot))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.index.clear();
    }
}

/// Eight bytes of `key` after the first `shared`, zeros past its end: equal or ordered as the keys
/// are, if they share that beginning.
fn prefix_after(key: &[u8], shared: usize) -> u64 {
    let rest = &key[shared.min(key.len())..];
    if let Some(first) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut padded = [0; 8];
    padded[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(padded)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn a_chunk_sorts_as_plain_bytes_do_and_keeps_equal_keys_once() {
        for seed in 0..200 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut chunk = Chunk::default();
            let mut keys: Vec<Vec<u8>> = Vec::new();
            let shared = random.random_range(0..4);
            for _ in 0..random.random_range(1..100) {
                let mut key = b"same"[..shared].to_vec();
                let more = random.random_range(0..12);
                key.extend((0..more).map(|_| [0, 1, 255][random.random_range(0..3)]));
                chunk.push(&key, &key[shared..]);
                keys.push(key);
            }
            chunk.sort();
            keys.sort();
            keys.dedup();
            let sorted: Vec<Vec<u8>> = chunk.cells().map(|(key, _)| key.to_vec()).collect();
            assert_eq!(sorted, keys, "seed {seed}");
            assert!(chunk.cells().all(|(key, value)| value == &key[shared..]), "seed {seed}");
        }
    }
}
