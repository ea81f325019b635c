//! An error at every single operation of the disk: the truth or an error, and after it the truth.

use std::sync::Arc;

use client::{RangeKeeper, RangeService};
use storage::faulty::{Action, FaultyFileSystem, Rule};
use storage::memory::{Crash, MemoryFileSystem};
use types::ErrorKind;

use super::world::*;

/// Starts, writes, flushes, writes on, reads and stops; which rows were acknowledged, and which
/// may be there.
async fn script(
    files: Arc<FaultyFileSystem>,
    catalog: &Arc<Catalog>,
    what: &str,
) -> (Vec<String>, Vec<String>) {
    let (mut acknowledged, mut attempted) = (Vec::new(), Vec::new());
    let Ok(world) = start(files, catalog, 1, small_options()).await else {
        return (acknowledged, attempted);
    };
    for number in 0..30 {
        let row = format!("{}{number:02}", ["a", "n"][number % 2]);
        attempted.push(row.clone());
        if world.put(&row, &vec![5; 100 + number * 100]).await.is_ok() {
            acknowledged.push(row);
        }
        if number % 12 == 11 {
            let _ = world.server.flush_all().await;
        }
    }
    if let Ok(rows) = world.read_all().await {
        for row in &acknowledged {
            assert!(rows.contains_key(row), "{what}: {row} is lost");
        }
    }
    if world.server.close().await.is_err() {
        world.server.abandon().await;
    }
    (acknowledged, attempted)
}

#[tokio::test(start_paused = true)]
async fn an_error_at_any_operation_gives_the_truth_or_an_error() {
    let actions = [Action::Fail(ErrorKind::Io), Action::Tear, Action::FailAfter];
    for (turn, action) in actions.into_iter().enumerate() {
        for operation in 1.. {
            let what = format!("{action:?} at {operation}");
            let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&["m"]));
            let rule = Rule::new(action).nth(operation);
            let faulty = Arc::new(FaultyFileSystem::new(Arc::new(disk.clone()), vec![rule]));
            let (acknowledged, attempted) = script(Arc::clone(&faulty), &catalog, &what).await;
            let is_past_the_end = faulty.faults() == 0;
            let disk = match (operation + turn as u64) % 2 {
                0 => disk.crash(Crash::Process),
                _ => disk.crash(Crash::PowerCut { seed: operation }),
            };
            let world = start(Arc::new(disk.clone()), &catalog, 2, small_options()).await;
            let world = world.unwrap_or_else(|error| panic!("{what}: {error}"));
            let rows = world.read_all().await.unwrap();
            for row in &acknowledged {
                assert!(rows.contains_key(row), "{what}: {row} is lost");
            }
            assert!(rows.keys().all(|row| attempted.contains(row)), "{what}: {rows:?}");
            world.server.close().await.unwrap();
            if is_past_the_end {
                assert!(operation > 50, "only {operation} operations");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_file_costs_its_merges_and_not_the_server() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&["m"]));
    let world = started(&disk, &catalog, 1).await;
    let mut damaged = None;
    for round in 0..6 {
        for row in ["a", "b", "z"] {
            world.put(row, &vec![round; 300]).await.unwrap();
        }
        let before = disk.paths();
        world.server.flush_all().await.unwrap();
        let is_new = |path: &storage::Path| path.name().ends_with(".sst") && !before.contains(path);
        if round == 0 {
            // The first range's: it was written before the other's.
            damaged = disk.paths().into_iter().find(is_new);
            disk.corrupt(damaged.as_ref().unwrap(), 20, 0x10);
        }
        world.env.sleep(std::time::Duration::from_secs(5)).await;
    }
    assert_eq!(world.server.poisoned(), None);
    let target = |row: &str| catalog.target(row.as_bytes()).unwrap();
    let status = async |row| world.server.status(target(row)).await.unwrap().activity;
    let (hurt, whole) = (status("a").await, status("z").await);
    assert_eq!((hurt.merges_failed, hurt.files_set_aside), (1, 1), "{hurt:?}");
    assert_eq!((whole.merges_failed, whole.files_set_aside), (0, 0));
    assert!(whole.merges > 0, "{whole:?}");
    assert_eq!(world.events.count("file_set_aside"), 1);

    assert_eq!(world.get("z").await.unwrap().unwrap(), vec![5; 300]);
    world.put("a", b"new").await.unwrap();
    let asked = world.server.compact(target("a")).await.unwrap_err();
    assert_eq!(asked.kind(), ErrorKind::Corrupt);
    let mut scrub = world.server.scrub(target("a")).await.unwrap();
    let mut found = Vec::new();
    while let Some(file) = scrub.next().await.unwrap() {
        found.extend(file.damage.map(|_| file.path));
    }
    assert_eq!(found, [damaged.unwrap().to_string()]);
    world.server.close().await.unwrap();
    assert!(world.poisonings.lock().unwrap().is_empty());
}
