//! Google's own Python client, unmodified, against the real server.

use std::process::Command;

use crate::large;
use crate::tepui::{Server, skip};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/official_client.py");
/// Small enough that what the script writes is flushed in part when the server is killed.
const FLAGS: [&str; 2] = ["--memtable-size=1M", "--log-segment-size=4M"];

/// A Python that has Google's client.
fn python() -> Option<String> {
    let python = std::env::var("TEPUI_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let probe = Command::new(&python).args(["-c", "import google.cloud.bigtable.data"]).output();
    if probe.is_ok_and(|probe| probe.status.success()) {
        return Some(python);
    }
    skip("no Python with google-cloud-bigtable: set TEPUI_TEST_PYTHON");
    None
}

/// Runs one part of the script, which must agree with every answer.
fn drive(python: &str, server: &Server, part: &str) {
    let output = Command::new(python)
        .args([SCRIPT, part])
        .env("BIGTABLE_EMULATOR_HOST", &server.endpoint)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stdout.contains("ok: "), "{part}: {stdout}{stderr}");
    println!("{part}: {stdout}");
}

#[test]
fn the_official_client_reads_what_it_wrote_after_kill_9_and_after_a_stop() {
    let Some(python) = python() else { return };
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &FLAGS);
    drive(&python, &server, "write");
    server.kill();
    let server = Server::start(data.path(), &FLAGS);
    drive(&python, &server, "verify");
    server.terminate();
    let server = Server::start(data.path(), &FLAGS);
    drive(&python, &server, "verify");
    server.terminate();
}

#[test]
fn the_official_client_counts_with_aggregates_and_keeps_few_versions() {
    let Some(python) = python() else { return };
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &FLAGS);
    drive(&python, &server, "count");
    server.kill();
    let server = Server::start(data.path(), &FLAGS);
    drive(&python, &server, "recount");
    server.terminate();
    let server = Server::start(data.path(), &FLAGS);
    drive(&python, &server, "recount");
    server.terminate();
}

/// Under a memory budget that holds two of the cells.
#[test]
fn the_official_client_reads_back_cells_of_100_mib_and_rows_from_the_last_one_back() {
    let Some(python) = python() else { return };
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &large::FLAGS);
    drive(&python, &server, "large");
    large::assert_within_budget(&server);
    server.kill();
    let server = Server::start(data.path(), &large::FLAGS);
    drive(&python, &server, "relarge");
    large::assert_within_budget(&server);
    server.terminate();
}
