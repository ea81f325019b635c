//! The client side: puts and gets of 1 KiB rows through the generated client.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use env::Env;
use futures::future::try_join_all;
use proto::google::bigtable::admin::v2 as admin;
use proto::google::bigtable::v2;
use proto::google::bigtable::v2::bigtable_client::BigtableClient;
use proto::google::bigtable::v2::mutation::{Mutation, SetCell};
use proto::google::bigtable::v2::row_range::{EndKey, StartKey};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use types::limits::VALUE_BYTES_MAX;

use crate::server::Served;
use crate::{Result, cpu};

/// The one family.
pub(crate) const FAMILY: &str = "cf";
/// The one column.
pub(crate) const QUALIFIER: &[u8] = b"q";
/// Bytes of every value.
pub(crate) const VALUE_BYTES: usize = 1024;

const INSTANCE: &str = "projects/figures/instances/figures";
const TABLE_ID: &str = "figures";
const BATCH_BYTES: u64 = 512 << 10;
/// How long a server that is full is left alone.
const FULL_PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a row besides its value, about.
pub(crate) const ROW_BYTES: u64 = 53;

/// Connections to one server.
pub(crate) struct Load {
    clients: Vec<BigtableClient<Channel>>,
    admin: Channel,
    pid: u32,
    env: Env,
}

/// What a run took.
pub(crate) struct Run {
    operations: u64,
    wall: Duration,
    server_cpu: Duration,
    client_cpu: Duration,
    /// The median time of one operation.
    pub(crate) p50: Duration,
}

impl Run {
    /// Operations per second of wall time.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.wall.as_secs_f64()
    }

    /// CPU of the server's process, in microseconds an operation.
    pub(crate) fn server_cpu_micros(&self) -> f64 {
        self.server_cpu.as_secs_f64() * 1e6 / self.operations as f64
    }

    /// CPU of this process, in microseconds an operation.
    pub(crate) fn client_cpu_micros(&self) -> f64 {
        self.client_cpu.as_secs_f64() * 1e6 / self.operations as f64
    }
}

fn table_name() -> String {
    format!("{INSTANCE}/tables/{TABLE_ID}")
}

