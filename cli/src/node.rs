//! Everything in one process over one data folder: coordinator, master, range server, gateway.
//!
//! Start: lock the folder → coordinator → master → range server (which recovers what a former
//! process left) → attach it to the master → serve. Stop: end the calls → range server (flush all,
//! end the log) → coordinator (last snapshot). A start after that finds nothing to take up.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use client::{Error, Result, Router};
use coordination::{Coordinator, EmbeddedCoordinator, EmbeddedOptions};
use env::Env;
use gateway::{LargeRequests, ServeOptions, Services};
use lsm::{Event, EventListener};
use master::{Master, Server};
use rangeserver::{Config, Options, RangeServer, Recovery};
use storage::local::{LocalFileSystem, LocalOptions};
use storage::{FileSystem, Path};
use tokio::net::TcpListener;
use types::{ErrorKind, RangeId};

use crate::allocator::Account;

/// How long a session outlives its process in the coordinator. Nobody waits for it: the folder's
/// lock proves that the former process is gone.
const SESSION_TTL: Duration = Duration::from_secs(10);
/// The status of a process that stopped because its durable state is in doubt.
const POISONED_STATUS: i32 = 70;

/// The settings of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeOptions {
    /// The data folder.
    pub(crate) folder: PathBuf,
    /// The range server's settings.
    pub(crate) server: Options,
}

/// A node that has recovered and can serve.
pub(crate) struct Node {
    env: Env,
    coordinator: Arc<EmbeddedCoordinator>,
    server: Arc<RangeServer>,
    services: Services,
    request_bytes: usize,
}

/// Logs what happens in ranges, under the target `events`.
struct LogEvents;

impl EventListener for LogEvents {
    fn on_event(&self, range: RangeId, event: &Event) {
        if let Event::FileSetAside { file, what, .. } = event {
            tracing::warn!(%range, "merges leave file {file} alone: {what}");
        }
        tracing::debug!(target: "events", %range, "{} {event:?}", event.name());
    }
}

/// The range server has the budget.
struct OfServer(Arc<RangeServer>);

impl Account for OfServer {
    fn note(&self, bytes: u64) -> u64 {
        self.0.note_resident_memory(bytes)
    }
}

/// Memory of large requests comes out of the range server's: there is one budget.
struct LargeFromServer(Arc<RangeServer>);

#[async_trait]
impl LargeRequests for LargeFromServer {
    async fn admit(&self, bytes: u64) -> Result<Box<dyn Send + Sync>> {
        Ok(Box::new(self.0.admit_large(bytes).await?))
    }
}

fn failed(kind: ErrorKind, error: &dyn std::error::Error) -> Error {
    // The reasons behind it, down to the operating system's, belong to what people read.
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(reason) = source {
        let reason_text = reason.to_string();
        if !text.contains(&reason_text) {
            text = format!("{text}: {reason_text}");
        }
        source = reason.source();
    }
    Error::new(kind, text)
}

/// Ends the process at once: nothing more is acknowledged, and the next start finds the truth.
fn stop_poisoned(reason: &str) {
    tracing::error!("stopping, because the durable state is in doubt: {reason}");
    std::process::exit(POISONED_STATUS);
}

impl Node {
    /// Opens the folder and recovers.
    ///
    /// # Errors
    /// A folder that is in use, read-only, of a newer format or foreign; damage found; a full disk.
    pub(crate) async fn start(env: Env, options: NodeOptions) -> Result<Node> {
        let open_files_max = crate::limits::open_data_files();
        let local = LocalOptions { open_files_max, ..LocalOptions::default() };
        let opened = LocalFileSystem::open(&options.folder, env.clone(), local);
        let files = opened.map_err(|error| failed(error.kind(), &error))?;
        let files: Arc<dyn FileSystem> = Arc::new(files);
        tracing::debug!(target: "events", "recovery_started");
        let folder = Path::new("coordination");
        let (seam, own) = (Arc::clone(&files), EmbeddedOptions::default());
        let opened = EmbeddedCoordinator::open(seam, env.clone(), folder, own).await;
        let coordinator = Arc::new(opened.map_err(|error| failed(error.kind(), &error))?);
        let session = coordinator.open_session(SESSION_TTL).await;
        let session = session.map_err(|error| failed(error.kind(), &error))?;
        let seam: Arc<dyn Coordinator> = coordinator.clone();
        let master = Arc::new(Master::open(seam, env.clone()).await?);
        let request_bytes = usize::try_from(options.server.bodies_share()).unwrap_or(usize::MAX);
        let config = Config {
            files,
            env: env.clone(),
            session,
            assignments: master.clone(),
            events: Arc::new(LogEvents),
            on_poison: Arc::new(stop_poisoned),
            options: options.server,
        };
        let server = RangeServer::start(config).await;
        let server = server.map_err(|error| failed(error.kind(), &error))?;
        tracing::debug!(target: "events", "recovery_done {:?}", server.recovery());
        let attached = Server {
            session,
            ranges: server.clone(),
            observer: server.clone(),
            keeper: server.clone(),
        };
        master.attach(attached).await?;
        let router = Arc::new(Router::new(master.clone(), env.clone()));
        let large_requests = Some(Arc::new(LargeFromServer(server.clone())) as Arc<_>);
        let services = Services { router, admin: master, large_requests };
        Ok(Node { env, coordinator, server, services, request_bytes })
    }

    /// What the start took up.
    pub(crate) fn recovery(&self) -> Recovery {
        self.server.recovery()
    }

    /// Who accounts for the memory of the process.
    pub(crate) fn account(&self) -> Arc<dyn Account> {
        Arc::new(OfServer(Arc::clone(&self.server)))
    }

    /// Serves until `shutdown`, then stops cleanly.
    ///
    /// # Errors
    /// What could not be flushed; it stays in the log.
    pub(crate) async fn serve(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<()> {
        let options = ServeOptions { request_bytes: self.request_bytes, ..Default::default() };
        let served =
            gateway::serve(listener, self.services, self.env.clone(), options, shutdown).await;
        let closed = self.server.close().await;
        closed.map_err(|error| failed(error.kind(), &error))?;
        let closed = self.coordinator.close().await;
        closed.map_err(|error| failed(error.kind(), &error))?;
        served.map_err(|error| failed(ErrorKind::Io, &error))
    }
}
