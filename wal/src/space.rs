//! Space for frames that are not written yet, so that a commit never meets a full disk.
//!
//! What is promised: whatever has been reserved fits, in whatever groups it will be framed. `T`
//! being the bytes of all outstanding reservations (and of the end mark), one of these holds:
//!
//! - `T` fits what is left of the current segment, or
//! - `T` fits one prepared segment.
//!
//! In the second case frames go into the current segment while they fit it; the first one that does
//! not moves on to the prepared segment, where all that can still come fits. Adding up the rooms of
//! several segments would promise too much: a group of reservations becomes one frame, which may be
//! larger than what any of them has left. Reservations end after their frames were written, so `T`
//! only ever counts too much.

use std::collections::VecDeque;

use storage::BlockingLog;

use crate::format::{FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentName};

const END_MARK_BYTES: u64 = FRAME_HEADER_BYTES as u64;
const HEADER_BYTES: u64 = SEGMENT_HEADER_BYTES as u64;

/// A segment that has its space and is not begun.
pub(crate) struct Prepared {
    pub(crate) name: SegmentName,
    pub(crate) log: Box<dyn BlockingLog>,
    /// Bytes for frames, the header already taken off.
    pub(crate) room: u64,
}

/// Who may write how much.
pub(crate) struct Space {
    outstanding: u64,
    /// Bytes for frames in the current segment, and how many it had when it was begun.
    room: u64,
    whole_room: u64,
    prepared: VecDeque<Prepared>,
}

impl Space {
    /// Starts with a current segment that is empty.
    pub(crate) fn new(room: u64) -> Space {
        Space { outstanding: END_MARK_BYTES, room, whole_room: room, prepared: VecDeque::new() }
    }

    /// Sets `bytes` aside; `false` when a segment must be prepared first.
    pub(crate) fn reserve(&mut self, bytes: u64) -> bool {
        let fits = self.fits(bytes);
        if fits {
            self.outstanding += bytes;
        }
        fits
    }

    /// Ends a reservation.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        assert!(self.outstanding >= bytes + END_MARK_BYTES, "a reservation ends once");
        self.outstanding -= bytes;
    }

    fn fits(&self, bytes: u64) -> bool {
        let total = self.outstanding.saturating_add(bytes);
        self.room >= total || self.prepared.iter().any(|segment| segment.room >= total)
    }

    /// Is it time to prepare the next segment, although nobody waits for it yet?
    pub(crate) fn wants_ahead(&self, segments_ahead: usize) -> bool {
        self.prepared.len() < segments_ahead && self.room <= self.whole_room / 2
    }

    /// How long a segment to prepare so that `bytes` more can be reserved; `None` when they can be
    /// already and enough segments stand ready.
    pub(crate) fn plan(&self, bytes: u64, usual: u64, segments_ahead: usize) -> Option<u64> {
        if self.fits(bytes) && !self.wants_ahead(segments_ahead) {
            return None;
        }
        let needed = self.outstanding.saturating_add(bytes).saturating_add(HEADER_BYTES);
        if needed <= usual {
            return Some(usual);
        }
        // Doubling, so that reservations that grow bit by bit prepare a bounded multiple of them.
        Some(needed.checked_next_power_of_two().unwrap_or(needed))
    }

    /// Adds a segment at the end of those that stand ready.
    pub(crate) fn add(&mut self, name: SegmentName, log: Box<dyn BlockingLog>) {
        let room = log.reserved().saturating_sub(HEADER_BYTES);
        self.prepared.push_back(Prepared { name, log, room });
    }

    /// Does a frame of `bytes` fit the current segment?
    pub(crate) fn fits_current(&self, bytes: u64) -> bool {
        self.room >= bytes
    }

    /// Does it fit one that stands ready?
    pub(crate) fn fits_prepared(&self, bytes: u64) -> bool {
        self.prepared.iter().any(|segment| segment.room >= bytes)
    }

    /// Makes the next prepared segment the current one.
    pub(crate) fn advance(&mut self) -> Option<Prepared> {
        let next = self.prepared.pop_front()?;
        self.room = next.room;
        self.whole_room = next.room;
        Some(next)
    }

    /// A frame was written to the current segment.
    pub(crate) fn used(&mut self, bytes: u64) {
        assert!(self.room >= bytes, "a frame was written past the segment's space");
        self.room -= bytes;
    }

    /// Takes away the segments that stand ready: the log ends.
    pub(crate) fn drain(&mut self) -> Vec<Prepared> {
        self.prepared.drain(..).collect()
    }
}
