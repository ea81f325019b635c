//! Reads a whole table again: before a manifest names it for the first time, and by scrubbing.
//!
//! 1. [`verify_checksum`]: length and checksum of the file against the recorded ones.
//! 2. Every block and every piece of a stored value: checksums, and that they lie end to end from
//!    the file's first byte to the footer, with nothing between.
//! 3. What they say: keys ascend, separators hold, filters know every entry, counts agree.

use std::sync::Arc;

use storage::BlobReader;
use types::{FileId, Kind, ParsedKey};
use xxhash_rust::xxh3::Xxh3;

use crate::block::{Block, BlockCursor};
use crate::error::{Error, Malformed, Result};
use crate::footer::FOOTER_BYTES;
use crate::frame::{BlockHandle, BlockKind};
use crate::index;
use crate::properties::Properties;
use crate::table::{Table, read_at};
use crate::value::StoredValue;

const READ_BYTES: u64 = 1 << 20;

/// Checks a file's length and whole-file checksum: no block is decompressed.
///
/// # Errors
/// `Corrupt`, `Storage`.
pub async fn verify_checksum(
    blob: &dyn BlobReader,
    file: FileId,
    len: u64,
    checksum: u64,
) -> Result<()> {
    if blob.len() != len {
        let what = "the file has another length than was recorded";
        return Err(Error::Corrupt { file, offset: len.min(blob.len()), what });
    }
    let mut hash = Xxh3::new();
    let mut offset = 0;
    while offset < len {
        let part = (len - offset).min(READ_BYTES);
        hash.update(&read_at(blob, file, offset, part as usize).await?);
        offset += part;
    }
    if hash.digest() != checksum {
        let what = "the checksum of the whole file is wrong";
        return Err(Error::Corrupt { file, offset: 0, what });
    }
    Ok(())
}

/// Checks a file against its recorded length and checksum, and everything in it.
///
/// # Errors
/// `Corrupt` with the first damage found, `NewerFormat`, `Storage`.
pub async fn verify_file(
    blob: Arc<dyn BlobReader>,
    file: FileId,
    len: u64,
    checksum: u64,
) -> Result<()> {
    verify_checksum(&*blob, file, len, checksum).await?;
    Table::open(blob, file, len, None).await?.verify().await
}

impl Table {
    /// Checks every block and stored value, and that all agree with each other. The whole file's
    /// checksum is [`verify_checksum`]'s.
    ///
    /// # Errors
    /// `Corrupt` with the first damage found, `Storage`.
    pub async fn verify(&self) -> Result<()> {
        let mut check = Check {
            table: self,
            data_at: 0,
            previous: Vec::new(),
            counted: Properties::begun(),
            stored: StoredValue::default(),
        };
        let footer = self.footer();
        let mut meta_at = footer.data_end;
        for filter in [footer.row_filter, footer.column_filter].into_iter().flatten() {
            meta_at = check.follows(filter, meta_at)?;
        }
        let top = footer.top_index;
        let mut partitions = BlockCursor::new(self.top_index().clone());
        while check.ok(top, partitions.next())? {
            let kind = BlockKind::IndexPartition;
            let handle = index::handle(partitions.value(), kind, self.end_max(kind));
            let handle = check.ok(top, handle)?;
            meta_at = check.follows(handle, meta_at)?;
            let partition = self.load(handle, false).await?;
            check.partition(handle, partition, partitions.key()).await?;
        }
        if check.data_at != footer.data_end {
            return Err(check.wrong(top, "the index leaves out data"));
        }
        meta_at = check.follows(top, meta_at)?;
        meta_at = check.follows(footer.properties, meta_at)?;
        if meta_at + FOOTER_BYTES as u64 != self.blob().len() {
            return Err(check.wrong(footer.properties, "bytes between properties and footer"));
        }
        check.counted.largest = check.previous.clone();
        if self.properties().families.is_none() {
            // Not known of older files.
            check.counted.families = None;
        }
        // Known to the writer only.
        check.counted.expired_bytes = self.properties().expired_bytes;
        if check.counted != *self.properties() {
            return Err(check.wrong(footer.properties, "the properties do not agree"));
        }
        Ok(())
    }
}

