//! The same operations under different settings: what a client sees must not differ.
//!
//! 1. A seed draws a list of steps: writes, reads, row drops, pauses, restarts and kills.
//! 2. Each setting (tiny blocks, tiny memtables, no cache, …) runs the list on a cluster of its
//!    own, and does in the pauses what only it does: flush, merge, divide ranges, change the
//!    locality groups. One of them is drawn by the seed too: any options together.
//! 3. Every answer is compared with that of a plain map, so with every other setting's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use env::Env;
use lsm::{NoListener, StoreOptions};
use rand::Rng;
use rand::rngs::StdRng;
use sstable::CacheForm;
use storage::memory::{Crash, MemoryFileSystem};
use types::{Compression, RowMutations, RowRange, RowSet};

use crate::cluster::{Cluster, ClusterOptions};
use crate::history::plan::{EXTRA_FAMILY, TABLES, change};
use crate::history::table::{mutation, new_table, second_group, table_name};
use crate::model::{Change, Row, Violation};
use crate::rows::{self, ReadFailure};

/// The one table.
const TABLE: &str = TABLES[0];
/// A run that takes longer, in simulated time, hangs.
const RUN_MAX: Duration = Duration::from_secs(600);

/// One step of a run.
#[derive(Clone, Debug)]
enum Step {
    /// Rows, each with its changes.
    Write(Vec<(Bytes, Vec<Change>)>),
    /// A read of these rows, compared.
    Read(RowRange),
    /// All rows that begin so are dropped.
    Drop(Bytes),
    /// Time in which a setting does what it does.
    Pause,
    /// A clean stop and a start.
    Restart,
    /// The process dies and starts again.
    Kill,
}

/// Draws `count` steps and runs them under every setting.
///
/// # Errors
/// The first answer that differs from the model's, or an error.
pub fn check(random: &mut StdRng, count: usize) -> Result<(), Violation> {
    let mut steps: Vec<Step> = (0..count).map(|_| step(random)).collect();
    steps.push(Step::Read(RowRange::all()));
    let seed = random.random();
    let settings = settings().into_iter().chain([drawn(random)]);
    settings.into_iter().try_for_each(|setting| run(&setting, seed, &steps))
}

fn step(random: &mut StdRng) -> Step {
    match random.random_range(0..100) {
        0 => Step::Restart,
        1 => Step::Kill,
        2 => Step::Drop(row(random).slice(..random.random_range(1..4))),
        3..7 => Step::Pause,
        7..9 => Step::Read(RowRange::all()),
        9..20 => Step::Read(RowRange::row(&row(random))),
        20..30 => {
            let (one, other) = (row(random), row(random));
            let (start, end) = if one < other { (one, other) } else { (other, one) };
            Step::Read(RowRange { start, end: Some(end) })
        }
        _ => Step::Write(some_rows(random)),
    }
}

/// Different rows, each with its changes.
fn some_rows(random: &mut StdRng) -> Vec<(Bytes, Vec<Change>)> {
    let mut rows = BTreeMap::new();
    for _ in 0..random.random_range(1..4) {
        let changes = (0..random.random_range(1..4)).map(|_| own(random)).collect();
        rows.insert(row(random), changes);
    }
    rows.into_iter().collect()
}

/// A change to a family that the table always has.
fn own(random: &mut StdRng) -> Change {
    loop {
        let drawn = change(random);
        if drawn.family() != Some(EXTRA_FAMILY) {
            return drawn;
        }
    }
}

fn row(random: &mut StdRng) -> Bytes {
    let letter = char::from(b'a' + random.random_range(0..7));
    Bytes::from(format!("{letter}-{:02}", random.random_range(0..40)))
}

/// A way to run.
#[derive(Clone)]
struct Setting {
    /// Its name.
    name: &'static str,
    options: ClusterOptions,
    upkeep: Upkeep,
}

/// What a setting does in pauses.
#[derive(Clone, Copy, Debug, Default)]
struct Upkeep {
    /// Memtables are written out.
    flushes: bool,
    /// Everything is merged.
    merges: bool,
    /// A range is divided at a row of the model, until there are this many.
    ranges: usize,
    /// The locality groups change.
    regroups: bool,
}

