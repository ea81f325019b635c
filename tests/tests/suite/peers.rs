//! What went wrong in other stores, and does not here. Above each test is the report that it is of.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use bytes::Bytes;
use env::Env;
use lsm::NoListener;
use storage::memory::{Crash, MemoryFileSystem};
use tepui_tests::cluster::{Cluster, ClusterOptions};
use tepui_tests::history::plan::{FAMILIES, TABLES};
use tepui_tests::history::table::{mutation, new_table, table_name};
use tepui_tests::model::Change;
use tepui_tests::rows;
use types::{RowMutations, RowSet};

/// Rows of the first and the second table: very uneven.
const ROWS: [u32; 2] = [3_000, 160];

async fn open(disk: &MemoryFileSystem, seed: u64) -> Cluster {
    let options = ClusterOptions::tiny(Arc::new(NoListener));
    Cluster::open(Arc::new(disk.clone()), Env::simulated(seed), options).await.unwrap()
}

async fn write(cluster: &Cluster, table: &str, numbers: std::ops::Range<u32>) {
    let name = table_name(table);
    let layout = cluster.router.layout(&name).await.unwrap();
    let row = |number: u32| {
        let change = Change::Set {
            family: FAMILIES[0].to_owned(),
            qualifier: Bytes::from_static(b"q"),
            timestamp: 1_000,
            value: Bytes::from(number.to_string()),
        };
        let mutations = vec![mutation(&change, &layout.schema).unwrap()];
        RowMutations { row: Bytes::from(format!("row {number:05}")), mutations }
    };
    let rows = numbers.map(row).collect();
    for written in cluster.router.write_rows(&name, layout.clone(), rows, None).await {
        written.unwrap();
    }
}

async fn counts(cluster: &Cluster) -> [u32; 2] {
    let mut found = [0, 0];
    for (table, count) in TABLES.iter().zip(&mut found) {
        let rows = rows::read(&cluster.router, &table_name(table), RowSet::all()).await.unwrap();
        for (number, (row, cells)) in rows.iter().enumerate() {
            assert_eq!(*row, format!("row {number:05}"));
            let value = cells.values().next().unwrap();
            assert_eq!(*value, number.to_string());
            *count += 1;
        }
    }
    found
}

/// fjall-rs/fjall#112: of two partitions that were written unevenly, rows were missing after the
/// next open.
#[tokio::test(start_paused = true)]
async fn two_tables_written_unevenly_are_whole_after_a_stop_and_after_a_kill() {
    let disk = MemoryFileSystem::new();
    let cluster = open(&disk, 1).await;
    for table in &TABLES[..2] {
        cluster.admin.create_table(new_table(table)).await.unwrap();
    }
    for part in 0..10 {
        for (table, rows) in TABLES.iter().zip(ROWS) {
            let part_rows = rows / 20;
            write(&cluster, table, part * part_rows..(part + 1) * part_rows).await;
        }
    }
    assert_eq!(counts(&cluster).await, ROWS.map(|rows| rows / 2));
    cluster.close().await.unwrap();
    drop(cluster);

    let cluster = open(&disk, 2).await;
    assert_eq!(counts(&cluster).await, ROWS.map(|rows| rows / 2), "after a stop");
    for (table, rows) in TABLES.iter().zip(ROWS) {
        for first in (rows / 2..rows).step_by(75) {
            write(&cluster, table, first..rows.min(first + 75)).await;
        }
    }
    cluster.server.abandon().await;
    let cluster = open(&disk.crash(Crash::PowerCut { seed: 7 }), 3).await;
    assert_eq!(counts(&cluster).await, ROWS, "after a kill");
    cluster.close().await.unwrap();
}
