//! A block as it lies in the file: payload, kind, coding, checksum.
//!
//! The checksum covers where the block is and which file it belongs to, so a good block at the
//! wrong place is refused like a damaged one.

use bytes::Bytes;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use types::limits::CELL_KEY_BYTES_MAX;
use types::{Compression, FileId};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::coding::{u32_at, u64_at};
use crate::error::Malformed;
use crate::options::TARGET_BYTES_MAX;

/// Bytes after each block's payload: kind, coding, checksum.
pub(crate) const TRAILER_BYTES: usize = 10;
/// Plain bytes of a data or index block: nothing larger is written or read.
pub(crate) const BLOCK_BYTES_MAX: usize = 4 << 20;
/// A block may grow to its target, and then by one entry whose key and value are the largest.
const _: () = assert!(2 * TARGET_BYTES_MAX + 2 * CELL_KEY_BYTES_MAX + 4096 <= BLOCK_BYTES_MAX);
/// What LZ4 can expand to at most, per stored byte.
const LZ4_EXPANSION_MAX: usize = 255;

const BLOCK_FORMAT: u8 = 1;
const CODEC_PLAIN: u8 = 0;
const CODEC_LZ4: u8 = 1;

/// What a block holds. The numbers are stored: frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum BlockKind {
    /// Cells.
    Data = 1,
    /// Separators and handles of data blocks.
    IndexPartition = 2,
    /// Separators and handles of index partitions.
    TopIndex = 3,
    /// The bloom filter of rows.
    RowFilter = 4,
    /// The bloom filter of columns and tombstones.
    ColumnFilter = 5,
    /// Counts and bounds.
    Properties = 6,
}

impl BlockKind {
    fn may_be_compressed(self) -> bool {
        matches!(self, BlockKind::Data | BlockKind::IndexPartition)
    }
}

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockHandle {
    /// Of its first byte in the file.
    pub offset: u64,
    /// Bytes of its payload as stored, without the trailer.
    pub len: u32,
    /// What it holds.
    pub kind: BlockKind,
}

impl BlockHandle {
    /// The first offset after the block and its trailer; `None` if there is no such offset.
    pub(crate) fn end(&self) -> Option<u64> {
        self.offset.checked_add(u64::from(self.len))?.checked_add(TRAILER_BYTES as u64)
    }

    /// Bytes of the block with its trailer.
    pub(crate) fn stored_bytes(&self) -> usize {
        self.len as usize + TRAILER_BYTES
    }
}

/// What ties a file's blocks to the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Salt(u64);

impl Salt {
    pub(crate) fn of(file: FileId) -> Salt {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&file.session.to_le_bytes());
        id[8..].copy_from_slice(&file.counter.to_le_bytes());
        Salt(xxh3_64(&id))
    }

    fn checksum(self, offset: u64, covered: &[u8]) -> u64 {
        xxh3_64_with_seed(covered, self.0 ^ offset)
    }
}

/// Makes blocks of payloads; keeps what compression needs from one block to the next.
pub(crate) struct Framer {
    salt: Salt,
    compression: Compression,
    table: CompressTable,
    scratch: Vec<u8>,
}

impl Framer {
    pub(crate) fn new(file: FileId, compression: Compression) -> Framer {
        let table = CompressTable::default();
        Framer { salt: Salt::of(file), compression, table, scratch: Vec::new() }
    }

    /// Appends `payload` as a block that begins at `offset` of the file.
    pub(crate) fn put(
        &mut self,
        out: &mut Vec<u8>,
        kind: BlockKind,
        payload: &[u8],
        offset: u64,
    ) -> BlockHandle {
        let limit = if kind.may_be_compressed() { BLOCK_BYTES_MAX } else { u32::MAX as usize - 64 };
        assert!(payload.len() <= limit, "a {kind:?} block of {} bytes", payload.len());
        let start = out.len();
        let compressed = kind.may_be_compressed()
            && self.compression == Compression::Lz4
            && self.put_compressed(out, payload);
        if !compressed {
            out.extend_from_slice(payload);
        }
        let codec = if compressed { CODEC_LZ4 } else { CODEC_PLAIN };
        self.put_trailer(out, start, kind, BLOCK_FORMAT << 4 | codec, offset)
    }

    /// Appends a payload that another file has, as it is stored there, as a block of this one.
    pub(crate) fn put_stored(
        &mut self,
        out: &mut Vec<u8>,
        kind: BlockKind,
        stored: &StoredPayload,
        offset: u64,
    ) -> BlockHandle {
        let start = out.len();
        out.extend_from_slice(&stored.bytes);
        self.put_trailer(out, start, kind, stored.coding, offset)
    }

    /// Ends the block whose payload begins at `start`.
    fn put_trailer(
        &self,
        out: &mut Vec<u8>,
        start: usize,
        kind: BlockKind,
        coding: u8,
        offset: u64,
    ) -> BlockHandle {
        let len = (out.len() - start) as u32;
        out.extend_from_slice(&[kind as u8, coding]);
        let checksum = self.salt.checksum(offset, &out[start..]);
        out.extend_from_slice(&checksum.to_le_bytes());
        BlockHandle { offset, len, kind }
    }

