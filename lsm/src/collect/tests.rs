//! Merges of any files of random histories, against a model of what must and what may be left.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use types::{
    Aggregate, FamilyId, Mutation, ParsedKey, RowMutations, RowRange, SeqNo, Timestamp,
    TimestampRange, key,
};

use super::retention::allows;
use super::*;
use crate::batch::Batch;
use crate::cursor::{MergeCursor, MergeStep, Source};
use crate::memtable::{Memtable, MemtableOptions};
use crate::resolve::Scan;
use crate::rules::FamilyRule;

const ROWS: [&[u8]; 3] = [b"a", b"a\0", b"b"];
const QUALIFIERS: [&[u8]; 2] = [b"", b"q"];
const TIMES: i64 = 7;

/// Encoded keys and values.
type File = BTreeMap<Vec<u8>, Vec<u8>>;
/// Row, family, qualifier, timestamp: in cell order.
type Place = (Vec<u8>, FamilyId, Vec<u8>, Reverse<Timestamp>);
type Answer = BTreeMap<Place, Vec<u8>>;

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros).unwrap()
}

fn seq(raw: u64) -> SeqNo {
    SeqNo::from_raw(raw).unwrap()
}

fn how(family: FamilyId) -> Option<Aggregate> {
    match family.get() {
        3 => Some(Aggregate::Sum),
        4 => Some(Aggregate::Max),
        _ => None,
    }
}

fn random_retention(random: &mut StdRng, depth: u32) -> Retention {
    let parts = |random: &mut StdRng| {
        (0..random.random_range(1..3)).map(|_| random_retention(random, depth + 1)).collect()
    };
    match random.random_range(0..if depth < 2 { 6 } else { 4 }) {
        0 | 1 => Retention::MaxVersions(random.random_range(1..4)),
        2 | 3 => Retention::MaxAge(random.random_range(1..TIMES)),
        4 => Retention::Intersection(parts(random)),
        _ => Retention::Union(parts(random)),
    }
}

/// Families 1 to 4, of which 2 may have been dropped.
fn random_rules(random: &mut StdRng, has_second: bool) -> FamilyRules {
    let ids = (1..5).filter(|id| has_second || *id != 2).map(FamilyId::new);
    let families = ids.map(|id| FamilyRule {
        id,
        retention: random.random_bool(0.8).then(|| random_retention(random, 0)),
        aggregate: how(id),
    });
    FamilyRules::new(families.collect(), FamilyId::new(5))
}

fn random_mutation(random: &mut StdRng, has_second: bool) -> Mutation {
    let family = match FamilyId::new(random.random_range(1..5)) {
        family if family.get() == 2 && !has_second => FamilyId::new(1),
        family => family,
    };
    let qualifier = Bytes::from_static(QUALIFIERS.choose(random).unwrap());
    let micros = random.random_range(0..TIMES);
    let timestamp = Some(at(micros));
    match random.random_range(0..30) {
        0 => Mutation::DeleteRow,
        1 => Mutation::DeleteFamily { family },
        2..6 => {
            let end = random.random_bool(0.7).then(|| at(micros + random.random_range(1..4)));
            let range = TimestampRange { start: at(micros), end };
            Mutation::DeleteCells { family, qualifier, range }
        }
        _ if how(family).is_some() => {
            let operand = random.random_range(-9..10);
            Mutation::AddToCell { family, qualifier, timestamp, operand }
        }
        _ => {
            let value = Bytes::from(vec![random.random(); random.random_range(0..4)]);
            Mutation::SetCell { family, qualifier, timestamp, value }
        }
    }
}

/// A cell, if nothing were ever collected.
#[derive(Default)]
struct Cell {
    /// The value; of an aggregate, the operands in the order of writing.
    values: Vec<Vec<u8>>,
    /// The most newer cells of the column that were there at once with it.
    most_newer: u64,
    /// So many of the values may be gone: a rule allowed it when they were there.
    may_go: usize,
}

