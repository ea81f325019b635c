//! Compactions: a few tasks share the ranges between them, the one with most need first.
//!
//! Invariant: a range is worked on by one task at a time, so several that have work to do are
//! worked on at once.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use types::RangeId;

use crate::server::Shared;

/// The ranges that are being worked on.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<BTreeSet<RangeId>>);

/// A range that one task works on.
struct Claim<'a> {
    claims: &'a Claims,
    range: RangeId,
}

impl Claims {
    fn claim(&self, range: RangeId) -> Option<Claim<'_>> {
        let is_free = self.held().insert(range);
        is_free.then(|| Claim { claims: self, range })
    }

    fn held(&self) -> MutexGuard<'_, BTreeSet<RangeId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.held().remove(&self.range);
    }
}

/// Works until the server stops.
pub(super) async fn run(shared: Arc<Shared>) {
    let interval = shared.config.options.maintenance_interval * 10;
    loop {
        let _ = shared.pipeline.env.timeout(interval, shared.compaction_work.notified()).await;
        // Who needs it most may be another after every piece of work.
        while compact_one(&shared).await {}
        if shared.is_stopping() {
            return;
        }
    }
}

/// Does one piece of work in the first range that has some. `false`: none has, or it failed.
async fn compact_one(shared: &Arc<Shared>) -> bool {
    let env = &shared.pipeline.env;
    let mut ranges = shared.ranges.all();
    ranges.sort_by_cached_key(|range| Reverse(range.store().compaction_score()));
    for range in ranges {
        if shared.is_stopping() {
            return false;
        }
        let Some(_claim) = shared.compacting.claim(range.id()) else {
            continue;
        };
        match range.store().compact_once().await {
            Ok(true) => {
                // Writers may wait for it.
                shared.budget.wake_waiters();
                return true;
            }
            Ok(false) => {}
            Err(error) => {
                shared.note_store_failure(&range, &error);
                env.sleep(shared.config.options.maintenance_interval).await;
            }
        }
    }
    false
}
