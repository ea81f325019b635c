//! Pinning a view: a range's current state and a sequence number that belong together.
//!
//! A reader needs both, and they change without one another: rotations, flushes and compactions
//! install states, commits publish numbers. Pinning goes
//! 1. load the state,
//! 2. load the published number,
//! 3. load the state again, and begin anew unless it is the same.
//!
//! Then the state was current when the number was read, so it holds every cell up to the number
//! and has dropped none that a reader at the number must see. Two loads do not do: state before
//! number, and a rotation in between lets the number cover cells of a memtable that the reader does
//! not hold; number before state, and a compaction in between may have dropped what the number
//! still sees.
//!
//! Invariants
//! - Numbers are published in order, each after its cells are inserted in a memtable that the
//!   current state holds.
//! - A state that lacks a memtable of the former one holds its cells in files.

use std::sync::{Arc, PoisonError};

use env::planted::{PlantedBug, planted};
use types::SeqNo;

use crate::sync::{AtomicU64, Ordering, RwLock};

/// A state of which readers pin versions, and how far it is published.
#[derive(Debug)]
pub struct Pinned<V> {
    current: RwLock<Arc<V>>,
    published: AtomicU64,
}

impl<V> Pinned<V> {
    /// Begins with `state`, of which everything up to `published` may be read.
    pub fn new(state: Arc<V>, published: SeqNo) -> Pinned<V> {
        Pinned { current: RwLock::new(state), published: AtomicU64::new(published.get()) }
    }

    /// Makes `state` the one that readers pin from now on. Callers take turns (the range's lock).
    pub fn install(&self, state: Arc<V>) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = state;
    }

    /// Lets readers see everything up to `seq`. Callers take turns and go in order.
    pub fn publish(&self, seq: SeqNo) {
        let former = self.published.swap(seq.get(), Ordering::AcqRel);
        assert!(former <= seq.get(), "published {former} before {seq}");
    }

    /// How far readers may see now.
    pub fn published(&self) -> SeqNo {
        SeqNo::from_raw(self.published.load(Ordering::Acquire)).expect("published as a number")
    }

    /// The state now, with no number to read it at.
    pub fn current(&self) -> Arc<V> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A state and a number that belong together.
    pub fn pin(&self) -> (Arc<V>, SeqNo) {
        self.pin_with(|| ())
    }

    /// Pins, and calls `between` after each load: where tests let the world go on.
    fn pin_with(&self, mut between: impl FnMut()) -> (Arc<V>, SeqNo) {
        loop {
            let state = self.current();
            between();
            let published = self.published();
            between();
            if planted(PlantedBug::PinViewInWrongOrder) || self.is_current(&state) {
                return (state, published);
            }
        }
    }

    fn is_current(&self, state: &Arc<V>) -> bool {
        // `state` is held, so no other state can have come to lie at its address.
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::ptr_eq(state, &current)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    fn seq(raw: u64) -> SeqNo {
        SeqNo::from_raw(raw).unwrap()
    }

    /// Memtables of bare sequence numbers, and up to where a compaction dropped older versions.
    #[derive(Default)]
    struct State {
        memtables: Vec<Arc<Mutex<BTreeSet<u64>>>>,
        compacted_to: u64,
    }

    impl State {
        fn first() -> Arc<State> {
            let memtables = vec![Arc::default()];
            Arc::new(State { memtables, compacted_to: 0 })
        }

        fn insert(&self, number: u64) {
            let active = self.memtables.last().unwrap();
            active.lock().unwrap().insert(number);
        }

        /// One more memtable, and everything published so far compacted.
        fn rotated(&self, published: SeqNo) -> Arc<State> {
            let mut memtables = self.memtables.clone();
            memtables.push(Arc::default());
            Arc::new(State { memtables, compacted_to: published.get() })
        }

        /// Does the state, read at `at`, hold all it should?
        fn check(&self, at: SeqNo) -> Result<(), String> {
            let mut held = BTreeSet::new();
            for memtable in &self.memtables {
                held.extend(memtable.lock().unwrap().iter().copied());
            }
            if let Some(hole) = (1..=at.get()).find(|number| !held.contains(number)) {
                return Err(format!("a view at {at} lacks {hole}"));
            }
            if at.get() < self.compacted_to {
                return Err(format!("a view at {at} is older than {}", self.compacted_to));
            }
            Ok(())
        }
    }

    // Shuttle's locks work inside its own runs only.
    #[cfg(not(tepui_shuttle))]
    mod plain {
        use super::*;

        /// Rotates, inserts and publishes between the loads of a pin, the first few times.
        fn pin_while_the_world_goes_on() -> Result<(), String> {
            let pinned = Pinned::new(State::first(), SeqNo::ZERO);
            let mut next = 1;
            let (state, at) = pinned.pin_with(|| {
                if next < 6 {
                    pinned.install(pinned.current().rotated(pinned.published()));
                    pinned.current().insert(next);
                    pinned.publish(seq(next));
                    next += 1;
                }
            });
            state.check(at)
        }

        #[test]
        fn a_view_has_no_hole_when_rotations_race_with_publishing() {
            pin_while_the_world_goes_on().unwrap();
        }

        #[test]
        #[cfg(tepui_planted_bugs)]
        fn the_planted_wrong_order_is_found() {
            env::planted::set(Some(PlantedBug::PinViewInWrongOrder));
            let found = pin_while_the_world_goes_on();
            env::planted::set(None);
            assert!(found.is_err());
        }

        #[test]
        #[should_panic(expected = "before")]
        fn publishing_out_of_order_is_refused() {
            let pinned = Pinned::new(Arc::new(()), seq(4));
            pinned.publish(seq(3));
        }
    }

    #[cfg(tepui_shuttle)]
    mod shuttled {
        use shuttle::thread;

        use super::*;

        fn race() {
            let pinned = Arc::new(Pinned::new(State::first(), SeqNo::ZERO));
            // Stands for the range's lock: an insert and a rotation exclude each other.
            let lock = Arc::new(shuttle::sync::Mutex::new(()));
            let writer = {
                let (pinned, lock) = (Arc::clone(&pinned), Arc::clone(&lock));
                thread::spawn(move || {
                    for number in 1..4 {
                        let held = lock.lock().unwrap();
                        pinned.current().insert(number);
                        drop(held);
                        pinned.publish(seq(number));
                    }
                })
            };
            let rotation = {
                let (pinned, lock) = (Arc::clone(&pinned), Arc::clone(&lock));
                thread::spawn(move || {
                    for _ in 0..3 {
                        let held = lock.lock().unwrap();
                        pinned.install(pinned.current().rotated(pinned.published()));
                        drop(held);
                    }
                })
            };
            for _ in 0..2 {
                let (state, at) = pinned.pin();
                state.check(at).unwrap();
            }
            writer.join().unwrap();
            rotation.join().unwrap();
        }

        #[test]
        fn no_order_of_steps_shows_a_hole() {
            shuttle::check_random(race, 5_000);
        }

        #[test]
        #[cfg(tepui_planted_bugs)]
        #[should_panic(expected = "lacks")]
        fn some_order_of_steps_shows_the_planted_hole() {
            shuttle::check_random(
                || {
                    env::planted::set(Some(PlantedBug::PinViewInWrongOrder));
                    race();
                },
                20_000,
            );
        }
    }
}
