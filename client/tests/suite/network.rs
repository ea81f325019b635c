//! The network client against a scripted server.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use prost::Message;
use proto::codec::Encoded;
use proto::google::bigtable::v2 as data;
use proto::google::bigtable::v2::read_rows_response::{CellChunk, cell_chunk::RowStatus};
use proto::google::rpc;
use tepui_client::{Client, Error, Row, RowMutation};
use tonic::{Code, Status};
use types::{ErrorKind, RowRange, Timestamp};

use crate::scripted::{Scripted, Streamed, client};

fn script<T>(answers: impl IntoIterator<Item = T>) -> Mutex<std::collections::VecDeque<T>> {
    Mutex::new(answers.into_iter().collect())
}

/// A reply with whole rows, one cell each; the row after `|`, if any, is left half.
fn rows(keys: &str) -> Encoded {
    let (whole, half) = keys.split_once('|').unwrap_or((keys, ""));
    let chunk = |key: &str, whole: bool| CellChunk {
        row_key: Bytes::copy_from_slice(key.as_bytes()),
        family_name: Some("f".to_owned()),
        qualifier: Some(Bytes::from_static(b"q")),
        value: Bytes::copy_from_slice(key.as_bytes()),
        row_status: whole.then_some(RowStatus::CommitRow(true)),
        ..Default::default()
    };
    let whole = whole.split_whitespace().map(|key| chunk(key, true));
    let half = half.split_whitespace().map(|key| chunk(key, false));
    Encoded::of(&data::ReadRowsResponse {
        chunks: whole.chain(half).collect(),
        ..Default::default()
    })
}

async fn scan(client: &Client, limit: Option<u64>) -> Result<Vec<String>, Error> {
    let range = RowRange { start: Bytes::from_static(b"a"), end: Some(Bytes::from_static(b"x")) };
    let mut scan = client.table("t").scan(range, limit);
    let mut keys = Vec::new();
    while let Some(row) = scan.next().await? {
        keys.push(String::from_utf8_lossy(&row.key).into_owned());
    }
    assert_eq!(scan.next().await, Ok(None), "the end stays the end");
    Ok(keys)
}

fn starts(server: &Scripted) -> Vec<(Bytes, i64)> {
    let requests = server.read_requests.lock().unwrap();
    let start = |request: &data::ReadRowsRequest| {
        let range = &request.rows.as_ref().unwrap().row_ranges[0];
        match &range.start_key {
            Some(data::row_range::StartKey::StartKeyClosed(key)) => key.clone(),
            other => panic!("{other:?}"),
        }
    };
    requests.iter().map(|request| (start(request), request.rows_limit)).collect()
}

#[tokio::test]
async fn a_broken_scan_resumes_after_the_last_row() {
    let server = Arc::new(Scripted {
        reads: script([
            Ok(vec![Ok(rows("a b")), Ok(rows("c |d")), Err(Status::unavailable("restarting"))]),
            Err(Status::aborted("moved")),
            Ok(vec![Ok(rows("d e"))]),
        ]),
        ..Default::default()
    });
    let client = client(&server).await;
    let keys = scan(&client, Some(10)).await.unwrap();
    assert_eq!(keys, ["a", "b", "c", "d", "e"]);
    let expected = [("a", 10), ("c\0", 7), ("c\0", 7)];
    assert_eq!(
        starts(&server),
        expected.map(|(key, limit)| (Bytes::from_static(key.as_bytes()), limit))
    );
}

#[tokio::test]
async fn a_broken_reversed_scan_resumes_before_the_last_row() {
    let server = Arc::new(Scripted {
        reads: script([
            Ok(vec![Ok(rows("w u")), Ok(rows("c |b")), Err(Status::unavailable("restarting"))]),
            Ok(vec![Ok(rows("b a")), Ok(rows("a"))]),
        ]),
        ..Default::default()
    });
    let client = client(&server).await;
    let range = RowRange { start: Bytes::from_static(b"a"), end: Some(Bytes::from_static(b"x")) };
    let mut scan = client.table("t").scan(range, Some(10)).reversed();
    for key in ["w", "u", "c", "b", "a"] {
        assert_eq!(scan.next().await.unwrap().unwrap().key, key);
    }
    assert_eq!(scan.next().await.unwrap_err().kind(), ErrorKind::Io, "a row out of order");
    let requests = server.read_requests.lock().unwrap();
    let ends = requests.iter().map(|request| {
        assert!(request.reversed);
        let range = &request.rows.as_ref().unwrap().row_ranges[0];
        (range.end_key.clone().unwrap(), request.rows_limit)
    });
    let open = |key| data::row_range::EndKey::EndKeyOpen(Bytes::from_static(key));
    assert_eq!(ends.collect::<Vec<_>>(), [(open(b"x"), 10), (open(b"c"), 7)]);
}

