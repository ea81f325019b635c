#![doc = include_str!("../KEY_FORMAT.md")]

use std::fmt;

use crate::{FamilyId, SeqNo, Timestamp};

/// Bytes after the column prefix of every key: age, sequence number, kind.
pub const SUFFIX_BYTES: usize = 8 + 8 + 1;
/// Fixed bytes of a key besides its escaped row and qualifier.
pub const FIXED_BYTES: usize = 4 + 1 + SUFFIX_BYTES;

const FAMILY_MARK: u8 = 1;
const COLUMN_MARK: u8 = 2;
const ESCAPE_END: [u8; 2] = [0, 0];
/// The timestamp that tombstones carry in their key, so that they sort first in their scope.
const TOMBSTONE_TIMESTAMP: u64 = u64::MAX;

/// What a key stands for. The numbers are stored: frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A cell.
    Put = 1,
    /// Hides the cells of one column in a time range.
    DeleteCells = 2,
    /// Hides one family of a row.
    DeleteFamily = 3,
    /// Hides a whole row.
    DeleteRow = 4,
    /// A number that takes part in a cell: all those of one column and timestamp are one cell.
    Add = 5,
}

impl Kind {
    /// Reads a stored number.
    pub fn from_raw(raw: u8) -> Option<Kind> {
        match raw {
            1 => Some(Kind::Put),
            2 => Some(Kind::DeleteCells),
            3 => Some(Kind::DeleteFamily),
            4 => Some(Kind::DeleteRow),
            5 => Some(Kind::Add),
            _ => None,
        }
    }

    /// Does it hide cells rather than be one?
    pub fn is_tombstone(self) -> bool {
        match self {
            Kind::Put | Kind::Add => false,
            Kind::DeleteCells | Kind::DeleteFamily | Kind::DeleteRow => true,
        }
    }
}

/// An encoded key that owns its bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellKey(Box<[u8]>);

impl CellKey {
    /// The key of a cell.
    pub fn put(
        row: &[u8],
        family: FamilyId,
        qualifier: &[u8],
        at: Timestamp,
        seq: SeqNo,
    ) -> CellKey {
        let mut out = Vec::with_capacity(row.len() + qualifier.len() + FIXED_BYTES + 8);
        put_cell(&mut out, row, family, qualifier, at, seq);
        CellKey(out.into())
    }

    /// The key of an operand.
    pub fn add(
        row: &[u8],
        family: FamilyId,
        qualifier: &[u8],
        at: Timestamp,
        seq: SeqNo,
    ) -> CellKey {
        let mut out = Vec::with_capacity(row.len() + qualifier.len() + FIXED_BYTES + 8);
        put_operand(&mut out, row, family, qualifier, at, seq);
        CellKey(out.into())
    }

    /// Wraps bytes known to be a valid key.
    pub fn from_valid(bytes: &[u8]) -> CellKey {
        debug_assert!(ParsedKey::parse(bytes).is_some(), "not a cell key: {bytes:02x?}");
        CellKey(bytes.into())
    }

    /// The encoded bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for CellKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ParsedKey::parse(&self.0) {
            Some(parsed) => write!(f, "{parsed:?}"),
            None => write!(f, "CellKey({:02x?})", self.0),
        }
    }
}

/// One key and its value, borrowed: a cell or a tombstone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CellRef<'a> {
    /// The encoded key.
    pub key: &'a [u8],
    /// The value: a cell's content, or a tombstone's time range.
    pub value: &'a [u8],
}

/// Appends the key of a cell to `out`.
pub fn put_cell(
    out: &mut Vec<u8>,
    row: &[u8],
    family: FamilyId,
    qualifier: &[u8],
    at: Timestamp,
    seq: SeqNo,
) {
    put_column_prefix(out, row, family, qualifier);
    put_suffix(out, at.micros() as u64, seq, Kind::Put);
}

