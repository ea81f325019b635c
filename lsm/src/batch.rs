#![doc = include_str!("../BATCH_FORMAT.md")]

use std::borrow::Cow;
use std::sync::Arc;
use types::key::{self, SUFFIX_BYTES};

use bytes::Bytes;
use types::limits::{CELL_KEY_BYTES_MAX, SPLICED_BYTES_MIN, VALUE_BYTES_MAX};
use types::{
    CellRef, Kind, Mutation, ParsedKey, RowMutations, SeqNo, Splice, Timestamp, TimestampRange,
};

use crate::entry;
use crate::{Error, Result};

const VERSION: u8 = 1;
/// Offsets inside a batch are kept in 32 bits.
const PAYLOAD_BYTES_MAX: usize = u32::MAX as usize;

/// The changes of one call to one range: what the log keeps and what the memtable takes.
///
/// It is encoded before the range's lock is taken; [`Batch::sequence`] then only patches numbers.
/// A value that makes up most of it is not copied: it stays where the request has it, for the log
/// and the memtable too.
#[derive(Clone, Debug)]
pub struct Batch {
    /// All but the spliced values. Shared with the memtable, once it is inserted.
    payload: Arc<Vec<u8>>,
    splices: Vec<Splice>,
    places: Vec<Place>,
    mutations: u32,
    first: SeqNo,
    newest: Option<Timestamp>,
}

/// Where one entry lies in the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Where its two lengths begin.
    pub(crate) start: u32,
    key: u32,
    pub(crate) key_end: u32,
    /// Where its value ends, unless that is spliced, and the next entry begins.
    pub(crate) end: u32,
    /// Which splice its value is.
    splice: Option<u16>,
    /// Which of the batch's mutations it is, from 0.
    ordinal: u32,
    /// Does the server give the timestamp?
    server_time: bool,
}

impl Batch {
    /// Encodes `rows`, with placeholders for what sequencing decides. Each mutation takes one
    /// sequence number, in the order given.
    pub fn encode(rows: &[RowMutations]) -> Batch {
        let count: usize = rows.iter().map(|row| row.mutations.len()).sum();
        let mutations = u32::try_from(count).expect("a batch has fewer than 2^32 mutations");
        let mut payload = Vec::with_capacity(Self::payload_bytes(rows));
        payload.push(VERSION);
        let mut encoder = Encoder {
            payload,
            splices: Vec::new(),
            spliced_from: spliced_from(rows),
            places: Vec::with_capacity(count),
            newest: None,
        };
        let mut scratch = Vec::new();
        let mut ordinal = 0;
        for row in rows {
            for mutation in &row.mutations {
                encoder.put(&mut scratch, &row.row, mutation, ordinal);
                ordinal += 1;
            }
        }
        let Encoder { payload, splices, places, newest, .. } = encoder;
        let payload = Arc::new(payload);
        Batch { payload, splices, places, mutations, first: SeqNo::ZERO, newest }
    }

    /// Bytes that [`Batch::encode`] makes of `rows`, without those that it leaves where they are,
    /// to within the escaping of zero bytes: lets an admission check come before the work.
    pub fn payload_bytes(rows: &[RowMutations]) -> usize {
        let fixed = key::FIXED_BYTES + 4 + 2 * entry::VARINT_BYTES_MAX;
        let spliced_from = spliced_from(rows);
        let cells = rows.iter().flat_map(|row| {
            row.mutations.iter().map(|mutation| {
                fixed
                    + row.row.len()
                    + match mutation {
                        Mutation::SetCell { qualifier, value, .. } => {
                            let is_copied = value.len() < spliced_from;
                            qualifier.len() + if is_copied { value.len() } else { 0 }
                        }
                        Mutation::AddToCell { qualifier, .. } => qualifier.len() + 8,
                        Mutation::DeleteCells { qualifier, .. } => qualifier.len() + 16,
                        Mutation::DeleteFamily { .. } | Mutation::DeleteRow => 0,
                    }
            })
        });
        1 + cells.sum::<usize>()
    }

