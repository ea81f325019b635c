//! A server of the generated traits and a generated client, in one process and without a socket.

use bytes::Bytes;
use tepui_proto::codec::Encoded;
use tepui_proto::google::bigtable::v2 as data;
use tepui_proto::limits;
use tokio_stream::StreamExt;
use tonic::{Code, Request, Response, Status};

type Answers<T> = tokio_stream::Iter<std::vec::IntoIter<Result<T, Status>>>;

/// Answers every ReadRows with `replies`, and MutateRows with one entry for each of the request.
struct Scripted {
    replies: Vec<Encoded>,
}

#[tonic::async_trait]
impl data::bigtable_server::Bigtable for Scripted {
    type MutateRowsStream = Answers<data::MutateRowsResponse>;
    type ReadRowsStream = Answers<Encoded>;
    type SampleRowKeysStream = Answers<data::SampleRowKeysResponse>;

    async fn mutate_row(
        &self,
        _: Request<data::MutateRowRequest>,
    ) -> Result<Response<data::MutateRowResponse>, Status> {
        Ok(Response::new(data::MutateRowResponse {}))
    }

    async fn mutate_rows(
        &self,
        request: Request<data::MutateRowsRequest>,
    ) -> Result<Response<Self::MutateRowsStream>, Status> {
        let entries = (0..)
            .zip(&request.get_ref().entries)
            .map(|(index, _)| data::mutate_rows_response::Entry { index, status: None });
        let response =
            data::MutateRowsResponse { entries: entries.collect(), rate_limit_info: None };
        Ok(Response::new(tokio_stream::iter(vec![Ok(response)])))
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
        if request.get_ref().table_name.is_empty() {
            return Err(Status::invalid_argument("no table"));
        }
        let replies: Vec<_> = self.replies.iter().cloned().map(Ok).collect();
        Ok(Response::new(tokio_stream::iter(replies)))
    }

    async fn sample_row_keys(
        &self,
        _: Request<data::SampleRowKeysRequest>,
    ) -> Result<Response<Self::SampleRowKeysStream>, Status> {
        Ok(Response::new(tokio_stream::iter(Vec::new())))
    }
}

type Client =
    data::bigtable_client::BigtableClient<data::bigtable_server::BigtableServer<Scripted>>;

/// A client whose channel is the service itself.
fn client(replies: Vec<Encoded>) -> Client {
    limits::data_client(limits::data_server(Scripted { replies }))
}

fn cell(row: &str, qualifier: Option<&'static [u8]>, value: Vec<u8>) -> data::ReadRowsResponse {
    let chunk = data::read_rows_response::CellChunk {
        row_key: Bytes::copy_from_slice(row.as_bytes()),
        family_name: Some("cf".to_owned()),
        qualifier: qualifier.map(Bytes::from_static),
        timestamp_micros: 1000,
        value: value.into(),
        row_status: Some(data::read_rows_response::cell_chunk::RowStatus::CommitRow(true)),
        ..Default::default()
    };
    data::ReadRowsResponse { chunks: vec![chunk], ..Default::default() }
}

fn read_request() -> data::ReadRowsRequest {
    data::ReadRowsRequest { table_name: "t".to_owned(), ..Default::default() }
}

async fn read_all(replies: Vec<Encoded>) -> Result<Vec<data::ReadRowsResponse>, Status> {
    let stream = client(replies).read_rows(read_request()).await?.into_inner();
    stream.collect().await
}

#[tokio::test]
async fn a_client_reads_the_messages_that_were_encoded() {
    let sent = vec![
        cell("a", Some(b"q"), vec![0, 255, 7]),
        cell("b", Some(b""), Vec::new()),
        cell("c", None, vec![1; 100_000]),
        data::ReadRowsResponse::default(),
    ];
    let received = read_all(sent.iter().map(Encoded::of).collect()).await.unwrap();
    assert_eq!(received, sent, "messages, and an empty qualifier apart from none");
}

#[tokio::test]
async fn the_reply_has_the_bytes_of_the_contract() {
    const BYTES: &[u8] = &[
        0x0a, 0x1d, // chunks, 29 bytes
        0x0a, 0x01, b'r', // row_key
        0x12, 0x04, 0x0a, 0x02, b'c', b'f', // family_name, in a StringValue
        0x1a, 0x05, 0x0a, 0x03, b'q', 0x00, 0xff, // qualifier, in a BytesValue
        0x20, 0xe8, 0x07, // timestamp_micros 1000
        0x32, 0x06, b'v', b'a', b'l', b'u', b'e', b'!', // value
        0x48, 0x01, // commit_row
    ];
    let received = read_all(vec![Encoded(Bytes::from_static(BYTES))]).await.unwrap();
    let expected = cell("r", Some(b"q\x00\xff"), b"value!".to_vec());
    assert_eq!(received, [expected]);
}

#[tokio::test]
async fn a_message_above_the_default_limit_of_tonic_arrives() {
    let sent = cell("a", Some(b"q"), vec![3; 20 << 20]);
    let received = read_all(vec![Encoded::of(&sent)]).await.unwrap();
    assert!(received == [sent], "20 MiB in one message");
}

#[tokio::test]
async fn a_message_above_our_limit_is_refused() {
    let huge = Encoded(vec![0; limits::MESSAGE_BYTES_MAX + 1].into());
    let status = read_all(vec![huge]).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
}

#[tokio::test]
async fn an_error_before_the_first_message_is_the_status_of_the_call() {
    let request = data::ReadRowsRequest::default();
    let status = client(Vec::new()).read_rows(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "no table");
}

#[tokio::test]
async fn methods_with_the_ordinary_codec_answer_too() {
    let mut client = client(Vec::new());
    let entries = vec![data::mutate_rows_request::Entry::default(); 3];
    let request = data::MutateRowsRequest { entries, ..Default::default() };
    let mut stream = client.mutate_rows(request).await.unwrap().into_inner();
    let indexes: Vec<i64> =
        stream.message().await.unwrap().unwrap().entries.iter().map(|e| e.index).collect();
    assert_eq!(indexes, [0, 1, 2]);
    assert!(stream.message().await.unwrap().is_none());
    client.ping_and_warm(data::PingAndWarmRequest::default()).await.unwrap();
    client.mutate_row(data::MutateRowRequest::default()).await.unwrap();
}

#[tokio::test]
async fn a_method_that_is_not_served_is_unimplemented() {
    let mut client = client(Vec::new());
    let unary = client.check_and_mutate_row(data::CheckAndMutateRowRequest::default()).await;
    assert_eq!(unary.unwrap_err().code(), Code::Unimplemented);
    let stream = client.execute_query(data::ExecuteQueryRequest::default()).await;
    assert_eq!(stream.unwrap_err().code(), Code::Unimplemented);
    // The client still works after that.
    client.ping_and_warm(data::PingAndWarmRequest::default()).await.unwrap();
}
