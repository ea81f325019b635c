//! The table admin API.

use bytes::Bytes;
use proto::google::bigtable::admin::v2 as admin;
use proto::google::bigtable::admin::v2::gc_rule::Rule;
use proto::google::bigtable::admin::v2::modify_column_families_request::Modification;
use proto::google::bigtable::admin::v2::modify_column_families_request::modification::Mod;
use proto::google::bigtable::admin::v2::table::View;
use proto::google::bigtable::admin::v2::r#type as wire;
use proto::google::bigtable::admin::v2::r#type::aggregate::Aggregator;
use tonic::{Code, Status};

use super::world::{INSTANCE, TABLE, World, create_request, read_request, set};

fn keep(versions: i32) -> admin::ColumnFamily {
    admin::ColumnFamily {
        gc_rule: Some(admin::GcRule { rule: Some(Rule::MaxNumVersions(versions)) }),
        value_type: None,
    }
}

fn change(id: &str, change: Mod) -> Modification {
    Modification { id: id.to_owned(), r#mod: Some(change), update_mask: None }
}

async fn modify(
    world: &mut World,
    modifications: Vec<Modification>,
) -> Result<admin::Table, Status> {
    let request = admin::ModifyColumnFamiliesRequest {
        name: TABLE.to_owned(),
        modifications,
        ..Default::default()
    };
    let answer = world.admin.modify_column_families(request).await;
    answer.map(tonic::Response::into_inner)
}

async fn get(world: &mut World, view: View) -> Result<admin::Table, Status> {
    let request = admin::GetTableRequest { name: TABLE.to_owned(), view: view as i32 };
    let answer = world.admin.get_table(request).await;
    answer.map(tonic::Response::into_inner)
}

fn names(table: &admin::Table) -> Vec<&str> {
    table.column_families.keys().map(String::as_str).collect()
}

#[tokio::test]
async fn a_created_table_is_answered_in_full_and_can_be_seen_by_views() {
    let mut world = World::empty();
    let mut request = create_request("t", &["f"], &[]);
    let families = &mut request.table.as_mut().unwrap().column_families;
    families.insert("kept".to_owned(), keep(3));
    let created = world.admin.create_table(request.clone()).await.unwrap();
    let created = created.into_inner();
    assert_eq!(created.name, TABLE);
    assert_eq!(names(&created), ["f", "kept"]);
    assert_eq!(created.column_families["kept"], keep(3));
    assert_eq!(created.granularity, 1, "MILLIS");
    let status = world.admin.create_table(request).await.unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists);

    let name_only = get(&mut world, View::NameOnly).await.unwrap();
    assert_eq!((name_only.name.as_str(), names(&name_only).len()), (TABLE, 0));
    for view in [View::Unspecified, View::SchemaView, View::Full] {
        assert_eq!(get(&mut world, view).await.unwrap(), created);
    }
    let replication = get(&mut world, View::ReplicationView).await.unwrap();
    assert!(names(&replication).is_empty());
}

