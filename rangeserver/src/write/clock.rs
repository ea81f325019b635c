//! The server's timestamps: what a cell gets that asks for the server's time.
//!
//! A range hands out `max(now, last)`, truncated to the table's granule: never decreasing, though
//! the wall clock may jump back, and not strictly increasing, because commit order decides between
//! equal timestamps. `last` outlives a restart as an upper bound kept with the range. A wall clock
//! that once ran ahead must not hold a range in the future for ever: what is handed out is at most
//! [`DRIFT_MICROS_MAX`] ahead of the wall clock.

use types::{Granularity, Timestamp};

/// How far ahead of the wall clock a timestamp may be, microseconds.
pub(crate) const DRIFT_MICROS_MAX: i64 = 1_000_000;

/// The timestamps of one range. Used under the lock that sequences its batches.
#[derive(Debug)]
pub(crate) struct ServerTime {
    last: Timestamp,
}

impl ServerTime {
    /// Goes on after `last`, which no earlier owner of the range exceeded.
    pub(crate) fn after(last: Timestamp) -> ServerTime {
        ServerTime { last }
    }

    /// The timestamp of a batch that is sequenced at `now_micros`.
    pub(crate) fn next(&mut self, now_micros: i64, granularity: Granularity) -> Timestamp {
        let clamp = |micros: i64| Timestamp::from_micros(micros.max(0)).unwrap_or_default();
        let newest = clamp(now_micros.saturating_add(DRIFT_MICROS_MAX));
        let at = clamp(now_micros).max(self.last).min(newest);
        self.last = at.truncated(granularity.micros());
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_600_000_000_000_000;

    fn next(time: &mut ServerTime, now: i64) -> i64 {
        time.next(now, Granularity::Millis).micros()
    }

    #[test]
    fn time_never_goes_back_with_the_wall_clock() {
        let mut time = ServerTime::after(Timestamp::ZERO);
        assert_eq!(next(&mut time, NOW + 5_999), NOW + 5_000);
        assert_eq!(next(&mut time, NOW + 5_999), NOW + 5_000, "it need not advance");
        assert_eq!(next(&mut time, NOW - 900_000), NOW + 5_000);
        assert_eq!(next(&mut time, NOW + 6_000), NOW + 6_000);
    }

    #[test]
    fn a_clock_that_ran_far_ahead_does_not_hold_the_range_there() {
        let far = Timestamp::from_micros(NOW + 3_600_000_000).unwrap();
        let mut time = ServerTime::after(far);
        assert_eq!(next(&mut time, NOW), NOW + DRIFT_MICROS_MAX);
    }

    #[test]
    fn a_table_of_microseconds_keeps_them_and_a_clock_before_the_epoch_is_zero() {
        let mut time = ServerTime::after(Timestamp::ZERO);
        assert_eq!(time.next(-5, Granularity::Micros), Timestamp::ZERO);
        assert_eq!(time.next(NOW + 7, Granularity::Micros).micros(), NOW + 7);
    }
}
