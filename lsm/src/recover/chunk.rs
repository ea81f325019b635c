//! Cells of a log on their way into SSTables: gathered as they come, divided by rows, sorted.
//!
//! The payloads stay as the log has them; what is moved are spots of 16 bytes, each with eight
//! bytes of the key after what all keys share, which mostly decide an order without a look at the
//! key itself.

use std::sync::Arc;

use bytes::Bytes;
use types::{CellRef, key};

use crate::entry;

/// Cells that are touched before the first of them is used.
const CELLS_AHEAD: usize = 32;
/// Keys looked at for where to divide.
const SAMPLES: usize = 512;

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

/// Payloads of batches, checked.
#[derive(Default)]
struct Payloads {
    all: Vec<Bytes>,
    /// How many bytes all keys begin with.
    shared: usize,
}

impl Payloads {
    fn cell(&self, place: Place) -> CellRef<'_> {
        let payload = &self.all[place.payload as usize];
        let entry = entry::split(&payload[place.offset as usize..]);
        entry.expect("a payload was checked when it came").0
    }

    fn key(&self, spot: Spot) -> &[u8] {
        self.cell(spot.place).key
    }
}

/// Cells in the order in which they arrived.
#[derive(Default)]
pub(super) struct Chunk {
    payloads: Payloads,
    places: Vec<Place>,
    bytes: usize,
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
        let place = u32::try_from(self.payloads.all.len()).expect("a chunk has few payloads");
        self.payloads.all.push(payload.clone());
        self.bytes += payload.len();
        place
    }

    /// Takes in the cell at `offset` of a payload.
    pub(super) fn add_cell(&mut self, payload: u32, offset: usize, key: &[u8]) {
        let offset = u32::try_from(offset).expect("a payload is far below 4 GiB");
        match self.places.first() {
            None => self.payloads.shared = key.len(),
            Some(first) => {
                let first = &self.payloads.cell(*first).key[..self.payloads.shared];
                if !key.starts_with(first) {
                    let same = first.iter().zip(key).take_while(|(a, b)| a == b).count();
                    self.payloads.shared = same;
                }
            }
        }
        self.places.push(Place { payload, offset });
    }

    /// Divides into at most `most` parts, in ascending order and none of them empty; a row is in
    /// one of them only.
    pub(super) fn divide(self, most: usize) -> Vec<Part> {
        let borders = self.borders(most);
        let Chunk { payloads, places, .. } = self;
        let expected = places.len() / (borders.len() + 1);
        let mut parts: Vec<Vec<Spot>> = Vec::new();
        parts.resize_with(borders.len() + 1, || Vec::with_capacity(expected + expected / 4));
        for place in places {
            let key = payloads.cell(place).key;
            let prefix = prefix_after(key, payloads.shared);
            let is_past = |border: &Border| {
                border.prefix < prefix || (border.prefix == prefix && border.row[..] <= *key)
            };
            let part = borders.iter().rposition(is_past).map_or(0, |border| border + 1);
            parts[part].push(Spot { prefix, place });
        }
        let payloads = Arc::new(payloads);
        let part = |spots: Vec<Spot>| Part { payloads: Arc::clone(&payloads), spots };
        parts.into_iter().filter(|spots| !spots.is_empty()).map(part).collect()
    }

    /// Starts of rows, ascending, that divide the cells into about equal parts.
    fn borders(&self, most: usize) -> Vec<Border> {
        let step = (self.len() / SAMPLES).max(1);
        let sampled = self.places.iter().step_by(step);
        let row = |place: &Place| key::row_prefix(self.payloads.cell(*place).key);
        let mut rows: Vec<&[u8]> = sampled.filter_map(row).collect();
        rows.sort_unstable();
        let mut chosen: Vec<&[u8]> =
            (1..most).filter_map(|part| rows.get(rows.len() * part / most).copied()).collect();
        chosen.dedup();
        let border = |row: &[u8]| Border {
            prefix: prefix_after(row, self.payloads.shared),
            row: row.to_vec(),
        };
        chosen.into_iter().map(border).collect()
    }
}

/// The start of a row at which cells are divided.
struct Border {
    prefix: u64,
    row: Vec<u8>,
}

/// Cells of neighbouring rows.
pub(super) struct Part {
    payloads: Arc<Payloads>,
    spots: Vec<Spot>,
}

impl Part {
    /// Sorts the cells by key and keeps equal keys once.
    pub(super) fn sort(&mut self) {
        let Part { payloads, spots } = self;
        spots.sort_unstable_by(|a, b| {
            a.prefix.cmp(&b.prefix).then_with(|| payloads.key(*a).cmp(payloads.key(*b)))
        });
        spots.dedup_by(|a, b| a.prefix == b.prefix && payloads.key(*a) == payloads.key(*b));
    }

    /// The cells in their present order.
    ///
    /// They lie all over the payloads, so each is a miss of all caches. A few at a time are touched
    /// before the first of them is used: then their misses overlap.
    pub(super) fn cells(&self) -> impl Iterator<Item = CellRef<'_>> {
        self.spots.chunks(CELLS_AHEAD).flat_map(|spots| {
            let mut cells = [CellRef { key: &[], value: &[] }; CELLS_AHEAD];
            for (cell, spot) in cells.iter_mut().zip(spots) {
                *cell = self.payloads.cell(spot.place);
                std::hint::black_box(cell.value.last());
            }
            cells.into_iter().take(spots.len())
        })
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
                let value = key[start..].to_vec();
                cells.push((key, value));
            }
            let most = random.random_range(1..6);
            let mut parts = gather(&cells).divide(most);
            assert!((1..=most).contains(&parts.len()), "seed {seed}");
            parts.iter_mut().for_each(Part::sort);
            cells.sort();
            cells.dedup();
            let found = parts.iter().flat_map(Part::cells);
            let found: Vec<_> = found.map(|c| (c.key.to_vec(), c.value.to_vec())).collect();
            assert_eq!(found, cells, "seed {seed}");
            for pair in parts.windows(2) {
                let last = key::row_prefix(pair[0].cells().last().unwrap().key).unwrap();
                let first = key::row_prefix(pair[1].cells().next().unwrap().key).unwrap();
                assert!(last < first, "a row is in one part, seed {seed}");
            }
        }
    }

    #[test]
    fn many_rows_make_parts_of_about_the_same_size() {
        let mut random = StdRng::seed_from_u64(7);
        let cell = |seq| (key_of(&random.random::<u64>().to_be_bytes(), seq), Vec::new());
        let cells: Vec<_> = (1..=20_000).map(cell).collect();
        let sizes: Vec<usize> =
            gather(&cells).divide(4).iter().map(|part| part.spots.len()).collect();
        assert_eq!(sizes.len(), 4);
        assert!(sizes.iter().all(|size| (3_000..7_000).contains(size)), "{sizes:?}");
    }
}
