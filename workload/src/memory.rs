//! The most memory that a server takes, against its budget.
//!
//! 1. Several loaders write rows of 1 KiB, spread over several ranges, until the size asked for.
//! 2. Eight scans read the whole table all the while, and a cell of 100 MiB is written and read
//!    back again and again: as fast as they can, or with pauses, which leave the loaders more of
//!    the processors.
//! 3. The server is killed, started again, and does step 2 for a while.
//!
//! The peak of the resident memory, as the kernel has it, is printed for each life. The run fails
//! when one is more than the budget and 64 MiB.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use env::Env;

use crate::load::{Load, ROW_BYTES, VALUE_BYTES};
use crate::server::Served;
use crate::{Options, Result, cpu};

/// What a process may take besides its budget.
const BESIDES_BYTES: u64 = 64 << 20;
const SCANS: usize = 8;
const LOADERS: u64 = 4;
const RANGES: u8 = 4;
/// A large cell is followed by a pause so many times as long as a scan's.
const PAUSES_OF_A_LARGE_CELL: u32 = 100;
/// How long the second life is watched.
const SECOND_LIFE: Duration = Duration::from_secs(20);

/// Measures and prints.
pub(crate) async fn measure(options: &Options) -> Result<()> {
    let folder = tempfile::tempdir_in(".")?;
    let budget = options.budget_mib << 20;
    let memory = format!("{}M", options.budget_mib);
    let rows = (options.load_mib << 20) / (VALUE_BYTES as u64 + ROW_BYTES);
    let pause = Duration::from_millis(options.pause_ms);
    let env = Env::system();
    let tepui = Served::tepui(&options.tepui, folder.path(), &memory).await?;
    let load = Arc::new(Load::connect(&tepui, SCANS + 2).await?);
    load.create_table(RANGES).await?;
    println!("{rows} rows of 1 KiB within {} MiB, {SCANS} scans …", options.budget_mib);
    let started = env.monotonic();
    let readers = Readers::start(&env, &load, pause);
    let loaders = (0..LOADERS).map(|part| {
        let (from, to) = (rows * part / LOADERS, rows * (part + 1) / LOADERS);
        let load = Arc::clone(&load);
        env.spawn("loader", async move { load.fill_rows(from..to, VALUE_BYTES).await })
    });
    for loader in loaders.collect::<Vec<_>>() {
        loader.join().await.ok_or("a loader was aborted")??;
    }
    let loaded = env.monotonic() - started;
    println!("loaded in {:.1} s; {}", loaded.as_secs_f64(), readers.stop().await?);
    let first = cpu::peak_memory(tepui.pid())?;
    tepui.stop().await?;
    let started = env.monotonic();
    let tepui = Served::tepui(&options.tepui, folder.path(), &memory).await?;
    let ready = env.monotonic() - started;
    let load = Arc::new(Load::connect(&tepui, SCANS + 2).await?);
    let readers = Readers::start(&env, &load, pause);
    env.sleep(SECOND_LIFE).await;
    println!("ready after {:.1} s; {}", ready.as_secs_f64(), readers.stop().await?);
    let second = cpu::peak_memory(tepui.pid())?;
    tepui.stop().await?;
    for (life, peak) in [("first", first), ("after the kill", second)] {
        let (peak_mib, besides) = (peak >> 20, (peak as i64 - budget as i64) / (1 << 20));
        println!("peak, {life}: {peak_mib} MiB, the budget and {besides} MiB");
    }
    if first.max(second) > budget + BESIDES_BYTES {
        return Err("more than the budget and 64 MiB".into());
    }
    Ok(())
}

/// Scans, and the large cell, until they are told to stop.
struct Readers {
    stop: Arc<AtomicBool>,
    scanned: Arc<AtomicU64>,
    cells: Arc<AtomicU64>,
    tasks: Vec<env::Task<Result<()>>>,
}

impl Readers {
    fn start(env: &Env, load: &Arc<Load>, pause: Duration) -> Readers {
        let stop = Arc::new(AtomicBool::new(false));
        let (scanned, cells) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks = Vec::new();
        for scan in 0..SCANS {
            let (load, stop) = (Arc::clone(load), Arc::clone(&stop));
            let scanned = Arc::clone(&scanned);
            tasks.push(env.spawn("scan", async move {
                while !stop.load(Relaxed) {
                    scanned.fetch_add(load.scan(scan, &stop, pause).await?, Relaxed);
                }
                Ok(())
            }));
        }
        let (load, stopped, written) = (Arc::clone(load), Arc::clone(&stop), Arc::clone(&cells));
        let pauses = env.clone();
        tasks.push(env.spawn("large cell", async move {
            while !stopped.load(Relaxed) {
                load.large_cell(SCANS).await?;
                written.fetch_add(1, Relaxed);
                pauses.sleep(pause * PAUSES_OF_A_LARGE_CELL).await;
            }
            Ok(())
        }));
        Readers { stop, scanned, cells, tasks }
    }

    /// Ends them; what they have done.
    async fn stop(self) -> Result<String> {
        self.stop.store(true, Relaxed);
        for task in self.tasks {
            task.join().await.ok_or("a reader was aborted")??;
        }
        let (scanned, cells) = (self.scanned.load(Relaxed) >> 20, self.cells.load(Relaxed));
        Ok(format!("{scanned} MiB scanned, {cells} cells of 100 MiB written and read"))
    }
}
