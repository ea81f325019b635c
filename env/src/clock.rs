use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Tells the time. Sleeping is the runtime's (it pauses with it), so a clock only answers.
pub trait Clock: Send + Sync + 'static {
    /// Wall-clock time in microseconds since the Unix epoch; may jump either way.
    fn now_micros(&self) -> i64;
    /// Time since an arbitrary start that never goes back and keeps running in suspend.
    fn monotonic(&self) -> Duration;
}

/// The operating system's clocks. Monotonic time is CLOCK_BOOTTIME: Rust's `Instant` stops while
/// the machine is suspended, and a lease must not.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_micros(&self) -> i64 {
        #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
    }

    fn monotonic(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        Duration::new(
            u64::try_from(time.tv_sec).unwrap_or(0),
            u32::try_from(time.tv_nsec).unwrap_or(0),
        )
    }
}

/// A clock that a test sets. Both of its times stand still until they are told to move; sleeping
/// stays the runtime's.
#[derive(Debug, Default)]
pub struct ManualClock {
    micros: AtomicI64,
    monotonic_micros: AtomicU64,
}

impl ManualClock {
    /// Starts at `micros` since the Unix epoch; monotonic time starts at zero.
    pub fn new(micros: i64) -> ManualClock {
        ManualClock { micros: AtomicI64::new(micros), ..ManualClock::default() }
    }

    /// Sets the wall clock, in microseconds since the Unix epoch, as an administrator might: it may
    /// go back. Monotonic time does not notice.
    pub fn set(&self, micros: i64) {
        self.micros.store(micros, Ordering::SeqCst);
    }

    /// Moves both times on.
    pub fn advance(&self, duration: Duration) {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        self.micros.fetch_add(micros, Ordering::SeqCst);
        self.monotonic_micros.fetch_add(micros.unsigned_abs(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_micros(&self) -> i64 {
        self.micros.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.monotonic_micros.load(Ordering::SeqCst))
    }
}

/// Time as the tokio runtime keeps it: with a paused runtime it stands still until every task
/// waits, then jumps to the next timer. Starts at 2020-01-01 at the first reading.
#[derive(Debug, Default)]
pub struct SimulatedClock {
    start: std::sync::OnceLock<tokio::time::Instant>,
}

/// 2020-01-01T00:00:00Z in microseconds.
const SIMULATED_START_MICROS: i64 = 1_577_836_800_000_000;

impl Clock for SimulatedClock {
    fn now_micros(&self) -> i64 {
        let elapsed = i64::try_from(self.monotonic().as_micros()).unwrap_or(i64::MAX);
        SIMULATED_START_MICROS.saturating_add(elapsed)
    }

    fn monotonic(&self) -> Duration {
        #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
        let now = tokio::time::Instant::now();
        now.duration_since(*self.start.get_or_init(|| now))
    }
}
