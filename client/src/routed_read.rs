//! A read of a table, range by range.
//!
//! 1. The next row that is asked for tells the range; what is asked for of that range is read.
//! 2. Its replies are handed on untouched. The last row that ended in them is where the read
//!    stands.
//! 3. When the range has ended, the read stands at the range's end.
//! 4. When a range fails in a way that may pass, the layout is looked up again and the read goes
//!    on from where it stands. If part of a row was handed on already, the receiver is first told
//!    to forget that part. A bounded number of such failures without progress ends the read; the
//!    end of a range is progress, with or without rows: each of many ranges may have moved.
//!
//! Invariants
//! - Only one reply is held, and the one before (to know how it ended).
//! - A row that was handed on whole is never sent again; rows come in ascending order.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use proto::google::bigtable::v2::ReadRowsResponse;
use proto::google::bigtable::v2::read_rows_response::CellChunk;
use proto::google::bigtable::v2::read_rows_response::cell_chunk::RowStatus;
use types::{ErrorKind, ReadSpec, RowRange, RowSet, TableName, row_successor};

use crate::{Error, ReadReplies, ReadReply, ReadRequest, Result, Router, RowKeys, TableLayout};

/// A running read of a table: pulled, so it holds no more than a reply or two. Dropping it stops
/// the read.
pub struct RoutedRead {
    router: Arc<Router>,
    name: TableName,
    layout: Arc<TableLayout>,
    until: Option<Duration>,
    /// What is asked for: ascending, disjoint.
    asked: Vec<RowRange>,
    /// Where the read stands: the first of `asked` that is not read to its end, and a row before
    /// which all is read.
    next: usize,
    from: Bytes,
    /// `None`: no limit.
    rows_left: Option<u64>,
    running: Option<Running>,
    /// The last reply handed on.
    handed_on: Bytes,
    /// In a row: a row or the end of a range is progress, and ends the count.
    failures: u32,
    row_keys: RowKeys,
}

struct Running {
    replies: Box<dyn ReadReplies>,
    end: Option<Bytes>,
}

impl std::fmt::Debug for RoutedRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoutedRead")
            .field("table", &self.name)
            .field("from", &self.from)
            .field("rows_left", &self.rows_left)
            .finish_non_exhaustive()
    }
}

impl RoutedRead {
    pub(crate) fn new(
        router: Arc<Router>,
        name: TableName,
        layout: Arc<TableLayout>,
        spec: ReadSpec,
        until: Option<Duration>,
    ) -> RoutedRead {
        RoutedRead {
            router,
            name,
            layout,
            until,
            asked: spec.rows.ranges().to_vec(),
            next: 0,
            from: Bytes::new(),
            rows_left: (spec.rows_limit > 0).then_some(spec.rows_limit),
            running: None,
            handed_on: Bytes::new(),
            failures: 0,
            row_keys: RowKeys::default(),
        }
    }

    /// The same read, naming its rows in this way.
    pub fn naming_rows(mut self, row_keys: RowKeys) -> RoutedRead {
        self.row_keys = row_keys;
        self
    }

    /// Opens the next range. False when there is nothing left to read.
    async fn open(&mut self) -> Result<bool> {
        self.pass_over_what_is_read();
        let Some(interval) = self.asked.get(self.next) else {
            return Ok(false);
        };
        let start = (&interval.start).max(&self.from);
        let location = &self.layout.ranges[self.layout.place_of(start)];
        let bounds = RowRange { start: start.clone(), end: location.rows.end.clone() };
        let inside = self.asked[self.next..]
            .iter()
            .take_while(|interval| bounds.end.as_ref().is_none_or(|end| interval.start < *end))
            .map(|interval| interval.intersection(&bounds));
        let request = ReadRequest {
            target: location.target(&self.layout.schema, self.router.left(self.until)),
            spec: ReadSpec {
                rows: RowSet::new(inside.collect()),
                rows_limit: self.rows_left.unwrap_or(0),
            },
            row_keys: self.row_keys,
        };
        self.running =
            Some(Running { replies: location.server.read(request).await?, end: bounds.end });
        Ok(true)
    }

