//! Operations on tables without accidents.

use bytes::Bytes;
use client::{AdminService, FamilyChange, Locator, NewGroup};
use coordination::Coordinator;
use storage::memory::{Crash, MemoryFileSystem};
use types::{
    ErrorKind, FamilyId, Generation, Granularity, GroupSettings, LocalityGroup, Retention,
    TableSchema,
};

use super::cluster::{Cluster, INSTANCE, Told, create, family, name, new_table, run};

#[test]
fn a_created_table_is_found_with_its_ranges_also_after_a_restart() {
    run(async {
        let disk = MemoryFileSystem::new();
        let cluster = Cluster::start(&disk, 1).await.unwrap();
        let mut table = new_table("t", &["b", "a"], &["m", "d", "m"]);
        table.families[0].retention =
            Some(Retention::Union(vec![Retention::MaxVersions(3), Retention::MaxAge(5)]));
        table.granularity = Granularity::Micros;
        let created = cluster.master.create_table(table.clone()).await.unwrap();
        assert_eq!(created.generation, Generation::new(1));
        let families: Vec<_> = created.families.iter().map(|f| (f.id.get(), &*f.name)).collect();
        assert_eq!(families, [(1, "b"), (2, "a")], "in the order of the request");
        let error = cluster.master.create_table(table).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(error.message(), "Table already exists: projects/p/instances/i/tables/t");
        let layout = cluster.master.locate(&name("t")).await.unwrap();
        let starts: Vec<&[u8]> = layout.ranges.iter().map(|range| &range.rows.start[..]).collect();
        assert_eq!(starts, [&b""[..], b"d", b"m"]);
        let cluster = Cluster::start(&disk.crash(Crash::PowerCut { seed: 1 }), 2).await.unwrap();
        assert_eq!(cluster.master.get_table(&name("t")).await.unwrap(), created);
        let again = cluster.master.locate(&name("t")).await.unwrap();
        let ids = |layout: &client::TableLayout| {
            layout.ranges.iter().map(|range| (range.range, range.rows.clone())).collect::<Vec<_>>()
        };
        assert_eq!(ids(&again), ids(&layout));
    });
}

