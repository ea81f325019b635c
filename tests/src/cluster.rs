//! A whole server in one process and one task: coordinator, master, range server, router. The
//! production pieces, put together as the binary does it, over any file system.

use std::sync::Arc;
use std::time::Duration;

use client::{AdminService, Error, Result, Router};
use coordination::{Coordinator, EmbeddedCoordinator, EmbeddedOptions};
use env::Env;
use lsm::{EventListener, NoListener, StoreOptions};
use master::{Master, Server};
use rangeserver::{Config, Options, RangeServer};
use storage::{FileSystem, Path};
use types::SessionId;
use wal::LogOptions;

/// How long a session outlives its process; nobody waits for it here.
const SESSION_TTL: Duration = Duration::from_secs(10);

/// The settings of a cluster.
#[derive(Clone)]
pub struct ClusterOptions {
    /// The range server's.
    pub server: Options,
    /// The coordinator's.
    pub coordinator: EmbeddedOptions,
    /// Is told what happens in ranges.
    pub events: Arc<dyn EventListener>,
}

impl Default for ClusterOptions {
    fn default() -> ClusterOptions {
        ClusterOptions {
            server: Options::default(),
            coordinator: EmbeddedOptions::default(),
            events: Arc::new(NoListener),
        }
    }
}

impl ClusterOptions {
    /// Everything as small as it may be, so that a few writes fill memtables and log segments.
    pub fn tiny(events: Arc<dyn EventListener>) -> ClusterOptions {
        let log =
            LogOptions { first_segment_bytes: 1 << 10, segment_bytes: 2 << 10, segments_ahead: 1 };
        let store = StoreOptions {
            memtable_bytes: 8 << 10,
            table_bytes: 4 << 10,
            block_bytes: 256,
            value_block_threshold: 1 << 10,
            level0_merge_runs: 2,
            level_base_bytes: 8 << 10,
            level_ratio: 3,
            ..StoreOptions::default()
        };
        let server = Options {
            memory_budget: 1 << 20,
            store,
            log,
            log_bytes_max: 8 << 10,
            sweep_interval: Duration::from_millis(100),
            ..Options::default()
        };
        let coordinator = EmbeddedOptions { snapshot_bytes: 4 << 10, snapshot_records: 20, log };
        ClusterOptions { server, coordinator, events }
    }
}

/// See the module.
pub struct Cluster {
    /// Whole-table operations.
    pub router: Arc<Router>,
    /// Schema operations.
    pub admin: Arc<dyn AdminService>,
    /// The range server, for its numbers.
    pub server: Arc<RangeServer>,
    coordinator: Arc<EmbeddedCoordinator>,
    master: Arc<Master>,
    session: SessionId,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Master and server hold each other: without this, every life would stay in memory.
        self.master.detach(self.session);
    }
}

impl Cluster {
    /// Opens what `files` hold; recovery is over when it returns.
    ///
    /// # Errors
    /// Damage found, a disk that fails.
    pub async fn open(
        files: Arc<dyn FileSystem>,
        env: Env,
        options: ClusterOptions,
    ) -> Result<Cluster> {
        let folder = Path::new("coordination");
        let opened =
            EmbeddedCoordinator::open(files.clone(), env.clone(), folder, options.coordinator);
        let coordinator = Arc::new(opened.await.map_err(coordination_error)?);
        let session = coordinator.open_session(SESSION_TTL).await.map_err(coordination_error)?;
        let seam: Arc<dyn Coordinator> = coordinator.clone();
        let master = Arc::new(Master::open(seam, env.clone()).await?);
        let config = Config {
            files,
            env: env.clone(),
            session,
            assignments: master.clone(),
            events: options.events,
            on_poison: Arc::new(|_| {}),
            options: options.server,
        };
        let server = RangeServer::start(config)
            .await
            .map_err(|error| Error::new(error.kind(), error.to_string()))?;
        let attached = Server {
            session,
            ranges: server.clone(),
            observer: server.clone(),
            keeper: server.clone(),
        };
        let router = Arc::new(Router::new(master.clone(), env));
        let admin = master.clone();
        // Whole before the server is attached: what fails from here on is taken apart by `drop`.
        let cluster = Cluster { router, admin, server, coordinator, master, session };
        cluster.master.attach(attached).await?;
        Ok(cluster)
    }

    /// Stops cleanly: everything is in SSTables, no log is left to replay.
    ///
    /// # Errors
    /// What could not be written.
    pub async fn close(&self) -> Result<()> {
        let closed = self.server.close().await;
        closed.map_err(|error| Error::new(error.kind(), error.to_string()))?;
        self.coordinator.close().await.map_err(coordination_error)
    }
}

fn coordination_error(error: coordination::Error) -> Error {
    Error::new(error.kind(), error.to_string())
}
