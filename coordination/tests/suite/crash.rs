//! Random histories with a crash at every operation: acknowledged transactions are there,
//! others whole or not at all.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use storage::PlantedBug;
use storage::faulty::{Action, FaultyFileSystem, Rule};
use storage::memory::{Crash, MemoryFileSystem};
use tepui_coordination::{Coordinator, EmbeddedCoordinator, Error, Keyed, Outcome, Transaction};
use types::ErrorKind;

use super::opening::{everything, open, open_on, run};

/// The states that may be found: after the last acknowledged transaction, and after the one whose
/// outcome is unknown. Revisions count, too.
struct Expected {
    sure: Vec<Keyed>,
    perhaps: Option<Vec<Keyed>>,
}

/// What a transaction makes of a state: the model. All its transactions are unguarded or have
/// guards that hold.
fn after(state: &[Keyed], transaction: &Transaction) -> Vec<(String, Vec<u8>)> {
    let mut pairs = pairs(state);
    for change in &transaction.changes {
        pairs.retain(|(key, _)| key != change.key());
        if let tepui_coordination::Change::Put { key, value, .. } = change {
            pairs.push((key.clone(), value.to_vec()));
        }
    }
    pairs.sort();
    pairs
}

fn pairs(state: &[Keyed]) -> Vec<(String, Vec<u8>)> {
    state.iter().map(|entry| (entry.key.clone(), entry.found.value.to_vec())).collect()
}

fn random_transaction(random: &mut StdRng, number: usize) -> Transaction {
    let mut transaction = Transaction::new();
    for key in 0..8 {
        let key = format!("/{key}");
        match random.random_range(0..8) {
            0 | 1 => transaction = transaction.put(key, format!("{number}").repeat(20)),
            2 => transaction = transaction.delete(key),
            _ => {}
        }
    }
    if transaction.changes.is_empty() {
        return transaction.put("/last", format!("{number}"));
    }
    transaction
}

/// Commits until the end or the first error. Afterwards `sure` and `perhaps` are what may be found.
async fn history(
    coordinator: &EmbeddedCoordinator,
    random: &mut StdRng,
    steps: usize,
) -> (Expected, Option<Error>) {
    let mut expected =
        Expected { sure: everything(coordinator).await.unwrap_or_default(), perhaps: None };
    for number in 0..steps {
        let transaction = random_transaction(random, number);
        let next = after(&expected.sure, &transaction);
        match coordinator.commit(transaction).await {
            Ok(Outcome::Committed { .. }) => {}
            Ok(refused) => panic!("{refused:?}"),
            Err(error) => {
                let unknown = next.into_iter().map(|(key, value)| unknown(key, value));
                expected.perhaps = Some(unknown.collect());
                return (expected, Some(error));
            }
        }
        match everything(coordinator).await {
            Ok(found) => {
                assert_eq!(pairs(&found), next);
                expected.sure = found;
            }
            Err(error) => {
                let unknown = next.into_iter().map(|(key, value)| unknown(key, value));
                expected.sure = unknown.collect();
                return (expected, Some(error));
            }
        }
        if random.random_bool(0.3) {
            // Lets a snapshot that is due be written.
            tokio::task::yield_now().await;
        }
    }
    (expected, None)
}

fn unknown(key: String, value: Vec<u8>) -> Keyed {
    let found = tepui_coordination::Versioned {
        value: value.into(),
        created: tepui_coordination::Revision::ZERO,
        modified: tepui_coordination::Revision::ZERO,
        session: None,
    };
    Keyed { key, found }
}

fn check(found: &[Keyed], expected: &Expected) -> Result<(), String> {
    let found = pairs(found);
    let perhaps = expected.perhaps.as_ref().map(|state| pairs(state));
    if found == pairs(&expected.sure) || Some(&found) == perhaps.as_ref() {
        return Ok(());
    }
    Err(format!("found {found:?}"))
}

