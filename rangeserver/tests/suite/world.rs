//! What the tests share: a disk, a fake catalog, servers over both, and rows read back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client::{
    Assignments, RangeAssignment, RangeKeeper, RangeService, RangeTarget, ReadReply, ReadRequest,
    RowKeys, WriteRequest,
};
use env::Env;
use lsm::{CountingListener, StoreOptions};
use prost::Message;
use proto::google::bigtable::v2::ReadRowsResponse;
use storage::FileSystem;
use storage::memory::MemoryFileSystem;
use tepui_rangeserver::{Config, Options, RangeServer};
use types::limits::REPLY_BYTES_MAX;
use types::{
    Epoch, ErrorKind, FamilyId, Generation, Granularity, Mutation, RangeId, ReadSpec, RowMutations,
    RowOrder, RowRange, RowSet, SessionId, TableId, TableName, TableSchema, Timestamp,
};
use wal::LogOptions;

pub(crate) const TABLE: TableId = TableId::new(7);
pub(crate) const F: FamilyId = FamilyId::new(1);
pub(crate) const G: FamilyId = FamilyId::new(2);

/// The catalog: outlives servers and crashes.
pub(crate) struct Catalog {
    state: Mutex<State>,
}

struct State {
    schema: Arc<TableSchema>,
    ranges: BTreeMap<RangeId, (RowRange, Epoch)>,
    next_range: u64,
    sessions: u128,
    division: Division,
}

/// What becomes of a request to divide a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Division {
    Done,
    Refused,
    DoneButUnknown,
    NotDoneAndUnknown,
}

impl Catalog {
    /// One table with the families f and g, divided at `splits`.
    pub(crate) fn new(splits: &[&'static str]) -> Arc<Catalog> {
        let mut schema = TableSchema {
            id: TABLE,
            name: TableName::parse("projects/p/instances/i/tables/t").unwrap(),
            generation: Generation::new(1),
            granularity: Granularity::Millis,
            families: Vec::new(),
            next_family: FamilyId::new(1),
            groups: Vec::new(),
        };
        assert_eq!(schema.add_family("f", None, None), Ok(F));
        assert_eq!(schema.add_family("g", None, None), Ok(G));
        let starts = std::iter::once(&"").chain(splits);
        let ends = splits.iter().map(Some).chain([None]);
        let bytes = |text: &&'static str| Bytes::from_static(text.as_bytes());
        let ranges = starts.zip(ends).enumerate().map(|(number, (start, end))| {
            let rows = RowRange { start: bytes(start), end: end.map(bytes) };
            (RangeId::new(number as u64 + 1), (rows, Epoch::new(1)))
        });
        let state = State {
            schema: Arc::new(schema),
            ranges: ranges.collect(),
            next_range: 100,
            sessions: 0,
            division: Division::Done,
        };
        Arc::new(Catalog { state: Mutex::new(state) })
    }

    fn next_session(&self) -> SessionId {
        let mut state = self.state.lock().unwrap();
        state.sessions += 1;
        SessionId::new((state.sessions << 64) | 0xabcd)
    }

    /// Drops a family: the next generation's schema.
    pub(crate) fn drop_family(&self, name: &str) -> Arc<TableSchema> {
        let mut state = self.state.lock().unwrap();
        let mut schema = TableSchema::clone(&state.schema);
        schema.families.retain(|family| family.name != name);
        schema.generation = Generation::new(schema.generation.get() + 1);
        state.schema = Arc::new(schema);
        Arc::clone(&state.schema)
    }

    /// Drops the table's ranges.
    pub(crate) fn drop_ranges(&self) -> Vec<RangeId> {
        let ranges = std::mem::take(&mut self.state.lock().unwrap().ranges);
        ranges.into_keys().collect()
    }

    /// Where a row is, as the catalog has it now.
    pub(crate) fn target(&self, row: &[u8]) -> Option<RangeTarget> {
        let state = self.state.lock().unwrap();
        let mut ranges = state.ranges.iter();
        let (range, (_, epoch)) = ranges.find(|(_, (rows, _))| rows.contains(row))?;
        Some(RangeTarget {
            range: *range,
            epoch: *epoch,
            generation: state.schema.generation,
            deadline: None,
        })
    }

    /// What becomes of divisions from now on.
    pub(crate) fn set_division(&self, division: Division) {
        self.state.lock().unwrap().division = division;
    }

    /// The ranges' rows, ascending.
    pub(crate) fn ranges_now(&self) -> Vec<RowRange> {
        let state = self.state.lock().unwrap();
        let mut rows: Vec<_> = state.ranges.values().map(|(rows, _)| rows.clone()).collect();
        rows.sort();
        rows
    }
}

#[async_trait]
impl Assignments for Catalog {
    async fn ranges(&self) -> client::Result<Vec<(RangeId, TableId)>> {
        let state = self.state.lock().unwrap();
        Ok(state.ranges.keys().map(|range| (*range, TABLE)).collect())
    }

