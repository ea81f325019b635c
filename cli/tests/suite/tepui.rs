//! Runs `tepui`: commands that end, and a server that is stopped.
//!
//! A server's standard error is read as it comes, so that a test can act on an event while it
//! lasts. Whoever ends a server through this module also claims that nothing in it panicked.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use env::Env;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_tepui");

/// How long a server may take for anything that it shall do by itself, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a command said and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        Said {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// A command whose settings do not depend on who runs the tests.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    for name in ["TEPUI_ENDPOINT", "BIGTABLE_EMULATOR_HOST", "TEPUI_DATA", "TEPUI_LOG"] {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1").args(arguments);
    command
}

/// Runs a command that needs no server.
pub(crate) fn run(arguments: &[&str]) -> Said {
    command(arguments).output().unwrap().into()
}

/// Says loudly that a test cannot run here; fails where `TEPUI_NO_SKIP` is set.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("TEPUI_NO_SKIP").is_none(), "may not be skipped: {why}");
    announce(&format!("SKIPPED: {why}"));
}

/// Says something that is seen although the test passes: what `println` writes is not.
pub(crate) fn announce(what: &str) {
    std::io::stderr().write_all(format!("{what}\n").as_bytes()).unwrap();
}

/// The lines that a process has written to its standard error.
#[derive(Default)]
struct Lines {
    read: Mutex<Vec<String>>,
    news: Condvar,
}

impl Lines {
    fn follow(&self, stderr: impl Read) {
        for line in BufReader::new(stderr).split(b'\n') {
            let line = String::from_utf8_lossy(&line.unwrap()).into_owned();
            self.read.lock().unwrap().push(line);
            self.news.notify_all();
        }
    }
}

/// What was under way in a server, told by the events on its standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnderWay {
    /// A flush, not yet at its manifest.
    pub(crate) flush: bool,
    /// A merge, not yet at its manifest.
    pub(crate) compaction: bool,
    /// The commit of a manifest.
    pub(crate) manifest: bool,
    /// The recovery of what a former process left.
    pub(crate) recovery: bool,
}

/// The name of the event that `line` tells, if it tells one, and the range that it happened in.
fn event(line: &str) -> Option<(&str, &str)> {
    let (_, told) = line.split_once(" events: ")?;
    let name = told.split_whitespace().next()?;
    let range = told.rsplit_once("range=").map_or("", |(_, range)| range.trim());
    Some((name, range))
}

/// What had begun and not ended when the last of `lines` was written.
pub(crate) fn under_way(lines: &[String]) -> UnderWay {
    let mut open: BTreeMap<&str, UnderWay> = BTreeMap::new();
    for (name, range) in lines.iter().filter_map(|line| event(line)) {
        let here = open.entry(range).or_default();
        match name {
            "flush_started" => here.flush = true,
            "compaction_started" => here.compaction = true,
            "manifest_started" => here.manifest = true,
            "manifest_committed" => here.manifest = false,
            "recovery_started" => here.recovery = true,
            "recovery_done" => here.recovery = false,
            "flush_finished" | "flush_failed" => (here.flush, here.manifest) = (false, false),
            "compaction_finished" | "compaction_failed" => {
                (here.compaction, here.manifest) = (false, false);
            }
            _ => {}
        }
    }
    let any = |what: fn(&UnderWay) -> bool| open.values().any(what);
    UnderWay {
        flush: any(|range| range.flush && !range.manifest),
        compaction: any(|range| range.compaction && !range.manifest),
        manifest: any(|range| range.manifest),
        recovery: any(|range| range.recovery),
    }
}

