//! Puts rows together from the chunks that a read answers with.
//!
//! ```text
//!              key, family, qualifier                  value_size > 0
//!   NewRow ───────────────────────────► InRow ◄──────────────────────► InCell
//!      ▲                                  │          value_size = 0      │
//!      └──── commit_row, or reset_row ────┴──────────────────────────────┘
//! ```
//!
//! 1. The first chunk of a row carries its key, a family and a qualifier; later chunks carry what
//!    changes. A new family comes with a qualifier.
//! 2. A chunk with `value_size` is a piece of a cell that goes on in the next chunk, which then
//!    carries nothing but value; a piece with `value_size` 0 is the last.
//! 3. `commit_row` ends the row, `reset_row` forgets what came of it. The latter stands alone.
//!
//! Invariants
//! - Rows come out in the order asked for, each once, whole.
//! - Whatever the chunks hold, the answer is a row or an error: the server is not trusted. Nothing
//!   is allocated for what a chunk announces, only for what has arrived, and a row has a limit.

#[cfg(test)]
mod tests;

use bytes::{Bytes, BytesMut};
use proto::google::bigtable::v2::ReadRowsResponse;
use proto::google::bigtable::v2::read_rows_response::CellChunk;
use proto::google::bigtable::v2::read_rows_response::cell_chunk::RowStatus;
use types::{ErrorKind, RowOrder, Timestamp};

use super::row::{Cell, Row, RowFamily};
use crate::{Error, Result};

/// The most that one row may have, in bytes of keys, values and the structures around them.
pub(crate) const ROW_BYTES_MAX: usize = 1 << 30;
/// What a cell takes besides its qualifier and value, about.
const CELL_BYTES: usize = size_of::<Cell>();

/// Rows being put together: the state between two chunks.
pub struct Merger {
    /// The last row that was committed or scanned over: rows come after it.
    last: Option<Bytes>,
    order: RowOrder,
    row: Option<Partial>,
    bytes_max: usize,
}

/// A row that is not committed yet.
struct Partial {
    row: Row,
    qualifier: Bytes,
    bytes: usize,
    /// The cell whose value goes on in the next chunk.
    open: Option<OpenCell>,
}

struct OpenCell {
    timestamp: Timestamp,
    labels: Vec<String>,
    value: BytesMut,
}

impl Default for Merger {
    fn default() -> Merger {
        Merger::new()
    }
}

impl Merger {
    /// For one answer, from its beginning.
    pub fn new() -> Merger {
        Merger::with_limit(ROW_BYTES_MAX)
    }

    fn with_limit(bytes_max: usize) -> Merger {
        Merger { last: None, order: RowOrder::Ascending, row: None, bytes_max }
    }

    /// The same for an answer with the largest row first.
    #[must_use]
    pub(crate) fn descending(self) -> Merger {
        Merger { order: RowOrder::Descending, ..self }
    }

    /// The last row that was committed, or that the server says it scanned past: where a broken
    /// read resumes after.
    pub(crate) fn last(&self) -> Option<&Bytes> {
        self.last.as_ref()
    }

    /// Forgets a row that is not committed yet: the read broke and will resume.
    pub(crate) fn restart(&mut self) {
        self.row = None;
    }

    /// Takes one reply; `out` gets the rows that end in it.
    ///
    /// # Errors
    /// `Io` when the chunks break the protocol; `FailedPrecondition` when a row is too large.
    pub fn push(&mut self, reply: ReadRowsResponse, out: &mut impl Extend<Row>) -> Result<()> {
        for chunk in reply.chunks {
            out.extend(self.chunk(chunk)?);
        }
        if reply.last_scanned_row_key.is_empty() {
            return Ok(());
        }
        if self.row.is_some() {
            return Err(violation("a scanned row inside a row"));
        }
        self.check_order(&reply.last_scanned_row_key)?;
        self.last = Some(reply.last_scanned_row_key);
        Ok(())
    }

    /// The replies are at their end: no row may be left half.
    ///
    /// # Errors
    /// `Io` when one is.
    pub fn finish(&self) -> Result<()> {
        match self.row {
            Some(_) => Err(violation("the answer ends inside a row")),
            None => Ok(()),
        }
    }

    fn chunk(&mut self, chunk: CellChunk) -> Result<Option<Row>> {
        if let Some(RowStatus::ResetRow(true)) = chunk.row_status {
            return self.reset(&chunk).map(|()| None);
        }
        let commits = matches!(chunk.row_status, Some(RowStatus::CommitRow(true)));
        if commits && chunk.value_size != 0 {
            return Err(violation("a row committed inside a cell"));
        }
        let mut partial = match self.row.take() {
            None => self.begin(&chunk)?,
            Some(partial) => partial,
        };
        partial.add(chunk, self.bytes_max)?;
        if !commits {
            self.row = Some(partial);
            return Ok(None);
        }
        self.last = Some(partial.row.key.clone());
        Ok(Some(partial.row))
    }