/// How far a check has come.
struct Check<'a> {
    table: &'a Table,
    /// The end of the data blocks and values seen.
    data_at: u64,
    /// The last key seen.
    previous: Vec<u8>,
    /// Counts of what was seen.
    counted: Properties,
    stored: StoredValue,
}

impl Check<'_> {
    async fn partition(
        &mut self,
        handle: BlockHandle,
        partition: Block,
        separator: &[u8],
    ) -> Result<()> {
        let mut blocks = BlockCursor::new(partition);
        let mut first = true;
        while self.ok(handle, blocks.next())? {
            if first && blocks.key() != separator {
                return Err(self.wrong(handle, "a partition begins with another separator"));
            }
            first = false;
            let kind = BlockKind::Data;
            let data = index::handle(blocks.value(), kind, self.table.end_max(kind));
            let data = self.ok(handle, data)?;
            self.data_block(data, blocks.key()).await?;
        }
        Ok(())
    }

    async fn data_block(&mut self, handle: BlockHandle, separator: &[u8]) -> Result<()> {
        let block = self.table.load(handle, false).await?;
        let mut entries = BlockCursor::new(block);
        let mut first = true;
        while self.ok(handle, entries.next())? {
            let key = entries.key();
            let begins = self.counted.cells == 0 || self.previous.as_slice() < separator;
            if first && !(begins && separator <= key) {
                return Err(self.wrong(handle, "a separator does not separate"));
            }
            first = false;
            let mut value_len = entries.value().len() as u64;
            if entries.is_stored() {
                value_len = self.stored_value(handle, entries.value()).await?;
            }
            self.entry(handle, key, value_len)?;
        }
        self.data_at = self.follows(handle, self.data_at)?;
        self.counted.data_blocks += 1;
        Ok(())
    }

    /// Checks a value outside the blocks; returns its length.
    async fn stored_value(&mut self, block: BlockHandle, handle: &[u8]) -> Result<u64> {
        let mut stored = std::mem::take(&mut self.stored);
        self.ok(block, stored.decode_from(handle, self.table.footer().data_end))?;
        if stored.offset() != self.data_at {
            return Err(self.wrong(block, "a stored value is not where it should be"));
        }
        for piece in 0..stored.pieces() {
            self.table.read_value_piece(&stored, piece).await?;
        }
        self.data_at = stored.end();
        self.counted.value_block_bytes += stored.len();
        self.stored = stored;
        Ok(self.stored.len())
    }

    fn entry(&mut self, block: BlockHandle, key: &[u8], value_len: u64) -> Result<()> {
        let Some(parsed) = ParsedKey::parse(key) else {
            return Err(self.wrong(block, "an entry's key is none"));
        };
        if self.counted.cells == 0 {
            self.counted.smallest = key.to_vec();
        } else if key <= self.previous.as_slice() {
            return Err(self.wrong(block, "keys do not ascend"));
        }
        if !self.previous.starts_with(parsed.row_prefix()) {
            self.counted.rows += 1;
        }
        // A family's or row's tombstone is no column, but whoever asks for a column must meet it.
        let column = match parsed.kind {
            Kind::Put | Kind::Add | Kind::DeleteCells => parsed.column_prefix().to_vec(),
            Kind::DeleteFamily => parsed.family_prefix().to_vec(),
            Kind::DeleteRow => [parsed.row_prefix(), &[0, 0, 0, 1]].concat(),
        };
        if !self.table.may_contain_row(parsed.row_prefix())
            || !self.table.may_contain_column(&column)
        {
            return Err(self.wrong(block, "a filter denies an entry"));
        }
        self.counted.count(&parsed, key.len(), value_len);
        self.previous.clear();
        self.previous.extend_from_slice(key);
        Ok(())
    }

    /// The end of `block`, which must begin at `at`.
    fn follows(&self, block: BlockHandle, at: u64) -> Result<u64> {
        let end = (block.offset == at).then_some(block.end()).flatten();
        end.ok_or_else(|| self.wrong(block, "a block is not where it should be"))
    }

    fn ok<T>(&self, block: BlockHandle, found: std::result::Result<T, Malformed>) -> Result<T> {
        found.map_err(|malformed| self.table.corrupt(block.offset, malformed))
    }

    fn wrong(&self, block: BlockHandle, what: &'static str) -> Error {
        self.table.corrupt(block.offset, Malformed(what))
    }
}
