//! A view pinned in the wrong order: on one thread nothing comes in between, so real threads race.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use env::Env;
use env::planted::{PlantedBug, set};
use lsm::Pinned;
use types::SeqNo;

/// How long the race goes on when nothing is wrong, and at most when something is.
const CLEAN: Duration = Duration::from_secs(2);
const RACE_MAX: Duration = Duration::from_secs(60);
const READERS: usize = 2;
/// Numbers that a memtable takes before it is rotated.
const ROTATE_AFTER: u64 = 2;

/// Memtables of bare numbers: the newest few, which hold everything after `flushed`.
struct State {
    memtables: Vec<Arc<Mutex<BTreeSet<u64>>>>,
    flushed: u64,
}

impl State {
    fn holds(&self, number: u64) -> bool {
        let held = |table: &Arc<Mutex<BTreeSet<u64>>>| table.lock().unwrap().contains(&number);
        number <= self.flushed || self.memtables.iter().any(held)
    }
}

/// Inserts, publishes and rotates until told to stop.
fn write(pinned: &Pinned<State>, stop: &AtomicBool) {
    for number in 1.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let state = pinned.current();
        state.memtables.last().unwrap().lock().unwrap().insert(number);
        pinned.publish(SeqNo::from_raw(number).unwrap());
        if number % ROTATE_AFTER == 0 {
            let memtables = vec![Arc::default()];
            pinned.install(Arc::new(State { memtables, flushed: number }));
        }
    }
}

/// Does some reader pin a number that its state does not hold?
fn is_caught(bug: Option<PlantedBug>, limit: Duration) -> bool {
    let first = State { memtables: vec![Arc::default()], flushed: 0 };
    let pinned = Arc::new(Pinned::new(Arc::new(first), SeqNo::ZERO));
    let stop = Arc::new(AtomicBool::new(false));
    let caught = Arc::new(AtomicBool::new(false));
    let env = Env::system();
    let mut threads = Vec::new();
    for _ in 0..READERS {
        let (pinned, stop, caught) = (pinned.clone(), stop.clone(), caught.clone());
        let reader = move || {
            set(bug);
            while !stop.load(Ordering::Relaxed) {
                let (state, seq) = pinned.pin();
                if !state.holds(seq.get()) {
                    caught.store(true, Ordering::Relaxed);
                    stop.store(true, Ordering::Relaxed);
                }
            }
        };
        threads.push(env.spawn_thread("reader", reader).unwrap());
    }
    let (writing, stopped) = (pinned.clone(), stop.clone());
    threads.push(env.spawn_thread("writer", move || write(&writing, &stopped)).unwrap());
    let until = env.monotonic() + limit;
    while env.monotonic() < until && !stop.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    caught.load(Ordering::Relaxed)
}

#[test]
fn pinning_a_view_in_the_wrong_order_is_caught() {
    assert!(!is_caught(None, CLEAN), "without a planted bug");
    let bug = Some(PlantedBug::PinViewInWrongOrder);
    assert!(is_caught(bug, RACE_MAX), "{bug:?} was not caught");
}
