//! `tepui dev`: how it starts, how it stops, and what it refuses.

use std::time::Duration;

use bytes::Bytes;
use client::{Client, NewFamily, Result, RowMutation, Table};
use env::Env;
use tokio::runtime::Runtime;
use types::limits::{MUTATIONS_MAX, QUALIFIER_BYTES_MAX, ROW_KEY_BYTES_MAX, VALUE_BYTES_MAX};
use types::{ErrorKind, RowRange};

use crate::tepui::{Server, run};

/// What a start after a clean stop may take on a busy machine; an idle one needs a tenth of it.
const START_MAX: Duration = Duration::from_secs(2);

#[test]
fn the_ready_line_names_the_folder_and_the_address() {
    let data = tempfile::tempdir().unwrap();
    for flags in [
        &["--host", "localhost", "--port", "0"][..],
        &["--host=127.0.0.1", "--port=0"],
        &["-address", "127.0.0.1:0"],
        &["-host=[127.0.0.1]", "-port", "0"],
    ] {
        let server = Server::start(data.path(), flags);
        let folder = data.path().display();
        let expected = format!("Tepui (data in {folder}) running on 127.0.0.1:");
        assert!(server.ready_line.starts_with(&expected), "{flags:?}: {}", server.ready_line);
        server.terminate();
    }
    let said = run(&["dev", "--port", "0", "--address", "127.0.0.1:0"]);
    assert_eq!(said.status, 2, "{}", said.stderr);
}

#[test]
fn a_port_in_use_is_told_and_the_folder_stays_unused() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let other = data.path().join("other");
    let (_, port) = server.endpoint.rsplit_once(':').unwrap();
    let said = run(&["dev", "--port", port, "--data", other.to_str().unwrap()]);
    assert_eq!((said.status, said.stdout.as_str()), (1, ""));
    assert!(said.stderr.contains("error: cannot listen on 127.0.0.1:"), "{}", said.stderr);
    assert!(!other.exists());
    server.terminate();
}

#[test]
fn a_clean_stop_writes_everything_out_and_the_next_start_is_quick() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.expect(&["table", "create", "t", "--family", "f"]);
    for row in ["a", "b", "c"] {
        server.expect(&["put", "t", row, "f:q", "kept", "--timestamp", "1000"]);
    }
    let told = |lines: &[String], what: &str| lines.iter().any(|line| line.contains(what));
    let lines = server.terminate();
    assert!(told(&lines, "events: flush_finished"), "{}", lines.join("\n"));

    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        let started = Env::system().monotonic();
        let server = Server::start(data.path(), &[]);
        fastest = fastest.min(Env::system().monotonic() - started);
        let rows = server.expect(&["scan", "t", "--output", "json"]);
        assert_eq!(rows.lines().count(), 3, "{rows}");
        let lines = server.terminate();
        let recovery = lines.iter().find(|line| line.contains("recovery_done")).unwrap();
        assert!(recovery.contains("cells: 0"), "{recovery}");
        assert!(!told(&lines, "events: flush_finished"), "nothing was written: nothing to flush");
    }
    println!("ready {fastest:?} after a clean stop");
    assert!(fastest < START_MAX, "{fastest:?}");
}

/// The kinds that may answer a request, and the request.
async fn refused(kinds: &[ErrorKind], what: &str, answer: impl Future<Output = Result<()>>) {
    let error = answer.await.expect_err(what);
    assert!(kinds.contains(&error.kind()), "{what}: {:?}: {error}", error.kind());
    assert!(!error.message().is_empty(), "{what}");
}

