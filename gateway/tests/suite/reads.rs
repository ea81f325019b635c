//! ReadRows: which rows, how many, and what is not built.

use bytes::Bytes;
use proto::google::bigtable::v2 as data;
use proto::google::bigtable::v2::row_filter::Filter;
use proto::google::bigtable::v2::row_range::{EndKey, StartKey};
use tonic::Code;

use super::world::{TABLE, World, delete_row, read_request, set};

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn of_range(start: Option<StartKey>, end: Option<EndKey>) -> data::ReadRowsRequest {
    of_rows(&[], vec![data::RowRange { start_key: start, end_key: end }])
}

fn of_rows(keys: &[&'static str], ranges: Vec<data::RowRange>) -> data::ReadRowsRequest {
    data::ReadRowsRequest {
        rows: Some(data::RowSet {
            row_keys: keys.iter().map(|key| bytes(key)).collect(),
            row_ranges: ranges,
        }),
        ..read_request()
    }
}

fn closed_open(start: &'static str, end: &'static str) -> data::ReadRowsRequest {
    of_range(Some(StartKey::StartKeyClosed(bytes(start))), Some(EndKey::EndKeyOpen(bytes(end))))
}

async fn world_of_five(splits: &[&'static str]) -> World {
    let mut world = World::with_table(splits).await;
    world.fill(&["a", "b", "c", "d", "e"]).await;
    world
}

#[tokio::test]
async fn an_absent_or_empty_row_set_is_the_whole_table() {
    for splits in [&[][..], &["c"], &["b", "bb", "c", "d"]] {
        let mut world = world_of_five(splits).await;
        for request in [read_request(), of_rows(&[], Vec::new())] {
            let keys = world.keys(request).await.unwrap();
            assert_eq!(keys, ["a", "b", "c", "d", "e"], "{splits:?}");
        }
    }
}

#[tokio::test]
async fn from_empty_to_empty_is_the_whole_table() {
    let mut world = world_of_five(&["c"]).await;
    for request in [
        closed_open("", ""),
        of_range(Some(StartKey::StartKeyOpen(bytes(""))), Some(EndKey::EndKeyClosed(bytes("")))),
        of_range(None, None),
    ] {
        assert_eq!(world.keys(request).await.unwrap().len(), 5);
    }
    assert_eq!(world.keys(closed_open("d", "")).await.unwrap(), ["d", "e"]);
    assert_eq!(world.keys(closed_open("", "b")).await.unwrap(), ["a"]);
}

/// googleapis/google-cloud-go#1312: such a range was silently empty.
#[tokio::test]
async fn a_range_whose_start_is_past_its_end_is_refused() {
    let mut world = world_of_five(&[]).await;
    let status = world.keys(closed_open("b", "a")).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(
        status.message(),
        "Error in element #0: start_key_closed must be less than end_key_open"
    );
    assert!(world.keys(closed_open("b", "b")).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_closed_range_of_one_key_is_that_row() {
    let mut world = world_of_five(&["c"]).await;
    world.fill(&["c\0"]).await;
    let request = of_range(
        Some(StartKey::StartKeyClosed(bytes("c"))),
        Some(EndKey::EndKeyClosed(bytes("c"))),
    );
    assert_eq!(world.keys(request).await.unwrap(), ["c"]);
}

/// HBASE-21618: a scan from a row up to and without the same row gave that row.
#[tokio::test]
async fn each_of_the_four_ways_to_bound_a_range_means_what_it_says() {
    use {
        EndKey::{EndKeyClosed, EndKeyOpen},
        StartKey::{StartKeyClosed, StartKeyOpen},
    };
    for splits in [&[][..], &["c"], &["b", "c", "d"]] {
        let mut world = world_of_five(splits).await;
        let (b, d) = (|| bytes("b"), || bytes("d"));
        for (start, end, expected) in [
            (StartKeyClosed(b()), EndKeyClosed(d()), &["b", "c", "d"][..]),
            (StartKeyClosed(b()), EndKeyOpen(d()), &["b", "c"]),
            (StartKeyOpen(b()), EndKeyClosed(d()), &["c", "d"]),
            (StartKeyOpen(b()), EndKeyOpen(d()), &["c"]),
            (StartKeyClosed(b()), EndKeyClosed(b()), &["b"]),
            (StartKeyClosed(b()), EndKeyOpen(b()), &[]),
            (StartKeyOpen(b()), EndKeyClosed(b()), &[]),
        ] {
            let what = format!("{start:?} {end:?} {splits:?}");
            let found = world.keys(of_range(Some(start), Some(end))).await.unwrap();
            assert_eq!(found, expected, "{what}");
        }
    }
}

#[tokio::test]
async fn keys_and_ranges_are_united_sorted_and_answered_once() {
    let mut world = world_of_five(&["b", "c", "d"]).await;
    let range = |start, end| data::RowRange {
        start_key: Some(StartKey::StartKeyClosed(bytes(start))),
        end_key: Some(EndKey::EndKeyClosed(bytes(end))),
    };
    let request = of_rows(&["e", "a", "nothing", "e"], vec![range("c", "d"), range("d", "d")]);
    assert_eq!(world.keys(request).await.unwrap(), ["a", "c", "d", "e"]);
}

#[tokio::test]
async fn a_missing_row_is_an_empty_answer() {
    let mut world = world_of_five(&[]).await;
    let request = of_rows(&["nothing"], Vec::new());
    assert!(world.keys(request).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_empty_or_oversize_row_key_is_refused() {
    let mut world = world_of_five(&[]).await;
    let status = world.keys(of_rows(&["a", ""], Vec::new())).await;
    let status = status.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "Row keys must be non-empty");
    let long = Bytes::from(vec![b'x'; 4097]);
    let mut request = of_rows(&[], Vec::new());
    request.rows.as_mut().unwrap().row_keys.push(long.clone());
    let status = world.keys(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let request = of_range(Some(StartKey::StartKeyClosed(long)), None);
    let status = world.keys(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

/// Hypertable's issues 956 and 910: a limit of one row gave nothing, and deleted rows counted.
#[tokio::test]
async fn the_rows_limit_holds_across_ranges_and_deleted_rows_do_not_count() {
    for splits in [&[][..], &["c"], &["b", "c", "d"]] {
        let mut world = world_of_five(splits).await;
        world.mutate("b", vec![delete_row()]).await.unwrap();
        for (limit, expected) in [
            (1, &["a"][..]),
            (2, &["a", "c"]),
            (3, &["a", "c", "d"]),
            (4, &["a", "c", "d", "e"]),
            (100, &["a", "c", "d", "e"]),
        ] {
            let request = data::ReadRowsRequest { rows_limit: limit, ..read_request() };
            assert_eq!(world.keys(request).await.unwrap(), expected, "{splits:?}");
        }
    }
}

/// googleapis/google-cloud-go#322: the limit of a read of a prefix was passed over.
#[tokio::test]
async fn a_prefix_with_a_limit_answers_no_more() {
    let mut world = World::with_table(&["p2"]).await;
    world.fill(&["o", "p1", "p2", "p3", "q"]).await;
    let mut request = closed_open("p", "q");
    request.rows_limit = 2;
    assert_eq!(world.keys(request).await.unwrap(), ["p1", "p2"]);
}

/// Cells of a row keep their order.
#[tokio::test]
async fn a_reversed_read_answers_from_the_last_row_back() {
    for splits in [&[][..], &["c"], &["b", "bb", "c", "d"]] {
        let mut world = world_of_five(splits).await;
        world.mutate("c", vec![set("f", "p", 1000, "c"), delete_row()]).await.unwrap();
        world.mutate("d", vec![set("f", "p", 2000, "d"), set("g", "", 0, "d")]).await.unwrap();
        let reversed = |request| data::ReadRowsRequest { reversed: true, ..request };
        for (request, expected) in [
            (read_request(), &["e", "d", "b", "a"][..]),
            (closed_open("b", "e"), &["d", "b"]),
            (closed_open("", "c"), &["b", "a"]),
            (of_rows(&["a", "e", "c", "zz"], Vec::new()), &["e", "a"]),
            (data::ReadRowsRequest { rows_limit: 3, ..read_request() }, &["e", "d", "b"]),
            (data::ReadRowsRequest { rows_limit: 1, ..closed_open("a", "d") }, &["b"]),
        ] {
            assert_eq!(world.keys(reversed(request)).await.unwrap(), expected, "{splits:?}");
        }
        let cells = world.read(reversed(closed_open("d", "e"))).await.unwrap();
        let columns: Vec<_> = cells.iter().map(|cell| (&cell.1[..], &cell.2[..])).collect();
        assert_eq!(columns, [("f", &b"p"[..]), ("f", b"q"), ("g", b"")], "{splits:?}");
    }
}

#[tokio::test]
async fn a_negative_rows_limit_is_refused() {
    let mut world = world_of_five(&[]).await;
    let request = data::ReadRowsRequest { rows_limit: -1, ..read_request() };
    let status = world.keys(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn filters_pass_all_or_say_that_they_are_not_built() {
    let mut world = world_of_five(&[]).await;
    let with = |filter: Option<Filter>| data::ReadRowsRequest {
        filter: Some(data::RowFilter { filter }),
        ..read_request()
    };
    for filter in [None, Some(Filter::PassAllFilter(true))] {
        assert_eq!(world.keys(with(filter)).await.unwrap().len(), 5);
    }
    let request = with(Some(Filter::PassAllFilter(false)));
    let status = world.keys(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let request = with(Some(Filter::CellsPerColumnLimitFilter(1)));
    let status = world.keys(request).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("cells_per_column_limit_filter"));
}

#[tokio::test]
async fn what_is_not_built_says_so() {
    let mut world = world_of_five(&[]).await;
    for request in [
        data::ReadRowsRequest { request_stats_view: 2, ..read_request() },
        data::ReadRowsRequest {
            authorized_view_name: format!("{TABLE}/authorizedViews/v"),
            table_name: String::new(),
            ..read_request()
        },
        data::ReadRowsRequest {
            materialized_view_name: "projects/p/instances/i/materializedViews/v".to_owned(),
            table_name: String::new(),
            ..read_request()
        },
    ] {
        let status = world.keys(request).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{status:?}");
    }
}

#[tokio::test]
async fn an_unknown_table_is_not_found_and_a_malformed_name_invalid() {
    let mut world = World::empty();
    let status = world.keys(read_request()).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(status.message(), format!("Table not found: {TABLE}"));
    let long = format!("projects/p/instances/i/tables/{}", "t".repeat(1 << 20));
    for name in ["", "t", "projects/p/instances/i", "projects/p/instances/i/tables/a b", &long] {
        let request = data::ReadRowsRequest { table_name: name.to_owned(), ..read_request() };
        let status = world.keys(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{name:.60}");
        assert!(status.message().len() <= 1024);
    }
}

#[tokio::test]
async fn a_reader_that_stops_makes_the_server_stop() {
    let mut world = World::with_table(&[]).await;
    let value = Bytes::from(vec![b'v'; 100_000]);
    for n in 0..300 {
        let row = format!("row{n:04}");
        world.mutate(row, vec![set("f", "q", 1000, value.clone())]).await.unwrap();
    }
    let read = world.data.read_rows(read_request()).await.unwrap();
    let mut stream = read.into_inner();
    stream.message().await.unwrap().unwrap();
    let made = world.fake.state().replies;
    assert!(made <= 3, "{made} replies made of 100 for a reader of one");
    drop(stream);
    assert_eq!(world.fake.state().replies, made);
}
