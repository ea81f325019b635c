//! From what was left in the folder to a new session.
//!
//! 1. Make the folder's names durable; read the newest snapshot and the log that it names.
//! 2. Drop the keys of ended sessions.
//! 3. Start a new log, then commit a snapshot that names it: the opening's one point of no return.
//! 4. Remove everything older.

use std::collections::BTreeMap;
use std::sync::Arc;

use env::Env;
use storage::{FileSystem, Path};
use types::SessionId;
use wal::Log;

use super::EmbeddedOptions;
use super::format::{Refusal, Snapshot, VERSION, decode_record};
use super::state::{apply, without_sessions};
use crate::{Error, Result, Revision, Versioned};

/// What the folder held.
pub(super) struct Found {
    newest: u64,
    revision: Revision,
    entries: BTreeMap<String, Versioned>,
    /// The logs of former sessions.
    logs: Vec<Path>,
}

/// A session that has begun.
pub(super) struct Started {
    pub(super) log: Log,
    pub(super) session: SessionId,
    pub(super) snapshot: Snapshot,
}

pub(super) async fn read(files: &Arc<dyn FileSystem>, folder: &Path) -> Result<Found> {
    let listed = files.list(folder, "").await?;
    if !listed.is_empty() {
        files.sync_folder(folder).await?;
    }
    let names = listed.iter().map(|entry| entry.name.as_str());
    let newest = names.clone().filter_map(Snapshot::parse_name).max();
    let logs = listed.iter().filter(|entry| entry.is_folder);
    let logs = logs.filter(|entry| SessionId::parse(&entry.name).is_some());
    let logs: Vec<Path> = logs.map(|entry| folder.join(&entry.name)).collect();
    let Some(newest) = newest else {
        for log in &logs {
            check_unused(files, log).await?;
        }
        return Ok(Found { newest: 0, revision: Revision::ZERO, entries: BTreeMap::new(), logs });
    };
    let snapshot = read_snapshot(files, folder, newest).await?;
    let (mut entries, mut revision) = (snapshot.entries, snapshot.revision);
    if let Some(session) = snapshot.log {
        let log = folder.join(&session.to_string());
        revision = replay(files, &log, &mut entries, revision).await?;
    }
    let (entries, revision) = without_sessions(&entries, revision);
    Ok(Found { newest, revision, entries, logs })
}

/// Without any snapshot a log can only be that of an opening that came no further.
async fn check_unused(files: &Arc<dyn FileSystem>, log: &Path) -> Result<()> {
    let sealed = files.seal(log).await?;
    let mut reader = wal::recover(files, log, sealed).await?;
    if reader.next().await?.is_some() {
        return Err(Error::corrupt(log, "a log has records, but no snapshot is left"));
    }
    Ok(())
}

async fn read_snapshot(
    files: &Arc<dyn FileSystem>,
    folder: &Path,
    number: u64,
) -> Result<Snapshot> {
    let path = folder.join(&Snapshot::name(number));
    let blob = files.open(&path).await?;
    let len = usize::try_from(blob.len()).map_err(|_| Error::corrupt(&path, "it is too long"))?;
    let stored = blob.read_at(0, len).await?;
    let snapshot = Snapshot::decode(&stored).map_err(|refusal| refused(&path, refusal))?;
    if snapshot.number != number {
        return Err(Error::corrupt(&path, "its number is not that of its name"));
    }
    Ok(snapshot)
}

fn refused(path: &Path, refusal: Refusal) -> Error {
    match refusal {
        Refusal::Damaged(what) => Error::corrupt(path, what),
        Refusal::TooNew(needed) => Error::TooNew { path: path.clone(), needed, known: VERSION },
    }
}

/// Applies the log's records that are newer than `revision`.
async fn replay(
    files: &Arc<dyn FileSystem>,
    log: &Path,
    entries: &mut BTreeMap<String, Versioned>,
    mut revision: Revision,
) -> Result<Revision> {
    let sealed = files.seal(log).await?;
    if sealed.is_empty() {
        return Err(Error::corrupt(log, "the log that the snapshot names is missing"));
    }
    let mut reader = wal::recover(files, log, sealed).await?;
    while let Some(frame) = reader.next().await? {
        for entry in frame.entries {
            let at = Revision::new(entry.first_seq.get());
            if at <= revision {
                continue;
            }
            if at != revision.next() {
                let what = format!("transaction {at} follows {revision}");
                return Err(Error::corrupt(log, what));
            }
            let changes = decode_record(&entry.payload).map_err(|refusal| refused(log, refusal))?;
            if !apply(entries, at, changes) {
                return Err(Error::corrupt(log, format!("{at} deletes what is not there")));
            }
            revision = at;
        }
    }
    Ok(revision)
}

pub(super) async fn start(
    files: &Arc<dyn FileSystem>,
    env: &Env,
    folder: &Path,
    options: &EmbeddedOptions,
    found: &Found,
) -> Result<Started> {
    let session = SessionId::new(env.random_u128());
    let log_folder = folder.join(&session.to_string());
    let log = Log::create(Arc::clone(files), env.clone(), log_folder, options.log).await?;
    let snapshot = Snapshot {
        number: found.newest + 1,
        revision: found.revision,
        log: Some(session),
        entries: found.entries.clone(),
    };
    write_snapshot(files, folder, &snapshot).await?;
    Ok(Started { log, session, snapshot })
}

pub(super) async fn write_snapshot(
    files: &Arc<dyn FileSystem>,
    folder: &Path,
    snapshot: &Snapshot,
) -> Result<()> {
    let path = folder.join(&Snapshot::name(snapshot.number));
    files.put_if_absent(&path, snapshot.encode()).await?;
    Ok(())
}

/// Removes what the opening has replaced.
pub(super) async fn remove_former(
    files: &Arc<dyn FileSystem>,
    folder: &Path,
    found: &Found,
) -> Result<()> {
    remove_snapshots_below(files, folder, found.newest + 1).await?;
    for log in &found.logs {
        wal::remove_log(files, log).await?;
    }
    Ok(())
}

pub(super) async fn remove_snapshots_below(
    files: &Arc<dyn FileSystem>,
    folder: &Path,
    number: u64,
) -> Result<()> {
    for entry in files.list(folder, "").await? {
        if Snapshot::parse_name(&entry.name).is_some_and(|found| found < number) {
            files.remove(&folder.join(&entry.name)).await?;
        }
    }
    Ok(())
}
