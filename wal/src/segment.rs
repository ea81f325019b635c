//! Reads one segment: its header, frames one by one, and frame headers anywhere.

use std::sync::Arc;

use bytes::Bytes;
use storage::{BlobReader, FileSystem, Path};
use types::ErrorKind;

use crate::format::{
    ALIGNMENT, FRAME_HEADER_BYTES, FRAME_PAYLOAD_BYTES_MAX, FrameHeader, HeaderError, OwnedEntry,
    Place, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentName, VERSION, decode_entries,
    payload_matches,
};
use crate::{Error, Result};

/// Bytes that are read at once, in memory of large pages; larger frames are read alone.
const WINDOW_BYTES: u64 = 8 << 20;

/// A segment open for reading.
pub(crate) struct Segment {
    pub(crate) path: Path,
    pub(crate) name: SegmentName,
    /// `None`: not begun, torn or damaged.
    pub(crate) header: Option<SegmentHeader>,
    blob: Arc<dyn BlobReader>,
    /// No byte at or past it counts.
    limit: u64,
    window: Bytes,
    window_start: u64,
}

/// What stands at an offset.
pub(crate) enum Found {
    /// A frame whose checksums hold.
    Frame(FrameHeader, Vec<OwnedEntry>),
    /// Anything else: why it is no frame.
    Nothing(&'static str),
}

impl Segment {
    /// Opens the segment at `path`, of which at most `len` bytes count.
    pub(crate) async fn open(
        files: &Arc<dyn FileSystem>,
        path: &Path,
        len: u64,
    ) -> Result<Segment> {
        let name = SegmentName::parse(path.name())
            .ok_or_else(|| Error::corrupt(path, 0, "its name is not a segment's"))?;
        let blob = match files.open(path).await {
            Err(gone) if gone.kind() == ErrorKind::NotFound => {
                return Err(Error::corrupt(path, 0, "the segment is missing"));
            }
            opened => opened?,
        };
        let limit = len.min(blob.len());
        let mut segment = Segment {
            path: path.clone(),
            name,
            header: None,
            blob,
            limit,
            window: Bytes::new(),
            window_start: 0,
        };
        let stored = segment.bytes_at(0, SEGMENT_HEADER_BYTES as u64).await?;
        segment.header = match SegmentHeader::decode(&stored.unwrap_or_default(), name) {
            Ok(header) => Some(header),
            Err(HeaderError::Absent) => None,
            Err(HeaderError::Wrong(what)) => return Err(segment.corrupt(0, what)),
            Err(HeaderError::TooNew(needed)) => {
                return Err(Error::TooNew { path: path.clone(), needed, known: VERSION });
            }
        };
        Ok(segment)
    }

    pub(crate) fn corrupt(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corrupt(&self.path, offset, what)
    }

    /// Reads the frame at `offset`.
    ///
    /// # Errors
    /// `Corrupt` when the checksums hold and the content is still wrong.
    pub(crate) async fn frame_at(&mut self, offset: u64) -> Result<Found> {
        let place = Place { seed: self.name.seed, offset };
        let header_len = FRAME_HEADER_BYTES as u64;
        let Some(stored) = self.bytes_at(offset, header_len).await? else {
            return Ok(Found::Nothing("the file ends"));
        };
        let Some(header) = FrameHeader::decode(&stored, place) else {
            return Ok(Found::Nothing("no frame header"));
        };
        if header.payload_len as usize > FRAME_PAYLOAD_BYTES_MAX {
            return Err(self.corrupt(offset, "a frame of impossible length"));
        }
        let padded = header.frame_len() - header_len;
        let Some(payload) = self.bytes_at(offset + header_len, padded).await? else {
            return Ok(Found::Nothing("the file ends inside the frame"));
        };
        if !payload_matches(&header, place, &payload) {
            return Ok(Found::Nothing("the payload does not match its checksum"));
        }
        let entries =
            decode_entries(&header, &payload).map_err(|what| self.corrupt(offset, what))?;
        Ok(Found::Frame(header, entries))
    }

    /// The first frame header after `offset` that says `synced_to > threshold` (any at all when
    /// there is no threshold), and where it stands. Whether its payload is whole does not matter:
    /// it was built when that much was durable.
    pub(crate) async fn evidence_after(
        &self,
        offset: u64,
        threshold: Option<u64>,
    ) -> Result<Option<(u64, FrameHeader)>> {
        let step = ALIGNMENT as u64;
        let header_len = FRAME_HEADER_BYTES as u64;
        let mut at = offset.saturating_add(step).next_multiple_of(step);
        while at.saturating_add(header_len) <= self.limit {
            let len = WINDOW_BYTES.min(self.limit - at);
            let chunk = self.blob.read_at(at, len as usize).await?;
            for within in FrameHeader::candidates(&chunk).filter(|place| place % ALIGNMENT == 0) {
                let place = Place { seed: self.name.seed, offset: at + within as u64 };
                let stored = chunk.get(within..).unwrap_or_default();
                if let Some(header) = FrameHeader::decode(stored, place)
                    && threshold.is_none_or(|threshold| header.synced_to > threshold)
                {
                    return Ok(Some((place.offset, header)));
                }
            }
            // To the first place whose header the chunk did not hold whole.
            at += (len - header_len) / step * step + step;
        }
        Ok(None)
    }

    /// `len` bytes from `offset`; `None` when the segment ends before. `len` is checked against
    /// the file before anything is allocated.
    async fn bytes_at(&mut self, offset: u64, len: u64) -> Result<Option<Bytes>> {
        if offset.checked_add(len).is_none_or(|end| end > self.limit) {
            return Ok(None);
        }
        let cached = self.window_start..self.window_start + self.window.len() as u64;
        if offset < cached.start || offset + len > cached.end {
            let wanted = WINDOW_BYTES.max(len).min(self.limit - offset);
            self.window = self.blob.read_at(offset, wanted as usize).await?;
            self.window_start = offset;
        }
        let start = (offset - self.window_start) as usize;
        Ok(Some(self.window.slice(start..start + len as usize)))
    }
}
