//! Builds encoded `google.bigtable.v2.ReadRowsResponse` messages straight from cells.
//!
//! A message is a run of `CellChunk`s (field 1). The rules of the chunk stream:
//!
//! - The first chunk of a row carries `row_key`; so does the first chunk of a message that goes on
//!   with the row ([`RowKeys`]). Other chunks do not.
//! - `family_name` and `qualifier` stand where they change, and a new family always comes with a
//!   qualifier, though it may be empty.
//! - A value longer than [`CHUNK_VALUE_BYTES_MAX`] is divided: every chunk but the last says the
//!   total in `value_size`; only the first carries the column and the timestamp.
//! - The last chunk of a row says `commit_row`. Whether a chunk is the last is known only after it:
//!   so one chunk is held back, outside the message.
//!
//! Invariants
//! - A message is at most [`REPLY_BYTES_MAX`] long, whatever the rows are; rows may go on in the
//!   next message.
//! - At most one message and one chunk are in memory here.

use bytes::{Bytes, BytesMut};
use client::{ReadReply, RowKeys};
use types::limits::{QUALIFIER_BYTES_MAX, REPLY_BYTES_MAX, ROW_KEY_BYTES_MAX};
use types::{FamilyId, Timestamp};

/// Bytes of value in one chunk: the rest of a message is left to the key and the column.
pub(crate) const CHUNK_VALUE_BYTES_MAX: usize = 512 << 10;
/// Everything in a chunk besides key, qualifier and value: tags, lengths, family, numbers.
const CHUNK_FIXED_BYTES: usize = 256;
const CHUNK_BYTES_MAX: usize =
    CHUNK_VALUE_BYTES_MAX + ROW_KEY_BYTES_MAX + QUALIFIER_BYTES_MAX + CHUNK_FIXED_BYTES;
/// A message is handed on once it has this size, so that a reader of small rows is not kept
/// waiting for a whole mebibyte, nor its memory taken.
const REPLY_BYTES_ENOUGH: usize = 64 << 10;
/// What a message of small rows takes: it ends with the row that makes it large enough.
const REPLY_BYTES_USUAL: usize = REPLY_BYTES_ENOUGH + (4 << 10);
const _: () = assert!(REPLY_BYTES_ENOUGH + CHUNK_BYTES_MAX <= REPLY_BYTES_MAX);

// Tags: field number and wire type (0 varint, 2 length-delimited).
const CHUNKS: u8 = 1 << 3 | 2;
const ROW_KEY: u8 = 1 << 3 | 2;
const FAMILY_NAME: u8 = 2 << 3 | 2;
const QUALIFIER: u8 = 3 << 3 | 2;
const TIMESTAMP_MICROS: u8 = 4 << 3;
const VALUE: u8 = 6 << 3 | 2;
const VALUE_SIZE: u8 = 7 << 3;
const COMMIT_ROW: u8 = 9 << 3;
/// The only field of the wrapper messages `StringValue` and `BytesValue`.
const WRAPPED: u8 = 1 << 3 | 2;

/// The column and age of one cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellHead<'a> {
    pub(crate) family: FamilyId,
    pub(crate) family_name: &'a str,
    pub(crate) qualifier: &'a [u8],
    pub(crate) timestamp: Timestamp,
    /// Bytes of its value.
    pub(crate) value_len: u64,
}

/// Encodes rows into messages.
#[derive(Debug, Default)]
pub(crate) struct ReplyEncoder {
    message: BytesMut,
    /// The chunk that may still turn out to be its row's last; empty when there is none.
    held: Vec<u8>,
    row: Vec<u8>,
    row_keys: RowKeys,
    /// Must the next chunk carry the row key?
    is_row_new: bool,
    /// Does the held chunk carry the row key?
    held_names_row: bool,
    /// Does the held chunk go on with a divided value?
    held_goes_on: bool,
    /// The column of the cell before, of the same row; no family: there is none.
    column: (Option<FamilyId>, Vec<u8>),
    /// Bytes of the cell's value that are still to come.
    value_left: u64,
    value_len: u64,
    rows: u64,
    /// The last row that has ended.
    last_row: Vec<u8>,
}

impl ReplyEncoder {
    /// Encodes rows named in this way.
    pub(crate) fn new(row_keys: RowKeys) -> ReplyEncoder {
        ReplyEncoder { row_keys, ..ReplyEncoder::default() }
    }

    /// Begins a row. It must get a cell.
    pub(crate) fn begin_row(&mut self, row: &[u8]) {
        assert!(self.held.is_empty(), "the row before is finished");
        self.row.clear();
        self.row.extend_from_slice(row);
        self.is_row_new = true;
        self.column.0 = None;
    }

