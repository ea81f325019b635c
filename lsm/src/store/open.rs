//! Opens a range: the newest manifest, fenced under the new owner's epoch.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use env::planted::{PlantedBug, planted};
use types::{FileId, SeqNo, Timestamp};

use super::{Head, Layer, State, Store, StoreConfig, Writing};
use crate::clip::measure;
use crate::compaction::Control;
use crate::error::{Damage, Error, Result};
use crate::files::TableFiles;
use crate::layout::Layout;
use crate::manifest::{Chain, FORMAT, Manifest, Outcome, manifest_name};
use crate::memtable::{LEARNING_CELLS_MIN, MemtableOptions, common};
use crate::pin::Pinned;
use crate::version::Version;

/// Manifests of former owners that may each slip in before the fence stands.
const FENCE_ATTEMPTS_MAX: usize = 64;

impl Store {
    /// Writes the first manifest of a new range and opens it.
    ///
    /// # Errors
    /// [`Error::RangeExists`]; and those of [`Store::open`].
    pub async fn create(config: StoreConfig) -> Result<Arc<Store>> {
        config.options.validate()?;
        let chain = chain(&config);
        if chain.newest().await?.is_some() {
            return Err(Error::RangeExists { folder: chain.folder().clone() });
        }
        let manifest = successor(&config, None, Version::empty());
        let stored = Bytes::from(manifest.encode());
        let head = Head { number: manifest.number, checksum: Manifest::checksum(&stored) };
        match chain.commit(&manifest, stored).await? {
            Outcome::Committed => Store::start(config, chain, &manifest, head).await,
            Outcome::Superseded(_) => Err(Error::RangeExists { folder: chain.folder().clone() }),
        }
    }

    /// Opens a range: reads the newest manifest and commits it again under the new epoch, after
    /// which no former owner can commit.
    ///
    /// # Errors
    /// [`Error::NoManifest`], [`Error::Fenced`] when a later owner was here, damage of the manifest
    /// or of an SSTable's index, a manifest of a later release, and the file system's.
    pub async fn open(config: StoreConfig) -> Result<Arc<Store>> {
        config.options.validate()?;
        let chain = chain(&config);
        // What a crash could still take back is not built upon.
        config.files.sync_folder(chain.folder()).await?;
        for _ in 0..FENCE_ATTEMPTS_MAX {
            let Some((newest, checksum)) = chain.newest().await? else {
                return Err(Error::NoManifest { folder: chain.folder().clone() });
            };
            check_fits(&config, &chain, &newest)?;
            let before = Head { number: newest.number, checksum };
            let manifest = successor(&config, Some(before), newest.version);
            let stored = Bytes::from(manifest.encode());
            let head = Head { number: manifest.number, checksum: Manifest::checksum(&stored) };
            match chain.commit(&manifest, stored).await? {
                Outcome::Committed => return Store::start(config, chain, &manifest, head).await,
                // A former owner slipped in: build on its manifest.
                Outcome::Superseded(_) => {}
            }
        }
        Err(Error::Poisoned { reason: "former owners keep committing".to_owned() })
    }

