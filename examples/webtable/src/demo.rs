//! The whole example in one go: starts a server, loads the pages, asks the three questions, kills
//! the server, starts it again and asks again.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use client::Client;
use env::Env;
use rustix::process::{Pid, Signal, kill_process};

use crate::load::{Tree, load};
use crate::query;

/// What the demonstration needs to know.
#[derive(Debug)]
pub(crate) struct Demo {
    /// The server's binary; next to this one unless given.
    pub(crate) tepui: Option<PathBuf>,
    /// The server's data folder.
    pub(crate) data: PathBuf,
    /// The instance to use.
    pub(crate) instance: String,
    /// The table to use.
    pub(crate) table: String,
    /// What to load.
    pub(crate) tree: Tree,
    /// The page whose links are asked for; the most linked one unless given.
    pub(crate) page: Option<String>,
    /// The folder that is scanned.
    pub(crate) prefix: String,
}

/// Runs it.
///
/// # Errors
/// A text that says what failed.
pub(crate) async fn run(demo: &Demo) -> Result<(), String> {
    let binary = match &demo.tepui {
        Some(path) => path.clone(),
        None => beside_this()?,
    };
    let mut server = Server::start(&binary, &demo.data)?;
    let client = server.connect(&demo.instance).await?;
    load(&client, &demo.table, &demo.tree).await?;
    let table = client.table(&demo.table);
    heading("webtable top");
    let best = query::top(&table, 10).await?;
    let page = demo.page.clone().or(best).ok_or("no page links to another")?;
    heading(&format!("webtable links-to {page}"));
    query::links_to(&table, &demo.tree.site, &page, 10).await?;
    heading(&format!("webtable scan {}", demo.prefix));
    query::scan(&table, &demo.tree.site, &demo.prefix, 10).await?;

    heading("kill -9, start again, ask again");
    server.end(Signal::KILL)?;
    let mut server = Server::start(&binary, &demo.data)?;
    let client = server.connect(&demo.instance).await?;
    let table = client.table(&demo.table);
    query::links_to(&table, &demo.tree.site, &page, 3).await?;
    server.end(Signal::TERM)?;
    println!("\nThe data stays in {}.", demo.data.display());
    Ok(())
}

fn heading(text: &str) {
    println!("\n── {text}");
}

fn beside_this() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let tepui = own.with_file_name("tepui");
    match tepui.is_file() {
        true => Ok(tepui),
        false => Err(format!(
            "there is no {}: build it with `cargo build --release -p tepui-cli`, or name it \
             with --tepui",
            tepui.display()
        )),
    }
}

/// A server of our own; killed when it is dropped without [`Server::end`].
struct Server {
    child: Child,
    endpoint: String,
}

impl Server {
    /// Starts `tepui dev` on a free port and waits until it says it is ready.
    fn start(binary: &Path, data: &Path) -> Result<Server, String> {
        let env = Env::system();
        let begun = env.monotonic();
        let child = Command::new(binary)
            .args(["dev", "--port", "0", "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", binary.display()))?;
        let mut server = Server { child, endpoint: String::new() };
        let stdout = server.child.stdout.take().ok_or("the server has no output")?;
        let mut lines = BufReader::new(stdout);
        let endpoint = env.blocking(|| ready_line(&mut lines))?;
        // What it says later is read too, so that its pipe never fills up.
        env.spawn_thread("server output", move || std::io::copy(&mut lines, &mut std::io::sink()))
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        println!(
            "server ready on {endpoint} after {:.2} s",
            env.monotonic().saturating_sub(begun).as_secs_f64()
        );
        server.endpoint = endpoint;
        Ok(server)
    }

    async fn connect(&self, instance: &str) -> Result<Client, String> {
        Client::connect(&self.endpoint, instance).await.map_err(|error| error.to_string())
    }

    /// Ends the server with `signal` and waits until it is gone.
    fn end(&mut self, signal: Signal) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot end the server: {error}");
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or("the server has no process id")?;
        kill_process(id, signal).map_err(|error| failed(error.into()))?;
        let status = Env::system().blocking(|| self.child.wait()).map_err(failed)?;
        match signal == Signal::KILL || status.success() {
            true => Ok(()),
            false => Err(format!("the server ended with {status}")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads up to "… running on HOST:PORT".
fn ready_line(lines: &mut impl BufRead) -> Result<String, String> {
    let mut line = String::new();
    loop {
        line.clear();
        let read = lines.read_line(&mut line).map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("the server ended before it was ready".to_owned());
        }
        if let Some((_, endpoint)) = line.trim_end().rsplit_once(" running on ") {
            return Ok(endpoint.trim_end_matches('.').to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_names_the_endpoint() {
        let mut lines = &b"starting\nTepui running on 127.0.0.1:4711\nmore\n"[..];
        assert_eq!(ready_line(&mut lines).unwrap(), "127.0.0.1:4711");
        ready_line(&mut &b"starting\n"[..]).unwrap_err();
    }
}
