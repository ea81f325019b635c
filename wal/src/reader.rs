//! Reads a sealed log from its oldest segment to its end, and tells a torn end from damage.
//!
//! The rules stand in [`crate::format`]; in short, the first place without a good frame is the end
//! unless something later shows that it was durable once: a later segment (which was begun only
//! after all before it was synced) or a later frame whose `synced_to` lies past it.

use std::collections::VecDeque;
use std::sync::Arc;

use storage::{FileSystem, Path, SealedLog};
use types::SessionId;

use crate::format::{FrameHeader, OwnedEntry, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::segment::{Found, Segment};
use crate::{Error, Position, Result};

/// One commit group, read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where it begins.
    pub position: Position,
    /// Where it ends.
    pub end: Position,
    /// Its number in the session.
    pub number: u64,
    /// What it holds, in the order of the append.
    pub entries: Vec<OwnedEntry>,
}

/// Reads the frames of one log in order.
///
/// What it has returned is as it was written, even if a later call finds damage. But a log that has
/// damage must be refused as a whole: nothing may be built on it before the end was reached.
pub struct LogReader {
    /// Those not read to their end; the first is being read.
    segments: VecDeque<Segment>,
    offset: u64,
    last_frame: u64,
    must_end_cleanly: bool,
    end: Option<End>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Mark,
    Torn,
}

impl std::fmt::Debug for LogReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogReader")
            .field("segments", &self.segments.len())
            .field("offset", &self.offset)
            .field("last_frame", &self.last_frame)
            .finish_non_exhaustive()
    }
}

/// Opens a sealed log for reading; `sealed` is what [`FileSystem::seal`] answered for `folder`, now
/// or when it was recorded: the lengths are upper bounds.
///
/// # Errors
/// `Corrupt` when segments are missing or contradict one another; `FailedPrecondition` when a newer
/// version wrote them; those of reading.
pub async fn recover(
    files: &Arc<dyn FileSystem>,
    folder: &Path,
    sealed: Vec<SealedLog>,
) -> Result<LogReader> {
    let mut segments = Vec::with_capacity(sealed.len());
    for SealedLog { path, len } in sealed {
        if path.parent() != *folder {
            return Err(Error::corrupt(&path, 0, "the segment lies in another folder"));
        }
        segments.push(Segment::open(files, &path, len).await?);
    }
    segments.sort_by_key(|segment| segment.name);
    let session = SessionId::parse(folder.name());
    for segment in &segments {
        if segment.header.is_some_and(|header| Some(header.session) != session) {
            return Err(segment.corrupt(0, "it belongs to another session's log"));
        }
    }
    for pair in segments.windows(2) {
        if let [before, after] = pair {
            check_neighbours(before, after)?;
        }
    }
    let mut last_frame = 0;
    if let Some(oldest) = segments.first() {
        match &oldest.header {
            Some(header) => last_frame = header.predecessor.map_or(0, |before| before.last_frame),
            None if oldest.name.number == 1 => {}
            None => return Err(oldest.corrupt(0, "the header of the oldest segment is damaged")),
        }
    }
    Ok(LogReader {
        segments: segments.into(),
        offset: SEGMENT_HEADER_BYTES as u64,
        last_frame,
        must_end_cleanly: false,
        end: None,
    })
}

fn check_neighbours(before: &Segment, after: &Segment) -> Result<()> {
    if before.name.number.checked_add(1) != Some(after.name.number) {
        let what = format!("segment {} does not follow number {}", after.name, before.name.number);
        return Err(after.corrupt(0, what));
    }
    let Some(header) = &after.header else {
        return Ok(());
    };
    if before.header.is_none() {
        return Err(before.corrupt(0, "its header is damaged: a later segment was begun"));
    }
    if header.predecessor.is_none_or(|named| named.seed != before.name.seed) {
        return Err(after.corrupt(0, "it follows another segment"));
    }
    Ok(())
}

/// One good frame of the current segment.
struct Read {
    header: FrameHeader,
    entries: Vec<OwnedEntry>,
}

impl LogReader {
    /// Demands the end mark: for a log that is recorded elsewhere as closed.
    #[must_use]
    pub fn must_end_cleanly(mut self) -> LogReader {
        self.must_end_cleanly = true;
        self
    }

    /// Did the log end with the mark of a clean close? Known once [`LogReader::next`] has returned
    /// `None`.
    pub fn ended_cleanly(&self) -> bool {
        self.end == Some(End::Mark)
    }

