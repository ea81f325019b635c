//! Sweeps beside everything else: ranges of one table that are written, flushed, merged, divided
//! and slowly read, while what divided ranges leave is swept. A file that is swept and that anybody
//! still needs is an error. Every disk operation takes a while, so that all of it mixes; a seed
//! replays it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use env::Env;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use storage::FileSystem;
use storage::faulty::{Action, FaultyFileSystem, Rule};
use storage::memory::MemoryFileSystem;
use tepui_lsm::{Error, Store, StoreConfig, Sweep};
use types::{ErrorKind, FileId, RowRange};

use super::bed::{config, put, rules, visible};
use super::store_ranges::divide;

const SEEDS: u64 = 200;
const ROWS: u32 = 40;

/// A range in service. Whoever divides it has the gate alone.
struct Live {
    config: StoreConfig,
    store: Arc<Store>,
    gate: tokio::sync::RwLock<()>,
    is_gone: AtomicBool,
}

struct World {
    env: Env,
    disk: MemoryFileSystem,
    slow: Arc<dyn FileSystem>,
    ranges: Mutex<Vec<Arc<Live>>>,
    /// What every row should hold.
    model: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Files that scans under way have pinned, and how often.
    pinned: Mutex<BTreeMap<FileId, u64>>,
    is_done: AtomicBool,
    next_range: AtomicU64,
    swept: AtomicU64,
    splits: AtomicU64,
}

fn live(config: StoreConfig, store: Arc<Store>) -> Arc<Live> {
    let (gate, is_gone) = (tokio::sync::RwLock::default(), AtomicBool::new(false));
    Arc::new(Live { config, store, gate, is_gone })
}

/// A range that is divided or closed meanwhile is no failure; all else is.
fn tolerate<T>(outcome: Result<T, Error>, what: &str) -> Option<T> {
    match outcome {
        Ok(done) => Some(done),
        Err(error) => {
            let passes = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Aborted);
            assert!(passes, "{what}: {error}");
            None
        }
    }
}

impl World {
    async fn new(seed: u64) -> Arc<World> {
        let disk = MemoryFileSystem::new();
        let lag = Rule::new(Action::Delay(Duration::from_millis(1)));
        let slow: Arc<dyn FileSystem> =
            Arc::new(FaultyFileSystem::new(Arc::new(disk.clone()), vec![lag]));
        let config = StoreConfig { env: Env::simulated(seed), ..config(Arc::clone(&slow), 1) };
        let store = Store::create(config.clone()).await.unwrap();
        Arc::new(World {
            env: config.env.clone(),
            disk,
            slow,
            ranges: Mutex::new(vec![live(config, store)]),
            model: Mutex::default(),
            pinned: Mutex::default(),
            is_done: AtomicBool::new(false),
            next_range: AtomicU64::new(100),
            swept: AtomicU64::new(0),
            splits: AtomicU64::new(0),
        })
    }

    fn any(&self, random: &mut StdRng) -> Arc<Live> {
        Arc::clone(self.ranges.lock().unwrap().choose(random).unwrap())
    }

    fn range_of(&self, row: &str) -> Arc<Live> {
        let ranges = self.ranges.lock().unwrap();
        let mut ranges = ranges.iter();
        Arc::clone(ranges.find(|live| live.store.bounds().contains(row.as_bytes())).unwrap())
    }

    async fn pause(&self, random: &mut StdRng, most_millis: u64) {
        self.env.sleep(Duration::from_millis(random.random_range(0..most_millis))).await;
    }

    async fn write(&self, random: &mut StdRng) {
        for number in 0..60_u32 {
            let row = format!("row {:02}", random.random_range(0..ROWS));
            let range = self.range_of(&row);
            let gate = range.gate.read().await;
            if range.is_gone.load(SeqCst) {
                continue;
            }
            let value = vec![number as u8; 60];
            put(&range.store, &row, "q", i64::from(number), &value);
            self.model.lock().unwrap().insert(row, value);
            if random.random_bool(0.3) {
                tolerate(range.store.flush_all(tepui_lsm::Reason::Asked).await, "flush");
            }
            drop(gate);
            self.pause(random, 8).await;
        }
    }

    async fn compact(&self, random: &mut StdRng) {
        while !self.is_done.load(SeqCst) {
            let range = self.any(random);
            let merged = match random.random_bool(0.4) {
                true => range.store.compact_all().await,
                false => range.store.compact_once().await,
            };
            tolerate(merged, "merge");
            self.pause(random, 10).await;
        }
    }

