//! The master: answers the seams of `client` over the catalog, and tells range servers.
//!
//! An operation that changes tables runs in a task of its own, one at a time: a caller that goes
//! away does not leave it half done. It answers when the change is durable and every attached
//! server has acknowledged it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use client::{
    AdminService, Assignments, Division, FamilyChange, Locator, NewGroup, NewTable,
    RangeAssignment, RangeKeeper, RangeLocation, RangeService, SchemaObserver, TableLayout,
    TablePage, TableRange,
};
use coordination::Coordinator;
use env::Env;
use types::{ErrorKind, Generation, RangeId, RowRange, SessionId, TableId, TableName, TableSchema};

use crate::catalog::{Catalog, Stored};
use crate::error::Result;
use crate::record::{Descriptor, TableState};
use crate::tables::{absent, plan, present};
use crate::{families, groups};

/// A range server as the master meets it.
#[derive(Clone)]
pub struct Server {
    /// This run of it.
    pub session: SessionId,
    /// Serves its ranges.
    pub ranges: Arc<dyn RangeService>,
    /// Is told of changed and dropped tables.
    pub observer: Arc<dyn SchemaObserver>,
    /// Looks after its ranges.
    pub keeper: Arc<dyn RangeKeeper>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("session", &self.session).finish_non_exhaustive()
    }
}

/// Holds the catalog: tables, their ranges, and who serves them.
#[derive(Clone)]
pub struct Master {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) catalog: Catalog,
    pub(crate) env: Env,
    /// Whoever changes tables.
    turn: tokio::sync::Mutex<()>,
    servers: Mutex<BTreeMap<SessionId, Server>>,
    /// Which table a range belongs to: that never changes, so what is kept is never wrong.
    tables: Mutex<BTreeMap<RangeId, TableId>>,
    /// What a table is called: that never changes either.
    names: Mutex<BTreeMap<TableId, TableName>>,
}

impl std::fmt::Debug for Master {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let servers = self.inner.servers().len();
        f.debug_struct("Master").field("servers", &servers).finish_non_exhaustive()
    }
}

impl Master {
    /// Reads the catalog and removes tables that were left half created.
    ///
    /// # Errors
    /// `Corrupt` when a record is damaged; those of the coordinator.
    pub async fn open(coordinator: Arc<dyn Coordinator>, env: Env) -> client::Result<Master> {
        let inner = Inner {
            catalog: Catalog::new(coordinator),
            env,
            turn: tokio::sync::Mutex::new(()),
            servers: Mutex::default(),
            tables: Mutex::default(),
            names: Mutex::default(),
        };
        inner.note_ranges(inner.catalog.live_ranges().await?);
        for table in inner.catalog.all_tables().await? {
            if table.record.state == TableState::Creating {
                inner.catalog.remove_records(&table).await?;
            }
        }
        Ok(Master { inner: Arc::new(inner) })
    }

    /// Takes in a range server that has begun, then finishes deletions that were left half done.
    ///
    /// # Errors
    /// Those of the coordinator and of the server.
    pub async fn attach(&self, server: Server) -> client::Result<()> {
        self.inner.servers().insert(server.session, server);
        self.run("finish deletions", async |inner| {
            for table in inner.catalog.all_tables().await? {
                if table.record.state == TableState::Deleting {
                    inner.finish_deleting(&table).await?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Forgets a range server that has ended.
    pub fn detach(&self, session: SessionId) {
        self.inner.servers().remove(&session);
    }

    /// Runs an operation that changes tables, alone, to its end.
    async fn run<T: Send + 'static, F>(
        &self,
        name: &'static str,
        operation: impl FnOnce(Arc<Inner>) -> F + Send + 'static,
    ) -> client::Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.run_beside(name, async move |inner| {
            let running = operation(Arc::clone(&inner));
            let _turn = inner.turn.lock().await;
            running.await
        })
        .await
    }

    /// Runs an operation beside others to its end, though its caller may go away.
    async fn run_beside<T: Send + 'static, F>(
        &self,
        name: &'static str,
        operation: impl FnOnce(Arc<Inner>) -> F,
    ) -> client::Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let task = self.inner.env.spawn(name, operation(Arc::clone(&self.inner)));
        let broken_off = || client::Error::new(ErrorKind::Aborted, format!("{name}: broken off"));
        let outcome = task.join().await.ok_or_else(broken_off)?;
        outcome.map_err(client::Error::from)
    }
}

impl Inner {
    pub(crate) fn servers(&self) -> MutexGuard<'_, BTreeMap<SessionId, Server>> {
        self.servers.lock().expect("no holder of this lock panics")
    }

    fn tables(&self) -> MutexGuard<'_, BTreeMap<RangeId, TableId>> {
        self.tables.lock().expect("no holder of this lock panics")
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<TableId, TableName>> {
        self.names.lock().expect("no holder of this lock panics")
    }

    fn note_ranges(&self, ranges: Vec<(RangeId, TableId)>) {
        self.tables().extend(ranges);
    }

