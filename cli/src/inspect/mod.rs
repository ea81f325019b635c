//! `tepui inspect`: prints one file of a data folder, or looks over the whole folder. It only
//! reads, so the folder may be in use.

mod folder;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use clap::{Args, Subcommand};
use storage::memory::MemoryFileSystem;
use storage::{FileSystem, Path};
use types::RangeId;
use wal::{EntryKind, OwnedEntry};

use crate::files;
use crate::outcome::{Failure, Out};

/// Bytes of a file that can be inspected: it is read whole.
const FILE_BYTES_MAX: u64 = 2 << 30;

/// Prints a file of a data folder as text.
#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// A segment of a commit log: its frames and entries, and why it ends where it ends.
    #[command(after_help = "\
Example: tepui inspect wal tepui-data/wal/SESSION/SEGMENT.log --cells")]
    Wal {
        /// The file, under the name it has in the data folder
        file: PathBuf,
        /// Prints what the entries say: every cell of a batch, the rows of an excise
        #[arg(long)]
        cells: bool,
    },
    /// The coordinator's state or log: the catalog's tables and ranges, leases, ids.
    #[command(after_help = "\
Examples:
  tepui inspect coordination tepui-data/coordination/snapshot-00000000000000000001
  tepui inspect coordination tepui-data/coordination/SESSION/SEGMENT.log")]
    Coordination {
        /// A snapshot or a segment of the log, under the name it has in the data folder
        file: PathBuf,
    },
    /// A whole data folder: its logs, tables, ranges and files. Reads all of them, and fails if any
    /// is damaged.
    ///
    /// The folder may be in use: nothing is locked or written, and files never change. Only the
    /// logs are not read then, since they grow.
    #[command(after_help = "Example: tepui inspect data tepui-data")]
    Data {
        /// The folder
        folder: PathBuf,
    },
    /// What counts of the log of a session that ended.
    #[command(after_help = "Example: tepui inspect sealed tepui-data/wal/SESSION/SEALED")]
    Sealed {
        /// The file
        file: PathBuf,
    },
    /// The format and the id of a data folder.
    #[command(after_help = "Example: tepui inspect version tepui-data/VERSION")]
    Version {
        /// The file
        file: PathBuf,
    },
    /// A sorted file: properties, filters and checksums.
    #[command(after_help = "\
Example: tepui inspect sstable tepui-data/tables/1/files/FILE.sst --cells")]
    Sstable {
        /// The file
        file: PathBuf,
        /// Prints the index: a line for each block
        #[arg(long)]
        blocks: bool,
        /// Prints every cell
        #[arg(long)]
        cells: bool,
    },
    /// A manifest: which sorted files make up a range.
    #[command(after_help = "\
Example: tepui inspect manifest tepui-data/tables/1/ranges/1/manifest-00000000000000000001")]
    Manifest {
        /// The file, under the name it has in the data folder
        file: PathBuf,
    },
}

/// Runs a command.
///
/// # Errors
/// What is wrong with the file, or why it cannot be read.
pub(crate) async fn run(args: InspectArgs, out: &mut Out) -> Result<(), Failure> {
    let outcome = match args.command {
        Command::Wal { file, cells } => segment(&file, cells, out).await,
        Command::Coordination { file } => coordination_file(&file, out).await,
        Command::Data { folder } => folder::look(&folder, out).await,
        Command::Sealed { file } => {
            let stored = files::read(&file, FILE_BYTES_MAX)?;
            let text = rangeserver::inspect_sealed(&stored);
            out.text(&text.map_err(|what| damaged(&file, what))?)
        }
        Command::Version { file } => version_file(&file, out),
        Command::Sstable { file, blocks, cells } => sstable_file(&file, blocks, cells, out).await,
        Command::Manifest { file } => {
            let stored = files::read(&file, FILE_BYTES_MAX)?;
            let text = lsm::inspect::manifest(&name(&file)?, &stored).map_err(said)?;
            out.text(&text)
        }
    };
    match outcome {
        // Whatever was being printed, it stopped because nobody reads on.
        Err(_) if out.is_closed() => Err(Failure::OutputClosed),
        outcome => outcome,
    }
}

