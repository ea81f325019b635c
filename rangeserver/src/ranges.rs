//! The ranges that this server serves: opened when they are first asked for, or for recovery.
//!
//! 1. A range that nobody asked for has no place here.
//! 2. The first request makes its place and opens it: the catalog grants it under a new epoch, its
//!    storage is fenced under that epoch. Others that ask meanwhile wait for the same opening.
//! 3. A changed schema is noted for the table first, then put in force place by place.
//!
//! Invariants
//! - A range is opened by one task at a time; a request that goes away does not break it off.
//! - An opening reads the noted schema under its place's lock, and a schema change goes through all
//!   places' locks after it was noted: so no range is left with an older schema than the noted one.
//! - A dropped table's places are marked under their locks: they are not opened again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use client::{RangeAssignment, RangeTarget};
use lsm::{FileIds, RateLimiter, Store, StoreConfig};
use sstable::BlockCache;
use storage::Path;
use types::{RangeId, TableId, TableSchema};

use crate::budget::Budget;
use crate::error::{Error, Result, wrong_range};
use crate::options::Config;
use crate::range::Range;

/// The folder of all tables.
const TABLES_FOLDER: &str = "tables";

/// A table's folder.
pub(crate) fn table_folder(table: TableId) -> Path {
    Path::new(TABLES_FOLDER).join(&table.get().to_string())
}

pub(crate) struct Ranges {
    config: Config,
    budget: Arc<Budget>,
    cache: Arc<BlockCache>,
    limiter: Arc<RateLimiter>,
    file_ids: Arc<FileIds>,
    places: RwLock<BTreeMap<RangeId, Arc<Place>>>,
    /// The newest schemas that observers were told of, for openings that began before.
    schemas: Mutex<BTreeMap<TableId, Arc<TableSchema>>>,
}

#[derive(Default)]
struct Place {
    open: OnceLock<Arc<Range>>,
    opening: tokio::sync::Mutex<()>,
    is_dropped: AtomicBool,
}

impl Ranges {
    pub(crate) fn new(config: Config, budget: Arc<Budget>, cache: Arc<BlockCache>) -> Ranges {
        let limit = config.options.io_bytes_per_second;
        let limiter = RateLimiter::new(config.env.clone(), limit);
        let file_ids = Arc::new(FileIds::new(config.session));
        Ranges {
            config,
            budget,
            cache,
            limiter: Arc::new(limiter),
            file_ids,
            places: RwLock::default(),
            schemas: Mutex::default(),
        }
    }

    pub(crate) fn file_ids(&self) -> &FileIds {
        &self.file_ids
    }

    pub(crate) fn limiter(&self) -> &Arc<RateLimiter> {
        &self.limiter
    }

    pub(crate) fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// The range that `target` names, opened if need be.
    ///
    /// # Errors
    /// `WrongRange` when it is not served so; those of opening it.
    pub(crate) async fn serving(
        self: &Arc<Self>,
        target: &RangeTarget,
    ) -> client::Result<Arc<Range>> {
        let place = self.place(target.range);
        let range = match place.open.get() {
            Some(range) => Arc::clone(range),
            None => self.open(target.range, place).await?,
        };
        range.check(target)?;
        Ok(range)
    }

