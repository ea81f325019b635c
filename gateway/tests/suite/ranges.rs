//! Rows dropped through the table admin API, and the care for ranges.

use proto::google::bigtable::admin::v2 as admin;
use proto::google::bigtable::admin::v2::drop_row_range_request::Target;
use proto::tepui::admin::v1;
use tonic::{Code, Status};
use types::RowRange;

use super::world::{TABLE, World};

const ABSENT: &str = "projects/p/instances/i/tables/absent";

async fn drop_rows(world: &mut World, name: &str, target: Option<Target>) -> Result<(), Status> {
    let request = admin::DropRowRangeRequest { name: name.to_owned(), target };
    world.admin.drop_row_range(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn rows_are_dropped_by_prefix_or_all_and_false_drops_none() {
    let mut world = World::with_table(&[]).await;
    let prefix = |prefix: &'static [u8]| Some(Target::RowKeyPrefix(prefix.into()));
    let all = |all| Some(Target::DeleteAllDataFromTable(all));
    drop_rows(&mut world, TABLE, prefix(b"a\xff")).await.unwrap();
    drop_rows(&mut world, TABLE, all(false)).await.unwrap();
    drop_rows(&mut world, TABLE, all(true)).await.unwrap();
    let expected = [RowRange { start: "".into(), end: None }];
    let dropped: Vec<RowRange> =
        world.fake.state().dropped.iter().map(|(_, rows)| rows.clone()).collect();
    assert_eq!(dropped[1..], expected);
    assert_eq!(
        (&dropped[0].start[..], dropped[0].end.as_deref()),
        (&b"a\xff"[..], Some(&b"b"[..]))
    );
    assert_eq!(dropped.len(), 2);
}

#[tokio::test]
async fn a_drop_of_nothing_in_particular_is_refused() {
    let mut world = World::with_table(&[]).await;
    let long = Target::RowKeyPrefix(vec![b'a'; 4097].into());
    for target in [None, Some(Target::RowKeyPrefix("".into())), Some(long)] {
        let status = drop_rows(&mut world, TABLE, target.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{target:?}");
    }
    for target in [Target::RowKeyPrefix("a".into()), Target::DeleteAllDataFromTable(false)] {
        let status = drop_rows(&mut world, ABSENT, Some(target)).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound);
    }
    assert_eq!(world.fake.state().dropped.len(), 0);
}

#[tokio::test]
async fn ranges_are_listed_divided_flushed_and_merged() {
    let mut world = World::with_table(&[]).await;
    let table_name = TABLE.to_owned();
    let request = v1::ListRangesRequest { table_name: table_name.clone() };
    let ranges = world.ranges.list_ranges(request).await.unwrap().into_inner().ranges;
    let shown: Vec<_> = ranges
        .iter()
        .map(|range| (range.range_id, &range.start_key[..], &range.end_key[..], range.bytes))
        .collect();
    assert_eq!(shown, [(1, &b""[..], &b"m"[..], 100), (2, b"m", b"", 200)]);
    assert_eq!(ranges[1].activity.as_ref().unwrap().keys_read, 14);
    let row_keys = vec!["x".into(), "b".into(), "x".into()];
    let request = v1::SplitTableRequest { table_name: table_name.clone(), row_keys };
    let divided = world.ranges.split_table(request).await.unwrap().into_inner();
    assert_eq!(divided.row_keys, ["b", "x"], "sorted, once each");
    let request = v1::FlushTableRequest { table_name: table_name.clone() };
    world.ranges.flush_table(request).await.unwrap();
    let request = v1::CompactTableRequest { table_name };
    let mut merged = world.ranges.compact_table(request).await.unwrap().into_inner();
    for range in ranges {
        assert_eq!(merged.message().await.unwrap().unwrap().range, Some(range));
    }
    assert_eq!(merged.message().await.unwrap(), None);
}

#[tokio::test]
async fn ranges_of_no_table_and_bad_rows_are_refused() {
    let mut world = World::with_table(&[]).await;
    let request = v1::ListRangesRequest { table_name: ABSENT.to_owned() };
    let status = world.ranges.list_ranges(request).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let request = v1::CompactTableRequest { table_name: ABSENT.to_owned() };
    let mut merged = world.ranges.compact_table(request).await.unwrap().into_inner();
    assert_eq!(merged.message().await.unwrap_err().code(), Code::NotFound);
    for row in [vec![], vec![b'a'; 4097]] {
        let row_keys = vec![row.into()];
        let request = v1::SplitTableRequest { table_name: TABLE.to_owned(), row_keys };
        let status = world.ranges.split_table(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    }
    let request = v1::FlushTableRequest { table_name: "t".to_owned() };
    let status = world.ranges.flush_table(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}
