use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use storage::BlobReader;
use types::{FileId, key};
use xxhash_rust::xxh3::xxh3_64;

use crate::block::{Block, BlockCursor};
use crate::cache::{BlockCache, PinnedBlocks, Resident};
use crate::cursor::TableCursor;
use crate::error::{Error, Malformed, Result};
use crate::filter::{Domain, Filter};
use crate::footer::{FOOTER_BYTES, Footer};
use crate::frame::{self, BlockHandle, BlockKind, Salt, StoredPayload};
use crate::index;
use crate::properties::{self, Properties};
use crate::raw::RawBlock;
use crate::read_ahead::ReadAhead;
use crate::value::StoredValue;

/// The end of a file that is read at once at open: most tables' index and filters are in it.
const TAIL_BYTES: u64 = 32 << 10;
/// Stored bytes of a data or index block: one that LZ4 does not shrink is stored plain.
const STORED_BLOCK_BYTES_MAX: u32 = frame::BLOCK_BYTES_MAX as u32;

/// An open table. Top index, filters and properties are in memory; all else is read when asked for.
pub struct Table {
    blob: Arc<dyn BlobReader>,
    file: FileId,
    salt: Salt,
    footer: Footer,
    top_index: Block,
    row_filter: Option<Filter>,
    column_filter: Option<Filter>,
    properties: Properties,
    cache: Option<Arc<BlockCache>>,
    pinned: OnceLock<PinnedBlocks>,
    /// Its drop gives the bytes back.
    resident: Option<Resident>,
}

/// The end of a file, already read, in front of the file.
struct Tail<'a> {
    blob: &'a dyn BlobReader,
    file: FileId,
    start: u64,
    bytes: Bytes,
}

impl Tail<'_> {
    async fn read(&self, handle: BlockHandle) -> Result<Bytes> {
        let stored_len = handle.stored_bytes();
        let in_tail = handle.offset.checked_sub(self.start).map(|start| start as usize);
        let stored = match in_tail {
            Some(start) if start + stored_len <= self.bytes.len() => {
                // A copy: a filter or an index must not keep the whole tail alive.
                Bytes::copy_from_slice(&self.bytes[start..start + stored_len])
            }
            _ => read_at(self.blob, self.file, handle.offset, stored_len).await?,
        };
        let opened = frame::open(Salt::of(self.file), handle, &stored);
        opened.map_err(|malformed| malformed.at(self.file, handle.offset))
    }
}

/// The id in the footer of the table file that `blob` is: for tools that know only a path.
///
/// # Errors
/// `Corrupt` when it is no table; `Storage`.
pub async fn file_id(blob: &dyn BlobReader) -> Result<FileId> {
    let unknown = FileId { session: 0, counter: 0 };
    let start = footer_start(blob.len(), unknown)?;
    let stored = read_at(blob, unknown, start, FOOTER_BYTES).await?;
    Ok(Footer::decode(&stored, blob.len(), unknown)?.file)
}

fn footer_start(len: u64, file: FileId) -> Result<u64> {
    let start = len.checked_sub(FOOTER_BYTES as u64);
    start.ok_or(Error::Corrupt { file, offset: 0, what: "no room for a footer" })
}

/// Exactly `len` bytes from `offset`.
pub(crate) async fn read_at(
    blob: &dyn BlobReader,
    file: FileId,
    offset: u64,
    len: usize,
) -> Result<Bytes> {
    let read = blob.read_at(offset, len).await;
    let bytes = read.map_err(|source| Error::Storage { file, source })?;
    if bytes.len() != len {
        return Err(Error::Corrupt { file, offset, what: "the file is cut short" });
    }
    Ok(bytes)
}

