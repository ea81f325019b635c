//! Cells of a log on their way into SSTables: gathered as they come, divided by rows, sorted.
//!
//! 1. While they come, the payloads stay as the log has them, and where each cell is is noted.
//! 2. [`Chunk::divide`] walks them once, in the order in which they came, and puts each cell in the
//!    bucket of its row: small cells are copied there, of large ones only their place is.
//! 3. A bucket is sorted by spots of 16 bytes, each with eight bytes of the key after what all keys
//!    share, which mostly decide an order without a look at the key itself.
//!
//! Sorting the whole in place was rejected: in the order of keys every cell lies somewhere else in
//! the payloads, and each look at one is a miss of all caches. A bucket's copies are in the cache.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use types::{CellRef, key};

use crate::entry;

/// Entries that are longer stay where they are.
const COPIED_BYTES_MAX: usize = 512;
const CACHE_LINE_BYTES: usize = 64;
/// Keys looked at for where to divide, for each bucket and at least.
const SAMPLES_PER_BUCKET: usize = 32;
const SAMPLES_MIN: usize = 512;
/// Stands for a payload's place: the entry was copied to its bucket.
const COPIED: u32 = u32::MAX;

/// Where a cell is: a payload's place in its chunk, and where in it the cell's entry begins.
#[derive(Clone, Copy)]
struct Place {
    payload: u32,
    offset: u32,
}

/// A cell's place, and eight bytes of its key that mostly decide an order.
#[derive(Clone, Copy)]
struct Spot {
    prefix: u64,
    place: Place,
}

/// The checked entry at the start of `bytes`, and how long it is.
#[inline]
fn entry_at(bytes: &[u8]) -> (CellRef<'_>, usize) {
    entry::split(bytes).expect("a payload was checked when it came")
}

fn offset_of(place: usize) -> u32 {
    u32::try_from(place).expect("a chunk is far below 4 GiB")
}

/// Cells in the order in which they arrived.
#[derive(Default)]
pub(super) struct Chunk {
    payloads: Vec<Bytes>,
    places: Vec<Place>,
    bytes: usize,
    /// The first key, and how many bytes of it all keys begin with.
    first: Vec<u8>,
    shared: usize,
}

impl Chunk {
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How many cells.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Bytes of the payloads.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes in a checked payload; its place.
    pub(super) fn add_payload(&mut self, payload: &Bytes) -> u32 {
        let place = offset_of(self.payloads.len());
        assert!(place != COPIED, "a chunk has few payloads");
        self.payloads.push(payload.clone());
        self.bytes += payload.len();
        place
    }

    /// Takes in the cell at `offset` of a payload.
    pub(super) fn add_cell(&mut self, payload: u32, offset: usize, key: &[u8]) {
        if self.places.is_empty() {
            self.first.extend_from_slice(key);
            self.shared = key.len();
        } else if !key.starts_with(&self.first[..self.shared]) {
            self.shared = self.first.iter().zip(key).take_while(|(a, b)| a == b).count();
        }
        self.places.push(Place { payload, offset: offset_of(offset) });
    }

    /// The entry at a place, to the end of its payload.
    fn entry(&self, place: Place) -> &[u8] {
        &self.payloads[place.payload as usize][place.offset as usize..]
    }