    fn observers(&self) -> Vec<Arc<dyn SchemaObserver>> {
        self.servers().values().map(|server| Arc::clone(&server.observer)).collect()
    }

    async fn create(&self, table: NewTable) -> Result<Arc<TableSchema>> {
        let (schema, ranges) = plan(table)?;
        match self.catalog.table(&schema.name).await? {
            None => {}
            Some(found) => match found.record.state {
                TableState::Enabled => return Err(present(&schema.name).into()),
                TableState::Creating => self.catalog.remove_records(&found).await?,
                TableState::Deleting => self.finish_deleting(&found).await?,
            },
        }
        let name = schema.name.clone();
        let created = self.catalog.create(schema, ranges).await;
        if created.is_err()
            && let Ok(Some(left)) = self.catalog.table(&name).await
            && left.record.state == TableState::Creating
        {
            // Else the next operation on this name, or the next opening, removes it.
            let _ = self.catalog.remove_records(&left).await;
        }
        created.map(Arc::new)
    }

    async fn delete(&self, name: &TableName) -> Result<()> {
        let Some(found) = self.catalog.table(name).await? else {
            return Err(absent(name).into());
        };
        match found.record.state {
            TableState::Enabled => {
                let deleting = self.catalog.begin_deleting(found).await?;
                self.finish_deleting(&deleting).await
            }
            TableState::Creating => {
                self.catalog.remove_records(&found).await?;
                Err(absent(name).into())
            }
            TableState::Deleting => {
                self.finish_deleting(&found).await?;
                Err(absent(name).into())
            }
        }
    }

    /// Takes a deleted table's ranges out of service, then removes its records.
    async fn finish_deleting(&self, table: &Stored<Descriptor>) -> Result<()> {
        let id = table.record.schema.id;
        let ranges = self.catalog.ranges_of(id).await?;
        let ranges: Vec<RangeId> = ranges.into_iter().map(|range| range.id).collect();
        for observer in self.observers() {
            observer.table_dropped(id, &ranges).await?;
        }
        self.catalog.remove_records(table).await?;
        self.tables().retain(|_, table| *table != id);
        self.names().remove(&id);
        Ok(())
    }

    /// Changes a table's schema and puts it in force on every server.
    async fn modify(
        &self,
        name: &TableName,
        change: impl FnOnce(&mut TableSchema) -> client::Result<()>,
    ) -> Result<Arc<TableSchema>> {
        let Stored { mut record, modified } = self.catalog.enabled(name).await?;
        let before = record.schema.clone();
        change(&mut record.schema)?;
        if record.schema == before {
            return Ok(Arc::new(record.schema));
        }
        record.schema.generation = Generation::new(record.schema.generation.get() + 1);
        self.catalog.replace_table(modified, &record).await?;
        let schema = Arc::new(record.schema);
        for observer in self.observers() {
            observer.schema_changed(Arc::clone(&schema)).await?;
        }
        Ok(schema)
    }

    async fn list(&self, instance: &str, after: &str, limit: usize) -> Result<TablePage> {
        let limit = limit.max(1);
        let mut tables: Vec<Arc<TableSchema>> = Vec::new();
        let mut after = after.to_owned();
        loop {
            let (page, more) = self.catalog.tables_of(instance, &after).await?;
            for Stored { record, .. } in page {
                after.clone_from(&record.schema.name.table);
                if record.state != TableState::Enabled {
                    continue;
                }
                if tables.len() == limit {
                    let next = tables.last().map(|last| last.name.table.clone());
                    return Ok(TablePage { tables, next });
                }
                tables.push(Arc::new(record.schema));
            }
            if !more {
                return Ok(TablePage { tables, next: None });
            }
        }
    }

    async fn locate(&self, name: &TableName) -> Result<TableLayout> {
        let (table, ranges) = self.catalog.layout(name).await?;
        let servers = self.servers();
        let mut located = Vec::with_capacity(ranges.len());
        for range in ranges {
            let server = server_of(&servers, range.record.session).ok_or_else(|| {
                client::Error::new(ErrorKind::Unavailable, "no range server is running")
            })?;
            located.push(RangeLocation {
                range: range.id,
                rows: range.record.rows,
                epoch: range.record.epoch,
                server: Arc::clone(&server.ranges),
            });
        }
        Ok(TableLayout { schema: Arc::new(table.record.schema), ranges: located })
    }

    /// What a table is called; `None` when there is no such table.
    async fn name_of(&self, table: TableId) -> Result<Option<TableName>> {
        let known = || self.names().get(&table).cloned();
        if let Some(name) = known() {
            return Ok(Some(name));
        }
        let tables = self.catalog.all_tables().await?;
        let named = tables.into_iter().map(|table| table.record.schema);
        self.names().extend(named.map(|schema| (schema.id, schema.name)));
        Ok(known())
    }