    async fn split(&self, random: &mut StdRng) {
        for _ in 0..3 {
            self.pause(random, 120).await;
            let row = format!("row {:02}", random.random_range(1..ROWS));
            let range = self.range_of(&row);
            let _gate = range.gate.write().await;
            if range.is_gone.load(SeqCst) || range.store.bounds().start == row {
                continue;
            }
            let first = self.next_range.fetch_add(2, SeqCst);
            let children = divide(&range.store, &range.config, &row, first).await;
            range.is_gone.store(true, SeqCst);
            let mut opened = Vec::new();
            for child in children {
                opened.push(live(child.clone(), Store::open(child).await.unwrap()));
            }
            {
                let mut ranges = self.ranges.lock().unwrap();
                ranges.retain(|other| !Arc::ptr_eq(other, &range));
                ranges.extend(opened);
            }
            range.store.close().await;
            range.store.remove_folder(range.config.range).await.unwrap();
            self.splits.fetch_add(1, SeqCst);
        }
    }

    /// Scans that take long.
    async fn scan(&self, random: &mut StdRng) {
        while !self.is_done.load(SeqCst) {
            let range = self.any(random);
            if let Some(view) = tolerate(range.store.view(), "view") {
                // No await lies between the two: this is what the view pins.
                let files = range.store.version().file_ids();
                self.pin(&files, 1);
                let mut scan = view.scan(&RowRange::all(), &rules(), false);
                while tolerate(scan.next().await, "scan").unwrap_or(false) {
                    self.pause(random, 6).await;
                }
                self.pin(&files, u64::MAX);
            }
            self.pause(random, 10).await;
        }
    }

    fn pin(&self, files: &BTreeSet<FileId>, by: u64) {
        let mut pinned = self.pinned.lock().unwrap();
        for file in files {
            let count = pinned.entry(*file).or_insert(0);
            *count = count.wrapping_add(by);
        }
        pinned.retain(|_, count| *count > 0);
    }

    async fn sweep(&self, random: &mut StdRng) {
        let (mut sweep, first) = (Sweep::default(), self.any(random));
        let (folder, ids) = (&first.config.table_folder, &first.config.file_ids);
        while !self.is_done.load(SeqCst) {
            // While a range is divided its folders change: a pass then removes nothing.
            let swept = sweep.pass(&self.slow, folder, ids).await;
            let swept = swept.unwrap_or_else(|error| match error.kind() {
                ErrorKind::NotFound => Vec::new(),
                _ => panic!("sweep: {error}"),
            });
            let pinned = self.pinned.lock().unwrap().clone();
            for file in &swept {
                assert!(!pinned.contains_key(file), "{file} was swept under a scan");
            }
            if !swept.is_empty() {
                self.swept.fetch_add(swept.len() as u64, SeqCst);
                self.check_files().await;
            }
            self.pause(random, 20).await;
        }
    }

    /// Every file that the newest manifest of a range names is there.
    async fn check_files(&self) {
        let ranges = self.ranges.lock().unwrap().clone();
        let disk = self.disk.deep_clone();
        for range in ranges {
            let files: Arc<dyn FileSystem> = Arc::new(disk.clone());
            let epoch = types::Epoch::new(1_000);
            let config = StoreConfig { files, epoch, ..range.config.clone() };
            if let Err(error) = Store::open(config).await {
                panic!("range {} cannot be opened: {error}", range.config.range);
            }
        }
    }

    async fn check_cells(&self) {
        let mut found = BTreeMap::new();
        let ranges = self.ranges.lock().unwrap().clone();
        for range in ranges {
            for (row, _, _, micros, value) in visible(&range.store).await.unwrap() {
                let newest = found.entry(row).or_insert((micros, Vec::new()));
                if newest.0 <= micros {
                    *newest = (micros, value);
                }
            }
        }
        let found: BTreeMap<_, _> =
            found.into_iter().map(|(row, (_, value))| (row, value)).collect();
        assert_eq!(found, *self.model.lock().unwrap());
    }
}

async fn run(seed: u64) -> Arc<World> {
    let world = World::new(seed).await;
    macro_rules! beside {
        ($task:ident, $number:literal) => {{
            let own = Arc::clone(&world);
            world.env.spawn(stringify!($task), async move {
                let mut random = StdRng::seed_from_u64(seed * 10 + $number);
                own.$task(&mut random).await;
            })
        }};
    }
    let ends = [beside!(write, 0), beside!(split, 1)];
    let lasting = [beside!(compact, 2), beside!(scan, 3), beside!(scan, 4), beside!(sweep, 5)];
    for task in ends {
        task.join().await.unwrap_or_else(|| panic!("seed {seed}"));
    }
    // What the last merges leave is swept too.
    world.env.sleep(Duration::from_millis(200)).await;
    world.is_done.store(true, SeqCst);
    for task in lasting {
        task.join().await.unwrap_or_else(|| panic!("seed {seed}"));
    }
    world.check_files().await;
    world.check_cells().await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_sweep_takes_no_file_that_a_flush_a_merge_a_division_or_a_scan_needs() {
    let (mut swept, mut splits) = (0, 0);
    for seed in 0..SEEDS {
        let world = run(seed).await;
        swept += world.swept.load(SeqCst);
        splits += world.splits.load(SeqCst);
    }
    assert!(swept > SEEDS && splits > SEEDS, "{swept} files swept, {splits} divisions");
}
