//! Commits manifests, one number after the other, and finds the newest.
//!
//! The steps are those of "Committing" in the format's text. What must hold: a commit is reported
//! as done only if its manifest is durable and was the newest at a listing made after it; an
//! unknown outcome is never reported as a failure that may be repeated, it poisons.

use std::sync::Arc;

use bytes::Bytes;
use storage::{FileSystem, Path};
use types::ErrorKind;

use super::{Manifest, manifest_name, manifest_number};
use crate::error::{Damage, Error, Result};

/// A larger manifest is damage: it would describe more than a million SSTables.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;
/// Puts of one manifest before an unknown outcome is final.
const PUTS_MAX: usize = 3;
/// Listings that may each find the newest manifest removed before it is read.
const LISTINGS_MAX: usize = 16;

/// What became of a commit.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It counts.
    Committed,
    /// It does not: this one is newer or took its number.
    Superseded(Box<Manifest>),
}

/// The manifests of one range.
#[derive(Clone)]
pub(crate) struct Chain {
    files: Arc<dyn FileSystem>,
    folder: Path,
}

impl Chain {
    /// The manifests in `folder`.
    pub(crate) fn new(files: Arc<dyn FileSystem>, folder: Path) -> Chain {
        Chain { files, folder }
    }

    /// The range's folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The newest manifest and its checksum; `None` when there is none.
    pub(crate) async fn newest(&self) -> Result<Option<(Manifest, u64)>> {
        for _ in 0..LISTINGS_MAX {
            let Some(number) = self.numbers().await?.pop() else {
                return Ok(None);
            };
            // Absent again: a newer one was committed and this one removed.
            if let Some(found) = self.read(number).await? {
                return Ok(Some(found));
            }
        }
        let path = self.path(0);
        let what = Damage { offset: 0, what: "every listing names a manifest that is not there" };
        Err(Error::CorruptManifest { path, what })
    }

    /// Commits `manifest` under its number and removes those that it makes needless.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when it is unknown whether the manifest is there. A full disk leaves
    /// nothing behind and may be tried again.
    pub(crate) async fn commit(&self, manifest: &Manifest, stored: Bytes) -> Result<Outcome> {
        let ours = self.put(manifest, stored).await?;
        let listed = self.numbers().await.map_err(|failed| poisoned(&failed))?;
        let newer = listed.last().is_some_and(|newest| *newest > manifest.number);
        if !ours || newer {
            let newest = self.newest().await.map_err(|failed| poisoned(&failed))?;
            let (newest, _) = newest.ok_or_else(|| Error::Poisoned {
                reason: format!("manifest {} was removed", self.path(manifest.number)),
            })?;
            return Ok(Outcome::Superseded(Box::new(newest)));
        }
        for number in listed {
            if number.saturating_add(1) < manifest.number {
                // One that stays costs its space only; the next commit tries again.
                let _ = self.files.remove(&self.path(number)).await;
            }
        }
        Ok(Outcome::Committed)
    }

    /// Puts the manifest. `true`: it is there and durable. `false`: another one has its number.
    async fn put(&self, manifest: &Manifest, stored: Bytes) -> Result<bool> {
        let path = self.path(manifest.number);
        let mut reason = String::new();
        for _ in 0..PUTS_MAX {
            let Err(failed) = self.files.put_if_absent(&path, stored.clone()).await else {
                return Ok(true);
            };
            match failed.kind() {
                ErrorKind::AlreadyExists
                | ErrorKind::ResourceExhausted
                | ErrorKind::Unavailable
                | ErrorKind::DeadlineExceeded
                | ErrorKind::Aborted => {}
                // A write or sync that failed for good: nothing is known of what is on the disk.
                _ => return Err(Error::Poisoned { reason: failed.to_string() }),
            }
            let found = self
                .read(manifest.number)
                .await
                .map_err(|second| Error::Poisoned { reason: format!("{failed}, then {second}") })?;
            match found {
                Some((other, _)) if other.writer == manifest.writer => {
                    let synced = self.files.sync_folder(&self.folder).await;
                    synced.map_err(|second| poisoned(&second.into()))?;
                    return Ok(true);
                }
                Some(_) => return Ok(false),
                // Another's, removed since: newer ones stand above it.
                None if failed.kind() == ErrorKind::AlreadyExists => return Ok(false),
                None if failed.kind() == ErrorKind::ResourceExhausted => return Err(failed.into()),
                None => reason = failed.to_string(),
            }
        }
        Err(Error::Poisoned { reason })
    }

    /// Numbers of the manifests present, ascending.
    pub(crate) async fn numbers(&self) -> Result<Vec<u64>> {
        let entries = self.files.list(&self.folder, "").await?;
        let mut numbers: Vec<u64> =
            entries.iter().filter_map(|entry| manifest_number(&entry.name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Reads one manifest and its checksum; `None` when it is absent.
    async fn read(&self, number: u64) -> Result<Option<(Manifest, u64)>> {
        let found = self.read_stored(number).await?;
        Ok(found.map(|(manifest, stored)| (manifest, Manifest::checksum(&stored))))
    }

    /// Reads one manifest and its stored form; `None` when it is absent.
    pub(crate) async fn read_stored(&self, number: u64) -> Result<Option<(Manifest, Bytes)>> {
        let path = self.path(number);
        let reader = match self.files.open(&path).await {
            Ok(reader) => reader,
            Err(failed) if failed.kind() == ErrorKind::NotFound => return Ok(None),
            Err(failed) => return Err(failed.into()),
        };
        if reader.len() > MANIFEST_BYTES_MAX {
            let what = Damage { offset: 0, what: "it is larger than any manifest" };
            return Err(Error::CorruptManifest { path, what });
        }
        let len = usize::try_from(reader.len()).expect("a checked length fits");
        let stored = match reader.read_at(0, len).await {
            Ok(stored) => stored,
            Err(failed) if failed.kind() == ErrorKind::NotFound => return Ok(None),
            Err(failed) => return Err(failed.into()),
        };
        let manifest = Manifest::decode(&path, &stored)?;
        Ok(Some((manifest, stored)))
    }

    /// The path of one manifest.
    pub(crate) fn path(&self, number: u64) -> Path {
        self.folder.join(&manifest_name(number))
    }
}

fn poisoned(failed: &Error) -> Error {
    Error::Poisoned { reason: failed.to_string() }
}
