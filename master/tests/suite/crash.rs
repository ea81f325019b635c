//! A history of table operations, crashed after every operation of the disk: what was answered
//! holds, what was not happened whole or not at all, and nothing is left over.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use client::{AdminService, Assignments, FamilyChange, Locator, NewTable};
use coordination::Coordinator;
use storage::memory::{Crash, MemoryFileSystem};
use types::{TableId, TableSchema};

use super::cluster::{Cluster, INSTANCE, create, name, new_table, run};

/// One table as it should be: its families, and how many ranges it has.
type Model = BTreeMap<String, (Vec<String>, usize)>;

#[derive(Clone)]
enum Step {
    Create(NewTable),
    Modify(&'static str, Vec<FamilyChange>),
    Delete(&'static str),
}

fn wide_table(name: &str, ranges: usize) -> NewTable {
    let mut table = new_table(name, &["f"], &[]);
    table.splits = (1..ranges).map(|n| Bytes::from(format!("{n:04}"))).collect();
    table
}

fn steps() -> Vec<Step> {
    vec![
        Step::Create(new_table("a", &["f", "g"], &["m"])),
        Step::Create(wide_table("wide", 250)),
        Step::Modify("a", vec![FamilyChange::Drop("f".to_owned()), create("f"), create("h")]),
        Step::Delete("wide"),
        Step::Create(wide_table("wide", 120)),
        Step::Modify("wide", vec![create("new")]),
        Step::Delete("a"),
    ]
}

fn apply(model: &Model, step: &Step) -> Model {
    let mut model = model.clone();
    match step {
        Step::Create(table) => {
            let families = table.families.iter().map(|family| family.name.clone()).collect();
            model.insert(table.name.table.clone(), (families, table.splits.len() + 1));
        }
        Step::Modify(table, changes) => {
            let (families, _) = model.get_mut(*table).unwrap();
            for change in changes {
                match change {
                    FamilyChange::Create(family) => families.push(family.name.clone()),
                    FamilyChange::Drop(dropped) => families.retain(|name| name != dropped),
                    FamilyChange::SetRetention(_) => {}
                }
            }
        }
        Step::Delete(table) => drop(model.remove(*table)),
    }
    model
}

async fn perform(cluster: &Cluster, step: Step) -> client::Result<()> {
    match step {
        Step::Create(table) => cluster.master.create_table(table).await.map(drop),
        Step::Modify(table, changes) => {
            cluster.master.modify_families(&name(table), changes).await.map(drop)
        }
        Step::Delete(table) => cluster.master.delete_table(&name(table)).await,
    }
}

/// What the master says there is; and that the records are exactly those of its tables.
async fn found(cluster: &Cluster) -> (Model, BTreeSet<TableId>) {
    let page = cluster.master.list_tables(INSTANCE, "", 100).await.unwrap();
    let mut model = Model::new();
    let mut ids = BTreeSet::new();
    for schema in page.tables {
        let TableSchema { id, name, families, .. } = &*schema;
        let layout = cluster.master.locate(name).await.unwrap();
        let families = families.iter().map(|family| family.name.clone()).collect();
        model.insert(name.table.clone(), (families, layout.ranges.len()));
        assert!(ids.insert(*id));
    }
    let count = async |prefix| {
        let page = cluster.coordinator.list(prefix, "", 2000).await.unwrap();
        page.entries.len()
    };
    assert_eq!(count("/tables/").await, model.len(), "no descriptor is left over");
    let ranges: usize = model.values().map(|(_, ranges)| ranges).sum();
    assert_eq!(count("/ranges/").await, ranges, "no range is left over");
    assert_eq!(cluster.master.ranges().await.unwrap().len(), ranges);
    (model, ids)
}

/// Runs the history until the disk stops; returns how many operations it took.
async fn crash_after(operation: Option<u64>) -> u64 {
    let disk = MemoryFileSystem::new();
    let cluster = Cluster::start(&disk, 1).await.unwrap();
    let start = disk.operations();
    if let Some(operation) = operation {
        disk.crash_after(start + operation);
    }
    let mut model = Model::new();
    let mut perhaps = None;
    for step in steps() {
        let next = apply(&model, &step);
        if perform(&cluster, step).await.is_err() {
            perhaps = Some(next);
            break;
        }
        model = next;
    }
    let operations = disk.operations() - start;
    let seed = operation.unwrap_or(0);
    let crash = if seed.is_multiple_of(3) { Crash::Process } else { Crash::PowerCut { seed } };
    let disk = disk.crash(crash);
    let cluster = Cluster::start(&disk, 2).await.unwrap();
    let context = format!("after operation {operation:?}");
    let (after, ids) = found(&cluster).await;
    assert!(after == model || Some(&after) == perhaps.as_ref(), "{context}: {after:?}");
    // Whatever happened, the name can be had, under an id that was never used.
    if after.contains_key("wide") {
        cluster.master.delete_table(&name("wide")).await.unwrap();
    }
    let again = cluster.master.create_table(wide_table("wide", 3)).await.unwrap();
    assert!(ids.iter().all(|id| *id < again.id), "{context}");
    let (last, _) = found(&cluster).await;
    assert_eq!(last["wide"].1, 3, "{context}");
    operations
}

#[test]
fn a_crash_at_any_operation_leaves_whole_tables_only() {
    run(async {
        let operations = crash_after(None).await;
        assert!(operations > 40, "{operations}");
        for operation in 0..=operations {
            crash_after(Some(operation)).await;
        }
        println!("{operations} crash points");
    });
}
