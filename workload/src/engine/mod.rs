//! What the engine alone costs: a range server in this process, called without a network.
//!
//! 1. Fill: puts of one row each, in random order, the log written and not synced.
//! 2. Drain: everything is flushed, and merges come to their end.
//! 3. Scan all rows, twice; the second is the figure.
//! 4. Get keys at random, then absent ones, each twice; the second is the figure.
//!
//! 5. Stop the server and read the same once more from its storage alone.
//!
//! One task puts and gets, as one thread would of an embedded store. CPU is that of the whole
//! process, so what flushes and merges cost in the background is in it.

mod catalog;
mod pace;
mod rows;
mod storage;
mod unsynced;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::storage::FileSystem;
use ::storage::local::{LocalFileSystem, LocalOptions};
use client::{RangeService, ReadRequest, RowKeys, WriteRequest};
use env::Env;
use lsm::{NoListener, StoreOptions};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rangeserver::{Config, RangeServer};
use rustix::time::{ClockId, clock_gettime};
use sstable::BlockCache;
use types::{ReadSpec, RowOrder, RowRange, RowSet, SessionId};

use self::catalog::OneRange;
use self::pace::Pace;
pub(crate) use self::rows::Rows;
use self::storage::Storage;
use self::unsynced::Unsynced;
use crate::{Options, Result};

/// Numbers that stay the same this often say that the merges are done.
const STILL_LOOKS: u32 = 5;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Measures values of `value_bytes` and prints.
pub(crate) async fn measure(options: &Options, value_bytes: usize) -> Result<()> {
    let folder = tempfile::tempdir_in(".")?;
    let engine = Engine::open(folder.path(), options, value_bytes).await?;
    engine.fill().await?;
    if options.gets > 0 {
        engine.read_all(Reader::Server, options.gets).await?;
    }
    engine.server.close().await?;
    if options.gets > 0 {
        let Engine { files, env, catalog, store, .. } = &engine;
        let files = Arc::clone(files);
        let cache_bytes = options.cache_mib << 20;
        let cache = Arc::new(BlockCache::with_form(cache_bytes, options.cache_form()));
        let storage = Storage::open(files, env, catalog, cache, store.clone()).await?;
        engine.read_all(Reader::Storage(&storage), options.gets).await?;
    }
    println!("peak memory {} MiB", kernel_number("/proc/self/status", "VmHWM:")? >> 10);
    Ok(())
}

/// Through what is read.
#[derive(Clone, Copy)]
enum Reader<'a> {
    Server,
    Storage(&'a Storage),
}

impl Reader<'_> {
    fn name(self) -> &'static str {
        match self {
            Reader::Server => "server",
            Reader::Storage(_) => "storage",
        }
    }
}

/// The engine under measurement.
struct Engine<'a> {
    server: Arc<RangeServer>,
    catalog: Arc<OneRange>,
    rows: Rows,
    folder: &'a Path,
    files: Arc<dyn FileSystem>,
    store: StoreOptions,
    env: Env,
    keys: u64,
}

impl<'a> Engine<'a> {
    async fn open(folder: &'a Path, options: &Options, value_bytes: usize) -> Result<Self> {
        let env = Env::system();
        // Logs are filled with zeros, and kept, for the sake of their syncs.
        let local = match options.sync {
            true => LocalOptions::default(),
            false => LocalOptions {
                recycled_logs_max: 0,
                unzeroed_log_bytes_max: u64::MAX,
                ..LocalOptions::default()
            },
        };
        let files: Arc<dyn FileSystem> =
            Arc::new(LocalFileSystem::open(folder, env.clone(), local)?);
        let files: Arc<dyn FileSystem> = match options.sync {
            true => files,
            false => Arc::new(Unsynced(files)),
        };
        let catalog = Arc::new(OneRange::new());
        let (cache, buffer) = (options.cache_mib << 20, options.write_buffer_mib << 20);
        let store = StoreOptions {
            memtable_bytes: buffer,
            block_bytes: options.block_bytes,
            compaction_bytes_per_second: 0,
            ..StoreOptions::default()
        };
        let server = RangeServer::start(Config {
            files: Arc::clone(&files),
            env: env.clone(),
            session: SessionId::new(env.random_u128()),
            assignments: Arc::clone(&catalog) as Arc<_>,
            events: Arc::new(NoListener),
            on_poison: Arc::new(|reason| eprintln!("the engine stopped: {reason}")),
            options: rangeserver::Options {
                // The memtables' half is for four of them, and three eighths are the cache's.
                memory_budget: (8 * buffer).max(cache * 8 / 3 + 8),
                cache_bytes_max: cache,
                cache_form: options.cache_form(),
                store: store.clone(),
                ..rangeserver::Options::default()
            },
        })
        .await?;
        let rows = Rows::new(options.keys, value_bytes);
        Ok(Engine { server, catalog, rows, folder, files, store, env, keys: options.keys })
    }