    /// How many sequence numbers it takes.
    pub fn mutations(&self) -> u32 {
        self.mutations
    }

    /// Gives the mutations the numbers from `first` on, and the cells without a timestamp
    /// `server_time`. Allocates nothing.
    pub fn sequence(&mut self, first: SeqNo, server_time: Timestamp) {
        assert!(first > SeqNo::ZERO, "nothing carries sequence number 0");
        self.first = first;
        let payload = Arc::make_mut(&mut self.payload);
        for place in &self.places {
            let suffix = place.key_end as usize - SUFFIX_BYTES;
            let seq = first.advance(u64::from(place.ordinal));
            let (age, rest) = payload[suffix..].split_at_mut(8);
            rest[..8].copy_from_slice(&(!seq.get()).to_be_bytes());
            if place.server_time {
                age.copy_from_slice(&(!(server_time.micros() as u64)).to_be_bytes());
                self.newest = self.newest.max(Some(server_time));
            }
        }
    }

    /// The first of its numbers; zero before it is sequenced.
    pub fn first_seq(&self) -> SeqNo {
        self.first
    }

    /// The last of its numbers: publishing it shows the whole batch.
    pub fn last_seq(&self) -> SeqNo {
        self.first.advance(u64::from(self.mutations).saturating_sub(1))
    }

    /// The newest timestamp of its cells, if it sets any.
    pub fn newest_timestamp(&self) -> Option<Timestamp> {
        self.newest
    }

    /// What the log keeps, in one piece.
    pub fn payload(&self) -> Cow<'_, [u8]> {
        if self.splices.is_empty() {
            return Cow::Borrowed(&self.payload);
        }
        let (payload, splices) = self.parts();
        Cow::Owned(Splice::parts(payload, splices).collect::<Vec<_>>().concat())
    }

    /// What the log keeps, and what belongs into it and was not copied.
    pub fn parts(&self) -> (&[u8], &[Splice]) {
        (&self.payload, &self.splices)
    }

    /// Bytes that the log keeps.
    pub fn payload_len(&self) -> usize {
        Splice::whole_len(&self.payload, &self.splices)
    }

    pub(crate) fn shared_payload(&self) -> &Arc<Vec<u8>> {
        &self.payload
    }

    /// Its cells and tombstones, in the order of the request.
    pub fn cells(&self) -> impl Iterator<Item = CellRef<'_>> {
        self.places.iter().map(|place| CellRef { key: self.key(place), value: self.value(place) })
    }

    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    pub(crate) fn key(&self, place: &Place) -> &[u8] {
        &self.payload[place.key as usize..place.key_end as usize]
    }

    pub(crate) fn value(&self, place: &Place) -> &[u8] {
        match place.splice {
            Some(splice) => &self.splices[usize::from(splice)].bytes,
            None => &self.payload[place.key_end as usize..place.end as usize],
        }
    }
}

/// From which size on values are spliced: those that most of `rows` consists of.
///
/// A spliced value keeps all of its request in memory, so it must be most of that.
fn spliced_from(rows: &[RowMutations]) -> usize {
    let all: usize = rows.iter().map(RowMutations::bytes).sum();
    SPLICED_BYTES_MIN.max(all / 2)
}

/// A batch on its way into being.
struct Encoder {
    payload: Vec<u8>,
    splices: Vec<Splice>,
    spliced_from: usize,
    places: Vec<Place>,
    newest: Option<Timestamp>,
}