/// All ways to run.
fn settings() -> Vec<Setting> {
    let options = ClusterOptions::tiny(Arc::new(NoListener));
    let mut usual = Setting { name: "usual", options: options.clone(), upkeep: Upkeep::default() };
    usual.options.server.store = StoreOptions::default();
    usual.options.server.memory_budget = 256 << 20;
    let with_store = |name, change: fn(&mut StoreOptions)| {
        let mut options = options.clone();
        change(&mut options.server.store);
        let upkeep = Upkeep { flushes: true, ..Upkeep::default() };
        Setting { name, options, upkeep }
    };
    let with_upkeep = |name, upkeep| Setting { name, options: options.clone(), upkeep };
    let mut no_cache = with_store("no cache", |_| {});
    no_cache.options.server.cache_bytes_max = 0;
    let mut compressed_cache = with_store("a small compressed cache", |_| {});
    compressed_cache.options.server.cache_form = CacheForm::Compressed;
    compressed_cache.options.server.cache_bytes_max = 20 << 10;
    vec![
        usual,
        no_cache,
        compressed_cache,
        with_store("no merges", |store| {
            (store.level0_merge_runs, store.level0_slow_runs) = (900, 5_000);
            store.level0_stop_runs = 9_000;
        }),
        with_store("many merges", |store| {
            (store.level0_merge_runs, store.level_base_bytes) = (2, 1 << 10);
            store.level_ratio = 2;
        }),
        with_store("tiny everything", |_| {}),
        with_upkeep("everything merged", Upkeep { merges: true, ..Upkeep::default() }),
        with_upkeep("many ranges", Upkeep { ranges: 20, ..Upkeep::default() }),
        with_upkeep("ranges merged", Upkeep { ranges: 10, merges: true, ..Upkeep::default() }),
        with_upkeep(
            "changing groups",
            Upkeep { regroups: true, flushes: true, ..Upkeep::default() },
        ),
        with_store("tiny blocks", |store| store.block_bytes = 64),
        with_store("tiny memtables", |store| store.memtable_bytes = 4 << 10),
        with_store("no compression", |store| store.compression = Compression::None),
    ]
}

/// A setting that the seed draws.
fn drawn(random: &mut StdRng) -> Setting {
    fn one<T: Copy>(random: &mut StdRng, of: &[T]) -> T {
        of[random.random_range(0..of.len())]
    }
    let mut options = ClusterOptions::tiny(Arc::new(NoListener));
    let server = &mut options.server;
    let store = &mut server.store;
    store.block_bytes = one(random, &[64, 256, 4 << 10]);
    store.memtable_bytes = one(random, &[4 << 10, 8 << 10, 64 << 20]);
    store.table_bytes = one(random, &[1 << 10, 4 << 10, 64 << 20]);
    store.value_block_threshold = one(random, &[1 << 10, 16 << 10]);
    store.compression = one(random, &[Compression::None, Compression::Lz4]);
    store.bloom_bits_per_key = one(random, &[1, 10]);
    (store.level0_merge_runs, store.level0_slow_runs, store.level0_stop_runs) =
        one(random, &[(2, 3, 4), (2, 8, 20), (4, 8, 20), (900, 5_000, 9_000)]);
    store.level_base_bytes = one(random, &[1 << 10, 8 << 10, 256 << 20]);
    store.level_ratio = one(random, &[2, 3, 10]);
    server.cache_bytes_max = one(random, &[0, 20 << 10, 1 << 20]);
    server.cache_form = one(random, &[CacheForm::Plain, CacheForm::Compressed]);
    // About a hundred rows.
    server.range_bytes_max = one(random, &[0, 8 << 10]);
    let upkeep = Upkeep {
        flushes: random.random(),
        merges: random.random(),
        ranges: one(random, &[0, 3, 20]),
        regroups: random.random(),
    };
    Setting { name: "drawn", options, upkeep }
}

fn run(setting: &Setting, seed: u64, steps: &[Step]) -> Result<(), Violation> {
    let env = Env::simulated(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be built");
    let whole = env.timeout(RUN_MAX, Run::whole(setting, env.clone(), steps));
    let ended = runtime.block_on(whole);
    let ended = ended.map_err(|_| format!("{}: hung for {RUN_MAX:?}", setting.name))?;
    ended.map_err(|violation| format!("{}: {violation}", setting.name))
}

struct Run<'a> {
    setting: &'a Setting,
    env: Env,
    disk: MemoryFileSystem,
    model: BTreeMap<Bytes, Row>,
    pauses: usize,
}