/// Appends the key of an operand, a number that takes part in a cell, to `out`.
pub fn put_operand(
    out: &mut Vec<u8>,
    row: &[u8],
    family: FamilyId,
    qualifier: &[u8],
    at: Timestamp,
    seq: SeqNo,
) {
    put_column_prefix(out, row, family, qualifier);
    put_suffix(out, at.micros() as u64, seq, Kind::Add);
}

/// An operand's value: eight bytes, big-endian.
pub fn operand(value: &[u8]) -> Option<i64> {
    value.try_into().ok().map(i64::from_be_bytes)
}

/// Appends the key of a tombstone for cells of one column to `out`.
pub fn put_delete_cells(
    out: &mut Vec<u8>,
    row: &[u8],
    family: FamilyId,
    qualifier: &[u8],
    seq: SeqNo,
) {
    put_column_prefix(out, row, family, qualifier);
    put_suffix(out, TOMBSTONE_TIMESTAMP, seq, Kind::DeleteCells);
}

/// Appends the key of a family's tombstone to `out`.
pub fn put_delete_family(out: &mut Vec<u8>, row: &[u8], family: FamilyId, seq: SeqNo) {
    assert!(family != FamilyId::ROW, "family 0 is the row itself");
    put_escaped(out, row);
    out.extend_from_slice(&family.get().to_be_bytes());
    out.push(FAMILY_MARK);
    put_suffix(out, TOMBSTONE_TIMESTAMP, seq, Kind::DeleteFamily);
}

/// Appends the key of a row's tombstone to `out`.
pub fn put_delete_row(out: &mut Vec<u8>, row: &[u8], seq: SeqNo) {
    put_escaped(out, row);
    out.extend_from_slice(&FamilyId::ROW.get().to_be_bytes());
    out.push(FAMILY_MARK);
    put_suffix(out, TOMBSTONE_TIMESTAMP, seq, Kind::DeleteRow);
}

/// Appends the prefix that all keys of one row share: seek here to find the row's first key.
pub fn put_row_prefix(out: &mut Vec<u8>, row: &[u8]) {
    put_escaped(out, row);
}

/// Appends the first possible key position of rows at or after `row`, which need not be a whole
/// row key (an empty one is the start of everything): a lower bound to seek to.
pub fn put_row_start(out: &mut Vec<u8>, row: &[u8]) {
    // Without the end mark, so that it sorts before the row itself and after all smaller rows.
    out.reserve(row.len() + ESCAPE_END.len());
    let mut rest = row;
    while let Some(zero) = memchr::memchr(0, rest) {
        out.extend_from_slice(&rest[..=zero]);
        out.push(0xff);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
}

/// Appends the prefix that all keys of one column share.
pub fn put_column_prefix(out: &mut Vec<u8>, row: &[u8], family: FamilyId, qualifier: &[u8]) {
    assert!(family != FamilyId::ROW, "family 0 is the row itself");
    put_escaped(out, row);
    out.extend_from_slice(&family.get().to_be_bytes());
    out.push(COLUMN_MARK);
    put_escaped(out, qualifier);
}

fn put_suffix(out: &mut Vec<u8>, timestamp: u64, seq: SeqNo, kind: Kind) {
    out.extend_from_slice(&(!timestamp).to_be_bytes());
    out.extend_from_slice(&(!seq.get()).to_be_bytes());
    out.push(kind as u8);
}

fn put_escaped(out: &mut Vec<u8>, plain: &[u8]) {
    put_row_start(out, plain);
    out.extend_from_slice(&ESCAPE_END);
}

/// Length of the escaped field, end mark included, that `bytes` begin with.
fn escaped_len(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr(0, bytes.get(at..)?)?;
        match bytes.get(at + 1)? {
            0x00 => return Some(at + 2),
            0xff => at += 2,
            _ => return None,
        }
    }
}

/// Appends the plain bytes of an escaped field (given with its end mark) to `out`.
fn put_unescaped(out: &mut Vec<u8>, escaped: &[u8]) {
    let mut rest = &escaped[..escaped.len() - ESCAPE_END.len()];
    while let Some(zero) = memchr::memchr(0, rest) {
        out.extend_from_slice(&rest[..=zero]);
        rest = &rest[zero + 2..];
    }
    out.extend_from_slice(rest);
}