async fn bad_writes(client: &Client, table: &Table) {
    let long = |bytes: usize| Bytes::from(vec![b'x'; bytes]);
    let set = |row: Bytes, family: &str, qualifier: Bytes, value: Bytes| {
        RowMutation::new(row).set(family, qualifier, None, value)
    };
    let (row, value) = (|| Bytes::from("bad"), || Bytes::from("v"));
    let many = (0..=MUTATIONS_MAX).fold(RowMutation::new("bad"), |row, _| row.delete_row());
    let invalid = [ErrorKind::InvalidArgument];
    for (what, mutation) in [
        ("no row key", set(Bytes::new(), "f", row(), value())),
        ("a row key too long", set(long(ROW_KEY_BYTES_MAX + 1), "f", row(), value())),
        ("a qualifier too long", set(row(), "f", long(QUALIFIER_BYTES_MAX + 1), value())),
        ("a value too large", set(row(), "f", row(), long(VALUE_BYTES_MAX + 1))),
        ("no mutations", RowMutation::new("bad")),
        ("too many mutations", many),
    ] {
        refused(&invalid, what, table.mutate_row(mutation.clone())).await;
        let batch = async { table.mutate_rows(vec![mutation]).await.remove(0) };
        refused(&invalid, what, batch).await;
    }
    let unknown = [ErrorKind::NotFound];
    let half = set(row(), "f", row(), value()).set("nope", "q", None, "v");
    refused(&unknown, "an unknown family", table.mutate_row(half.clone())).await;
    let batch = async { table.mutate_rows(vec![half]).await.remove(0) };
    refused(&unknown, "an unknown family in a batch", batch).await;
    let absent = client.table("absent");
    let mutation = set(row(), "f", row(), value());
    refused(&unknown, "an unknown table", absent.mutate_row(mutation)).await;
    let read = async { absent.get("r").await.map(drop) };
    refused(&unknown, "a read of an unknown table", read).await;
}

async fn bad_schemas(client: &Client) {
    let families =
        |name: &str| vec![NewFamily { name: name.to_owned(), retention: None, aggregate: None }];
    let invalid = [ErrorKind::InvalidArgument];
    for (what, table, family, splits) in [
        ("a table name with a slash", "a/b", "f", vec![]),
        ("no table name", "", "f", vec![]),
        ("a table name too long", &"x".repeat(51), "f", vec![]),
        ("a family name with a space", "new", "f g", vec![]),
        ("a split key too long", "new", "f", vec![Bytes::from(vec![1; ROW_KEY_BYTES_MAX + 1])]),
    ] {
        let families = families(family);
        let create = async { client.create_table(table, &families, &splits).await.map(drop) };
        refused(&invalid, what, create).await;
    }
    let create = async { client.create_table("t", &families("f"), &[]).await.map(drop) };
    refused(&[ErrorKind::AlreadyExists], "a second table of one name", create).await;
    let drop_it = client.drop_table("absent");
    refused(&[ErrorKind::NotFound], "dropping an unknown table", drop_it).await;
}

#[test]
fn bad_input_is_refused_with_its_code_and_changes_nothing() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.expect(&["table", "create", "t", "--family", "f"]);
    server.expect(&["put", "t", "good", "f:q", "kept", "--timestamp", "1000"]);
    let before = server.expect(&["scan", "t", "--output", "json"]);
    Runtime::new().unwrap().block_on(async {
        let client = Client::connect(&server.endpoint, "projects/tepui/instances/dev").await;
        let client = client.unwrap();
        let table = client.table("t");
        bad_writes(&client, &table).await;
        bad_schemas(&client).await;
        let inverted = RowRange { start: "z".into(), end: Some("a".into()) };
        let read = async { table.scan(inverted, None).next().await.map(drop) };
        refused(&[ErrorKind::InvalidArgument], "an inverted range", read).await;
    });
    assert_eq!(server.expect(&["scan", "t", "--output", "json"]), before);
    assert_eq!(server.expect(&["table", "list"]).lines().count(), 3, "a head, a line, the table");
    let long = "r".repeat(ROW_KEY_BYTES_MAX + 1);
    let said = server.run(&["put", "t", &long, "f:q", "v"]);
    assert_eq!((said.status, said.stderr.lines().count()), (1, 1), "{}", said.stderr);
    // Ends well only when no panic was counted.
    server.terminate();
}
