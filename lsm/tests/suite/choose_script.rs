//! Golden scripts of what is merged: the files of a range in, plans out.
//!
//! ```text
//! L0 1 a-m 10                    file 1 of level 0 holds the rows a to m, 10 KiB; the larger a
//!                                file's number, the newer is what it holds
//! L5 2 a-z 90 clip=c-f           only a part of it belongs to the range
//! L5 3 a-c 90 tombstones=500     so many of its 1000 entries are tombstones
//! L5 3 a-c 90 expired=500        of its 1000 bytes so many may be dropped
//! busy 1 2                       files that are at work
//! choose                         the next plan
//! step                           the next plan, carried out; merges write files of 64 KiB
//! until quiet                    all of them
//! ```
//!
//! Options: tables of 64 KiB, 4 runs of level 0, a base of 256 KiB, a ratio of 10.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use sstable::{Properties, TableMeta};
use tepui_lsm::{Edit, Plan, StoreOptions, TableRef, Version, Work, choose_compaction};
use types::{CellKey, FamilyId, FileId, RowRange, SeqNo, Timestamp};

use super::golden;

const TABLE_KIB: u64 = 64;
/// More steps than any script takes.
const STEPS_MAX: usize = 500;

fn options() -> StoreOptions {
    StoreOptions {
        table_bytes: TABLE_KIB << 10,
        level_base_bytes: 256 << 10,
        ..StoreOptions::default()
    }
}

fn id(counter: u64) -> FileId {
    FileId { session: 1, counter }
}

fn key(row: &[u8]) -> CellKey {
    CellKey::put(row, FamilyId::new(1), b"", Timestamp::ZERO, SeqNo::ZERO)
}

fn file(level: u32, counter: u64, first: &[u8], last: &[u8], kib: u64) -> TableRef {
    let (smallest, largest) = (key(first), key(last));
    let seq = SeqNo::from_raw(counter).unwrap();
    let properties = Properties {
        cells: 1_000,
        raw_bytes: 1_000,
        smallest_seq: seq,
        largest_seq: seq,
        ..Properties::default()
    };
    let meta =
        TableMeta { file: id(counter), len: kib << 10, checksum: 0, smallest, largest, properties };
    TableRef { meta, level, clip: None }
}

#[derive(Default)]
struct Script {
    version: Option<Version>,
    busy: BTreeSet<FileId>,
    next: u64,
}

impl Script {
    fn version(&self) -> Version {
        self.version.clone().unwrap_or_else(Version::empty)
    }