    /// Appends the LZ4 form and says so, or appends nothing when it does not pay.
    fn put_compressed(&mut self, out: &mut Vec<u8>, payload: &[u8]) -> bool {
        let room = get_maximum_output_size(payload.len());
        if self.scratch.len() < room {
            self.scratch.resize(room, 0);
        }
        let packed = compress_into_with_table(payload, &mut self.scratch, &mut self.table);
        let Ok(packed) = packed else { return false };
        if packed + 4 > payload.len() - payload.len() / 8 {
            return false;
        }
        out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.scratch[..packed]);
        true
    }
}

/// A block's payload as it is stored, and how it is coded.
#[derive(Clone, Debug)]
pub(crate) struct StoredPayload {
    bytes: Bytes,
    coding: u8,
}

impl StoredPayload {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.coding & 0x0f != CODEC_PLAIN
    }

    /// The plain payload.
    pub(crate) fn plain(&self, kind: BlockKind) -> std::result::Result<Bytes, Malformed> {
        match self.coding & 0x0f {
            CODEC_PLAIN => Ok(self.bytes.clone()),
            CODEC_LZ4 if kind.may_be_compressed() => decompress(&self.bytes),
            _ => Err(Malformed("an unknown block codec")),
        }
    }
}

/// Checks a stored block (payload and trailer) and returns its payload as it is stored.
pub(crate) fn check(
    salt: Salt,
    handle: BlockHandle,
    stored: &Bytes,
) -> std::result::Result<StoredPayload, Malformed> {
    let len = handle.len as usize;
    if stored.len() != handle.stored_bytes() {
        return Err(Malformed("a block of another length"));
    }
    let expected = u64_at(stored, len + 2).ok_or(Malformed("a block without a trailer"))?;
    if salt.checksum(handle.offset, &stored[..len + 2]) != expected {
        return Err(Malformed("a block's checksum is wrong"));
    }
    let (kind, coding) = (stored[len], stored[len + 1]);
    if kind != handle.kind as u8 {
        return Err(Malformed("a block of another kind"));
    }
    if coding >> 4 != BLOCK_FORMAT {
        return Err(Malformed("an unknown block format"));
    }
    Ok(StoredPayload { bytes: stored.slice(..len), coding })
}

/// Checks a stored block (payload and trailer) and returns its plain payload.
pub(crate) fn open(
    salt: Salt,
    handle: BlockHandle,
    stored: &Bytes,
) -> std::result::Result<Bytes, Malformed> {
    check(salt, handle, stored)?.plain(handle.kind)
}

fn decompress(packed: &[u8]) -> std::result::Result<Bytes, Malformed> {
    let plain_len = u32_at(packed, 0).ok_or(Malformed("a compressed block without length"))?;
    let (plain_len, packed) = (plain_len as usize, &packed[4..]);
    if plain_len > BLOCK_BYTES_MAX || plain_len > packed.len().saturating_mul(LZ4_EXPANSION_MAX) {
        return Err(Malformed("a compressed block declares an impossible length"));
    }
    let mut plain = vec![0; plain_len];
    match lz4_flex::block::decompress_into(packed, &mut plain) {
        Ok(len) if len == plain_len => Ok(Bytes::from(plain)),
        _ => Err(Malformed("a compressed block does not decompress")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { session: 7, counter: 1 };

    #[test]
    fn a_block_at_another_place_or_of_another_file_or_kind_is_refused() {
        let mut out = Vec::new();
        let payload = b"some payload some payload some payload some payload some";
        let mut framer = Framer::new(FILE, Compression::Lz4);
        let handle = framer.put(&mut out, BlockKind::Data, payload, 100);
        assert!((handle.len as usize) < payload.len(), "it compresses");
        let stored = Bytes::from(out);
        assert_eq!(open(Salt::of(FILE), handle, &stored).unwrap(), payload.as_slice());
        let other = Salt::of(FileId { session: 7, counter: 2 });
        assert!(open(other, handle, &stored).is_err());
        assert!(open(Salt::of(FILE), BlockHandle { offset: 101, ..handle }, &stored).is_err());
        let kind = BlockKind::IndexPartition;
        let error = open(Salt::of(FILE), BlockHandle { kind, ..handle }, &stored);
        assert_eq!(error, Err(Malformed("a block of another kind")));
    }

    #[test]
    fn a_hostile_plain_length_is_refused_before_it_is_allocated() {
        for plain_len in [u32::MAX, BLOCK_BYTES_MAX as u32 + 1, 255 * 3 + 1] {
            let mut packed = plain_len.to_le_bytes().to_vec();
            packed.extend_from_slice(&[0, 0, 0]);
            assert!(decompress(&packed).is_err(), "{plain_len}");
        }
    }
}
