//! Ranges divided in the catalog, and operations on all ranges of a table.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use client::{AdminService, Assignments, Division, Locator, TableLayout};
use env::Env;
use storage::memory::{Crash, MemoryFileSystem};
use types::{Epoch, ErrorKind, RangeId, RowRange, SessionId, TableId};

use super::cluster::{Cluster, Kept, name, new_table, run};

fn rows(start: &str, end: &str) -> RowRange {
    let end = (!end.is_empty()).then(|| Bytes::copy_from_slice(end.as_bytes()));
    RowRange { start: Bytes::copy_from_slice(start.as_bytes()), end }
}

/// Takes ids for a division of `range`, which has `of`, at `at`.
async fn division(
    cluster: &Cluster,
    table: TableId,
    range: RangeId,
    of: &RowRange,
    at: &str,
) -> Division {
    let granted = cluster.master.assign(&[range], cluster.session).await.unwrap();
    let first = cluster.master.take_range_ids(2).await.unwrap();
    let at = Bytes::copy_from_slice(at.as_bytes());
    let left = RowRange { start: of.start.clone(), end: Some(at.clone()) };
    let right = RowRange { start: at, end: of.end.clone() };
    Division {
        table,
        range,
        epoch: granted[0].epoch,
        session: cluster.session,
        children: [(first, left), (RangeId::new(first.get() + 1), right)],
    }
}

fn assert_tiles(layout: &TableLayout) {
    let ranges = &layout.ranges;
    assert!(ranges[0].rows.start.is_empty() && ranges[ranges.len() - 1].rows.end.is_none());
    for pair in ranges.windows(2) {
        assert_eq!(pair[0].rows.end.as_ref(), Some(&pair[1].rows.start));
    }
}

/// yugabyte/yugabyte-db#8148: a master died in the middle of a split, and the next attempt chose
/// another row.
#[test]
fn two_ranges_take_the_place_of_one_in_one_step_or_not_at_all() {
    run(async {
        let disk = MemoryFileSystem::new();
        let cluster = Cluster::start(&disk, 1).await.unwrap();
        let schema = cluster.master.create_table(new_table("t", &["f"], &["m"])).await.unwrap();
        let good = division(&cluster, schema.id, RangeId::new(1), &rows("", "m"), "d").await;
        let mut wrong = vec![good.clone(); 6];
        wrong[0].epoch = Epoch::new(7);
        wrong[1].session = SessionId::new(99);
        wrong[2].table = TableId::new(9);
        wrong[3].children[0].1.end = Some(Bytes::from_static(b"c"));
        wrong[4].children[1].1.end = None;
        wrong[5].range = RangeId::new(77);
        for division in wrong {
            assert!(!cluster.master.divide(&division).await.unwrap(), "{division:?}");
        }
        assert!(cluster.master.divide(&good).await.unwrap());
        assert!(!cluster.master.divide(&good).await.unwrap(), "it is gone");
        let cluster = Cluster::start(&disk.crash(Crash::PowerCut { seed: 1 }), 2).await.unwrap();
        let layout = cluster.master.locate(&name("t")).await.unwrap();
        assert_tiles(&layout);
        let ids: Vec<u64> = layout.ranges.iter().map(|range| range.range.get()).collect();
        assert_eq!(ids, [3, 4, 2]);
        let asked = [RangeId::new(1), RangeId::new(3)];
        let granted = cluster.master.assign(&asked, cluster.session).await.unwrap();
        assert_eq!((granted.len(), granted[0].epoch.get()), (1, good.epoch.get() + 1));
        assert_eq!(cluster.master.take_range_ids(1).await.unwrap(), RangeId::new(5));
        let created = cluster.master.create_table(new_table("u", &["f"], &[])).await.unwrap();
        let others = cluster.master.ranges().await.unwrap();
        assert!(others.contains(&(RangeId::new(6), created.id)), "{others:?}");
    });
}

#[test]
fn a_table_that_is_going_is_not_divided() {
    run(async {
        let cluster = Cluster::start(&MemoryFileSystem::new(), 1).await.unwrap();
        let schema = cluster.master.create_table(new_table("t", &["f"], &[])).await.unwrap();
        let all = RowRange::all();
        let division = division(&cluster, schema.id, RangeId::new(1), &all, "d").await;
        *cluster.server.fails.lock().unwrap() = true;
        cluster.master.delete_table(&name("t")).await.unwrap_err();
        assert!(!cluster.master.divide(&division).await.unwrap());
    });
}

