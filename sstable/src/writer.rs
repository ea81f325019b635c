//! Writes a table, front to back.
//!
//! 1. Each entry's key is taken apart and compared with the last one, once ([`NextKey`]): that says
//!    whether it is a key, is greater, and begins a row or column. It is counted in the properties,
//!    and hashed for the filters when its row or column is new.
//! 2. When it does not fit the open data block, that block goes out. A big value goes out before
//!    the block that will hold its cell, as it is.
//! 3. A whole block of another table may be taken over as it is stored: only its entries are
//!    counted and hashed. Its checksum is made anew, since it covers the place.
//! 4. [`TableWriter::finish`] writes the filters, the index, the properties and the footer.
//!
//! Memory: one block, the index, and 8 bytes per row and per column for the filters. Bytes go to
//! the file in appends of at least 64 KiB. The checksum of the whole file is taken on the way.

use bytes::Bytes;
use storage::BlobWriter;
use types::{Bloom, CellKey, FileId, Kind, ParsedKey};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::block_builder::{BlockBuilder, Place, common_prefix};
use crate::error::{Error, Result};
use crate::filter::{Domain, FilterBuilder};
use crate::footer::{FOOTER_BYTES, FORMAT_VERSION, Footer};
use crate::frame::{BlockHandle, BlockKind, Framer, StoredPayload};
use crate::index::{IndexBuilder, TopIndexBuilder};
use crate::options::WriterOptions;
use crate::properties::Properties;
use crate::raw::RawBlock;
use crate::table::Table;
use crate::value::{PIECE_BYTES, StoredValue};

const APPEND_BYTES: usize = 64 << 10;

/// What a manifest keeps of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMeta {
    /// The file.
    pub file: FileId,
    /// Bytes of the file.
    pub len: u64,
    /// XXH3-64 of the whole file.
    pub checksum: u64,
    /// The smallest key.
    pub smallest: CellKey,
    /// The largest key.
    pub largest: CellKey,
    /// Counts and bounds.
    pub properties: Properties,
}

/// The file as it is written: appends are gathered, hashed and counted.
struct Output {
    blob: Box<dyn BlobWriter>,
    file: FileId,
    buffer: Vec<u8>,
    /// Bytes written and gathered: the offset of the next byte.
    offset: u64,
    hash: Xxh3,
    framer: Framer,
}

impl Output {
    fn put(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.offset += bytes.len() as u64;
    }

    fn put_block(&mut self, kind: BlockKind, payload: &[u8]) -> BlockHandle {
        let handle = self.framer.put(&mut self.buffer, kind, payload, self.offset);
        self.offset += handle.stored_bytes() as u64;
        handle
    }

    fn put_stored(&mut self, kind: BlockKind, stored: &StoredPayload) -> BlockHandle {
        let handle = self.framer.put_stored(&mut self.buffer, kind, stored, self.offset);
        self.offset += handle.stored_bytes() as u64;
        handle
    }

    fn is_full(&self) -> bool {
        self.buffer.len() >= APPEND_BYTES
    }

    async fn drain_if_full(&mut self) -> Result<()> {
        if self.is_full() { self.drain().await } else { Ok(()) }
    }

    async fn drain(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let room = Vec::with_capacity(APPEND_BYTES + (APPEND_BYTES >> 2));
        let gathered = std::mem::replace(&mut self.buffer, room);
        self.hash.update(&gathered);
        let appended = self.blob.append(Bytes::from(gathered)).await;
        appended.map_err(|source| Error::Storage { file: self.file, source })
    }
}

/// The key of a table's next entry, taken apart and compared with the last one.
#[derive(Clone, Copy, Debug)]
pub struct NextKey<'a> {
    parsed: ParsedKey<'a>,
    /// Bytes that it has in common with the last key.
    shared: usize,
    last_len: usize,
}