impl Cell {
    /// Everything that a reader may be told.
    fn legal(&self, family: FamilyId) -> Vec<Option<Vec<u8>>> {
        (0..=self.may_go).map(|gone| whole(&self.values[gone..], family)).collect()
    }
}

fn whole(values: &[Vec<u8>], family: FamilyId) -> Option<Vec<u8>> {
    let Some(how) = how(family) else {
        return values.first().cloned();
    };
    let numbers = values.iter().map(|value| key::operand(value).unwrap());
    let folded = numbers.reduce(|left, right| how.fold(left, right));
    folded.map(|folded| folded.to_be_bytes().to_vec())
}

#[derive(Default)]
struct Model(BTreeMap<Place, Cell>);

impl Model {
    fn apply(&mut self, row: &Bytes, mutation: &Mutation) {
        let place = |family: FamilyId, qualifier: &Bytes, timestamp: &Option<Timestamp>| {
            (row.to_vec(), family, qualifier.to_vec(), Reverse(timestamp.unwrap()))
        };
        match mutation {
            Mutation::SetCell { family, qualifier, timestamp, value } => {
                let cell = Cell { values: vec![value.to_vec()], ..Cell::default() };
                self.0.insert(place(*family, qualifier, timestamp), cell);
            }
            Mutation::AddToCell { family, qualifier, timestamp, operand } => {
                let cell = self.0.entry(place(*family, qualifier, timestamp)).or_default();
                cell.values.push(operand.to_be_bytes().to_vec());
            }
            Mutation::DeleteCells { family, qualifier, range } => self.0.retain(|place, _| {
                let column = place.0 == *row && place.1 == *family && place.2 == *qualifier;
                !(column && range.contains(place.3.0))
            }),
            Mutation::DeleteFamily { family } => {
                self.0.retain(|place, _| !(place.0 == *row && place.1 == *family));
            }
            Mutation::DeleteRow => self.0.retain(|place, _| place.0 != *row),
        }
        let mut newer = Newer::default();
        for (place, cell) in &mut self.0 {
            cell.most_newer = cell.most_newer.max(newer.than(place));
        }
    }

    /// A merge goes by these rules at this time: whatever they allow to drop may be gone.
    fn allow(&mut self, rules: &FamilyRules, now: i64) {
        for (place, cell) in &mut self.0 {
            let retention = rules.get(place.1).and_then(|rule| rule.retention.as_ref());
            let age = now.saturating_sub(place.3.0.micros());
            if retention.is_some_and(|retention| allows(retention, cell.most_newer, age)) {
                cell.may_go = cell.values.len();
            }
        }
    }

    fn check(&self, answer: &Answer, context: &str) {
        for (place, value) in answer {
            let cell = self.0.get(place);
            let cell = cell.unwrap_or_else(|| panic!("{context}: {place:?} was brought back"));
            let legal = cell.legal(place.1);
            assert!(legal.contains(&Some(value.clone())), "{context}: {place:?} {value:?}");
        }
        for (place, cell) in &self.0 {
            let may_be_gone = cell.legal(place.1).contains(&None);
            assert!(may_be_gone || answer.contains_key(place), "{context}: {place:?} is lost");
        }
    }
}

/// Counts the newer cells of a column on a walk in cell order.
#[derive(Default)]
struct Newer {
    column: Option<(Vec<u8>, FamilyId, Vec<u8>)>,
    met: u64,
}

impl Newer {
    fn than(&mut self, place: &Place) -> u64 {
        let column = Some((place.0.clone(), place.1, place.2.clone()));
        if self.column != column {
            *self = Newer { column, met: 0 };
        }
        self.met += 1;
        self.met - 1
    }
}

fn cursor(files: &[&File]) -> MergeCursor {
    let source = |file: &&File| {
        let memtable = Memtable::new(MemtableOptions::default());
        file.iter().for_each(|(key, value)| memtable.insert(key, value));
        Source::memtable(memtable.cursor())
    };
    MergeCursor::new(files.iter().map(source).collect())
}

