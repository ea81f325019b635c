use std::num::NonZero;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places in a repeatable world, whatever machine it runs on.
const SIMULATED_PLACES: usize = 2;

/// Places for long computations.
#[derive(Clone, Debug)]
pub(crate) struct Computing(Arc<Semaphore>);

/// A place for one long computation; given back when dropped.
#[derive(Debug)]
pub struct ComputingPermit {
    _place: OwnedSemaphorePermit,
}

impl Computing {
    /// One for each processor.
    pub(crate) fn system() -> Computing {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Computing(Arc::new(Semaphore::new(processors)))
    }

    /// Always the same number.
    pub(crate) fn simulated() -> Computing {
        Computing(Arc::new(Semaphore::new(SIMULATED_PLACES)))
    }

    /// Waits for a place.
    pub(crate) async fn permit(&self) -> ComputingPermit {
        let place = Arc::clone(&self.0).acquire_owned().await;
        ComputingPermit { _place: place.expect("the semaphore is never closed") }
    }
}
