//! Folders that cannot be used, and a disk that fills up.
//!
//! What needs a file system of its own runs in a user and mount namespace: the test starts itself
//! again inside one, so that nothing stays mounted and nobody need be root.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use client::{Client, Table};
use env::Env;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use tokio::runtime::Runtime;
use types::{ErrorKind, RowRange, Timestamp};

use crate::tepui::{Process, Said, Server, skip};

const INSIDE: &str = "TEPUI_TEST_INSIDE_NAMESPACE";
const DISK: &str = "size=24m";
const BALLAST_BYTES: usize = 10 << 20;
const VALUE_BYTES: usize = 96 << 10;
/// How long it may take until writes are accepted again.
const RECOVERY_MAX: Duration = Duration::from_secs(60);
const FLAGS: [&str; 4] =
    ["--memtable-size=512K", "--log-segment-size=512K", "--log-size=2M", "--memory-budget=64M"];

/// Runs `body` where file systems can be mounted; `test` is the calling test's own name.
fn in_namespace(test: &str, body: impl FnOnce()) {
    if std::env::var(INSIDE).is_ok_and(|inside| inside == test) {
        return body();
    }
    let folder = tempfile::tempdir().unwrap();
    let mount = ["-Urm", "mount", "-t", "tmpfs", "none"];
    let probe = Command::new("unshare").args(mount).arg(folder.path()).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        return skip("no right to mount a file system in a namespace of one's own");
    }
    let output = Command::new("unshare")
        .arg("-Urm")
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, test)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    println!("{said}");
}

fn mount(options: &str, at: &Path) {
    let options = ["-t", "tmpfs", "-o", options, "none"];
    let mounted = Command::new("mount").args(options).arg(at).status();
    assert!(mounted.unwrap().success());
}

/// Starts a server that must refuse; returns what it said, after checking its manners.
fn refusal(data: &Path) -> String {
    let Said { status, stdout, stderr } = Process::start(data, &[]).ended();
    assert_eq!((status, stdout.as_str()), (1, ""), "{stderr}");
    let mut errors = stderr.lines().filter(|line| line.starts_with("error: "));
    let error = errors.next().expect("an error line");
    assert_eq!(errors.next(), None, "one line says it all");
    assert!(error.contains(data.to_str().unwrap()), "it names the folder: {error}");
    error.to_owned()
}

