//! Crashes at any operation of the disk, recovered and opened twice, compared with what was
//! acknowledged.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use storage::memory::{Crash, MemoryFileSystem};
use types::Mutation;

use super::world::*;

/// What one row may hold after a crash: the last acknowledged value, or any attempted since.
#[derive(Clone, Debug, Default)]
struct Fate {
    acknowledged: Option<u32>,
    attempted: Vec<Option<u32>>,
}

type Model = Arc<Mutex<BTreeMap<String, Fate>>>;

/// Writes numbered values to its own rows until the disk stops, or `count` are written.
async fn write_numbers(world: Arc<World>, model: Model, writer: u32, seed: u64, count: u32) {
    let mut random = StdRng::seed_from_u64(seed);
    for number in 0..count {
        let row = format!("{}{writer}", ["a", "n"][random.random_range(0..2)]);
        let is_delete = random.random_bool(0.2);
        let size = if random.random_bool(0.05) { 20_000 } else { random.random_range(0..300) };
        let value = number_value(number, size);
        let next = (!is_delete).then_some(number);
        let mutations = if is_delete {
            vec![Mutation::DeleteRow]
        } else {
            vec![Mutation::DeleteRow, set(F, "q", 1000, &value), set(G, "q", 1000, &value)]
        };
        model.lock().unwrap().entry(row.clone()).or_default().attempted.push(next);
        let outcome = world.write(vec![mutate(&row, mutations)]).await;
        if outcome.is_err() {
            return;
        }
        let mut model = model.lock().unwrap();
        let fate = model.get_mut(&row).unwrap();
        fate.acknowledged = next;
        fate.attempted = vec![next];
    }
}

fn number_value(number: u32, size: usize) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.resize(4 + size, 7);
    value
}

/// What is read must be a possible fate; then it is the certain one.
fn check(rows: &Rows, model: &Model, what: &str) {
    for (row, fate) in model.lock().unwrap().iter_mut() {
        let read = rows.get(row).map(|cells| {
            assert_eq!(cells.len(), 2, "{what}: {row} is there in part");
            assert_eq!(cells[0].3, cells[1].3, "{what}: {row} is a mixture");
            u32::from_be_bytes(cells[0].3[..4].try_into().unwrap())
        });
        let possible = fate.acknowledged == read || fate.attempted.contains(&read);
        assert!(possible, "{what}: {row} is {read:?}, not {fate:?}");
        *fate = Fate { acknowledged: read, attempted: vec![read] };
    }
}

struct Coverage {
    recycled: u64,
    torn: u64,
    groups_of_many: u64,
    flushes: u64,
    recovered_frames: u64,
}

async fn history(seed: u64, coverage: &mut Coverage) {
    let mut random = StdRng::seed_from_u64(seed);
    let catalog = Catalog::new(&["m"]);
    let model = Model::default();
    let mut disk = MemoryFileSystem::new();
    for life in 0..3_u64 {
        let what = format!("seed {seed}, life {life}");
        let most = if life == 0 { 400 } else { 250 };
        let limit = random.random_range(1..most);
        disk.crash_after(limit);
        let files = Arc::new(disk.clone());
        // A crash may come while a former crash is recovered from.
        if let Ok(world) = start(files, &catalog, seed + life, small_options()).await {
            let world = Arc::new(world);
            run(&world, &model, seed * 10 + life, &mut random).await;
            coverage.groups_of_many += world.server.statistics().commits.groups_of_many;
            coverage.flushes += world.events.count("flush_finished");
            coverage.recovered_frames += world.server.recovery().frames;
            world.server.abandon().await;
        }
        let crash = if random.random_bool(0.5) {
            Crash::Process
        } else {
            Crash::PowerCut { seed: random.random() }
        };
        disk = disk.crash(crash);
        let counters = disk.counters();
        (coverage.recycled, coverage.torn) =
            (coverage.recycled + counters.recycled_logs, coverage.torn + counters.torn_writes);
        // Opened twice: the second finds the same.
        for opening in 0..2 {
            let what = format!("{what}, opening {opening} after {crash:?} at {limit}");
            let world = start(Arc::new(disk.clone()), &catalog, seed, small_options()).await;
            let world = world.unwrap_or_else(|error| panic!("{what}: {error}"));
            coverage.recovered_frames += world.server.recovery().frames;
            let rows = world.read_all().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&rows, &model, &what);
            if random.random_bool(0.5) {
                world.server.close().await.unwrap();
            } else {
                world.server.abandon().await;
                disk = disk.crash(Crash::Process);
            }
        }
    }
}

