use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;

/// A running task, by name.
#[derive(Debug)]
pub struct Task<T> {
    name: &'static str,
    handle: JoinHandle<T>,
}

impl<T> Task<T> {
    /// Waits for the task's end and returns what it returned; a panic inside it goes on here.
    /// `None` when it was aborted.
    pub async fn join(self) -> Option<T> {
        match self.handle.await {
            Ok(value) => Some(value),
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Err(_) => None,
        }
    }

    /// Asks the task to stop at its next await.
    pub fn abort(&self) {
        self.handle.abort();
    }

    /// Has the task ended?
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// The name it was started under.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// A time limit passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time limit passed")
    }
}

impl std::error::Error for Elapsed {}

#[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
pub(crate) fn spawn<T: Send + 'static>(
    name: &'static str,
    future: impl Future<Output = T> + Send + 'static,
) -> Task<T> {
    Task { name, handle: tokio::spawn(future) }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
pub(crate) async fn timeout<T>(
    limit: Duration,
    future: impl Future<Output = T>,
) -> Result<T, Elapsed> {
    tokio::time::timeout(limit, future).await.map_err(|_| Elapsed)
}

pub(crate) fn spawn_thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}
