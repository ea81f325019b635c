//! Prints the first figures of a Tepui server, as ratios from one interleaved run:
//!
//! 1. the p50 of a durable 1 KiB put with 1, 8 and 64 writers, against a raw `fdatasync` of a
//!    record of the same size;
//! 2. unary gets of distinct cached 1 KiB rows, against a bare tonic server that answers the same
//!    bytes from memory, with the same client, runtime and connections.
//!
//! `--restart` measures instead how long a server that was killed takes to be ready again, for a
//! log of small cells and one of big ones. `--engine BYTES` measures the engine alone, without a
//! network, with values of so many bytes; `--memtable` measures inserts into a memtable.
//!
//! `--memory` measures instead the most memory that a server takes under load, scans and cells of
//! 100 MiB, against its budget.
//!
//! Each round measures every contender once, in turn (A B A B …); the medians over the rounds are
//! what is printed. CPU is what the operating system charged to the server's process.
//!
//!     cargo build --release -p tepui-cli -p tepui-workload
//!     target/release/figures --tepui target/release/tepui

mod cpu;
mod echo;
mod engine;
mod load;
mod memory;
mod memtable;
mod raw_sync;
mod report;
mod restart;
mod server;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use sstable::CacheForm;

use crate::load::Load;
use crate::report::Samples;
use crate::server::Served;

/// Measures a server and the yardsticks beside it.
#[derive(Parser, Debug)]
#[command(name = "figures", version)]
struct Options {
    /// The `tepui` binary to measure.
    #[arg(long, default_value = "target/release/tepui")]
    tepui: PathBuf,
    /// How many times each contender is measured.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Rows of 1 KiB to load and get.
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// Gets per contender and round.
    #[arg(long, default_value_t = 40_000)]
    gets: u64,
    /// Puts per writer count and round.
    #[arg(long, default_value_t = 1_500)]
    puts: u64,
    /// Gets in flight.
    #[arg(long, default_value_t = 64)]
    in_flight: usize,
    /// Connections of the client.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Measure restarts after a kill instead.
    #[arg(long)]
    restart: bool,
    /// MiB of log that a killed server leaves.
    #[arg(long, default_value_t = 128)]
    log_mib: u64,
    /// Measure the most memory that a server takes instead.
    #[arg(long)]
    memory: bool,
    /// MiB of rows to load meanwhile.
    #[arg(long, default_value_t = 1024)]
    load_mib: u64,
    /// MiB of its memory budget.
    #[arg(long, default_value_t = 256)]
    budget_mib: u64,
    /// How long the scans then pause after each message, ms.
    #[arg(long, default_value_t = 0)]
    pause_ms: u64,
    /// Measure the engine in this process instead, with values of this many bytes.
    #[arg(long)]
    engine: Option<usize>,
    /// Measure a memtable beside an ordered map instead.
    #[arg(long)]
    memtable: bool,
    /// Measure this one of them (used by itself).
    #[arg(long, hide = true)]
    memtable_contender: Option<String>,
    /// Rows that the engine or the memtable is filled with.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// The engine's block cache, MiB.
    #[arg(long, default_value_t = 128)]
    cache_mib: u64,
    /// Keep the engine's cached blocks compressed.
    #[arg(long)]
    cache_compressed: bool,
    /// The engine's memtables, MiB each.
    #[arg(long, default_value_t = 64)]
    write_buffer_mib: u64,
    /// The engine's blocks, bytes before compression.
    #[arg(long, default_value_t = 4096)]
    block_bytes: u64,
    /// Sync the engine's log after every put.
    #[arg(long)]
    sync: bool,
    /// Serve the echo yardstick on this port instead of measuring (used by itself).
    #[arg(long, hide = true)]
    serve_echo: bool,
}

impl Options {
    fn cache_form(&self) -> CacheForm {
        if self.cache_compressed { CacheForm::Compressed } else { CacheForm::Plain }
    }
}

/// What a run may end with.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    if options.serve_echo {
        return echo::serve().await;
    }
    if options.restart {
        return restart::measure(&options).await;
    }
    if options.memory {
        return memory::measure(&options).await;
    }
    if let Some(value_bytes) = options.engine {
        return engine::measure(&options, value_bytes).await;
    }
    if let Some(name) = &options.memtable_contender {
        return memtable::measure_one(name, options.keys);
    }
    if options.memtable {
        return memtable::measure(&options);
    }
    let folder = tempfile::tempdir_in(".")?;
    let tepui = Served::tepui(&options.tepui, folder.path(), "1G").await?;
    let echo = Served::echo().await?;
    let mut samples = Samples::default();

    let store = Load::connect(&tepui, options.connections).await?;
    store.create_table(1).await?;
    println!("loading {} rows of 1 KiB …", options.rows);
    store.fill(options.rows, load::VALUE_BYTES).await?;
    // One pass over everything, so that what fits the cache is in it.
    store.get(options.rows, options.rows, options.in_flight).await?;
    let yardstick = Load::connect(&echo, options.connections).await?;
    yardstick.get(options.rows, options.gets, options.in_flight).await?;

    for round in 0..options.rounds {
        println!("round {} of {}", round + 1, options.rounds);
        let raw = raw_sync::p50(folder.path(), options.puts.min(500))?;
        samples.add("raw fdatasync, p50 us", micros(raw));
        for writers in [1_usize, 8, 64] {
            let puts = options.puts * if writers == 1 { 1 } else { 4 };
            let run = store.put(puts, writers, round as u64).await?;
            samples.add(&format!("put, {writers} writers, p50 us"), micros(run.p50));
            samples.add(&format!("put, {writers} writers, rows/s"), run.rate());
        }
        for (name, load) in [("echo", &yardstick), ("tepui", &store)] {
            let run = load.get(options.rows, options.gets, options.in_flight).await?;
            samples.add(&format!("get, {name}, rows/s"), run.rate());
            samples.add(&format!("get, {name}, server cpu us/op"), run.server_cpu_micros());
            samples.add(&format!("get, {name}, client cpu us/op"), run.client_cpu_micros());
            samples.add(&format!("get, {name}, p50 us"), micros(run.p50));
        }
    }
    samples.print();
    samples.print_ratio("put, 1 writers, p50 us", "raw fdatasync, p50 us");
    samples.print_ratio("put, 8 writers, rows/s", "put, 1 writers, rows/s");
    samples.print_ratio("put, 64 writers, rows/s", "put, 1 writers, rows/s");
    samples.print_ratio("get, tepui, rows/s", "get, echo, rows/s");
    samples.print_ratio("get, tepui, server cpu us/op", "get, echo, server cpu us/op");
    tepui.stop().await?;
    echo.stop().await
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
