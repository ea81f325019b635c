//! Sums, extremes and versions over random writes, deletes, flushes, merges and kills, against a
//! slow model.
//!
//! Aggregates must be exactly the model's. Of versions, retention allows to drop those that were
//! one too many at any moment: the answer has all others, and nothing that was never written or is
//! deleted.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use env::Env;
use lsm::{
    Batch, FamilyRule, FamilyRules, FileIds, LogPosition, NoListener, OutlivedMemory, RateLimiter,
    Reason, Store, StoreConfig, StoreOptions,
};
use rand::Rng;
use rand::rngs::StdRng;
use sstable::ValueRef;
use storage::memory::{Crash, MemoryFileSystem};
use storage::{FileSystem, Path};
use types::{
    Aggregate, Epoch, FamilyId, Mutation, RangeId, Retention, RowMutations, RowRange, SessionId,
    TableId, Timestamp, TimestampRange,
};

/// The family whose newest cells are kept.
const VERSIONS: FamilyId = FamilyId::new(4);
/// How many of them.
const KEPT: usize = 2;
/// Families 1 to 3.
const AGGREGATES: [Aggregate; 3] = [Aggregate::Sum, Aggregate::Min, Aggregate::Max];
/// Steps of a case.
const STEPS: usize = 80;

/// Row, family, qualifier.
type Column = (u8, FamilyId, u8);

/// A cell of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    value: i64,
    /// It was one too many at some moment.
    may_be_gone: bool,
}

type Model = BTreeMap<(Column, Reverse<i64>), Cell>;

pub(super) fn fold(random: &mut StdRng) {
    super::run(case(random));
}

fn rules() -> Arc<FamilyRules> {
    let aggregates = AGGREGATES.iter().zip(1..).map(|(how, id)| FamilyRule {
        id: FamilyId::new(id),
        retention: None,
        aggregate: Some(*how),
    });
    let retention = Some(Retention::MaxVersions(u32::try_from(KEPT).expect("a few")));
    let versions = FamilyRule { id: VERSIONS, retention, aggregate: None };
    Arc::new(FamilyRules::new(aggregates.chain([versions]).collect(), FamilyId::new(5)))
}

fn config(disk: &MemoryFileSystem, epoch: u64) -> StoreConfig {
    let session = SessionId::new(u128::from(epoch) << 64 | 0x5e55);
    StoreConfig {
        files: Arc::new(disk.clone()) as Arc<dyn FileSystem>,
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
        events: Arc::new(NoListener),
        options: StoreOptions {
            memtable_bytes: 4 << 10,
            table_bytes: 1 << 10,
            block_bytes: 64,
            level0_merge_runs: 2,
            level_base_bytes: 2 << 10,
            level_ratio: 2,
            compaction_bytes_per_second: 0,
            ..StoreOptions::default()
        },
    }
}

async fn case(random: &mut StdRng) {
    let mut disk = MemoryFileSystem::new();
    let mut store = Store::create(config(&disk, 1)).await.expect("a new range");
    store.set_rules(&rules());
    let (mut model, mut log, mut epoch) = (Model::new(), Vec::new(), 1);
    for step in 0..STEPS {
        match random.random_range(0..100) {
            0..72 => write(random, &store, &mut model, &mut log),
            72..86 => store.flush_all(Reason::Asked).await.expect("a flush"),
            86..94 => {
                store.compact_once().await.expect("a merge");
            }
            94..97 => {
                store.compact_all().await.expect("a merge of everything");
            }
            _ => {
                epoch += 1;
                disk = disk.crash(Crash::Process);
                store = recovered(config(&disk, epoch), &log).await;
            }
        }
        check(&store, &model, step).await;
    }
}

async fn recovered(config: StoreConfig, log: &[Bytes]) -> Arc<Store> {
    let store = Store::open(config).await.expect("the range opens");
    store.set_rules(&rules());
    let mut ingest = store.ingest(0).expect("it is new");
    for payload in log {
        ingest.add_payload(payload.clone()).await.expect("the log is whole");
    }
    ingest.finish().await.expect("the log is taken up");
    store
}