    /// The next frame; `None` at the end.
    ///
    /// # Errors
    /// `Corrupt` when the log is damaged (and again at every further call); those of reading.
    pub async fn next(&mut self) -> Result<Option<Frame>> {
        while self.end.is_none() {
            if let Some(frame) = self.step().await? {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    /// Reads one frame, or goes on to the next segment, or finds the end.
    async fn step(&mut self) -> Result<Option<Frame>> {
        let Some(segment) = self.segments.front() else {
            return self.finish(End::Torn, None);
        };
        if segment.header.is_none() {
            self.check_torn(0).await?;
            return self.finish(End::Torn, Some(0));
        }
        let next = self.segments.get(1).and_then(|next| next.header);
        if let Some(next) = &next
            && self.is_complete(next)
        {
            self.segments.pop_front();
            self.offset = SEGMENT_HEADER_BYTES as u64;
            return Ok(None);
        }
        let Some(frame) = self.read_frame().await? else {
            if let Some(next) = &next {
                return Err(self.incomplete(next));
            }
            self.check_torn(self.offset).await?;
            return self.finish(End::Torn, Some(self.offset));
        };
        if frame.header.is_end {
            return self.finish_at_mark(next.as_ref());
        }
        Ok(Some(self.accept(frame)))
    }

    /// Does the current segment end here, as its successor recorded?
    fn is_complete(&self, next: &SegmentHeader) -> bool {
        next.predecessor.is_some_and(|recorded| {
            recorded.len == self.offset && recorded.last_frame == self.last_frame
        })
    }

    fn incomplete(&self, next: &SegmentHeader) -> Error {
        let recorded = next.predecessor.map_or((0, 0), |before| (before.len, before.last_frame));
        let what = format!(
            "no good frame after number {}, but the next segment vouches for {} bytes up to frame \
             {}",
            self.last_frame, recorded.0, recorded.1
        );
        self.corrupt(what)
    }

    /// The frame at the current offset, if a good one is there.
    async fn read_frame(&mut self) -> Result<Option<Read>> {
        let offset = self.offset;
        let Some(segment) = self.segments.front_mut() else {
            return Ok(None);
        };
        let Found::Frame(header, entries) = segment.frame_at(offset).await? else {
            return Ok(None);
        };
        if Some(header.number) != self.last_frame.checked_add(1) {
            let what =
                format!("frame {} where {} ended the part before", header.number, self.last_frame);
            return Err(self.corrupt(what));
        }
        if header.synced_to > offset {
            return Err(self.corrupt("a frame claims its own durability"));
        }
        Ok(Some(Read { header, entries }))
    }

    fn accept(&mut self, Read { header, entries }: Read) -> Frame {
        let segment = self.segments.front().map_or(0, |segment| segment.name.number);
        let position = Position { segment, offset: self.offset };
        self.offset += header.frame_len();
        self.last_frame = header.number;
        let end = Position { segment, offset: self.offset };
        Frame { position, end, number: header.number, entries }
    }

    /// The end without a mark: fails if anything later shows that `offset` was durable.
    async fn check_torn(&self, offset: u64) -> Result<()> {
        let mut threshold = Some(offset);
        let mut start = offset;
        for (behind, segment) in self.segments.iter().enumerate() {
            if let Some((at, header)) = segment.evidence_after(start, threshold).await? {
                let what = format!(
                    "no good frame, but frame {} in {} at {at} shows that this was durable",
                    header.number, segment.name
                );
                return Err(self.segments[0].corrupt(offset, what));
            }
            // The segment after a begun one may have been torn as it was begun; past a segment
            // that was not begun nothing can be.
            let first_unbegun = behind == 0 && self.segments[0].header.is_some();
            threshold = first_unbegun.then_some(0);
            start = 0;
        }
        Ok(())
    }

    fn finish(&mut self, end: End, offset: Option<u64>) -> Result<Option<Frame>> {
        if end == End::Torn && self.must_end_cleanly {
            let what = "the log was closed cleanly, but its end mark is missing";
            let path = self.segments.front().map_or(Path::root(), |segment| segment.path.clone());
            return Err(Error::corrupt(&path, offset.unwrap_or(0), what));
        }
        self.end = Some(end);
        Ok(None)
    }

    fn finish_at_mark(&mut self, next: Option<&SegmentHeader>) -> Result<Option<Frame>> {
        if next.is_some() {
            return Err(self.corrupt("a segment was begun after the end mark"));
        }
        self.finish(End::Mark, None)
    }

    fn corrupt(&self, what: impl Into<String>) -> Error {
        let path = self.segments.front().map_or(Path::root(), |segment| segment.path.clone());
        Error::corrupt(&path, self.offset, what)
    }
}