/// A process `tepui dev` of which nothing is known yet; killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
    lines: Arc<Lines>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts it over `data`, on a free port unless `flags` say another.
    pub(crate) fn start(data: &Path, flags: &[&str]) -> Process {
        let port_is_set = flags.iter().any(|flag| flag.contains("port") || flag.contains("addr"));
        let mut child = command(&["dev"])
            .args(if port_is_set { &[][..] } else { &["--port", "0"] })
            .args(flags)
            .arg("--data")
            .arg(data)
            .env("TEPUI_LOG", "info,events=debug")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = child.stderr.take().unwrap();
        let lines = Arc::new(Lines::default());
        let followed = Arc::clone(&lines);
        let reader = Env::system().spawn_thread("stderr", move || followed.follow(stderr));
        Process { child, stdout, lines, reader: Some(reader.unwrap()) }
    }

    /// Waits until it is ready to serve.
    pub(crate) fn ready(mut self) -> Server {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let Some((_, endpoint)) = line.trim_end().rsplit_once(" running on ") else {
            panic!("no ready line but {line:?}; it said:\n{}", self.killed().join("\n"));
        };
        Server { endpoint: endpoint.to_owned(), ready_line: line.clone(), process: self }
    }

    /// Waits for it to end by itself.
    pub(crate) fn ended(mut self) -> Said {
        let deadline = Env::system().monotonic() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Env::system().monotonic() < deadline, "it should have ended by itself");
            let read = self.lines.read.lock().unwrap();
            drop(self.lines.news.wait_timeout(read, Duration::from_millis(10)).unwrap());
        };
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).unwrap();
        let stderr = self.rest().join("\n");
        Said { status: status.code().unwrap_or(-1), stdout, stderr }
    }

    /// Waits until it has told the event `name` again, `times` times; false when `at_most` passes.
    pub(crate) fn wait_for(&self, name: &str, times: usize, at_most: Duration) -> bool {
        let deadline = Env::system().monotonic() + at_most;
        let mut read = self.lines.read.lock().unwrap();
        let (mut seen, mut left) = (read.len(), times);
        loop {
            let new = read[seen..].iter().filter_map(|line| event(line));
            left = left.saturating_sub(new.filter(|(told, _)| *told == name).count());
            seen = read.len();
            let now = Env::system().monotonic();
            if left == 0 || now >= deadline {
                return left == 0;
            }
            read = self.lines.news.wait_timeout(read, deadline - now).unwrap().0;
        }
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it with signal 9; returns what it wrote to its standard error.
    pub(crate) fn killed(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.rest()
    }

    /// Everything it wrote to its standard error, now that it has ended.
    fn rest(&mut self) -> Vec<String> {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        let lines = std::mem::take(&mut *self.lines.read.lock().unwrap());
        assert!(!lines.iter().any(|line| line.contains("panicked")), "{}", lines.join("\n"));
        lines
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running `tepui dev`; killed when it is dropped.
pub(crate) struct Server {
    pub(crate) endpoint: String,
    /// The line by which it said that it is ready.
    pub(crate) ready_line: String,
    pub(crate) process: Process,
}

impl Server {
    /// Starts it over `data`, on a free port unless `flags` say another; waits until it is ready.
    pub(crate) fn start(data: &Path, flags: &[&str]) -> Server {
        Process::start(data, flags).ready()
    }

    /// Runs a command against it.
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        command(arguments).env("TEPUI_ENDPOINT", &self.endpoint).output().unwrap().into()
    }

    /// Runs a command that must succeed, and returns what it printed.
    pub(crate) fn expect(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert_eq!(said.status, 0, "{arguments:?}: {}", said.stderr);
        said.stdout
    }

    /// Ends it with signal 9; returns what it wrote to its standard error.
    pub(crate) fn kill(self) -> Vec<String> {
        self.process.killed()
    }

    /// Ends it as a service manager would; it must end well. Returns what it wrote to its standard
    /// error.
    pub(crate) fn terminate(mut self) -> Vec<String> {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().unwrap();
        assert!(sent.success());
        let status = self.process.child.wait().unwrap();
        let lines = self.process.rest();
        assert!(status.success(), "{status}\n{}", lines.join("\n"));
        lines
    }
}

#[test]
fn what_began_and_did_not_end_is_under_way() {
    let line = |told: &str| format!("2026-01-01T00:00:00Z DEBUG events: {told}");
    let mut lines = vec![
        "2026-01-01T00:00:00Z  INFO tepui: ready".to_owned(),
        line("recovery_started"),
        line("recovery_done Recovery { cells: 0 }"),
        line("flush_started FlushStarted { bytes: 1 } range=1"),
        line("flush_started FlushStarted { bytes: 1 } range=2"),
        line("manifest_started ManifestStarted range=1"),
    ];
    let both = UnderWay { flush: true, manifest: true, ..UnderWay::default() };
    assert_eq!(under_way(&lines), both);
    lines.push(line("flush_finished FlushFinished { files: 1 } range=2"));
    assert_eq!(under_way(&lines), UnderWay { flush: false, ..both });
    lines.push(line("manifest_committed ManifestCommitted { number: 1 } range=1"));
    lines.push(line("flush_finished FlushFinished { files: 1 } range=1"));
    assert_eq!(under_way(&lines), UnderWay::default());
    lines.push(line("recovery_started"));
    assert!(under_way(&lines).recovery);
}
