//! Locality groups and scrubs, from the command line down to the files.

use std::path::{Path, PathBuf};

use crate::tepui::Server;

/// The sorted files of a data folder's first table.
#[expect(clippy::disallowed_methods, reason = "a test looks at the files that a server wrote")]
fn tables(data: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(data.join("tables/1/files")).unwrap();
    let mut files: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[expect(clippy::disallowed_methods, reason = "a test damages a file that a server wrote")]
fn flip(file: &Path, place: usize) {
    let mut content = std::fs::read(file).unwrap();
    content[place] ^= 1;
    std::fs::write(file, content).unwrap();
}

#[test]
fn families_of_a_group_have_files_of_their_own_and_a_scrub_finds_a_flipped_byte() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let create = ["table", "create", "t", "--family", "a", "--family", "b"];
    let group = ["--group", "hot=a,in-memory,compression:none"];
    server.expect(&[&create[..], &group].concat());
    server.expect(&["put", "t", "r", "a:q", "x"]);
    server.expect(&["put", "t", "r", "b:q", "y"]);
    let described = server.expect(&["table", "describe", "t"]);
    assert!(described.contains("locality group") && described.contains("hot"), "{described}");
    assert!(described.contains("in-memory,compression:none"), "{described}");
    server.terminate();
    let files = tables(data.path());
    assert_eq!(files.len(), 2, "{files:?}");

    let server = Server::start(data.path(), &[]);
    assert!(server.expect(&["get", "t", "r"]).contains('y'));
    let said = server.expect(&["table", "scrub", "t"]);
    assert!(said.starts_with("read ") && said.ends_with(" 0 damaged\n"), "{said}");
    flip(&files[1], 3);
    let said = server.run(&["table", "scrub", "t"]);
    assert_eq!(said.status, 1, "{said:?}");
    let name = files[1].file_name().unwrap().to_str().unwrap();
    assert!(said.stdout.contains(name) && said.stdout.contains("offset"), "{said:?}");
    assert!(said.stderr.contains("1 of "), "{said:?}");
    let said = server.run(&["table", "scrub", "t", "--output", "json"]);
    assert!(said.stdout.contains("\"damaged\":1"), "{said:?}");

    let refused = server.run(&["table", "alter", "t", "--group", "hot=nothing"]);
    assert_eq!(refused.status, 1);
    assert!(refused.stderr.contains("nothing"), "{refused:?}");
    let create = ["table", "create", "u", "--family", "a", "--group", "hot=nothing"];
    let refused = server.run(&create);
    assert_eq!(refused.status, 1);
    assert!(refused.stderr.contains("nothing"), "{refused:?}");
    let tables = server.expect(&["table", "list"]);
    assert!(!tables.contains('u'), "a table whose groups are refused is not created: {tables}");
    server.expect(&["table", "alter", "t", "--no-groups"]);
    let described = server.expect(&["table", "describe", "t", "--output", "json"]);
    assert!(described.contains("\"groups\":[]"), "{described}");
    server.kill();
}
