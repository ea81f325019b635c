use crate::Timestamp;

/// A half-open run of timestamps, `[start, end)`; without an end it is open to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimestampRange {
    /// The oldest timestamp inside.
    pub start: Timestamp,
    /// The first timestamp past it.
    pub end: Option<Timestamp>,
}

impl TimestampRange {
    /// Every timestamp.
    pub const ALL: TimestampRange = TimestampRange { start: Timestamp::ZERO, end: None };

    /// Is `at` inside?
    pub fn contains(&self, at: Timestamp) -> bool {
        at >= self.start && self.end.is_none_or(|end| at < end)
    }

    /// The stored form: a cell-range tombstone's value (see [`crate::key`]).
    pub fn encode(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.start.micros().to_be_bytes());
        out[8..].copy_from_slice(&self.end.map_or(0, Timestamp::micros).to_be_bytes());
        out
    }

    /// Reads the stored form. `None` when it is not one: damaged, empty or inverted.
    pub fn decode(stored: &[u8]) -> Option<TimestampRange> {
        let stored: &[u8; 16] = stored.try_into().ok()?;
        let (start, end) = stored.split_at(8);
        let read =
            |bytes: &[u8]| Timestamp::from_micros(i64::from_be_bytes(bytes.try_into().ok()?));
        let (start, end) = (read(start)?, read(end)?);
        let end = (end != Timestamp::ZERO).then_some(end);
        end.is_none_or(|end| start < end).then_some(TimestampRange { start, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_reads_back_and_an_inverted_one_is_refused() {
        let at = |micros| Timestamp::from_micros(micros).unwrap();
        for range in [
            TimestampRange::ALL,
            TimestampRange { start: at(5), end: Some(at(6)) },
            TimestampRange { start: at(0), end: Some(Timestamp::MAX) },
        ] {
            assert_eq!(TimestampRange::decode(&range.encode()), Some(range));
        }
        let inverted = TimestampRange { start: at(6), end: Some(at(6)) };
        assert_eq!(TimestampRange::decode(&inverted.encode()), None);
        assert_eq!(TimestampRange::decode(&[0xff; 16]), None);
        assert_eq!(TimestampRange::decode(&[0; 15]), None);
    }
}