    fn command(&mut self, line: &str, out: &mut String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["choose"] => {
                let plan = choose_compaction(&self.version(), &options(), &self.busy);
                writeln!(out, "{}", plan.as_ref().map_or("nothing".to_owned(), show)).unwrap();
            }
            ["step"] => {
                let shown = self.step().unwrap_or_else(|| "nothing".to_owned());
                writeln!(out, "{shown}").unwrap();
                self.print(out);
            }
            ["until", "quiet"] => {
                let mut steps = 0;
                while let Some(shown) = self.step() {
                    writeln!(out, "{shown}").unwrap();
                    steps += 1;
                    assert!(steps < STEPS_MAX, "it never ends:\n{out}");
                }
                self.print(out);
            }
            ["busy", ..] => {
                self.busy = words[1..].iter().map(|word| id(word.parse().unwrap())).collect();
            }
            [level, counter, rows, kib, ref more @ ..] if level.starts_with('L') => {
                let level = level[1..].parse().unwrap();
                let (first, last) = rows.split_once('-').unwrap();
                let kib = kib.parse().unwrap();
                let (first, last) = (first.as_bytes(), last.as_bytes());
                let mut added = file(level, counter.parse().unwrap(), first, last, kib);
                more.iter().for_each(|word| modify(&mut added, word));
                let edit = Edit { added: vec![(0, added)], ..Edit::default() };
                self.version = Some(self.version().apply(&edit).unwrap());
            }
            _ => panic!("unknown command {line:?}"),
        }
    }

    /// Carries out the next plan as a merge that drops nothing would.
    fn step(&mut self) -> Option<String> {
        let version = self.version();
        let plan = choose_compaction(&version, &options(), &self.busy)?;
        let inputs: Vec<&Arc<TableRef>> =
            version.tables().filter(|table| plan.inputs.contains(&table.id())).collect();
        let level = plan.output_level;
        let added = match plan.work {
            Work::Move => {
                let moved = |table: &&Arc<TableRef>| TableRef { level, ..TableRef::clone(table) };
                inputs.iter().map(moved).collect()
            }
            Work::Merge => self.merged(&inputs, level),
        };
        let added = added.into_iter().map(|table| (0, table)).collect();
        let edit = Edit { removed: plan.inputs.clone(), added, ..Edit::default() };
        self.version = Some(version.apply(&edit).unwrap());
        Some(show(&plan))
    }

    /// Files with the inputs' bytes in all, their rows shared out evenly by first letter.
    fn merged(&mut self, inputs: &[&Arc<TableRef>], level: u32) -> Vec<TableRef> {
        let letter = |key: &CellKey| key.as_bytes()[0];
        let first = inputs.iter().map(|table| letter(&table.meta.smallest)).min().unwrap();
        let last = inputs.iter().map(|table| letter(&table.meta.largest)).max().unwrap();
        let kib: u64 = inputs.iter().map(|table| table.meta.len >> 10).sum();
        let rows = u64::from(last - first) + 1;
        let count = (kib / TABLE_KIB).clamp(1, rows);
        self.next = self.next.max(100);
        let at = |part: u64| first + u8::try_from(rows * part / count).unwrap();
        let file_of = |part: u64| {
            let counter = self.next + part;
            file(level, counter, &[at(part)], &[at(part + 1) - 1], kib / count)
        };
        let files = (0..count).map(file_of).collect();
        self.next += count;
        files
    }

    fn print(&self, out: &mut String) {
        let mut levels: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for table in self.version().tables() {
            let letter = |key: &CellKey| char::from(key.as_bytes()[0]);
            let rows = format!("{}-{}", letter(&table.meta.smallest), letter(&table.meta.largest));
            let shown = format!("{}:{rows}:{}", table.id().counter, table.meta.len >> 10);
            levels.entry(table.level).or_default().push(shown);
        }
        for (level, files) in levels {
            writeln!(out, "  L{level} {}", files.join(" ")).unwrap();
        }
    }
}

fn modify(table: &mut TableRef, word: &str) {
    let (name, value) = word.split_once('=').unwrap();
    match name {
        "clip" => {
            let bytes = |row: &str| Bytes::copy_from_slice(row.as_bytes());
            let (start, end) = value.split_once('-').unwrap();
            table.clip = Some(RowRange { start: bytes(start), end: Some(bytes(end)) });
        }
        "expired" => table.meta.properties.expired_bytes = value.parse().unwrap(),
        "tombstones" => table.meta.properties.tombstones = value.parse().unwrap(),
        _ => panic!("unknown word {word:?}"),
    }
}

fn show(plan: &Plan) -> String {
    let inputs: Vec<String> = plan.inputs.iter().map(|id| id.counter.to_string()).collect();
    let work = if plan.work == Work::Merge { "merge" } else { "move" };
    let (inputs, level) = (inputs.join(" "), plan.output_level);
    format!("{work} {inputs} to L{level}, {} KiB: {:?}", plan.bytes >> 10, plan.reason)
}

/// Each block begins with an empty range.
#[test]
fn choices_script() {
    let text = String::from_utf8(golden::read("choose.script")).unwrap();
    let mut found = String::new();
    for block in text.trim_end().split("\n\n") {
        let commands = block.split("\n---").next().unwrap();
        let (mut script, mut out) = (Script::default(), String::new());
        for line in commands.lines().filter(|line| !line.starts_with('#')) {
            script.command(line, &mut out);
        }
        write!(found, "{commands}\n---\n{out}\n").unwrap();
    }
    golden::check("choose.script", &found);
}
