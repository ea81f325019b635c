//! The resolver against a model that applies every mutation to a sorted map, one by one.

mod aggregates;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use sstable::{BlockCache, Table, TableWriter, WriterOptions};
use storage::memory::MemoryFileSystem;
use storage::{FileSystem, Path};
use types::{
    Aggregate, CellKey, CellRef, Compression, FamilyId, FileId, Mutation, ParsedKey, Retention,
    RowMutations, RowRange, SeqNo, Timestamp, TimestampRange, key,
};

use super::*;
use crate::batch::Batch;
use crate::cursor::{MergeCursor, MergeStep, Source};
use crate::memtable::{Memtable, MemtableOptions};
use crate::rules::{FamilyRule, FamilyRules};

const ROWS: [&[u8]; 5] = [b"a", b"a\0", b"a\0\0", b"b", b"\xff\xff"];
const QUALIFIERS: [&[u8]; 4] = [b"", b"\0", b"q", b"q\xff"];
/// Families, and how they fold. Family 2 was dropped.
const ALIVE: [(u32, Option<Aggregate>); 4] =
    [(1, None), (3, None), (4, Some(Aggregate::Sum)), (5, Some(Aggregate::Max))];

fn rules() -> Arc<FamilyRules> {
    let rule = |(id, aggregate)| FamilyRule { id: FamilyId::new(id), retention: None, aggregate };
    Arc::new(FamilyRules::new(ALIVE.map(rule).into(), FamilyId::new(6)))
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros).unwrap()
}