fn row_key(number: u64) -> Bytes {
    // Spread over the key space, so that neighbouring numbers share no block.
    Bytes::from(format!("row{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// A cell whose value is random in its first half.
fn set_cell(random: &mut StdRng, value_bytes: usize) -> v2::Mutation {
    let mut value = vec![0; value_bytes];
    random.fill_bytes(&mut value[..value_bytes / 2]);
    let cell = SetCell {
        family_name: FAMILY.to_owned(),
        column_qualifier: Bytes::from_static(QUALIFIER),
        timestamp_micros: 1_000,
        value: value.into(),
    };
    v2::Mutation { timestamp_origin: 0, mutation: Some(Mutation::SetCell(cell)) }
}

impl Load {
    /// Opens the connections.
    pub(crate) async fn connect(server: &Served, connections: usize) -> Result<Load> {
        let endpoint = Endpoint::from_shared(server.endpoint().to_owned())?.tcp_nodelay(true);
        let mut clients = Vec::new();
        for _ in 0..connections {
            clients.push(proto::limits::data_client(endpoint.connect().await?));
        }
        let admin = endpoint.connect().await?;
        Ok(Load { clients, admin, pid: server.pid(), env: Env::system() })
    }

    /// Creates the table, divided into `ranges` (at most 16).
    pub(crate) async fn create_table(&self, ranges: u8) -> Result<()> {
        let step = 16 / ranges.clamp(1, 16);
        let split = |place| admin::create_table_request::Split {
            key: Bytes::from(format!("row{:x}", place * step)),
        };
        let families = [(FAMILY.to_owned(), admin::ColumnFamily::default())];
        let table = admin::Table { column_families: families.into(), ..Default::default() };
        let request = admin::CreateTableRequest {
            parent: INSTANCE.to_owned(),
            table_id: TABLE_ID.to_owned(),
            table: Some(table),
            initial_splits: (1..ranges).map(split).collect(),
        };
        proto::limits::table_admin_client(self.admin.clone()).create_table(request).await?;
        Ok(())
    }

    /// Writes rows 0 to `rows`, with values of `value_bytes`, in batches of about half a MiB.
    pub(crate) async fn fill(&self, rows: u64, value_bytes: usize) -> Result<()> {
        self.fill_rows(0..rows, value_bytes).await
    }

    /// Writes some of the rows that [`Load::fill`] writes. A server that is full for the moment is
    /// asked again.
    pub(crate) async fn fill_rows(&self, rows: Range<u64>, value_bytes: usize) -> Result<()> {
        let mut random = StdRng::seed_from_u64(1 + rows.start);
        let mut client = self.clients[0].clone();
        let batch_rows = (BATCH_BYTES / (value_bytes as u64 + ROW_BYTES)).max(1);
        for first in rows.clone().step_by(usize::try_from(batch_rows)?) {
            let entries = (first..rows.end.min(first + batch_rows)).map(|number| {
                v2::mutate_rows_request::Entry {
                    row_key: row_key(number),
                    mutations: vec![set_cell(&mut random, value_bytes)],
                    ..Default::default()
                }
            });
            let request = v2::MutateRowsRequest {
                table_name: table_name(),
                entries: entries.collect(),
                ..Default::default()
            };
            while !write_batch(&mut client, &request).await? {
                self.env.sleep(FULL_PAUSE).await;
            }
        }
        Ok(())
    }

    /// Reads the table from its first row to its last, or until it is told to stop, and pauses
    /// after each message; bytes of values.
    pub(crate) async fn scan(
        &self,
        client: usize,
        stop: &AtomicBool,
        pause: Duration,
    ) -> Result<u64> {
        let rows = v2::RowRange {
            start_key: Some(StartKey::StartKeyClosed(Bytes::from_static(b"row"))),
            end_key: Some(EndKey::EndKeyOpen(Bytes::from_static(b"rox"))),
        };
        let request = v2::ReadRowsRequest {
            table_name: table_name(),
            rows: Some(v2::RowSet { row_ranges: vec![rows], ..Default::default() }),
            ..Default::default()
        };
        let mut replies = self.clients[client].clone().read_rows(request).await?.into_inner();
        let mut bytes = 0;
        while let Some(reply) = replies.message().await? {
            bytes += reply.chunks.iter().map(|chunk| chunk.value.len() as u64).sum::<u64>();
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if !pause.is_zero() {
                self.env.sleep(pause).await;
            }
        }
        Ok(bytes)
    }

    /// Writes a cell of the largest size, and reads it back.
    pub(crate) async fn large_cell(&self, client: usize) -> Result<()> {
        let mut random = StdRng::seed_from_u64(self.env.random_u64());
        let row_key = Bytes::from_static(b"large");
        let cell = set_cell(&mut random, VALUE_BYTES_MAX);
        let request = v2::MutateRowRequest {
            table_name: table_name(),
            row_key: row_key.clone(),
            mutations: vec![cell],
            ..Default::default()
        };
        let mut client = self.clients[client].clone();
        while let Err(status) = client.mutate_row(request.clone()).await {
            if status.code() != Code::ResourceExhausted {
                return Err(status.into());
            }
            self.env.sleep(FULL_PAUSE).await;
        }
        let Some(Mutation::SetCell(SetCell { value, .. })) = &request.mutations[0].mutation else {
            return Err("a cell was set".into());
        };
        let request = v2::ReadRowsRequest {
            table_name: table_name(),
            rows: Some(v2::RowSet { row_keys: vec![row_key], ..Default::default() }),
            ..Default::default()
        };
        let mut replies = client.read_rows(request).await?.into_inner();
        let mut rest = &value[..];
        while let Some(reply) = replies.message().await? {
            for chunk in reply.chunks {
                rest = rest.strip_prefix(&chunk.value[..]).ok_or("the large cell is another")?;
            }
        }
        if rest.is_empty() { Ok(()) } else { Err("the large cell is cut".into()) }
    }

    /// Puts `count` rows, one at a time in each of `writers` tasks.
    pub(crate) async fn put(&self, count: u64, writers: usize, seed: u64) -> Result<Run> {
        self.run(count, writers, move |mut client, number| async move {
            let mut random = StdRng::seed_from_u64(seed << 32 | number);
            let request = v2::MutateRowRequest {
                table_name: table_name(),
                row_key: row_key(number | 1 << 40),
                mutations: vec![set_cell(&mut random, VALUE_BYTES)],
                ..Default::default()
            };
            client.mutate_row(request).await?;
            Ok(())
        })
        .await
    }

    /// Gets `count` rows at random out of `rows`, each of which must be there.
    pub(crate) async fn get(&self, rows: u64, count: u64, in_flight: usize) -> Result<Run> {
        self.run(count, in_flight, move |mut client, number| async move {
            let row = if count == rows {
                number
            } else {
                StdRng::seed_from_u64(number).random_range(0..rows)
            };
            let request = v2::ReadRowsRequest {
                table_name: table_name(),
                rows: Some(v2::RowSet { row_keys: vec![row_key(row)], ..Default::default() }),
                rows_limit: 1,
                ..Default::default()
            };
            let mut replies = client.read_rows(request).await?.into_inner();
            let mut bytes = 0;
            while let Some(reply) = replies.message().await? {
                bytes += reply.chunks.iter().map(|chunk| chunk.value.len()).sum::<usize>();
            }
            if bytes != VALUE_BYTES {
                return Err(format!("row {row} came back with {bytes} bytes").into());
            }
            Ok(())
        })
        .await
    }

    async fn run<F>(
        &self,
        count: u64,
        workers: usize,
        operation: impl Fn(BigtableClient<Channel>, u64) -> F + Clone + Send + 'static,
    ) -> Result<Run>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let next = Arc::new(AtomicU64::new(0));
        let (start, server, client) = (self.env.monotonic(), cpu::used(self.pid)?, own_cpu()?);
        let tasks = (0..workers).map(|worker| {
            let client = self.clients[worker % self.clients.len()].clone();
            let (next, operation, env) = (Arc::clone(&next), operation.clone(), self.env.clone());
            let work = async move {
                let mut times = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return Ok::<_, Box<dyn std::error::Error + Send + Sync>>(times);
                    }
                    let start = env.monotonic();
                    operation(client.clone(), number).await?;
                    times.push(env.monotonic() - start);
                }
            };
            let task = self.env.spawn("load", work);
            async move { task.join().await.ok_or("a worker was aborted")? }
        });
        let mut times = try_join_all(tasks).await?.concat();
        times.sort_unstable();
        Ok(Run {
            operations: count,
            wall: self.env.monotonic() - start,
            server_cpu: cpu::used(self.pid)? - server,
            client_cpu: own_cpu()? - client,
            p50: times[times.len() / 2],
        })
    }
}

/// Writes the rows of one request. `false`: the server has no room now.
async fn write_batch(
    client: &mut BigtableClient<Channel>,
    request: &v2::MutateRowsRequest,
) -> Result<bool> {
    let full = Code::ResourceExhausted;
    let mut replies = match client.mutate_rows(request.clone()).await {
        Ok(replies) => replies.into_inner(),
        Err(status) if status.code() == full => return Ok(false),
        Err(status) => return Err(status.into()),
    };
    let mut has_room = true;
    while let Some(reply) = replies.message().await? {
        for status in reply.entries.iter().filter_map(|entry| entry.status.as_ref()) {
            match status.code {
                0 => {}
                code if code == full as i32 => has_room = false,
                _ => return Err(format!("a row was refused: {status:?}").into()),
            }
        }
    }
    Ok(has_room)
}

fn own_cpu() -> Result<Duration> {
    cpu::used(std::process::id())
}
