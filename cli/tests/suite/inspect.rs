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

#[test]
fn a_whole_folder_is_looked_over_and_every_damaged_file_is_named() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.expect(&["table", "create", "t", "--family", "f", "--split", "m"]);
    server.expect(&["put", "t", "a", "f:q", "value"]);
    server.expect(&["table", "flush", "t"]);
    let folder = data.path().to_str().unwrap();
    let look = || run(&["inspect", "data", folder]);
    let used = look();
    assert_eq!(used.status, 0, "{used:?}");
    assert!(used.stdout.contains("in use by a server"), "{used:?}");
    server.expect(&["put", "t", "n", "f:q", "in the log"]);
    server.kill();

    let before = files(data.path());
    let after_a_kill = look();
    assert_eq!(after_a_kill.status, 0, "{after_a_kill:?}");
    let text = &after_a_kill.stdout;
    assert!(!text.contains("in use"), "{text}");
    for part in
        ["tables/t\n", "range 1 [, m): manifest", "    L", "frames, not closed", ": 0 damaged"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(files(data.path()), before, "it only reads");

    let flip = |file: &Path| {
        let mut content = std::fs::read(file).unwrap();
        let place = content.len() / 2;
        content[place] ^= 1;
        std::fs::write(file, content).unwrap();
    };
    let manifest = find(data.path(), "/ranges/2/manifest-");
    for file in [&find(data.path(), ".sst"), &manifest] {
        flip(file);
        let said = look();
        assert_eq!(said.status, 1, "{said:?}");
        let relative = file.strip_prefix(data.path()).unwrap().to_str().unwrap();
        assert!(said.stdout.contains(&format!("DAMAGED {relative}: ")), "{said:?}");
    }
    assert!(look().stderr.contains("2 of "), "both are told");
    let none = tempfile::tempdir().unwrap();
    assert_eq!(run(&["inspect", "data", none.path().to_str().unwrap()]).status, 1);
}
