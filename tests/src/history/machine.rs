//! The disk of a history over all its crashes, and the point at which it stops.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use storage::PlantedBug;
use storage::memory::{Crash, MemoryFileSystem};

/// Simulated time after which a life is taken for hung.
const LIFE_MAX: Duration = Duration::from_secs(3600);

/// See the module.
pub struct Machine {
    disk: MemoryFileSystem,
    /// Operations on the disks before the last crash.
    before: u64,
    stop_at: Option<u64>,
    crashes: [u64; 2],
}

impl Machine {
    /// An empty disk that stops after `stop_at` operations, counted over crashes.
    pub fn new(stop_at: Option<u64>, planted: Option<PlantedBug>) -> Machine {
        let disk = MemoryFileSystem::new();
        disk.set_planted(planted);
        let machine = Machine { disk, before: 0, stop_at, crashes: [0, 0] };
        machine.arm();
        machine
    }

    fn arm(&self) {
        let left = self.stop_at.map_or(u64::MAX, |at| at.saturating_sub(self.before));
        self.disk.crash_after(left);
    }

    /// The disk as it is.
    pub fn disk(&self) -> &MemoryFileSystem {
        &self.disk
    }

    /// Operations so far, over all crashes.
    pub fn operations(&self) -> u64 {
        self.before + self.disk.operations()
    }

    /// From now on the disk stops `more` operations later, or never.
    pub fn stop_in(&mut self, more: Option<u64>) {
        self.stop_at = more.map(|more| self.operations() + more);
        // A disk that stands still is only left by a crash.
        self.arm();
    }

    /// Crashes, keeping the point at which to stop.
    pub fn crash(&mut self, crash: Crash) {
        self.before += self.disk.operations();
        self.disk = self.disk.crash(crash);
        match crash {
            Crash::Process => self.crashes[0] += 1,
            Crash::PowerCut { .. } => self.crashes[1] += 1,
        }
        self.arm();
    }

    /// Did both kinds of crash happen?
    pub fn had_both_kinds(&self) -> bool {
        self.crashes.iter().all(|&count| count > 0)
    }

    /// Runs one life of a server in a runtime of its own, on this thread, in simulated time; when
    /// it is over, nothing of it runs any more.
    ///
    /// # Errors
    /// It did not end.
    pub fn run<T>(&self, env: &env::Env, life: impl Future<Output = T>) -> Result<T, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime can be built");
        let limited = env.timeout(LIFE_MAX, life);
        runtime.block_on(limited).map_err(|_| format!("hung for {LIFE_MAX:?}"))
    }
}

/// One of the kinds of crash.
pub fn any_crash(random: &mut StdRng) -> Crash {
    if random.random_bool(0.4) { Crash::Process } else { Crash::PowerCut { seed: random.random() } }
}