    /// Divides into at most `most` parts of buckets of about `bucket_cells` cells: all in ascending
    /// order and none of them empty; a row is in one bucket only.
    pub(super) fn divide(self, most: usize, bucket_cells: usize) -> Vec<Part> {
        let wanted = self.len().div_ceil(bucket_cells).max(most);
        let borders = self.borders(wanted);
        let expected = |whole: usize| whole / (borders.len() + 1) * 9 / 8;
        let (cells, bytes) = (expected(self.len()), expected(self.bytes));
        // Large cells are not copied.
        let bytes = bytes.min(cells * COPIED_BYTES_MAX);
        let mut buckets: Vec<Bucket> = Vec::new();
        buckets.resize_with(borders.len() + 1, || Bucket::with_capacity(cells, bytes));
        for &place in &self.places {
            let (cell, len) = entry_at(self.entry(place));
            let prefix = prefix_after(cell.key, self.shared);
            let bucket = borders.partition_point(|border| border.is_at_most(prefix, cell.key));
            buckets[bucket].add(prefix, place, &self.entry(place)[..len]);
        }
        let cells = self.len();
        let payloads = Arc::new(self.payloads);
        let mut parts: Vec<Part> = Vec::new();
        let mut before = 0;
        for mut bucket in buckets.into_iter().filter(|bucket| !bucket.spots.is_empty()) {
            let part = before * most / cells;
            before += bucket.spots.len();
            bucket.payloads = Arc::clone(&payloads);
            if parts.len() <= part {
                parts.push(Part::new());
            }
            parts.last_mut().expect("there is a first part").push_back(bucket);
        }
        parts
    }

    /// Starts of rows, ascending, that divide the cells into about `most` equal buckets.
    fn borders(&self, most: usize) -> Vec<Border> {
        let samples = SAMPLES_MIN.max(most * SAMPLES_PER_BUCKET);
        let step = (self.len() / samples).max(1);
        let sampled = self.places.iter().step_by(step);
        let row = |place: &Place| key::row_prefix(entry_at(self.entry(*place)).0.key);
        let mut rows: Vec<&[u8]> = sampled.filter_map(row).collect();
        rows.sort_unstable();
        let mut chosen: Vec<&[u8]> =
            (1..most).filter_map(|part| rows.get(rows.len() * part / most).copied()).collect();
        chosen.dedup();
        let border =
            |row: &[u8]| Border { prefix: prefix_after(row, self.shared), row: row.to_vec() };
        chosen.into_iter().map(border).collect()
    }
}

/// The start of a row at which cells are divided.
struct Border {
    prefix: u64,
    row: Vec<u8>,
}

impl Border {
    #[inline]
    fn is_at_most(&self, prefix: u64, key: &[u8]) -> bool {
        self.prefix < prefix || (self.prefix == prefix && self.row[..] <= *key)
    }
}

/// Cells of neighbouring rows, bucket by bucket.
pub(super) type Part = VecDeque<Bucket>;

/// Cells of neighbouring rows that are sorted together.
pub(super) struct Bucket {
    payloads: Arc<Vec<Bytes>>,
    copies: Vec<u8>,
    spots: Vec<Spot>,
}

impl Bucket {
    fn with_capacity(cells: usize, bytes: usize) -> Bucket {
        Bucket {
            payloads: Arc::default(),
            copies: Vec::with_capacity(bytes),
            spots: Vec::with_capacity(cells),
        }
    }

    #[inline]
    fn add(&mut self, prefix: u64, mut place: Place, entry: &[u8]) {
        if entry.len() <= COPIED_BYTES_MAX {
            place = Place { payload: COPIED, offset: offset_of(self.copies.len()) };
            self.copies.extend_from_slice(entry);
        }
        self.spots.push(Spot { prefix, place });
    }

    #[inline]
    fn cell(&self, place: Place) -> CellRef<'_> {
        cell_at(&self.payloads, &self.copies, place)
    }

    /// Sorts the cells by key and keeps equal keys once.
    pub(super) fn sort(&mut self) {
        let Bucket { payloads, copies, spots } = self;
        let key = |spot: &Spot| cell_at(payloads, copies, spot.place).key;
        spots.sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| key(a).cmp(key(b))));
        spots.dedup_by(|a, b| a.prefix == b.prefix && key(a) == key(b));
        // The copies went to memory when other buckets were filled. Read through once, in order,
        // they come back fast; read first in the order of keys, each would be waited for.
        let lines = copies.iter().step_by(CACHE_LINE_BYTES);
        std::hint::black_box(lines.fold(0_u8, |all, byte| all ^ byte));
    }

    /// The cells in their present order.
    pub(super) fn cells(&self) -> impl Iterator<Item = CellRef<'_>> {
        self.spots.iter().map(|spot| self.cell(spot.place))
    }
}

