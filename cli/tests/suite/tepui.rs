//! Runs `tepui`: commands that end, and a server that is stopped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_tepui");

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

/// Runs a command that needs no server.
pub(crate) fn run(arguments: &[&str]) -> Said {
    let mut command = Command::new(BINARY);
    for name in ["TEPUI_ENDPOINT", "BIGTABLE_EMULATOR_HOST", "TEPUI_DATA"] {
        command.env_remove(name);
    }
    command.args(arguments).output().unwrap().into()
}

/// A running `tepui dev`; killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) endpoint: String,
}

impl Server {
    /// Starts it over `data`, on a free port unless `flags` say another; waits until it is ready.
    pub(crate) fn start(data: &Path, flags: &[&str]) -> Server {
        let mut child = Command::new(BINARY)
            .arg("dev")
            .args(if flags.is_empty() { &["--port", "0"][..] } else { flags })
            .arg("--data")
            .arg(data)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let (_, endpoint) = line.trim_end().rsplit_once(" running on ").expect("a ready line");
        Server { endpoint: endpoint.to_owned(), child }
    }

    /// Runs a command against it.
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        let mut command = Command::new(BINARY);
        command.env("TEPUI_ENDPOINT", &self.endpoint).args(arguments).output().unwrap().into()
    }

    /// Runs a command that must succeed, and returns what it printed.
    pub(crate) fn expect(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert_eq!(said.status, 0, "{arguments:?}: {}", said.stderr);
        said.stdout
    }

    /// Ends it as a power button would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it as a service manager would; it must end well.
    pub(crate) fn terminate(mut self) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().unwrap();
        assert!(sent.success());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