    /// Begins a cell; pieces that make up its value follow.
    pub(crate) fn begin_cell(&mut self, cell: CellHead<'_>) {
        assert!(self.value_left == 0, "the value before is whole");
        self.release_held();
        if self.is_row_new {
            put_bytes(&mut self.held, ROW_KEY, &self.row);
            self.is_row_new = false;
            self.held_names_row = true;
        }
        let same_family = self.column.0 == Some(cell.family);
        let same_column = same_family && self.column.1 == cell.qualifier;
        if !same_family {
            put_wrapped(&mut self.held, FAMILY_NAME, cell.family_name.as_bytes());
        }
        if !same_column {
            put_wrapped(&mut self.held, QUALIFIER, cell.qualifier);
            self.column.0 = Some(cell.family);
            self.column.1.clear();
            self.column.1.extend_from_slice(cell.qualifier);
        }
        if cell.timestamp != Timestamp::ZERO {
            self.held.push(TIMESTAMP_MICROS);
            put_varint(&mut self.held, cell.timestamp.micros() as u64);
        }
        self.value_len = cell.value_len;
        self.value_left = cell.value_len;
        if cell.value_len == 0 {
            // A chunk without a field would look like none held.
            put_bytes(&mut self.held, VALUE, &[]);
        }
    }

    /// Adds the next piece of the cell's value, at most [`CHUNK_VALUE_BYTES_MAX`] long.
    pub(crate) fn value_piece(&mut self, piece: &[u8]) {
        assert!(piece.len() <= CHUNK_VALUE_BYTES_MAX, "a piece fits a chunk");
        let is_first = self.value_left == self.value_len;
        let left = self.value_left.checked_sub(piece.len() as u64);
        self.value_left = left.expect("pieces make up no more than the value");
        if !is_first {
            self.release_held();
            self.held_goes_on = true;
        }
        put_bytes(&mut self.held, VALUE, piece);
        if self.value_left > 0 {
            self.held.push(VALUE_SIZE);
            put_varint(&mut self.held, self.value_len);
        }
    }

    /// Ends the row: it counts from here on.
    pub(crate) fn end_row(&mut self) {
        assert!(!self.held.is_empty(), "a row has a cell");
        assert!(self.value_left == 0, "the last value is whole");
        self.held.extend_from_slice(&[COMMIT_ROW, 1]);
        self.release_held();
        self.rows += 1;
        std::mem::swap(&mut self.last_row, &mut self.row);
    }

    /// Bytes that this holds, held chunk included.
    pub(crate) fn bytes(&self) -> usize {
        self.message.len() + self.held.len()
    }

    /// Must the message be taken before more is added? To be asked after every piece and row.
    pub(crate) fn is_full(&self) -> bool {
        self.message.len() >= REPLY_BYTES_ENOUGH
    }

    /// Takes the message; `None` when it holds nothing yet.
    pub(crate) fn take(&mut self) -> Option<ReadReply> {
        if self.message.is_empty() {
            return None;
        }
        // A buffer of its own for each: one that goes on behind the message that it gave away keeps
        // the memory of both, and grows with what it no longer holds.
        let next = if self.is_full() { REPLY_BYTES_USUAL } else { 0 };
        let encoded = std::mem::replace(&mut self.message, BytesMut::with_capacity(next)).freeze();
        assert!(encoded.len() <= REPLY_BYTES_MAX, "a message of {} bytes", encoded.len());
        let rows = std::mem::take(&mut self.rows);
        let last_row = (rows > 0).then(|| Bytes::copy_from_slice(&self.last_row));
        Some(ReadReply { encoded, rows, last_row })
    }

    /// Moves the held chunk into the message.
    fn release_held(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let may_name_row = !self.held_goes_on || self.row_keys == RowKeys::AtMessages;
        if self.message.is_empty() && !self.held_names_row && may_name_row {
            put_bytes(&mut self.held, ROW_KEY, &self.row);
        }
        self.held_names_row = false;
        self.held_goes_on = false;
        let mut header = [CHUNKS, 0, 0, 0, 0, 0];
        let mut end = 1;
        let mut len = self.held.len();
        while len >= 0x80 {
            header[end] = len as u8 | 0x80;
            end += 1;
            len >>= 7;
        }
        header[end] = len as u8;
        self.message.extend_from_slice(&header[..=end]);
        self.message.extend_from_slice(&self.held);
        self.held.clear();
    }
}

#[inline]
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint_len(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

#[inline]
fn put_bytes(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    out.push(tag);
    put_varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

/// A wrapper message; with empty content it has no field, but is present.
fn put_wrapped(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    out.push(tag);
    if content.is_empty() {
        out.push(0);
        return;
    }
    put_varint(out, (1 + varint_len(content.len()) + content.len()) as u64);
    put_bytes(out, WRAPPED, content);
}

#[cfg(test)]
mod tests;
