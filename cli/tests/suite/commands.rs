//! Commands, their flags, their output and their exit codes.

use std::path::{Path, PathBuf};

use crate::tepui::{Server, run};

#[test]
fn wrong_usage_ends_with_two_and_says_what_is_right() {
    for arguments in [
        &[][..],
        &["nonsense"],
        &["get", "t"],
        &["put", "t", "r", "no-column", "v"],
        &["put", "t", "r", "f:q"],
        &["put", "t", "r", "f:q", "v", "--file", "x"],
        &["get", "t", "bad\\escape"],
        &["table", "create", "t", "--family", "f:keep"],
        &["scan", "t", "--prefix", "a", "--start", "b"],
        &["scan", "t", "--output", "xml"],
        &["dev", "--memory-budget", "lots"],
    ] {
        let said = run(arguments);
        assert_eq!(said.status, 2, "{arguments:?}: {said:?}");
        assert!(said.stdout.is_empty());
        assert!(said.stderr.contains("Usage:") || said.stderr.contains("error:"), "{said:?}");
    }
}

#[test]
fn help_has_examples() {
    for command in [&["put"][..], &["get"], &["scan"], &["table", "create"], &["inspect", "wal"]] {
        let said = run(&[command, &["--help"]].concat());
        assert_eq!(said.status, 0);
        assert!(said.stdout.contains("Example"), "{}", said.stdout);
    }
    let said = run(&["--version"]);
    assert!(said.stdout.starts_with("tepui "), "{}", said.stdout);
}

#[test]
fn an_error_ends_with_one_and_a_line_on_standard_error() {
    let said = run(&["get", "t", "r", "--endpoint", "127.0.0.1:1"]);
    assert_eq!((said.status, said.stdout.as_str()), (1, ""));
    assert!(said.stderr.starts_with("error: cannot connect to 127.0.0.1:1: "), "{}", said.stderr);
    assert_eq!(said.stderr.lines().count(), 1);
    let said = run(&["inspect", "wal", "/nowhere/at-all.log"]);
    assert_eq!(said.status, 1);
    assert!(said.stderr.starts_with("error: cannot read /nowhere/at-all.log"), "{}", said.stderr);
}

#[test]
fn flags_with_one_dash_and_hosts_in_brackets_start_a_server() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["-host", "[127.0.0.1]", "-port=0"]);
    assert!(server.endpoint.starts_with("127.0.0.1:"), "{}", server.endpoint);
    server.expect(&["table", "list"]);
    server.terminate();
}