fn answer(files: &[&File], rules: &FamilyRules) -> Answer {
    let rules = Arc::new(rules.clone());
    let mut scan = Scan::new(cursor(files), &RowRange::all(), SeqNo::MAX, &rules);
    let mut answer = Answer::new();
    while let crate::ScanStep::Cell = scan.step().unwrap() {
        let cell = scan.cell();
        let (mut row, mut qualifier) = (Vec::new(), Vec::new());
        cell.row_into(&mut row);
        cell.qualifier_into(&mut qualifier);
        let ValueRef::Inline(value) = cell.value else { panic!("memtables hold all values") };
        let before =
            answer.insert((row, cell.family, qualifier, Reverse(cell.timestamp)), value.to_vec());
        assert_eq!(before, None);
    }
    answer
}

fn outside(files: &[File]) -> Outside {
    let outside = files.iter().filter(|file| !file.is_empty()).map(|file| {
        let seqs: Vec<SeqNo> = file.keys().map(|key| key::seq_of(key).unwrap()).collect();
        OutsideFile {
            first: file.first_key_value().unwrap().0.clone(),
            end: [file.last_key_value().unwrap().0, &[0][..]].concat(),
            smallest: *seqs.iter().min().unwrap(),
            largest: *seqs.iter().max().unwrap(),
            table: None,
        }
    });
    Outside::new(outside.collect())
}

/// Merges as a compaction does.
fn merge(inputs: &[File], rest: &[File], rules: &FamilyRules, now: i64) -> (File, Collected) {
    let mut cursor = cursor(&inputs.iter().collect::<Vec<_>>());
    let mut collector = Collector::new(rules, outside(rest), now);
    let mut written = File::new();
    let mut add = |key: &[u8], value: &[u8]| {
        let ascends = written.last_key_value().is_none_or(|(last, _)| last.as_slice() < key);
        assert!(ascends, "keys ascend");
        written.insert(key.to_vec(), value.to_vec());
    };
    let mut step = cursor.seek(&[]).unwrap();
    while let MergeStep::Cell = step {
        let fate = collector.push(cursor.key(), cursor.value()).unwrap();
        if let Some(operand) = collector.ready() {
            add(&operand.key, &operand.value);
        }
        let ValueRef::Inline(value) = cursor.value() else { panic!("memtables hold all values") };
        if fate != Fate::Pass {
            add(cursor.key(), value);
        }
        step = cursor.next().unwrap();
    }
    collector.finish();
    if let Some(operand) = collector.ready() {
        add(&operand.key, &operand.value);
    }
    let counts = collector.counts();
    assert_eq!(counts.met, written.len() as u64 + counts.left_out());
    (written, counts)
}

struct World {
    model: Model,
    rules: FamilyRules,
    has_second: bool,
    files: Vec<File>,
    /// What is not flushed: its numbers are larger than those of the files.
    memory: File,
    next: SeqNo,
    /// Keys may go to any file, not only to one of their age.
    is_wild: bool,
    totals: Collected,
}

impl World {
    fn new(random: &mut StdRng) -> World {
        World {
            model: Model::default(),
            rules: random_rules(random, true),
            has_second: true,
            files: Vec::new(),
            memory: File::new(),
            next: seq(1),
            is_wild: random.random_bool(0.3),
            totals: Collected::default(),
        }
    }

    fn all(&self) -> Vec<&File> {
        self.files.iter().chain([&self.memory]).collect()
    }

    fn write(&mut self, random: &mut StdRng) {
        let row = Bytes::from_static(ROWS.choose(random).unwrap());
        let count = random.random_range(1..4);
        let mutations = (0..count).map(|_| random_mutation(random, self.has_second)).collect();
        let rows = [RowMutations { row, mutations }];
        let mut batch = Batch::encode(&rows);
        batch.sequence(self.next, at(0));
        self.next = batch.last_seq().next();
        self.memory.extend(batch.cells().map(|cell| (cell.key.to_vec(), cell.value.to_vec())));
        for mutation in &rows[0].mutations {
            self.model.apply(&rows[0].row, mutation);
        }
    }

