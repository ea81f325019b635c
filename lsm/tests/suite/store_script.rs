//! Golden scripts: commands, then `---`, then what they print. A block ends with an empty line.
//!
//! ```text
//! put ROW QUALIFIER=VALUE [@MICROS]      delete ROW QUALIFIER     delete-family ROW
//! delete-row ROW                         freeze | flush           compact | compact all
//! reopen                                 scan                     files
//! ```

use std::fmt::Write;
use std::sync::Arc;

use storage::FileSystem;
use storage::memory::MemoryFileSystem;
use tepui_lsm::{MergeStep, Reason, Store};
use types::{CellKey, Mutation, RowRange};

use super::bed::{FAMILY, config, delete_cells, on_row, set, visible, write};
use super::golden;

struct Script {
    files: Arc<dyn FileSystem>,
    store: Arc<Store>,
    epoch: u64,
}

impl Script {
    async fn command(&mut self, line: &str, out: &mut String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["put", row, cell] => self.put(row, cell, "@1"),
            ["put", row, cell, at] => self.put(row, cell, at),
            ["delete", row, qualifier] => self.write(row, delete_cells(qualifier)),
            ["delete-family", row] => self.write(row, Mutation::DeleteFamily { family: FAMILY }),
            ["delete-row", row] => self.write(row, Mutation::DeleteRow),
            ["freeze"] => writeln!(out, "frozen: {}", self.store.freeze(Reason::Asked)).unwrap(),
            ["flush"] => {
                self.store.freeze(Reason::Asked);
                let flushed = self.store.flush().await.unwrap();
                let text = flushed.map_or("nothing".to_owned(), |done| {
                    format!("{} files up to {}", done.files, done.flushed)
                });
                writeln!(out, "flushed {text}").unwrap();
            }
            ["compact"] => {
                let merged = self.store.compact_once().await.unwrap();
                writeln!(out, "merged: {merged}").unwrap();
            }
            ["compact", "all"] => {
                let merged = self.store.compact_all().await.unwrap();
                writeln!(out, "merged: {merged}").unwrap();
            }
            ["reopen"] => {
                self.store.close().await;
                self.epoch += 1;
                let config = config(Arc::clone(&self.files), self.epoch);
                self.store = Store::open(config).await.unwrap();
                writeln!(out, "next {}", self.store.next_seq()).unwrap();
            }
            ["scan"] => self.print_visible(out).await,
            ["files"] => self.print_files(out).await,
            _ => panic!("unknown command {line:?}"),
        }
    }

    fn put(&self, row: &str, cell: &str, micros: &str) {
        let (qualifier, value) = cell.split_once('=').unwrap();
        let micros = micros.strip_prefix('@').unwrap().parse().unwrap();
        self.write(row, set(qualifier, micros, value.as_bytes()));
    }

    fn write(&self, row: &str, mutation: Mutation) {
        write(&self.store, &[on_row(row, vec![mutation])]).unwrap();
    }

    async fn print_visible(&self, out: &mut String) {
        for (row, family, qualifier, micros, value) in visible(&self.store).await.unwrap() {
            let value = String::from_utf8(value).unwrap();
            writeln!(out, "{row} f{family}:{qualifier} @{micros} = {value}").unwrap();
        }
    }

    /// The files by level, then everything stored, in key order.
    async fn print_files(&self, out: &mut String) {
        let version = self.store.version();
        for table in version.tables() {
            let cells = table.meta.properties.cells;
            writeln!(out, "L{} {} cells", table.level, cells).unwrap();
        }
        let view = self.store.view().unwrap();
        let mut merge = view.merge(&RowRange::all(), false);
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

async fn run(name: &str) {
    let files: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let store = Store::create(config(Arc::clone(&files), 1)).await.unwrap();
    let mut script = Script { files, store, epoch: 1 };
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
