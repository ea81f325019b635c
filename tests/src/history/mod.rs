//! Crash histories: random operations on the whole system over a disk in memory, stopped at any of
//! its operations, recovered, and compared with a model.
//!
//! 1. A seed draws a [`mod@plan`]: lives of a server, each with phases of concurrent writers,
//!    schema changes between, and an end (clean stop, kill, power cut).
//! 2. The plan runs until it is over or the disk stops at the given operation.
//! 3. Then the disk crashes, in one of the two ways. A first recovery is, more often than not,
//!    stopped at a random operation of its own and crashes again. A second one is left to work.
//! 4. All rows are compared with the [`crate::model::Model`]; a little more is written, compared
//!    again, and the server is stopped or crashed and opened once more.
//!
//! The same seed and crash point give the same run.

pub mod campaign;
pub mod coverage;
pub mod life;
pub mod machine;
pub mod plan;
pub mod table;

use env::Env;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use storage::PlantedBug;
use storage::memory::Crash;

use crate::model::{Model, Violation};
use coverage::Coverage;
use life::{Ended, Ground, World};
use machine::{Machine, any_crash};
use plan::{End, Life, Size, plan};

/// A history that a seed draws.
#[derive(Clone, Debug)]
pub struct History {
    seed: u64,
    size: Size,
    /// A bug of the disk, for tests of the tests.
    pub planted: Option<PlantedBug>,
}

impl History {
    /// The history of `seed`.
    pub fn new(seed: u64, size: Size) -> History {
        History { seed, size, planted: None }
    }

    /// Its seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Runs it whole; returns how many operations of the disk it took.
    ///
    /// # Errors
    /// A broken promise.
    pub fn operations(&self, coverage: &mut Coverage) -> Result<u64, Violation> {
        let mut run = Run::new(self, None, coverage);
        run.lives(&plan(self.seed, self.size))?;
        let operations = run.machine.operations();
        run.finish()?;
        Ok(operations)
    }

    /// Runs it until operation `point` of the disk, crashes, recovers and compares.
    ///
    /// # Errors
    /// A broken promise.
    pub fn crash_at(&self, point: u64, coverage: &mut Coverage) -> Result<(), Violation> {
        let mut run = Run::new(self, Some(point), coverage);
        run.coverage.add("crash points", 1);
        run.lives(&plan(self.seed, self.size))?;
        run.recover()?;
        run.finish()
    }
}

struct Run<'a> {
    machine: Machine,
    world: World,
    random: StdRng,
    coverage: &'a mut Coverage,
    /// Torn writes before the last recovery that came to its end.
    torn: u64,
}

impl<'a> Run<'a> {
    fn new(history: &History, point: Option<u64>, coverage: &'a mut Coverage) -> Run<'a> {
        let seed = history.seed ^ point.map_or(0, |point| point.rotate_left(32));
        Run {
            machine: Machine::new(point, history.planted),
            world: World::new(Model::default()),
            random: StdRng::seed_from_u64(seed),
            coverage,
            torn: 0,
        }
    }

    /// Runs lives until they are over or the disk stops.
    fn lives(&mut self, lives: &[Life]) -> Result<(), Violation> {
        for life in lives {
            if self.live(life)? == Ended::Stopped {
                return Ok(());
            }
            self.end(life.end);
        }
        Ok(())
    }

    fn end(&mut self, end: End) {
        match end {
            End::Close => {}
            End::Kill => self.machine.crash(Crash::Process),
            End::PowerCut => {
                let seed = self.random.random();
                self.machine.crash(Crash::PowerCut { seed });
            }
        }
    }

    fn live(&mut self, life: &Life) -> Result<Ended, Violation> {
        let torn = self.machine.disk().counters().torn_writes;
        let env = Env::simulated(self.random.random());
        let panics = crate::panics::count();
        let world = &mut self.world;
        let ground = Ground::solid(self.machine.disk());
        let ran = world.live(&ground, env.clone(), life, self.coverage);
        let ended = self.machine.run(&env, ran)?;
        if crate::panics::count() > panics {
            return Err("something panicked: see above".to_owned());
        }
        let ended = ended?;
        if ended == Ended::Whole && torn > self.torn {
            self.coverage.add("torn logs read by a recovery", 1);
            self.torn = torn;
        }
        Ok(ended)
    }

    /// Crashes, recovers (perhaps interrupted by another crash), compares, goes on a little.
    fn recover(&mut self) -> Result<(), Violation> {
        let crash = any_crash(&mut self.random);
        self.machine.crash(crash);
        let nothing = Life { phases: Vec::new(), end: End::Kill };
        if self.random.random_bool(0.7) {
            let more = self.random.random_range(0..40);
            self.machine.stop_in(Some(more));
            if self.live(&nothing)? == Ended::Stopped {
                self.coverage.add("recoveries interrupted by a crash", 1);
            }
        } else {
            self.machine.stop_in(None);
            self.live(&nothing)?;
        }
        let crash = any_crash(&mut self.random);
        self.machine.crash(crash);
        self.machine.stop_in(None);
        let small = Size { lives: 1, phases: 1, operations: 2 };
        for life in plan(self.random.random(), small) {
            if self.live(&life)? == Ended::Stopped {
                return Err("the disk stopped although nobody asked for it".to_owned());
            }
            self.end(life.end);
        }
        Ok(())
    }

    /// Opens once more and compares.
    fn finish(mut self) -> Result<(), Violation> {
        let last = Life { phases: Vec::new(), end: End::Close };
        if self.live(&last)? == Ended::Stopped {
            return Err("the disk stopped although nobody asked for it".to_owned());
        }
        self.coverage.note_disk(&self.machine);
        Ok(())
    }
}
