use types::{Compression, FileId};

use crate::block::{Block, BlockCursor};
use crate::error::{Malformed, Result};
use crate::frame::{BlockHandle, StoredPayload};
use crate::options::WriterOptions;

/// A data block as it is stored, to be taken over by another table without compressing it anew.
#[derive(Clone, Debug)]
pub struct RawBlock {
    pub(crate) file: FileId,
    pub(crate) handle: BlockHandle,
    pub(crate) stored: StoredPayload,
    block: Block,
    /// Bytes of its last value.
    last_value: usize,
}

impl RawBlock {
    pub(crate) fn new(
        file: FileId,
        handle: BlockHandle,
        stored: StoredPayload,
        block: Block,
    ) -> Result<RawBlock> {
        let mut cursor = BlockCursor::new(block.clone());
        cursor.last().map_err(|malformed| malformed.at(file, handle.offset))?;
        let last_value = cursor.value().len();
        Ok(RawBlock { file, handle, stored, block, last_value })
    }

    /// Its entries, from the first on.
    pub fn entries(&self) -> RawEntries<'_> {
        RawEntries { raw: self, cursor: BlockCursor::new(self.block.clone()), begun: false }
    }

    pub(crate) fn malformed(&self, what: &'static str) -> crate::error::Error {
        Malformed(what).at(self.file, self.handle.offset)
    }
}

/// Goes through a block's entries.
pub struct RawEntries<'a> {
    raw: &'a RawBlock,
    cursor: BlockCursor,
    begun: bool,
}

impl RawEntries<'_> {
    /// The next key and its value.
    ///
    /// # Errors
    /// `Corrupt`; also for a value that lies outside the block: such a block is not taken over.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let found = if self.begun { self.cursor.next() } else { self.cursor.first() };
        self.begun = true;
        let (file, offset) = (self.raw.file, self.raw.handle.offset);
        if !found.map_err(|malformed| malformed.at(file, offset))? {
            return Ok(None);
        }
        if self.cursor.is_stored() {
            return Err(self.raw.malformed("a value outside a block that is taken over"));
        }
        Ok(Some((self.cursor.key(), self.cursor.value())))
    }
}

impl WriterOptions {
    /// Would a table of these options have such a block? It may be larger than others by its last
    /// value: only then is a block cut.
    pub fn takes(&self, raw: &RawBlock) -> bool {
        let (all, most) = (raw.block.bytes(), self.block_bytes.saturating_mul(2));
        let codec = self.compression == Compression::Lz4 || !raw.stored.is_compressed();
        codec && all >= self.block_bytes / 2 && all - raw.last_value <= most
    }
}
