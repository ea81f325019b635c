//! What the store's tests stand on: a range on a file system, written to and read by short words.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use env::Env;
use rand::Rng;
use rand::rngs::StdRng;
use sstable::ValueRef;
use storage::{FileSystem, Path};
use tepui_lsm::{
    Batch, CountingListener, FamilyRule, FamilyRules, FileIds, LogPosition, OutlivedMemory,
    RateLimiter, Reason, Result, Store, StoreConfig, StoreOptions, decode_excise, encode_excise,
    sweep_table,
};
use types::{
    Aggregate, Bloom, Compression, Epoch, FamilyId, GroupSettings, LocalityGroup, Mutation,
    RangeId, RowMutations, RowRange, SeqNo, SessionId, TableId, Timestamp, TimestampRange, key,
};

/// The family that tests write to.
pub(super) const FAMILY: FamilyId = FamilyId::new(1);
/// A family of sums.
pub(super) const SUMS: FamilyId = FamilyId::new(4);

/// Families 1 to 3, whose cells are put, and the sums; all are kept.
pub(super) fn rules() -> Arc<FamilyRules> {
    let aggregate = |id| (id == SUMS.get()).then_some(Aggregate::Sum);
    let rule = |id| FamilyRule { id: FamilyId::new(id), retention: None, aggregate: aggregate(id) };
    Arc::new(FamilyRules::new([1, 2, 3, 4].map(rule).into(), FamilyId::new(5)))
}

/// Options small enough that a few cells make several files.
pub(super) fn tiny_options() -> StoreOptions {
    StoreOptions {
        memtable_bytes: 4 << 10,
        table_bytes: 1 << 10,
        block_bytes: 128,
        value_block_threshold: 1 << 10,
        level0_merge_runs: 3,
        level_base_bytes: 2 << 10,
        level_ratio: 4,
        ..StoreOptions::default()
    }
}

/// The range 7 of table 3, all rows, for the owner `epoch` (each owner is a session of its own).
pub(super) fn config(files: Arc<dyn FileSystem>, epoch: u64) -> StoreConfig {
    let session = SessionId::new((u128::from(epoch) << 64) | 0x5e55);
    StoreConfig {
        files,
        env: Env::simulated(epoch),
        table_folder: Path::new("tables/3"),
        table: TableId::new(3),
        range: RangeId::new(7),
        bounds: RowRange::all(),
        epoch: Epoch::new(epoch),
        session,
        file_ids: Arc::new(FileIds::new(session)),
        cache: None,
        limiter: Arc::new(RateLimiter::new(Env::simulated(epoch), 0)),
        outlived: OutlivedMemory::default(),
        events: Arc::new(CountingListener::default()),
        options: tiny_options(),
    }
}

pub(super) fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros).unwrap()
}

pub(super) fn set(qualifier: &str, micros: i64, value: &[u8]) -> Mutation {
    Mutation::SetCell {
        family: FAMILY,
        qualifier: Bytes::copy_from_slice(qualifier.as_bytes()),
        timestamp: Some(at(micros)),
        value: Bytes::copy_from_slice(value),
    }
}

pub(super) fn delete_cells(qualifier: &str) -> Mutation {
    Mutation::DeleteCells {
        family: FAMILY,
        qualifier: Bytes::copy_from_slice(qualifier.as_bytes()),
        range: TimestampRange::ALL,
    }
}

/// Hides one timestamp of a column.
pub(super) fn delete_time(qualifier: &str, micros: i64) -> Mutation {
    Mutation::DeleteCells {
        family: FAMILY,
        qualifier: Bytes::copy_from_slice(qualifier.as_bytes()),
        range: TimestampRange { start: at(micros), end: Some(at(micros + 1)) },
    }
}

pub(super) fn on_row(row: &str, mutations: Vec<Mutation>) -> RowMutations {
    RowMutations { row: Bytes::copy_from_slice(row.as_bytes()), mutations }
}