/// Two sessions, the second crashed after `crash_at` operations, then reopened twice.
async fn crash(
    seed: u64,
    crash_at: Option<u64>,
    planted: Option<PlantedBug>,
) -> Result<u64, String> {
    let mut random = StdRng::seed_from_u64(seed);
    let disk = MemoryFileSystem::new();
    disk.set_planted(planted);
    let coordinator = open(&disk, seed).await.map_err(|error| error.to_string())?;
    let steps = random.random_range(3..15);
    let (mut expected, _) = history(&coordinator, &mut random, steps).await;
    if random.random_bool(0.5) {
        coordinator.close().await.map_err(|error| error.to_string())?;
    }
    drop(coordinator);
    let disk = disk.crash(Crash::Process);
    if let Some(operation) = crash_at {
        disk.crash_after(operation);
    }
    let steps = random.random_range(5..20);
    let close = random.random_bool(0.5);
    if let Ok(coordinator) = open(&disk, seed + 1000).await {
        let (reached, _) = history(&coordinator, &mut random, steps).await;
        if reached.perhaps.is_some() || !reached.sure.is_empty() {
            expected = reached;
        }
        if close {
            let _ = coordinator.close().await;
        }
    }
    let operations = disk.operations();
    let mut random = StdRng::seed_from_u64(seed ^ crash_at.unwrap_or(0).rotate_left(32));
    let disk = if random.random_bool(0.3) {
        disk.crash(Crash::Process)
    } else {
        disk.crash(Crash::PowerCut { seed: random.random() })
    };
    let coordinator = open(&disk, seed + 2000).await.map_err(|error| error.to_string())?;
    let found = everything(&coordinator).await.map_err(|error| error.to_string())?;
    check(&found, &expected)?;
    let disk = disk.crash(Crash::PowerCut { seed });
    let coordinator = open(&disk, seed + 3000).await.map_err(|error| error.to_string())?;
    let again = everything(&coordinator).await.map_err(|error| error.to_string())?;
    if again != found {
        return Err("the second opening found something else".to_owned());
    }
    Ok(operations)
}

#[test]
fn a_crash_at_any_operation_keeps_every_acknowledged_transaction() {
    run(async {
        let mut pairs = 0;
        for seed in 0..25 {
            let operations =
                crash(seed, None, None).await.unwrap_or_else(|e| panic!("{seed}: {e}"));
            for at in 0..=operations {
                let survived = crash(seed, Some(at), None).await;
                survived.unwrap_or_else(|e| panic!("seed {seed}, after operation {at}: {e}"));
                pairs += 1;
            }
        }
        println!("{pairs} pairs of history and crash point");
        assert!(pairs > 1000, "{pairs}");
    });
}

#[test]
fn a_disk_that_skips_syncs_is_caught() {
    run(async {
        for bug in [PlantedBug::SkipLogSync, PlantedBug::SkipFolderSync] {
            let mut caught = false;
            for seed in 0..40 {
                caught |= crash(seed, None, Some(bug)).await.is_err();
            }
            assert!(caught, "{bug:?}");
        }
    });
}

#[test]
fn an_error_at_any_operation_is_the_truth_or_an_error() {
    run(async {
        let (mut failed, mut poisoned) = (0, 0);
        for action in [Action::Fail(ErrorKind::Io), Action::Tear, Action::FailAfter] {
            for nth in 1.. {
                let disk = MemoryFileSystem::new();
                let rule = Rule::new(action).nth(nth);
                let faulty = Arc::new(FaultyFileSystem::new(Arc::new(disk.clone()), vec![rule]));
                let mut random = StdRng::seed_from_u64(7);
                let Ok(coordinator) = open_on(faulty.clone(), 1).await else {
                    failed += 1;
                    let coordinator = open(&disk.crash(Crash::Process), 2).await.unwrap();
                    assert!(everything(&coordinator).await.unwrap().is_empty());
                    continue;
                };
                let (expected, error) = history(&coordinator, &mut random, 20).await;
                let closed = coordinator.close().await;
                if faulty.faults() == 0 {
                    assert!(error.is_none() && closed.is_ok());
                    break;
                }
                if let Some(error) = &error {
                    failed += 1;
                    if error.kind() == ErrorKind::Poisoned {
                        poisoned += 1;
                        let refused = coordinator.get("/0").await.unwrap_err();
                        assert_eq!(refused.kind(), ErrorKind::Poisoned);
                    }
                }
                let coordinator = open(&disk.crash(Crash::Process), 2).await.unwrap();
                let found = everything(&coordinator).await.unwrap();
                check(&found, &expected)
                    .unwrap_or_else(|e| panic!("{action:?} at {nth}, {error:?}: {e}"));
            }
        }
        assert!(failed > 30 && poisoned > 30, "{failed} {poisoned}");
    });
}
