//! Row stripes: locks on classes of rows, so that a conditional operation sees its row stand still.
//!
//! A blind write holds the stripes of its rows shared, an operation that reads its row before it
//! writes holds one exclusively; each only until its batch is sequenced and inserted, never across
//! a sync. Stripes are taken in ascending order, so holders never wait for one another in a circle.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

const STRIPES: usize = 256;

/// The stripes of one range.
pub(crate) struct Stripes {
    stripes: Vec<RwLock<()>>,
}

/// The hold of a blind write.
pub(crate) struct SharedStripes<'a> {
    _held: Vec<RwLockReadGuard<'a, ()>>,
}

/// The hold of an operation that reads its row before it writes.
pub(crate) struct ExclusiveStripe<'a> {
    _held: RwLockWriteGuard<'a, ()>,
}

impl Default for Stripes {
    fn default() -> Stripes {
        Stripes { stripes: (0..STRIPES).map(|_| RwLock::new(())).collect() }
    }
}

impl Stripes {
    /// Holds the stripes of `rows` shared. Blocks the thread while one is held exclusively, which
    /// is short.
    pub(crate) fn shared<'a>(&self, rows: impl Iterator<Item = &'a [u8]>) -> SharedStripes<'_> {
        let places: BTreeSet<usize> = rows.map(stripe_of).collect();
        let lock = |place: usize| {
            // The lock guards no value that a panic could have left half-changed.
            self.stripes[place].read().unwrap_or_else(PoisonError::into_inner)
        };
        SharedStripes { _held: places.into_iter().map(lock).collect() }
    }

    /// Holds the stripe of `row` exclusively.
    #[cfg_attr(not(test), expect(dead_code, reason = "conditional operations are not built yet"))]
    pub(crate) fn exclusive(&self, row: &[u8]) -> ExclusiveStripe<'_> {
        let held = self.stripes[stripe_of(row)].write().unwrap_or_else(PoisonError::into_inner);
        ExclusiveStripe { _held: held }
    }
}

fn stripe_of(row: &[u8]) -> usize {
    // Fixed keys: the same row has the same stripe in every run.
    let mut hasher = DefaultHasher::new();
    row.hash(&mut hasher);
    usize::try_from(hasher.finish() % STRIPES as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blind_writes_share_a_row_and_a_conditional_one_excludes_them() {
        let stripes = Stripes::default();
        let rows: [&[u8]; 2] = [b"a", b"b"];
        let first = stripes.shared(rows.into_iter());
        let second = stripes.shared(rows.into_iter());
        let place = stripe_of(b"a");
        assert!(stripes.stripes[place].try_write().is_err());
        drop((first, second));
        let exclusive = stripes.exclusive(b"a");
        assert!(stripes.stripes[place].try_read().is_err());
        drop(exclusive);
        assert!(stripes.stripes[place].try_read().is_ok());
    }
}
