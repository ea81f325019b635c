//! A master over an embedded coordinator on a disk in memory, with range servers that only note
//! what they are told.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use client::{
    FamilyChange, NewFamily, NewTable, RangeKeeper, RangeSample, RangeService, RangeStatus,
    RangeTarget, ReadReplies, ReadRequest, SchemaObserver, WriteRequest,
};
use coordination::{EmbeddedCoordinator, EmbeddedOptions};
use env::Env;
use storage::Path;
use storage::memory::MemoryFileSystem;
use tepui_master::{Master, Server};
use types::{
    ErrorKind, Granularity, RangeId, Retention, RowRange, SessionId, TableId, TableName,
    TableSchema,
};

pub(super) const INSTANCE: &str = "projects/p/instances/i";

pub(super) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(test)
}

pub(super) fn name(table: &str) -> TableName {
    TableName { instance: INSTANCE.to_owned(), table: table.to_owned() }
}

pub(super) fn family(name: &str, retention: Option<Retention>) -> NewFamily {
    NewFamily { name: name.to_owned(), retention, aggregate: None }
}

pub(super) fn create(name: &str) -> FamilyChange {
    FamilyChange::Create(family(name, None))
}

pub(super) fn new_table(table: &str, families: &[&str], splits: &[&'static str]) -> NewTable {
    NewTable {
        name: name(table),
        families: families.iter().map(|name| family(name, None)).collect(),
        groups: Vec::new(),
        splits: splits.iter().map(|key| Bytes::from_static(key.as_bytes())).collect(),
        granularity: Granularity::Millis,
    }
}

/// What a range server was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Changed(Arc<TableSchema>),
    Dropped(TableId, Vec<RangeId>),
}

/// A range server that serves nothing.
#[derive(Default)]
pub(super) struct Fake {
    pub(super) told: Mutex<Vec<Told>>,
    pub(super) fails: Mutex<bool>,
    pub(super) kept: Mutex<Vec<Kept>>,
    /// Requests for ranges that are yet to be answered with `WrongRange`.
    pub(super) moving: Mutex<u32>,
}

/// What it was asked for, of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Dropped(RangeId, RowRange),
    Split(RangeId, Option<Bytes>),
    Flushed(RangeId),
    Merged(RangeId),
}

impl Fake {
    fn note(&self, told: Told) -> client::Result<()> {
        if *self.fails.lock().unwrap() {
            return Err(client::Error::new(ErrorKind::Unavailable, "not now"));
        }
        self.told.lock().unwrap().push(told);
        Ok(())
    }
}

fn nothing<T>() -> client::Result<T> {
    Err(client::Error::new(ErrorKind::Unimplemented, "it serves nothing"))
}

#[async_trait]
impl RangeService for Fake {
    async fn write(&self, _: WriteRequest) -> client::Result<()> {
        nothing()
    }

    async fn read(&self, _: ReadRequest) -> client::Result<Box<dyn ReadReplies>> {
        nothing()
    }

    async fn sample(&self, _: RangeTarget) -> client::Result<RangeSample> {
        nothing()
    }
}

#[async_trait]
impl SchemaObserver for Fake {
    async fn schema_changed(&self, schema: Arc<TableSchema>) -> client::Result<()> {
        self.note(Told::Changed(schema))
    }

    async fn table_dropped(&self, table: TableId, ranges: &[RangeId]) -> client::Result<()> {
        self.note(Told::Dropped(table, ranges.to_vec()))
    }
}

impl Fake {
    /// What it was asked for, of ranges; the first few are answered with `WrongRange`.
    fn keep(&self, kept: Kept) -> client::Result<()> {
        let mut moving = self.moving.lock().unwrap();
        if *moving > 0 {
            *moving -= 1;
            return Err(client::Error::new(ErrorKind::WrongRange, "it moves"));
        }
        self.kept.lock().unwrap().push(kept);
        Ok(())
    }
}

#[async_trait]
impl RangeKeeper for Fake {
    async fn drop_rows(&self, target: RangeTarget, rows: &RowRange) -> client::Result<()> {
        self.keep(Kept::Dropped(target.range, rows.clone()))
    }

    async fn split(&self, target: RangeTarget, at: Option<Bytes>) -> client::Result<Option<Bytes>> {
        self.keep(Kept::Split(target.range, at.clone())).map(|()| at)
    }

    async fn flush(&self, target: RangeTarget) -> client::Result<()> {
        self.keep(Kept::Flushed(target.range))
    }

    async fn compact(&self, target: RangeTarget) -> client::Result<RangeStatus> {
        self.keep(Kept::Merged(target.range)).map(|()| RangeStatus::default())
    }

    async fn status(&self, target: RangeTarget) -> client::Result<RangeStatus> {
        Ok(RangeStatus { bytes: target.range.get() * 10, ..RangeStatus::default() })
    }
}

/// A master with its coordinator and one range server.
pub(super) struct Cluster {
    pub(super) master: Master,
    pub(super) coordinator: Arc<EmbeddedCoordinator>,
    pub(super) server: Arc<Fake>,
    pub(super) session: SessionId,
}

impl Cluster {
    pub(super) async fn start(disk: &MemoryFileSystem, seed: u64) -> client::Result<Cluster> {
        let env = Env::simulated(seed);
        let options = EmbeddedOptions::default();
        let (files, folder) = (Arc::new(disk.clone()), Path::new("coordination"));
        let coordinator = EmbeddedCoordinator::open(files, env.clone(), folder, options).await;
        let coordinator =
            coordinator.map_err(|error| client::Error::new(error.kind(), error.to_string()))?;
        let coordinator = Arc::new(coordinator);
        let master = Master::open(coordinator.clone(), env).await?;
        let (server, session) = (Arc::new(Fake::default()), SessionId::new(u128::from(seed) + 1));
        let attached = Server {
            session,
            ranges: server.clone(),
            observer: server.clone(),
            keeper: server.clone(),
        };
        master.attach(attached).await?;
        Ok(Cluster { master, coordinator, server, session })
    }

    pub(super) fn told(&self) -> Vec<Told> {
        self.server.told.lock().unwrap().clone()
    }
}
