//! Rows of very many cells: what is asked for is sought, not walked to.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use storage::memory::MemoryFileSystem;
use tepui_lsm::{Scan, ScanCounts, Store, StoreConfig, StoreOptions};
use types::{Mutation, RowRange};

use super::bed::*;

/// Mutations of one request at most.
const MUTATIONS: u64 = 100_000;

async fn new_store() -> Arc<Store> {
    let options = StoreOptions::default();
    let config = StoreConfig { options, ..config(Arc::new(MemoryFileSystem::new()), 1) };
    let store = Store::create(config).await.unwrap();
    store.set_rules(&rules());
    store
}

fn qualifier(number: u64) -> String {
    format!("column{number:08}")
}

/// One row with a million columns, their cells in four files and in memory.
async fn million_cells() -> Arc<Store> {
    let store = new_store().await;
    let mut numbers: Vec<u64> = (0..10 * MUTATIONS).collect();
    numbers.shuffle(&mut StdRng::seed_from_u64(1));
    for (part, numbers) in numbers.chunks(MUTATIONS as usize).enumerate() {
        let sets = numbers.iter().map(|number| set(&qualifier(*number), 1000, b"v")).collect();
        write(&store, &[on_row("wide", sets)]).unwrap();
        if part % 2 == 1 && part < 9 {
            flush(&store).await.unwrap();
        }
    }
    put(&store, "before", "q", 1, b"v");
    put(&store, "z", "q", 1, b"v");
    store
}

fn scan(store: &Arc<Store>) -> Scan {
    store.view().unwrap().scan(&RowRange::all(), &rules(), false)
}

/// The qualifiers of the next cells of the row, at most so many.
async fn columns(scan: &mut Scan, most: usize) -> Vec<String> {
    let mut found = Vec::new();
    while found.len() < most && scan.next().await.unwrap() {
        let mut qualifier = Vec::new();
        scan.cell().qualifier_into(&mut qualifier);
        found.push(String::from_utf8(qualifier).unwrap());
    }
    found
}

/// Keys and blocks, whatever is asked for of the row: a few for each file.
fn assert_few(counts: ScanCounts, cells: u64) {
    assert!(counts.keys <= cells + 16, "{counts:?} for {cells} cells");
    assert!(counts.loads <= cells / 50 + 40, "{counts:?} for {cells} cells");
}

#[tokio::test]
async fn in_a_row_of_a_million_cells_columns_are_sought() {
    let store = million_cells().await;
    assert_eq!(store.version().tables().count(), 4);
    let mut random = StdRng::seed_from_u64(2);
    for _ in 0..20 {
        let first = random.random_range(0..10 * MUTATIONS - 100);
        let mut one = scan(&store);
        one.seek_column(b"wide", FAMILY, qualifier(first).as_bytes());
        assert_eq!(columns(&mut one, 1).await, [qualifier(first)]);
        assert_few(one.counts(), 1);
        let mut some = scan(&store);
        some.seek_column(b"wide", FAMILY, qualifier(first).as_bytes());
        let expected: Vec<String> = (first..first + 100).map(qualifier).collect();
        assert_eq!(columns(&mut some, 100).await, expected);
        assert_few(some.counts(), 100);
    }
    // The row is left without a walk through the rest of it.
    let mut rows = scan(&store);
    assert!(rows.next().await.unwrap());
    assert_eq!(columns(&mut rows, 2).await, [qualifier(0), qualifier(1)]);
    rows.skip_row();
    assert_eq!(columns(&mut rows, 2).await, ["q"]);
    assert_few(rows.counts(), 4);
    let mut back = scan(&store).descending();
    assert!(back.next().await.unwrap());
    assert_eq!(columns(&mut back, 2).await, [qualifier(0), qualifier(1)]);
    back.skip_row();
    assert_eq!(columns(&mut back, 2).await, ["q"]);
    assert_few(back.counts(), 4);
}

/// The files hold nothing younger than the delete: they are left as a whole.
#[tokio::test]
async fn a_deleted_row_of_a_million_cells_costs_a_seek() {
    let store = million_cells().await;
    flush(&store).await.unwrap();
    write(&store, &[on_row("wide", vec![Mutation::DeleteRow])]).unwrap();
    put(&store, "wide", &qualifier(777_777), 5, b"new");
    let mut rows = scan(&store);
    let expected = ["q".to_owned(), qualifier(777_777), "q".to_owned()];
    assert_eq!(columns(&mut rows, 9).await, expected);
    assert!(rows.counts().keys < 200, "{:?}", rows.counts());
    assert!(rows.counts().seeks > 0, "{:?}", rows.counts());
}

/// Every column has many versions, of which the newest are asked for.
#[tokio::test]
async fn the_newest_versions_of_each_column_are_sought() {
    let store = new_store().await;
    let versions = MUTATIONS as i64 / 10;
    for column in 0..10 {
        let sets = (0..versions).map(|version| set(&qualifier(column), version, b"v"));
        write(&store, &[on_row("r", sets.collect())]).unwrap();
        if column % 3 == 2 {
            flush(&store).await.unwrap();
        }
    }
    let mut newest = scan(&store);
    for column in 0..10 {
        for version in [versions - 1, versions - 2] {
            assert!(newest.next().await.unwrap());
            let cell = newest.cell();
            assert_eq!(cell.timestamp, at(version));
            assert!(
                cell.column_prefix.windows(14).any(|part| part == qualifier(column).as_bytes())
            );
        }
        newest.skip_column();
    }
    assert!(!newest.next().await.unwrap());
    assert_few(newest.counts(), 20);
}

/// Google's emulator takes minutes for each of these.
#[tokio::test]
async fn a_hundred_thousand_mutations_of_one_row_are_no_matter() {
    let store = new_store().await;
    let same = |_| set("same", 1000, b"v");
    let count = MUTATIONS / 2;
    let requests: [Vec<Mutation>; 4] = [
        (0..MUTATIONS).map(same).collect(),
        (0..MUTATIONS).map(|number| set(&qualifier(number), 1000, b"v")).collect(),
        (0..count)
            .flat_map(|number| [set("gone", number as i64, b"v"), delete_cells("gone")])
            .collect(),
        (0..count)
            .map(|_| delete_cells("times"))
            .chain((0..count as i64).map(|micros| delete_time("times", 2 * micros)))
            .collect(),
    ];
    for request in requests {
        write(&store, &[on_row("r", request)]).unwrap();
    }
    put(&store, "r", "times", 7, b"late");
    for turn in 0..2 {
        let mut row = scan(&store);
        let mut cells = 0;
        while row.next().await.unwrap() {
            cells += 1;
        }
        assert_eq!(cells, MUTATIONS + 2, "turn {turn}");
        let counts = row.counts();
        assert!(counts.keys <= 3 * MUTATIONS + 1000, "{counts:?}");
        // One by one, each a request of its own.
        for number in 0..MUTATIONS / 10 {
            put(&store, "r", "same", 1000, format!("{number}").as_bytes());
        }
        flush(&store).await.unwrap();
    }
    while store.compact_once().await.unwrap() {}
    store.compact_all().await.unwrap();
    let mut row = scan(&store);
    let all = columns(&mut row, usize::MAX).await;
    assert_eq!(all.len() as u64, MUTATIONS + 2);
    assert_few(row.counts(), MUTATIONS + 2);
}
