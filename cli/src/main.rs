//! The binary `tepui`: serves, administers, reads, writes and inspects.

mod activity;
mod allocator;
mod cells;
mod dev;
mod files;
mod group;
mod inspect;
mod limits;
mod node;
mod outcome;
mod range;
mod retention;
mod scrub;
mod size;
mod table;
mod target;
mod text;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::outcome::{Failure, Out};

/// A Bigtable-compatible wide-column store.
#[derive(Parser, Debug)]
#[command(name = "tepui", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Dev(dev::DevArgs),
    Table(table::TableArgs),
    Range(range::RangeArgs),
    Rows(range::RowsArgs),
    Put(cells::PutArgs),
    Get(cells::GetArgs),
    Scan(cells::ScanArgs),
    Inspect(inspect::InspectArgs),
}

/// Flags that other emulators spell with one dash.
const SINGLE_DASH_FLAGS: [&str; 3] = ["host", "port", "address"];

/// Rewrites exactly `-host`, `-port` and `-address` (also with `=value`) of `dev` to two dashes.
fn with_double_dashes(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut arguments: Vec<String> = arguments.collect();
    if arguments.get(1).is_none_or(|command| command != "dev") {
        return arguments;
    }
    for argument in &mut arguments {
        let name = argument.strip_prefix('-').and_then(|rest| rest.split('=').next());
        if name.is_some_and(|name| SINGLE_DASH_FLAGS.contains(&name)) {
            argument.insert(0, '-');
        }
    }
    arguments
}

fn start_logging() {
    let filter = EnvFilter::try_from_env("TEPUI_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let to_terminal = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(to_terminal);
    log.with_writer(std::io::stderr).init();
}

async fn run(command: Command) -> Result<(), Failure> {
    let mut out = Out::new();
    match command {
        Command::Dev(args) => return Ok(dev::run(args).await?),
        Command::Put(args) => return cells::put(args).await,
        Command::Table(args) => table::run(args, &mut out).await?,
        Command::Range(args) => range::run(args, &mut out).await?,
        Command::Rows(args) => range::run_rows(args, &mut out).await?,
        Command::Get(args) => cells::get(args, &mut out).await?,
        Command::Scan(args) => cells::scan(args, &mut out).await?,
        Command::Inspect(args) => inspect::run(args, &mut out).await?,
    }
    out.finish()
}

fn main() -> ExitCode {
    allocator::return_freed_memory();
    let cli = Cli::parse_from(with_double_dashes(std::env::args()));
    start_logging();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run(cli.command)),
        Err(error) => Err(Failure::Said(format!("cannot start threads: {error}"))),
    };
    match outcome {
        Ok(()) | Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(Failure::Said(error)) => {
            // Nothing is left to do when even this cannot be written.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}
