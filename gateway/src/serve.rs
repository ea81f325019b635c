//! The gRPC server: data API, table admin API, the care for ranges and health on one port.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use client::{AdminService, Router};
use env::Env;
use proto::limits;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tonic::transport::Server;

use crate::accept::connections;
use crate::{
    AdminGateway, Budgeted, DataGateway, LargeRequests, LayoutGateway, RangesGateway, RequestBudget,
};

const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// After so long a silence the peer is asked whether it is there, and has so long to answer.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(30);
const KEEPALIVE_WAIT: Duration = Duration::from_secs(20);

/// What is served.
#[derive(Clone)]
pub struct Services {
    /// Reads and writes tables.
    pub router: Arc<Router>,
    /// Changes schemas.
    pub admin: Arc<dyn AdminService>,
    /// Gives memory to large requests, if they are not to share that of all others.
    pub large_requests: Option<Arc<dyn LargeRequests>>,
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Services").field("router", &self.router).finish_non_exhaustive()
    }
}

/// Bounds of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// Open connections; further ones wait to be accepted.
    pub connections_max: usize,
    /// Calls at one time on one connection.
    pub streams_max: u32,
    /// Bytes of requests in the server at one time.
    pub request_bytes: usize,
    /// How long a request waits for its share of them before it is refused.
    pub request_wait: Duration,
    /// How long running calls have to end at a shutdown.
    pub shutdown_grace: Duration,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            connections_max: 4096,
            streams_max: 1024,
            request_bytes: 512 << 20,
            request_wait: Duration::from_secs(5),
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

/// Serves on `listener` until `shutdown` is ready, then lets running calls end.
///
/// # Errors
/// When the server cannot run. Errors of single connections are not among them.
pub async fn serve(
    listener: TcpListener,
    services: Services,
    env: Env,
    options: ServeOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), tonic::transport::Error> {
    let budget = RequestBudget::new(options.request_bytes, options.request_wait, env.clone());
    let budget = Arc::new(budget.with_large(services.large_requests.clone()));
    let data = limits::data_server(DataGateway::new(services.router.clone()));
    let layouts = LayoutGateway::new(services.admin.clone(), services.router.clone());
    let layouts = limits::layouts_server(layouts);
    let ranges = RangesGateway::new(services.admin.clone(), services.router.clone());
    let ranges = limits::ranges_server(ranges);
    let admin = AdminGateway::new(services.admin, services.router);
    let admin = limits::table_admin_server(admin);
    // The health of "", the server as a whole, is SERVING from the start.
    let (health, health_server) = tonic_health::server::health_reporter();

    let (began, begun) = oneshot::channel();
    let signal = async move {
        shutdown.await;
        let stopped = tonic_health::ServingStatus::NotServing;
        health.set_service_status("", stopped).await;
        // Nobody hears it when the server has ended by itself.
        let _ = began.send(());
    };
    let server = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_adaptive_window(Some(false))
        .http2_keepalive_interval(Some(KEEPALIVE_EVERY))
        .http2_keepalive_timeout(Some(KEEPALIVE_WAIT))
        .max_concurrent_streams(options.streams_max)
        .add_service(Budgeted::new(data, budget.clone()))
        .add_service(Budgeted::new(layouts, budget.clone()))
        .add_service(Budgeted::new(admin, budget.clone()))
        .add_service(Budgeted::new(ranges, budget))
        .add_service(health_server)
        .serve_with_incoming_shutdown(
            connections(listener, options.connections_max, env.clone()),
            signal,
        );
    let grace_is_over = async {
        // A sender that is gone without a word means that the server has ended.
        if begun.await.is_err() {
            std::future::pending::<()>().await;
        }
        env.sleep(options.shutdown_grace).await;
    };
    tokio::select! { biased;
        ended = server => ended,
        () = grace_is_over => Ok(()),
    }
}