impl Encoder {
    fn put(&mut self, key: &mut Vec<u8>, row: &[u8], mutation: &Mutation, ordinal: u32) {
        key.clear();
        let (stored_range, stored_operand);
        let mut server_time = false;
        let seq = SeqNo::ZERO;
        let value: &[u8] = match mutation {
            Mutation::SetCell { family, qualifier, timestamp, value }
                if value.len() >= self.spliced_from =>
            {
                self.newest = self.newest.max(*timestamp);
                let at = timestamp.unwrap_or(Timestamp::ZERO);
                key::put_cell(key, row, *family, qualifier, at, seq);
                return self.push_spliced(key, value, ordinal, timestamp.is_none());
            }
            Mutation::SetCell { family, qualifier, timestamp, value } => {
                server_time = timestamp.is_none();
                self.newest = self.newest.max(*timestamp);
                let at = timestamp.unwrap_or(Timestamp::ZERO);
                key::put_cell(key, row, *family, qualifier, at, seq);
                value
            }
            Mutation::AddToCell { family, qualifier, timestamp, operand } => {
                server_time = timestamp.is_none();
                self.newest = self.newest.max(*timestamp);
                let at = timestamp.unwrap_or(Timestamp::ZERO);
                key::put_operand(key, row, *family, qualifier, at, seq);
                stored_operand = operand.to_be_bytes();
                &stored_operand
            }
            Mutation::DeleteCells { family, qualifier, range } => {
                if range.end.is_some_and(|end| end <= range.start) {
                    return;
                }
                key::put_delete_cells(key, row, *family, qualifier, seq);
                stored_range = range.encode();
                &stored_range
            }
            Mutation::DeleteFamily { family } => {
                key::put_delete_family(key, row, *family, seq);
                &[]
            }
            Mutation::DeleteRow => {
                key::put_delete_row(key, row, seq);
                &[]
            }
        };
        self.push(key, value, ordinal, server_time);
    }

    fn push(&mut self, key: &[u8], value: &[u8], ordinal: u32, server_time: bool) {
        self.begin_entry(key, value.len(), ordinal, server_time);
        self.payload.extend_from_slice(value);
        self.end_entry();
    }

    fn push_spliced(&mut self, key: &[u8], value: &Bytes, ordinal: u32, server_time: bool) {
        self.begin_entry(key, value.len(), ordinal, server_time);
        let splice = u16::try_from(self.splices.len()).expect("two values at most are spliced");
        self.splices.push(Splice { at: self.payload.len(), bytes: value.clone() });
        if let Some(place) = self.places.last_mut() {
            place.splice = Some(splice);
        }
        self.end_entry();
    }

    fn begin_entry(&mut self, key: &[u8], value_len: usize, ordinal: u32, server_time: bool) {
        let start = self.payload.len();
        entry::put_header(&mut self.payload, key.len(), value_len);
        let key_start = self.payload.len();
        self.payload.extend_from_slice(key);
        let end = self.payload.len();
        assert!(end <= PAYLOAD_BYTES_MAX, "a batch past all limits: {end}");
        self.places.push(Place {
            start: start as u32,
            key: key_start as u32,
            key_end: end as u32,
            end: end as u32,
            splice: None,
            ordinal,
            server_time,
        });
    }

    fn end_entry(&mut self) {
        let end = self.payload.len();
        assert!(end <= PAYLOAD_BYTES_MAX, "a batch past all limits: {end}");
        if let Some(place) = self.places.last_mut() {
            place.end = end as u32;
        }
    }
}

/// The cells of a payload that has been checked, in the order of the request.
#[derive(Clone, Debug)]
pub struct Cells<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Cells<'a> {
    type Item = CellRef<'a>;

    fn next(&mut self) -> Option<CellRef<'a>> {
        let (cell, used) = entry::split(self.rest)?;
        self.rest = &self.rest[used..];
        Some(cell)
    }
}

/// Reads a batch's payload back from a log. Everything is checked before the first cell is given.
///
/// # Errors
/// [`Error::CorruptBatch`] when the bytes are not a sequenced batch.
pub fn decode_payload(payload: &[u8]) -> Result<Cells<'_>> {
    let mut cells = CheckedCells::new(payload)?;
    while cells.next()?.is_some() {}
    Ok(Cells { rest: &payload[1..] })
}

/// The cells of a payload, each checked when its turn comes.
pub(crate) struct CheckedCells<'a> {
    payload: &'a [u8],
    offset: usize,
    last: SeqNo,
}

/// A cell of a payload, its key taken apart.
pub(crate) struct CheckedCell<'a> {
    pub(crate) key: ParsedKey<'a>,
    /// Where its entry begins in the payload.
    pub(crate) offset: usize,
}