fn seq(raw: u64) -> SeqNo {
    SeqNo::from_raw(raw).unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Row, family, qualifier, timestamp: in cell order.
type Place = (Vec<u8>, FamilyId, Vec<u8>, Reverse<Timestamp>);
type Cells = BTreeMap<Place, Vec<u8>>;
/// Encoded keys and values.
type Held = BTreeMap<Vec<u8>, Vec<u8>>;

/// One committed mutation after another.
#[derive(Default)]
struct Model {
    history: Vec<(SeqNo, Bytes, Mutation)>,
}

impl Model {
    /// What a reader at `view` sees in all rows.
    fn cells(&self, view: SeqNo) -> Cells {
        let rules = rules();
        let mut cells = Cells::new();
        for (number, row, mutation) in &self.history {
            if *number > view {
                break;
            }
            match mutation {
                Mutation::SetCell { family, qualifier, timestamp, value } => {
                    let at = Reverse(timestamp.unwrap());
                    let place = (row.to_vec(), *family, qualifier.to_vec(), at);
                    cells.insert(place, value.to_vec());
                }
                Mutation::AddToCell { family, qualifier, timestamp, operand } => {
                    let Some(how) = rules.get(*family).and_then(|rule| rule.aggregate) else {
                        continue;
                    };
                    let at = Reverse(timestamp.unwrap());
                    let place = (row.to_vec(), *family, qualifier.to_vec(), at);
                    let fold = |value: &Vec<u8>| how.fold(key::operand(value).unwrap(), *operand);
                    let whole = cells.get(&place).map_or(*operand, fold);
                    cells.insert(place, whole.to_be_bytes().to_vec());
                }
                Mutation::DeleteCells { family, qualifier, range } => {
                    cells.retain(|(r, f, q, at), _| {
                        !(r == row && f == family && q == qualifier && range.contains(at.0))
                    })
                }
                Mutation::DeleteFamily { family } => {
                    cells.retain(|(r, f, ..), _| !(r == row && f == family));
                }
                Mutation::DeleteRow => cells.retain(|(r, ..), _| r != row),
            }
        }
        cells.retain(|(_, family, ..), _| rules.get(*family).is_some());
        cells
    }
}

fn random_mutation(random: &mut StdRng) -> Mutation {
    let family = FamilyId::new(random.random_range(1..6));
    let qualifier = Bytes::from_static(QUALIFIERS.choose(random).unwrap());
    let times = random.random_range(0..4);
    match random.random_range(0..20) {
        0 => Mutation::DeleteRow,
        1..3 => Mutation::DeleteFamily { family },
        3..7 => Mutation::DeleteCells {
            family,
            qualifier,
            range: TimestampRange {
                start: at(times),
                end: random.random_bool(0.6).then(|| at(times + random.random_range(1..4))),
            },
        },
        _ if family.get() > 3 => Mutation::AddToCell {
            family,
            qualifier,
            timestamp: Some(at(times)),
            operand: random.random_range(-100..100),
        },
        _ => Mutation::SetCell {
            family,
            qualifier,
            timestamp: Some(at(times)),
            // Long ones lie in value blocks of their own.
            value: Bytes::from(vec![random.random(); random.random_range(0..60)]),
        },
    }
}

/// A history, and its cells as memtables and tables hold them.
struct World {
    model: Model,
    last: SeqNo,
    keys: BTreeSet<Vec<u8>>,
    memtables: Vec<Arc<Memtable>>,
    tables: Vec<(Arc<Table>, RowRange)>,
    steps_before_seek: u32,
}

fn random_rows(random: &mut StdRng) -> RowRange {
    let mut bounds = [ROWS.choose(random).unwrap(), ROWS.choose(random).unwrap()];
    bounds.sort_unstable();
    RowRange {
        start: if random.random_bool(0.3) { Bytes::new() } else { Bytes::from_static(bounds[0]) },
        end: random.random_bool(0.7).then(|| Bytes::from_static(bounds[1])),
    }
}

async fn write_table(cells: &Held, cache: bool) -> Arc<Table> {
    let files = MemoryFileSystem::new();
    let path = Path::new("table");
    let file = FileId { session: 1, counter: 1 };
    let options = WriterOptions {
        block_bytes: 128,
        index_block_bytes: 96,
        restart_interval: 3,
        compression: Compression::None,
        value_block_threshold: 40,
        ..WriterOptions::default()
    };
    let blob = files.create(&path).await.unwrap();
    let mut writer = TableWriter::new(blob, file, options);
    for (key, value) in cells {
        writer.add(key, value).await.unwrap();
    }
    let meta = writer.finish().await.unwrap();
    let cache = cache.then(|| Arc::new(BlockCache::new(1 << 20)));
    let blob = files.open(&path).await.unwrap();
    Table::open(blob, file, meta.len, cache).await.unwrap()
}

impl World {
    async fn random(random: &mut StdRng) -> World {
        let mut model = Model::default();
        let mut cells: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut next = seq(random.random_range(1..3));
        for _ in 0..random.random_range(1..30) {
            let rows: Vec<RowMutations> = (0..random.random_range(1..3))
                .map(|_| RowMutations {
                    row: Bytes::from_static(ROWS.choose(random).unwrap()),
                    mutations: (0..random.random_range(1..4))
                        .map(|_| random_mutation(random))
                        .collect(),
                })
                .collect();
            let mut batch = Batch::encode(&rows);
            batch.sequence(next, at(0));
            cells.extend(batch.cells().map(|c| (c.key.to_vec(), c.value.to_vec())));
            for row in rows {
                for mutation in row.mutations {
                    model.history.push((next, row.row.clone(), mutation));
                    next = next.next();
                }
            }
            assert_eq!(batch.last_seq().next(), next);
        }
        let last = model.history.last().unwrap().0;
        let keys = cells.iter().map(|(key, _)| key.clone()).collect();
        let mut world = World {
            model,
            last,
            keys,
            memtables: (0..random.random_range(1..3))
                .map(|id| Memtable::new(MemtableOptions { id, shared_prefix: None }))
                .collect(),
            tables: Vec::new(),
            steps_before_seek: *[1, 2, 16].choose(random).unwrap(),
        };
        world.spread(random, cells).await;
        world
    }

    /// Puts each cell into one source or two, and foreign cells where a clip hides them.
    async fn spread(&mut self, random: &mut StdRng, cells: Vec<(Vec<u8>, Vec<u8>)>) {
        let mut tables: Vec<(RowRange, Held)> = Vec::new();
        for _ in 0..random.random_range(0..4) {
            let clip = match random.random_bool(0.5) {
                true => RowRange::all(),
                false => random_rows(random),
            };
            let mut foreign = BTreeMap::new();
            for row in ROWS.iter().filter(|row| !clip.contains(row)) {
                let number = seq(random.random_range(1..=self.last.get()));
                let mut deleted = Vec::new();
                key::put_delete_row(&mut deleted, row, number);
                foreign.insert(deleted, Vec::new());
                let put = CellKey::put(row, FamilyId::new(1), b"q", at(2), number);
                foreign.insert(put.as_bytes().to_vec(), b"foreign".to_vec());
            }
            tables.push((clip, foreign));
        }
        for (key, value) in cells {
            let row = ParsedKey::parse(&key).unwrap().row();
            for _ in 0..random.random_range(1..3) {
                let table = tables.choose_mut_with(random).filter(|(clip, _)| clip.contains(&row));
                match table {
                    Some((_, held)) => {
                        held.insert(key.clone(), value.clone());
                    }
                    None => self.memtables.choose(random).unwrap().insert(&key, &value),
                }
            }
        }
        for (clip, held) in tables {
            if !held.is_empty() {
                let table = write_table(&held, random.random_bool(0.5)).await;
                self.tables.push((table, clip));
            }
        }
    }

    fn merge(&self) -> MergeCursor {
        let memtables = self.memtables.iter().map(|memtable| Source::memtable(memtable.cursor()));
        let tables =
            self.tables.iter().map(|(table, clip)| Source::table(table.cursor(true), clip));
        MergeCursor::new(memtables.chain(tables).collect())
    }

    fn scan(&self, rows: &RowRange, view: SeqNo) -> Scan {
        Scan::new(self.merge(), rows, view, &rules()).seeking_after(self.steps_before_seek)
    }
}

/// One of a list, or none for a list that is empty or, now and then, any list.
trait ChooseMut<T> {
    fn choose_mut_with(&mut self, random: &mut StdRng) -> Option<&mut T>;
}

impl<T> ChooseMut<T> for Vec<T> {
    fn choose_mut_with(&mut self, random: &mut StdRng) -> Option<&mut T> {
        let i = random.random_range(0..=self.len());
        self.get_mut(i)
    }
}

async fn value_of(scan: &Scan) -> Vec<u8> {
    let cell = scan.cell();
    match cell.value {
        sstable::ValueRef::Inline(value) => value.to_vec(),
        sstable::ValueRef::Stored(stored) => {
            let mut value = Vec::new();
            for piece in 0..stored.pieces() {
                let table = cell.table.unwrap();
                value.extend_from_slice(&table.read_value_piece(stored, piece).await.unwrap());
            }
            value
        }
    }
}

fn place_of(scan: &Scan) -> Place {
    let cell = scan.cell();
    let (mut row, mut qualifier) = (Vec::new(), Vec::new());
    cell.row_into(&mut row);
    cell.qualifier_into(&mut qualifier);
    (row, cell.family, qualifier, Reverse(cell.timestamp))
}

async fn collect(scan: &mut Scan) -> Vec<(Place, Vec<u8>)> {
    let mut found = Vec::new();
    while scan.next().await.unwrap() {
        found.push((place_of(scan), value_of(scan).await));
    }
    assert_eq!(scan.step().unwrap(), ScanStep::End);
    found
}

/// Runs one history, and adds up what its scans did.
async fn check_history(seed: u64, totals: &mut ScanCounts) {
    let mut random = StdRng::seed_from_u64(seed);
    let world = World::random(&mut random).await;
    for _ in 0..4 {
        let view = seq(random.random_range(0..=world.last.get()));
        let cells = world.model.cells(view);
        let rows = match random.random_range(0..3) {
            0 => RowRange::row(&Bytes::from_static(ROWS.choose(&mut random).unwrap())),
            1 => random_rows(&mut random),
            _ => RowRange::all(),
        };
        let expected: Vec<(Place, Vec<u8>)> =
            cells.into_iter().filter(|((row, ..), _)| rows.contains(row)).collect();
        let context = format!("seed {seed}, {rows:?} at {view}");

        let mut scan = world.scan(&rows, view);
        assert_eq!(collect(&mut scan).await, expected, "{context}");
        totals.loads += scan.counts().loads;
        totals.seeks += scan.counts().seeks;
        totals.visible += scan.counts().visible;

        let mut scan = world.scan(&rows, view).descending();
        let mut descending = expected.clone();
        descending.sort_by_key(|((row, ..), _)| Reverse(row.clone()));
        assert_eq!(collect(&mut scan).await, descending, "{context}, descending");

        check_skipped_rows(&world, &rows, view, &expected, &context).await;
        check_column(&world, &mut random, view, &rows, &expected, &context).await;
    }
    check_keys(&world, &mut random, seed).await;
}

async fn check_skipped_rows(
    world: &World,
    rows: &RowRange,
    view: SeqNo,
    expected: &[(Place, Vec<u8>)],
    context: &str,
) {
    let firsts: BTreeMap<&[u8], &Place> =
        expected.iter().rev().map(|(place, _)| (&place.0[..], place)).collect();
    for descends in [false, true] {
        let mut scan = world.scan(rows, view);
        if descends {
            scan = scan.descending();
        }
        let mut found = Vec::new();
        while scan.next().await.unwrap() {
            found.push(place_of(&scan));
            scan.skip_row();
        }
        let mut expected: Vec<Place> = firsts.values().map(|place| (*place).clone()).collect();
        if descends {
            expected.reverse();
        }
        assert_eq!(found, expected, "{context}, first cells, {descends}");
    }
}

async fn check_column(
    world: &World,
    random: &mut StdRng,
    view: SeqNo,
    rows: &RowRange,
    expected: &[(Place, Vec<u8>)],
    context: &str,
) {
    let row = *ROWS.choose(random).unwrap();
    if !rows.contains(row) {
        return;
    }
    let family = FamilyId::new(random.random_range(1..6));
    let qualifier = *QUALIFIERS.choose(random).unwrap();
    let from = (row.to_vec(), family, qualifier.to_vec());
    let expected: Vec<_> = expected
        .iter()
        .filter(|((r, f, q, _), _)| (r, f, q) >= (&from.0, &from.1, &from.2))
        .cloned()
        .collect();
    let mut scan = world.scan(rows, view);
    scan.seek_column(row, family, qualifier);
    assert_eq!(collect(&mut scan).await, expected, "{context}, {from:?}");
}

/// The merged keys themselves: each once, from any place, in both directions.
async fn check_keys(world: &World, random: &mut StdRng, seed: u64) {
    let mut merge = world.merge();
    for _ in 0..6 {
        let mut probe = Vec::new();
        key::put_row_start(&mut probe, ROWS.choose(random).unwrap());
        if random.random_bool(0.5) {
            probe.extend_from_slice(&[0, 0]);
        }
        let row = |key: &Vec<u8>| key::row_prefix(key).unwrap().to_vec();
        let (step, from) = match random.random_bool(0.5) {
            true => (merge.seek(&probe), probe.clone()),
            false => {
                let last = world.keys.range(..probe.clone()).next_back();
                let step = merge.prev_row(&probe);
                // Nothing before: then nothing at all.
                (step, last.map_or(vec![0xff; 9000], row))
            }
        };
        let mut step = step.unwrap();
        let mut expected = world.keys.range(from..).take(random.random_range(1..20));
        loop {
            match step {
                MergeStep::Cell => {
                    let Some(key) = expected.next() else { break };
                    assert_eq!(merge.key(), &key[..], "seed {seed}");
                    step = merge.next().unwrap();
                }
                MergeStep::End => {
                    assert_eq!(expected.next(), None, "seed {seed}");
                    break;
                }
                MergeStep::NeedBlock(pending) => {
                    merge.load(&pending).await.unwrap();
                    step = merge.resume().unwrap();
                }
            }
        }
    }
}

#[test]
fn scans_of_random_histories_agree_with_the_model_at_every_view() {
    let mut totals = ScanCounts::default();
    block_on(async {
        for seed in 0..2_500 {
            check_history(seed, &mut totals).await;
        }
    });
    let rare = totals.loads.min(totals.seeks).min(totals.visible);
    assert!(rare > 2_500, "hardly anything was tried: {totals:?}");
}

/// One table from batches given in commit order, and a memtable from the last of them.
async fn table_and_memtable(batches: &[Vec<RowMutations>]) -> (Source, Source, SeqNo) {
    let mut cells = BTreeMap::new();
    let memtable = Memtable::new(MemtableOptions::default());
    let mut next = seq(1);
    for (i, rows) in batches.iter().enumerate() {
        let mut batch = Batch::encode(rows);
        batch.sequence(next, at(0));
        next = batch.last_seq().next();
        if i + 1 == batches.len() {
            memtable.insert_batch(&batch);
        } else {
            cells
                .extend(batch.cells().map(|CellRef { key, value }| (key.to_vec(), value.to_vec())));
        }
    }
    let table = write_table(&cells, true).await;
    let last = seq(next.get() - 1);
    (Source::memtable(memtable.cursor()), Source::table(table.cursor(true), &RowRange::all()), last)
}

fn set(qualifier: &str, timestamp: i64) -> Mutation {
    Mutation::SetCell {
        family: FamilyId::new(1),
        qualifier: Bytes::copy_from_slice(qualifier.as_bytes()),
        timestamp: Some(at(timestamp)),
        value: Bytes::from_static(b"v"),
    }
}

fn row(row: &'static [u8], mutations: Vec<Mutation>) -> RowMutations {
    RowMutations { row: Bytes::from_static(row), mutations }
}

async fn count(memtable: Source, table: Source, view: SeqNo) -> ScanCounts {
    let merge = MergeCursor::new(vec![memtable, table]);
    let mut scan = Scan::new(merge, &RowRange::all(), view, &rules());
    while scan.next().await.unwrap() {}
    scan.counts()
}

#[test]
fn a_deleted_wide_row_is_seeked_past() {
    block_on(async {
        let family = FamilyId::new(1);
        let wide = || (0..5_000).map(|i| set(&format!("{i:05}"), 1)).collect();
        let column = || (0..5_000).map(|i| set("q", i)).collect();
        let all = Mutation::DeleteCells {
            family,
            qualifier: Bytes::from_static(b"q"),
            range: TimestampRange::ALL,
        };
        let cases: [(Vec<Mutation>, Mutation); 3] = [
            (wide(), Mutation::DeleteRow),
            (wide(), Mutation::DeleteFamily { family }),
            (column(), all),
        ];
        for (written, deleted) in cases {
            let batches = [
                vec![row(b"a", written), row(b"b", vec![set("q", 1)])],
                vec![row(b"a", vec![deleted])],
            ];
            let (memtable, table, last) = table_and_memtable(&batches).await;
            let counts = count(memtable, table, last).await;
            assert_eq!(counts.visible, 1);
            assert!(counts.keys < 40 && counts.seeks == 1, "{counts:?}");
            assert!(counts.loads < 20, "{counts:?}");
        }
    });
}

#[test]
fn overwritten_and_too_new_cells_are_seeked_past() {
    block_on(async {
        let batches = [
            vec![row(b"a", (0..5_000).map(|_| set("q", 1)).collect())],
            vec![row(b"b", vec![set("q", 1)])],
        ];
        let (memtable, table, last) = table_and_memtable(&batches).await;
        let counts = count(memtable, table, last).await;
        assert_eq!((counts.visible, counts.seeks), (2, 1), "{counts:?}");
        assert!(counts.keys < 30, "{counts:?}");

        let (memtable, table, _) = table_and_memtable(&batches).await;
        let counts = count(memtable, table, seq(2)).await;
        assert_eq!((counts.visible, counts.seeks), (1, 1), "{counts:?}");
        assert!(counts.keys < 30, "{counts:?}");
    });
}

#[test]
fn a_dropped_family_is_seeked_past() {
    block_on(async {
        let dropped = (0..3_000)
            .map(|i| Mutation::SetCell {
                family: FamilyId::new(2),
                qualifier: Bytes::from(i.to_string()),
                timestamp: Some(at(1)),
                value: Bytes::new(),
            })
            .chain([set("q", 1)])
            .collect();
        let batches = [vec![row(b"a", dropped)], vec![row(b"b", vec![set("q", 1)])]];
        let (memtable, table, last) = table_and_memtable(&batches).await;
        let counts = count(memtable, table, last).await;
        assert_eq!((counts.visible, counts.seeks), (2, 1), "{counts:?}");
        assert!(counts.keys < 30, "{counts:?}");
    });
}

#[test]
fn a_table_whose_turn_does_not_come_is_not_read() {
    block_on(async {
        let batches = [vec![row(b"b", vec![set("q", 1)])], vec![row(b"a", vec![set("q", 1)])]];
        let (memtable, table, last) = table_and_memtable(&batches).await;
        let merge = MergeCursor::new(vec![memtable, table]);
        let rows = RowRange::row(&Bytes::from_static(b"a"));
        let mut scan = Scan::new(merge, &rows, last, &rules());
        while scan.next().await.unwrap() {}
        assert_eq!((scan.counts().visible, scan.counts().loads), (1, 0));
    });
}

#[test]
fn scans_may_change_threads() {
    fn assert_send<T: Send>(_: T) {}
    let mut scan = Scan::new(MergeCursor::new(Vec::new()), &RowRange::all(), SeqNo::MAX, &rules());
    assert_send(scan.next());
    assert!(!block_on(scan.next()).unwrap());
}