/// apache/accumulo#1260: whoever read locations while tablets were split found a broken chain.
#[test]
fn locations_tile_the_table_while_it_is_divided_many_times() {
    run(async {
        let cluster = Arc::new(Cluster::start(&MemoryFileSystem::new(), 1).await.unwrap());
        let schema = cluster.master.create_table(new_table("t", &["f"], &[])).await.unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let dividing = Env::simulated(7).spawn("divide", {
            let (cluster, is_over) = (Arc::clone(&cluster), Arc::clone(&is_over));
            async move {
                let (mut range, mut left) = (RangeId::new(1), RowRange::all());
                for number in 0..1_500 {
                    let at = format!("{number:05}");
                    let division = division(&cluster, schema.id, range, &left, &at).await;
                    assert!(cluster.master.divide(&division).await.unwrap());
                    let [_, right] = division.children;
                    (range, left) = right;
                }
                is_over.store(true, Ordering::SeqCst);
            }
        });
        let mut sizes = BTreeSet::new();
        while !is_over.load(Ordering::SeqCst) {
            let layout = cluster.master.locate(&name("t")).await.unwrap();
            assert_tiles(&layout);
            sizes.insert(layout.ranges.len());
            tokio::task::yield_now().await;
        }
        dividing.join().await.unwrap();
        assert_eq!(cluster.master.locate(&name("t")).await.unwrap().ranges.len(), 1_501);
        assert!(sizes.len() > 20, "only {} looks", sizes.len());
    });
}

#[test]
fn operations_on_a_table_ask_every_range_and_go_after_those_that_move() {
    run(async {
        let cluster = Cluster::start(&MemoryFileSystem::new(), 1).await.unwrap();
        let (master, t) = (&cluster.master, name("t"));
        master.create_table(new_table("t", &["f"], &["d", "m"])).await.unwrap();
        let id = RangeId::new;
        *cluster.server.moving.lock().unwrap() = 3;
        let dropped = rows("e", "z");
        master.drop_rows(&t, &dropped).await.unwrap();
        master.drop_rows(&t, &rows("a", "d")).await.unwrap();
        let row = |row: &'static str| Bytes::from_static(row.as_bytes());
        assert_eq!(master.split_table(&t, vec![row("d"), row("x")]).await.unwrap(), ["x"]);
        assert_eq!(master.split_table(&t, Vec::new()).await.unwrap(), [""; 0]);
        master.flush_table(&t).await.unwrap();
        let merged = master.compact_at(&t, &row("e")).await.unwrap();
        assert_eq!((merged.range, merged.rows), (id(2), rows("d", "m")));
        let asked = std::mem::take(&mut *cluster.server.kept.lock().unwrap());
        let expected = [
            Kept::Dropped(id(2), dropped.clone()),
            Kept::Dropped(id(3), dropped),
            Kept::Dropped(id(1), rows("a", "d")),
            Kept::Split(id(3), Some(row("x"))),
            Kept::Split(id(1), None),
            Kept::Split(id(2), None),
            Kept::Split(id(3), None),
            Kept::Flushed(id(1)),
            Kept::Flushed(id(2)),
            Kept::Flushed(id(3)),
            Kept::Merged(id(2)),
        ];
        assert_eq!(asked, expected);
        let listed = master.list_ranges(&t).await.unwrap();
        let sizes: Vec<u64> = listed.iter().map(|range| range.status.bytes).collect();
        assert_eq!(sizes, [10, 20, 30]);
        *cluster.server.moving.lock().unwrap() = u32::MAX;
        let error = master.flush_table(&t).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongRange, "not for ever");
        let absent = name("absent");
        assert_eq!(master.list_ranges(&absent).await.unwrap_err().kind(), ErrorKind::NotFound);
        let dropped = master.drop_rows(&absent, &RowRange::all()).await;
        assert_eq!(dropped.unwrap_err().kind(), ErrorKind::NotFound);
        let bad = vec![Bytes::new()];
        let error = master.split_table(&t, bad).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    });
}
