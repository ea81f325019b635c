//! An error at every single operation of a file: the truth or an error, never a wrong answer, a
//! panic or a hang; and what was acknowledged is there when the disk works again.

use std::sync::Arc;

use env::Env;
use storage::faulty::{Action, FaultyFileSystem, Rule};
use storage::memory::Crash;
use tepui_tests::history::coverage::Coverage;
use tepui_tests::history::life::{Ended, Ground, World};
use tepui_tests::history::machine::Machine;
use tepui_tests::history::plan::{End, Life, Size, plan};
use tepui_tests::model::{Model, Violation};
use tepui_tests::panics;
use types::ErrorKind;

/// Two runs of the server, clean stop between: create, write, flush, restart, read, write, stop.
fn script(seed: u64) -> Vec<Life> {
    let size = Size { lives: 2, phases: 1, operations: 4 };
    let mut lives = plan(seed, size);
    for life in &mut lives {
        life.end = End::Close;
    }
    lives
}

struct Sweep {
    world: World,
    machine: Machine,
    coverage: Coverage,
    seed: u64,
}

impl Sweep {
    fn new(seed: u64) -> Sweep {
        Sweep {
            world: World::new(Model::default()),
            machine: Machine::new(None, None),
            coverage: Coverage::default(),
            seed,
        }
    }

    fn live(&mut self, ground: &Ground, life: &Life) -> Result<Ended, Violation> {
        self.seed += 1;
        let env = Env::simulated(self.seed);
        let before = panics::count();
        let lived = self.world.live(ground, env.clone(), life, &mut self.coverage);
        let ended = self.machine.run(&env, lived)?;
        if panics::count() > before {
            return Err("something panicked: see above".to_owned());
        }
        ended
    }

    /// The script over a disk that fails by `rules`, then the truth over one that works. Returns
    /// how many operations there were, and how many failed.
    fn run(&mut self, lives: &[Life], rules: Vec<Rule>) -> Result<(u64, u64), Violation> {
        let faulty = FaultyFileSystem::new(Arc::new(self.machine.disk().clone()), rules);
        let to_blame = faulty.clone();
        let ground = Ground {
            files: Arc::new(faulty.clone()),
            is_to_blame: Box::new(move || to_blame.faults() > 0),
        };
        for life in lives {
            if self.live(&ground, life)? == Ended::Stopped {
                break;
            }
        }
        self.machine.crash(Crash::Process);
        let working = Ground::solid(self.machine.disk());
        let look = Life { phases: Vec::new(), end: End::Close };
        for _ in 0..2 {
            if self.live(&working, &look)? == Ended::Stopped {
                return Err("a working disk is to blame".to_owned());
            }
        }
        Ok((faulty.operations(), faulty.faults()))
    }
}

fn every_operation(seed: u64, actions: &[Action]) {
    let lives = script(seed);
    let (operations, _) = Sweep::new(seed)
        .run(&lives, Vec::new())
        .unwrap_or_else(|violation| panic!("without a fault, seed {seed}: {violation}"));
    assert!(operations > 100, "{operations} operations");
    let mut failed = 0;
    for action in actions {
        for nth in 1..=operations {
            let (_, faults) = Sweep::new(seed)
                .run(&lives, vec![Rule::new(*action).nth(nth)])
                .unwrap_or_else(|violation| {
                    panic!("{action:?} at operation {nth} of script {seed}: {violation}")
                });
            failed += faults;
        }
    }
    let tried = operations * actions.len() as u64;
    println!("script {seed}: {operations} operations, {failed} of {tried} faults met");
    assert!(failed * 10 >= tried * 9, "only {failed} of {tried} faults were met");
}

#[test]
fn an_error_at_any_operation_is_told_and_costs_nothing() {
    every_operation(2, &[Action::Fail(ErrorKind::Io), Action::Tear, Action::FailAfter]);
}

#[test]
fn a_full_disk_at_any_operation_is_told_and_costs_nothing() {
    every_operation(3, &[Action::Fail(ErrorKind::ResourceExhausted)]);
}

#[test]
fn an_error_at_any_operation_of_another_script_is_told_and_costs_nothing() {
    every_operation(1, &[Action::FailAfter]);
}
