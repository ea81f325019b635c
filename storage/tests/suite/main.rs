//! The contract of file systems, on every backend, and what is special about each.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod faults;
mod local;
mod memory;

use tepui_storage::{BlockingLog, FileSystem, LogFile, Path};

/// The path of a text.
fn path(text: &str) -> Path {
    Path::new(text)
}

/// A new log, as the one kind there is.
async fn new_log(files: &dyn FileSystem, at: &str, reserve: u64) -> Box<dyn BlockingLog> {
    let LogFile::Blocking(log) = files.create_log(&path(at), reserve).await.unwrap();
    log
}

/// Runs a future on a current-thread runtime.
fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(future)
}
