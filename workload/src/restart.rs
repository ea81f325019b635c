//! How long a killed server takes to be ready again.
//!
//! 1. A server with so much memory that it flushes nothing takes rows in random order until its log
//!    has the size asked for, spread over several ranges.
//! 2. It is killed, and a copy of its folder kept: every round starts from the same log.
//! 3. It is started again, timed from before the start to its ready line.

use std::path::Path;
use std::process::Command;

use env::Env;

use crate::load::{Load, ROW_BYTES};
use crate::report::Samples;
use crate::server::Served;
use crate::{Options, Result};

/// Bytes of the values of each contender.
const VALUES: [(&str, usize); 2] = [("10 B cells", 10), ("1 KiB cells", 1024)];
/// Holds the whole log in memtables.
const MEMORY: &str = "4G";
const RANGES: u8 = 8;

/// Measures and prints.
pub(crate) async fn measure(options: &Options) -> Result<()> {
    let folder = tempfile::tempdir_in(".")?;
    for (name, value_bytes) in VALUES {
        let left = folder.path().join(name.replace(' ', "-"));
        std::fs::create_dir(&left)?;
        let tepui = Served::tepui(&options.tepui, &left, MEMORY).await?;
        let load = Load::connect(&tepui, 1).await?;
        load.create_table(RANGES).await?;
        let rows = (options.log_mib << 20) / (value_bytes as u64 + ROW_BYTES);
        println!("loading {rows} rows of {value_bytes} bytes …");
        load.fill(rows, value_bytes).await?;
        tepui.stop().await?;
    }
    let mut samples = Samples::default();
    let env = Env::system();
    for round in 0..options.rounds {
        println!("round {} of {}", round + 1, options.rounds);
        for (name, _) in VALUES {
            let left = folder.path().join(name.replace(' ', "-"));
            let copy = folder.path().join("copy");
            copy_folder(&left, &copy)?;
            let start = env.monotonic();
            let tepui = Served::tepui(&options.tepui, &copy, MEMORY).await?;
            let ready = (env.monotonic() - start).as_secs_f64() * 1e3;
            samples.add(&format!("ready after a kill, {name}, ms"), ready);
            tepui.stop().await?;
            std::fs::remove_dir_all(&copy)?;
        }
    }
    samples.print();
    Ok(())
}

/// Copies a folder, so that it is in the system's memory like what a process just wrote.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let copied = Command::new("cp").arg("-r").arg(from).arg(to).status()?;
    if copied.success() { Ok(()) } else { Err("the folder cannot be copied".into()) }
}