/// A sequenced batch that follows what the store has.
pub(super) fn sequenced(store: &Store, rows: &[RowMutations]) -> Batch {
    let mut batch = Batch::encode(rows);
    batch.sequence(store.next_seq(), at(1_000));
    batch
}

/// Writes rows as if the log had them: inserted and published.
pub(super) fn write(store: &Store, rows: &[RowMutations]) -> Result<()> {
    let batch = sequenced(store, rows);
    let floor = LogPosition { segment: 1, offset: batch.first_seq().get() };
    store.insert(&batch, floor)?;
    store.publish(batch.last_seq());
    Ok(())
}

/// Writes one cell.
pub(super) fn put(store: &Store, row: &str, qualifier: &str, micros: i64, value: &[u8]) {
    write(store, &[on_row(row, vec![set(qualifier, micros, value)])]).unwrap();
}

/// Freezes and flushes what there is.
pub(super) async fn flush(store: &Arc<Store>) -> Result<()> {
    store.flush_all(Reason::Asked).await
}

/// A cell as readers see it: row, family, qualifier, timestamp, value.
pub(super) type Cell = (String, u32, String, i64, Vec<u8>);

/// Every visible cell, values outside the blocks read piece by piece.
pub(super) async fn visible(store: &Arc<Store>) -> Result<Vec<Cell>> {
    visible_in(store, &RowRange::all()).await
}

/// Every visible cell of some rows.
pub(super) async fn visible_in(store: &Arc<Store>, rows: &RowRange) -> Result<Vec<Cell>> {
    let view = store.view()?;
    let mut scan = view.scan(rows, &rules(), true);
    let mut cells = Vec::new();
    while scan.next().await? {
        let cell = scan.cell();
        let (mut row, mut qualifier) = (Vec::new(), Vec::new());
        cell.row_into(&mut row);
        cell.qualifier_into(&mut qualifier);
        let value = match cell.value {
            ValueRef::Inline(value) => value.to_vec(),
            ValueRef::Stored(stored) => {
                let mut value = Vec::new();
                for piece in 0..stored.pieces() {
                    let table = cell.table.expect("a stored value lies in a table");
                    value.extend_from_slice(&table.read_value_piece(stored, piece).await?);
                }
                value
            }
        };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let micros = cell.timestamp.micros();
        cells.push((text(row), cell.family.get(), text(qualifier), micros, value));
    }
    Ok(cells)
}

/// What should be visible: a plain map that mutations are applied to, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model(BTreeMap<(String, u32, String, Reverse<i64>), Vec<u8>>);

impl Model {
    pub(super) fn apply(&mut self, rows: &[RowMutations]) {
        for RowMutations { row, mutations } in rows {
            let row = String::from_utf8(row.to_vec()).unwrap();
            for mutation in mutations {
                self.apply_one(&row, mutation);
            }
        }
    }

    pub(super) fn excise(&mut self, rows: &RowRange) {
        self.0.retain(|(row, ..), _| !rows.contains(row.as_bytes()));
    }

    pub(super) fn drop_family(&mut self, dropped: FamilyId) {
        self.0.retain(|(_, family, ..), _| *family != dropped.get());
    }

    fn apply_one(&mut self, row: &str, mutation: &Mutation) {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        match mutation {
            Mutation::SetCell { family, qualifier, timestamp, value } => {
                let micros = timestamp.expect("tests set timestamps").micros();
                let key = (row.to_owned(), family.get(), text(qualifier), Reverse(micros));
                self.0.insert(key, value.to_vec());
            }
            Mutation::AddToCell { family, qualifier, timestamp, operand } => {
                let micros = timestamp.expect("tests set timestamps").micros();
                let key = (row.to_owned(), family.get(), text(qualifier), Reverse(micros));
                let before = self.0.get(&key).map_or(0, |value| key::operand(value).unwrap());
                self.0.insert(key, before.wrapping_add(*operand).to_be_bytes().to_vec());
            }
            Mutation::DeleteCells { family, qualifier, range } => {
                let qualifier = text(qualifier);
                self.0.retain(|(r, f, q, micros), _| {
                    let column = r == row && *f == family.get() && *q == qualifier;
                    !(column && range.contains(at(micros.0)))
                });
            }
            Mutation::DeleteFamily { family } => {
                self.0.retain(|(r, f, ..), _| !(r == row && *f == family.get()));
            }
            Mutation::DeleteRow => self.0.retain(|(r, ..), _| r != row),
        }
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        let cell =
            |((row, family, qualifier, micros), value): (
                &(String, _, String, Reverse<i64>),
                &Vec<u8>,
            )| { (row.clone(), *family, qualifier.clone(), micros.0, value.clone()) };
        self.0.iter().map(cell).collect()
    }
}

