//! The yardstick of a get: a bare tonic server that answers every read with one 1 KiB row from
//! memory, in the same messages, through the same generated code.

use std::pin::Pin;

use bytes::Bytes;
use futures::Stream;
use proto::codec::Encoded;
use proto::google::bigtable::v2;
use proto::google::bigtable::v2::bigtable_server::Bigtable;
use proto::google::bigtable::v2::read_rows_response::{CellChunk, cell_chunk::RowStatus};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use crate::Result;
use crate::load::{FAMILY, QUALIFIER, VALUE_BYTES};

struct Echo {
    reply: Encoded,
}

type Replies<T> = Pin<Box<dyn Stream<Item = std::result::Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Bigtable for Echo {
    type ReadRowsStream = Replies<Encoded>;
    type MutateRowsStream = Replies<v2::MutateRowsResponse>;
    type SampleRowKeysStream = Replies<v2::SampleRowKeysResponse>;

    async fn read_rows(
        &self,
        _request: Request<v2::ReadRowsRequest>,
    ) -> std::result::Result<Response<Self::ReadRowsStream>, Status> {
        let reply = self.reply.clone();
        Ok(Response::new(Box::pin(futures::stream::once(async move { Ok(reply) }))))
    }

    async fn mutate_row(
        &self,
        _request: Request<v2::MutateRowRequest>,
    ) -> std::result::Result<Response<v2::MutateRowResponse>, Status> {
        Ok(Response::new(v2::MutateRowResponse {}))
    }

    async fn mutate_rows(
        &self,
        _request: Request<v2::MutateRowsRequest>,
    ) -> std::result::Result<Response<Self::MutateRowsStream>, Status> {
        Err(Status::unimplemented("the echo only reads"))
    }

    async fn sample_row_keys(
        &self,
        _request: Request<v2::SampleRowKeysRequest>,
    ) -> std::result::Result<Response<Self::SampleRowKeysStream>, Status> {
        Err(Status::unimplemented("the echo only reads"))
    }

    async fn ping_and_warm(
        &self,
        _request: Request<v2::PingAndWarmRequest>,
    ) -> std::result::Result<Response<v2::PingAndWarmResponse>, Status> {
        Ok(Response::new(v2::PingAndWarmResponse {}))
    }
}

fn one_row() -> v2::ReadRowsResponse {
    let chunk = CellChunk {
        row_key: Bytes::from_static(b"row0000000000000000"),
        family_name: Some(FAMILY.to_owned()),
        qualifier: Some(Bytes::from_static(QUALIFIER)),
        timestamp_micros: 1_000,
        value: Bytes::from(vec![b'v'; VALUE_BYTES]),
        row_status: Some(RowStatus::CommitRow(true)),
        ..Default::default()
    };
    v2::ReadRowsResponse { chunks: vec![chunk], ..Default::default() }
}

/// Serves until the process is ended; prints the address when it is ready.
pub(crate) async fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("echo running on {}", listener.local_addr()?);
    let echo = Echo { reply: Encoded::of(&one_row()) };
    let incoming = futures::StreamExt::map(TcpListenerStream::new(listener), |socket| {
        let socket = socket?;
        socket.set_nodelay(true)?;
        Ok::<_, std::io::Error>(socket)
    });
    tonic::transport::Server::builder()
        .add_service(proto::limits::data_server(echo))
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}