impl<'a> CheckedCells<'a> {
    /// # Errors
    /// [`Error::CorruptBatch`] for a version that is not known.
    pub(crate) fn new(payload: &'a [u8]) -> Result<CheckedCells<'a>> {
        match payload.first() {
            Some(&VERSION) => Ok(CheckedCells { payload, offset: 1, last: SeqNo::ZERO }),
            Some(_) => Err(Error::CorruptBatch { offset: 0, what: "unknown version" }),
            None => Err(Error::CorruptBatch { offset: 0, what: "no version" }),
        }
    }

    /// The next cell; `None` at the end.
    ///
    /// # Errors
    /// [`Error::CorruptBatch`] when the bytes are not a sequenced batch.
    pub(crate) fn next(&mut self) -> Result<Option<CheckedCell<'a>>> {
        let (offset, rest) = (self.offset, &self.payload[self.offset..]);
        if rest.is_empty() {
            return Ok(None);
        }
        let corrupt = |what: &'static str| Error::CorruptBatch { offset, what };
        let (cell, used) = entry::split(rest).ok_or_else(|| corrupt("entry is cut"))?;
        let key = check_cell(cell).map_err(corrupt)?;
        if key.seq <= self.last {
            return Err(corrupt("sequence numbers do not ascend"));
        }
        self.last = key.seq;
        self.offset += used;
        Ok(Some(CheckedCell { key, offset }))
    }
}