/// One step of a random history.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Write(Vec<RowMutations>),
    Excise(RowRange),
    Freeze,
    Flush,
    /// The schema gets other locality groups.
    Regroup(Vec<LocalityGroup>),
    Compact,
    CompactAll,
}

/// A random history over few rows and columns, so that cells meet; some values are big.
pub(super) fn history(random: &mut StdRng, len: usize) -> Vec<Action> {
    let one = |random: &mut StdRng| match random.random_range(0..22) {
        0..12 => Action::Write(random_rows_to_write(random)),
        12 => Action::Freeze,
        13 => Action::Regroup(random_groups(random)),
        14..18 => Action::Flush,
        18 => Action::Compact,
        19 => Action::CompactAll,
        _ => Action::Excise(random_rows(random)),
    };
    (0..len).map(|_| one(random)).collect()
}

/// What one random write does.
pub(super) fn random_rows_to_write(random: &mut StdRng) -> Vec<RowMutations> {
    let rows = random.random_range(1..4);
    (0..rows).map(|_| random_row(random)).collect()
}

fn random_rows(random: &mut StdRng) -> RowRange {
    let row = |number: u32| Bytes::from(format!("row {number}"));
    let start = random.random_range(0..6);
    let end = random.random_range(start + 1..8);
    let start = if start == 0 { Bytes::new() } else { row(start) };
    RowRange { start, end: (end < 7).then(|| row(end)) }
}

/// Locality groups over the families 1 and 2: none, one or two, of any settings.
pub(super) fn random_groups(random: &mut StdRng) -> Vec<LocalityGroup> {
    let shapes: [&[(&str, &[u32])]; 7] = [
        &[],
        &[("a", &[1])],
        &[("b", &[2])],
        &[("a", &[1]), ("b", &[2])],
        &[("a", &[2]), ("b", &[1])],
        &[("a", &[1, 2])],
        &[("default", &[]), ("b", &[1, 2])],
    ];
    let shape = shapes[random.random_range(0..shapes.len())];
    let groups = shape.iter().map(|(name, ids)| LocalityGroup {
        name: (*name).to_owned(),
        families: ids.iter().map(|id| FamilyId::new(*id)).collect(),
        settings: random_settings(random),
    });
    groups.collect()
}

pub(super) fn random_settings(random: &mut StdRng) -> GroupSettings {
    GroupSettings {
        block_bytes: [None, Some(64), Some(4096)][random.random_range(0..3)],
        compression: [None, Some(Compression::None)][random.random_range(0..2)],
        bloom: [Bloom::RowAndColumn, Bloom::Row, Bloom::None][random.random_range(0..3)],
        in_memory: random.random(),
    }
}

fn random_row(random: &mut StdRng) -> RowMutations {
    let row = format!("row {}", random.random_range(0..6));
    let mutations = (0..random.random_range(1..4)).map(|_| random_mutation(random)).collect();
    on_row(&row, mutations)
}

