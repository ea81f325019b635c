//! A server under measurement: a child process, its endpoint and its CPU time.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::ChildStdout;

use crate::Result;

/// A running child process that serves the Bigtable API.
pub(crate) struct Served {
    child: Child,
    endpoint: String,
}

impl Served {
    /// Starts `tepui dev` on a free port over a folder.
    pub(crate) async fn tepui(binary: &Path, folder: &Path, memory: &str) -> Result<Served> {
        let mut command = Command::new(binary);
        command.arg("dev").arg("--data").arg(folder.join("data")).args(["--port", "0"]);
        command.args(["--memory-budget", memory]);
        Served::start(command).await
    }

    /// Starts this program again, as the echo server.
    pub(crate) async fn echo() -> Result<Served> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--serve-echo");
        Served::start(command).await
    }

    async fn start(mut command: Command) -> Result<Served> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or("the child has no output")?;
        let mut lines = BufReader::new(ChildStdout::from_std(stdout)?).lines();
        while let Some(line) = lines.next_line().await? {
            if let Some((_, address)) = line.split_once("running on ") {
                let endpoint = format!("http://{}", address.trim().trim_end_matches('.'));
                return Ok(Served { child, endpoint });
            }
        }
        Err("the server ended before it was ready".into())
    }

    /// Where it listens, as a URL.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}
