//! Where reads leave what they pin while nobody pulls them.
//!
//! A read whose client is slow stands still between two replies. Its view may meanwhile become the
//! only holder of memtables and files that were flushed and merged away. So between rows it parks
//! its view here, and whoever looks after memory takes away the parked views that are not the
//! newest: the read pins a new one when it goes on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lsm::{ReadView, Scan};

/// A view and a scan of it that stands between two rows.
pub(super) struct Parked {
    pub(super) view: ReadView,
    pub(super) scan: Scan,
}

/// The place of one read. Empty while the read is pulled, and after a clearance.
#[derive(Default)]
pub(super) struct Place(Mutex<Option<Parked>>);

impl Place {
    pub(super) fn park(&self, parked: Parked) {
        *self.lock() = Some(parked);
    }

    pub(super) fn leave(&self) -> Option<Parked> {
        self.lock().take()
    }

    fn clear_if_outdated(&self) {
        let outdated = self.lock().take_if(|parked| !parked.view.is_newest());
        // Not under the lock: it may be the last holder.
        drop(outdated);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Parked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The places of all reads.
#[derive(Default)]
pub(crate) struct Parking(Mutex<Vec<Weak<Place>>>);

impl Parking {
    /// A place for one read.
    pub(super) fn place(&self) -> Arc<Place> {
        let place = Arc::new(Place::default());
        self.places().push(Arc::downgrade(&place));
        place
    }

    /// Lets go of what outdated views hold.
    pub(crate) fn clear_outdated(&self) {
        let places: Vec<Arc<Place>> = {
            let mut places = self.places();
            places.retain(|place| place.strong_count() > 0);
            places.iter().filter_map(Weak::upgrade).collect()
        };
        places.iter().for_each(|place| place.clear_if_outdated());
    }

    fn places(&self) -> MutexGuard<'_, Vec<Weak<Place>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
