//! `tepui inspect`: every kind of file of a data folder as text, and damage without a panic.
#![expect(clippy::disallowed_methods, reason = "the test looks at the server's files from outside")]

use std::path::{Path, PathBuf};

use crate::tepui::{Said, Server, run};

/// All files under `folder`, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

/// The last file whose path has `part` in it.
fn find(folder: &Path, part: &str) -> PathBuf {
    let found = files(folder).into_iter().rfind(|path| path.to_str().unwrap().contains(part));
    found.unwrap_or_else(|| panic!("no file with {part} in its path"))
}

fn inspect(kind: &str, file: &Path, more: &[&str]) -> Said {
    run(&[&["inspect", kind, file.to_str().unwrap()], more].concat())
}

fn shown(kind: &str, file: &Path, more: &[&str]) -> String {
    let said = inspect(kind, file, more);
    assert_eq!(said.status, 0, "{said:?}");
    said.stdout
}

#[test]
fn what_the_log_and_the_coordinator_hold_is_shown_in_words() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.expect(&["table", "create", "t", "--family", "f:maxversions=3", "--split", "m"]);
    server.expect(&["put", "t", "ra", "f:q", "some value", "--timestamp", "1000"]);
    server.expect(&["rows", "drop", "t", "--prefix", "rb", "--yes"]);
    // In use: it only reads.
    let log = find(data.path(), "/wal/");
    let text = shown("wal", &log, &["--cells"]);
    assert!(text.contains("ra f1:q @1000us #1 PUT = \"some value\""), "{text}");
    assert!(text.contains("    rows [rb, rc)"), "{text}");
    assert!(!shown("wal", &log, &[]).contains("some value"));

    let is_log = |path: &PathBuf| {
        let text = path.to_str().unwrap();
        text.contains("/coordination/") && text.ends_with(".log")
    };
    let log = files(data.path()).into_iter().find(is_log).unwrap();
    let records = shown("coordination", &log, &[]);
    for part in ["put /next-ids = next table", "enabled", "drops MaxVersions(3)", "rows [m, end)"] {
        assert!(records.contains(part), "{part}: {records}");
    }
    server.kill();

    // Another start seals the log, and a clean stop leaves a snapshot alone.
    let server = Server::start(data.path(), &[]);
    let version = shown("version", &data.path().join("VERSION"), &[]);
    assert!(version.starts_with("tepui data folder, format 1\nid "), "{version}");
    server.terminate();
    let snapshot = find(data.path(), "/coordination/snapshot-");
    let text = shown("coordination", &snapshot, &[]);
    for part in
        ["closed: no log continues it", "; family f1 \"f\" drops MaxVersions(3)", "[m, end)"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn damaged_files_are_refused_with_what_is_wrong() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.expect(&["table", "create", "t", "--family", "f"]);
    server.expect(&["put", "t", "r", "f:q", "value"]);
    server.terminate();
    let other = tempfile::tempdir().unwrap();
    let damaged = |file: &Path, change: &dyn Fn(&mut Vec<u8>)| -> PathBuf {
        let mut content = std::fs::read(file).unwrap();
        change(&mut content);
        let copy = other.path().join(file.file_name().unwrap());
        std::fs::write(&copy, content).unwrap();
        copy
    };
    let flips = |kind: &str, file: &Path| {
        let len = std::fs::read(file).unwrap().len();
        for place in [0, len / 3, len / 2, len - 1] {
            let said = inspect(kind, &damaged(file, &|content| content[place] ^= 4), &[]);
            assert_eq!(said.status, 1, "{kind} at {place}: {said:?}");
            assert!(said.stderr.starts_with("error: "), "{said:?}");
        }
        let said = inspect(kind, &damaged(file, &|content| content.truncate(len / 2)), &[]);
        assert_eq!(said.status, 1, "{said:?}");
        let said = inspect(kind, &damaged(file, &Vec::clear), &[]);
        assert_eq!(said.status, 1, "{said:?}");
    };
    flips("coordination", &find(data.path(), "/coordination/snapshot-"));
    flips("manifest", &find(data.path(), "/manifest-"));
    let renamed = other.path().join("snapshot-00000000000000000099");
    std::fs::copy(find(data.path(), "/coordination/snapshot-"), &renamed).unwrap();
    let said = inspect("coordination", &renamed, &[]);
    assert!(said.status == 1 && said.stderr.contains("not that of its name"), "{said:?}");
    let version = data.path().join("VERSION");
    for text in ["", "something else\n", "tepui data folder, format 1\nid zz\n"] {
        let file = damaged(&version, &|content| *content = text.as_bytes().to_vec());
        assert_eq!(inspect("version", &file, &[]).status, 1, "{text:?}");
    }
    let newer = damaged(&version, &|content| {
        *content = b"tepui data folder, format 9\nid 0\n".to_vec();
    });
    let said = inspect("version", &newer, &[]);
    assert!(said.status == 1 && said.stderr.contains("format 9"), "{said:?}");

    let sealed = other.path().join("SEALED");
    for text in ["", "tepui sealed log 1\n", "tepui sealed log 1\nxxh3 0000000000000000\n"] {
        std::fs::write(&sealed, text).unwrap();
        let said = inspect("sealed", &sealed, &[]);
        assert!(said.status == 1 && said.stderr.contains("checksum"), "{said:?}");
    }
}
