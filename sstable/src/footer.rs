use types::FileId;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::coding::{u16_at, u32_at, u64_at};
use crate::error::{Error, Malformed, Result};
use crate::frame::{BlockHandle, BlockKind};

/// Bytes of the footer: fixed for ever, in all versions.
pub(crate) const FOOTER_BYTES: usize = 96;
/// The format version that this release writes, and the newest that it reads.
pub(crate) const FORMAT_VERSION: u16 = 1;
/// The least version that a reader of what this release writes must know.
const READER_VERSION_MIN: u16 = 1;
const MAGIC: [u8; 8] = *b"TEPUISST";
const CHECKSUM_AT: usize = 80;

/// The end of a table file: where everything else is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) file: FileId,
    pub(crate) row_filter: Option<BlockHandle>,
    pub(crate) column_filter: Option<BlockHandle>,
    pub(crate) top_index: BlockHandle,
    pub(crate) properties: BlockHandle,
    pub(crate) data_end: u64,
    /// The format version of the release that wrote the file.
    pub(crate) written_by: u16,
}

impl Footer {
    /// The stored form, for a file of `file_len` bytes with the footer.
    pub(crate) fn encode(&self, file_len: u64) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&self.file.session.to_le_bytes());
        out.extend_from_slice(&self.file.counter.to_le_bytes());
        let [top_index, properties] = [Some(self.top_index), Some(self.properties)];
        for handle in [self.row_filter, self.column_filter, top_index, properties] {
            let (offset, len) = handle.map_or((0, 0), |handle| (handle.offset, handle.len));
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&len.to_le_bytes());
        }
        out.extend_from_slice(&self.data_end.to_le_bytes());
        out.extend_from_slice(&self.written_by.to_le_bytes());
        out.extend_from_slice(&READER_VERSION_MIN.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        let checksum = xxh3_64_with_seed(&out, file_len);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        let mut footer = [0; FOOTER_BYTES];
        footer.copy_from_slice(&out);
        footer
    }

    /// Reads the stored form of a file of `file_len` bytes; `file` is for errors.
    pub(crate) fn decode(stored: &[u8], file_len: u64, file: FileId) -> Result<Footer> {
        let start = file_len.saturating_sub(FOOTER_BYTES as u64);
        let wrong = |what| Malformed(what).at(file, start);
        if stored.len() != FOOTER_BYTES {
            return Err(wrong("no room for a footer"));
        }
        if stored[CHECKSUM_AT + 8..] != MAGIC {
            return Err(wrong("no table: the magic number is missing"));
        }
        let checksum = xxh3_64_with_seed(&stored[..CHECKSUM_AT], file_len);
        if u64_at(stored, CHECKSUM_AT) != Some(checksum) {
            return Err(wrong("the footer's checksum is wrong"));
        }
        let needed = u16_at(stored, 74).ok_or_else(|| wrong("a short footer"))?;
        if needed > FORMAT_VERSION {
            return Err(Error::NewerFormat { file, needed, known: FORMAT_VERSION });
        }
        Footer::decode_checked(stored, start).ok_or_else(|| wrong("the footer's handles are wrong"))
    }

    fn decode_checked(stored: &[u8], start: u64) -> Option<Footer> {
        let file = FileId { session: u64_at(stored, 0)?, counter: u64_at(stored, 8)? };
        let handle = |at: usize, kind| -> Option<Option<BlockHandle>> {
            let (offset, len) = (u64_at(stored, at)?, u32_at(stored, at + 8)?);
            if (offset, len) == (0, 0) {
                return Some(None);
            }
            let handle = BlockHandle { offset, len, kind };
            (handle.end()? <= start).then_some(Some(handle))
        };
        let data_end = u64_at(stored, 64)?;
        Some(Footer {
            file,
            row_filter: handle(16, BlockKind::RowFilter)?,
            column_filter: handle(28, BlockKind::ColumnFilter)?,
            top_index: handle(40, BlockKind::TopIndex)??,
            properties: handle(52, BlockKind::Properties)??,
            data_end: (data_end <= start).then_some(data_end)?,
            written_by: u16_at(stored, 72)?,
        })
    }
}
