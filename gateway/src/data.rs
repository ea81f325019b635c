//! The data API over `Router`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use client::{Error, ReadReplies, Result, Router, RowKeys, TableLayout};
use futures::stream::{self, Stream};
use prost::Message;
use proto::codec::Encoded;
use proto::google::bigtable::v2;
use proto::google::bigtable::v2::bigtable_server::Bigtable;
use proto::google::bigtable::v2::mutate_rows_response::Entry as Answer;
use proto::google::bigtable::v2::read_rows_request::RequestStatsView;
use proto::google::rpc;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};
use types::{ErrorKind, ReadSpec, RowMutations, RowOrder, TableName};

use crate::status::{status, wire_status};
use crate::validate::mutations::Checker;
use crate::validate::{filter, mutations, names, refuse, rows};

/// Bytes of one message of answers to a batch: below the 4 MiB that clients accept at least.
const ANSWERS_BYTES_MAX: usize = 1 << 20;

/// Serves the data API.
#[derive(Clone, Debug)]
pub struct DataGateway {
    router: Arc<Router>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = std::result::Result<T, Status>> + Send>>;

impl DataGateway {
    /// Reads and writes tables through `router`.
    pub fn new(router: Arc<Router>) -> DataGateway {
        DataGateway { router }
    }

    async fn layout(&self, table: &TableName) -> Result<Arc<TableLayout>> {
        let found = self.router.layout(table).await;
        found.map_err(|error| say_which_table(table, error))
    }

