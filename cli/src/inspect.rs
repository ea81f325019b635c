//! `tepui inspect`: prints one file of a data folder. It only reads, so the folder may be in use.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use storage::memory::MemoryFileSystem;
use storage::{FileSystem, Path};

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
    #[command(after_help = "Example: tepui inspect wal tepui-data/wal/SESSION/SEGMENT.log")]
    Wal {
        /// The file, under the name it has in the data folder
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
        Command::Wal { file } => {
            let (files, path) = load(&file).await?;
            wal::inspect(&files, &path, out).await.map_err(said)
        }
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

fn said(error: impl std::fmt::Display) -> Failure {
    Failure::Said(error.to_string())
}
