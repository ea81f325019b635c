//! One rate for all reads and writes of a server's files, shared out by what they are for.
//!
//! 1. Whoever reads or writes notes how many bytes. The notes say until when the disk is busy at
//!    the rate that is set.
//! 2. When that is too far ahead of the time, whoever matters less waits: a merge or a scrub at
//!    once, a read after [`READ_AHEAD_OF_TIME`], a flush after [`FLUSH_AHEAD_OF_TIME`], the log
//!    never. So under full load the log has what it needs, then flushes, then reads, and merges
//!    have the rest.
//!
//! A merge for whose sake writers are slowed counts as a flush: without it they would stand still.
//!
//! Invariants
//! - Without a rate nothing is noted and nobody waits.
//! - Time that was not used is not saved up, and the notes run at most [`AHEAD_OF_TIME_MAX`] ahead:
//!   a burst of the log holds others up for that long at most.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use env::Env;

/// How far the notes may be ahead before a read waits.
const READ_AHEAD_OF_TIME: Duration = Duration::from_millis(50);
/// How far the notes may be ahead before a flush waits.
const FLUSH_AHEAD_OF_TIME: Duration = Duration::from_millis(200);
/// How far ahead the notes may be at all.
const AHEAD_OF_TIME_MAX: Duration = Duration::from_millis(400);
/// Shorter sleeps are not worth their cost: they add up to a longer one.
const SLEEP_MIN: Duration = Duration::from_millis(2);

/// What bytes are read or written for, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IoClass {
    /// Acknowledging writes.
    Log,
    /// Making room for writes.
    Flush,
    /// Answering reads.
    Read,
    /// Merges and scrubs.
    Background,
}

impl IoClass {
    /// How far the notes may be ahead before it waits; `None`: it never does.
    fn patience(self) -> Option<Duration> {
        match self {
            IoClass::Log => None,
            IoClass::Flush => Some(FLUSH_AHEAD_OF_TIME),
            IoClass::Read => Some(READ_AHEAD_OF_TIME),
            IoClass::Background => Some(Duration::ZERO),
        }
    }
}

/// See the module. One for all ranges of a server.
#[derive(Debug)]
pub struct RateLimiter {
    env: Env,
    bytes_per_second: u64,
    busy_until: Mutex<Duration>,
}

impl RateLimiter {
    /// A limiter to so many bytes a second; 0: there is no limit.
    pub fn new(env: Env, bytes_per_second: u64) -> RateLimiter {
        RateLimiter { env, bytes_per_second, busy_until: Mutex::default() }
    }

    /// Notes bytes that are read or written now, without waiting.
    pub fn note(&self, bytes: u64) {
        if self.bytes_per_second == 0 {
            return;
        }
        let now = self.env.monotonic();
        let micros = u128::from(bytes) * 1_000_000 / u128::from(self.bytes_per_second);
        let takes = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        let mut busy_until = self.busy_until.lock().unwrap_or_else(PoisonError::into_inner);
        *busy_until = (*busy_until).max(now).saturating_add(takes).min(now + AHEAD_OF_TIME_MAX);
    }

    /// Waits until `class` has its turn, then notes its bytes.
    pub async fn spend(&self, class: IoClass, bytes: u64) {
        if self.bytes_per_second == 0 {
            return;
        }
        while let Some(wait) = self.wait_of(class) {
            self.env.sleep(wait).await;
        }
        self.note(bytes);
    }

    fn wait_of(&self, class: IoClass) -> Option<Duration> {
        let patience = class.patience()?;
        let busy_until = *self.busy_until.lock().unwrap_or_else(PoisonError::into_inner);
        let ahead = busy_until.saturating_sub(self.env.monotonic());
        ahead.checked_sub(patience).filter(|wait| *wait >= SLEEP_MIN)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const RATE: u64 = 1 << 20;

    /// Bytes that a class got through in a second while `others` wanted as much as they could get.
    async fn share(class: IoClass, others: &[IoClass]) -> u64 {
        let env = Env::simulated(1);
        let limiter = Arc::new(RateLimiter::new(env.clone(), RATE));
        let mut tasks = Vec::new();
        for other in others {
            let (limiter, env, other) = (Arc::clone(&limiter), env.clone(), *other);
            tasks.push(env.clone().spawn("another", async move {
                let end = env.monotonic() + Duration::from_secs(1);
                while env.monotonic() < end {
                    limiter.spend(other, 4 << 10).await;
                    // A log that never waits is bounded by its syncs.
                    env.sleep(Duration::from_millis(3)).await;
                }
            }));
        }
        let end = env.monotonic() + Duration::from_secs(1);
        let mut bytes = 0;
        while env.monotonic() < end {
            limiter.spend(class, 4 << 10).await;
            bytes += 4 << 10;
            env.yield_now().await;
            if class == IoClass::Log {
                env.sleep(Duration::from_millis(3)).await;
            }
        }
        for task in tasks {
            task.join().await;
        }
        bytes
    }

    #[tokio::test(start_paused = true)]
    async fn alone_every_class_but_the_log_gets_the_rate() {
        for class in [IoClass::Flush, IoClass::Read, IoClass::Background] {
            let bytes = share(class, &[]).await;
            let most = RATE + RATE * 4 / 10;
            assert!((RATE * 9 / 10..=most).contains(&bytes), "{class:?} got {bytes}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_matters_more_is_not_held_up_by_who_matters_less() {
        let logged = share(IoClass::Log, &[]).await;
        let beside = [IoClass::Flush, IoClass::Read, IoClass::Background];
        assert_eq!(share(IoClass::Log, &beside).await, logged, "the log never waits");
        // The log alone wants more than there is: 4 KiB every 3 ms.
        assert!(logged > RATE);
        let merged = share(IoClass::Background, &[IoClass::Log]).await;
        assert!(merged < RATE / 20, "a merge got {merged} bytes beside a busy log");
        let read = share(IoClass::Read, &[IoClass::Background]).await;
        assert!(read > RATE * 8 / 10, "reads got {read} bytes beside a merge");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_nobody_waits() {
        let env = Env::simulated(1);
        let limiter = RateLimiter::new(env.clone(), 0);
        let begun = env.monotonic();
        for _ in 0..1_000 {
            limiter.spend(IoClass::Background, 1 << 30).await;
        }
        assert_eq!(env.monotonic(), begun);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_the_log_holds_others_up_for_a_moment_only() {
        let env = Env::simulated(1);
        let limiter = RateLimiter::new(env.clone(), RATE);
        limiter.note(100 * RATE);
        let begun = env.monotonic();
        limiter.spend(IoClass::Background, 1).await;
        assert!(env.monotonic() - begun <= AHEAD_OF_TIME_MAX);
    }
}