    /// Checks what `check` checks against the table's schema. A family that the kept schema does
    /// not know may be new: then it is checked against the schema as it is now.
    async fn checked<T>(
        &self,
        table: &TableName,
        check: impl Fn(&mut Checker<'_>) -> (T, bool),
    ) -> Result<(Arc<TableLayout>, T)> {
        let layout = self.layout(table).await?;
        let (checked, unknown_family) = check(&mut Checker::new(&layout.schema));
        if !unknown_family {
            return Ok((layout, checked));
        }
        let fresh = self.router.fresh_layout(table).await;
        let fresh = fresh.map_err(|error| say_which_table(table, error))?;
        let (checked, _) = check(&mut Checker::new(&fresh.schema));
        Ok((fresh, checked))
    }

    async fn mutate_one(
        &self,
        request: v2::MutateRowRequest,
        deadline: Option<Duration>,
    ) -> Result<()> {
        refuse_view(&request.authorized_view_name)?;
        refuse(request.idempotency.is_some(), "An idempotency token")?;
        let table = names::table(&request.table_name)?;
        let (layout, row) = self
            .checked(&table, |checker| {
                let row = checker.row(&request.row_key, &request.mutations);
                let unknown = names_an_unknown_family(&row);
                (row, unknown)
            })
            .await?;
        let results = self.router.write_rows(&table, layout, vec![row?], deadline).await;
        results.into_iter().collect()
    }

    /// The result of every entry, in the order of the entries.
    async fn mutate_many(
        &self,
        request: v2::MutateRowsRequest,
        deadline: Option<Duration>,
    ) -> Result<Vec<Result<()>>> {
        refuse_view(&request.authorized_view_name)?;
        let table = names::table(&request.table_name)?;
        let entries = &request.entries;
        if entries.is_empty() {
            return Err(Error::invalid("No entries provided"));
        }
        mutations::count(entries.iter().map(|entry| entry.mutations.len()).sum())?;
        // An entry without mutations is an error of its own, so it counts too.
        mutations::count(entries.len())?;
        let (layout, checked) = self
            .checked(&table, |checker| {
                let row = |entry: &v2::mutate_rows_request::Entry| {
                    refuse(entry.idempotency.is_some(), "An idempotency token")?;
                    checker.row(&entry.row_key, &entry.mutations)
                };
                let rows: Vec<Result<RowMutations>> = entries.iter().map(row).collect();
                let unknown = rows.iter().any(names_an_unknown_family);
                (rows, unknown)
            })
            .await?;
        let mut rows = Vec::with_capacity(checked.len());
        let mut results: Vec<Option<Result<()>>> = Vec::with_capacity(checked.len());
        for row in checked {
            results.push(match row {
                Ok(row) => {
                    rows.push(row);
                    None
                }
                Err(error) => Some(Err(error)),
            });
        }
        let carried: usize = rows.iter().map(RowMutations::bytes).sum();
        if carried < request.encoded_len() / 2 {
            // What is refused must not stay in memory with what is written.
            rows.iter_mut().for_each(|row| row.detach_values(usize::MAX));
        }
        let written = self.router.write_rows(&table, layout, rows, deadline).await;
        let mut written = written.into_iter();
        for result in results.iter_mut().filter(|result| result.is_none()) {
            *result = written.next();
        }
        let answered = results.into_iter().collect::<Option<_>>();
        Ok(answered.expect("every entry was refused or written"))
    }

    async fn read(
        &self,
        request: v2::ReadRowsRequest,
        row_keys: RowKeys,
        deadline: Option<Duration>,
    ) -> Result<Answers<Encoded>> {
        refuse_view(&request.authorized_view_name)?;
        refuse(!request.materialized_view_name.is_empty(), "A materialized view")?;
        let table = names::table(&request.table_name)?;
        let spec = ReadSpec {
            rows: rows::row_set(request.rows.as_ref())?,
            rows_limit: rows::rows_limit(request.rows_limit)?,
            // Whoever sets the field knows it, whatever its feature flags say.
            order: if request.reversed { RowOrder::Descending } else { RowOrder::Ascending },
        };
        let wants_stats = request.request_stats_view == RequestStatsView::RequestStatsFull as i32;
        refuse(wants_stats, "The view REQUEST_STATS_FULL")?;
        filter::passes_all(request.filter.as_ref())?;
        let layout = self.layout(&table).await?;
        let read = self.router.read(&table, layout, spec, deadline).naming_rows(row_keys);
        let replies = stream::try_unfold(read, async |mut read| match read.next().await {
            Ok(reply) => Ok(reply.map(|reply| (Encoded(reply.encoded), read))),
            Err(error) => Err(status(&error)),
        });
        Ok(Box::pin(replies))
    }

    async fn sample(&self, request: v2::SampleRowKeysRequest) -> Result<SampledKeys> {
        refuse_view(&request.authorized_view_name)?;
        refuse(!request.materialized_view_name.is_empty(), "A materialized view")?;
        refuse(request.row_range.is_some(), "A row range to sample")?;
        let table = names::table(&request.table_name)?;
        let samples = self.router.samples(&table).await;
        let samples = samples.map_err(|error| say_which_table(&table, error))?;
        let answers = samples.into_iter().map(|sample| v2::SampleRowKeysResponse {
            row_key: sample.row,
            offset_bytes: i64::try_from(sample.bytes_before).unwrap_or(i64::MAX),
        });
        Ok(answers.collect())
    }
}

type SampledKeys = Vec<v2::SampleRowKeysResponse>;

fn names_an_unknown_family(row: &Result<RowMutations>) -> bool {
    row.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn refuse_view(authorized_view: &str) -> Result<()> {
    refuse(!authorized_view.is_empty(), "An authorized view")
}

fn say_which_table(table: &TableName, error: Error) -> Error {
    if error.kind() == ErrorKind::NotFound {
        return Error::not_found(format!("Table not found: {table}"));
    }
    error
}

/// How long the client will wait, as it says: up to eight digits and a unit.
fn deadline(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let plain = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    let count: u64 = plain.then(|| digits.parse().ok()).flatten()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

/// How this client wants rows named. Python's data client says what it is in `x-goog-api-client`:
/// its library's version ends in `-data` or `-data-async`.
fn row_keys(metadata: &MetadataMap) -> RowKeys {
    let versions = metadata.get("x-goog-api-client").and_then(|value| value.to_str().ok());
    let versions = versions.unwrap_or_default();
    let is_data_client = versions.split(' ').any(|version| {
        version.starts_with("gccl/")
            && (version.ends_with("-data") || version.ends_with("-data-async"))
    });
    if versions.contains("gl-python/") && is_data_client {
        return RowKeys::AtMessages;
    }
    RowKeys::AtCells
}

/// The results of a batch, in messages of bounded size.
fn batch_answers(results: Vec<Result<()>>) -> Vec<v2::MutateRowsResponse> {
    let mut messages = vec![v2::MutateRowsResponse::default()];
    let mut bytes = 0;
    for (index, result) in (0..).zip(results) {
        let answer = Answer {
            index,
            status: Some(match result {
                Ok(()) => rpc::Status::default(),
                Err(error) => wire_status(&error),
            }),
        };
        let size = answer.encoded_len() + 8;
        if bytes + size > ANSWERS_BYTES_MAX {
            messages.push(v2::MutateRowsResponse::default());
            bytes = 0;
        }
        bytes += size;
        if let Some(message) = messages.last_mut() {
            message.entries.push(answer);
        }
    }
    messages
}

#[async_trait::async_trait]
impl Bigtable for DataGateway {
    type MutateRowsStream = Answers<v2::MutateRowsResponse>;
    type ReadRowsStream = Answers<Encoded>;
    type SampleRowKeysStream = Answers<v2::SampleRowKeysResponse>;

    async fn mutate_row(
        &self,
        request: Request<v2::MutateRowRequest>,
    ) -> std::result::Result<Response<v2::MutateRowResponse>, Status> {
        let deadline = deadline(request.metadata());
        match self.mutate_one(request.into_inner(), deadline).await {
            Ok(()) => Ok(Response::new(v2::MutateRowResponse {})),
            Err(error) => Err(status(&error)),
        }
    }

    async fn mutate_rows(
        &self,
        request: Request<v2::MutateRowsRequest>,
    ) -> std::result::Result<Response<Self::MutateRowsStream>, Status> {
        let deadline = deadline(request.metadata());
        let results = self.mutate_many(request.into_inner(), deadline).await;
        let results = results.map_err(|error| status(&error))?;
        let answers = batch_answers(results).into_iter().map(Ok);
        Ok(Response::new(Box::pin(stream::iter(answers))))
    }

    /// Any well-formed instance is warm, also without a table: clients call this at their start.
    async fn ping_and_warm(
        &self,
        request: Request<v2::PingAndWarmRequest>,
    ) -> std::result::Result<Response<v2::PingAndWarmResponse>, Status> {
        match names::instance(&request.get_ref().name) {
            Ok(()) => Ok(Response::new(v2::PingAndWarmResponse {})),
            Err(error) => Err(status(&error)),
        }
    }

    async fn read_rows(
        &self,
        request: Request<v2::ReadRowsRequest>,
    ) -> std::result::Result<Response<Self::ReadRowsStream>, Status> {
        let deadline = deadline(request.metadata());
        let row_keys = row_keys(request.metadata());
        let read = self.read(request.into_inner(), row_keys, deadline).await;
        read.map(Response::new).map_err(|error| status(&error))
    }

    async fn sample_row_keys(
        &self,
        request: Request<v2::SampleRowKeysRequest>,
    ) -> std::result::Result<Response<Self::SampleRowKeysStream>, Status> {
        let samples = self.sample(request.into_inner()).await;
        let samples = samples.map_err(|error| status(&error))?;
        let answers = samples.into_iter().map(Ok);
        Ok(Response::new(Box::pin(stream::iter(answers))))
    }
}
