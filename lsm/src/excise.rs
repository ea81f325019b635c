//! Excise: cuts rows out of a range for good, without reading or rewriting them.
//!
//! 1. The owner lets no batch in any more, takes one sequence number S, logs the rows under it
//!    ([`encode_excise`]), and ends the memtable at S: [`Store::excise`], under its lock.
//! 2. Whoever flushes that memtable leaves out its cells of those rows, all of which are older than
//!    S, and commits one manifest that cuts the rows out of every reference and has `flushed` at S.
//!    Before that the owner lets no batch in ([`Store::has_pending_excise`]): a later write must
//!    not be seen beside cells that are about to go.
//! 3. After a crash in between the log has the record: [`crate::Ingest::add_excise`].
//!
//! Views pinned before keep seeing the rows: the files stay as they are.

use std::sync::Arc;

use bytes::Bytes;
use types::limits::ROW_KEY_BYTES_MAX;
use types::{RowRange, SeqNo};

use crate::entry::{put_varint, varint};
use crate::error::{Error, Result};
use crate::events::Reason;
use crate::store::{LogPosition, Store};

/// The version of the stored form; frozen.
const VERSION: u8 = 1;

impl Store {
    /// Ends the active memtable with the cut of `rows` at `seq`, the next number. To be called
    /// under the owner's lock; `log_floor` is a position at or before the record's.
    ///
    /// # Errors
    /// The store is poisoned, fenced or closed.
    pub fn excise(&self, rows: &RowRange, seq: SeqNo, log_floor: LogPosition) -> Result<()> {
        self.check()?;
        let mut writing = self.writing();
        assert!(seq > writing.placed, "an excise follows every batch");
        writing.placed = seq;
        let active = Arc::clone(&self.state().active);
        active.floor.get_or_init(|| log_floor);
        let cut = active.excised.set(rows.clone());
        assert!(cut.is_ok(), "a memtable ends with one cut");
        self.freeze_active(&mut writing, Reason::Excise);
        Ok(())
    }

    /// Do rows wait for the flush that cuts them out?
    pub fn has_pending_excise(&self) -> bool {
        self.state().frozen.iter().any(|layer| layer.excised.get().is_some())
    }
}

/// The payload of an excise as the log keeps it.
pub fn encode_excise(rows: &RowRange) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_varint(&mut out, rows.start.len());
    out.extend_from_slice(&rows.start);
    out.push(u8::from(rows.end.is_some()));
    if let Some(end) = &rows.end {
        put_varint(&mut out, end.len());
        out.extend_from_slice(end);
    }
    out
}

/// Reads what [`encode_excise`] wrote.
///
/// # Errors
/// [`Error::CorruptBatch`].
pub fn decode_excise(payload: &[u8]) -> Result<RowRange> {
    let corrupt = |what| Error::CorruptBatch { offset: 0, what };
    let Some((&VERSION, rest)) = payload.split_first() else {
        return Err(corrupt("unknown version of an excise"));
    };
    let (start, rest) = row(rest).ok_or_else(|| corrupt("an excise's start is damaged"))?;
    let (end, rest) = match rest.split_first() {
        Some((0, rest)) => (None, rest),
        Some((1, rest)) => {
            let (end, rest) = row(rest).ok_or_else(|| corrupt("an excise's end is damaged"))?;
            (Some(end), rest)
        }
        _ => return Err(corrupt("an excise's flag is neither 0 nor 1")),
    };
    let rows = RowRange { start, end };
    if !rest.is_empty() || rows.is_empty() {
        return Err(corrupt("an excise is empty or has bytes left over"));
    }
    Ok(rows)
}

/// A row bound: of a prefix without end it may be one byte longer than a row.
fn row(stored: &[u8]) -> Option<(Bytes, &[u8])> {
    let (len, used) = varint(stored)?;
    let (row, rest) = stored[used..].split_at_checked(len)?;
    (len <= ROW_KEY_BYTES_MAX + 1).then(|| (Bytes::copy_from_slice(row), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(start: &'static str, end: Option<&'static str>) -> RowRange {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        RowRange { start: bytes(start), end: end.map(bytes) }
    }

    #[test]
    fn an_excise_has_exactly_these_bytes_and_reads_back() {
        let prefix = rows("ab", Some("ac"));
        assert_eq!(encode_excise(&prefix), b"\x01\x02ab\x01\x02ac");
        assert_eq!(encode_excise(&RowRange::all()), b"\x01\x00\x00");
        for rows in [prefix, RowRange::all(), rows("x", None), rows("", Some("b"))] {
            assert_eq!(decode_excise(&encode_excise(&rows)).unwrap(), rows);
        }
    }

    #[test]
    fn damaged_excises_are_refused() {
        let whole = encode_excise(&rows("ab", Some("ac")));
        for len in 0..whole.len() {
            decode_excise(&whole[..len]).unwrap_err();
        }
        let more = [whole.as_slice(), b"\0"].concat();
        let backwards = encode_excise(&rows("b", Some("a")));
        let newer = [&[2], &whole[1..]].concat();
        for damaged in [more, backwards, newer, b"\x01\xff\xff\xff\xff\x0f".to_vec()] {
            decode_excise(&damaged).unwrap_err();
        }
    }
}