impl<'a> NextKey<'a> {
    /// The key.
    #[inline]
    pub fn parsed(&self) -> &ParsedKey<'a> {
        &self.parsed
    }

    /// Is its row another than that of the last key?
    #[inline]
    pub fn begins_row(&self) -> bool {
        // Escaped rows and column prefixes are whole fields: no one is a prefix of another.
        self.shared < self.parsed.row_prefix().len()
    }

    #[inline]
    fn begins_column(&self) -> bool {
        self.shared < self.parsed.column_prefix().len()
    }

    fn bytes(&self) -> &'a [u8] {
        self.parsed.as_bytes()
    }
}

/// Writes one table from entries in key order.
pub struct TableWriter {
    out: Output,
    options: WriterOptions,
    block: BlockBuilder,
    /// The open block's separator.
    separator: Vec<u8>,
    /// The last block has ended, and no entry has begun the next.
    block_is_due: bool,
    index: IndexBuilder,
    row_filter: FilterBuilder,
    column_filter: FilterBuilder,
    previous: Vec<u8>,
    properties: Properties,
    handle: Vec<u8>,
}

impl TableWriter {
    /// Begins a table that will be `file`.
    pub fn new(blob: Box<dyn BlobWriter>, file: FileId, options: WriterOptions) -> TableWriter {
        options.assert_valid();
        let framer = Framer::new(file, options.compression);
        let hash = Xxh3::new();
        TableWriter {
            out: Output { blob, file, buffer: Vec::new(), offset: 0, hash, framer },
            options,
            block: BlockBuilder::new(options.restart_interval),
            separator: Vec::new(),
            block_is_due: false,
            index: IndexBuilder::new(options.index_block_bytes),
            row_filter: FilterBuilder::default(),
            column_filter: FilterBuilder::default(),
            previous: Vec::new(),
            properties: Properties::begun(),
            handle: Vec::new(),
        }
    }