/// One random mutation, logged.
fn write(random: &mut StdRng, store: &Store, model: &mut Model, log: &mut Vec<Bytes>) {
    let row = random.random_range(b'a'..b'd');
    let mutation = mutation(random);
    apply(model, row, &mutation);
    let rows = [RowMutations { row: Bytes::from(vec![row]), mutations: vec![mutation] }];
    let mut batch = Batch::encode(&rows);
    batch.sequence(store.next_seq(), at(1));
    let floor = LogPosition { segment: 1, offset: batch.first_seq().get() };
    store.insert(&batch, floor).expect("the store is open");
    log.push(Bytes::copy_from_slice(&batch.payload()));
    store.publish(batch.last_seq());
}

fn mutation(random: &mut StdRng) -> Mutation {
    let family = FamilyId::new(random.random_range(1..=VERSIONS.get()));
    let qualifier = Bytes::from(vec![random.random_range(b'p'..b'r')]);
    let micros = random.random_range(0..5);
    match random.random_range(0..20) {
        0 => Mutation::DeleteRow,
        1 => Mutation::DeleteFamily { family },
        2..4 => {
            let end = Some(at(micros + random.random_range(1..3)));
            Mutation::DeleteCells {
                family,
                qualifier,
                range: TimestampRange { start: at(micros), end },
            }
        }
        _ if family == VERSIONS => {
            let value = Bytes::from(random.random::<i64>().to_be_bytes().to_vec());
            Mutation::SetCell { family, qualifier, timestamp: Some(at(micros)), value }
        }
        _ => {
            let operand =
                if random.random() { random.random_range(-9..9) } else { random.random() };
            Mutation::AddToCell { family, qualifier, timestamp: Some(at(micros)), operand }
        }
    }
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros).expect("a legal timestamp")
}

fn apply(model: &mut Model, row: u8, mutation: &Mutation) {
    match mutation {
        Mutation::SetCell { family, qualifier, timestamp, value } => {
            let micros = timestamp.map_or(0, Timestamp::micros);
            let place = ((row, *family, qualifier[0]), Reverse(micros));
            model.insert(place, Cell { value: number(value), may_be_gone: false });
        }
        Mutation::AddToCell { family, qualifier, timestamp, operand } => {
            let micros = timestamp.map_or(0, Timestamp::micros);
            let how = AGGREGATES[family.get() as usize - 1];
            let cell = model.entry(((row, *family, qualifier[0]), Reverse(micros)));
            cell.and_modify(|cell| cell.value = how.fold(cell.value, *operand))
                .or_insert(Cell { value: *operand, may_be_gone: false });
        }
        Mutation::DeleteCells { family, qualifier, range } => {
            let of = (row, *family, qualifier[0]);
            model.retain(|(column, micros), _| *column != of || !range.contains(at(micros.0)));
        }
        Mutation::DeleteFamily { family } => {
            model.retain(|(column, _), _| (column.0, column.1) != (row, *family));
        }
        Mutation::DeleteRow => model.retain(|(column, _), _| column.0 != row),
    }
    note_versions(model);
}

/// Marks the cells that are one too many now.
fn note_versions(model: &mut Model) {
    let mut last = None;
    for ((column, _), cell) in model.iter_mut().filter(|((column, _), _)| column.1 == VERSIONS) {
        let newer = match last {
            Some((before, newer)) if before == *column => newer + 1,
            _ => 0,
        };
        last = Some((*column, newer));
        cell.may_be_gone |= newer >= KEPT;
    }
}

fn number(value: &[u8]) -> i64 {
    i64::from_be_bytes(value.try_into().expect("values have eight bytes"))
}

async fn check(store: &Arc<Store>, model: &Model, step: usize) {
    let mut scan = store.view().expect("it is open").scan(&RowRange::all(), &rules(), true);
    let mut found = BTreeMap::new();
    while scan.next().await.expect("a whole read") {
        let cell = scan.cell();
        let (mut row, mut qualifier) = (Vec::new(), Vec::new());
        cell.row_into(&mut row);
        cell.qualifier_into(&mut qualifier);
        let ValueRef::Inline(value) = cell.value else { panic!("no value is large") };
        let column = (row[0], cell.family, qualifier[0]);
        found.insert((column, Reverse(cell.timestamp.micros())), number(value));
    }
    for (place, value) in &found {
        let known = model.get(place).map(|cell| cell.value);
        assert_eq!(Some(*value), known, "step {step}: {place:?}");
    }
    for (place, cell) in model {
        assert!(cell.may_be_gone || found.contains_key(place), "step {step}: {place:?} is gone");
    }
}