    async fn assign(
        &self,
        ranges: &[RangeId],
        _session: SessionId,
    ) -> client::Result<Vec<RangeAssignment>> {
        let mut state = self.state.lock().unwrap();
        let schema = Arc::clone(&state.schema);
        let mut granted = Vec::new();
        for range in ranges {
            if let Some((rows, epoch)) = state.ranges.get_mut(range) {
                *epoch = Epoch::new(epoch.get() + 1);
                granted.push(RangeAssignment {
                    range: *range,
                    rows: rows.clone(),
                    epoch: *epoch,
                    schema: Arc::clone(&schema),
                });
            }
        }
        Ok(granted)
    }

    async fn take_range_ids(&self, count: u64) -> client::Result<RangeId> {
        let mut state = self.state.lock().unwrap();
        let first = RangeId::new(state.next_range);
        state.next_range += count;
        Ok(first)
    }

    async fn divide(&self, division: &client::Division) -> client::Result<bool> {
        let mut state = self.state.lock().unwrap();
        let outcome = state.division;
        if outcome == Division::Refused {
            return Ok(false);
        }
        if outcome != Division::NotDoneAndUnknown {
            let (_, epoch) = state.ranges.remove(&division.range).unwrap();
            assert_eq!(epoch, division.epoch);
            for (child, rows) in &division.children {
                state.ranges.insert(*child, (rows.clone(), epoch));
            }
        }
        match outcome {
            Division::Done => Ok(true),
            _ => Err(client::Error::new(ErrorKind::Unavailable, "no answer")),
        }
    }
}

/// Small memtables, segments and budget, so that everything happens soon.
pub(crate) fn small_options() -> Options {
    Options {
        memory_budget: 1 << 20,
        store: StoreOptions { memtable_bytes: 32 << 10, ..StoreOptions::default() },
        log: LogOptions {
            first_segment_bytes: 16 << 10,
            segment_bytes: 64 << 10,
            segments_ahead: 1,
        },
        log_bytes_max: 512 << 10,
        stall_max: Duration::from_secs(1),
        ..Options::default()
    }
}

/// A server with what it stands on.
pub(crate) struct World {
    pub(crate) server: Arc<RangeServer>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) env: Env,
    pub(crate) events: Arc<CountingListener>,
    /// Why it was poisoned, as the binary would hear of it.
    pub(crate) poisonings: Arc<Mutex<Vec<String>>>,
}

