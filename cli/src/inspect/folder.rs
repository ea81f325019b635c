//! `tepui inspect data`: looks over a whole data folder, and tells what is damaged.
//!
//! 1. `VERSION`, and whether a server holds the folder. Nothing is written and no lock is taken.
//! 2. The coordinator's newest snapshot and the log that continues it: they name the tables.
//! 3. The log of each session, read to its end.
//! 4. Each table's ranges: every manifest, and every SSTable that a newest manifest names, whole.
//!
//! A folder in use may be looked at, since files never change. But its logs grow meanwhile, so they
//! are listed and not read; and where a server has replaced a file, its range is looked at again.
//! Files are read one at a time, each into memory of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coordination::Change;
use coordination::format::{Snapshot, decode_record};
use lsm::{Manifest, TableRef};
use master::record::{Descriptor, TABLES};
use storage::memory::MemoryFileSystem;
use storage::{FileSystem, SealedLog};
use types::{FileId, TableId, TableName};

use super::{FILE_BYTES_MAX, load, said};
use crate::files::{self, Listed};
use crate::outcome::{Failure, Out};

/// How often a range is looked at again because a server replaces its files.
const LOOKS_MAX: usize = 5;

/// A look at a folder under way.
struct Look<'a> {
    root: &'a Path,
    in_use: bool,
    out: &'a mut Out,
    /// Names of tables, as the catalog has them.
    names: BTreeMap<TableId, TableName>,
    files: u64,
    bytes: u64,
    damaged: u64,
}

/// Looks over a data folder.
///
/// # Errors
/// It is no data folder or cannot be read; something in it is damaged.
pub(super) async fn look(root: &Path, out: &mut Out) -> Result<(), Failure> {
    let version = files::read(&root.join(storage::local::VERSION_FILE), FILE_BYTES_MAX)?;
    let id = storage::local::parse_version(root, &version).map_err(said)?;
    out.text(&format!("data folder {id}\n"))?;
    let in_use = files::is_locked(&root.join(storage::local::LOCK_FILE));
    if in_use {
        out.text("in use by a server: logs are listed, not read\n")?;
    }
    let names = BTreeMap::new();
    let mut look = Look { root, in_use, out, names, files: 0, bytes: 0, damaged: 0 };
    look.coordination().await?;
    look.logs().await?;
    look.tables().await?;
    let Look { files, bytes, damaged, .. } = look;
    out.text(&format!("read {files} files, {bytes} bytes: {damaged} damaged\n"))?;
    if damaged == 0 {
        return Ok(());
    }
    out.flush()?;
    Err(Failure::Said(format!("{damaged} of {files} files are damaged")))
}

