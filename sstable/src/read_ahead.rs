//! Reads more than the block that is asked for, when blocks are asked for in their order.
//!
//! 1. The first block, and any that does not follow the one before, is read alone.
//! 2. A block that follows takes those behind it along: [`FIRST_BYTES`] at first, twice as much
//!    each time, up to [`MOST_BYTES`].
//! 3. What was taken along is handed out without another read.
//!
//! A few blocks in between that were cached do not break the order. Only data blocks are read
//! ahead, and never past the data: what lies behind them is read rarely.
//!
//! Invariants
//! - One buffer of at most [`MOST_BYTES`] (or of one block) is held.
//! - A read that is dropped half-way changes nothing.

use bytes::Bytes;

use crate::error::Result;
use crate::frame::BlockHandle;
use crate::table::Table;

/// What the second block in order takes along.
pub(crate) const FIRST_BYTES: u64 = 16 << 10;
/// What is read at once at most: past this, fewer reads are not felt any more.
pub(crate) const MOST_BYTES: u64 = 64 << 10;
/// Blocks with this much between them still follow each other. Less than a value that lies apart
/// in the file: of such values nothing is read for nothing.
const GAP_MAX: u64 = 8 << 10;

/// What was read of one table, and where the reader stands.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    buffer: Bytes,
    /// Of the buffer's first byte in the file.
    start: u64,
    /// The end of the last block that was asked for.
    at: Option<u64>,
    /// How much the last read should have taken.
    window: u64,
}

impl ReadAhead {
    /// The stored bytes of a data block.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`.
    pub(crate) async fn read(&mut self, table: &Table, handle: BlockHandle) -> Result<Bytes> {
        let len = handle.stored_bytes();
        let end = handle.offset.saturating_add(len as u64);
        if let Some(found) = self.held(handle.offset, len) {
            self.at = Some(end);
            return Ok(found);
        }
        let gap = self.at.and_then(|at| handle.offset.checked_sub(at));
        let window = match gap {
            Some(..=GAP_MAX) => (self.window * 2).clamp(FIRST_BYTES, MOST_BYTES),
            _ => 0,
        };
        // Offset and length may come from damaged bytes: the file checks them.
        let most = table.footer().data_end.saturating_sub(handle.offset);
        let wanted = (len as u64).max(window.min(most));
        let buffer = table.read_at(handle.offset, wanted as usize).await?;
        let block = buffer.slice(..len);
        *self = ReadAhead { buffer, start: handle.offset, at: Some(end), window };
        Ok(block)
    }

    fn held(&self, offset: u64, len: usize) -> Option<Bytes> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let to = from.checked_add(len)?;
        (to <= self.buffer.len()).then(|| self.buffer.slice(from..to))
    }
}
