//! Many histories, many crash points; a failure names the one command that repeats it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use storage::PlantedBug;

use super::History;
use super::coverage::Coverage;
use super::plan::Size;
use crate::model::Violation;

/// A history of a few hundred operations of the disk.
pub const SMALL: Size = Size { lives: 2, phases: 2, operations: 3 };

/// A broken promise and where it was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The history's seed.
    pub seed: u64,
    /// The operation of the disk after which it crashed; `None`: it ran to its end.
    pub point: Option<u64>,
    /// What was broken.
    pub violation: Violation,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seed = self.seed;
        let point = self.point.map_or_else(String::new, |point| format!(" --point {point}"));
        writeln!(f, "{}", self.violation)?;
        writeln!(f, "seed {seed}, crash point {:?}; replay it with:", self.point)?;
        write!(f, "  cargo run --release -p tepui-tests --bin crash -- --seed {seed}{point}")
    }
}

/// The history of `seed`, crashed at one point or run whole.
///
/// # Errors
/// A broken promise.
pub fn one(
    seed: u64,
    point: Option<u64>,
    planted: Option<PlantedBug>,
    coverage: &mut Coverage,
) -> Result<u64, Failure> {
    let mut history = History::new(seed, SMALL);
    history.planted = planted;
    // A panic must not hide the seed.
    let ran = catch_unwind(AssertUnwindSafe(|| match point {
        Some(point) => history.crash_at(point, coverage).map(|()| point),
        None => {
            coverage.add("histories", 1);
            history.operations(coverage)
        }
    }));
    let ran = ran.unwrap_or_else(|_| Err("something panicked: see above".to_owned()));
    ran.map_err(|violation| Failure { seed, point, violation })
}

/// Crashes the history of `seed` at every one of its operations.
///
/// # Errors
/// The first broken promise.
pub fn every_point(seed: u64, coverage: &mut Coverage) -> Result<(), Failure> {
    let operations = one(seed, None, None, coverage)?;
    (0..=operations).try_for_each(|point| one(seed, Some(point), None, coverage).map(drop))
}

/// Crashes the history of `seed` at `count` random operations.
///
/// # Errors
/// The first broken promise.
pub fn some_points(
    seed: u64,
    count: u64,
    planted: Option<PlantedBug>,
    coverage: &mut Coverage,
) -> Result<(), Failure> {
    let operations = one(seed, None, planted, coverage)?;
    let mut random = StdRng::seed_from_u64(seed.rotate_left(17));
    for _ in 0..count {
        let point = random.random_range(0..=operations);
        one(seed, Some(point), planted, coverage)?;
    }
    Ok(())
}