/// Every file under `folder` with its content.
#[expect(clippy::disallowed_methods, reason = "the test looks at the server's files from outside")]
fn tree(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        if path.is_dir() {
            found.push((name, Vec::new()));
            found.extend(tree(&path));
        } else {
            found.push((name, std::fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

#[expect(clippy::disallowed_methods, reason = "the test makes files that are in the way")]
fn write(path: &Path, content: &[u8]) {
    std::fs::write(path, content).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "the test removes a file that it made")]
fn remove(path: &Path) {
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_folder_in_use_is_refused_and_its_user_goes_on() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.expect(&["table", "create", "t", "--family", "f"]);
    let error = refusal(data.path());
    let holder = format!("in use by another process (pid {})", server.process.id());
    assert!(error.contains(&holder), "{error}");
    server.expect(&["put", "t", "r", "f:q", "v"]);
    assert_eq!(server.expect(&["get", "t", "r", "--cell", "f:q"]), "v");
    server.terminate();
}

#[test]
fn a_folder_of_a_newer_format_is_refused_and_left_as_it_was() {
    let data = tempfile::tempdir().unwrap();
    Server::start(data.path(), &[]).terminate();
    let version = data.path().join("VERSION");
    let text = std::fs::read_to_string(&version).unwrap();
    write(&version, text.replace("format 1\n", "format 7\n").as_bytes());
    let before = tree(data.path());
    let error = refusal(data.path());
    assert!(error.contains("format 7, made by a newer program"), "{error}");
    assert!(tree(data.path()) == before);
    write(&version, text.as_bytes());
    Server::start(data.path(), &[]).terminate();
}

#[test]
fn a_folder_with_other_files_is_refused_and_left_as_it_was() {
    let data = tempfile::tempdir().unwrap();
    write(&data.path().join("letter.txt"), b"dear reader");
    let before = tree(data.path());
    let error = refusal(data.path());
    assert!(error.contains("is not a data folder of Tepui: it holds \"letter.txt\""), "{error}");
    assert!(tree(data.path()) == before);
}

#[test]
fn a_read_only_folder_is_refused_and_left_as_it_was() {
    in_namespace("weather::a_read_only_folder_is_refused_and_left_as_it_was", || {
        let data = tempfile::tempdir().unwrap();
        mount(DISK, data.path());
        let server = Server::start(data.path(), &FLAGS);
        server.expect(&["table", "create", "t", "--family", "f"]);
        server.expect(&["put", "t", "r", "f:q", "v"]);
        server.kill();
        let before = tree(data.path());
        mount_again("remount,ro", data.path());
        let error = refusal(data.path());
        assert!(error.to_lowercase().contains("read-only"), "{error}");
        assert!(tree(data.path()) == before);
        mount_again("remount,rw", data.path());
        let server = Server::start(data.path(), &FLAGS);
        assert_eq!(server.expect(&["get", "t", "r", "--cell", "f:q"]), "v");
        server.terminate();
    });
}

fn mount_again(options: &str, at: &Path) {
    let mounted = Command::new("mount").args(["-o", options]).arg(at).status();
    assert!(mounted.unwrap().success());
}

fn value(number: u64) -> Vec<u8> {
    let mut value = vec![0; VALUE_BYTES];
    StdRng::seed_from_u64(number).fill_bytes(&mut value);
    value
}

fn row(number: u64) -> String {
    format!("row{number:05}")
}

async fn put(table: &Table, number: u64) -> Result<(), client::Error> {
    let at = Timestamp::from_micros(1000).unwrap();
    table.put(row(number), "f", "q", Some(at), value(number)).await
}

/// Every acknowledged row is there; no other but the last one that was tried may be.
async fn verify(table: &Table, acknowledged: &[u64], tried: u64) {
    let mut scan = table.scan(RowRange::prefix(&"row".into()), None);
    let mut numbers = Vec::new();
    while let Some(stored) = scan.next().await.unwrap() {
        let number = (0..=tried).find(|number| stored.key == row(*number)).unwrap();
        assert!(stored.cell("f", b"q").unwrap().value == value(number), "row {number}");
        numbers.push(number);
    }
    assert_eq!(numbers, acknowledged);
}

async fn connect(server: &Server) -> Table {
    let client = Client::connect(&server.endpoint, "projects/tepui/instances/dev").await;
    client.unwrap().table("t")
}

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_recovers_unaided() {
    let test = "weather::a_full_disk_refuses_writes_serves_reads_and_recovers_unaided";
    in_namespace(test, || {
        let disk = tempfile::tempdir().unwrap();
        mount(DISK, disk.path());
        let (data, ballast) = (disk.path().join("data"), disk.path().join("ballast"));
        write(&ballast, &vec![1; BALLAST_BYTES]);
        let server = Server::start(&data, &FLAGS);
        server.expect(&["table", "create", "t", "--family", "f"]);
        Runtime::new().unwrap().block_on(fill_and_free(server, &data, &ballast));
    });
}

async fn fill_and_free(server: Server, data: &Path, ballast: &Path) {
    let table = connect(&server).await;
    let mut acknowledged = Vec::new();
    let mut refused = 0;
    let mut next = 0;
    while refused < 3 {
        assert!(next < 1000, "the disk never filled up");
        match put(&table, next).await {
            Ok(()) => acknowledged.push(next),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
                println!("refused after {} rows: {error}", acknowledged.len());
                refused += 1;
            }
        }
        next += 1;
    }
    // A write that was refused has changed nothing.
    verify(&table, &acknowledged, next).await;

    remove(ballast);
    let env = Env::system();
    let freed = env.monotonic();
    // What waits in memory is written out first; a write may be refused until then.
    for number in next..next + 5 {
        while let Err(error) = put(&table, number).await {
            assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
            assert!(env.monotonic() - freed < RECOVERY_MAX, "it did not recover: {error}");
        }
        acknowledged.push(number);
    }
    println!("recovered {:?} after space was freed", env.monotonic() - freed);
    verify(&table, &acknowledged, next + 5).await;
    server.kill();
    let server = Server::start(data, &FLAGS);
    verify(&connect(&server).await, &acknowledged, next + 5).await;
    server.terminate();
}