    /// Fills, drains, and prints what both took.
    async fn fill(&self) -> Result<()> {
        let mut random = SmallRng::seed_from_u64(1);
        let written = kernel_number("/proc/self/io", "write_bytes:")?;
        let from = Moment::now(&self.env);
        let mut pace = Pace::new(&self.env);
        for number in 0..self.keys {
            let put = self.catalog.put(self.rows.key(number), self.rows.value(&mut random));
            let request = WriteRequest { target: self.catalog.target(), rows: vec![put] };
            match self.server.write(request).await {
                // The first request is answered with the epoch that the range is opened under.
                Err(error) if error.kind() == types::ErrorKind::WrongRange && number == 0 => {
                    let put = self.catalog.put(self.rows.key(0), self.rows.value(&mut random));
                    let target = self.catalog.target();
                    self.server.write(WriteRequest { target, rows: vec![put] }).await?;
                }
                outcome => outcome?,
            }
            pace.count(&self.env);
        }
        from.until_now(&self.env, self.keys).print("fill", "op");
        pace.print("fill");
        let storage = self.server.statistics().storage;
        println!(
            "fill: {} writes slowed for {:.2} s, {} stopped for {:.2} s",
            storage.slowed_writes,
            storage.slowed_micros as f64 / 1e6,
            storage.stopped_writes,
            storage.stopped_micros as f64 / 1e6
        );
        self.drain().await?;
        from.until_now(&self.env, self.keys).print("fill, drained", "op");
        let written = kernel_number("/proc/self/io", "write_bytes:")? - written;
        let user = self.rows.bytes() as f64;
        println!(
            "write amplification {:.2}, space {:.2} ({:.2} with logs) of {} MiB; {} runs",
            written as f64 / user,
            folder_bytes(&self.folder.join("tables"))? as f64 / user,
            folder_bytes(self.folder)? as f64 / user,
            self.rows.bytes() >> 20,
            self.server.statistics().storage.sorted_runs
        );
        Ok(())
    }

    async fn drain(&self) -> Result<()> {
        self.server.flush_all().await?;
        let mut before = None;
        let mut still = 0;
        while still < STILL_LOOKS {
            self.env.sleep(LOOK_EVERY).await;
            let now = self.server.statistics().storage;
            let written = (now.merge_written_bytes, now.merge_read_bytes, now.moved_bytes);
            let is_still = now.merge_debt == 0 && before == Some(written);
            still = if is_still { still + 1 } else { 0 };
            before = Some(written);
        }
        Ok(())
    }

    /// Scans and gets, and prints what it took.
    async fn read_all(&self, reader: Reader<'_>, gets: u64) -> Result<()> {
        let through = reader.name();
        self.scan(reader).await?;
        self.scan(reader).await?.print(&format!("{through}: scan"), "row");
        for (name, is_there) in [("get", true), ("get of absent rows", false)] {
            self.get(reader, gets, is_there).await?;
            let span = self.get(reader, gets, is_there).await?;
            span.print(&format!("{through}: {name}"), "op");
        }
        Ok(())
    }

    async fn scan(&self, reader: Reader<'_>) -> Result<Span> {
        let from = Moment::now(&self.env);
        let rows = match reader {
            Reader::Server => self.read(RowRange::all(), 0).await?,
            Reader::Storage(storage) => storage.scan().await?,
        };
        Ok(from.until_now(&self.env, rows))
    }

    async fn get(&self, reader: Reader<'_>, gets: u64, is_there: bool) -> Result<Span> {
        let mut random = SmallRng::seed_from_u64(2);
        let from = Moment::now(&self.env);
        for _ in 0..gets {
            let number = self.rows.any(&mut random);
            let key = match is_there {
                true => self.rows.key(number),
                false => self.rows.absent_key(number),
            };
            let rows = match reader {
                Reader::Server => self.read(RowRange::row(&key), 1).await?,
                Reader::Storage(storage) => storage.get(&key).await?,
            };
            if rows != u64::from(is_there) {
                return Err(format!("{rows} rows for the key {key:?}").into());
            }
        }
        Ok(from.until_now(&self.env, gets))
    }

    /// Reads rows; how many there were.
    async fn read(&self, rows: RowRange, rows_limit: u64) -> Result<u64> {
        let spec =
            ReadSpec { rows: RowSet::new(vec![rows]), rows_limit, order: RowOrder::Ascending };
        let (target, row_keys) = (self.catalog.target(), RowKeys::AtCells);
        let mut read = self.server.read(ReadRequest { target, spec, row_keys }).await?;
        let mut found = 0;
        while let Some(reply) = read.next().await? {
            found += reply.rows;
        }
        Ok(found)
    }
}

/// Wall clock and CPU of the process.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    wall: Duration,
    cpu: Duration,
}

/// What some operations took.
pub(crate) struct Span {
    operations: u64,
    wall: Duration,
    cpu: Duration,
}

impl Moment {
    pub(crate) fn now(env: &Env) -> Moment {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = Duration::new(cpu.tv_sec.unsigned_abs(), cpu.tv_nsec.unsigned_abs() as u32);
        Moment { wall: env.monotonic(), cpu }
    }

    pub(crate) fn until_now(self, env: &Env, operations: u64) -> Span {
        let now = Moment::now(env);
        Span { operations, wall: now.wall - self.wall, cpu: now.cpu - self.cpu }
    }
}

impl Span {
    /// CPU of an operation.
    pub(crate) fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.operations as f64
    }

    fn print(&self, name: &str, unit: &str) {
        let rate = self.operations as f64 / self.wall.as_secs_f64();
        let cpu = self.cpu_micros();
        println!("{name}: {rate:.0} {unit}s/s, cpu {cpu:.3} us/{unit}");
    }
}

/// The first number behind `name` in a file of the kernel's.
#[expect(clippy::disallowed_methods, reason = "reads the kernel's accounting, not data")]
pub(crate) fn kernel_number(file: &str, name: &str) -> Result<u64> {
    let text = String::from_utf8(std::fs::read(file)?)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("the kernel does not say")?.parse()?)
}

/// Bytes on disk of everything in a folder.
#[expect(clippy::disallowed_methods, reason = "what the file system has, whoever wrote it")]
fn folder_bytes(folder: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += match metadata.is_dir() {
            true => folder_bytes(&entry.path())?,
            false => metadata.blocks() * 512,
        };
    }
    Ok(bytes)
}