    fn flush(&mut self, random: &mut StdRng) {
        let memory = std::mem::take(&mut self.memory);
        if !self.is_wild {
            if random.random_bool(0.2) {
                // A log that was replayed twice.
                let part = |_: &(&Vec<u8>, &Vec<u8>)| random.random_bool(0.5);
                let twice = memory.iter().filter(part).map(|(k, v)| (k.clone(), v.clone()));
                self.files.push(twice.collect());
            }
            self.files.push(memory);
            return;
        }
        self.files.push(File::new());
        for (key, value) in memory {
            for _ in 0..random.random_range(1..3) {
                let place = random.random_range(0..self.files.len());
                self.files[place].insert(key.clone(), value.clone());
            }
        }
    }

    fn merge(&mut self, random: &mut StdRng, chosen: impl Fn(usize, &mut StdRng) -> bool) {
        let now = random.random_range(0..2 * TIMES);
        self.model.allow(&self.rules, now);
        let before = answer(&self.all(), &self.rules);
        let (mut inputs, mut rest) = (Vec::new(), Vec::new());
        for (place, file) in std::mem::take(&mut self.files).into_iter().enumerate() {
            if chosen(place, random) { inputs.push(file) } else { rest.push(file) }
        }
        let (written, counts) = merge(&inputs, &rest, &self.rules, now);
        let is_all = rest.is_empty() && self.memory.is_empty();
        if is_all {
            check_whole_merge(&written, &before, &self.rules, now);
        }
        self.files = rest;
        let place = random.random_range(0..=self.files.len());
        self.files.insert(place, written);
        self.add_up(counts);
        let after = answer(&self.all(), &self.rules);
        assert!(after.keys().all(|place| before.contains_key(place)), "something came back");
    }

    fn add_up(&mut self, counts: Collected) {
        let totals = &mut self.totals;
        totals.met += counts.met;
        totals.of_dropped_families += counts.of_dropped_families;
        totals.hidden += counts.hidden;
        totals.overwritten += counts.overwritten;
        totals.expired += counts.expired;
        totals.tombstones += counts.tombstones;
        totals.folded += counts.folded;
        totals.bytes += counts.bytes;
        totals.expired_bytes_left += counts.expired_bytes_left;
    }
}

/// With nothing outside, all that is allowed goes, each cell has one key, and no tombstone is left.
fn check_whole_merge(written: &File, before: &Answer, rules: &FamilyRules, now: i64) {
    let mut newer = Newer::default();
    let mut expected = before.clone();
    expected.retain(|place, _| {
        let newer = newer.than(place);
        let retention = rules.get(place.1).and_then(|rule| rule.retention.as_ref());
        let age = now.saturating_sub(place.3.0.micros());
        !retention.is_some_and(|retention| allows(retention, newer, age))
    });
    assert_eq!(answer(&[written], rules), expected);
    assert_eq!(written.len(), expected.len(), "a key a cell, and no tombstones");
    assert!(written.keys().all(|key| !ParsedKey::parse(key).unwrap().kind.is_tombstone()));
}

fn run(seed: u64) -> Collected {
    let mut random = StdRng::seed_from_u64(seed);
    let random = &mut random;
    let mut world = World::new(random);
    for step in 0..random.random_range(10..120) {
        match random.random_range(0..20) {
            0..12 => world.write(random),
            12..15 => world.flush(random),
            15 | 16 => {
                let share = random.random_range(0.2..0.9);
                world.merge(random, |_, random| random.random_bool(share));
            }
            17 => {
                let (from, to) = (random.random_range(0..4), random.random_range(0..8));
                world.merge(random, |place, _| (from..=to).contains(&place));
            }
            18 => world.merge(random, |_, _| true),
            _ => {
                if world.has_second && random.random_bool(0.1) {
                    world.has_second = false;
                    world.model.0.retain(|place, _| place.1.get() != 2);
                }
                world.rules = random_rules(random, world.has_second);
            }
        }
        world.model.check(&answer(&world.all(), &world.rules), &format!("seed {seed} step {step}"));
    }
    world.totals
}

