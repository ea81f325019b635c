//! Tables of many ranges, each of which opens at its first use.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use bytes::Bytes;
use client::NewTable;
use env::Env;
use lsm::NoListener;
use storage::memory::MemoryFileSystem;
use tepui_tests::cluster::{Cluster, ClusterOptions};
use tepui_tests::history::plan::TABLES;
use tepui_tests::history::table::{new_table, table_name};
use tepui_tests::rows;
use types::RowSet;

/// More than are asked at the same time, and more than there are tries.
const RANGES: u32 = 100;

/// A table whose ranges nobody has used since the start.
async fn unopened() -> Cluster {
    let disk = MemoryFileSystem::new();
    let options = || ClusterOptions::tiny(Arc::new(NoListener));
    let open = async |seed| {
        Cluster::open(Arc::new(disk.clone()), Env::simulated(seed), options()).await.unwrap()
    };
    let cluster = open(1).await;
    let splits = (1..RANGES).map(|number| Bytes::from(format!("{number:03}"))).collect();
    let table = NewTable { splits, ..new_table(TABLES[0]) };
    cluster.admin.create_table(table).await.unwrap();
    cluster.close().await.unwrap();
    drop(cluster);
    open(2).await
}

#[tokio::test(start_paused = true)]
async fn one_read_opens_every_range_of_a_table_without_rows() {
    let cluster = unopened().await;
    let read = rows::read(&cluster.router, &table_name(TABLES[0]), RowSet::all()).await;
    assert!(read.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_sampling_opens_every_range_of_a_table() {
    let cluster = unopened().await;
    let samples = cluster.router.samples(&table_name(TABLES[0])).await.unwrap();
    assert_eq!(samples.len(), usize::try_from(RANGES).unwrap());
}