impl Table {
    /// Opens a table: checks its length against the manifest's, and footer, top index, filters and
    /// properties against their checksums.
    ///
    /// # Errors
    /// `Corrupt`, `NewerFormat`, `Storage`.
    pub async fn open(
        blob: Arc<dyn BlobReader>,
        file: FileId,
        expected_len: u64,
        cache: Option<Arc<BlockCache>>,
    ) -> Result<Arc<Table>> {
        let len = blob.len();
        if len != expected_len {
            let what = "the file has another length than was recorded";
            return Err(Error::Corrupt { file, offset: len.min(expected_len), what });
        }
        let footer_start = footer_start(len, file)?;
        let start = len.saturating_sub(TAIL_BYTES);
        let bytes = read_at(&*blob, file, start, (len - start) as usize).await?;
        let stored = bytes.slice((footer_start - start) as usize..);
        let footer = Footer::decode(&stored, len, file)?;
        if footer.file != file {
            return Err(Malformed("the file is another table").at(file, footer_start));
        }
        let tail = Tail { blob: &*blob, file, start, bytes };
        let top_index = Block::parse(tail.read(footer.top_index).await?)
            .map_err(|malformed| malformed.at(file, footer.top_index.offset))?;
        let properties = properties::decode(&tail.read(footer.properties).await?)
            .map_err(|malformed| malformed.at(file, footer.properties.offset))?;
        let row_filter = read_filter(&tail, footer.row_filter).await?;
        let column_filter = read_filter(&tail, footer.column_filter).await?;
        let mut table = Table {
            blob,
            file,
            salt: Salt::of(file),
            footer,
            top_index,
            row_filter,
            column_filter,
            properties,
            cache,
            pinned: OnceLock::new(),
            resident: None,
        };
        let bytes = table.memory_bytes() as u64;
        table.resident = table.cache.as_ref().map(|cache| Resident::new(cache, bytes));
        Ok(Arc::new(table))
    }

    /// The file.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// Counts and bounds.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Bytes of memory that the open table holds besides cached blocks.
    pub fn memory_bytes(&self) -> usize {
        let filters = [&self.row_filter, &self.column_filter];
        let filters: usize = filters.into_iter().flatten().map(Filter::memory_bytes).sum();
        let keys = self.properties.smallest.len() + self.properties.largest.len();
        size_of::<Table>() + filters + keys + self.top_index.bytes()
    }

    /// May the table hold any entry, tombstones included, of this row (escaped, with its end mark)?
    pub fn may_contain_row(&self, escaped_row: &[u8]) -> bool {
        let filter = self.row_filter.as_ref();
        filter.is_none_or(|filter| filter.may_contain(Domain::Row, escaped_row))
    }

    /// May the table hold anything that a read of this column must know: an entry of the column, or
    /// a tombstone of its family or row?
    pub fn may_contain_column(&self, column_prefix: &[u8]) -> bool {
        let Some(filter) = &self.column_filter else {
            return true;
        };
        if filter.may_contain(Domain::Column, column_prefix) {
            return true;
        }
        if self.properties.row_tombstones == 0 && self.properties.family_tombstones == 0 {
            return false;
        }
        let Some(row) = key::row_prefix(column_prefix) else {
            return true;
        };
        let Some(family) = column_prefix.get(..row.len() + 4) else {
            return true;
        };
        (self.properties.row_tombstones > 0 && filter.may_contain(Domain::RowTombstone, row))
            || (self.properties.family_tombstones > 0
                && filter.may_contain(Domain::FamilyTombstone, family))
    }

    /// A cursor over the table. With `fill_cache` the blocks it loads stay in the block cache;
    /// scans go without. Cached blocks are used either way.
    pub fn cursor(self: &Arc<Self>, fill_cache: bool) -> TableCursor {
        TableCursor::new(Arc::clone(self), fill_cache)
    }

    /// Reads, checks and decompresses the block that a cursor asked for.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`.
    pub async fn load(&self, handle: BlockHandle, fill_cache: bool) -> Result<Block> {
        self.check_len(handle)?;
        let stored = self.read_at(handle.offset, handle.stored_bytes()).await?;
        let (block, stored) = self.open_block(handle, &stored)?;
        if let (true, Some(cache)) = (fill_cache, &self.cache) {
            cache.insert(self.file, handle, &block, stored);
        }
        Ok(block)
    }

    /// The same for a reader that goes through the blocks in their order. Nothing is cached.
    pub(crate) async fn load_in_order(
        &self,
        handle: BlockHandle,
        read_ahead: &mut ReadAhead,
    ) -> Result<Block> {
        self.check_len(handle)?;
        let stored = read_ahead.read(self, handle).await?;
        Ok(self.open_block(handle, &stored)?.0)
    }

    fn check_len(&self, handle: BlockHandle) -> Result<()> {
        if handle.len > STORED_BLOCK_BYTES_MAX {
            return Err(self.corrupt(handle.offset, Malformed("a block of impossible length")));
        }
        Ok(())
    }

    fn open_block(&self, handle: BlockHandle, stored: &Bytes) -> Result<(Block, StoredPayload)> {
        let opened = frame::check(self.salt, handle, stored).and_then(|payload| {
            let block = payload.plain(handle.kind).and_then(Block::parse)?;
            Ok((block, payload))
        });
        opened.map_err(|malformed| self.corrupt(handle.offset, malformed))
    }

