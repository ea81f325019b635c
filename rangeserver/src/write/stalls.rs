//! Writers of a range that are slowed or stopped: told as events when it begins and ends, and
//! counted, so that nobody has to guess why writes take long.
//!
//! - *Slowed*: a writer waits a moment because merges or flushes fall behind. It begins with the
//!   first such writer, and ends with the first one that need not wait or, when none comes, with
//!   the next look of the flush task; the reason is the first one's.
//! - *Stopped*: a writer waits until there is room. It begins with the first, and ends with the
//!   last that waits; the reason is the first one's.
//!
//! Times that are counted are the writers', added up: two that wait for a second are two seconds.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lsm::{Event, Reason};
use types::RangeActivity;

/// See the module's words.
#[derive(Debug, Default)]
pub(crate) struct Stalls(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    slowed: Option<(Duration, Reason)>,
    /// Writers that wait, why, and since when the first of them does.
    stopped: Option<Stopped>,
    counts: Counts,
}

#[derive(Debug)]
struct Stopped {
    writers: u64,
    reason: Reason,
    since: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    slowed_writes: u64,
    slowed: Duration,
    stopped_writes: u64,
    stopped: Duration,
}

impl Stalls {
    /// A writer is about to wait for `delay`, or need not if it is zero.
    pub(crate) fn slow(&self, now: Duration, delay: Duration, reason: Reason) -> Option<Event> {
        if delay.is_zero() {
            return self.end_slow(now);
        }
        let mut state = self.state();
        state.counts.slowed_writes += 1;
        state.counts.slowed += delay;
        if state.slowed.is_some() {
            return None;
        }
        state.slowed = Some((now, reason));
        Some(Event::SlowdownStarted { reason, delay })
    }

    /// Writers need not be slowed any more.
    pub(crate) fn end_slow(&self, now: Duration) -> Option<Event> {
        let (since, reason) = self.state().slowed.take()?;
        Some(Event::SlowdownFinished { reason, duration: now.saturating_sub(since) })
    }

    /// A writer begins to wait for room.
    pub(crate) fn stop(&self, now: Duration, reason: Reason) -> Option<Event> {
        let mut state = self.state();
        state.counts.stopped_writes += 1;
        if let Some(stopped) = &mut state.stopped {
            stopped.writers += 1;
            return None;
        }
        state.stopped = Some(Stopped { writers: 1, reason, since: now });
        Some(Event::StallStarted { reason })
    }

    /// A writer has waited for `waited`: it goes on, is refused, or has left.
    pub(crate) fn go_on(&self, now: Duration, waited: Duration) -> Option<Event> {
        let mut state = self.state();
        state.counts.stopped += waited;
        let stopped = state.stopped.as_mut().expect("who goes on was stopped");
        stopped.writers -= 1;
        if stopped.writers > 0 {
            return None;
        }
        let Stopped { reason, since, .. } = state.stopped.take()?;
        Some(Event::StallFinished { reason, duration: now.saturating_sub(since) })
    }

    /// Adds what was counted to what the range's storage has done.
    pub(crate) fn add_to(&self, activity: RangeActivity) -> RangeActivity {
        let counts = self.state().counts;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        RangeActivity {
            slowed_writes: counts.slowed_writes,
            slowed_micros: micros(counts.slowed),
            stopped_writes: counts.stopped_writes,
            stopped_micros: micros(counts.stopped),
            ..activity
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_slowdown_begins_with_the_first_writer_that_waits_and_ends_with_one_that_need_not() {
        let (stalls, reason) = (Stalls::default(), Reason::MemoryPressure);
        assert_eq!(stalls.slow(at(5), Duration::ZERO, reason), None);
        let begins = Event::SlowdownStarted { reason, delay: at(3) };
        assert_eq!(stalls.slow(at(10), at(3), reason), Some(begins));
        assert_eq!(stalls.slow(at(20), at(4), Reason::LevelZeroRuns), None);
        let ends = Event::SlowdownFinished { reason, duration: at(15) };
        assert_eq!(stalls.slow(at(25), Duration::ZERO, reason), Some(ends));
        assert_eq!(stalls.end_slow(at(26)), None);
        let counted = stalls.add_to(RangeActivity::default());
        assert_eq!((counted.slowed_writes, counted.slowed_micros), (2, 7_000));
        assert_eq!((counted.stopped_writes, counted.stopped_micros), (0, 0));
    }

    #[test]
    fn a_stall_lasts_from_the_first_writer_to_the_last() {
        let stalls = Stalls::default();
        let reason = Reason::MemoryPressure;
        assert_eq!(stalls.stop(at(10), reason), Some(Event::StallStarted { reason }));
        assert_eq!(stalls.stop(at(12), Reason::LogPressure), None);
        assert_eq!(stalls.go_on(at(20), at(10)), None);
        let ends = Event::StallFinished { reason, duration: at(12) };
        assert_eq!(stalls.go_on(at(22), at(10)), Some(ends));
        let counted = stalls.add_to(RangeActivity::default());
        assert_eq!((counted.stopped_writes, counted.stopped_micros), (2, 20_000));
    }
}