impl Run<'_> {
    async fn whole(setting: &Setting, env: Env, steps: &[Step]) -> Result<(), Violation> {
        let disk = MemoryFileSystem::new();
        let mut run = Run { setting, env, disk, model: BTreeMap::new(), pauses: 0 };
        let mut cluster = run.open().await?;
        cluster.admin.create_table(new_table(TABLE)).await.map_err(text)?;
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Restart => {
                    cluster.close().await.map_err(text)?;
                    cluster = run.open().await?;
                }
                Step::Kill => {
                    cluster.server.abandon().await;
                    run.disk = run.disk.crash(Crash::Process);
                    cluster = run.open().await?;
                }
                _ => run
                    .step(&cluster, step)
                    .await
                    .map_err(|violation| format!("step {number}: {violation}"))?,
            }
        }
        cluster.close().await.map_err(text)
    }

    async fn open(&self) -> Result<Cluster, Violation> {
        let files = Arc::new(self.disk.clone());
        Cluster::open(files, self.env.clone(), self.setting.options.clone()).await.map_err(text)
    }

    async fn step(&mut self, cluster: &Cluster, step: &Step) -> Result<(), Violation> {
        match step {
            Step::Write(rows) => self.write(cluster, rows).await,
            Step::Read(range) => self.read(cluster, range).await,
            Step::Drop(prefix) => self.drop_rows(cluster, prefix).await,
            Step::Pause => self.pause(cluster).await,
            Step::Restart | Step::Kill => unreachable!("the run's own"),
        }
    }

    async fn write(
        &mut self,
        cluster: &Cluster,
        rows: &[(Bytes, Vec<Change>)],
    ) -> Result<(), Violation> {
        let name = table_name(TABLE);
        let layout = cluster.router.layout(&name).await.map_err(text)?;
        let wire = |(row, changes): &(Bytes, Vec<Change>)| RowMutations {
            row: row.clone(),
            mutations: changes
                .iter()
                .map(|change| mutation(change, &layout.schema).expect("its families are there"))
                .collect(),
        };
        let sent = rows.iter().map(wire).collect();
        for written in cluster.router.write_rows(&name, layout.clone(), sent, None).await {
            written.map_err(text)?;
        }
        for (row, changes) in rows {
            let state = self.model.entry(row.clone()).or_default();
            changes.iter().for_each(|change| change.apply(state));
        }
        Ok(())
    }

    async fn read(&self, cluster: &Cluster, range: &RowRange) -> Result<(), Violation> {
        let asked = RowSet::new(vec![range.clone()]);
        let answer = rows::read(&cluster.router, &table_name(TABLE), asked).await;
        let answer = answer.map_err(|failure| match failure {
            ReadFailure::Error(error) => text(error),
            ReadFailure::Violation(violation) => violation,
        })?;
        let expected: BTreeMap<Bytes, Row> = self
            .model
            .iter()
            .filter(|(row, cells)| range.contains(row) && !cells.is_empty())
            .map(|(row, cells)| (row.clone(), cells.clone()))
            .collect();
        if answer == expected {
            return Ok(());
        }
        let differs = |row: &&Bytes| answer.get(*row) != expected.get(*row);
        let row = answer.keys().chain(expected.keys()).find(differs);
        let row = row.map_or_else(String::new, |row| row.escape_ascii().to_string());
        Err(format!("a read of {range:?} differs from the model, first at row {row}"))
    }

    async fn drop_rows(&mut self, cluster: &Cluster, prefix: &Bytes) -> Result<(), Violation> {
        let rows = RowRange::prefix(prefix);
        cluster.admin.drop_rows(&table_name(TABLE), &rows).await.map_err(text)?;
        self.model.retain(|row, _| !rows.contains(row));
        Ok(())
    }

    async fn pause(&mut self, cluster: &Cluster) -> Result<(), Violation> {
        let (name, upkeep) = (table_name(TABLE), self.setting.upkeep);
        self.pauses += 1;
        if upkeep.flushes {
            cluster.admin.flush_table(&name).await.map_err(text)?;
        }
        let ranges = cluster.admin.list_ranges(&name).await.map_err(text)?;
        if ranges.len() < upkeep.ranges {
            let place = self.pauses * 7 % self.model.len().max(1);
            let row = self.model.keys().nth(place).cloned();
            cluster.admin.split_table(&name, row.into_iter().collect()).await.map_err(text)?;
        }
        if upkeep.merges {
            for range in &ranges {
                cluster.admin.compact_at(&name, &range.rows.start).await.map_err(text)?;
            }
        }
        if upkeep.regroups {
            let groups =
                if self.pauses.is_multiple_of(2) { vec![second_group()] } else { Vec::new() };
            cluster.admin.set_groups(&name, groups).await.map_err(text)?;
            cluster.router.forget(&name);
        }
        self.env.sleep(Duration::from_millis(500)).await;
        Ok(())
    }
}

fn text(error: client::Error) -> Violation {
    format!("{error:?}")
}
