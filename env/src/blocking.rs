use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Blocking sections that may run at once when they are entered through a permit.
pub const BLOCKED_THREADS_MAX: usize = 64;

/// How a thread that is about to block tells the runtime.
#[derive(Clone, Debug)]
pub struct Blocking {
    mode: Mode,
    places: Arc<Semaphore>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    InPlace,
    Inline,
}

impl Blocking {
    /// Hands the thread's other tasks to another thread first (tokio's multi-thread runtime).
    pub fn in_place() -> Blocking {
        Blocking { mode: Mode::InPlace, places: Arc::new(Semaphore::new(BLOCKED_THREADS_MAX)) }
    }

    /// Just runs the section: for current-thread runtimes and simulation.
    pub fn inline() -> Blocking {
        Blocking { mode: Mode::Inline, places: Arc::new(Semaphore::new(BLOCKED_THREADS_MAX)) }
    }

    /// Runs the section.
    pub fn run<T>(&self, section: impl FnOnce() -> T) -> T {
        match self.mode {
            #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
            Mode::InPlace => tokio::task::block_in_place(section),
            Mode::Inline => section(),
        }
    }

    /// Waits for a place.
    pub async fn permit(&self) -> BlockingPermit {
        let place = Arc::clone(&self.places).acquire_owned().await;
        BlockingPermit { _place: place.expect("the semaphore is never closed"), mode: self.clone() }
    }
}

/// A place for one blocking section; given back when dropped.
#[derive(Debug)]
pub struct BlockingPermit {
    _place: OwnedSemaphorePermit,
    mode: Blocking,
}

impl BlockingPermit {
    /// Runs the section in this place.
    pub fn run<T>(self, section: impl FnOnce() -> T) -> T {
        self.mode.run(section)
    }
}