#[inline]
fn cell_at<'a>(payloads: &'a [Bytes], copies: &'a [u8], place: Place) -> CellRef<'a> {
    let bytes = match place.payload {
        COPIED => copies,
        payload => &payloads[payload as usize],
    };
    entry_at(&bytes[place.offset as usize..]).0
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
    use types::{CellKey, FamilyId, SeqNo, Timestamp};

    use super::*;

    /// Gathers cells, a few in a payload.
    fn gather(cells: &[(Vec<u8>, Vec<u8>)]) -> Chunk {
        let mut chunk = Chunk::default();
        for few in cells.chunks(7) {
            let mut payload = Vec::new();
            let mut offsets = Vec::new();
            for (key, value) in few {
                offsets.push(payload.len());
                entry::put_header(&mut payload, key.len(), value.len());
                payload.extend_from_slice(key);
                payload.extend_from_slice(value);
            }
            let place = chunk.add_payload(&Bytes::from(payload));
            for (offset, (key, _)) in offsets.into_iter().zip(few) {
                chunk.add_cell(place, offset, key);
            }
        }
        chunk
    }

    fn key_of(row: &[u8], seq: u64) -> Vec<u8> {
        let seq = SeqNo::from_raw(seq).unwrap();
        let key = CellKey::put(row, FamilyId::new(1), b"q", Timestamp::ZERO, seq);
        key.as_bytes().to_vec()
    }

    #[test]
    fn parts_hold_whole_rows_in_the_order_of_plain_bytes_and_equal_keys_once() {
        for seed in 0..300 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut cells: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            let start = random.random_range(0..4);
            for _ in 0..random.random_range(1..100) {
                let mut row = b"same"[..start].to_vec();
                let more = random.random_range(1..12);
                row.extend((0..more).map(|_| [0, 1, 255][random.random_range(0..3)]));
                let key = key_of(&row, random.random_range(1..5));
                let value = key[start..].repeat(if key.len().is_multiple_of(3) { 40 } else { 1 });
                cells.push((key, value));
            }
            let most = random.random_range(1..6);
            let mut parts = gather(&cells).divide(most, random.random_range(1..40));
            assert!((1..=most).contains(&parts.len()), "seed {seed}");
            assert!(parts.iter().all(|part| !part.is_empty()), "seed {seed}");
            let mut buckets: Vec<Bucket> = parts.drain(..).flatten().collect();
            buckets.iter_mut().for_each(Bucket::sort);
            cells.sort();
            cells.dedup();
            let found = buckets.iter().flat_map(Bucket::cells);
            let found: Vec<_> = found.map(|c| (c.key.to_vec(), c.value.to_vec())).collect();
            assert_eq!(found, cells, "seed {seed}");
            for pair in buckets.windows(2) {
                let last = key::row_prefix(pair[0].cells().last().unwrap().key).unwrap();
                let first = key::row_prefix(pair[1].cells().next().unwrap().key).unwrap();
                assert!(last < first, "a row is in one bucket, seed {seed}");
            }
        }
    }

    #[test]
    fn many_rows_make_parts_of_about_the_same_size() {
        let mut random = StdRng::seed_from_u64(7);
        let cell = |seq| (key_of(&random.random::<u64>().to_be_bytes(), seq), Vec::new());
        let cells: Vec<_> = (1..=20_000).map(cell).collect();
        let cells_of = |part: &Part| part.iter().map(|bucket| bucket.spots.len()).sum();
        let sizes: Vec<usize> = gather(&cells).divide(4, 1_000).iter().map(cells_of).collect();
        assert_eq!(sizes.len(), 4);
        assert!(sizes.iter().all(|size| (3_000..7_000).contains(size)), "{sizes:?}");
    }
}