    async fn assign(&self, ranges: &[RangeId], session: SessionId) -> Result<Vec<RangeAssignment>> {
        let known = |range: &RangeId| self.tables().get(range).copied();
        if ranges.iter().any(|range| known(range).is_none()) {
            let found = self.catalog.tables_of_ranges(ranges).await?;
            self.note_ranges(found.into_iter().collect());
        }
        let mut wanted: BTreeMap<TableId, Vec<RangeId>> = BTreeMap::new();
        for range in ranges {
            if let Some(table) = known(range) {
                wanted.entry(table).or_default().push(*range);
            }
        }
        for ranges in wanted.values_mut() {
            ranges.sort_unstable();
            ranges.dedup();
        }
        let mut granted = Vec::with_capacity(ranges.len());
        for (table, ranges) in wanted {
            let Some(name) = self.name_of(table).await? else {
                continue;
            };
            granted.extend(self.catalog.grant(&name, table, &ranges, session).await?);
        }
        granted.sort_by_key(|assignment| assignment.range);
        Ok(granted)
    }
}

/// Who serves a range: its owner, or else anyone, who will then take it up.
pub(crate) fn server_of(
    servers: &BTreeMap<SessionId, Server>,
    owner: Option<SessionId>,
) -> Option<&Server> {
    let owner = owner.and_then(|owner| servers.get(&owner));
    owner.or_else(|| servers.values().next())
}

#[async_trait]
impl AdminService for Master {
    async fn create_table(&self, table: NewTable) -> client::Result<Arc<TableSchema>> {
        self.run("create a table", async move |inner| inner.create(table).await).await
    }

    async fn list_tables(
        &self,
        instance: &str,
        after: &str,
        limit: usize,
    ) -> client::Result<TablePage> {
        Ok(self.inner.list(instance, after, limit).await?)
    }

    async fn get_table(&self, name: &TableName) -> client::Result<Arc<TableSchema>> {
        Ok(Arc::new(self.inner.catalog.enabled(name).await?.record.schema))
    }

    async fn delete_table(&self, name: &TableName) -> client::Result<()> {
        let name = name.clone();
        self.run("delete a table", async move |inner| inner.delete(&name).await).await
    }

    async fn modify_families(
        &self,
        name: &TableName,
        changes: Vec<FamilyChange>,
    ) -> client::Result<Arc<TableSchema>> {
        let name = name.clone();
        let apply = |schema: &mut TableSchema| families::apply(schema, changes);
        self.run("modify families", async move |inner| inner.modify(&name, apply).await).await
    }

    async fn set_groups(
        &self,
        name: &TableName,
        groups: Vec<NewGroup>,
    ) -> client::Result<Arc<TableSchema>> {
        let name = name.clone();
        let define = |schema: &mut TableSchema| groups::define(schema, groups);
        self.run("set locality groups", async move |inner| inner.modify(&name, define).await).await
    }

    async fn drop_rows(&self, name: &TableName, rows: &RowRange) -> client::Result<()> {
        let (name, rows) = (name.clone(), rows.clone());
        self.run_beside("drop rows", async move |inner| inner.drop_rows(&name, &rows).await).await
    }

    async fn list_ranges(&self, name: &TableName) -> client::Result<Vec<TableRange>> {
        Ok(self.inner.list_ranges(name).await?)
    }

    async fn split_table(&self, name: &TableName, rows: Vec<Bytes>) -> client::Result<Vec<Bytes>> {
        let name = name.clone();
        self.run_beside("split a table", async move |inner| inner.split(&name, rows).await).await
    }

    async fn flush_table(&self, name: &TableName) -> client::Result<()> {
        Ok(self.inner.flush(name).await?)
    }

    async fn compact_at(&self, name: &TableName, row: &Bytes) -> client::Result<TableRange> {
        Ok(self.inner.compact_at(name, row).await?)
    }
}

#[async_trait]
impl Locator for Master {
    async fn locate(&self, name: &TableName) -> client::Result<Arc<TableLayout>> {
        Ok(Arc::new(self.inner.locate(name).await?))
    }
}

#[async_trait]
impl Assignments for Master {
    async fn ranges(&self) -> client::Result<Vec<(RangeId, TableId)>> {
        let ranges = self.inner.catalog.live_ranges().await?;
        self.inner.note_ranges(ranges.clone());
        Ok(ranges)
    }

    async fn assign(
        &self,
        ranges: &[RangeId],
        session: SessionId,
    ) -> client::Result<Vec<RangeAssignment>> {
        Ok(self.inner.assign(ranges, session).await?)
    }

    async fn take_range_ids(&self, count: u64) -> client::Result<RangeId> {
        Ok(self.inner.catalog.take_range_ids(count).await?)
    }

    async fn divide(&self, division: &Division) -> client::Result<bool> {
        let name = self.inner.name_of(division.table).await?;
        let Some(name) = name else {
            return Ok(false);
        };
        let divided = self.inner.catalog.divide(&name, division).await?;
        if divided {
            let children = division.children.iter().map(|(child, _)| (*child, division.table));
            self.inner.note_ranges(children.collect());
        }
        Ok(divided)
    }
}