/// The row part of a valid key, escaped and with its end mark: equal for the keys of one row only.
///
/// `None` when `key` does not begin with an escaped row.
pub fn row_prefix(key: &[u8]) -> Option<&[u8]> {
    escaped_len(key).map(|len| &key[..len])
}

/// The plain row bytes of an escaped row part (see [`row_prefix`]).
pub fn unescape_row(row_prefix: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(row_prefix.len());
    put_unescaped(&mut out, row_prefix);
    out
}

/// Appends the plain row bytes of an escaped row part to `out`.
pub fn unescape_row_into(out: &mut Vec<u8>, row_prefix: &[u8]) {
    put_unescaped(out, row_prefix);
}

/// The sequence number of a valid key. `None` when the bytes are too short or carry a number that
/// is never assigned.
pub fn seq_of(key: &[u8]) -> Option<SeqNo> {
    let start = key.len().checked_sub(SUFFIX_BYTES - 8)?;
    let raw: [u8; 8] = key.get(start..start + 8)?.try_into().ok()?;
    SeqNo::from_raw(!u64::from_be_bytes(raw))
}

/// The kind of a valid key.
pub fn kind_of(key: &[u8]) -> Option<Kind> {
    key.last().copied().and_then(Kind::from_raw)
}

/// The timestamp of a valid key. `None` for a tombstone, which has a range instead.
pub fn timestamp_of(key: &[u8]) -> Option<Timestamp> {
    if kind_of(key)?.is_tombstone() {
        return None;
    }
    let start = key.len().checked_sub(SUFFIX_BYTES)?;
    let raw: [u8; 8] = key.get(start..start + 8)?.try_into().ok()?;
    Timestamp::from_micros(i64::try_from(!u64::from_be_bytes(raw)).ok()?)
}

/// A key taken apart; borrows the encoded bytes and copies nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ParsedKey<'a> {
    key: &'a [u8],
    row_len: usize,
    /// The family; [`FamilyId::ROW`] for a row's tombstone.
    pub family: FamilyId,
    /// The cell's timestamp. For tombstones [`Timestamp::MAX`]; their time range is in the value.
    pub timestamp: Timestamp,
    /// The mutation's place in the range's commit order.
    pub seq: SeqNo,
    /// Cell or which tombstone.
    pub kind: Kind,
}

impl<'a> ParsedKey<'a> {
    /// Takes a key apart. `None` when the bytes are not a key: then they are damaged.
    pub fn parse(key: &'a [u8]) -> Option<ParsedKey<'a>> {
        let row_len = escaped_len(key)?;
        let rest = key.get(row_len..)?;
        let family = FamilyId::new(u32::from_be_bytes(rest.get(..4)?.try_into().ok()?));
        let mark = *rest.get(4)?;
        let suffix_start = key.len().checked_sub(SUFFIX_BYTES)?;
        let qualifier = key.get(row_len + 5..suffix_start)?;
        let seq = seq_of(key)?;
        let kind = kind_of(key)?;
        let valid_mark = match mark {
            FAMILY_MARK => qualifier.is_empty(),
            COLUMN_MARK => escaped_len(qualifier)? == qualifier.len(),
            _ => false,
        };
        let valid_kind = match kind {
            Kind::Put | Kind::Add | Kind::DeleteCells => {
                mark == COLUMN_MARK && family != FamilyId::ROW
            }
            Kind::DeleteFamily => mark == FAMILY_MARK && family != FamilyId::ROW,
            Kind::DeleteRow => mark == FAMILY_MARK && family == FamilyId::ROW,
        };
        let raw = !u64::from_be_bytes(key.get(suffix_start..suffix_start + 8)?.try_into().ok()?);
        let timestamp = if kind.is_tombstone() {
            (raw == TOMBSTONE_TIMESTAMP).then_some(Timestamp::MAX)?
        } else {
            Timestamp::from_micros(i64::try_from(raw).ok()?)?
        };
        (valid_mark && valid_kind).then_some(ParsedKey {
            key,
            row_len,
            family,
            timestamp,
            seq,
            kind,
        })
    }

    /// The encoded key.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.key
    }

