//! `tepui dev`: a durable Bigtable endpoint in one process. Its flags and ready line are those of
//! Google's emulator, so that what starts the one starts the other.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use client::{Error, Result};
use env::Env;
use rangeserver::Options;
use sstable::CacheForm;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use types::ErrorKind;

use crate::allocator;
use crate::node::{Node, NodeOptions};
use crate::size;

/// Serves the Bigtable API from one process over one data folder.
///
/// Data survive kill -9 and power cuts: a write is acknowledged when it is on disk. Point clients
/// at it with BIGTABLE_EMULATOR_HOST=HOST:PORT. SIGTERM or Ctrl-C stops it cleanly.
#[derive(Args, Clone, Debug)]
pub(crate) struct DevArgs {
    /// Folder that keeps the data; made if absent. Only one process may use it.
    #[arg(long, value_name = "DIR", default_value = "tepui-data", env = "TEPUI_DATA")]
    data: PathBuf,
    /// Memory for memtables, block cache and requests together, for example 256M or 2G.
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = size::parse)]
    memory_budget: u64,
    /// Address to listen on; 0.0.0.0 for every network. Also -host.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0 takes a free one, which the ready line tells. Also -port.
    #[arg(long, value_name = "PORT", default_value_t = 9000)]
    port: u16,
    /// HOST:PORT in one, instead of --host and --port. Also -address.
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["host", "port"])]
    address: Option<String>,
    /// Size at which a range's memtable is written out (at most an eighth of the memory budget).
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size::parse)]
    memtable_size: u64,
    /// Size of a segment of the commit log.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size::parse)]
    log_segment_size: u64,
    /// How much the commit log may hold that is not in SSTables yet: what a restart after a kill
    /// has to read.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size::parse)]
    log_size: u64,
    /// Bytes a second that data files are read and written at, about; 0 for no limit. The log comes
    /// first, then flushes, reads and merges.
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::parse)]
    io_rate: u64,
    /// Keep cached blocks compressed: more of them fit, and each use decompresses one.
    #[arg(long)]
    cache_compressed: bool,
    /// Size past which a range is divided into two; 0 for never.
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = size::parse)]
    range_size: u64,
}

impl DevArgs {
    fn server_options(&self) -> Options {
        let mut options = Options { memory_budget: self.memory_budget, ..Options::default() };
        options.store.memtable_bytes = self.memtable_size;
        options.log.segment_bytes = self.log_segment_size;
        let first = options.log.first_segment_bytes;
        options.log.first_segment_bytes = first.min(self.log_segment_size);
        options.log_bytes_max = self.log_size;
        options.range_bytes_max = self.range_size;
        options.io_bytes_per_second = self.io_rate;
        if self.cache_compressed {
            options.cache_form = CacheForm::Compressed;
        }
        options
    }

    /// Where to listen. Hosts may stand in brackets, as some harnesses write them.
    fn listen_on(&self) -> String {
        let (host, port) = match &self.address {
            Some(address) => match address.rsplit_once(':') {
                Some((host, port)) => (host, port.to_owned()),
                None => return address.clone(),
            },
            None => (self.host.as_str(), self.port.to_string()),
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let host = if bare.contains(':') { format!("[{bare}]") } else { bare.to_owned() };
        format!("{host}:{port}")
    }
}

/// Runs until SIGTERM or Ctrl-C.
///
/// # Errors
/// Why it could not start or stop cleanly.
pub(crate) async fn run(args: DevArgs) -> Result<()> {
    gateway::count_panics();
    let env = Env::system();
    let started = env.monotonic();
    // Bound first: a port in use is told before a long recovery.
    let address = args.listen_on();
    let listener = TcpListener::bind(&address).await.map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("cannot listen on {address}: {error}"))
    })?;
    let shutdown = stop_signal()?;
    let options = NodeOptions { folder: args.data.clone(), server: args.server_options() };
    let node = Node::start(env.clone(), options).await?;
    let recovery = node.recovery();
    if recovery.cells > 0 {
        tracing::info!(
            "recovered {} cells of {} ranges from {} bytes of log in {:?}",
            recovery.cells,
            recovery.ranges,
            recovery.bytes,
            recovery.duration
        );
    }
    let bound = listener.local_addr().map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot tell the listening address: {error}"))
    })?;
    announce(bound, &args);
    tracing::info!("ready after {:?}", env.monotonic().saturating_sub(started));
    let watch = allocator::keep_below(args.memory_budget, env.clone(), node.account());
    let watching = env.spawn("watch memory", watch);
    node.serve(listener, shutdown).await?;
    watching.abort();
    if gateway::panics() > 0 {
        let text = format!("{} panics were counted", gateway::panics());
        return Err(Error::new(ErrorKind::Aborted, text));
    }
    tracing::info!("stopped: everything is written out");
    Ok(())
}

/// The line that whoever started the process waits for.
fn announce(bound: SocketAddr, args: &DevArgs) {
    println!("Tepui (data in {}) running on {bound}", args.data.display());
}

fn stop_signal() -> Result<impl Future<Output = ()> + Send + 'static> {
    let listen = |kind| {
        signal(kind).map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot listen for signals: {error}"))
        })
    };
    let (mut terminate, mut interrupt) =
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! { biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
    })
}
