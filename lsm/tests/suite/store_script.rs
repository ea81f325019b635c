//! Golden scripts: commands, then `---`, then what they print. A block ends with an empty line.
//!
//! ```text
//! put ROW [FAMILY:]QUALIFIER=VALUE [@MICROS]     add ROW QUALIFIER=OPERAND [@MICROS]
//! delete ROW QUALIFIER [@MICROS]                 delete-family ROW [FAMILY]
//! delete-row ROW                                 excise ROW ROW
//! freeze | flush                                 compact | compact all
//! keep VERSIONS | keep all                       group NAME FAMILY…
//! reopen | kill                                  split ROW | sibling
//! scan | files                                   middle
//! ```
//!
//! `add` writes to family 4, whose cells are sums; all else to family 1 unless it is named.
//! `excise` takes the first row that goes and the first that stays. `reopen` stops the store;
//! `kill` only leaves it, and the next owner takes up the log. After `split` the script goes on in
//! the left child, and `sibling` changes to the other one.

use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use storage::FileSystem;
use storage::memory::MemoryFileSystem;
use tepui_lsm::{FamilyRule, FamilyRules, MergeStep, Reason, Store, StoreConfig, TableRef};
use types::{
    CellKey, Epoch, FamilyId, GroupSettings, LocalityGroup, Mutation, RangeId, Retention, RowRange,
    Timestamp, TimestampRange,
};

use super::bed::{Action, FAMILY, Log, SUMS, act, at, config, on_row, rules, visible};
use super::golden;

struct Script {
    config: StoreConfig,
    store: Arc<Store>,
    log: Log,
    groups: Vec<LocalityGroup>,
    rules: Arc<FamilyRules>,
    sibling: Option<StoreConfig>,
}

impl Script {
    async fn new() -> Script {
        let files: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
        let config = config(files, 1);
        let store = Store::create(config.clone()).await.unwrap();
        let (log, groups, rules) = (Log::default(), Vec::new(), rules());
        Script { config, store, log, groups, rules, sibling: None }
    }

