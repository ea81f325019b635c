use std::sync::Mutex;

use rand::rngs::{OsRng, StdRng};
use rand::{RngCore, SeedableRng, TryRngCore};

/// A source of random numbers.
pub trait Random: Send + Sync + 'static {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
}

/// The operating system's generator.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        OsRng.try_next_u64().expect("the operating system gives random numbers")
    }
}

/// Numbers that a seed repeats.
#[derive(Debug)]
pub struct SeededRandom(Mutex<StdRng>);

impl SeededRandom {
    /// Starts the sequence of `seed`.
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        self.0.lock().expect("no holder of this lock panics").next_u64()
    }
}