#[tokio::test]
async fn table_ids_have_rules() {
    let mut world = World::empty();
    for id in ["", "bad id!", "-t", ".t", "tä", "a/b", &"t".repeat(51)] {
        let status = world.admin.create_table(create_request(id, &[], &[])).await;
        assert_eq!(status.unwrap_err().code(), Code::InvalidArgument, "{id}");
    }
    for id in ["_", "0", "T-_.x", &"t".repeat(50)] {
        let request = create_request(id, &[], &[]);
        world.admin.create_table(request).await.unwrap();
    }
    let mut request = create_request("t", &[], &[]);
    request.parent = "projects/p".to_owned();
    let status = world.admin.create_table(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn senseless_tables_are_refused() {
    let mut world = World::empty();
    let with_family = |name: &str, family: admin::ColumnFamily| {
        let mut request = create_request("t", &[], &[]);
        let table = request.table.as_mut().unwrap();
        table.column_families.insert(name.to_owned(), family);
        request
    };
    let mut many = create_request("t", &[], &[]);
    for n in 0..101 {
        let families = &mut many.table.as_mut().unwrap().column_families;
        families.insert(format!("f{n}"), admin::ColumnFamily::default());
    }
    let mut many_splits = create_request("t", &[], &[]);
    for n in 0..1001 {
        let key = Bytes::from(format!("k{n}"));
        let split = admin::create_table_request::Split { key };
        many_splits.initial_splits.push(split);
    }
    let mut odd_granularity = create_request("t", &[], &[]);
    odd_granularity.table.as_mut().unwrap().granularity = 9;
    for request in [
        with_family("", admin::ColumnFamily::default()),
        with_family("a:b", admin::ColumnFamily::default()),
        with_family(&"f".repeat(65), admin::ColumnFamily::default()),
        with_family("f", keep(0)),
        create_request("t", &[], &["a", ""]),
        many,
        many_splits,
        odd_granularity,
    ] {
        let status = world.admin.create_table(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    }
    assert!(world.fake.state().tables.is_empty());
}

#[tokio::test]
async fn settings_that_are_not_built_are_refused() {
    let mut world = World::empty();
    let with = |table: admin::Table| admin::CreateTableRequest {
        table: Some(table),
        ..create_request("t", &[], &[])
    };
    let count = Aggregator::HllppUniqueCount(Default::default());
    let text = admin::Type { kind: Some(wire::Kind::StringType(wire::String::default())) };
    let of_text = admin::ColumnFamily { gc_rule: None, value_type: Some(text) };
    for table in [
        admin::Table { deletion_protection: true, ..Default::default() },
        admin::Table {
            change_stream_config: Some(admin::ChangeStreamConfig::default()),
            ..Default::default()
        },
        families_of(aggregate(Some(count), Some(int64()))),
        families_of(of_text),
    ] {
        let status = world.admin.create_table(with(table)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
    }
}

fn int64() -> admin::Type {
    admin::Type { kind: Some(wire::Kind::Int64Type(wire::Int64::default())) }
}

fn aggregate(aggregator: Option<Aggregator>, input: Option<admin::Type>) -> admin::ColumnFamily {
    let input_type = input.map(Box::new);
    let kind = Box::new(wire::Aggregate { input_type, state_type: None, aggregator });
    let value_type = Some(admin::Type { kind: Some(wire::Kind::AggregateType(kind)) });
    admin::ColumnFamily { gc_rule: None, value_type }
}

fn families_of(family: admin::ColumnFamily) -> admin::Table {
    admin::Table { column_families: [("f".to_owned(), family)].into(), ..Default::default() }
}

#[tokio::test]
async fn an_aggregate_family_keeps_its_type_when_its_rule_changes() {
    let mut world = World::with_table(&[]).await;
    let of_sums = aggregate(Some(Aggregator::Sum(Default::default())), Some(int64()));
    let table = modify(&mut world, vec![change("s", Mod::Create(of_sums))]).await.unwrap();
    let value_type = table.column_families["s"].value_type.clone();
    let Some(admin::Type { kind: Some(wire::Kind::AggregateType(told)) }) = &value_type else {
        panic!("{value_type:?}");
    };
    assert!(matches!(told.aggregator, Some(Aggregator::Sum(_))));
    assert!(matches!(told.input_type.as_ref().unwrap().kind, Some(wire::Kind::Int64Type(_))));
    let mut again = keep(3);
    again.value_type.clone_from(&value_type);
    for update in [keep(2), again] {
        let updated = modify(&mut world, vec![change("s", Mod::Update(update.clone()))]).await;
        let family = updated.unwrap().column_families["s"].clone();
        assert_eq!((family.gc_rule, &family.value_type), (update.gc_rule, &value_type));
    }
    let mut masked = change("s", Mod::Update(keep(1)));
    masked.update_mask = Some(prost_types::FieldMask { paths: vec!["value_type".to_owned()] });
    let status = modify(&mut world, vec![masked]).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn senseless_aggregates_are_refused() {
    let mut world = World::empty();
    let sum = || Some(Aggregator::Sum(Default::default()));
    let text = admin::Type { kind: Some(wire::Kind::StringType(wire::String::default())) };
    let ordered = wire::int64::encoding::Encoding::OrderedCodeBytes(Default::default());
    let encoding = Some(wire::int64::Encoding { encoding: Some(ordered) });
    let ordered = admin::Type { kind: Some(wire::Kind::Int64Type(wire::Int64 { encoding })) };
    for family in [
        aggregate(None, Some(int64())),
        aggregate(sum(), None),
        aggregate(sum(), Some(text)),
        aggregate(sum(), Some(ordered)),
    ] {
        let mut request = create_request("t", &[], &[]);
        request.table = Some(families_of(family));
        let status = world.admin.create_table(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    }
}

#[tokio::test]
async fn tables_are_listed_in_pages_sorted_by_name() {
    let mut world = World::empty();
    for id in ["c", "a", "e", "b", "d"] {
        let request = create_request(id, &["f"], &[]);
        world.admin.create_table(request).await.unwrap();
    }
    let mut request = admin::ListTablesRequest {
        parent: INSTANCE.to_owned(),
        page_size: 2,
        ..Default::default()
    };
    let mut pages = Vec::new();
    loop {
        let page = world.admin.list_tables(request.clone()).await.unwrap();
        let page = page.into_inner();
        assert!(page.tables.iter().all(|table| names(table).is_empty()));
        let ids: Vec<String> = page
            .tables
            .iter()
            .map(|table| table.name.rsplit('/').next().unwrap().to_owned())
            .collect();
        pages.push(ids.concat());
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert_eq!(pages, ["ab", "cd", "e"]);

    request = admin::ListTablesRequest {
        parent: INSTANCE.to_owned(),
        view: View::SchemaView as i32,
        ..Default::default()
    };
    let all = world.admin.list_tables(request.clone()).await.unwrap().into_inner();
    assert_eq!((all.tables.len(), all.next_page_token.as_str()), (5, ""));
    assert_eq!(names(&all.tables[0]), ["f"]);
    request.page_size = -1;
    let status = world.admin.list_tables(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_deleted_table_is_gone() {
    let mut world = World::with_table(&[]).await;
    world.fill(&["a"]).await;
    let request = admin::DeleteTableRequest { name: TABLE.to_owned() };
    world.admin.delete_table(request.clone()).await.unwrap();
    let status = world.admin.delete_table(request).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let status = get(&mut world, View::Full).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let status = world.keys(read_request()).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
}

#[tokio::test]
async fn changes_of_families_apply_in_order_and_are_answered_in_full() {
    let mut world = World::with_table(&[]).await;
    let modifications = vec![
        change("g", Mod::Drop(true)),
        change("h", Mod::Create(admin::ColumnFamily::default())),
        change("h", Mod::Update(keep(2))),
        change("f", Mod::Update(keep(7))),
    ];
    let table = modify(&mut world, modifications).await.unwrap();
    assert_eq!((table.name.as_str(), table.granularity), (TABLE, 1));
    assert_eq!(names(&table), ["f", "h"]);
    assert_eq!(table.column_families["f"], keep(7));
    assert_eq!(table.column_families["h"], keep(2));
    assert_eq!(get(&mut world, View::Full).await.unwrap(), table);
}

#[tokio::test]
async fn a_change_of_families_that_fails_changes_nothing() {
    let mut world = World::with_table(&[]).await;
    let before = get(&mut world, View::Full).await.unwrap();
    let mut odd_mask = change("f", Mod::Update(keep(1)));
    odd_mask.update_mask =
        Some(prost_types::FieldMask { paths: vec!["gc_rule".to_owned(), "value_type".to_owned()] });
    let nothing = Modification { id: "f".to_owned(), ..Default::default() };
    for (second, code) in [
        (change("nope", Mod::Drop(true)), Code::NotFound),
        (change("nope", Mod::Update(keep(1))), Code::NotFound),
        (change("f", Mod::Create(keep(1))), Code::AlreadyExists),
        (change("f", Mod::Drop(false)), Code::InvalidArgument),
        (change("b:d", Mod::Create(keep(1))), Code::InvalidArgument),
        (change("f", Mod::Update(keep(-1))), Code::InvalidArgument),
        (odd_mask, Code::InvalidArgument),
        (nothing, Code::InvalidArgument),
    ] {
        let first = change("new", Mod::Create(keep(1)));
        let status = modify(&mut world, vec![first, second]).await.unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
        assert_eq!(get(&mut world, View::Full).await.unwrap(), before);
    }
    let status = modify(&mut world, Vec::new()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_family_dropped_and_created_again_is_empty() {
    let mut world = World::with_table(&[]).await;
    world.fill(&["a"]).await;
    let modifications = vec![
        change("f", Mod::Drop(true)),
        change("f", Mod::Create(admin::ColumnFamily::default())),
    ];
    modify(&mut world, modifications).await.unwrap();
    assert!(world.read_all().await.is_empty());
    world.mutate("a", vec![set("f", "q", 0, "")]).await.unwrap();
    assert_eq!(world.read_all().await.len(), 1);
}

#[tokio::test]
async fn calls_that_are_not_built_are_unimplemented_and_the_server_lives() {
    let mut world = World::with_table(&[]).await;
    let status =
        world.admin.create_backup(admin::CreateBackupRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let status =
        world.admin.undelete_table(admin::UndeleteTableRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    get(&mut world, View::Full).await.unwrap();
}
