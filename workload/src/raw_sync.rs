//! The yardstick of a durable put: a record of the same size, written and synced alone.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use env::Env;

use crate::Result;

/// A put's record: the value, its key, and the log's framing.
const RECORD_BYTES: usize = 1024 + 128;

/// The median time of `count` single writes, each followed by `fdatasync`, on a file whose blocks
/// are written already (as a recycled log segment's are).
#[expect(clippy::disallowed_methods, reason = "a raw file is the thing to compare with")]
pub(crate) fn p50(folder: &Path, count: u64) -> Result<Duration> {
    let env = Env::system();
    let path = folder.join("raw-sync");
    let file = std::fs::File::create(&path)?;
    file.write_all_at(&vec![0; RECORD_BYTES * usize::try_from(count)? + 4096], 0)?;
    file.sync_all()?;
    let record = [7_u8; RECORD_BYTES];
    let mut times = Vec::new();
    for n in 0..count {
        let start = env.monotonic();
        file.write_all_at(&record, n * RECORD_BYTES as u64)?;
        file.sync_data()?;
        times.push(env.monotonic() - start);
    }
    std::fs::remove_file(&path)?;
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
