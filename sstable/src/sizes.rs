//! How a table's bytes are spread over its keys, as its index tells: without reading any cell.
//!
//! A data block with the values written before it is the finest grain. Index partitions are read
//! when need be and do not enter the cache.

use crate::block::{BlockCursor, Bound};
use crate::error::Result;
use crate::frame::{BlockHandle, BlockKind};
use crate::index;
use crate::table::Table;

/// Partitions up to which [`Table::spread`] looks into them; with more, each counts as a whole.
const PARTITIONS_READ_MAX: usize = 16;

impl Table {
    /// About how many of the file's bytes belong to keys from `from` up to and without `to`, all
    /// encoded. All of a table's parts together have about its length.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`.
    pub async fn approximate_bytes(&self, from: &[u8], to: Option<&[u8]>) -> Result<u64> {
        let smallest = self.properties().smallest.as_slice();
        let largest = self.properties().largest.as_slice();
        if from > largest || to.is_some_and(|to| to <= smallest) {
            return Ok(0);
        }
        let start = if from <= smallest { 0 } else { self.offset_of(from).await? };
        let data_end = self.footer().data_end;
        let end = match to {
            Some(to) if to <= largest => self.offset_of(to).await?,
            _ => data_end,
        };
        let part = u128::from(end.saturating_sub(start));
        let len = u128::from(self.blob().len());
        let bytes = part * len / u128::from(data_end.max(1));
        // Rows inside a block leave a trace, so that nothing counts as nothing.
        Ok(u64::try_from(bytes).unwrap_or(u64::MAX).max(1))
    }

    /// Where the block begins that may hold the first key at or after `key`.
    async fn offset_of(&self, key: &[u8]) -> Result<u64> {
        let mut top = BlockCursor::new(self.top_index().clone());
        let top_offset = self.footer().top_index.offset;
        let found = top.seek_last(key, Bound::AtOrBelow);
        if !found.map_err(|malformed| self.corrupt(top_offset, malformed))? {
            return Ok(0);
        }
        let handle = self.partition_at(&top)?;
        let mut partition = BlockCursor::new(self.load(handle, false).await?);
        let found = partition.seek_last(key, Bound::AtOrBelow);
        if !found.map_err(|malformed| self.corrupt(handle.offset, malformed))? {
            return Ok(0);
        }
        Ok(self.data_block_at(&partition, handle)?.offset)
    }

    /// Keys that divide the table, ascending, each with the bytes from it to the next one: the
    /// separators of blocks, or of whole partitions in a large table. A separator is the beginning
    /// of a key, perhaps cut anywhere.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`.
    pub async fn spread(&self) -> Result<Vec<(Vec<u8>, u64)>> {
        let mut partitions = Vec::new();
        let mut top = BlockCursor::new(self.top_index().clone());
        let top_offset = self.footer().top_index.offset;
        let at_top = |found: std::result::Result<bool, _>| {
            found.map_err(|malformed| self.corrupt(top_offset, malformed))
        };
        let mut more = at_top(top.first())?;
        while more {
            partitions.push((top.key().to_vec(), self.partition_at(&top)?));
            more = at_top(top.next())?;
        }
        if partitions.len() > PARTITIONS_READ_MAX {
            let each = self.blob().len() / partitions.len() as u64;
            return Ok(partitions.into_iter().map(|(separator, _)| (separator, each)).collect());
        }
        let mut starts: Vec<(Vec<u8>, u64)> = Vec::new();
        for (_, handle) in partitions {
            let mut partition = BlockCursor::new(self.load(handle, false).await?);
            let in_partition = |found: std::result::Result<bool, _>| {
                found.map_err(|malformed| self.corrupt(handle.offset, malformed))
            };
            let mut more = in_partition(partition.first())?;
            while more {
                let block = self.data_block_at(&partition, handle)?;
                starts.push((partition.key().to_vec(), block.offset));
                more = in_partition(partition.next())?;
            }
        }
        if let Some((_, start)) = starts.first_mut() {
            *start = 0;
        }
        let ends: Vec<u64> = starts.iter().skip(1).map(|(_, start)| *start).collect();
        let ends = ends.into_iter().chain([self.footer().data_end]);
        let spans = starts.into_iter().zip(ends);
        Ok(spans.map(|((key, start), end)| (key, end.saturating_sub(start))).collect())
    }

    fn partition_at(&self, top: &BlockCursor) -> Result<BlockHandle> {
        let kind = BlockKind::IndexPartition;
        let handle = index::handle(top.value(), kind, self.end_max(kind));
        handle.map_err(|malformed| self.corrupt(self.footer().top_index.offset, malformed))
    }

    fn data_block_at(&self, partition: &BlockCursor, at: BlockHandle) -> Result<BlockHandle> {
        let handle =
            index::handle(partition.value(), BlockKind::Data, self.end_max(BlockKind::Data));
        handle.map_err(|malformed| self.corrupt(at.offset, malformed))
    }
}