fn random_mutation(random: &mut StdRng) -> Mutation {
    let family = FamilyId::new([1, 2, 4][random.random_range(0..3)]);
    let qualifier = Bytes::from(["", "a", "b"][random.random_range(0..3)]);
    let micros = random.random_range(0..4);
    match random.random_range(0..12) {
        0 => Mutation::DeleteRow,
        1 => Mutation::DeleteFamily { family },
        2 | 3 => {
            let end = Some(at(micros + 1));
            let range = TimestampRange { start: at(micros), end };
            Mutation::DeleteCells { family, qualifier, range }
        }
        _ if family == SUMS => {
            let operand = random.random_range(-1_000..1_000);
            Mutation::AddToCell { family, qualifier, timestamp: Some(at(micros)), operand }
        }
        _ => {
            let big = random.random_range(0..8) == 0;
            let len = if big { random.random_range(1_000..3_000) } else { 3 };
            let value = (0..len).map(|_| random.random_range(b'a'..=b'z')).collect::<Vec<u8>>();
            let timestamp = Some(at(micros));
            Mutation::SetCell { family, qualifier, timestamp, value: value.into() }
        }
    }
}

#[derive(Clone, Debug)]
enum Record {
    Batch(Vec<u8>),
    Excise(Vec<u8>, SeqNo),
}

/// A range's log as a test keeps it: always durable, never released.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    records: Vec<Record>,
    /// As the schema declares them.
    groups: Vec<LocalityGroup>,
    pub(super) model: Model,
}

impl Log {
    /// Sequences, logs, inserts and publishes a batch.
    pub(super) fn write(&mut self, store: &Store, rows: &[RowMutations]) -> Result<()> {
        let batch = sequenced(store, rows);
        let floor = LogPosition { segment: 1, offset: batch.first_seq().get() };
        store.insert(&batch, floor)?;
        self.records.push(Record::Batch(batch.payload().to_vec()));
        self.model.apply(rows);
        store.publish(batch.last_seq());
        Ok(())
    }

    /// Logs, freezes and publishes a cut; the next flush brings it about.
    pub(super) fn excise(&mut self, store: &Store, rows: &RowRange) -> Result<()> {
        let seq = store.next_seq();
        store.excise(rows, seq, LogPosition { segment: 1, offset: seq.get() })?;
        self.records.push(Record::Excise(encode_excise(rows), seq));
        self.model.excise(rows);
        store.publish(seq);
        Ok(())
    }

    /// Opens the range for a new owner and takes up what is in the log, twice over.
    pub(super) async fn recover(&self, config: StoreConfig) -> Result<Arc<Store>> {
        sweep_table(&config.files, &config.table_folder).await?;
        let store = Store::open_or_create(config).await?;
        store.set_groups(&self.groups);
        let mut ingest = store.ingest(0)?;
        for (number, record) in self.records.iter().chain(self.records.last()).enumerate() {
            match record {
                Record::Batch(payload) => {
                    ingest.add_payload(Bytes::copy_from_slice(payload)).await?
                }
                Record::Excise(payload, seq) => {
                    ingest.add_excise(decode_excise(payload)?, *seq).await?;
                }
            }
            // Long logs are taken up in several runs.
            if number % 7 == 6 {
                ingest.finish().await?;
                ingest = store.ingest(0)?;
            }
        }
        ingest.finish().await?;
        Ok(store)
    }
}

/// Flushes until no cut waits for it.
pub(super) async fn flush_cuts(store: &Arc<Store>) -> Result<()> {
    while store.has_pending_excise() && store.flush().await?.is_some() {}
    Ok(())
}

/// Does one step of a history.
pub(super) async fn act(store: &Arc<Store>, log: &mut Log, action: &Action) -> Result<()> {
    match action {
        Action::Write(rows) => {
            // The owner lets no batch in before the cut is made.
            flush_cuts(store).await?;
            log.write(store, rows)?;
        }
        Action::Excise(rows) => {
            flush_cuts(store).await?;
            log.excise(store, rows)?;
            flush_cuts(store).await?;
        }
        Action::Freeze => {
            store.freeze(Reason::Asked);
        }
        Action::Flush => {
            store.freeze(Reason::Asked);
            store.flush().await?;
        }
        Action::Regroup(groups) => {
            store.set_groups(groups);
            log.groups.clone_from(groups);
        }
        Action::Compact => {
            store.set_rules(&rules());
            store.compact_once().await?;
        }
        Action::CompactAll => {
            store.set_rules(&rules());
            store.compact_all().await?;
        }
    }
    Ok(())
}