    async fn command(&mut self, line: &str, out: &mut String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["put", row, cell] => self.put(row, cell, "@1"),
            ["put", row, cell, at] => self.put(row, cell, at),
            ["add", row, cell] => self.add(row, cell, "@1"),
            ["add", row, cell, at] => self.add(row, cell, at),
            ["delete", row, qualifier] => self.delete(row, qualifier, TimestampRange::ALL),
            ["delete", row, qualifier, at] => {
                let start = micros(at);
                let end = Timestamp::from_micros(start.micros() + 1);
                self.delete(row, qualifier, TimestampRange { start, end });
            }
            ["delete-family", row] => self.write(row, Mutation::DeleteFamily { family: FAMILY }),
            ["delete-family", row, family] => {
                self.write(row, Mutation::DeleteFamily { family: family_id(family) });
            }
            ["delete-row", row] => self.write(row, Mutation::DeleteRow),
            ["keep", "all"] => self.rules = rules(),
            ["keep", versions] => self.keep(versions.parse().unwrap()),
            ["group", name, ..] => self.group(name, &words[2..]).await,
            ["sibling"] => self.change_to_sibling().await,
            _ => self.step(&words, out).await,
        }
    }

    /// Commands that print.
    async fn step(&mut self, words: &[&str], out: &mut String) {
        match *words {
            ["freeze"] => writeln!(out, "frozen: {}", self.store.freeze(Reason::Asked)).unwrap(),
            ["flush"] => self.flush(out).await,
            ["excise", start, end] => {
                let bytes = |row: &str| Bytes::copy_from_slice(row.as_bytes());
                let rows = RowRange { start: bytes(start), end: Some(bytes(end)) };
                act(&self.store, &mut self.log, &Action::Excise(rows)).await.unwrap();
                writeln!(out, "flushed up to {}", self.store.flushed_seq()).unwrap();
            }
            ["compact"] => {
                self.store.set_rules(&self.rules);
                let merged = self.store.compact_once().await.unwrap();
                writeln!(out, "merged: {merged}").unwrap();
            }
            ["compact", "all"] => {
                self.store.set_rules(&self.rules);
                let merged = self.store.compact_all().await.unwrap();
                writeln!(out, "merged: {merged}").unwrap();
            }
            ["reopen"] => {
                self.store.close().await;
                self.next_owner();
                self.store = Store::open(self.config.clone()).await.unwrap();
                writeln!(out, "next {}", self.store.next_seq()).unwrap();
            }
            ["kill"] => {
                self.next_owner();
                self.store = self.log.recover(self.config.clone()).await.unwrap();
                writeln!(out, "next {}", self.store.next_seq()).unwrap();
            }
            ["split", row] => self.split(row, out).await,
            ["middle"] => {
                let middle = self.store.middle().await.unwrap();
                let text = middle.map_or("none".to_owned(), |row| row.escape_ascii().to_string());
                writeln!(out, "middle: {text}").unwrap();
            }
            ["scan"] => self.print_visible(out).await,
            ["files"] => self.print_files(out).await,
            _ => panic!("unknown command {words:?}"),
        }
    }

    fn next_owner(&mut self) {
        let epoch = self.config.epoch.get() + 1;
        let next = config(Arc::clone(&self.config.files), epoch);
        let StoreConfig { range, bounds, .. } = self.config.clone();
        self.config = StoreConfig { range, bounds, ..next };
    }

    fn put(&mut self, row: &str, cell: &str, at: &str) {
        let (column, value) = cell.split_once('=').unwrap();
        let (family, qualifier) =
            column.split_once(':').map_or((FAMILY, column), |(id, rest)| (family_id(id), rest));
        let mutation = Mutation::SetCell {
            family,
            qualifier: Bytes::copy_from_slice(qualifier.as_bytes()),
            timestamp: Some(micros(at)),
            value: Bytes::copy_from_slice(value.as_bytes()),
        };
        self.write(row, mutation);
    }

    fn add(&mut self, row: &str, cell: &str, at: &str) {
        let (qualifier, operand) = cell.split_once('=').unwrap();
        let mutation = Mutation::AddToCell {
            family: SUMS,
            qualifier: Bytes::copy_from_slice(qualifier.as_bytes()),
            timestamp: Some(micros(at)),
            operand: operand.parse().unwrap(),
        };
        self.write(row, mutation);
    }

    fn delete(&mut self, row: &str, qualifier: &str, range: TimestampRange) {
        let (family, qualifier) = qualifier
            .split_once(':')
            .map_or((FAMILY, qualifier), |(id, rest)| (family_id(id), rest));
        let qualifier = Bytes::copy_from_slice(qualifier.as_bytes());
        self.write(row, Mutation::DeleteCells { family, qualifier, range });
    }

    fn write(&mut self, row: &str, mutation: Mutation) {
        self.log.write(&self.store, &[on_row(row, vec![mutation])]).unwrap();
    }

    /// From now on merges may drop all but the newest `versions` of each column of family 1.
    fn keep(&mut self, versions: u32) {
        let changed = rules();
        let rule = |&id: &FamilyId| {
            let mut rule: FamilyRule = changed.get(id).unwrap().clone();
            if id == FAMILY {
                rule.retention = Some(Retention::MaxVersions(versions));
            }
            rule
        };
        let families = changed.ids().iter().map(rule).collect();
        self.rules = Arc::new(FamilyRules::new(families, FamilyId::new(5)));
    }

    async fn group(&mut self, name: &str, families: &[&str]) {
        let families = families.iter().map(|id| family_id(id)).collect();
        let settings = GroupSettings::default();
        self.groups.push(LocalityGroup { name: name.to_owned(), families, settings });
        let action = Action::Regroup(self.groups.clone());
        act(&self.store, &mut self.log, &action).await.unwrap();
    }

    async fn flush(&self, out: &mut String) {
        self.store.freeze(Reason::Asked);
        let flushed = self.store.flush().await.unwrap();
        let text = flushed.map_or("nothing".to_owned(), |done| {
            format!("{} files up to {}", done.files, done.flushed)
        });
        writeln!(out, "flushed {text}").unwrap();
    }

    /// Divides the range as its owner does, and goes on in the left child.
    async fn split(&mut self, row: &str, out: &mut String) {
        self.store.flush_all(Reason::Split).await.unwrap();
        self.store.seal().await.unwrap();
        let parent = self.config.clone();
        let at = Bytes::copy_from_slice(row.as_bytes());
        let left = RowRange { start: parent.bounds.start.clone(), end: Some(at.clone()) };
        let right = RowRange { start: at, end: parent.bounds.end.clone() };
        let epoch = Epoch::new(parent.epoch.get() + 1);
        let first = parent.range.get() * 10;
        let children = [(first + 1, left), (first + 2, right)].map(|(id, bounds)| {
            let range = RangeId::new(id);
            StoreConfig { range, bounds, epoch, ..parent.clone() }
        });
        for child in &children {
            self.store.write_child(child.range, &child.bounds).await.unwrap();
        }
        self.store.close().await;
        self.store.remove_folder(parent.range).await.unwrap();
        let [left, right] = children;
        self.store = Store::open(left.clone()).await.unwrap();
        (self.config, self.sibling) = (left, Some(right));
        // The parent's log is flushed, and the children begin none in common.
        self.log = Log::default();
        writeln!(out, "ranges {} and {}", first + 1, first + 2).unwrap();
    }

    async fn change_to_sibling(&mut self) {
        let sibling = self.sibling.take().unwrap();
        self.sibling = Some(std::mem::replace(&mut self.config, sibling));
        self.next_owner();
        self.log = Log::default();
        self.store = Store::open(self.config.clone()).await.unwrap();
    }

    async fn print_visible(&self, out: &mut String) {
        for (row, family, qualifier, micros, value) in visible(&self.store).await.unwrap() {
            let value = match <[u8; 8]>::try_from(&value[..]) {
                Ok(sum) if family == SUMS.get() => i64::from_be_bytes(sum).to_string(),
                _ => String::from_utf8(value).unwrap(),
            };
            writeln!(out, "{row} f{family}:{qualifier} @{micros} = {value}").unwrap();
        }
    }

    /// The files by level, then everything stored, in key order.
    async fn print_files(&self, out: &mut String) {
        let version = self.store.version();
        for group in version.groups() {
            let name = if version.groups().len() > 1 { &group.name } else { "" };
            for table in &group.tables {
                writeln!(out, "{}", file(name, table).trim_start()).unwrap();
            }
        }
        let view = self.store.view().unwrap();
        let mut merge = view.merge(self.store.bounds(), false);
        let mut step = merge.seek(&[]).unwrap();
        loop {
            match step {
                MergeStep::End => break,
                MergeStep::NeedBlock(pending) => {
                    merge.load(&pending).await.unwrap();
                    step = merge.resume().unwrap();
                    continue;
                }
                MergeStep::Cell => {}
            }
            let origin = if merge.table().is_some() { "file" } else { "memory" };
            writeln!(out, "  {:?} ({origin})", CellKey::from_valid(merge.key())).unwrap();
            step = merge.next().unwrap();
        }
    }
}

