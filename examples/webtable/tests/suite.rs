//! The whole example against a real server: loads, asks, is counted again independently.
//!
//! The server's binary is the one beside this example's, which `cargo test --workspace` builds.
//! What is missing here (the binary, Python with Google's client) is said loudly and skipped, or
//! fails with `TEPUI_NO_SKIP=1`.
#![expect(clippy::unwrap_used, reason = "a test that meets an error fails")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const WEBTABLE: &str = env!("CARGO_BIN_EXE_webtable");
const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/pages");
const CHECK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/check.py");
/// Pages of the toolchain's documentation that are checked where it is there.
const CHECKED_PAGES: &str = "400";

/// A server over a folder of its own; killed when it is dropped.
struct Server {
    child: Child,
    endpoint: String,
    _data: tempfile::TempDir,
}

impl Server {
    fn start(binary: &Path) -> Server {
        let data = tempfile::tempdir().unwrap();
        let mut child = Command::new(binary)
            .args(["dev", "--port", "0", "--data"])
            .arg(data.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (_, endpoint) = line.trim_end().rsplit_once(" running on ").expect("a ready line");
        Server { endpoint: endpoint.to_owned(), child, _data: data }
    }

    /// Runs a command of the example that must succeed, and returns what it printed.
    fn webtable(&self, arguments: &[&str]) -> String {
        let output = Command::new(WEBTABLE)
            .env("TEPUI_ENDPOINT", &self.endpoint)
            .args(arguments)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Counts again; the answer is whether everything agrees, and what was said.
    fn check(&self, python: &str, arguments: &[&str]) -> (bool, String) {
        let output = Command::new(python)
            .arg(CHECK)
            .args(arguments)
            .env("BIGTABLE_EMULATOR_HOST", &self.endpoint)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says that a test cannot run here.
fn skip(why: &str) {
    assert!(std::env::var("TEPUI_NO_SKIP").is_err(), "may not be skipped: {why}");
    eprintln!("SKIPPED: {why}");
}

/// The server's binary.
fn tepui() -> Option<PathBuf> {
    let binary = Path::new(WEBTABLE).with_file_name("tepui");
    if binary.is_file() {
        return Some(binary);
    }
    skip("the server is not built: run `cargo test --workspace`");
    None
}

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

/// The toolchain's documentation, where it is installed.
fn rust_pages() -> Option<String> {
    let answer = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
    let sysroot = String::from_utf8(answer.stdout).unwrap();
    let pages = format!("{}/share/doc/rust/html", sysroot.trim());
    Path::new(&pages).is_dir().then_some(pages)
}

#[test]
fn the_small_tree_is_loaded_and_answers_the_three_questions() {
    let Some(binary) = tepui() else { return };
    let server = Server::start(&binary);
    let loaded = server.webtable(&["load", PAGES]);
    assert!(loaded.contains("25 pages"), "{loaded}");

    let base = ["--base", "https://docs.example/"];
    let links = server.webtable(&[&["links-to", "water/angel-falls.html"][..], &base].concat());
    assert!(links.starts_with("3 pages link to example.docs/water/angel-falls.html"), "{links}");
    assert!(links.contains("example.docs/water/kukenan-falls.html    Angel Falls"), "{links}");

    let top = server.webtable(&["top", "--count", "3"]);
    let lines: Vec<&str> = top.lines().collect();
    // Every page links to these in its head, but the one old page that has none.
    assert!(lines[2].starts_with("24     example.docs/"), "{top}");
    assert_eq!(lines.len(), 2 + 3 + 1, "{top}");

    let scanned = server.webtable(&[&["scan", "rock/"][..], &base].concat());
    assert!(scanned.contains("example.docs/rock/a closer look.html"), "{scanned}");
    assert!(scanned.contains("example.docs/rock/100%.html           no page"), "{scanned}");
    assert!(scanned.contains("5 rows under example.docs/rock/"), "{scanned}");
}

#[test]
fn an_independent_count_agrees_cell_by_cell_and_sees_a_changed_cell() {
    let (Some(binary), Some(python)) = (tepui(), python()) else { return };
    let server = Server::start(&binary);
    server.webtable(&["load", PAGES]);
    let (agrees, said) = server.check(&python, &[PAGES]);
    assert!(agrees && said.contains(" 0 differences"), "{said}");
    // The same pages again are the same cells.
    server.webtable(&["load", PAGES]);
    let (agrees, said) = server.check(&python, &[PAGES]);
    assert!(agrees, "{said}");

    let cell = ["put", "webtable", "example.docs/about.html", "anchor:example.docs/x.html", "x"];
    let put = Command::new(&binary).args(cell).args(["--endpoint", &server.endpoint]).status();
    assert!(put.unwrap().success());
    let (agrees, said) = server.check(&python, &[PAGES]);
    assert!(!agrees && said.contains(" 1 differences"), "{said}");
}

#[test]
fn an_independent_count_of_real_pages_agrees_cell_by_cell() {
    let (Some(binary), Some(python)) = (tepui(), python()) else { return };
    let Some(pages) = rust_pages() else {
        // The small tree was checked above: an installation choice, not a gap.
        eprintln!("SKIPPED: the toolchain has no documentation");
        return;
    };
    let server = Server::start(&binary);
    let loaded = server.webtable(&["load", &pages, "--limit", CHECKED_PAGES]);
    let (agrees, said) = server.check(&python, &[&pages, "--limit", CHECKED_PAGES]);
    assert!(agrees, "{said}");
    println!("{loaded}{said}");
}

#[test]
fn the_demonstration_survives_its_own_kill() {
    let Some(binary) = tepui() else { return };
    let data = tempfile::tempdir().unwrap();
    let output = Command::new(WEBTABLE)
        .args(["demo", PAGES, "--data"])
        .arg(data.path())
        .arg("--tepui")
        .arg(binary)
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    let answers = stdout.matches("pages link to example.docs/about.html").count();
    assert_eq!(answers, 2, "{stdout}");
}
