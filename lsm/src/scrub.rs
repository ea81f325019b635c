//! Scrubbing: reads everything that a range stores again, and tells what is damaged.
//!
//! 1. The manifests that are there: each is whole, and names the checksum of the one before.
//! 2. Every SSTable of the version, one at a time: the checksum of the whole file, every block and
//!    every piece of a value, and that all agree (see `sstable::verify_file`); then that the file
//!    says of itself what the manifest says of it.
//!
//! Reading is paced, and goes around the block cache. Damage is told and changes nothing: a read
//! that meets it is refused as before, and all else is served.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use env::Env;
use sstable::Table;
use storage::{BlobReader, FileSystem, Path};
use types::ErrorKind;

use crate::error::{Error, Result};
use crate::files::table_path;
use crate::io::{IoClass, RateLimiter};
use crate::manifest::Chain;
use crate::store::{State, Store};
use crate::version::TableRef;

/// What one file of a scrub came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrubbed {
    /// The file.
    pub path: Path,
    /// Its bytes.
    pub bytes: u64,
    /// What is wrong with it, if anything is.
    pub damage: Option<Finding>,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// `Corrupt` for damaged bytes, `NotFound` for a file that is gone, else why it cannot be read.
    pub kind: ErrorKind,
    /// Where in the file, as far as that is known.
    pub offset: Option<u64>,
    /// What is wrong.
    pub what: String,
}

/// A scrub under way: pulled, file by file. Dropping it ends it.
pub struct Scrub {
    store: Arc<Store>,
    /// Keeps the files that are still to be read.
    state: Arc<State>,
    manifests: VecDeque<u64>,
    tables: VecDeque<Arc<TableRef>>,
    pace: Arc<Pace>,
    bytes_left: u64,
}

impl Store {
    /// Begins to scrub what the range stores now, at so many bytes a second; 0 is without limit.
    ///
    /// # Errors
    /// The store is stopped, or its folder cannot be listed.
    pub async fn scrub(self: &Arc<Self>, bytes_per_second: u64) -> Result<Scrub> {
        self.check()?;
        let state = self.state();
        let manifests = self.chain().numbers().await?.into();
        // A file may be referenced through several clips.
        let mut seen = std::collections::BTreeSet::new();
        let fresh = state.version.tables().filter(|table| seen.insert(table.id()));
        let tables: VecDeque<Arc<TableRef>> = fresh.cloned().collect();
        let bytes_left = state.version.bytes();
        let pace =
            Arc::new(Pace::new(self.env().clone(), bytes_per_second, Arc::clone(self.limiter())));
        Ok(Scrub { store: Arc::clone(self), state, manifests, tables, pace, bytes_left })
    }
}

impl Scrub {
    /// Files that are still to be read.
    pub fn files_left(&self) -> u64 {
        (self.manifests.len() + self.tables.len()) as u64
    }

    /// Bytes of the SSTables that are still to be read.
    pub fn bytes_left(&self) -> u64 {
        self.bytes_left
    }

    /// Reads the next file; `None` at the end.
    ///
    /// # Errors
    /// The store was stopped. What is wrong with a file is no error but what the scrub is for.
    pub async fn next(&mut self) -> Result<Option<Scrubbed>> {
        self.store.check()?;
        while let Some(number) = self.manifests.pop_front() {
            if let Some(scrubbed) = check_manifest(self.store.chain(), number).await {
                return Ok(Some(scrubbed));
            }
        }
        let Some(reference) = self.tables.pop_front() else {
            return Ok(None);
        };
        let folder = self.store.table_folder();
        let bytes = reference.meta.len;
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        assert!(self.state.tables.contains_key(&reference.id()), "a version's tables are open");
        let outcome = check_table(self.store.disk(), folder, &reference, &self.pace).await;
        self.store.check()?;
        let path = table_path(folder, reference.id());
        Ok(Some(Scrubbed { path, bytes, damage: outcome.err().map(|error| finding(&error)) }))
    }
}

