//! What a run cannot repeat: clock, randomness, spawning and blocking sections.
//!
//! Everything in Tepui takes these from an [`Env`], never from the operating system, so that one
//! seed can repeat a whole run. A server uses [`Env::system`]; tests and simulation use
//! [`Env::simulated`], which draws its numbers from a seed, runs blocking sections inline and keeps
//! time with the (paused) tokio clock.

mod blocking;
mod clock;
mod computing;
mod memory;
pub mod planted;
mod random;
mod tasks;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

pub use blocking::{BLOCKED_THREADS_MAX, Blocking, BlockingPermit};
pub use clock::{Clock, ManualClock, SimulatedClock, SystemClock};
pub use computing::ComputingPermit;
pub use memory::zeros;
pub use random::{Random, SeededRandom, SystemRandom};
pub use tasks::{Elapsed, Task};

/// The world as a component sees it. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    blocking: Blocking,
    computing: computing::Computing,
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("blocking", &self.blocking).finish_non_exhaustive()
    }
}

impl Env {
    /// The real world: wall clock, operating system randomness, a multi-thread runtime.
    ///
    /// [`Env::blocking`] then needs tokio's multi-thread runtime (or no runtime at all).
    pub fn system() -> Env {
        Env {
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            blocking: Blocking::in_place(),
            computing: computing::Computing::system(),
        }
    }

    /// A repeatable world: the same seed gives the same numbers; blocking sections run inline.
    pub fn simulated(seed: u64) -> Env {
        Env {
            clock: Arc::new(SimulatedClock::default()),
            random: Arc::new(SeededRandom::new(seed)),
            blocking: Blocking::inline(),
            computing: computing::Computing::simulated(),
        }
    }

    /// The same world with another clock: for tests that set the time.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Env {
        self.clock = clock;
        self
    }

    /// Wall-clock time in microseconds since the Unix epoch; may jump either way.
    pub fn now_micros(&self) -> i64 {
        self.clock.now_micros()
    }

    /// Time since an arbitrary start that never goes back and keeps running in suspend.
    pub fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Waits.
    pub async fn sleep(&self, duration: Duration) {
        tasks::sleep(duration).await;
    }

    /// Runs `future` for at most `limit`.
    ///
    /// # Errors
    /// [`Elapsed`] when the limit passed first; the future is dropped.
    pub async fn timeout<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        tasks::timeout(limit, future).await
    }

    /// Lets other ready tasks run once.
    pub async fn yield_now(&self) {
        tokio::task::yield_now().await;
    }

    /// 64 random bits.
    pub fn random_u64(&self) -> u64 {
        self.random.next_u64()
    }

    /// 128 random bits.
    pub fn random_u128(&self) -> u128 {
        (u128::from(self.random.next_u64()) << 64) | u128::from(self.random.next_u64())
    }

    /// Starts a named task. It ends when its future does or when its [`Task`] is aborted; dropping
    /// the [`Task`] lets it run on.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &'static str,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        tasks::spawn(name, future)
    }

    /// Starts a thread of its own, by name (the system shows the first 15 bytes of it). When it
    /// runs no seed repeats, so what simulation shall repeat is a task instead.
    ///
    /// # Errors
    /// The operating system's, when it gives no more threads.
    pub fn spawn_thread<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<std::thread::JoinHandle<T>> {
        tasks::spawn_thread(name, body)
    }

    /// Runs a section that may block the thread (file system calls, syncs), telling the runtime so
    /// where there is one to tell. Never call it with a lock held that async code waits for.
    pub fn blocking<T>(&self, section: impl FnOnce() -> T) -> T {
        self.blocking.run(section)
    }

    /// Waits for one of the [`BLOCKED_THREADS_MAX`] places for blocking sections: bounds how many
    /// runtime threads may block at once.
    pub async fn blocking_permit(&self) -> BlockingPermit {
        self.blocking.permit().await
    }

    /// Waits for one of as many places as there are processors, for long computations. When there
    /// are more of them than places, some come to their end, and to the disk, before others begin.
    pub async fn computing_permit(&self) -> ComputingPermit {
        self.computing.permit().await
    }
}