    fn pass_over_what_is_read(&mut self) {
        let is_read = |interval: &RowRange| {
            let end = interval.end.as_ref();
            end.is_some_and(|end| *end <= self.from)
        };
        while self.asked.get(self.next).is_some_and(is_read) {
            self.next += 1;
        }
    }

    /// The next reply of the range being read. `None` when it has ended.
    async fn pull(&mut self) -> Result<Option<ReadReply>> {
        let Some(running) = &mut self.running else {
            return Ok(None);
        };
        let Some(reply) = running.replies.next().await? else {
            match running.end.take() {
                Some(end) => self.from = end,
                None => self.next = self.asked.len(),
            }
            self.running = None;
            self.failures = 0;
            return Ok(None);
        };
        if let Some(left) = &mut self.rows_left {
            *left = left.saturating_sub(reply.rows);
        }
        if let Some(row) = &reply.last_row {
            self.from = row_successor(row);
            self.failures = 0;
        }
        self.handed_on = reply.encoded.clone();
        Ok(Some(reply))
    }

    /// Makes the read go on after `error`, if it can. Returns what the receiver must be told
    /// first.
    async fn resume(&mut self, error: Error) -> Result<Option<ReadReply>> {
        self.running = None;
        self.failures += 1;
        let may_pass = matches!(
            error.kind(),
            ErrorKind::WrongRange | ErrorKind::Unavailable | ErrorKind::Aborted
        );
        let (router, failures) = (self.router.clone(), self.failures);
        if !may_pass || !router.wait_to_retry(&error, failures, self.until).await {
            return Err(error);
        }
        let layout = router.fresh_layout(&self.name).await?;
        let same_table = layout.schema.id == self.layout.schema.id;
        if !same_table && !self.handed_on.is_empty() {
            let text = format!("table {} was dropped and created again", self.name);
            return Err(Error::new(ErrorKind::Aborted, text));
        }
        self.layout = layout;
        let handed_on = std::mem::take(&mut self.handed_on);
        let Ok(handed_on) = ReadRowsResponse::decode(handed_on) else {
            return Err(error);
        };
        let half_a_row = handed_on
            .chunks
            .last()
            .is_some_and(|chunk| !matches!(chunk.row_status, Some(RowStatus::CommitRow(true))));
        Ok(half_a_row.then(forget_the_row))
    }

    async fn advance(&mut self) -> Result<Option<ReadReply>> {
        loop {
            if self.rows_left == Some(0) {
                return Ok(None);
            }
            let pulled = match self.running {
                Some(_) => self.pull().await,
                None => match self.open().await {
                    Ok(false) => return Ok(None),
                    Ok(true) => Ok(None),
                    Err(error) => Err(error),
                },
            };
            match pulled {
                Ok(Some(reply)) => return Ok(Some(reply)),
                Ok(None) => {}
                Err(error) => {
                    if let Some(reset) = self.resume(error).await? {
                        return Ok(Some(reset));
                    }
                }
            }
        }
    }
}

#[async_trait::async_trait]
impl ReadReplies for RoutedRead {
    async fn next(&mut self) -> Result<Option<ReadReply>> {
        let answer = self.advance().await;
        if answer.is_err() {
            self.rows_left = Some(0);
        }
        answer
    }
}

/// A reply that makes the receiver drop the row it has half of.
fn forget_the_row() -> ReadReply {
    let chunk = CellChunk { row_status: Some(RowStatus::ResetRow(true)), ..Default::default() };
    let response = ReadRowsResponse { chunks: vec![chunk], ..Default::default() };
    ReadReply { encoded: response.encode_to_vec().into(), rows: 0, last_row: None }
}
