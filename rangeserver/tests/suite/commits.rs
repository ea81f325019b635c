//! Many writers at once.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use storage::Operation;
use storage::faulty::{Action, FaultyFileSystem, Rule};
use storage::memory::MemoryFileSystem;
use types::ErrorKind;

use super::world::*;

#[tokio::test(start_paused = true)]
async fn sixty_four_writers_share_groups_and_lose_nothing() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&["k", "t"]));
    let world = Arc::new(started(&disk, &catalog, 1).await);
    let writers: Vec<_> = (0..64_u32)
        .map(|writer| {
            let world = Arc::clone(&world);
            world.env.clone().spawn("writer", async move {
                for number in 0..20 {
                    let first = char::from(b'a' + u8::try_from(writer % 26).unwrap());
                    let row = format!("{first}-{writer:02}-{number:02}");
                    world.put(&row, row.as_bytes()).await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().await.unwrap();
    }
    let commits = world.server.statistics().commits;
    assert_eq!(commits.batches, 64 * 20);
    assert!(commits.groups_of_many > 0 && commits.largest > 8, "{commits:?}");
    let rows = world.read_all().await.unwrap();
    assert_eq!(rows.len(), 64 * 20);
    assert!(rows.iter().all(|(row, cells)| cells[0].3 == row.as_bytes()));
    world.server.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cancelled_writers_leave_whole_batches_and_a_server_that_goes_on() {
    for seed in 0..20 {
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
        let world = Arc::new(started(&disk, &catalog, seed).await);
        world.put("start", b"v").await.unwrap();
        let mut writers = Vec::new();
        for number in 0..40 {
            let world = Arc::clone(&world);
            let task = world.env.clone().spawn("writer", async move {
                let row = format!("r{number:02}");
                let both = vec![set(F, "q", 1000, b"v"), set(G, "q", 1000, b"v")];
                world.write(vec![mutate(&row, both)]).await
            });
            if random.random_bool(0.3) {
                task.abort();
            }
            writers.push(task);
            for _ in 0..random.random_range(0..3) {
                world_turn().await;
            }
            let victim = random.random_range(0..writers.len());
            if random.random_bool(0.2) {
                writers[victim].abort();
            }
        }
        let mut acknowledged = Vec::new();
        for (number, writer) in writers.into_iter().enumerate() {
            if let Some(outcome) = writer.join().await {
                outcome.unwrap();
                acknowledged.push(format!("r{number:02}"));
            }
        }
        world.put("stop", b"v").await.unwrap();
        let rows = world.read_all().await.unwrap();
        for row in &acknowledged {
            assert!(rows.contains_key(row), "seed {seed}: {row} is lost");
        }
        for (row, cells) in rows.iter().filter(|(row, _)| row.starts_with('r')) {
            assert_eq!(cells.len(), 2, "seed {seed}: {row} is there in part");
        }
        world.server.close().await.unwrap();
    }
}

async fn world_turn() {
    tokio::task::yield_now().await;
}

/// HBASE-14004: a write whose sync had failed stayed visible, and later vanished.
#[tokio::test(start_paused = true)]
async fn after_a_failed_sync_the_server_refuses_everything_and_a_restart_finds_the_truth() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
    let faulty = FaultyFileSystem::new(Arc::new(disk.clone()), Vec::new());
    let faulty = Arc::new(faulty);
    let files = Arc::clone(&faulty) as Arc<dyn storage::FileSystem>;
    let world = start(files, &catalog, 1, small_options()).await.unwrap();
    world.put("a", b"v").await.unwrap();
    let broken = Rule::new(Action::Fail(ErrorKind::Io)).on(Operation::SyncLog);
    faulty.set_rules(vec![broken]);
    let failed = world.put("b", b"v").await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Poisoned);
    faulty.set_rules(Vec::new());
    assert_eq!(world.put("c", b"v").await.unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(world.get("a").await.unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(world.poisonings.lock().unwrap().len(), 1, "told once");
    world.server.close().await.unwrap_err();

    let world = started(&disk, &catalog, 2).await;
    let rows = world.read_all().await.unwrap();
    assert!(rows.contains_key("a") && !rows.contains_key("c"), "{rows:?}");
    world.server.close().await.unwrap();
}