#[test]
fn tables_are_created_listed_described_and_dropped() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let created = server.expect(&[
        "table",
        "create",
        "users",
        "--family",
        "profile",
        "--family",
        "log:maxversions=3 or maxage=7d",
        "--family",
        "visits:sum",
        "--split",
        "m",
        "--split",
        "t\\x00",
    ]);
    assert_eq!(created, "created users\n");
    server.expect(&["table", "create", "other", "--family", "f"]);
    assert_eq!(
        server.expect(&["table", "list", "--output", "json"]),
        "{\"table\":\"other\"}\n{\"table\":\"users\"}\n"
    );
    let again = server.run(&["table", "create", "users"]);
    assert_eq!(again.status, 1);
    assert!(again.stderr.starts_with("error: "), "{}", again.stderr);

    let described = server.expect(&["table", "describe", "users"]);
    for part in [
        "projects/tepui/instances/dev/tables/users",
        "maxversions=3 or maxage=7d",
        "(end)",
        "visits   sum",
    ] {
        assert!(described.contains(part), "{described}");
    }
    let described = server.expect(&["table", "describe", "users", "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&described).unwrap();
    assert_eq!(json["families"][0]["family"], "log");
    assert_eq!(json["families"][1]["drop_when"], serde_json::Value::Null);
    assert_eq!(json["families"][1]["aggregate"], serde_json::Value::Null);
    assert_eq!(json["families"][2]["aggregate"], "sum");
    let ends: Vec<_> = json["ranges"].as_array().unwrap().iter().map(|r| &r["to"]).collect();
    assert_eq!(ends, ["m", "t\\x00", ""]);

    server.expect(&["table", "drop", "users"]);
    assert_eq!(server.run(&["table", "describe", "users"]).status, 1);
    assert_eq!(server.run(&["get", "users", "r"]).status, 1);
    server.terminate();
}

#[test]
fn cells_are_written_and_read() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.expect(&["table", "create", "t", "--family", "f", "--family", "g"]);
    let put = |row: &str, column: &str, rest: &[&str]| {
        server.expect(&[&["put", "t", row, column][..], rest].concat());
    };
    put("a\\x00", "f:q", &["one", "--timestamp", "1000000"]);
    put("a\\x00", "f:q", &["two", "--timestamp", "2000000"]);
    put("a\\x00", "g:\\xff", &["-dash", "--timestamp", "0"]);
    put("b", "f:", &["x", "--timestamp", "0"]);
    put("c", "f:now", &["x"]);
    let file = data.path().with_extension("value");
    write(&file, &[0, 255, b'\n']);
    put("file", "f:q", &["--file", file.to_str().unwrap()]);

    assert_eq!(
        server.expect(&["get", "t", "a\\x00"]),
        "a\\x00\n  f:q     1970-01-01T00:00:02.000Z  two\n  \
         f:q     1970-01-01T00:00:01.000Z  one\n  \
         g:\\xff  1970-01-01T00:00:00.000Z  -dash\n"
    );
    assert_eq!(server.expect(&["get", "t", "a\\x00", "--cell", "f:q"]), "two");
    let json = server.expect(&["get", "t", "file", "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["cells"][0]["value"], "\\x00\\xff\\x0a");

    let rows = |arguments: &[&str]| {
        let said = server.expect(&[&["scan", "t", "--output", "json"], arguments].concat());
        let row = |line: &str| -> String {
            let json: serde_json::Value = serde_json::from_str(line).unwrap();
            json["row"].as_str().unwrap().to_owned()
        };
        said.lines().map(row).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(rows(&[]), "a\\x00 b c file");
    assert_eq!(rows(&["--limit", "2"]), "a\\x00 b");
    assert_eq!(rows(&["--prefix", "f"]), "file");
    assert_eq!(rows(&["--start", "a\\x00\\x00", "--end", "c"]), "b");

    let missing = server.run(&["get", "t", "none"]);
    assert_eq!((missing.status, missing.stderr.as_str()), (1, "error: table t has no row none\n"));
    let unknown = server.run(&["put", "t", "a", "h:q", "v"]);
    assert_eq!(unknown.status, 1);
    server.terminate();
    remove(&file);
}

#[test]
fn what_was_acknowledged_survives_kill_9_and_its_files_can_be_inspected() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.expect(&["table", "create", "t", "--family", "f"]);
    server.expect(&["put", "t", "r", "f:q", "kept", "--timestamp", "1000"]);
    let log = find(data.path(), ".log", "wal").expect("a log");
    let shown = run(&["inspect", "wal", log.to_str().unwrap()]);
    assert_eq!(shown.status, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("frame"), "{}", shown.stdout);
    server.kill();

    let server = Server::start(data.path(), &[]);
    assert_eq!(server.expect(&["get", "t", "r", "--cell", "f:q"]), "kept");
    server.terminate();
    let table = find(data.path(), ".sst", "tables").expect("a sorted file");
    let shown = run(&["inspect", "sstable", table.to_str().unwrap(), "--blocks", "--cells"]);
    assert_eq!(shown.status, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("kept"), "{}", shown.stdout);
    let manifest = find(data.path(), "", "ranges").expect("a manifest");
    let shown = run(&["inspect", "manifest", manifest.to_str().unwrap()]);
    assert_eq!(shown.status, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("manifest"), "{}", shown.stdout);

    let wrong = run(&["inspect", "manifest", table.to_str().unwrap()]);
    assert_eq!(wrong.status, 1, "{}", wrong.stdout);
    let wrong = run(&["inspect", "sstable", manifest.to_str().unwrap()]);
    assert_eq!(wrong.status, 1, "{}", wrong.stdout);
}

/// The last file under `folder` whose path has `part` in it and ends with `suffix`.
#[expect(clippy::disallowed_methods, reason = "the test looks at the server's files from outside")]
fn find(folder: &Path, suffix: &str, part: &str) -> Option<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.retain(|path| {
        let text = path.to_str().unwrap();
        text.ends_with(suffix) && text.contains(&format!("/{part}/"))
    });
    found.sort();
    found.pop()
}

#[expect(clippy::disallowed_methods, reason = "the test makes a file for the command to read")]
fn write(path: &Path, content: &[u8]) {
    std::fs::write(path, content).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "the test removes the file it made")]
fn remove(path: &Path) {
    std::fs::remove_file(path).unwrap();
}
