//! Which ranges to flush, and why: plain numbers in, a list out.
//!
//! 1. A range with a frozen memtable, or a full active one, is flushed.
//! 2. When the memtables fill more than three quarters of what they may, the largest follow, until
//!    what is left is below half of it; likewise when somebody waits for them to come down.
//! 3. When the log holds more than three quarters of what it may, the ranges that pin its oldest
//!    segment follow (a cold range must not pin the log); when it is full, all that pin any but the
//!    current one.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use lsm::Reason;

/// What one range weighs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeLoad {
    /// Bytes of its memtables.
    pub(crate) bytes: u64,
    /// Frozen memtables that wait for their flush.
    pub(crate) frozen: usize,
    /// Is its active memtable full?
    pub(crate) wants_freeze: bool,
    /// The oldest log segment that it needs.
    pub(crate) oldest_segment: Option<u64>,
}

/// How tight memory and log are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pressure {
    /// Bytes that all memtables may take.
    pub(crate) memtables_most: u64,
    /// Bytes that they are to come down to.
    pub(crate) goal: Option<u64>,
    /// Bytes that the log holds.
    pub(crate) log_retained: u64,
    /// Bytes that the log may hold.
    pub(crate) log_bytes_max: u64,
    /// The segment that is being written.
    pub(crate) current_segment: u64,
}

/// The places (in `loads`) of the ranges to flush, and why.
pub(crate) fn plan(loads: &[RangeLoad], pressure: &Pressure) -> Vec<(usize, Reason)> {
    let mut chosen: BTreeMap<usize, Reason> = BTreeMap::new();
    for (place, load) in loads.iter().enumerate() {
        if load.wants_freeze || load.frozen > 0 {
            chosen.insert(place, Reason::MemtableFull);
        }
    }
    let total: u64 = loads.iter().map(|load| load.bytes).sum();
    let is_short = total > pressure.memtables_most / 4 * 3;
    let enough = if is_short { pressure.memtables_most / 2 } else { u64::MAX };
    let enough = enough.min(pressure.goal.unwrap_or(u64::MAX));
    if total > enough {
        let mut largest: Vec<usize> = (0..loads.len()).collect();
        largest.sort_by_key(|place| Reverse(loads[*place].bytes));
        let mut left = total;
        for place in largest {
            let load = &loads[place];
            if left <= enough || load.oldest_segment.is_none() {
                break;
            }
            left = left.saturating_sub(load.bytes);
            chosen.entry(place).or_insert(Reason::MemoryPressure);
        }
    }
    if pressure.log_retained > pressure.log_bytes_max / 4 * 3 {
        let oldest = loads.iter().filter_map(|load| load.oldest_segment).min();
        let is_full = pressure.log_retained >= pressure.log_bytes_max;
        for (place, load) in loads.iter().enumerate() {
            let Some(segment) = load.oldest_segment else {
                continue;
            };
            let pins_oldest = Some(segment) == oldest;
            if segment < pressure.current_segment && (pins_oldest || is_full) {
                chosen.entry(place).or_insert(Reason::LogPressure);
            }
        }
    }
    chosen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Pressure = Pressure {
        memtables_most: 1000,
        goal: None,
        log_retained: 0,
        log_bytes_max: 1000,
        current_segment: 9,
    };

    fn load(bytes: u64, segment: u64) -> RangeLoad {
        RangeLoad { bytes, oldest_segment: Some(segment), ..RangeLoad::default() }
    }

    #[test]
    fn full_and_frozen_memtables_are_flushed_and_others_left() {
        let full = RangeLoad { wants_freeze: true, ..load(10, 8) };
        let frozen = RangeLoad { frozen: 1, ..load(10, 8) };
        let expected = [(1, Reason::MemtableFull), (2, Reason::MemtableFull)];
        assert_eq!(plan(&[load(10, 1), full, frozen], &CALM), expected);
    }

    #[test]
    fn when_memory_is_short_the_largest_are_flushed_until_half_is_free() {
        let loads = [load(100, 1), load(400, 2), load(300, 3), load(50, 4)];
        assert_eq!(plan(&loads, &CALM), [(1, Reason::MemoryPressure)]);
        let wanted = Pressure { goal: Some(500), ..CALM };
        assert_eq!(plan(&loads, &wanted), [(1, Reason::MemoryPressure)]);
        let wanted = Pressure { goal: Some(200), ..CALM };
        assert_eq!(plan(&loads, &wanted).len(), 2);
        assert_eq!(plan(&loads, &Pressure { goal: Some(850), ..CALM }).len(), 1);
        let idle = RangeLoad { bytes: 900, ..RangeLoad::default() };
        assert_eq!(plan(&[idle], &CALM), [], "an unused memtable frees nothing");
    }

    #[test]
    fn a_cold_range_does_not_pin_the_log() {
        let loads = [load(10, 7), load(10, 2), load(10, 9), RangeLoad::default()];
        let tight = Pressure { log_retained: 760, ..CALM };
        assert_eq!(plan(&loads, &tight), [(1, Reason::LogPressure)]);
        let full = Pressure { log_retained: 1000, ..CALM };
        let expected = [(0, Reason::LogPressure), (1, Reason::LogPressure)];
        assert_eq!(plan(&loads, &full), expected);
        assert_eq!(plan(&[load(10, 9)], &full), [], "the current segment cannot go");
    }
}
