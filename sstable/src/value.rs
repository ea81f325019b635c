use crate::coding::{put_varint, u64_at, varint, varint_len};
use crate::error::Malformed;

/// Bytes of one piece of a value outside the blocks; the last piece is shorter. Frozen.
pub const PIECE_BYTES: usize = 1 << 20;
/// The largest value that a handle can describe.
const STORED_BYTES_MAX: u64 = 1 << 30;

/// A value at a cursor's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueRef<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// Where the value is: read it piece by piece with [`crate::Table::read_value_piece`].
    Stored(&'a StoredValue),
}

impl ValueRef<'_> {
    /// Bytes of the value.
    pub fn len(&self) -> u64 {
        match self {
            ValueRef::Inline(bytes) => bytes.len() as u64,
            ValueRef::Stored(stored) => stored.len,
        }
    }

    /// Is it the empty value?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The handle of a value that lies outside the blocks of its table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredValue {
    len: u64,
    offset: u64,
    checksums: Vec<u64>,
}

impl StoredValue {
    pub(crate) fn new(len: u64, offset: u64, checksums: Vec<u64>) -> StoredValue {
        assert!((1..=STORED_BYTES_MAX).contains(&len), "a stored value of {len} bytes");
        assert!(checksums.len() as u64 == pieces_of(len), "one checksum for each piece");
        StoredValue { len, offset, checksums }
    }

    /// Bytes of the value; at least one.
    #[expect(clippy::len_without_is_empty, reason = "a stored value is never empty")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Where the value begins in its file.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The first offset past the value.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// How many pieces it has: at least one, of at most [`PIECE_BYTES`] each.
    pub fn pieces(&self) -> usize {
        self.checksums.len()
    }

    /// XXH3-64 of each piece.
    pub(crate) fn checksums(&self) -> &[u64] {
        &self.checksums
    }

    /// Offset in the file and length of piece `piece`, which must exist.
    pub(crate) fn piece(&self, piece: usize) -> (u64, usize) {
        assert!(piece < self.pieces(), "piece {piece} of {}", self.pieces());
        let start = piece as u64 * PIECE_BYTES as u64;
        let len = (self.len - start).min(PIECE_BYTES as u64);
        (self.offset.saturating_add(start), len as usize)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len);
        put_varint(out, self.offset);
        for checksum in &self.checksums {
            out.extend_from_slice(&checksum.to_le_bytes());
        }
    }

    /// Bytes of the handle of a value of `len` bytes at `offset`.
    pub(crate) fn encoded_bytes(len: u64, offset: u64) -> usize {
        varint_len(len) + varint_len(offset) + 8 * pieces_of(len) as usize
    }

    /// Reads a handle into `self`, reusing its memory. Values end at `data_end` at the latest.
    pub(crate) fn decode_from(
        &mut self,
        handle: &[u8],
        data_end: u64,
    ) -> std::result::Result<(), Malformed> {
        let wrong = Malformed("the handle of a stored value is damaged");
        let mut at = 0;
        self.len = varint(handle, &mut at).ok_or(wrong)?;
        self.offset = varint(handle, &mut at).ok_or(wrong)?;
        let ends_inside = self.offset.checked_add(self.len).is_some_and(|end| end <= data_end);
        let pieces = pieces_of(self.len);
        let rest = handle.len() - at;
        if !(1..=STORED_BYTES_MAX).contains(&self.len) || !ends_inside || rest as u64 != pieces * 8
        {
            return Err(wrong);
        }
        self.checksums.clear();
        for start in (at..handle.len()).step_by(8) {
            self.checksums.push(u64_at(handle, start).ok_or(wrong)?);
        }
        Ok(())
    }
}

fn pieces_of(len: u64) -> u64 {
    len.div_ceil(PIECE_BYTES as u64)
}