#[test]
fn what_is_malformed_is_refused_and_leaves_nothing() {
    run(async {
        let cluster = Cluster::start(&MemoryFileSystem::new(), 1).await.unwrap();
        let before = cluster.coordinator.revision();
        let many: Vec<String> = (0..101).map(|n| format!("f{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let mut long = new_table("t", &[], &[]);
        long.splits = vec![Bytes::from(vec![1; 4097])];
        let mut split = new_table("t", &[], &[]);
        split.splits = (0..1001_u32).map(|n| Bytes::from(n.to_be_bytes().to_vec())).collect();
        for bad in [
            new_table("bad id!", &[], &[]),
            new_table("t", &["f", "f"], &[]),
            new_table("t", &["a:b"], &[]),
            new_table("t", &many, &[]),
            new_table("t", &[], &[""]),
            long,
            split,
        ] {
            let error = cluster.master.create_table(bad).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        }
        assert_eq!(cluster.coordinator.revision(), before);
    });
}

#[test]
fn a_thousand_ranges_cover_all_rows() {
    run(async {
        let cluster = Cluster::start(&MemoryFileSystem::new(), 1).await.unwrap();
        let mut table = new_table("t", &["f"], &[]);
        table.splits = (1..=1000_u32).map(|n| Bytes::from(n.to_be_bytes().to_vec())).collect();
        cluster.master.create_table(table).await.unwrap();
        let layout = cluster.master.locate(&name("t")).await.unwrap();
        assert_eq!(layout.ranges.len(), 1001);
        assert_eq!(layout.ranges[1000].rows.end, None);
    });
}

#[test]
fn tables_are_listed_sorted_and_paged_by_instance() {
    run(async {
        let cluster = Cluster::start(&MemoryFileSystem::new(), 1).await.unwrap();
        for table in ["c", "a", "d", "b", "a-1"] {
            cluster.master.create_table(new_table(table, &[], &[])).await.unwrap();
        }
        let mut other = new_table("x", &[], &[]);
        other.name.instance = "projects/p/instances/i2".to_owned();
        cluster.master.create_table(other).await.unwrap();
        cluster.master.delete_table(&name("c")).await.unwrap();
        let mut pages: Vec<Vec<String>> = Vec::new();
        let mut after = String::new();
        loop {
            let page = cluster.master.list_tables(INSTANCE, &after, 2).await.unwrap();
            pages.push(page.tables.iter().map(|schema| schema.name.table.clone()).collect());
            match page.next {
                Some(next) => after = next,
                None => break,
            }
        }
        assert_eq!(pages, [vec!["a", "a-1"], vec!["b", "d"]]);
        let none = cluster.master.list_tables("projects/p/instances/none", "", 10).await.unwrap();
        assert!(none.tables.is_empty() && none.next.is_none());
    });
}

#[test]
fn family_changes_apply_in_order_and_all_or_none() {
    run(async {
        let cluster = Cluster::start(&MemoryFileSystem::new(), 1).await.unwrap();
        cluster.master.create_table(new_table("t", &["a", "b"], &[])).await.unwrap();
        let rule = Some(Retention::MaxVersions(1));
        let changes = vec![
            FamilyChange::Drop("a".to_owned()),
            create("a"),
            FamilyChange::SetRetention(family("b", rule.clone())),
            create("c"),
        ];
        let changed = cluster.master.modify_families(&name("t"), changes).await.unwrap();
        let families: Vec<_> = changed.families.iter().map(|f| (f.id.get(), &*f.name)).collect();
        assert_eq!(families, [(2, "b"), (3, "a"), (4, "c")], "a new family, a new id");
        assert_eq!(changed.family("b").unwrap().retention, rule);
        assert_eq!(changed.generation, Generation::new(2));
        assert_eq!(cluster.told(), [Told::Changed(changed.clone())], "before it returned");
        for (bad, kind) in [
            (create("a"), ErrorKind::AlreadyExists),
            (FamilyChange::Drop("x".to_owned()), ErrorKind::NotFound),
            (FamilyChange::SetRetention(family("x", None)), ErrorKind::NotFound),
            (create("a:b"), ErrorKind::InvalidArgument),
        ] {
            let changes = vec![create("new"), bad];
            let error = cluster.master.modify_families(&name("t"), changes).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
        }
        assert_eq!(cluster.master.get_table(&name("t")).await.unwrap(), changed);
        let many = (0..100).map(|n| create(&format!("f{n}"))).collect();
        let error = cluster.master.modify_families(&name("t"), many).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let error = cluster.master.modify_families(&name("u"), Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let created = cluster.master.modify_families(&name("t"), vec![create("d")]).await.unwrap();
        assert_eq!(created.family("d").unwrap().id, FamilyId::new(5));
    });
}

#[test]
fn a_deleted_table_is_gone_and_its_name_free_for_another() {
    run(async {
        let disk = MemoryFileSystem::new();
        let cluster = Cluster::start(&disk, 1).await.unwrap();
        let first = cluster.master.create_table(new_table("t", &["f"], &["m"])).await.unwrap();
        cluster.master.delete_table(&name("t")).await.unwrap();
        let ranges = vec![types::RangeId::new(1), types::RangeId::new(2)];
        assert_eq!(cluster.told(), [Told::Dropped(first.id, ranges)]);
        for error in [
            cluster.master.get_table(&name("t")).await.unwrap_err(),
            cluster.master.delete_table(&name("t")).await.unwrap_err(),
            cluster.master.locate(&name("t")).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert_eq!(error.message(), "Table not found: projects/p/instances/i/tables/t");
        }
        let left = cluster.coordinator.list("/", "", 10).await.unwrap();
        assert_eq!(left.entries.len(), 1, "only the next ids are left");
        let second = cluster.master.create_table(new_table("t", &["f"], &[])).await.unwrap();
        assert!(second.id > first.id);
        let layout = cluster.master.locate(&name("t")).await.unwrap();
        assert_eq!(layout.ranges[0].range.get(), 3, "ids are never given out twice");
    });
}

#[test]
fn a_deletion_that_a_server_holds_up_is_finished_later() {
    run(async {
        let disk = MemoryFileSystem::new();
        let cluster = Cluster::start(&disk, 1).await.unwrap();
        for table in ["s", "t"] {
            cluster.master.create_table(new_table(table, &["f"], &[])).await.unwrap();
        }
        *cluster.server.fails.lock().unwrap() = true;
        for table in ["s", "t"] {
            let error = cluster.master.delete_table(&name(table)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            let error = cluster.master.get_table(&name(table)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "from the first step on");
        }
        *cluster.server.fails.lock().unwrap() = false;
        // Whoever wants the name finishes it.
        cluster.master.create_table(new_table("s", &["f"], &[])).await.unwrap();
        assert_eq!(cluster.told().len(), 1);
        // So does the next start.
        let cluster = Cluster::start(&disk.crash(Crash::Process), 2).await.unwrap();
        assert!(matches!(cluster.told()[..], [Told::Dropped(..)]));
        let tables = cluster.coordinator.list("/tables/", "", 10).await.unwrap();
        assert_eq!(tables.entries.len(), 1);
    });
}

fn group(name: &str, families: &[&str]) -> NewGroup {
    let families = families.iter().map(|family| (*family).to_owned()).collect();
    NewGroup { name: name.to_owned(), families, settings: GroupSettings::default() }
}

fn groups_of(schema: &TableSchema) -> Vec<(String, Vec<u32>)> {
    let ids = |group: &LocalityGroup| group.families.iter().map(|family| family.get()).collect();
    schema.groups.iter().map(|group| (group.name.clone(), ids(group))).collect()
}

#[test]
fn locality_groups_are_defined_changed_kept_and_told() {
    run(async {
        let disk = MemoryFileSystem::new();
        let cluster = Cluster::start(&disk, 1).await.unwrap();
        let mut table = new_table("t", &["a", "b", "c"], &[]);
        table.groups = vec![group("hot", &["c", "a"])];
        let created = cluster.master.create_table(table).await.unwrap();
        assert_eq!(groups_of(&created), [("hot".to_owned(), vec![1, 3])]);
        let in_memory = GroupSettings { in_memory: true, ..GroupSettings::default() };
        let default = NewGroup { settings: in_memory, ..group("default", &[]) };
        let groups = vec![default, group("cold", &["b"]), group("hot", &["a"])];
        let changed = cluster.master.set_groups(&name("t"), groups.clone()).await.unwrap();
        let expected = [
            ("default".to_owned(), vec![]),
            ("cold".to_owned(), vec![2]),
            ("hot".to_owned(), vec![1]),
        ];
        assert_eq!(groups_of(&changed), expected);
        assert_eq!(changed.generation, Generation::new(2));
        assert_eq!(cluster.told().last(), Some(&Told::Changed(changed.clone())));
        let again = cluster.master.set_groups(&name("t"), groups).await.unwrap();
        assert_eq!(again, changed, "no change is no new generation");
        let dropped = vec![FamilyChange::Drop("b".to_owned())];
        let left = cluster.master.modify_families(&name("t"), dropped).await.unwrap();
        assert_eq!(groups_of(&left), [("default".to_owned(), vec![]), ("hot".to_owned(), vec![1])]);
        let cluster = Cluster::start(&disk.crash(Crash::Process), 2).await.unwrap();
        assert_eq!(cluster.master.get_table(&name("t")).await.unwrap(), left);
    });
}

#[test]
fn malformed_locality_groups_are_refused() {
    run(async {
        let cluster = Cluster::start(&MemoryFileSystem::new(), 1).await.unwrap();
        let table = new_table("t", &["a", "b"], &[]);
        let before = cluster.master.create_table(table).await.unwrap();
        let many = (0..17).map(|number| group(&format!("g{number}"), &["a"])).collect();
        let blocks = |bytes| {
            let settings = GroupSettings { block_bytes: Some(bytes), ..GroupSettings::default() };
            vec![NewGroup { settings, ..group("x", &["a"]) }]
        };
        for (bad, kind) in [
            (vec![group("x", &["a"]), group("x", &["b"])], ErrorKind::InvalidArgument),
            (vec![group("x", &["a"]), group("y", &["a"])], ErrorKind::InvalidArgument),
            (vec![group("x", &["a", "a"])], ErrorKind::InvalidArgument),
            (vec![group("x", &[])], ErrorKind::InvalidArgument),
            (vec![group("a:b", &["a"])], ErrorKind::InvalidArgument),
            (vec![group("default", &["a"])], ErrorKind::InvalidArgument),
            (vec![group("x", &["none"])], ErrorKind::NotFound),
            (many, ErrorKind::InvalidArgument),
            (blocks(1023), ErrorKind::InvalidArgument),
            (blocks((1 << 20) + 1), ErrorKind::InvalidArgument),
        ] {
            let error = cluster.master.set_groups(&name("t"), bad.clone()).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{bad:?}: {error}");
        }
        assert_eq!(cluster.master.get_table(&name("t")).await.unwrap(), before);
        let mut table = new_table("u", &["a"], &[]);
        table.groups = vec![group("x", &["none"])];
        let error = cluster.master.create_table(table).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    });
}