    /// The escaped row with its end mark: what all keys of the row begin with.
    pub fn row_prefix(&self) -> &'a [u8] {
        &self.key[..self.row_len]
    }

    /// Row, family, mark and qualifier: what all keys of the column begin with.
    pub fn column_prefix(&self) -> &'a [u8] {
        &self.key[..self.key.len() - SUFFIX_BYTES]
    }

    /// Row and family: what all keys of the family in this row begin with.
    pub fn family_prefix(&self) -> &'a [u8] {
        &self.key[..self.row_len + 4]
    }

    /// The row, unescaped.
    pub fn row(&self) -> Vec<u8> {
        unescape_row(self.row_prefix())
    }

    /// Appends the plain qualifier to `out`; nothing for the tombstones of families and rows.
    pub fn qualifier_into(&self, out: &mut Vec<u8>) {
        let escaped = &self.column_prefix()[self.row_len + 5..];
        if !escaped.is_empty() {
            put_unescaped(out, escaped);
        }
    }

    /// The qualifier, unescaped.
    pub fn qualifier(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.qualifier_into(&mut out);
        out
    }
}

impl fmt::Debug for ParsedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.row().escape_ascii().to_string();
        let qualifier = self.qualifier().escape_ascii().to_string();
        match self.kind {
            Kind::Put => {
                write!(f, "{row} {}:{qualifier} @{} {} PUT", self.family, self.timestamp, self.seq)
            }
            Kind::Add => {
                write!(f, "{row} {}:{qualifier} @{} {} ADD", self.family, self.timestamp, self.seq)
            }
            Kind::DeleteCells => {
                write!(f, "{row} {}:{qualifier} {} DELETE-CELLS", self.family, self.seq)
            }
            Kind::DeleteFamily => write!(f, "{row} {} {} DELETE-FAMILY", self.family, self.seq),
            Kind::DeleteRow => write!(f, "{row} {} DELETE-ROW", self.seq),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros).unwrap()
    }

    fn seq(raw: u64) -> SeqNo {
        SeqNo::from_raw(raw).unwrap()
    }

    #[test]
    fn the_worked_example_has_exactly_these_bytes() {
        let key = CellKey::put(b"a", FamilyId::new(1), b"q", at(1000), seq(7));
        let hex: String = key.as_bytes().iter().map(|b| format!("{b:02x}")).collect();
        let expected = "610000 00000001 02 710000 fffffffffffffc17 fffffffffffffff8 01";
        assert_eq!(hex, expected.replace(' ', ""));
    }

    #[test]
    fn an_operand_differs_from_a_put_in_its_kind_only() {
        let place = (b"a", FamilyId::new(1), b"q", at(1000), seq(7));
        let put = CellKey::put(place.0, place.1, place.2, place.3, place.4);
        let add = CellKey::add(place.0, place.1, place.2, place.3, place.4);
        let (put, add) = (put.as_bytes(), add.as_bytes());
        assert_eq!(put[..put.len() - 1], add[..add.len() - 1]);
        assert_eq!((put.last(), add.last()), (Some(&1), Some(&5)));
        let parsed = ParsedKey::parse(add).unwrap();
        assert_eq!((parsed.kind, parsed.timestamp), (Kind::Add, at(1000)));
        assert_eq!(format!("{parsed:?}"), "a f1:q @1000us #7 ADD");
        let mut unknown = add.to_vec();
        *unknown.last_mut().unwrap() = 6;
        assert_eq!(ParsedKey::parse(&unknown), None);
        assert_eq!(operand(&(-2_i64).to_be_bytes()), Some(-2));
        assert_eq!(operand(&[0; 7]), None);
    }

    #[test]
    fn tombstones_sort_before_what_they_hide() {
        let family = FamilyId::new(1);
        let mut keys: Vec<Vec<u8>> = vec![Vec::new(); 5];
        put_delete_row(&mut keys[0], b"r", seq(1));
        put_delete_family(&mut keys[1], b"r", family, seq(1));
        put_delete_cells(&mut keys[2], b"r", family, b"", seq(1));
        put_cell(&mut keys[3], b"r", family, b"", Timestamp::MAX, seq(9));
        put_cell(&mut keys[4], b"r", family, b"", Timestamp::MAX, seq(8));
        assert!(keys.is_sorted(), "{keys:02x?}");
    }

    #[test]
    fn byte_order_is_cell_order() {
        let mut random = StdRng::seed_from_u64(7);
        let text = |random: &mut StdRng| -> Vec<u8> {
            let len = random.random_range(0..4);
            (0..len).map(|_| [0, 1, 0xfe, 0xff][random.random_range(0..4)]).collect()
        };
        let cell = |random: &mut StdRng| {
            let family = random.random_range(1..3);
            let time = random.random_range(0..3);
            (text(random), family, text(random), std::cmp::Reverse(time), random.random_range(0..3))
        };
        for _ in 0..50_000 {
            let (a, b) = (cell(&mut random), cell(&mut random));
            let key = |c: &(Vec<u8>, u32, Vec<u8>, std::cmp::Reverse<i64>, u64)| {
                CellKey::put(&c.0, FamilyId::new(c.1), &c.2, at(c.3.0), seq(c.4))
            };
            let newest_first = |c: &(Vec<u8>, u32, Vec<u8>, std::cmp::Reverse<i64>, u64)| {
                (c.0.clone(), c.1, c.2.clone(), c.3, std::cmp::Reverse(c.4))
            };
            assert_eq!(key(&a).cmp(&key(&b)), newest_first(&a).cmp(&newest_first(&b)));
        }
    }

    #[test]
    fn parsing_gives_back_what_was_encoded_and_rejects_damage_without_panic() {
        let mut random = StdRng::seed_from_u64(8);
        for _ in 0..2_000 {
            let row: Vec<u8> = (0..random.random_range(1..9)).map(|_| random.random()).collect();
            let qualifier: Vec<u8> =
                (0..random.random_range(0..9)).map(|_| random.random_range(0..3)).collect();
            let key = CellKey::put(&row, FamilyId::new(3), &qualifier, at(5), seq(6));
            let parsed = ParsedKey::parse(key.as_bytes()).unwrap();
            assert_eq!((parsed.row(), parsed.qualifier()), (row, qualifier));
            assert_eq!((parsed.family, parsed.timestamp), (FamilyId::new(3), at(5)));
            assert_eq!((parsed.seq, parsed.kind), (seq(6), Kind::Put));
            let mut damaged = key.as_bytes().to_vec();
            damaged.truncate(random.random_range(0..damaged.len()));
            let _ = ParsedKey::parse(&damaged);
            let mut flipped = key.as_bytes().to_vec();
            let place = random.random_range(0..flipped.len());
            flipped[place] ^= 1 << random.random_range(0..8);
            if let Some(parsed) = ParsedKey::parse(&flipped) {
                let _ = (parsed.row(), parsed.qualifier(), format!("{parsed:?}"));
            }
        }
    }

    #[test]
    fn a_row_start_sorts_between_smaller_rows_and_its_own() {
        for (smaller, row) in [(&b"a"[..], &b"a\0"[..]), (b"a\0", b"b"), (b"a\xff", b"b")] {
            let mut start = Vec::new();
            put_row_start(&mut start, row);
            let low = CellKey::put(smaller, FamilyId::new(u32::MAX), b"\xff", at(0), seq(0));
            let own = CellKey::put(row, FamilyId::new(1), b"", Timestamp::MAX, SeqNo::MAX);
            assert!(low.as_bytes() < &start[..] && start.as_slice() < own.as_bytes());
        }
    }
}
