//! One flipped byte anywhere in a closed folder: the truth, or an error that says so.
//!
//! Each format has its own test that flips every byte (wal, sstable, lsm, coordination); here it is
//! the whole that must not swallow what its parts find.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use env::Env;
use storage::memory::MemoryFileSystem;
use tepui_tests::cluster::{Cluster, ClusterOptions};
use tepui_tests::history::coverage::Coverage;
use tepui_tests::history::life::{Ended, Ground, World};
use tepui_tests::history::machine::Machine;
use tepui_tests::history::plan::{End, Size, TABLES, plan};
use tepui_tests::history::table::table_name;
use tepui_tests::model::Model;
use tepui_tests::panics;
use tepui_tests::rows::{self, ReadFailure, Rows};
use types::{ErrorKind, RowSet};

/// Bytes flipped, spread evenly over the folder.
const FLIPS: u64 = 10_000;

async fn read_all(disk: &MemoryFileSystem, env: Env) -> Result<Vec<Option<Rows>>, ReadFailure> {
    let events = Arc::new(lsm::NoListener);
    let options = ClusterOptions::tiny(events);
    let cluster = Cluster::open(Arc::new(disk.clone()), env, options).await?;
    let mut found = Vec::new();
    for table in TABLES {
        found.push(match rows::read(&cluster.router, &table_name(table), RowSet::all()).await {
            Ok(rows) => Some(rows),
            Err(ReadFailure::Error(error)) if error.kind() == ErrorKind::NotFound => None,
            Err(failure) => return Err(failure),
        });
    }
    Ok(found)
}

/// A folder that was closed, small and with everything in it.
fn closed_folder() -> MemoryFileSystem {
    let machine = Machine::new(None, None);
    let mut world = World::new(Model::default());
    let lives = plan(11, Size { lives: 2, phases: 2, operations: 4 });
    for (seed, mut life) in (100..).zip(lives) {
        life.end = End::Close;
        let env = Env::simulated(seed);
        let ground = Ground::solid(machine.disk());
        let mut coverage = Coverage::default();
        let lived = world.live(&ground, env.clone(), &life, &mut coverage);
        assert_eq!(machine.run(&env, lived).unwrap(), Ok(Ended::Whole));
    }
    machine.disk().clone()
}

#[test]
fn a_flipped_byte_in_a_closed_folder_gives_the_truth_or_an_error() {
    let disk = closed_folder();
    let machine = Machine::new(None, None);
    let read = |disk: &MemoryFileSystem| {
        let env = Env::simulated(2);
        machine.run(&env, read_all(disk, env.clone())).unwrap()
    };
    let truth = read(&disk.deep_clone()).unwrap();
    assert!(truth.iter().flatten().any(|rows| !rows.is_empty()), "there is something to lose");
    let files: Vec<_> = disk.snapshot().into_iter().collect();
    let bytes: u64 = files.iter().map(|(_, content)| content.len() as u64).sum();
    let step = (bytes / FLIPS).max(1);
    let (mut refused, mut harmless) = (0, 0);
    for (path, content) in files {
        for offset in (0..content.len() as u64).step_by(step as usize) {
            let copy = disk.deep_clone();
            copy.corrupt(&path, offset, 1 << (offset % 8));
            let before = panics::count();
            match read(&copy) {
                Ok(found) => {
                    assert!(found == truth, "{path} at {offset}: neither truth nor error");
                    harmless += 1;
                }
                Err(ReadFailure::Error(error)) => {
                    let kind = error.kind();
                    let says_so =
                        matches!(kind, ErrorKind::Corrupt | ErrorKind::FailedPrecondition);
                    assert!(says_so, "{path} at {offset}: {kind}: {error}");
                    refused += 1;
                }
                Err(ReadFailure::Violation(violation)) => panic!("{path} at {offset}: {violation}"),
            }
            assert_eq!(panics::count(), before, "{path} at {offset}: something panicked");
        }
    }
    println!("{refused} flips refused, {harmless} harmless, one in {step} of {bytes} bytes");
    assert!(refused > 100, "{refused} refused, {harmless} harmless");
}