#[test]
fn merges_of_any_files_drop_what_rules_allow_and_bring_nothing_back() {
    let mut totals = Collected::default();
    for seed in 0..500 {
        let run = run(seed);
        totals.of_dropped_families += run.of_dropped_families;
        totals.hidden += run.hidden;
        totals.overwritten += run.overwritten;
        totals.expired += run.expired;
        totals.tombstones += run.tombstones;
        totals.folded += run.folded;
        totals.expired_bytes_left += run.expired_bytes_left;
    }
    let rare = [
        totals.of_dropped_families,
        totals.hidden,
        totals.overwritten,
        totals.expired,
        totals.tombstones,
        totals.folded,
        totals.expired_bytes_left,
    ];
    assert!(rare.iter().all(|count| *count > 300), "hardly anything was tried: {totals:?}");
}

/// The column r 1:q, all numbers and times in one place.
/// The random merges notice a fold that an outside file's tombstone may part.
#[test]
#[cfg(tepui_planted_bugs)]
fn the_planted_fold_across_a_tombstone_is_found() {
    use env::planted::{PlantedBug, set};
    set(Some(PlantedBug::FoldAcrossTombstone));
    let found = std::panic::catch_unwind(|| (0..500).map(run).count());
    set(None);
    assert!(found.is_err(), "500 runs noticed nothing");
}

fn file(entries: &[(&str, i64, u64)]) -> File {
    let family = FamilyId::new(1);
    let entry = |(what, micros, number): &(&str, i64, u64)| {
        let mut key = Vec::new();
        if *what == "put" {
            key::put_cell(&mut key, b"r", family, b"q", at(*micros), seq(*number));
            return (key, Vec::new());
        }
        key::put_delete_cells(&mut key, b"r", family, b"q", seq(*number));
        let range = TimestampRange { start: at(*micros), end: Some(at(*micros + 1)) };
        (key, range.encode().to_vec())
    };
    entries.iter().map(entry).collect()
}

fn two_versions() -> FamilyRules {
    let retention = Some(Retention::MaxVersions(2));
    let rule = FamilyRule { id: FamilyId::new(1), retention, aggregate: None };
    FamilyRules::new(vec![rule], FamilyId::new(2))
}

#[test]
fn versions_that_were_never_there_at_once_are_not_counted_together() {
    let oldest = file(&[("put", 7, 1), ("put", 9, 2)]);
    let between = file(&[("delete", 9, 3)]);
    let newest = file(&[("put", 8, 4)]);
    let rules = two_versions();
    // 9 was deleted before 8 was written: 7 was never the third.
    let inputs = [oldest, newest];
    let (written, counts) = merge(&inputs, std::slice::from_ref(&between), &rules, 0);
    assert_eq!((counts.expired, written.len()), (0, 3));
    assert_eq!(answer(&[&written, &between], &rules).len(), 2);
    let [oldest, newest] = inputs;
    let (written, counts) = merge(&[oldest, between, newest], &[], &rules, 0);
    assert_eq!((counts.hidden, counts.tombstones, written.len()), (1, 1, 2));
}

#[test]
fn an_expired_cell_stays_while_an_older_file_may_hold_what_it_overwrote() {
    let older = file(&[("put", 1, 1)]);
    let newer = file(&[("put", 1, 5), ("put", 2, 6), ("put", 3, 7)]);
    let rules = two_versions();
    let inputs = [newer];
    let (written, counts) = merge(&inputs, std::slice::from_ref(&older), &rules, 0);
    assert_eq!((counts.expired, written.len()), (0, 3));
    assert!(counts.expired_bytes_left > 0);
    let (written, counts) = merge(&[written, older], &[], &rules, 0);
    assert_eq!((counts.overwritten, counts.expired, written.len()), (1, 1, 2));
    assert_eq!(counts.expired_bytes_left, 0);
}