/// Checks a key, and that the value suits it.
fn check_cell(cell: CellRef<'_>) -> std::result::Result<ParsedKey<'_>, &'static str> {
    if cell.key.len() > CELL_KEY_BYTES_MAX {
        return Err("key is too long");
    }
    let parsed = ParsedKey::parse(cell.key).ok_or("not a cell key")?;
    if parsed.row_prefix().len() <= 2 {
        return Err("empty row");
    }
    let suits = match parsed.kind {
        Kind::Put => cell.value.len() <= VALUE_BYTES_MAX,
        Kind::Add => key::operand(cell.value).is_some(),
        Kind::DeleteCells => TimestampRange::decode(cell.value).is_some(),
        Kind::DeleteFamily | Kind::DeleteRow => cell.value.is_empty(),
    };
    suits.then_some(parsed).ok_or("value contradicts kind")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use types::FamilyId;

    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros).unwrap()
    }

    fn seq(raw: u64) -> SeqNo {
        SeqNo::from_raw(raw).unwrap()
    }

    fn set(qualifier: &'static str, timestamp: Option<i64>, value: &'static str) -> Mutation {
        Mutation::SetCell {
            family: FamilyId::new(1),
            qualifier: Bytes::from_static(qualifier.as_bytes()),
            timestamp: timestamp.map(at),
            value: Bytes::from_static(value.as_bytes()),
        }
    }

    fn add(qualifier: &'static str, timestamp: Option<i64>, operand: i64) -> Mutation {
        Mutation::AddToCell {
            family: FamilyId::new(2),
            qualifier: Bytes::from_static(qualifier.as_bytes()),
            timestamp: timestamp.map(at),
            operand,
        }
    }

    fn row(row: &'static str, mutations: Vec<Mutation>) -> RowMutations {
        RowMutations { row: Bytes::from_static(row.as_bytes()), mutations }
    }

    #[test]
    fn the_worked_example_has_exactly_these_bytes() {
        let mut batch =
            Batch::encode(&[row("a", vec![set("q", Some(1000), "v"), Mutation::DeleteRow])]);
        batch.sequence(seq(7), at(9));
        let hex: String = batch.payload().iter().map(|byte| format!("{byte:02x}")).collect();
        let spec = include_str!("../BATCH_FORMAT.md");
        let example = spec.rsplit("```").nth(1).unwrap();
        let expected: String =
            example.trim_start_matches("text").chars().filter(char::is_ascii_hexdigit).collect();
        assert_eq!(hex, expected);
    }

    #[test]
    fn mutations_take_consecutive_numbers_and_the_servers_time() {
        let empty = Mutation::DeleteCells {
            family: FamilyId::new(1),
            qualifier: Bytes::new(),
            range: TimestampRange { start: at(0), end: Some(at(0)) },
        };
        let mut batch = Batch::encode(&[
            row("b", vec![set("q", None, "1"), empty]),
            row("a", vec![set("q", Some(5), "2")]),
        ]);
        assert_eq!(batch.mutations(), 3);
        batch.sequence(seq(10), at(1000));
        assert_eq!((batch.first_seq(), batch.last_seq()), (seq(10), seq(12)));
        assert_eq!(batch.newest_timestamp(), Some(at(1000)));
        let cells: Vec<String> = decode_payload(&batch.payload())
            .unwrap()
            .map(|cell| format!("{:?}", ParsedKey::parse(cell.key).unwrap()))
            .collect();
        let direct: Vec<String> = batch
            .cells()
            .map(|cell| format!("{:?}", ParsedKey::parse(cell.key).unwrap()))
            .collect();
        assert_eq!(cells, ["b f1:q @1000us #10 PUT", "a f1:q @5us #12 PUT"]);
        assert_eq!(cells, direct);
    }

    #[test]
    fn damaged_payloads_are_refused_or_hold_valid_cells_and_never_panic() {
        let mut random = StdRng::seed_from_u64(3);
        let range = TimestampRange { start: at(3), end: None };
        let rows = [row(
            "row",
            vec![
                set("q", Some(3), "value"),
                add("q", Some(3), -7),
                Mutation::DeleteCells {
                    family: FamilyId::new(2),
                    qualifier: Bytes::from_static(b"q"),
                    range,
                },
                Mutation::DeleteFamily { family: FamilyId::new(2) },
                Mutation::DeleteRow,
            ],
        )];
        let mut batch = Batch::encode(&rows);
        batch.sequence(seq(1), at(1));
        assert_eq!(decode_payload(&batch.payload()).unwrap().count(), 5);
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut bytes = batch.payload().to_vec();
            for _ in 0..random.random_range(1..3) {
                let place = random.random_range(0..bytes.len());
                bytes[place] = random.random();
            }
            bytes.truncate(random.random_range(0..=bytes.len()));
            match decode_payload(&bytes) {
                Ok(cells) => {
                    cells.for_each(|cell| assert!(ParsedKey::parse(cell.key).is_some()));
                }
                Err(error) => {
                    assert_eq!(error.kind(), types::ErrorKind::Corrupt);
                    refused += 1;
                }
            }
        }
        assert!(refused > 10_000, "only {refused} refused");
    }

    #[test]
    fn an_operand_is_eight_bytes_and_may_get_the_servers_time() {
        let mut batch = Batch::encode(&[row("a", vec![add("q", None, -2)])]);
        batch.sequence(seq(3), at(1000));
        assert_eq!(batch.newest_timestamp(), Some(at(1000)));
        let payload = batch.payload();
        let cells: Vec<_> = decode_payload(&payload).unwrap().collect();
        let [cell] = cells[..] else { panic!("{} cells", cells.len()) };
        let parsed = ParsedKey::parse(cell.key).unwrap();
        assert_eq!(format!("{parsed:?}"), "a f2:q @1000us #3 ADD");
        assert_eq!(cell.value, (-2_i64).to_be_bytes());
        let mut short = vec![VERSION];
        entry::put_header(&mut short, cell.key.len(), 7);
        short.extend_from_slice(cell.key);
        short.extend_from_slice(&[0; 7]);
        assert!(decode_payload(&short).is_err());
    }

    #[test]
    fn numbers_that_do_not_ascend_are_refused() {
        let mut batch = Batch::encode(&[row("a", vec![set("q", Some(1), "v")])]);
        batch.sequence(seq(2), at(1));
        let mut twice = batch.payload().to_vec();
        twice.extend_from_slice(&batch.payload()[1..]);
        assert!(decode_payload(&twice).is_err());
    }
}