async fn run(world: &Arc<World>, model: &Model, seed: u64, random: &mut StdRng) {
    let count = random.random_range(20..150);
    let writers: Vec<_> = (0..6)
        .map(|writer| {
            let write = write_numbers(
                Arc::clone(world),
                Arc::clone(model),
                writer,
                seed + u64::from(writer),
                count,
            );
            world.env.spawn("writer", write)
        })
        .collect();
    for writer in writers {
        writer.join().await;
    }
}

/// HBASE-24984: the log held other bytes than what was acknowledged, in a buffer used twice.
#[tokio::test(start_paused = true)]
async fn no_acknowledged_write_is_lost_at_any_crash() {
    let mut coverage =
        Coverage { recycled: 0, torn: 0, groups_of_many: 0, flushes: 0, recovered_frames: 0 };
    for seed in 0..60 {
        history(seed, &mut coverage).await;
    }
    assert!(coverage.recycled > 0, "no log was recycled");
    assert!(coverage.torn > 0, "no write was torn");
    assert!(coverage.groups_of_many > 0, "no group had two members");
    assert!(coverage.flushes > 0, "nothing was flushed");
    assert!(coverage.recovered_frames > 0, "nothing was replayed");
}

#[tokio::test(start_paused = true)]
async fn a_log_larger_than_the_memory_is_taken_up_in_several_runs() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&["m"]));
    let roomy = tepui_rangeserver::Options {
        memory_budget: 64 << 20,
        log_bytes_max: 64 << 20,
        store: lsm::StoreOptions::default(),
        ..small_options()
    };
    let world = start(Arc::new(disk.clone()), &catalog, 1, roomy).await.unwrap();
    for number in 0..800 {
        let row = format!("{}{number:04}", ["a", "n"][number % 2]);
        world.put(&row, &[5; 1500]).await.unwrap();
    }
    world.server.abandon().await;
    let disk = disk.crash(Crash::Process);
    let world = started(&disk, &catalog, 2).await;
    let recovery = world.server.recovery();
    assert_eq!((recovery.logs, recovery.ranges, recovery.cells), (1, 2, 800));
    assert!(world.events.count("recovery_finished") > 2, "{:?}", world.events);
    assert_eq!(world.read_all().await.unwrap().len(), 800);
    world.server.close().await.unwrap();
}

/// slatedb/slatedb#1625: a crash during recovery left a manifest that passed over later logs;
/// arthurprs/canopydb#18: a start deleted the log.
#[tokio::test(start_paused = true)]
async fn a_crash_at_every_operation_of_a_recovery_is_recovered_from() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&["m"]));
    let world = started(&disk, &catalog, 1).await;
    for number in 0..30 {
        let row = format!("{}{number:02}", ["a", "n"][number % 2]);
        world.put(&row, &[5; 200]).await.unwrap();
    }
    world.server.abandon().await;
    let dead = disk.crash(Crash::Process);
    for operation in 0..200 {
        let disk = dead.deep_clone();
        disk.crash_after(operation);
        let files = Arc::new(disk.clone());
        let first = start(files, &catalog, operation, small_options()).await;
        let is_whole = first.is_ok();
        if let Ok(world) = first {
            world.server.abandon().await;
        }
        let disk = disk.crash(Crash::PowerCut { seed: operation });
        let world = started(&disk, &catalog, 3).await;
        assert_eq!(world.read_all().await.unwrap().len(), 30, "crash after {operation}");
        world.server.close().await.unwrap();
        if is_whole {
            assert!(operation > 10, "a recovery has more than {operation} operations");
            return;
        }
    }
    panic!("a recovery has fewer operations");
}
