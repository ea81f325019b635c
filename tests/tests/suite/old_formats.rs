//! Data folders that earlier formats left behind open for ever, with every cell that they held.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "a fixture is copied outside the file system seam")]

use std::cmp::Reverse;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use env::Env;
use storage::FileSystem;
use storage::local::{LocalFileSystem, LocalOptions};
use tepui_tests::cluster::{Cluster, ClusterOptions};
use tepui_tests::history::table::mutation;
use tepui_tests::model::Change;
use tepui_tests::rows::{self, Rows};
use tepui_tests::tree;
use types::{RowMutations, RowSet, TableName};

/// The tables in each folder, with a family of theirs.
const TABLES: [(&str, &str); 2] = [("fixture", "f"), ("plain", "only")];
/// What the log in `killed` must hold, else it would not be read.
const KILLED_LOG_BYTES_MIN: u64 = 1 << 20;

fn name(table: &str) -> TableName {
    TableName { instance: "projects/tepui/instances/dev".to_owned(), table: table.to_owned() }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::write(&target, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

fn folder_bytes(folder: &Path) -> u64 {
    let of = |entry: fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => folder_bytes(&entry.path()),
        false => entry.metadata().unwrap().len(),
    };
    fs::read_dir(folder).map_or(0, |entries| entries.map(|entry| of(entry.unwrap())).sum())
}

fn unhex(digits: &str) -> Bytes {
    let digits = if digits == "-" { "" } else { digits };
    assert!(digits.len().is_multiple_of(2));
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// What a table held, as a client of the release that wrote it read it.
fn expected(fixtures: &Path, folder: &str, table: &str) -> Rows {
    let text = fs::read_to_string(fixtures.join(format!("{folder}-{table}.txt"))).unwrap();
    let mut rows = Rows::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [row, family, qualifier, micros, value] = words[..] else {
            panic!("a line has five words: {line}");
        };
        let place = (family.to_owned(), unhex(qualifier), Reverse(micros.parse().unwrap()));
        let earlier = rows.entry(unhex(row)).or_default().insert(place, unhex(value));
        assert_eq!(earlier, None, "{line}");
    }
    assert!(rows.len() > 10, "{folder} {table} has something to lose");
    rows
}

async fn read(cluster: &Cluster, table: &str) -> Rows {
    rows::read(&cluster.router, &name(table), RowSet::all()).await.unwrap()
}

async fn write(cluster: &Cluster, table: &str, rows: &[(Bytes, Change)], known: &mut Rows) {
    let layout = cluster.router.layout(&name(table)).await.unwrap();
    let wire = |(row, change): &(Bytes, Change)| RowMutations {
        row: row.clone(),
        mutations: vec![mutation(change, &layout.schema).unwrap()],
    };
    let sent = rows.iter().map(wire).collect();
    for written in cluster.router.write_rows(&name(table), layout.clone(), sent, None).await {
        written.unwrap();
    }
    for (row, change) in rows {
        let cells = known.entry(row.clone()).or_default();
        change.apply(cells);
        if cells.is_empty() {
            known.remove(row);
        }
    }
}

/// A cell more in every row, a new row, and the first row gone.
fn more(known: &Rows, family: &str) -> Vec<(Bytes, Change)> {
    let set = |row: &Bytes| {
        let change = Change::Set {
            family: family.to_owned(),
            qualifier: Bytes::from_static(b"later"),
            timestamp: 11_000,
            value: Bytes::from_static(b"written by a later release"),
        };
        (row.clone(), change)
    };
    let first = known.keys().next().unwrap().clone();
    let mut rows: Vec<_> = known.keys().filter(|row| **row != first).map(set).collect();
    rows.push(set(&Bytes::from_static(b"zz new row")));
    rows.push((first, Change::DeleteRow));
    rows
}

/// Opens a copy of the folder, compares every cell, writes, and opens it twice more: once from what
/// a stop left, once from what a kill left.
async fn opens_for_ever(folder: &str) {
    let fixtures = tree::root().join("tests/fixtures/v1");
    let place = tempfile::tempdir().unwrap();
    copy(&fixtures.join(folder), place.path());
    if folder == "killed" {
        let log_bytes = folder_bytes(&place.path().join("wal"));
        assert!(log_bytes >= KILLED_LOG_BYTES_MIN, "{log_bytes} bytes of log");
    }
    let env = Env::system();
    let files = LocalFileSystem::open(place.path(), env.clone(), LocalOptions::default()).unwrap();
    let files: Arc<dyn FileSystem> = Arc::new(files);
    let open = || Cluster::open(Arc::clone(&files), env.clone(), ClusterOptions::default());
    let mut known = TABLES.map(|(table, _)| expected(&fixtures, folder, table));
    for life in 0..3 {
        let cluster = open().await.unwrap();
        for ((table, family), known) in TABLES.iter().zip(&mut known) {
            let found = read(&cluster, table).await;
            assert!(found == *known, "{folder}, life {life}: {table} is not what it was");
            write(&cluster, table, &more(known, family), known).await;
            cluster.server.flush_all().await.unwrap();
            let found = read(&cluster, table).await;
            assert!(found == *known, "{folder}, life {life}: {table} after a flush");
            write(&cluster, table, &more(known, family), known).await;
        }
        if life == 0 { cluster.close().await.unwrap() } else { cluster.server.abandon().await }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_folder_of_format_1_opens_for_ever() {
    opens_for_ever("stopped").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_folder_of_format_1_is_taken_up_and_opens_for_ever() {
    opens_for_ever("killed").await;
}