impl Look<'_> {
    fn damage(&mut self, path: &Path, what: impl Display) -> Result<(), Failure> {
        self.damaged += 1;
        let path = path.strip_prefix(self.root).unwrap_or(path).display();
        self.out.text(&format!("DAMAGED {path}: {what}\n"))
    }

    /// The folders, or the files, in `folder`; nothing when it is absent.
    fn list(&self, folder: &Path, is_folder: bool) -> Result<Vec<Listed>, Failure> {
        let mut listed = files::list(folder)?;
        listed.retain(|entry| entry.is_folder == is_folder);
        Ok(listed)
    }

    fn count(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }

    /// Reads the catalog's tables.
    async fn coordination(&mut self) -> Result<(), Failure> {
        let folder = self.root.join("coordination");
        let listed = self.list(&folder, false)?;
        let Some(newest) = listed.iter().filter_map(|f| Snapshot::parse_name(&f.name)).max() else {
            return self.out.text("coordination: no snapshot\n");
        };
        let path = folder.join(Snapshot::name(newest));
        let stored = files::read(&path, FILE_BYTES_MAX)?;
        self.count(stored.len() as u64);
        let snapshot = match Snapshot::decode(&stored) {
            Ok(snapshot) if snapshot.number == newest => snapshot,
            Ok(_) => return self.damage(&path, "its number is not that of its name"),
            Err(refusal) => return self.damage(&path, format!("{refusal:?}")),
        };
        let keys = snapshot.entries.len();
        self.out.text(&format!("coordination: snapshot {newest}, {keys} keys\n"))?;
        for (key, found) in &snapshot.entries {
            self.learn(key, Some(&found.value), &path)?;
        }
        let Some(session) = snapshot.log else {
            return Ok(());
        };
        let log = folder.join(session.to_string());
        for entry in self.log(&log).await? {
            match decode_record(&entry) {
                Err(refusal) => self.damage(&log, format!("{refusal:?}"))?,
                Ok(changes) => {
                    for change in changes {
                        match change {
                            Change::Put { key, value, .. } => {
                                self.learn(&key, Some(&value), &log)?
                            }
                            Change::Delete { key } => self.learn(&key, None, &log)?,
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes in what the catalog says under a key.
    fn learn(&mut self, key: &str, value: Option<&bytes::Bytes>, at: &Path) -> Result<(), Failure> {
        let Some(value) = value else {
            self.names.retain(|_, name| key.strip_prefix(TABLES) != Some(&name.to_string()));
            return Ok(());
        };
        if let Err(what) = master::inspect::record(key, value) {
            return self.damage(at, format!("{key}: {what}"));
        }
        let name = key.strip_prefix(TABLES).and_then(|name| TableName::parse(name).ok());
        if let Some(name) = name
            && let Ok(found) = Descriptor::decode(value, name.clone())
        {
            self.names.insert(found.schema.id, name);
        }
        Ok(())
    }

    async fn logs(&mut self) -> Result<(), Failure> {
        let folder = self.root.join("wal");
        for session in self.list(&folder, true)? {
            let log = folder.join(&session.name);
            let others = self.list(&log, false)?;
            if others.iter().any(|file| file.name == "UNNEEDED") {
                self.out.text(&format!("log {}: all of it is in SSTables\n", session.name))?;
                continue;
            }
            if others.iter().any(|file| file.name == "SEALED") {
                let path = log.join("SEALED");
                let stored = files::read(&path, FILE_BYTES_MAX)?;
                self.count(stored.len() as u64);
                if let Err(what) = rangeserver::inspect_sealed(&stored) {
                    self.damage(&path, what)?;
                }
            }
            self.log(&log).await?;
        }
        Ok(())
    }

    /// Reads a log to its end, and answers the payloads of its batches.
    async fn log(&mut self, folder: &Path) -> Result<Vec<bytes::Bytes>, Failure> {
        let shown = folder.strip_prefix(self.root).unwrap_or(folder).display().to_string();
        let mut segments = self.list(folder, false)?;
        segments.retain(|file| file.name.ends_with(storage::local::LOG_SUFFIX));
        let (count, bytes) = (segments.len(), segments.iter().map(|file| file.len).sum::<u64>());
        let line = format!("log {shown}: {count} segments, {bytes} bytes");
        let mut batches = Vec::new();
        if self.in_use {
            self.out.text(&format!("{line}\n"))?;
            return Ok(batches);
        }
        if bytes > FILE_BYTES_MAX {
            self.out.text(&format!("{line}: too large to be read here\n"))?;
            return Ok(batches);
        }
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = storage::Path::new(name);
        let memory = MemoryFileSystem::new();
        let mut sealed = Vec::new();
        for segment in &segments {
            let content = files::read(&folder.join(&segment.name), FILE_BYTES_MAX)?;
            self.count(content.len() as u64);
            let path = name.join(&segment.name);
            sealed.push(SealedLog { path: path.clone(), len: content.len() as u64 });
            memory.put_if_absent(&path, content).await.map_err(said)?;
        }
        let memory: Arc<dyn FileSystem> = Arc::new(memory);
        let mut frames = 0;
        let outcome = async {
            let mut reader = wal::recover(&memory, &name, sealed).await?;
            while let Some(frame) = reader.next().await? {
                frames += 1;
                batches.extend(frame.entries.into_iter().map(|entry| entry.payload));
            }
            Ok::<bool, wal::Error>(reader.ended_cleanly())
        };
        match outcome.await {
            Err(error) => self.damage(folder, error)?,
            Ok(cleanly) => {
                let end = if cleanly { "closed" } else { "not closed" };
                self.out.text(&format!("{line}, {frames} frames, {end}\n"))?;
            }
        }
        Ok(batches)
    }

    async fn tables(&mut self) -> Result<(), Failure> {
        let folder = self.root.join("tables");
        for table in self.list(&folder, true)? {
            let id = table.name.parse().ok().map(TableId::new);
            let name = id.and_then(|id| self.names.get(&id));
            let absent = if self.in_use { "not in the snapshot" } else { "not in the catalog" };
            let name = name.map_or(absent.to_owned(), ToString::to_string);
            self.out.text(&format!("table {}: {name}\n", table.name))?;
            let folder = folder.join(&table.name);
            let mut named = BTreeSet::new();
            for range in self.list(&folder.join("ranges"), true)? {
                self.range(&folder, &range.name, &mut named).await?;
            }
            for file in self.list(&folder.join("files"), false)? {
                let id = file.name.strip_suffix(".sst").and_then(FileId::parse);
                if id.is_none_or(|id| !named.contains(&id)) {
                    let line = format!("  {} bytes that no range names: {}\n", file.len, file.name);
                    self.out.text(&line)?;
                }
            }
        }
        Ok(())
    }

    /// Looks at a range until no server replaces its files meanwhile.
    async fn range(
        &mut self,
        table: &Path,
        range: &str,
        named: &mut BTreeSet<FileId>,
    ) -> Result<(), Failure> {
        let folder = table.join("ranges").join(range);
        for look in 1..=LOOKS_MAX {
            let is_last = look == LOOKS_MAX || !self.in_use;
            let Some(manifest) = self.manifests(&folder, range, is_last)? else {
                return Ok(());
            };
            if self.sstables(table, &manifest, named, is_last).await? {
                break;
            }
        }
        Ok(())
    }

    /// Checks the manifests of a range; the newest, if it is whole.
    fn manifests(
        &mut self,
        folder: &Path,
        range: &str,
        is_last: bool,
    ) -> Result<Option<Manifest>, Failure> {
        let mut newest = None;
        for file in self.list(folder, false)? {
            if lsm::manifest_number(&file.name).is_none() {
                continue;
            }
            let path = folder.join(&file.name);
            let stored = match files::read(&path, FILE_BYTES_MAX) {
                Ok(stored) => stored,
                Err(_) if !is_last && !path.exists() => continue,
                Err(failed) => {
                    self.damage(&path, failed)?;
                    continue;
                }
            };
            self.count(stored.len() as u64);
            newest = match Manifest::decode(&storage::Path::new(&file.name), &stored) {
                Ok(manifest) => Some(manifest),
                Err(error) => {
                    self.damage(&path, error)?;
                    None
                }
            };
        }
        let line = match &newest {
            None => format!("  range {range}: no manifest to go by\n"),
            Some(manifest) => {
                let Manifest { number, bounds, version, .. } = manifest;
                let (files, bytes) = (version.file_ids().len(), version.bytes());
                format!(
                    "  range {range} {bounds:?}: manifest {number}, {files} files, {bytes} bytes\n"
                )
            }
        };
        self.out.text(&line)?;
        Ok(newest)
    }

    /// Checks the SSTables that a manifest names and no other did before. `false`: one is gone that
    /// a server may have replaced.
    async fn sstables(
        &mut self,
        folder: &Path,
        manifest: &Manifest,
        named: &mut BTreeSet<FileId>,
        is_last: bool,
    ) -> Result<bool, Failure> {
        for reference in manifest.version.tables() {
            if named.contains(&reference.id()) {
                continue;
            }
            let path = folder.join("files").join(format!("{}.sst", reference.id()));
            let outcome = check_sstable(&path, reference).await;
            if outcome.is_err() && !is_last && !path.exists() {
                return Ok(false);
            }
            named.insert(reference.id());
            self.count(reference.meta.len);
            match outcome {
                Err(what) => self.damage(&path, what)?,
                Ok(()) => {
                    let (id, level, len) = (reference.id(), reference.level, reference.meta.len);
                    self.out.text(&format!("    L{level} {id} {len} bytes\n"))?;
                }
            }
        }
        Ok(true)
    }
}

/// Checks a file whole, and against what the manifest says of it.
async fn check_sstable(path: &Path, reference: &TableRef) -> Result<(), String> {
    let told = |failure: Failure| match failure {
        Failure::Said(text) => text,
        Failure::OutputClosed => "the output is closed".to_owned(),
    };
    let path: PathBuf = path.to_owned();
    let (files, name) = load(&path).await.map_err(told)?;
    let blob = files.open(&name).await.map_err(|error| error.to_string())?;
    let meta = &reference.meta;
    let verified = sstable::verify_file(Arc::clone(&blob), meta.file, meta.len, meta.checksum);
    verified.await.map_err(|error| error.to_string())?;
    let table = sstable::Table::open(blob, meta.file, meta.len, None).await;
    if *table.map_err(|error| error.to_string())?.properties() != meta.properties {
        return Err("the manifest says otherwise of the file than the file itself".to_owned());
    }
    Ok(())
}
