//! Reads rows, and goes on after the last one when the stream breaks.
//!
//! 1. A request asks for the rows that are still missing, and for as many as the limit leaves.
//! 2. Replies go through the merger; whole rows wait in a queue of one reply's rows.
//! 3. When the call or the stream fails and waiting may help, the half row is forgotten and step 1
//!    asks again for what comes after the last row. Every row that arrives starts the count of
//!    attempts again.
//!
//! Invariant: every row of the answer comes once and in order, however often the stream broke.

use std::collections::VecDeque;

use bytes::Bytes;
use futures::Stream;
use proto::google::bigtable::v2::{self as data, ReadRowsResponse};
use tonic::Streaming;
use types::{ErrorKind, RowOrder, RowRange, row_successor};

use super::Table;
use super::merge::Merger;
use super::retry::{Attempts, read_again};
use super::row::Row;
use crate::{Error, Result};

impl Table {
    /// Reads one row; `None` when it has no cells.
    ///
    /// # Errors
    /// `NotFound` (the table), `InvalidArgument`, and what the server or the connection fails with.
    pub async fn get(&self, row: impl Into<Bytes>) -> Result<Option<Row>> {
        self.scan(RowRange::row(&row.into()), None).next().await
    }

    /// Starts to read the rows in `rows`, in order, at most `limit` of them.
    pub fn scan(&self, rows: RowRange, limit: Option<u64>) -> Scan {
        // On the wire an empty end means no end; here nothing is before the empty row.
        let nothing = limit == Some(0) || rows.end.as_ref().is_some_and(Bytes::is_empty);
        Scan {
            table: self.clone(),
            rows,
            left: limit,
            order: RowOrder::Ascending,
            merger: Merger::new(),
            replies: None,
            ready: VecDeque::new(),
            attempts: Attempts::new(),
            ended: nothing,
        }
    }
}

/// A running read. It holds the rows of one reply; dropping it stops the read.
pub struct Scan {
    table: Table,
    /// What was asked for.
    rows: RowRange,
    /// How many rows may still arrive; `None` without a limit.
    left: Option<u64>,
    order: RowOrder,
    merger: Merger,
    replies: Option<Streaming<ReadRowsResponse>>,
    ready: VecDeque<Row>,
    attempts: Attempts,
    /// Nothing more will arrive.
    ended: bool,
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scan({} {:?})", self.table.name, self.rows)
    }
}

impl Scan {
    /// The same scan with the largest row first, and the limit counted from there. Not begun yet.
    #[must_use]
    pub fn reversed(mut self) -> Scan {
        assert!(self.replies.is_none() && self.merger.last().is_none(), "the scan has begun");
        self.order = RowOrder::Descending;
        self.merger = Merger::new().descending();
        self
    }

    /// The next row; `None` at the end.
    ///
    /// # Errors
    /// As [`Table::get`]. After an error the scan is over.
    pub async fn next(&mut self) -> Result<Option<Row>> {
        loop {
            if let Some(row) = self.ready.pop_front() {
                return Ok(Some(row));
            }
            if self.ended {
                return Ok(None);
            }
            if let Err(error) = self.advance().await {
                self.ended = true;
                self.replies = None;
                return Err(error);
            }
        }
    }

    /// The rows as a stream that ends with the scan or with its first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Row>> + Send {
        futures::stream::try_unfold(self, |mut scan| async move {
            Ok(scan.next().await?.map(|row| (row, scan)))
        })
    }

    /// Takes one reply, or makes the call that replies come from.
    async fn advance(&mut self) -> Result<()> {
        match self.pull().await {
            Ok(Some(reply)) => self.take(reply),
            Ok(None) => {
                self.merger.finish()?;
                self.ended = true;
                Ok(())
            }
            Err(error) => {
                self.replies = None;
                self.merger.restart();
                let retriable = read_again(&error);
                let env = self.table.client.env.clone();
                self.attempts.wait(&env, error, retriable).await?;
                self.ended = self.left == Some(0) || self.missing().is_empty();
                Ok(())
            }
        }
    }

    async fn pull(&mut self) -> Result<Option<ReadRowsResponse>> {
        let client = self.table.client.clone();
        if self.replies.is_none() {
            let request = self.request();
            let mut data = client.data();
            let answer = client.call(data.read_rows(request)).await?;
            self.replies = Some(answer.into_inner());
        }
        let replies = self.replies.as_mut().expect("it was opened above");
        client.call(replies.message()).await
    }

    fn take(&mut self, reply: ReadRowsResponse) -> Result<()> {
        let before = self.merger.last().cloned();
        self.merger.push(reply, &mut self.ready)?;
        if self.merger.last() != before.as_ref() {
            self.attempts.progressed();
        }
        let Some(left) = &mut self.left else {
            return Ok(());
        };
        match left.checked_sub(self.ready.len() as u64) {
            Some(fewer) => *left = fewer,
            None => {
                self.ready.clear();
                return Err(Error::new(
                    ErrorKind::Io,
                    "the server's answer breaks the protocol: more rows than were asked for",
                ));
            }
        }
        Ok(())
    }

    /// The rows that have not arrived yet.
    fn missing(&self) -> RowRange {
        let RowRange { start, end } = self.rows.clone();
        match (self.merger.last(), self.order) {
            (None, _) => RowRange { start, end },
            (Some(last), RowOrder::Ascending) => {
                RowRange { start: start.max(row_successor(last)), end }
            }
            (Some(last), RowOrder::Descending) => RowRange { start, end: Some(last.clone()) },
        }
    }

    fn request(&self) -> data::ReadRowsRequest {
        let missing = self.missing();
        let rows = match missing.single_row() {
            Some(row) => data::RowSet { row_keys: vec![row.clone()], row_ranges: Vec::new() },
            None => data::RowSet { row_keys: Vec::new(), row_ranges: vec![wire_range(&missing)] },
        };
        data::ReadRowsRequest {
            table_name: self.table.name.clone(),
            rows: Some(rows),
            reversed: self.order == RowOrder::Descending,
            rows_limit: self.left.map_or(0, |left| i64::try_from(left).unwrap_or(i64::MAX)),
            ..Default::default()
        }
    }
}

fn wire_range(rows: &RowRange) -> data::RowRange {
    use data::row_range::{EndKey, StartKey};
    data::RowRange {
        start_key: (!rows.start.is_empty()).then(|| StartKey::StartKeyClosed(rows.start.clone())),
        end_key: rows.end.clone().map(EndKey::EndKeyOpen),
    }
}
