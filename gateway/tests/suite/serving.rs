//! The server behind a real socket, and the bound on bytes in flight.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use client::Router;
use env::Env;
use prost::Message;
use proto::google::bigtable::admin::v2::ListInstancesRequest;
use proto::google::bigtable::admin::v2::bigtable_instance_admin_client::BigtableInstanceAdminClient;
use proto::google::bigtable::v2 as data;
use proto::limits;
use tepui_gateway::{
    Budgeted, DataGateway, LargeRequests, RequestBudget, ServeOptions, Services, serve,
};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use types::ErrorKind;

use super::fake::Fake;
use super::world::{TABLE, World, create_request, read_request, set};

fn write(row: &str, value: Bytes) -> data::MutateRowRequest {
    data::MutateRowRequest {
        table_name: TABLE.to_owned(),
        row_key: Bytes::copy_from_slice(row.as_bytes()),
        mutations: vec![set("f", "q", 1000, value)],
        ..Default::default()
    }
}

async fn start(
    fake: &Fake,
    options: ServeOptions,
) -> (Channel, oneshot::Sender<()>, env::Task<()>) {
    let env = Env::system();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let services = Services {
        router: Arc::new(Router::new(Arc::new(fake.clone()), env.clone())),
        admin: Arc::new(fake.clone()),
        large_requests: None,
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = env.clone().spawn("serve", async move {
        let shutdown = async {
            let _ = stopped.await;
        };
        serve(listener, services, env, options, shutdown).await.unwrap();
    });
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    (endpoint.connect().await.unwrap(), stop, serving)
}

async fn stops_within_seconds(serving: env::Task<()>) {
    let env = Env::system();
    let stopping = env.timeout(Duration::from_secs(5), serving.join());
    stopping.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_works_over_a_socket_and_the_server_stops_when_told() {
    let fake = Fake::default();
    let (channel, stop, serving) = start(&fake, ServeOptions::default()).await;
    let mut admin = limits::table_admin_client(channel.clone());
    admin.create_table(create_request("t", &["f"], &["m"])).await.unwrap();
    let mut client = limits::data_client(channel.clone());
    let big = Bytes::from(vec![7; 10 << 20]);
    client.mutate_row(write("a", big.clone())).await.unwrap();
    client.mutate_row(write("z", Bytes::new())).await.unwrap();
    let mut stream = client.read_rows(read_request()).await.unwrap().into_inner();
    let mut values = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        values.extend(message.chunks.into_iter().map(|chunk| chunk.value));
    }
    assert!(values == [big, Bytes::new()]);

    // Neither a method nor a service that is missing does any harm.
    let query = data::ExecuteQueryRequest::default();
    let status = client.execute_query(query).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let mut instances = BigtableInstanceAdminClient::new(channel.clone());
    let status = instances.list_instances(ListInstancesRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let mut health = HealthClient::new(channel);
    let answer = health.check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(answer.into_inner().status, 1, "SERVING");

    stop.send(()).unwrap();
    stops_within_seconds(serving).await;
    client.mutate_row(write("b", Bytes::new())).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_never_ends_does_not_hold_up_the_stop_for_ever() {
    let fake = Fake::default();
    let options = ServeOptions { shutdown_grace: Duration::from_millis(200), ..Default::default() };
    let (channel, stop, serving) = start(&fake, options).await;
    let mut health = HealthClient::new(channel);
    let watch = health.watch(HealthCheckRequest::default()).await.unwrap();
    let mut watch = watch.into_inner();
    watch.message().await.unwrap().unwrap();
    stop.send(()).unwrap();
    stops_within_seconds(serving).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_past_the_bound_wait_their_turn() {
    let fake = Fake::default();
    let options = ServeOptions { connections_max: 1, ..Default::default() };
    let env = Env::system();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let services = Services {
        router: Arc::new(Router::new(Arc::new(fake.clone()), env.clone())),
        admin: Arc::new(fake),
        large_requests: None,
    };
    let serving = env.clone().spawn("serve", {
        let env = env.clone();
        async move { serve(listener, services, env, options, std::future::pending()).await }
    });
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let ping = data::PingAndWarmRequest {
        name: "projects/p/instances/i".to_owned(),
        ..Default::default()
    };
    let first = endpoint.connect().await.unwrap();
    limits::data_client(first.clone()).ping_and_warm(ping.clone()).await.unwrap();
    let mut second = limits::data_client(endpoint.connect_lazy());
    let waits = env.timeout(Duration::from_millis(300), second.ping_and_warm(ping.clone()));
    waits.await.unwrap_err();
    drop(first);
    let answers = env.timeout(Duration::from_secs(5), second.ping_and_warm(ping));
    answers.await.unwrap().unwrap();
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn requests_past_the_budget_are_refused_and_told_when_to_come_back() {
    use tonic::codegen::Service;

    let mut world = World::with_table(&[]).await;
    let budget = RequestBudget::new(1 << 20, Duration::from_secs(5), Env::simulated(1));
    let budget = Arc::new(budget);
    let server = limits::data_server(DataGateway::new(world.router.clone()));
    let mut service = Budgeted::new(server, budget.clone());

    let piece = Bytes::from([&[0, 0, 0x20, 0, 0][..], &vec![0; 900_000]].concat());
    let half = tonic::codegen::http::Request::post("/google.bigtable.v2.Bigtable/MutateRow")
        .body(tonic::body::Body::new(Pieces([piece].into())))
        .unwrap();
    let stuck = service.call(half);
    let stuck = Env::simulated(2).spawn("stuck", stuck);
    Env::simulated(2).yield_now().await;
    assert!(budget.used() >= 900_000, "{budget:?}");

    let mut client = limits::data_client(service);
    client.mutate_row(write("small", Bytes::new())).await.unwrap();
    let big = Bytes::from(vec![1; 500_000]);
    let status = client.mutate_row(write("big", big.clone())).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let details = proto::google::rpc::Status::decode(status.details()).unwrap();
    assert!(details.details[0].type_url.ends_with("google.rpc.RetryInfo"));

    stuck.abort();
    assert!(stuck.join().await.is_none());
    client.mutate_row(write("big", big)).await.unwrap();
    // Alone, a request may be bigger than the whole budget.
    let huge = Bytes::from(vec![1; 3 << 20]);
    client.mutate_row(write("huge", huge)).await.unwrap();
    assert_eq!(budget.used(), 0);
    let keys = world.keys(read_request()).await.unwrap();
    assert_eq!(keys, ["big", "huge", "small"]);
}

/// Gives out what the test says, and remembers what was asked for.
#[derive(Default)]
struct Lender {
    asked: Mutex<Vec<u64>>,
    held: Arc<()>,
    is_empty: AtomicBool,
}

#[async_trait::async_trait]
impl LargeRequests for Lender {
    async fn admit(&self, bytes: u64) -> client::Result<Box<dyn Send + Sync>> {
        self.asked.lock().unwrap().push(bytes);
        if self.is_empty.load(SeqCst) {
            return Err(client::Error::new(ErrorKind::ResourceExhausted, "lent out"));
        }
        Ok(Box::new(self.held.clone()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_request_gets_its_memory_as_a_whole_before_it_is_read() {
    use tonic::codegen::Service;

    let world = World::with_table(&[]).await;
    let lender = Arc::new(Lender::default());
    let budget = RequestBudget::new(1 << 20, Duration::from_secs(5), Env::simulated(1));
    let budget = Arc::new(budget.with_large(Some(lender.clone())));
    let server = limits::data_server(DataGateway::new(world.router.clone()));
    let mut service = Budgeted::new(server, budget.clone());
    let mut client = limits::data_client(service.clone());
    client.mutate_row(write("small", Bytes::from(vec![1; 900_000]))).await.unwrap();
    assert_eq!(*lender.asked.lock().unwrap(), []);
    let large = write("large", Bytes::from(vec![1; 3 << 20]));
    client.mutate_row(large.clone()).await.unwrap();
    assert_eq!(*lender.asked.lock().unwrap(), [large.encoded_len() as u64]);
    assert_eq!((Arc::strong_count(&lender.held), budget.used()), (1, 0), "all is given back");

    // The length comes in two pieces, and what follows it never.
    let piece = Bytes::from_static(&[0x40, 0, 0, 0]);
    let half = tonic::codegen::http::Request::post("/google.bigtable.v2.Bigtable/MutateRow")
        .body(tonic::body::Body::new(Pieces([Bytes::from_static(&[0, 0]), piece].into())))
        .unwrap();
    let stuck = Env::simulated(2).spawn("stuck", service.call(half));
    Env::simulated(2).sleep(Duration::from_secs(1)).await;
    assert_eq!((Arc::strong_count(&lender.held), budget.used()), (2, 0));
    stuck.abort();
    stuck.join().await;
    assert_eq!(Arc::strong_count(&lender.held), 1);

    lender.is_empty.store(true, SeqCst);
    let status = client.mutate_row(large).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "lent out"));
}

#[tokio::test(start_paused = true)]
async fn a_message_past_the_limit_is_refused_by_its_first_bytes() {
    use tonic::codegen::Service;

    let world = World::with_table(&[]).await;
    let lender = Arc::new(Lender::default());
    let budget = RequestBudget::new(1 << 20, Duration::from_secs(5), Env::simulated(1));
    let budget = Arc::new(budget.with_large(Some(lender.clone())));
    let server = limits::data_server(DataGateway::new(world.router.clone()));
    let mut service = Budgeted::new(server, budget);
    let length = u32::try_from(limits::MESSAGE_BYTES_MAX + 1).unwrap().to_be_bytes();
    let first = Bytes::from([&[0][..], &length, &[0; 100]].concat());
    let request = tonic::codegen::http::Request::post("/google.bigtable.v2.Bigtable/MutateRows")
        .body(tonic::body::Body::new(Pieces([first].into())))
        .unwrap();
    let answer = service.call(request).await.unwrap();
    let code = answer.headers().get("grpc-status").unwrap();
    assert_eq!(code.to_str().unwrap(), "8", "RESOURCE_EXHAUSTED");
    assert_eq!(*lender.asked.lock().unwrap(), []);
}

/// A body of these pieces that does not end.
struct Pieces(VecDeque<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, tonic::Status>>> {
        match self.0.pop_front() {
            Some(piece) => std::task::Poll::Ready(Some(Ok(http_body::Frame::data(piece)))),
            None => std::task::Poll::Pending,
        }
    }
}