    /// Takes the key of the next entry apart. `None`: it is not greater than the last one.
    ///
    /// # Errors
    /// `NotAKey`.
    #[inline]
    pub fn next_key<'a>(&self, key: &'a [u8]) -> Result<Option<NextKey<'a>>> {
        let parsed = ParsedKey::parse(key).ok_or_else(|| self.not_a_key(key))?;
        let last = self.previous.as_slice();
        let shared = common_prefix(last, key);
        let ascends = match (last.get(shared), key.get(shared)) {
            (Some(last), Some(next)) => last < next,
            (None, next) => next.is_some(),
            (Some(_), None) => false,
        };
        Ok(ascends.then_some(NextKey { parsed, shared, last_len: last.len() }))
    }

    /// Adds an entry without waiting. `false`: that cannot be, and nothing has changed; its value
    /// is too large, or bytes wait to be appended to the file.
    #[inline]
    pub fn put(&mut self, key: &NextKey<'_>, value: &[u8]) -> bool {
        if value.len() >= self.options.value_block_threshold || self.out.is_full() {
            return false;
        }
        self.count(key, value.len() as u64);
        self.make_room(key, value.len());
        self.put_entry(key, value, Place::Inline);
        true
    }

    /// Adds an entry. Keys ascend strictly: asserted.
    ///
    /// # Errors
    /// `NotAKey`; `Storage`, after which the table is lost.
    pub async fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let next = self.ascending(key)?;
        self.out.drain_if_full().await?;
        if self.put(&next, value) {
            return Ok(());
        }
        self.count(&next, value.len() as u64);
        let offset = self.begin_stored(&next, value.len() as u64);
        let checksums = value.chunks(PIECE_BYTES).map(xxh3_64).collect();
        for piece in value.chunks(PIECE_BYTES) {
            self.out.put(piece);
            self.out.drain_if_full().await?;
        }
        self.put_stored_entry(&next, StoredValue::new(value.len() as u64, offset, checksums));
        self.out.drain_if_full().await
    }

    /// Adds an entry whose value lies outside the blocks of `source`, copying it piece by piece.
    ///
    /// # Errors
    /// `NotAKey`; an error of reading `source`; `Storage`. After an error the table is lost.
    pub async fn add_stored(
        &mut self,
        key: &[u8],
        source: &Table,
        value: &StoredValue,
    ) -> Result<()> {
        let next = self.ascending(key)?;
        self.count(&next, value.len());
        let offset = self.begin_stored(&next, value.len());
        for piece in 0..value.pieces() {
            let content = source.read_value_piece(value, piece).await?;
            self.out.put(&content);
            self.out.drain_if_full().await?;
        }
        let checksums = value.checksums().to_vec();
        self.put_stored_entry(&next, StoredValue::new(value.len(), offset, checksums));
        self.out.drain_if_full().await
    }

    /// The entry just added is one that retention allows to drop: `bytes` of key and value.
    pub fn note_expired(&mut self, bytes: u64) {
        self.properties.expired_bytes += bytes;
    }

    /// Is no small block open, so that a block may be taken over next?
    pub fn is_between_blocks(&self) -> bool {
        self.block.is_empty() || self.block.bytes() >= self.options.block_bytes / 2
    }

    /// Adds the entries of a block of another table, keeping the block as it is stored there.
    ///
    /// # Errors
    /// `Corrupt`, `NotAKey`, `Storage`; then the table is lost.
    pub async fn add_raw(&mut self, raw: &RawBlock) -> Result<()> {
        if !self.block.is_empty() {
            self.cut_block();
        }
        let mut entries = raw.entries();
        let mut is_first = true;
        while let Some((key, value)) = entries.next_entry()? {
            let Some(next) = self.next_key(key)? else {
                return Err(raw.malformed("keys of a block do not ascend"));
            };
            if is_first {
                self.begin_block(&next);
                is_first = false;
            }
            self.count(&next, value.len() as u64);
            self.remember(&next);
        }
        let handle = self.out.put_stored(BlockKind::Data, &raw.stored);
        self.index.add(&self.separator, handle);
        self.properties.data_blocks += 1;
        self.block_is_due = true;
        self.out.drain_if_full().await
    }

    /// Bytes of the file so far, the open block not included.
    pub fn bytes(&self) -> u64 {
        self.out.offset
    }

    /// Entries so far.
    pub fn cells(&self) -> u64 {
        self.properties.cells
    }

    /// The last key added; empty before the first.
    pub fn last_key(&self) -> &[u8] {
        &self.previous
    }

    /// Completes the table and makes it durable. A table has at least one entry: asserted.
    ///
    /// # Errors
    /// `Storage`.
    pub async fn finish(mut self) -> Result<TableMeta> {
        assert!(self.properties.cells > 0, "a table has at least one entry");
        if !self.block.is_empty() {
            self.cut_block();
        }
        let data_end = self.out.offset;
        let bits = self.options.bloom_bits_per_key;
        let mut filter = |kind, builder: FilterBuilder, bits| {
            builder.finish(bits).map(|payload| self.out.put_block(kind, &payload))
        };
        let (row_bits, column_bits) = match self.options.bloom {
            Bloom::RowAndColumn => (bits, bits),
            Bloom::Row => (bits, 0),
            Bloom::None => (0, 0),
        };
        let row_filter = filter(BlockKind::RowFilter, self.row_filter, row_bits);
        let column_filter = filter(BlockKind::ColumnFilter, self.column_filter, column_bits);
        self.out.drain_if_full().await?;
        let mut top = TopIndexBuilder::new();
        for partition in self.index.finish() {
            let handle = self.out.put_block(BlockKind::IndexPartition, &partition.payload);
            top.add(&partition.separator, handle);
            self.out.drain_if_full().await?;
        }
        let top_index = self.out.put_block(BlockKind::TopIndex, top.finish());
        self.properties.largest = self.previous;
        let properties = self.out.put_block(BlockKind::Properties, &self.properties.encode());
        let len = self.out.offset + FOOTER_BYTES as u64;
        let file = self.out.file;
        let footer = Footer {
            file,
            row_filter,
            column_filter,
            top_index,
            properties,
            data_end,
            written_by: FORMAT_VERSION,
        };
        self.out.put(&footer.encode(len));
        self.out.drain().await?;
        let checksum = self.out.hash.digest();
        self.out.blob.finish().await.map_err(|source| Error::Storage { file, source })?;
        let smallest = CellKey::from_valid(&self.properties.smallest);
        let largest = CellKey::from_valid(&self.properties.largest);
        Ok(TableMeta { file, len, checksum, smallest, largest, properties: self.properties })
    }

    /// The next entry's key, which is greater than the last one: asserted.
    fn ascending<'a>(&self, key: &'a [u8]) -> Result<NextKey<'a>> {
        Ok(self.next_key(key)?.expect("keys of a table ascend"))
    }

    fn not_a_key(&self, key: &[u8]) -> Error {
        let key_start = key[..key.len().min(64)].escape_ascii().to_string();
        Error::NotAKey { file: self.out.file, key_len: key.len(), key_start }
    }

    /// Counts an entry before anything of it is written.
    #[inline]
    fn count(&mut self, next: &NextKey<'_>, value_len: u64) {
        assert!(next.last_len == self.previous.len(), "the key was compared with another one");
        let parsed = &next.parsed;
        if self.properties.cells == 0 {
            self.properties.smallest = next.bytes().to_vec();
        }
        if next.begins_row() {
            self.properties.rows += 1;
            self.row_filter.add(Domain::Row, parsed.row_prefix());
        }
        if next.begins_column() {
            match parsed.kind {
                Kind::DeleteRow => {
                    self.column_filter.add(Domain::RowTombstone, parsed.row_prefix());
                }
                Kind::DeleteFamily => {
                    self.column_filter.add(Domain::FamilyTombstone, parsed.family_prefix());
                }
                Kind::Put | Kind::Add | Kind::DeleteCells => {
                    self.column_filter.add(Domain::Column, parsed.column_prefix());
                }
            }
        }
        self.properties.count(parsed, next.bytes().len(), value_len);
    }

    /// Ends the open block if an entry with `value_len` bytes in the block would make it too large.
    #[inline]
    fn make_room(&mut self, next: &NextKey<'_>, value_len: usize) {
        let bytes = self.block.bytes();
        let target = self.options.block_bytes;
        // A block that is not half full takes the entry though it grows past the target.
        let entry_bytes = || self.block.entry_bytes(next.bytes().len(), next.shared, value_len);
        let full = bytes >= target / 2 && bytes + entry_bytes() > target;
        if full && !self.block.is_empty() {
            self.cut_block();
            self.block_is_due = true;
        }
        if self.block_is_due {
            self.begin_block(next);
        }
    }

    /// The next block begins with this key.
    fn begin_block(&mut self, next: &NextKey<'_>) {
        self.separator.clear();
        if !self.previous.is_empty() {
            // The shortest beginning of it that is greater than the last key.
            self.separator.extend_from_slice(&next.bytes()[..=next.shared]);
        }
        self.block_is_due = false;
    }

    /// Makes room for the entry of a value outside the blocks; returns where the value begins.
    fn begin_stored(&mut self, next: &NextKey<'_>, len: u64) -> u64 {
        self.make_room(next, StoredValue::encoded_bytes(len, self.out.offset));
        self.properties.value_block_bytes += len;
        self.out.offset
    }

    fn put_stored_entry(&mut self, next: &NextKey<'_>, value: StoredValue) {
        let mut handle = std::mem::take(&mut self.handle);
        handle.clear();
        value.encode(&mut handle);
        self.put_entry(next, &handle, Place::Stored);
        self.handle = handle;
    }

    #[inline]
    fn put_entry(&mut self, next: &NextKey<'_>, value: &[u8], place: Place) {
        self.block.add(next.bytes(), next.shared, value, place);
        self.remember(next);
    }

    #[inline]
    fn remember(&mut self, next: &NextKey<'_>) {
        self.previous.truncate(next.shared);
        self.previous.extend_from_slice(&next.bytes()[next.shared..]);
    }

    fn cut_block(&mut self) {
        let handle = self.out.put_block(BlockKind::Data, self.block.finish());
        self.block.clear();
        self.index.add(&self.separator, handle);
        self.properties.data_blocks += 1;
    }
}
