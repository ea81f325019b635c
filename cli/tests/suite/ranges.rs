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

/// The numbers of the one range of a table.
fn activity(server: &Server, table: &str) -> serde_json::Value {
    let described = server.expect(&["range", "describe", table, "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&described).unwrap();
    json["activity"].clone()
}

#[test]
fn the_numbers_of_a_range_are_those_of_what_was_done() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.expect(&["table", "create", "t", "--family", "f"]);
    for row in ["a", "c", "e"] {
        server.expect(&["put", "t", row, "f:q", "old", "--timestamp", "1000"]);
    }
    server.expect(&["put", "t", "a", "f:q", "new", "--timestamp", "1000"]);
    let fresh = activity(&server, "t");
    for name in ["flushed_bytes", "row_reads", "keys_read", "blocks_loaded", "merges"] {
        assert_eq!(fresh[name], 0, "{name}: {fresh}");
    }
    for name in ["slowed_writes", "stopped_micros", "files_set_aside", "expired_file_bytes"] {
        assert_eq!(fresh[name], 0, "{name}: {fresh}");
    }
    assert_eq!(fresh["write_amplification"], serde_json::Value::Null);
    assert!(fresh["placed_bytes"].as_u64().unwrap() > 0, "{fresh}");
    server.expect(&["table", "flush", "t"]);
    assert_eq!(server.expect(&["get", "t", "a", "--cell", "f:q"]), "new");
    for absent in ["b", "d", "z"] {
        assert_eq!(server.run(&["get", "t", absent]).status, 1);
    }
    let now = activity(&server, "t");
    assert_eq!(now["row_reads"], 4, "{now}");
    // No file holds keys around z.
    assert_eq!(now["row_tables"], 3, "{now}");
    let absent = ["row_tables_ruled_out", "row_tables_in_vain"].map(|name| now[name].as_u64());
    assert_eq!(absent[0].unwrap() + absent[1].unwrap(), 2, "{now}");
    assert_eq!(now["cells_read"], 1, "{now}");
    assert_eq!(now["write_amplification"], 1.0, "{now}");
    assert!(now["flushed_bytes"] == now["live_bytes"], "{now}");

    let shown = server.expect(&["range", "describe", "t", "a"]);
    for part in ["from (start) to (end)", "row reads", "read amplification"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let wrong = server.run(&["range", "describe", "t", "--id", "99"]);
    assert!(wrong.status == 1 && wrong.stderr.contains("no range 99"), "{wrong:?}");
    assert_eq!(server.run(&["range", "describe", "t", "a", "--id", "1"]).status, 2);
    server.terminate();
}