    fn reset(&mut self, chunk: &CellChunk) -> Result<()> {
        let alone =
            CellChunk { row_status: Some(RowStatus::ResetRow(true)), ..CellChunk::default() };
        if *chunk != alone {
            return Err(violation("a reset that carries more"));
        }
        match self.row.take() {
            Some(_) => Ok(()),
            None => Err(violation("a reset outside a row")),
        }
    }

    fn begin(&self, chunk: &CellChunk) -> Result<Partial> {
        if chunk.row_key.is_empty() {
            return Err(violation("a row without a key"));
        }
        self.check_order(&chunk.row_key)?;
        if chunk.family_name.is_none() {
            return Err(violation("a row's first cell without a family"));
        }
        if chunk.qualifier.is_none() {
            return Err(violation("a row's first cell without a qualifier"));
        }
        Ok(Partial {
            bytes: chunk.row_key.len(),
            row: Row { key: chunk.row_key.clone(), families: Vec::new() },
            qualifier: Bytes::new(),
            open: None,
        })
    }

    fn check_order(&self, key: &Bytes) -> Result<()> {
        let in_order = match (&self.last, self.order) {
            (None, _) => true,
            (Some(last), RowOrder::Ascending) => key > last,
            (Some(last), RowOrder::Descending) => key < last,
        };
        if in_order { Ok(()) } else { Err(violation("rows out of order")) }
    }
}

impl Partial {
    fn add(&mut self, chunk: CellChunk, bytes_max: usize) -> Result<()> {
        if chunk.value_size < 0 {
            return Err(violation("a negative value size"));
        }
        self.count(&chunk, bytes_max)?;
        let goes_on = chunk.value_size > 0;
        if let Some(mut open) = self.open.take() {
            check_only_value(&chunk)?;
            open.value.extend_from_slice(&chunk.value);
            if goes_on {
                self.open = Some(open);
            } else {
                self.close(open.timestamp, open.value.freeze(), open.labels);
            }
            return Ok(());
        }
        let CellChunk { value, labels, timestamp_micros, .. } = self.name_column(chunk)?;
        let timestamp = Timestamp::from_micros(timestamp_micros)
            .ok_or_else(|| violation("a negative timestamp"))?;
        if goes_on {
            self.open = Some(OpenCell { timestamp, labels, value: BytesMut::from(&value[..]) });
        } else {
            self.close(timestamp, value, labels);
        }
        Ok(())
    }

    /// Counts what a chunk adds to the row, before any of it is kept.
    fn count(&mut self, chunk: &CellChunk, bytes_max: usize) -> Result<()> {
        let labels: usize =
            chunk.labels.iter().map(|label| label.len() + size_of::<String>()).sum();
        let family = chunk.family_name.as_ref().map_or(0, String::len);
        let qualifier = chunk.qualifier.as_ref().map_or(0, Bytes::len);
        self.bytes =
            self.bytes.saturating_add(CELL_BYTES + labels + family + qualifier + chunk.value.len());
        if self.bytes > bytes_max {
            let key = self.row.key.escape_ascii();
            return Err(Error::new(
                ErrorKind::FailedPrecondition,
                format!("row {key} has more than {bytes_max} bytes: too large to read whole"),
            ));
        }
        Ok(())
    }

    /// Takes the column from the first chunk of a cell.
    fn name_column(&mut self, mut chunk: CellChunk) -> Result<CellChunk> {
        if !chunk.row_key.is_empty() && chunk.row_key != self.row.key {
            return Err(violation("another row before the last was committed"));
        }
        if let Some(name) = chunk.family_name.take() {
            if chunk.qualifier.is_none() {
                return Err(violation("a family without a qualifier"));
            }
            self.enter_family(name);
        }
        if let Some(qualifier) = chunk.qualifier.take() {
            self.qualifier = qualifier;
        }
        Ok(chunk)
    }

    /// Makes the family called `name` the last, which is where cells go.
    fn enter_family(&mut self, name: String) {
        let families = &mut self.row.families;
        match families.iter().position(|family| family.name == name) {
            // A filter may interleave families; their cells are joined under one name.
            Some(place) => {
                let family = families.remove(place);
                families.push(family);
            }
            None => families.push(RowFamily { name, cells: Vec::new() }),
        }
    }

    fn close(&mut self, timestamp: Timestamp, value: Bytes, labels: Vec<String>) {
        let family = self.row.families.last_mut().expect("a row begins with a family");
        family.cells.push(Cell { qualifier: self.qualifier.clone(), timestamp, value, labels });
    }
}

/// Inside a cell, chunks carry nothing but value.
fn check_only_value(chunk: &CellChunk) -> Result<()> {
    let named = !chunk.row_key.is_empty()
        || chunk.family_name.is_some()
        || chunk.qualifier.is_some()
        || chunk.timestamp_micros != 0
        || !chunk.labels.is_empty();
    match named {
        true => Err(violation("a new cell inside a cell")),
        false => Ok(()),
    }
}

fn violation(what: &str) -> Error {
    Error::new(ErrorKind::Io, format!("the server's answer breaks the protocol: {what}"))
}