#[tokio::test]
async fn a_scan_that_broke_after_its_last_row_is_complete() {
    let server = Arc::new(Scripted {
        reads: script([Ok(vec![Ok(rows("a b")), Err(Status::unavailable("restarting"))])]),
        ..Default::default()
    });
    let client = client(&server).await;
    assert_eq!(scan(&client, Some(2)).await.unwrap(), ["a", "b"]);
    assert_eq!(server.read_requests.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_scan_that_gets_nowhere_ends_with_the_error() {
    let server = Arc::new(Scripted {
        reads: script([Err(Status::unavailable("gone"))]),
        ..Default::default()
    });
    let client = client(&server).await;
    let error = scan(&client, None).await.unwrap_err();
    assert_eq!(error, Error::new(ErrorKind::Unavailable, "gone"));
    let attempts = server.read_requests.lock().unwrap().len();
    assert!((3..20).contains(&attempts), "{attempts}");
}

#[tokio::test]
async fn what_cannot_be_repeated_is_not() {
    let failures = [
        Status::not_found("no table"),
        Status::data_loss("damaged"),
        Status::resource_exhausted("full"),
    ];
    for status in failures {
        let server = Arc::new(Scripted {
            reads: script([Ok(vec![Ok(rows("a")), Err(status)])]),
            ..Default::default()
        });
        let client = client(&server).await;
        scan(&client, None).await.unwrap_err();
        assert_eq!(server.read_requests.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn more_rows_than_asked_for_are_an_error() {
    let server =
        Arc::new(Scripted { reads: script([Ok(vec![Ok(rows("a b c"))])]), ..Default::default() });
    let error = scan(&client(&server).await, Some(2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[tokio::test]
async fn a_get_asks_for_one_key() {
    let server = Arc::new(Scripted {
        reads: script([Ok(vec![Ok(rows("k"))]), Ok(vec![])]),
        ..Default::default()
    });
    let table = client(&server).await.table("t");
    let row: Row = table.get("k").await.unwrap().unwrap();
    assert_eq!(row.cell("f", b"q").unwrap().value, "k");
    assert_eq!((row.cells(), row.bytes()), (1, 3));
    assert_eq!(table.get("k").await, Ok(None));
    let requests = server.read_requests.lock().unwrap();
    let asked = requests[0].rows.as_ref().unwrap();
    assert_eq!(asked.row_keys, ["k"]);
    assert!(asked.row_ranges.is_empty());
    assert_eq!(requests[0].table_name, "projects/p/instances/i/tables/t");
}

#[tokio::test]
async fn a_write_is_repeated_only_where_that_is_safe() {
    let at = Timestamp::from_micros(1000);
    // (answer, timestamp, calls)
    let cases = [
        (Status::unavailable("starting"), None, 2),
        (Status::aborted("unknown"), None, 1),
        (Status::aborted("unknown"), at, 2),
        (Status::not_found("no family"), at, 1),
    ];
    for (status, at, calls) in cases {
        let case = format!("{status} {at:?}");
        let server =
            Arc::new(Scripted { row_writes: script([Err(status), Ok(())]), ..Default::default() });
        let table = client(&server).await.table("t");
        let outcome = table.put("k", "f", "q", at, "v").await;
        assert_eq!(outcome.is_ok(), calls == 2, "{case}");
        assert_eq!(server.row_write_requests.lock().unwrap().len(), calls, "{case}");
    }
}

/// A reply with the code of each entry, by its index.
fn codes(entries: &[(i64, Code)]) -> data::MutateRowsResponse {
    let entry = |&(index, code): &(i64, Code)| data::mutate_rows_response::Entry {
        index,
        status: Some(rpc::Status {
            code: code.into(),
            message: format!("{code:?}"),
            details: Vec::new(),
        }),
    };
    data::MutateRowsResponse { entries: entries.iter().map(entry).collect(), rate_limit_info: None }
}

async fn write_batch(
    answers: impl IntoIterator<Item = Streamed<data::MutateRowsResponse>>,
) -> (Vec<Option<ErrorKind>>, Vec<Vec<Bytes>>) {
    let server = Arc::new(Scripted { batch_writes: script(answers), ..Default::default() });
    let table = client(&server).await.table("t");
    let rows = ["a", "b", "c", "d"].map(|key| RowMutation::new(key).set("f", "q", None, "v"));
    let outcomes = table.mutate_rows(rows.to_vec()).await;
    let requests = server.batch_write_requests.lock().unwrap();
    let keys = |request: &data::MutateRowsRequest| {
        let entries = request.entries.iter();
        entries.map(|entry| entry.row_key.clone()).collect()
    };
    (
        outcomes.into_iter().map(|outcome| outcome.err().map(|error| error.kind())).collect(),
        requests.iter().map(keys).collect(),
    )
}

#[tokio::test]
async fn of_a_batch_only_what_may_succeed_is_sent_again() {
    let (outcomes, requests) = write_batch([
        Ok(vec![
            Ok(codes(&[(3, Code::Ok), (1, Code::Unavailable)])),
            Ok(codes(&[(0, Code::NotFound), (2, Code::Unavailable)])),
        ]),
        Ok(vec![Ok(codes(&[(0, Code::Ok), (1, Code::InvalidArgument)]))]),
    ])
    .await;
    let expected = [Some(ErrorKind::NotFound), None, Some(ErrorKind::InvalidArgument), None];
    assert_eq!(outcomes, expected);
    assert_eq!(requests, [vec!["a", "b", "c", "d"], vec!["b", "c"]]);
}

#[tokio::test]
async fn a_row_without_an_outcome_is_not_taken_for_written() {
    let (outcomes, requests) =
        write_batch([Ok(vec![Ok(codes(&[(0, Code::Ok), (2, Code::Ok)]))])]).await;
    let unknown = Some(ErrorKind::Aborted);
    assert_eq!(outcomes, [None, unknown, None, unknown]);
    assert_eq!(requests.len(), 1, "server times are not written twice");

    let (outcomes, _) = write_batch([Ok(vec![Ok(codes(&[(4, Code::Ok), (-1, Code::Ok)]))])]).await;
    assert_eq!(outcomes, [unknown; 4]);
}

#[tokio::test]
async fn a_refused_batch_is_refused_for_every_row() {
    let (outcomes, _) = write_batch([Err(Status::not_found("no table"))]).await;
    assert_eq!(outcomes, [Some(ErrorKind::NotFound); 4]);
}

#[tokio::test]
async fn a_servers_wish_to_wait_makes_a_full_server_worth_asking_again() {
    let info = rpc::RetryInfo {
        retry_delay: Some(prost_types::Duration { seconds: 0, nanos: 1_000_000 }),
    };
    let details = rpc::Status {
        code: Code::ResourceExhausted.into(),
        message: "full".to_owned(),
        details: vec![prost_types::Any {
            type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
            value: info.encode_to_vec(),
        }],
    };
    let details = Bytes::from(details.encode_to_vec());
    let full = Status::with_details(Code::ResourceExhausted, "full", details);
    let server =
        Arc::new(Scripted { row_writes: script([Err(full), Ok(())]), ..Default::default() });
    let table = client(&server).await.table("t");
    table.put("k", "f", "q", None, "v").await.unwrap();
    assert_eq!(server.row_write_requests.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn nobody_there_is_a_clear_error() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = closed.local_addr().unwrap().to_string();
    drop(closed);
    let error = Client::connect(&endpoint, "projects/p/instances/i").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains(&endpoint) && text.contains("refused"), "{text}");
    let error = Client::connect(&endpoint, "i").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}