    /// Opens the range if it has a manifest, else creates it: for owners whose catalog says that
    /// the range exists, whether or not its first open came to an end.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn open_or_create(config: StoreConfig) -> Result<Arc<Store>> {
        match Store::open(config.clone()).await {
            Err(Error::NoManifest { .. }) => {}
            opened => return opened,
        }
        match Store::create(config.clone()).await {
            Err(Error::RangeExists { .. }) => Store::open(config).await,
            created => created,
        }
    }

    /// Opens the version's SSTables.
    async fn start(
        config: StoreConfig,
        chain: Chain,
        manifest: &Manifest,
        head: Head,
    ) -> Result<Arc<Store>> {
        let files = Arc::new(TableFiles::new(
            Arc::clone(&config.files),
            config.table_folder.clone(),
            Arc::clone(&config.file_ids),
            config.cache.clone(),
        ));
        let mut version = manifest.version.clone();
        let mut tables = BTreeMap::new();
        if version.tables().next().is_some() {
            files.sync_folder().await?;
        }
        for group in version.groups() {
            for table in &group.tables {
                if let Entry::Vacant(place) = tables.entry(table.id()) {
                    place.insert(files.open(&table.meta, &group.settings).await?);
                }
            }
        }
        measure(&mut version, |id| tables.get(&id)).await;
        let version = Arc::new(version);
        let layout = Mutex::new(Arc::new(Layout::of(&version)));
        let flushed = version.flushed();
        let last_timestamp = version.last_timestamp();
        let compactions = Control::default();
        compactions.recount(&version, &config.options);
        let pinned = Pinned::new(first_state(version, tables), flushed);
        Ok(Arc::new(Store {
            config,
            chain,
            files,
            pinned,
            layout,
            writing: Mutex::new(Writing { placed: flushed, last_timestamp, memtables: 1 }),
            head: tokio::sync::Mutex::new(head),
            flushing: Arc::default(),
            compactions,
            counters: Arc::default(),
            rules: Mutex::default(),
            stop: OnceLock::new(),
            is_sealed: AtomicBool::new(false),
        }))
    }

    /// Moves past what was recovered, before the first batch is placed.
    pub(crate) fn skip_to(&self, seq: SeqNo, last_timestamp: Timestamp) {
        let mut writing = self.writing();
        assert!(!self.state().active.is_used(), "recovery comes before the first batch");
        let again = u64::from(planted(PlantedBug::ReuseSequenceNumber));
        let taken = SeqNo::from_raw(seq.get().saturating_sub(again)).expect("it is no greater");
        writing.placed = writing.placed.max(taken);
        writing.last_timestamp = writing.last_timestamp.max(last_timestamp);
        let placed = writing.placed;
        self.publish(placed.max(seq));
    }
}

pub(super) fn chain(config: &StoreConfig) -> Chain {
    Chain::new(Arc::clone(&config.files), config.range_folder())
}

fn first_state(version: Arc<Version>, tables: BTreeMap<FileId, Arc<sstable::Table>>) -> Arc<State> {
    let shared_prefix = shared_by_tables(&version);
    let active = Layer::new(MemtableOptions { id: 1, shared_prefix });
    Arc::new(State { version, tables, active, frozen: Vec::new() })
}

/// What all keys of the largest table begin with: new ones mostly do too. `None`: no table has
/// enough of them to tell.
fn shared_by_tables(version: &Version) -> Option<Vec<u8>> {
    let largest = version.tables().map(|table| &table.meta.properties).max_by_key(|of| of.cells)?;
    let tells = largest.cells >= LEARNING_CELLS_MIN as u64;
    tells.then(|| common(&largest.smallest, &largest.largest).to_vec())
}

/// The manifest after `before`.
pub(super) fn successor(config: &StoreConfig, before: Option<Head>, version: Version) -> Manifest {
    Manifest {
        table: config.table,
        range: config.range,
        number: before.map_or(0, |head| head.number) + 1,
        epoch: config.epoch,
        writer: config.env.random_u128(),
        session: config.session,
        previous: before.map_or(0, |head| head.checksum),
        bounds: config.bounds.clone(),
        options: config.options.clone(),
        version,
        min_writer: FORMAT,
    }
}

/// May this owner go on from `newest`?
fn check_fits(config: &StoreConfig, chain: &Chain, newest: &Manifest) -> Result<()> {
    let path = || chain.folder().join(&manifest_name(newest.number));
    let damage = |what| Error::CorruptManifest { path: path(), what: Damage { offset: 0, what } };
    let same_owner = newest.epoch == config.epoch && newest.session == config.session;
    if newest.epoch >= config.epoch && !same_owner {
        return Err(Error::Fenced { newest: newest.epoch, own: config.epoch });
    }
    if newest.min_writer > FORMAT {
        let what = format!("format {} or later may write after it", newest.min_writer);
        return Err(Error::NewerManifest { path: path(), what });
    }
    if newest.range != config.range || newest.table != config.table {
        return Err(damage("it is another range's"));
    }
    if newest.bounds != config.bounds {
        return Err(damage("its bounds are not those of the catalog"));
    }
    if newest.number == u64::MAX {
        return Err(damage("its number is the last"));
    }
    Ok(())
}