/// Checks one manifest; `None` when a newer one has made it needless meanwhile.
pub(crate) async fn check_manifest(chain: &Chain, number: u64) -> Option<Scrubbed> {
    let path = chain.path(number);
    let scrubbed = |bytes, damage| Some(Scrubbed { path: path.clone(), bytes, damage });
    let (manifest, stored) = match chain.read_stored(number).await {
        Ok(Some(found)) => found,
        Ok(None) => return None,
        Err(error) => return scrubbed(0, Some(finding(&error))),
    };
    let bytes = stored.len() as u64;
    let before = match number.checked_sub(1) {
        Some(before) => chain.read_stored(before).await,
        None => Ok(None),
    };
    // One that is absent or damaged is told of by itself.
    let broken = before.ok().flatten().is_some_and(|(_, stored)| {
        crate::manifest::Manifest::checksum(&stored) != manifest.previous
    });
    let damage = broken.then(|| Finding {
        kind: ErrorKind::Corrupt,
        offset: None,
        what: "it does not follow the manifest before it".to_owned(),
    });
    scrubbed(bytes, damage)
}

/// Checks one SSTable against its reference.
pub(crate) async fn check_table(
    files: &Arc<dyn FileSystem>,
    table_folder: &Path,
    reference: &TableRef,
    pace: &Arc<Pace>,
) -> Result<()> {
    let meta = &reference.meta;
    let blob = files.open(&table_path(table_folder, meta.file)).await?;
    let paced: Arc<dyn BlobReader> = Arc::new(Paced { blob, pace: Arc::clone(pace) });
    sstable::verify_file(Arc::clone(&paced), meta.file, meta.len, meta.checksum).await?;
    let table = Table::open(paced, meta.file, meta.len, None).await?;
    let properties = table.properties();
    let bounds = properties.smallest == meta.smallest.as_bytes()
        && properties.largest == meta.largest.as_bytes();
    if bounds && *properties == meta.properties {
        return Ok(());
    }
    let what = "the manifest says otherwise of the file than the file itself".to_owned();
    Err(Error::CorruptCell { what })
}

pub(crate) fn finding(error: &Error) -> Finding {
    let offset = match error {
        Error::Table(sstable::Error::Corrupt { offset, .. }) => Some(*offset),
        Error::CorruptManifest { what, .. } => Some(what.offset as u64),
        _ => None,
    };
    Finding { kind: error.kind(), offset, what: error.to_string() }
}

/// Lets reads go at so many bytes a second.
pub(crate) struct Pace {
    env: Env,
    bytes_per_second: u64,
    limiter: Arc<RateLimiter>,
    /// When the next read may begin.
    ready: Mutex<Duration>,
}

impl Pace {
    pub(crate) fn new(env: Env, bytes_per_second: u64, limiter: Arc<RateLimiter>) -> Pace {
        Pace { env, bytes_per_second, limiter, ready: Mutex::default() }
    }

    /// Waits until a read of `bytes` may begin.
    async fn wait(&self, bytes: usize) {
        self.limiter.spend(IoClass::Background, bytes as u64).await;
        if self.bytes_per_second == 0 {
            return;
        }
        let now = self.env.monotonic();
        let begin = {
            let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
            let begin = now.max(*ready);
            *ready = begin + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
            begin
        };
        if begin > now {
            self.env.sleep(begin - now).await;
        }
    }
}

/// A file whose reads are paced.
struct Paced {
    blob: Arc<dyn BlobReader>,
    pace: Arc<Pace>,
}

#[async_trait]
impl BlobReader for Paced {
    fn len(&self) -> u64 {
        self.blob.len()
    }

    async fn read_at(&self, offset: u64, len: usize) -> storage::Result<Bytes> {
        self.pace.wait(len).await;
        self.blob.read_at(offset, len).await
    }
}
