//! A server that answers as it is told and remembers what it was asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use env::Env;
use proto::codec::Encoded;
use proto::google::bigtable::v2 as data;
use proto::limits;
use tepui_client::Client;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

type Answers<T> = tokio_stream::Iter<std::vec::IntoIter<Result<T, Status>>>;
type Script<T> = Mutex<VecDeque<T>>;

/// What a streamed call answers: messages and perhaps an error at the end; or an error at once.
pub(crate) type Streamed<T> = Result<Vec<Result<T, Status>>, Status>;

#[derive(Default)]
pub(crate) struct Scripted {
    pub(crate) reads: Script<Streamed<Encoded>>,
    pub(crate) read_requests: Mutex<Vec<data::ReadRowsRequest>>,
    pub(crate) row_writes: Script<Result<(), Status>>,
    pub(crate) row_write_requests: Mutex<Vec<data::MutateRowRequest>>,
    pub(crate) batch_writes: Script<Streamed<data::MutateRowsResponse>>,
    pub(crate) batch_write_requests: Mutex<Vec<data::MutateRowsRequest>>,
}

/// Takes the next answer of a script; the last one stays.
fn next<T: Clone>(script: &Script<T>) -> T {
    let mut script = script.lock().unwrap();
    match script.len() {
        0 => panic!("no answer is scripted"),
        1 => script[0].clone(),
        _ => script.pop_front().unwrap(),
    }
}

/// The service's own type, so that the trait can be implemented for it.
struct Shared(Arc<Scripted>);

#[tonic::async_trait]
impl data::bigtable_server::Bigtable for Shared {
    type MutateRowsStream = Answers<data::MutateRowsResponse>;
    type ReadRowsStream = Answers<Encoded>;
    type SampleRowKeysStream = Answers<data::SampleRowKeysResponse>;

    async fn mutate_row(
        &self,
        request: Request<data::MutateRowRequest>,
    ) -> Result<Response<data::MutateRowResponse>, Status> {
        let mut requests = self.0.row_write_requests.lock().unwrap();
        requests.push(request.into_inner());
        next(&self.0.row_writes).map(|()| Response::new(data::MutateRowResponse {}))
    }

    async fn mutate_rows(
        &self,
        request: Request<data::MutateRowsRequest>,
    ) -> Result<Response<Self::MutateRowsStream>, Status> {
        let mut requests = self.0.batch_write_requests.lock().unwrap();
        requests.push(request.into_inner());
        next(&self.0.batch_writes).map(|replies| Response::new(tokio_stream::iter(replies)))
    }

    async fn ping_and_warm(
        &self,
        _: Request<data::PingAndWarmRequest>,
    ) -> Result<Response<data::PingAndWarmResponse>, Status> {
        Ok(Response::new(data::PingAndWarmResponse {}))
    }

    async fn read_rows(
        &self,
        request: Request<data::ReadRowsRequest>,
    ) -> Result<Response<Self::ReadRowsStream>, Status> {
        let mut requests = self.0.read_requests.lock().unwrap();
        requests.push(request.into_inner());
        next(&self.0.reads).map(|replies| Response::new(tokio_stream::iter(replies)))
    }

    async fn sample_row_keys(
        &self,
        _: Request<data::SampleRowKeysRequest>,
    ) -> Result<Response<Self::SampleRowKeysStream>, Status> {
        Err(Status::unimplemented("not scripted"))
    }
}

/// Starts a server of `script` and connects to it.
pub(crate) async fn client(script: &Arc<Scripted>) -> Client {
    let env = Env::simulated(7);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let service = limits::data_server(Shared(Arc::clone(script)));
    env.spawn("scripted server", async move {
        tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener))
            .await
    });
    Client::connect_in(env, &endpoint, "projects/p/instances/i").await.unwrap()
}
