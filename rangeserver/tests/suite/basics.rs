//! Writes, reads, schema changes, and a clean stop.

use bytes::Bytes;
use client::{RangeService, SchemaObserver, WriteRequest};
use storage::Path;
use storage::memory::MemoryFileSystem;
use types::{Epoch, ErrorKind, Generation, Mutation, RowRange, TimestampRange};

use super::world::*;

fn cell(family: &str, qualifier: &str, micros: i64, value: &str) -> Cell {
    (family.to_owned(), qualifier.to_owned(), micros, value.as_bytes().to_vec())
}

#[tokio::test(start_paused = true)]
async fn what_is_written_is_read_back_now_and_after_a_clean_stop() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&["m"]));
    let world = started(&disk, &catalog, 1).await;
    let mutations = vec![
        set(G, "", 2000, b"empty qualifier"),
        set(F, "q", 1000, b"old"),
        set(F, "q", 3000, b"new"),
        set(F, "p", 0, b""),
    ];
    world.write(vec![mutate("a", mutations)]).await.unwrap();
    world.write(vec![mutate("z", vec![set(F, "q", 1000, b"far")])]).await.unwrap();
    let expected = Rows::from([
        (
            "a".to_owned(),
            vec![
                cell("f", "p", 0, ""),
                cell("f", "q", 3000, "new"),
                cell("f", "q", 1000, "old"),
                cell("g", "", 2000, "empty qualifier"),
            ],
        ),
        ("z".to_owned(), vec![cell("f", "q", 1000, "far")]),
    ]);
    assert_eq!(world.read_all().await.unwrap(), expected);
    world.server.close().await.unwrap();
    let logs = disk.paths().into_iter().filter(|path| path.as_str().starts_with("wal/"));
    assert_eq!(logs.collect::<Vec<Path>>(), []);

    let world = started(&disk, &catalog, 2).await;
    assert_eq!(world.server.recovery().logs, 0, "a clean stop leaves nothing to take up");
    assert_eq!(world.read_all().await.unwrap(), expected);
    world.server.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_mutations_of_a_request_apply_in_their_order() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
    let world = started(&disk, &catalog, 1).await;
    let delete = Mutation::DeleteCells {
        family: F,
        qualifier: Bytes::from_static(b"q"),
        range: TimestampRange::ALL,
    };
    let mutations = vec![
        set(F, "q", 1000, b"first"),
        delete,
        set(F, "q", 1000, b"second"),
        set(G, "x", 0, b"y"),
    ];
    world.write(vec![mutate("r", mutations)]).await.unwrap();
    assert_eq!(world.get("r").await.unwrap().unwrap(), b"second");
    world.write(vec![mutate("r", vec![Mutation::DeleteRow])]).await.unwrap();
    assert_eq!(world.get("r").await.unwrap(), None);
    world.put("r", b"again").await.unwrap();
    assert_eq!(world.get("r").await.unwrap().unwrap(), b"again", "a delete hides no later write");
    world.server.flush_all().await.unwrap();
    assert_eq!(world.get("r").await.unwrap().unwrap(), b"again");
    world.server.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_limit_counts_only_rows_that_have_a_cell() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
    let world = started(&disk, &catalog, 1).await;
    for number in 0..10 {
        world.put(&format!("r{number}"), b"v").await.unwrap();
    }
    for number in [0, 1, 3] {
        let gone = vec![mutate(&format!("r{number}"), vec![Mutation::DeleteRow])];
        world.write(gone).await.unwrap();
    }
    let rows = world.read(RowRange::all(), 3).await.unwrap();
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["r2", "r4", "r5"]);
    let some = RowRange::prefix(&Bytes::from_static(b"r3"));
    assert!(world.read(some, 1).await.unwrap().is_empty());
    world.server.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cells_without_a_timestamp_get_the_servers_which_never_goes_back() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
    let mut last = 0;
    for seed in 1..4 {
        let world = started(&disk, &catalog, seed).await;
        for _ in 0..3 {
            world.write(vec![mutate("r", vec![set(F, "q", -1, b"v")])]).await.unwrap();
            let at = world.read_all().await.unwrap()["r"][0].2;
            assert!(at >= last && at % 1000 == 0, "{at} after {last}");
            last = at;
            world.env.sleep(std::time::Duration::from_micros(700)).await;
        }
        world.server.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn requests_for_another_epoch_generation_or_row_are_sent_away() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&["m"]));
    let world = started(&disk, &catalog, 1).await;
    world.put("a", b"v").await.unwrap();
    let target = catalog.target(b"a").unwrap();
    let rows = vec![mutate("a", vec![set(F, "q", 1000, b"x")])];
    let elsewhere = vec![mutate("z", vec![set(F, "q", 1000, b"x")])];
    let mut old_epoch = target;
    old_epoch.epoch = Epoch::new(1);
    let mut generation = target;
    generation.generation = Generation::new(9);
    for (target, rows) in [(old_epoch, &rows), (generation, &rows), (target, &elsewhere)] {
        let request = WriteRequest { target, rows: rows.clone() };
        let refused = world.server.write(request).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WrongRange, "{refused}");
    }
    assert_eq!(world.read_all().await.unwrap().len(), 1);
    assert_eq!(world.get("a").await.unwrap().unwrap(), b"v");
    world.server.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_family_is_gone_when_the_change_returns() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
    let world = started(&disk, &catalog, 1).await;
    let mutations = vec![set(F, "q", 1000, b"stays"), set(G, "q", 1000, b"goes")];
    world.write(vec![mutate("r", mutations)]).await.unwrap();
    let before = catalog.target(b"r").unwrap();
    world.server.schema_changed(catalog.drop_family("g")).await.unwrap();
    assert_eq!(world.read_all().await.unwrap()["r"], [cell("f", "q", 1000, "stays")]);
    let rows = vec![mutate("r", vec![set(G, "q", 1000, b"late")])];
    let refused = world.server.write(WriteRequest { target: before, rows }).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongRange);
    world.server.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_table_takes_no_request_and_leaves_no_file() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&["m"]));
    let world = started(&disk, &catalog, 1).await;
    world.put("a", b"v").await.unwrap();
    world.server.flush_all().await.unwrap();
    world.put("b", b"v").await.unwrap();
    let target = catalog.target(b"a").unwrap();
    let ranges = catalog.drop_ranges();
    world.server.table_dropped(TABLE, &ranges).await.unwrap();
    let rows = vec![mutate("a", vec![set(F, "q", 1000, b"late")])];
    let refused = world.server.write(WriteRequest { target, rows }).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongRange);
    let files = disk.paths().into_iter().filter(|path| path.as_str().starts_with("tables/"));
    assert_eq!(files.collect::<Vec<Path>>(), []);
    assert_eq!(world.server.statistics().memtable_bytes, 0);
    world.server.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_long_scan_renews_its_view_between_rows_and_misses_none() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
    let options =
        tepui_rangeserver::Options { view_age_max: std::time::Duration::ZERO, ..small_options() };
    let files = std::sync::Arc::new(disk.clone());
    let world = start(files, &catalog, 1, options).await.unwrap();
    for number in 0..300 {
        world.put(&format!("r{number:03}"), &[7; 300]).await.unwrap();
    }
    assert_eq!(world.read_all().await.unwrap().len(), 300);
    world.server.close().await.unwrap();
}