    /// Every open range, in the order of their ids.
    pub(crate) fn all(&self) -> Vec<Arc<Range>> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        places.values().filter_map(|place| place.open.get().cloned()).collect()
    }

    fn place(&self, range: RangeId) -> Arc<Place> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get(&range) {
            return Arc::clone(place);
        }
        drop(places);
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(places.entry(range).or_default())
    }

    fn forget(&self, range: RangeId, place: &Arc<Place>) {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        if places.get(&range).is_some_and(|present| Arc::ptr_eq(present, place)) {
            places.remove(&range);
        }
    }

    /// Is the range in its place?
    pub(crate) fn has(&self, range: &Arc<Range>) -> bool {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        let open = places.get(&range.id()).and_then(|place| place.open.get());
        open.is_some_and(|open| Arc::ptr_eq(open, range))
    }

    /// Takes a range that is closed out of its place: whoever asks for it next asks the catalog.
    pub(crate) fn leave(&self, range: &Arc<Range>) {
        if self.has(range) {
            // Nobody else puts a range in a place that has one.
            self.places.write().unwrap_or_else(PoisonError::into_inner).remove(&range.id());
        }
    }

    async fn open(
        self: &Arc<Self>,
        range: RangeId,
        place: Arc<Place>,
    ) -> client::Result<Arc<Range>> {
        let ranges = Arc::clone(self);
        let opening = async move {
            let outcome = ranges.open_place(range, &place).await;
            if outcome.is_err() {
                ranges.forget(range, &place);
            }
            outcome
        };
        let task = self.config.env.spawn("open a range", opening);
        task.join().await.unwrap_or_else(|| Err(wrong_range(range, "its opening was broken off")))
    }

    async fn open_place(&self, range: RangeId, place: &Place) -> client::Result<Arc<Range>> {
        let _one = place.opening.lock().await;
        if let Some(open) = place.open.get() {
            return Ok(Arc::clone(open));
        }
        let gone = || wrong_range(range, "there is no such range");
        if place.is_dropped.load(SeqCst) {
            return Err(gone());
        }
        let granted = self.config.assignments.assign(&[range], self.config.session).await?;
        let granted =
            granted.into_iter().find(|granted| granted.range == range).ok_or_else(gone)?;
        Ok(self.take_up(place, granted).await?)
    }

    /// Opens ranges that nobody can have asked for yet: for recovery. Those that no longer exist
    /// are left out.
    pub(crate) async fn open_for_recovery(&self, ranges: &[RangeId]) -> Result<Vec<Arc<Range>>> {
        let assignments = &self.config.assignments;
        let unopened: Vec<RangeId> = ranges
            .iter()
            .copied()
            .filter(|range| self.place(*range).open.get().is_none())
            .collect();
        if !unopened.is_empty() {
            let granted = assignments.assign(&unopened, self.config.session).await;
            for granted in granted.map_err(Error::Catalog)? {
                self.take_up(&self.place(granted.range), granted).await?;
            }
        }
        let opened = |range: &RangeId| self.place(*range).open.get().cloned();
        Ok(ranges.iter().filter_map(opened).collect())
    }

    async fn take_up(&self, place: &Place, granted: RangeAssignment) -> Result<Arc<Range>> {
        let RangeAssignment { range, rows, epoch, schema } = granted;
        let config = StoreConfig {
            files: Arc::clone(&self.config.files),
            env: self.config.env.clone(),
            table_folder: table_folder(schema.id),
            table: schema.id,
            range,
            bounds: rows,
            epoch,
            session: self.config.session,
            file_ids: Arc::clone(&self.file_ids),
            cache: Some(Arc::clone(&self.cache)),
            limiter: Arc::clone(&self.limiter),
            outlived: self.budget.outlived().clone(),
            events: Arc::clone(&self.config.events),
            options: self.config.options.effective_store(),
        };
        let store = Store::open_or_create(config).await.map_err(Error::store(range))?;
        let noted = self.schemas().get(&schema.id).cloned();
        let newest = noted.filter(|noted| noted.generation > schema.generation).unwrap_or(schema);
        let opened = Arc::new(Range::new(store, newest, Arc::clone(&self.budget)));
        Ok(Arc::clone(place.open.get_or_init(|| opened)))
    }

    /// Notes a table's schema and puts it in force in all its ranges; each with the last sequence
    /// number given out before.
    pub(crate) async fn adopt(&self, schema: &Arc<TableSchema>) -> Vec<(Arc<Range>, types::SeqNo)> {
        {
            let mut schemas = self.schemas();
            let noted = schemas.entry(schema.id).or_insert_with(|| Arc::clone(schema));
            if schema.generation > noted.generation {
                *noted = Arc::clone(schema);
            }
        }
        let mut adopted = Vec::new();
        for place in self.snapshot().into_values() {
            let _no_opening = place.opening.lock().await;
            if let Some(range) = place.open.get().filter(|range| range.table() == schema.id) {
                adopted.push((Arc::clone(range), range.adopt(schema)));
            }
        }
        adopted
    }

    /// Takes a dropped table's ranges out of service; those that were open.
    pub(crate) async fn drop_table(&self, table: TableId, ranges: &[RangeId]) -> Vec<Arc<Range>> {
        self.schemas().remove(&table);
        let mut dropped = Vec::new();
        for (id, place) in self.snapshot() {
            let _no_opening = place.opening.lock().await;
            let open = place.open.get().filter(|range| range.table() == table);
            if open.is_none() && !ranges.contains(&id) {
                continue;
            }
            place.is_dropped.store(true, SeqCst);
            self.forget(id, &place);
            if let Some(range) = open {
                range.close_writing();
                dropped.push(Arc::clone(range));
            }
        }
        dropped
    }

    fn snapshot(&self) -> BTreeMap<RangeId, Arc<Place>> {
        self.places.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn schemas(&self) -> std::sync::MutexGuard<'_, BTreeMap<TableId, Arc<TableSchema>>> {
        self.schemas.lock().expect("no holder of this lock panics")
    }
}
