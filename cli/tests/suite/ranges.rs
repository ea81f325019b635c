//! Ranges listed, divided, flushed and merged, and rows dropped, from the command line.

use crate::tepui::Server;

/// The ranges of a table as JSON.
fn ranges(server: &Server, table: &str) -> Vec<serde_json::Value> {
    let listed = server.expect(&["range", "list", table, "--output", "json"]);
    listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn rows(server: &Server, table: &str) -> Vec<String> {
    let scanned = server.expect(&["scan", table, "--output", "json"]);
    let row = |line: &str| -> String {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        json["row"].as_str().unwrap().to_owned()
    };
    scanned.lines().map(row).collect()
}

#[test]
fn a_table_is_divided_flushed_and_merged() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.expect(&["table", "create", "t", "--family", "f"]);
    let none = server.expect(&["table", "split", "t"]);
    assert_eq!(none, "nothing to split: no range has two rows to divide it between\n");
    for row in ["a", "b", "c", "d"] {
        server.expect(&["put", "t", row, "f:q", "value"]);
    }
    assert_eq!(server.expect(&["table", "flush", "t"]), "flushed t\n");
    assert_eq!(server.expect(&["table", "split", "t"]), "split at c\n");
    assert_eq!(
        server.expect(&["table", "split", "t", "b", "x\\x00"]),
        "split at b\nsplit at x\\x00\n"
    );
    let again = server.expect(&["table", "split", "t", "b"]);
    assert_eq!(again, "nothing to split: it is divided there already\n");
    let listed = ranges(&server, "t");
    let ends: Vec<_> = listed.iter().map(|range| range["to"].as_str()).collect();
    assert_eq!(ends, [Some("b"), Some("c"), Some("x\\x00"), None]);
    assert!(listed[0]["bytes"].as_u64().unwrap() > 0 && listed[0]["sorted_runs"] == 1);
    assert!(server.expect(&["range", "list", "t"]).contains("(end)"));
    server.expect(&["put", "t", "a", "f:q", "newer"]);
    let merged = server.expect(&["table", "compact", "t"]);
    assert_eq!(merged.lines().count(), 4, "{merged}");
    assert!(
        merged.starts_with("merged range ") && merged.contains("from (start) to b"),
        "{merged}"
    );
    assert_eq!(rows(&server, "t"), ["a", "b", "c", "d"]);
    server.kill();
    let server = Server::start(data.path(), &[]);
    assert_eq!(rows(&server, "t"), ["a", "b", "c", "d"]);
    assert_eq!(ranges(&server, "t").len(), 4);
    let absent = server.run(&["range", "list", "absent"]);
    assert_eq!(absent.status, 1);
    assert!(absent.stderr.contains("not found"), "{}", absent.stderr);
    server.terminate();
}

#[test]
fn rows_are_dropped_when_one_is_sure_and_stay_dropped() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.expect(&["table", "create", "t", "--family", "f", "--split", "ab"]);
    for row in ["aa", "ab", "b"] {
        server.expect(&["put", "t", row, "f:q", "value"]);
    }
    let unsure = server.run(&["rows", "drop", "t", "--prefix", "a"]);
    assert_eq!(unsure.status, 1);
    assert!(unsure.stderr.contains("say --yes"), "{}", unsure.stderr);
    let empty = server.run(&["rows", "drop", "t", "--prefix", "", "--yes"]);
    assert!(empty.status == 1 && empty.stderr.contains("--all"), "{}", empty.stderr);
    assert_eq!(server.run(&["rows", "drop", "t", "--yes"]).status, 2);
    assert_eq!(rows(&server, "t").len(), 3);
    let dropped = server.expect(&["rows", "drop", "t", "--prefix", "a", "--yes"]);
    assert_eq!(dropped, "dropped the rows of t that begin with a\n");
    assert_eq!(rows(&server, "t"), ["b"]);
    server.expect(&["put", "t", "ab", "f:q", "again", "--timestamp", "0"]);
    server.kill();
    let server = Server::start(data.path(), &[]);
    assert_eq!(rows(&server, "t"), ["ab", "b"]);
    server.expect(&["rows", "drop", "t", "--all", "--yes"]);
    assert_eq!(rows(&server, "t"), [""; 0]);
    server.terminate();
}
