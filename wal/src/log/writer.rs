use storage::BlockingLog;
use types::SessionId;

use super::{Books, Inner, Position, State};
use crate::format::{
    Borrowed, Entry, FRAME_HEADER_BYTES, Place, Predecessor, SEGMENT_HEADER_BYTES, SegmentHeader,
    SegmentName, put_end_mark, put_frame,
};
use crate::{Error, Result};

/// Bytes of the frame buffer that are kept from one frame to the next.
const BUFFER_KEPT_MAX: usize = 4 << 20;

/// Holds the current segment.
pub(super) struct Writer {
    session: SessionId,
    name: SegmentName,
    predecessor: Option<Predecessor>,
    log: Box<dyn BlockingLog>,
    last_frame: u64,
    buffer: Vec<u8>,
}

impl Writer {
    pub(super) fn new(session: SessionId, name: SegmentName, log: Box<dyn BlockingLog>) -> Writer {
        Writer { session, name, predecessor: None, log, last_frame: 0, buffer: Vec::new() }
    }

    /// Writes one frame of `bytes` bytes, in the next segment if this one is full.
    pub(super) fn append(
        &mut self,
        inner: &Inner,
        entries: &[Entry<'_>],
        bytes: u64,
    ) -> Result<Position> {
        self.make_room(inner, bytes)?;
        let (place, synced_to) = self.begin_frame(inner);
        let number = self.last_frame + 1;
        let borrowed = put_frame(&mut self.buffer, place, number, synced_to, entries);
        self.write_frame(inner, &borrowed, bytes)
    }

    /// Makes everything appended durable.
    pub(super) fn sync(&mut self, inner: &Inner) -> Result<Position> {
        let (end, synced) = {
            let books = inner.books();
            books.check()?;
            (books.end, books.synced)
        };
        if synced < end {
            self.log.sync().map_err(|error| inner.poison(error))?;
            inner.books().synced = end;
        }
        Ok(end)
    }

    /// Writes the end mark between two syncs.
    pub(super) fn close(&mut self, inner: &Inner) -> Result<()> {
        self.sync(inner)?;
        let bytes = FRAME_HEADER_BYTES as u64;
        self.make_room(inner, bytes)?;
        let (place, synced_to) = self.begin_frame(inner);
        put_end_mark(&mut self.buffer, place, self.last_frame + 1, synced_to);
        self.write_frame(inner, &[], bytes)?;
        self.sync(inner)?;
        inner.books().state = State::Closed;
        Ok(())
    }

    /// Moves on through prepared segments until a frame of `bytes` fits.
    fn make_room(&mut self, inner: &Inner, bytes: u64) -> Result<()> {
        loop {
            {
                let books = inner.books();
                books.check()?;
                if books.space.fits_current(bytes) {
                    return Ok(());
                }
                if !books.space.fits_prepared(bytes) {
                    return Err(Error::NotReserved { bytes });
                }
            }
            self.finish_segment(inner)?;
            self.advance(&mut inner.books());
        }
    }

    /// Makes the current segment final. One that no frame fitted still gets its header, so that
    /// the next can name it.
    fn finish_segment(&mut self, inner: &Inner) -> Result<()> {
        if self.log.is_empty() {
            let header = self.header().encode();
            self.log.append(&header).map_err(|error| inner.poison(error))?;
            inner.books().end.offset = self.log.len();
        }
        self.sync(inner).map(drop)
    }

    fn advance(&mut self, books: &mut Books) {
        let next = books.space.advance().expect("a segment that stands ready was seen");
        assert_eq!(next.name.number, self.name.number + 1, "segments are begun in order");
        let len = self.log.len();
        books.finished.insert(self.name.number, (self.name, len));
        books.end = Position { segment: next.name.number, offset: 0 };
        self.predecessor =
            Some(Predecessor { seed: self.name.seed, len, last_frame: self.last_frame });
        self.name = next.name;
        self.log = next.log;
    }

    fn header(&self) -> SegmentHeader {
        SegmentHeader { session: self.session, name: self.name, predecessor: self.predecessor }
    }

    /// Clears the buffer, puts the segment's header there if it is still due, and says where the
    /// frame will stand and up to where the segment is durable.
    fn begin_frame(&mut self, inner: &Inner) -> (Place, u64) {
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT_MAX);
        let mut offset = self.log.len();
        if offset == 0 {
            let header = self.header().encode();
            self.buffer.extend_from_slice(&header);
            offset = SEGMENT_HEADER_BYTES as u64;
        }
        let synced = inner.books().synced;
        let synced_to = if synced.segment == self.name.number { synced.offset } else { 0 };
        (Place { seed: self.name.seed, offset }, synced_to)
    }

    /// Writes the buffer with all that is borrowed put in.
    fn write_frame(
        &mut self,
        inner: &Inner,
        borrowed: &[Borrowed<'_>],
        bytes: u64,
    ) -> Result<Position> {
        let mut from = 0;
        for (at, part) in borrowed.iter().copied().chain([(self.buffer.len(), &[][..])]) {
            for piece in [&self.buffer[from..at], part].into_iter().filter(|it| !it.is_empty()) {
                self.log.append(piece).map_err(|error| inner.poison(error))?;
            }
            from = at;
        }
        self.last_frame += 1;
        let mut books = inner.books();
        books.space.used(bytes);
        books.end.offset = self.log.len();
        Ok(books.end)
    }
}