    /// Exactly `len` bytes from `offset`.
    pub(crate) async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        read_at(&*self.blob, self.file, offset, len).await
    }

    /// Reads and checks a data block as it is stored, of which `block` is what was stored.
    pub(crate) async fn load_raw(
        &self,
        handle: BlockHandle,
        block: Block,
        read_ahead: &mut ReadAhead,
    ) -> Result<RawBlock> {
        self.check_len(handle)?;
        let stored = read_ahead.read(self, handle).await?;
        let payload = frame::check(self.salt, handle, &stored);
        let payload = payload.map_err(|malformed| self.corrupt(handle.offset, malformed))?;
        RawBlock::new(self.file, handle, payload, block)
    }

    /// Reads piece `piece` (below [`StoredValue::pieces`], asserted) of a value of this table; at
    /// most [`crate::PIECE_BYTES`] bytes.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`.
    pub async fn read_value_piece(&self, value: &StoredValue, piece: usize) -> Result<Bytes> {
        if value.end() > self.footer.data_end {
            return Err(self.corrupt(value.offset(), Malformed("a value outside its table")));
        }
        let (offset, len) = value.piece(piece);
        let content = self.read_at(offset, len).await?;
        if xxh3_64(&content) != value.checksums()[piece] {
            return Err(self.corrupt(offset, Malformed("a stored value's checksum is wrong")));
        }
        Ok(content)
    }

    /// Reads every block and keeps it as long as the table is open, as far as the cache has room
    /// for pinned blocks. Does nothing without a cache, or a second time.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`: what was read until then is kept.
    pub async fn keep_in_memory(&self) -> Result<()> {
        let Some(cache) = self.cache.as_ref().filter(|_| self.pinned.get().is_none()) else {
            return Ok(());
        };
        let mut pinned = PinnedBlocks::none(cache);
        let outcome = self.load_all(&mut pinned).await;
        pinned.settle();
        // Whoever came first keeps his.
        let _ = self.pinned.set(pinned);
        outcome
    }

    async fn load_all(&self, pinned: &mut PinnedBlocks) -> Result<()> {
        let top = self.footer.top_index.offset;
        let mut partitions = BlockCursor::new(self.top_index.clone());
        while partitions.next().map_err(|malformed| self.corrupt(top, malformed))? {
            let kind = BlockKind::IndexPartition;
            let partition = index::handle(partitions.value(), kind, self.end_max(kind))
                .map_err(|malformed| self.corrupt(top, malformed))?;
            let block = self.load(partition, false).await?;
            if !pinned.add(partition.offset, block.clone()) {
                return Ok(());
            }
            let mut blocks = BlockCursor::new(block);
            while blocks.next().map_err(|malformed| self.corrupt(partition.offset, malformed))? {
                let data = index::handle(blocks.value(), BlockKind::Data, self.footer.data_end)
                    .map_err(|malformed| self.corrupt(partition.offset, malformed))?;
                if !pinned.add(data.offset, self.load(data, false).await?) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    pub(crate) fn cached(&self, handle: BlockHandle) -> Option<Block> {
        if let Some(block) = self.pinned.get().and_then(|pinned| pinned.get(handle.offset)) {
            return Some(block);
        }
        self.cache.as_ref()?.get(self.file, handle)
    }

    pub(crate) fn top_index(&self) -> &Block {
        &self.top_index
    }

    pub(crate) fn footer(&self) -> &Footer {
        &self.footer
    }

    pub(crate) fn blob(&self) -> &Arc<dyn BlobReader> {
        &self.blob
    }

    /// The row filter and the column filter.
    pub(crate) fn filters(&self) -> [Option<&Filter>; 2] {
        [self.row_filter.as_ref(), self.column_filter.as_ref()]
    }

    /// Where handles in blocks of this kind may lead at most.
    pub(crate) fn end_max(&self, kind: BlockKind) -> u64 {
        match kind {
            BlockKind::Data => self.footer.data_end,
            _ => self.footer.top_index.offset,
        }
    }

    pub(crate) fn corrupt(&self, offset: u64, malformed: Malformed) -> Error {
        malformed.at(self.file, offset)
    }
}

async fn read_filter(tail: &Tail<'_>, handle: Option<BlockHandle>) -> Result<Option<Filter>> {
    let Some(handle) = handle else {
        return Ok(None);
    };
    let filter = Filter::decode(&tail.read(handle).await?);
    filter.map(Some).map_err(|malformed| malformed.at(tail.file, handle.offset))
}
