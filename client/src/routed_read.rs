//! A read of a table, range by range.
//!
//! 1. The next row that is asked for tells the range; what is asked for of that range is read.
//! 2. Its replies are handed on untouched. What was asked for up to the last row that ended in them
//!    is read.
//! 3. When the range has ended, all that was asked for of it is read.
//! 4. When a range fails in a way that may pass, the layout is looked up again and the read goes
//!    on from where it stands. If part of a row was handed on already, the receiver is first told
//!    to forget that part. A bounded number of such failures without progress ends the read; the
//!    end of a range is progress, with or without rows: each of many ranges may have moved.
//!
//! Invariants
//! - Only one reply is held, and the one before (to know how it ended).
//! - A row that was handed on whole is never sent again; rows come in the order asked for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use proto::google::bigtable::v2::ReadRowsResponse;
use proto::google::bigtable::v2::read_rows_response::CellChunk;
use proto::google::bigtable::v2::read_rows_response::cell_chunk::RowStatus;
use types::{ErrorKind, ReadSpec, RowOrder, RowRange, RowSet, TableName};

use crate::{Error, ReadReplies, ReadReply, ReadRequest, Result, Router, RowKeys, TableLayout};

/// A running read of a table: pulled, so it holds no more than a reply or two. Dropping it stops
/// the read.
pub struct RoutedRead {
    router: Arc<Router>,
    name: TableName,
    layout: Arc<TableLayout>,
    until: Option<Duration>,
    order: RowOrder,
    /// What is asked for and not read yet: disjoint, the next one last.
    asked: Vec<RowRange>,
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
    bounds: RowRange,
}

impl std::fmt::Debug for RoutedRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoutedRead")
            .field("table", &self.name)
            .field("next", &self.asked.last())
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
        let mut asked = spec.rows.ranges().to_vec();
        if spec.order == RowOrder::Ascending {
            asked.reverse();
        }
        RoutedRead {
            router,
            name,
            layout,
            until,
            order: spec.order,
            asked,
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
        let Some(next) = self.asked.last() else {
            return Ok(false);
        };
        let place = match self.order {
            RowOrder::Ascending => self.layout.place_of(&next.start),
            RowOrder::Descending => self.layout.place_before(next.end.as_deref()),
        };
        let location = &self.layout.ranges[place];
        let bounds = location.rows.clone();
        let inside = self.asked.iter().rev().map(|interval| interval.intersection(&bounds));
        let inside = inside.take_while(|interval| !interval.is_empty());
        let request = ReadRequest {
            target: location.target(&self.layout.schema, self.router.left(self.until)),
            spec: ReadSpec {
                rows: RowSet::new(inside.collect()),
                rows_limit: self.rows_left.unwrap_or(0),
                order: self.order,
            },
            row_keys: self.row_keys,
        };
        self.running = Some(Running { replies: location.server.read(request).await?, bounds });
        Ok(true)
    }

    /// All rows up to those of `rows`, in the order of the read, are read.
    fn is_read(&mut self, rows: &RowRange) {
        while let Some(next) = self.asked.last_mut() {
            match (self.order, &rows.end) {
                (RowOrder::Ascending, Some(end)) if next.contains(end) => {
                    next.start = end.clone();
                    return;
                }
                (RowOrder::Ascending, Some(end)) if next.start >= *end => return,
                (RowOrder::Descending, _) if next.contains(&rows.start) => {
                    next.end = Some(rows.start.clone());
                    if !next.is_empty() {
                        return;
                    }
                }
                (RowOrder::Descending, _)
                    if next.end.as_ref().is_some_and(|end| *end <= rows.start) =>
                {
                    return;
                }
                _ => {}
            }
            self.asked.pop();
        }
    }

    /// The next reply of the range being read. `None` when it has ended.
    async fn pull(&mut self) -> Result<Option<ReadReply>> {
        let Some(running) = &mut self.running else {
            return Ok(None);
        };
        let Some(reply) = running.replies.next().await? else {
            let bounds = running.bounds.clone();
            self.running = None;
            self.failures = 0;
            self.is_read(&bounds);
            return Ok(None);
        };
        if let Some(left) = &mut self.rows_left {
            *left = left.saturating_sub(reply.rows);
        }
        if let Some(row) = &reply.last_row {
            self.is_read(&RowRange::row(row));
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
