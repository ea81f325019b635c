//! What is recorded of a dead session's log: `wal/<session>/SEALED`, and `UNNEEDED` at the end.
//!
//! A log is sealed once and its lengths are recorded once, before anything is built on it: bytes
//! that were never synced may vanish in a later power cut, so a later look could find another end.
//! Every recovery reads the log within the recorded lengths.
//!
//! The record is text, one line a segment, oldest first:
//!
//! ```text
//! tepui sealed log 1
//! <length in bytes> <file name>
//! …
//! xxh3 <16 hexadecimal digits: XXH3-64 of all bytes before this line>
//! ```
//!
//! `UNNEEDED` is an empty file that says that all of the log is in SSTables which manifests name:
//! what is left of the folder can go. Its name sorts last, so it is the last file to be removed.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use storage::{FileSystem, Path, SealedLog};
use types::ErrorKind;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};

const FIRST_LINE: &str = "tepui sealed log 1";
const SEALED: &str = "SEALED";
const UNNEEDED: &str = "UNNEEDED";
/// A record longer than this is not ours: a line for each of far more segments than a log has.
const RECORD_BYTES_MAX: u64 = 16 << 20;

/// Seals the log in `folder` and returns its recorded segments; records them the first time.
pub(crate) async fn seal(files: &Arc<dyn FileSystem>, folder: &Path) -> Result<Vec<SealedLog>> {
    let found = files.seal(folder).await?;
    let path = folder.join(SEALED);
    if let Some(recorded) = read(files, folder, &path).await? {
        return Ok(recorded);
    }
    match files.put_if_absent(&path, Bytes::from(encode(&found))).await {
        Ok(()) => Ok(found),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let recorded = read(files, folder, &path).await?;
            recorded.ok_or(Error::CorruptSeal { path, what: "it vanished" })
        }
        Err(error) => Err(error.into()),
    }
}

/// Is all of the log in SSTables?
pub(crate) async fn is_unneeded(files: &Arc<dyn FileSystem>, folder: &Path) -> Result<bool> {
    let entries = files.list(folder, "").await?;
    let is_marked = entries.iter().any(|entry| entry.name == UNNEEDED);
    if is_marked {
        // A mark that a crash can still take back must not cost the log its segments.
        files.sync_folder(folder).await?;
    }
    Ok(is_marked)
}

/// Notes that all of the log is in SSTables which manifests name.
pub(crate) async fn mark_unneeded(files: &Arc<dyn FileSystem>, folder: &Path) -> Result<()> {
    match files.put_if_absent(&folder.join(UNNEEDED), Bytes::new()).await {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints the record `SEALED` of a dead session's log: its segments and how long each counts.
///
/// # Errors
/// What is wrong with it.
pub fn inspect_sealed(stored: &[u8]) -> std::result::Result<String, &'static str> {
    let segments = decode(&Path::root(), stored)?;
    let mut text = format!("sealed log of {} segments\n", segments.len());
    for segment in segments {
        let (name, len) = (segment.path.name(), segment.len);
        writeln!(text, "  {name}: {len} bytes count at most").expect("writing to memory");
    }
    Ok(text)
}

async fn read(
    files: &Arc<dyn FileSystem>,
    folder: &Path,
    path: &Path,
) -> Result<Option<Vec<SealedLog>>> {
    let reader = match files.open(path).await {
        Ok(reader) => reader,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let corrupt = |what| Error::CorruptSeal { path: path.clone(), what };
    if reader.len() > RECORD_BYTES_MAX {
        return Err(corrupt("it is too long"));
    }
    let len = usize::try_from(reader.len()).map_err(|_| corrupt("it is too long"))?;
    let stored = reader.read_at(0, len).await?;
    decode(folder, &stored).map_err(corrupt).map(Some)
}

fn encode(logs: &[SealedLog]) -> String {
    let mut text = format!("{FIRST_LINE}\n");
    for log in logs {
        writeln!(text, "{} {}", log.len, log.path.name()).expect("writing to memory");
    }
    let checksum = xxh3_64(text.as_bytes());
    writeln!(text, "xxh3 {checksum:016x}").expect("writing to memory");
    text
}

fn decode(folder: &Path, stored: &[u8]) -> std::result::Result<Vec<SealedLog>, &'static str> {
    let text = std::str::from_utf8(stored).map_err(|_| "it is not text")?;
    let (body, rest) = text.rsplit_once("xxh3 ").ok_or("its checksum is missing")?;
    let expected = format!("{:016x}\n", xxh3_64(body.as_bytes()));
    if rest != expected {
        return Err("its checksum is wrong");
    }
    let mut lines = body.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err("its version is not known");
    }
    let segment = |line: &str| {
        let (len, name) = line.split_once(' ').ok_or("a line is malformed")?;
        let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
        if !plain || name.starts_with('.') {
            return Err("a file name is malformed");
        }
        let len = len.parse().map_err(|_| "a length is malformed")?;
        Ok(SealedLog { path: folder.join(name), len })
    };
    lines.map(segment).collect()
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn example() -> (Path, Vec<SealedLog>) {
        let folder = Path::new("wal/0123");
        let log = |name: &str, len| SealedLog { path: folder.join(name), len };
        let logs = vec![log("00000000000000000001-00ff.log", 4096), log("2.log", 0)];
        (folder, logs)
    }

    #[test]
    fn a_record_has_exactly_these_lines_and_reads_back() {
        let (folder, logs) = example();
        let text = encode(&logs);
        let body = "tepui sealed log 1\n4096 00000000000000000001-00ff.log\n0 2.log\n";
        assert_eq!(text, format!("{body}xxh3 {:016x}\n", xxh3_64(body.as_bytes())));
        assert_eq!(decode(&folder, text.as_bytes()), Ok(logs));
        assert_eq!(decode(&folder, encode(&[]).as_bytes()), Ok(Vec::new()));
    }

    #[test]
    fn a_record_is_shown_with_the_lengths_that_count() {
        let (_, logs) = example();
        let text = inspect_sealed(encode(&logs).as_bytes()).unwrap();
        assert!(text.starts_with("sealed log of 2 segments\n"), "{text}");
        assert!(text.contains("0001-00ff.log: 4096 bytes"), "{text}");
        assert_eq!(inspect_sealed(b"tepui sealed log 1\n"), Err("its checksum is missing"));
    }

    #[test]
    fn every_flipped_or_missing_byte_is_noticed() {
        let (folder, logs) = example();
        let good = encode(&logs).into_bytes();
        let mut random = StdRng::seed_from_u64(7);
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 1 << random.random_range(0..8);
            decode(&folder, &bad).unwrap_err();
            decode(&folder, &good[..place]).unwrap_err();
        }
    }
}