/// `GROUP L0 2 cells, of which [a, b)`: the cells are those of the whole file.
fn file(group: &str, table: &TableRef) -> String {
    let mut text = format!("{group} L{} {} cells", table.level, table.meta.properties.cells);
    if let Some(clip) = &table.clip {
        let end = clip.end.as_ref().map_or("end".to_owned(), |end| end.escape_ascii().to_string());
        write!(text, ", of which [{}, {end})", clip.start.escape_ascii()).unwrap();
    }
    text
}

fn family_id(text: &str) -> FamilyId {
    FamilyId::new(text.parse().unwrap())
}

fn micros(text: &str) -> Timestamp {
    at(text.strip_prefix('@').unwrap().parse().unwrap())
}

async fn run(name: &str) {
    let mut script = Script::new().await;
    let text = String::from_utf8(golden::read(name)).unwrap();
    let mut found = String::new();
    for block in text.trim_end().split("\n\n") {
        let commands = block.split("\n---").next().unwrap();
        let mut out = String::new();
        for line in commands.lines().filter(|line| !line.starts_with('#')) {
            script.command(line, &mut out).await;
        }
        let empty = if out.is_empty() { "(nothing)\n" } else { "" };
        write!(found, "{commands}\n---\n{out}{empty}\n").unwrap();
    }
    golden::check(name, &found);
}

#[tokio::test(start_paused = true)]
async fn flush_script() {
    run("flush.script").await;
}

#[tokio::test(start_paused = true)]
async fn compaction_script() {
    run("compaction.script").await;
}

#[tokio::test(start_paused = true)]
async fn tombstones_script() {
    run("tombstones.script").await;
}

#[tokio::test(start_paused = true)]
async fn retention_script() {
    run("retention.script").await;
}

#[tokio::test(start_paused = true)]
async fn aggregates_script() {
    run("aggregates.script").await;
}

#[tokio::test(start_paused = true)]
async fn levels_script() {
    run("levels.script").await;
}

#[tokio::test(start_paused = true)]
async fn ranges_script() {
    run("ranges.script").await;
}

#[tokio::test(start_paused = true)]
async fn recovery_script() {
    run("recovery.script").await;
}

#[tokio::test(start_paused = true)]
async fn groups_script() {
    run("groups.script").await;
}