/// Starts a server over `files`.
pub(crate) async fn start(
    files: Arc<dyn FileSystem>,
    catalog: &Arc<Catalog>,
    seed: u64,
    options: Options,
) -> tepui_rangeserver::Result<World> {
    // Every life draws other numbers: a segment's random bits are never used again.
    let life = catalog.next_session();
    let env =
        Env::simulated(seed ^ ((life.get() >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    start_in(files, catalog, env, options).await
}

/// Starts a server over `files` in a world of the test's making.
pub(crate) async fn start_in(
    files: Arc<dyn FileSystem>,
    catalog: &Arc<Catalog>,
    env: Env,
    options: Options,
) -> tepui_rangeserver::Result<World> {
    let session = catalog.next_session();
    let events = Arc::new(CountingListener::default());
    let poisonings = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&poisonings);
    let config = Config {
        files,
        env: env.clone(),
        session,
        assignments: Arc::clone(catalog) as Arc<dyn Assignments>,
        events: Arc::clone(&events) as Arc<dyn lsm::EventListener>,
        on_poison: Arc::new(move |reason| heard.lock().unwrap().push(reason.to_owned())),
        options,
    };
    let server = RangeServer::start(config).await?;
    Ok(World { server, catalog: Arc::clone(catalog), env, events, poisonings })
}

/// Starts a server that must start.
pub(crate) async fn started(disk: &MemoryFileSystem, catalog: &Arc<Catalog>, seed: u64) -> World {
    start(Arc::new(disk.clone()), catalog, seed, small_options()).await.unwrap()
}

/// A cell as it is read: family, qualifier, timestamp, value.
pub(crate) type Cell = (String, String, i64, Vec<u8>);
/// Rows as they are read.
pub(crate) type Rows = BTreeMap<String, Vec<Cell>>;

impl World {
    /// Writes rows of one range, as a router does: looks the range up again when it moved.
    pub(crate) async fn write(&self, rows: Vec<RowMutations>) -> client::Result<()> {
        let row = rows[0].row.clone();
        for _ in 0..5 {
            let gone = || client::Error::not_found("no such range");
            let target = self.catalog.target(&row).ok_or_else(gone)?;
            let outcome = self.server.write(WriteRequest { target, rows: rows.clone() }).await;
            match outcome {
                Err(error) if error.kind() == ErrorKind::WrongRange => {}
                outcome => return outcome,
            }
        }
        panic!("the range keeps moving");
    }

    /// Writes one cell.
    pub(crate) async fn put(&self, row: &str, value: &[u8]) -> client::Result<()> {
        self.write(vec![mutate(row, vec![set(F, "q", 1000, value)])]).await
    }

    /// The replies to a read of `rows` within one range.
    pub(crate) async fn replies(
        &self,
        rows: RowRange,
        rows_limit: u64,
    ) -> client::Result<Vec<ReadReply>> {
        for _ in 0..5 {
            let gone = || client::Error::not_found("no such range");
            let target = self.catalog.target(&rows.start).ok_or_else(gone)?;
            let order = RowOrder::Ascending;
            let spec = ReadSpec { rows: RowSet::new(vec![rows.clone()]), rows_limit, order };
            let row_keys = RowKeys::AtCells;
            let request = ReadRequest { target, spec, row_keys };
            match self.collect(request).await {
                Err(error) if error.kind() == ErrorKind::WrongRange => {}
                outcome => return outcome,
            }
        }
        panic!("the range keeps moving");
    }

    pub(crate) async fn collect(&self, request: ReadRequest) -> client::Result<Vec<ReadReply>> {
        let mut read = self.server.read(request).await?;
        let mut replies = Vec::new();
        while let Some(reply) = read.next().await? {
            assert!(reply.encoded.len() <= REPLY_BYTES_MAX);
            replies.push(reply);
        }
        Ok(replies)
    }

    /// Drops the rows that begin with `prefix`, of the range that holds the first of them.
    pub(crate) async fn drop_rows(&self, prefix: &'static str) -> client::Result<()> {
        let rows = RowRange::prefix(&Bytes::from_static(prefix.as_bytes()));
        for _ in 0..5 {
            let target = self.catalog.target(&rows.start).unwrap();
            match self.server.drop_rows(target, &rows).await {
                Err(error) if error.kind() == ErrorKind::WrongRange => {}
                outcome => return outcome,
            }
        }
        panic!("the range keeps moving");
    }

    /// Divides the range that holds `row`.
    pub(crate) async fn split(
        &self,
        row: &str,
        at: Option<&'static str>,
    ) -> client::Result<Option<Bytes>> {
        let at = at.map(|at| Bytes::from_static(at.as_bytes()));
        for _ in 0..5 {
            let target = self.catalog.target(row.as_bytes()).unwrap();
            match self.server.split(target, at.clone()).await {
                Err(error) if error.kind() == ErrorKind::WrongRange => {}
                outcome => return outcome,
            }
        }
        panic!("the range keeps moving");
    }

    /// Reads rows of one range.
    pub(crate) async fn read(&self, rows: RowRange, rows_limit: u64) -> client::Result<Rows> {
        Ok(merge(&self.replies(rows, rows_limit).await?))
    }

    /// Reads the whole table.
    pub(crate) async fn read_all(&self) -> client::Result<Rows> {
        let mut rows = Rows::new();
        for range in self.catalog.ranges_now() {
            rows.extend(self.read(range, 0).await?);
        }
        Ok(rows)
    }

    /// The value of a row written by [`World::put`].
    pub(crate) async fn get(&self, row: &str) -> client::Result<Option<Vec<u8>>> {
        let row = Bytes::copy_from_slice(row.as_bytes());
        let rows = self.read(RowRange::row(&row), 0).await?;
        Ok(rows.into_values().next().map(|cells| cells[0].3.clone()))
    }
}

pub(crate) fn mutate(row: &str, mutations: Vec<Mutation>) -> RowMutations {
    RowMutations { row: Bytes::copy_from_slice(row.as_bytes()), mutations }
}

pub(crate) fn set(family: FamilyId, qualifier: &str, micros: i64, value: &[u8]) -> Mutation {
    Mutation::SetCell {
        family,
        qualifier: Bytes::copy_from_slice(qualifier.as_bytes()),
        timestamp: Timestamp::from_micros(micros),
        value: Bytes::copy_from_slice(value),
    }
}

/// Merges chunks into rows, as clients do.
pub(crate) fn merge(replies: &[ReadReply]) -> Rows {
    let mut rows = Rows::new();
    let (mut row, mut family, mut qualifier) = (String::new(), String::new(), String::new());
    let mut cells: Vec<Cell> = Vec::new();
    let mut is_divided = false;
    for reply in replies {
        for chunk in ReadRowsResponse::decode(&reply.encoded[..]).unwrap().chunks {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            if !chunk.row_key.is_empty() {
                row = text(&chunk.row_key);
            }
            if let Some(name) = chunk.family_name {
                family = name;
            }
            if let Some(name) = chunk.qualifier {
                qualifier = text(&name);
            }
            if !is_divided {
                let micros = chunk.timestamp_micros;
                cells.push((family.clone(), qualifier.clone(), micros, Vec::new()));
            }
            cells.last_mut().unwrap().3.extend_from_slice(&chunk.value);
            is_divided = chunk.value_size > 0;
            if chunk.row_status.is_some() {
                let earlier = rows.insert(row.clone(), std::mem::take(&mut cells));
                assert!(earlier.is_none(), "row {row} came twice");
            }
        }
    }
    assert!(cells.is_empty(), "a row was not finished");
    rows
}
