//! Memory of the process that nobody counts: free pieces between used ones, buffers of connections,
//! code.
//!
//! Some of it is allowed for. What is past that was seen to come in bursts, with what is large, so
//! the most that was seen is expected again, and fades slowly; and before any is seen, a part of
//! the budget is kept from what is large.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// What a process may hold besides what is counted.
const ALLOWED_BYTES: u64 = 24 << 20;
/// What was seen is taken for needed again: by one of so many parts less with each look.
const FADES: u64 = 512;
/// One of so many parts of the budget is kept from what is large: where much is taken and given
/// back, about as much lies free in between.
const LIKELY_PARTS: u64 = 8;

/// The most of it that was seen, past what is allowed for; it fades.
#[derive(Debug, Default)]
pub(super) struct Uncounted(AtomicU64);

impl Uncounted {
    /// The process has `resident` bytes, of which `counted` are counted. How many are past that and
    /// what is allowed for now, and whether less is expected than before.
    pub(super) fn note(&self, resident: u64, counted: u64) -> (u64, bool) {
        let now = resident.saturating_sub(counted).saturating_sub(ALLOWED_BYTES);
        let before = self.bytes();
        let expected = now.max(before.saturating_sub(before / FADES + 1));
        self.0.store(expected, SeqCst);
        (now, expected < before)
    }

    /// Bytes that are expected.
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(SeqCst)
    }

    /// Bytes that are likely beside something large, in a budget of `all` bytes.
    pub(super) fn likely(&self, all: u64) -> u64 {
        self.bytes().max(all / LIKELY_PARTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_that_was_seen_is_expected_and_fades() {
        const MIB: u64 = 1 << 20;
        let uncounted = Uncounted::default();
        assert_eq!(uncounted.note(124 * MIB, 100 * MIB), (0, false), "it is allowed for");
        assert_eq!(uncounted.note(224 * MIB, 100 * MIB), (100 * MIB, false));
        assert_eq!(uncounted.note(100 * MIB, 100 * MIB), (0, true));
        assert!((99 * MIB..100 * MIB).contains(&uncounted.bytes()));
        assert_eq!(uncounted.likely(1600 * MIB), 200 * MIB);
        for _ in 0..20_000 {
            uncounted.note(0, 0);
        }
        assert_eq!((uncounted.bytes(), uncounted.likely(80)), (0, 10));
    }
}
