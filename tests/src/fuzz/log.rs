//! A damaged log is read as a prefix of what was written, or refused.

use std::sync::Arc;

use bytes::Bytes;
use env::Env;
use rand::rngs::StdRng;
use rand::{Rng, RngCore};
use storage::memory::MemoryFileSystem;
use storage::{FileSystem, Path};
use types::{Epoch, ErrorKind, RangeId, SeqNo, SessionId};
use wal::{Entry, EntryKind, Log, LogOptions, OwnedEntry, recover};

use super::{damage, run};

const OPTIONS: LogOptions =
    LogOptions { first_segment_bytes: 512, segment_bytes: 1024, segments_ahead: 1 };

fn folder() -> Path {
    Path::new("wal").join(&SessionId::new(7).to_string())
}

fn entry(random: &mut StdRng, number: u64) -> OwnedEntry {
    let mut payload = vec![0; random.random_range(0..200)];
    random.fill_bytes(&mut payload);
    OwnedEntry {
        kind: EntryKind::Batch,
        range: RangeId::new(random.random_range(1..4)),
        epoch: Epoch::new(1),
        first_seq: SeqNo::from_raw(number).expect("a legal number"),
        count: 1,
        payload: payload.into(),
    }
}

async fn write(
    random: &mut StdRng,
    files: &Arc<dyn FileSystem>,
) -> Result<Vec<Vec<OwnedEntry>>, wal::Error> {
    let env = Env::simulated(random.random());
    let log = Log::create(files.clone(), env, folder(), OPTIONS).await?;
    let mut groups = Vec::new();
    for number in 1..random.random_range(3..12) {
        let group: Vec<OwnedEntry> =
            (0..random.random_range(1..3)).map(|_| entry(random, number)).collect();
        let bytes = group.iter().map(|entry| entry.payload.len()).sum();
        let _space = log.reserve(bytes, group.len()).await?;
        let entries: Vec<Entry<'_>> = group.iter().map(OwnedEntry::as_entry).collect();
        log.append(&entries)?;
        if random.random_bool(0.6) {
            log.sync()?;
        }
        groups.push(group);
    }
    if random.random_bool(0.3) {
        log.close().await?;
    }
    Ok(groups)
}

async fn read(files: &Arc<dyn FileSystem>) -> Result<Vec<Vec<OwnedEntry>>, wal::Error> {
    let sealed = files.seal(&folder()).await?;
    for log in &sealed {
        let mut text = String::new();
        // Any answer will do: it must not panic.
        let _ = wal::inspect(files, &log.path, None, &mut text).await;
    }
    let mut reader = recover(files, &folder(), sealed).await?;
    let mut groups = Vec::new();
    while let Some(frame) = reader.next().await? {
        groups.push(frame.entries);
    }
    Ok(groups)
}

/// Damages some files of the log, anew on a disk of its own.
async fn damaged(random: &mut StdRng, disk: &MemoryFileSystem) -> Arc<dyn FileSystem> {
    let files: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let paths = disk.paths();
    let chosen = random.random_range(0..paths.len());
    for (number, path) in paths.iter().enumerate() {
        let mut bytes = disk.read_all(path).expect("a listed file is there").to_vec();
        if number == chosen || random.random_bool(0.2) {
            damage(random, &mut bytes);
            if random.random_bool(0.2) {
                bytes.truncate(random.random_range(0..=bytes.len()));
            }
        }
        let put = files.put_if_absent(path, Bytes::from(bytes)).await;
        put.expect("a disk in memory takes a file");
    }
    files
}

/// Reads back what was written; of a damaged log a prefix, or nothing and `Corrupt`.
pub(super) fn log_frames(random: &mut StdRng) {
    run(async {
        let disk = MemoryFileSystem::new();
        let files: Arc<dyn FileSystem> = Arc::new(disk.clone());
        let written = write(random, &files).await.expect("a disk in memory never fails");
        let whole = read(&files).await.expect("an undamaged log is read");
        assert!(whole == written, "{} of {} groups", whole.len(), written.len());
        match read(&damaged(random, &disk).await).await {
            Ok(found) => assert!(written.starts_with(&found), "not a prefix of what was written"),
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::FailedPrecondition),
                "{error}"
            ),
        }
    });
}