async fn segment(file: &std::path::Path, cells: bool, out: &mut Out) -> Result<(), Failure> {
    let (files, path) = load(file).await?;
    let payloads: Option<&wal::PayloadText<'_>> = if cells { Some(&payload_text) } else { None };
    wal::inspect(&files, &path, payloads, out).await.map_err(said)
}

/// What an entry says. The coordinator's are those of range 0, which is no table's.
fn payload_text(entry: &OwnedEntry, out: &mut dyn fmt::Write) -> Result<(), String> {
    let OwnedEntry { kind, range, payload, .. } = entry;
    match kind {
        EntryKind::Batch if *range == RangeId::new(0) => {
            coordination::inspect::record(payload, &value_text, out)
        }
        EntryKind::Batch => lsm::inspect::batch(payload, out).map_err(|error| error.to_string()),
        EntryKind::Excise => lsm::inspect::excise(payload, out).map_err(|error| error.to_string()),
        EntryKind::NoOp => Ok(()),
    }
}

/// What a key of the coordinator holds.
fn value_text(key: &str, value: &Bytes) -> Result<String, String> {
    let known = master::inspect::record(key, value)?;
    Ok(known.unwrap_or_else(|| format!("\"{}\"", value.escape_ascii())))
}

async fn coordination_file(file: &std::path::Path, out: &mut Out) -> Result<(), Failure> {
    let path = name(file)?;
    if path.name().ends_with(storage::local::LOG_SUFFIX) {
        return segment(file, true, out).await;
    }
    let stored = files::read(file, FILE_BYTES_MAX)?;
    coordination::inspect::snapshot(path.name(), &stored, &value_text, out)
        .map_err(|what| damaged(file, &what))
}

fn version_file(file: &std::path::Path, out: &mut Out) -> Result<(), Failure> {
    let stored = files::read(file, FILE_BYTES_MAX)?;
    let folder = file.parent().unwrap_or(file);
    storage::local::parse_version(folder, &stored).map_err(said)?;
    // It is checked, so it is text.
    out.text(&String::from_utf8_lossy(&stored))
}

async fn sstable_file(
    file: &std::path::Path,
    blocks: bool,
    cells: bool,
    out: &mut Out,
) -> Result<(), Failure> {
    let (files, path) = load(file).await?;
    let blob = files.open(&path).await.map_err(said)?;
    let id = sstable::file_id(&*blob).await.map_err(said)?;
    let len = blob.len();
    let table = sstable::Table::open(blob, id, len, None).await.map_err(said)?;
    out.text(&sstable::inspect::summary(&table))?;
    if blocks {
        sstable::inspect::write_index(&table, out).await.map_err(said)?;
    }
    if cells {
        sstable::inspect::write_cells(&table, out).await.map_err(said)?;
    }
    Ok(())
}

/// The file as the only one of a file system in memory, under its own name: nothing here can lock,
/// change or recycle what a server uses.
async fn load(file: &std::path::Path) -> Result<(Arc<dyn FileSystem>, Path), Failure> {
    let content = files::read(file, FILE_BYTES_MAX)?;
    let path = name(file)?;
    let files = MemoryFileSystem::new();
    files.put_if_absent(&path, content).await.map_err(said)?;
    Ok((Arc::new(files), path))
}

fn name(file: &std::path::Path) -> Result<Path, Failure> {
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| format!("{} names no file", file.display()))?;
    Ok(Path::new(name))
}

fn damaged(file: &std::path::Path, what: &str) -> Failure {
    Failure::Said(format!("{} is damaged: {what}", file.display()))
}

fn said(error: impl fmt::Display) -> Failure {
    Failure::Said(error.to_string())
}
