//! The binary `tepui`: serves, administers, reads, writes and inspects.

mod dev;
mod node;
mod size;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

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
}

/// Flags that other emulators spell with one dash.
const SINGLE_DASH_FLAGS: [&str; 3] = ["host", "port", "address"];

/// Rewrites exactly `-host`, `-port` and `-address` (also with `=value`) to two dashes.
fn with_double_dashes(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let rewrite = |argument: String| {
        let name = argument.strip_prefix('-').and_then(|rest| rest.split('=').next());
        match name {
            Some(name) if SINGLE_DASH_FLAGS.contains(&name) => format!("-{argument}"),
            _ => argument,
        }
    };
    arguments.map(rewrite).collect()
}

fn start_logging() {
    let filter = EnvFilter::try_from_env("TEPUI_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse_from(with_double_dashes(std::env::args()));
    start_logging();
    let outcome = match cli.command {
        Command::Dev(args) => dev::run(args).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to do when even this cannot be written.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}
