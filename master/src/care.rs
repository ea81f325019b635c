//! The care for a table's ranges: each operation on a table is made of operations on its ranges,
//! which their servers do.
//!
//! The layout may change under an operation: ranges are opened, moved and divided. Whatever a
//! server answers with `WrongRange` is looked up again and goes on with what is left, so that in
//! the end every row was in a range that did it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{RangeKeeper, RangeStatus, RangeTarget, TableRange};
use types::limits::ROW_KEY_BYTES_MAX;
use types::{ErrorKind, RangeId, RowRange, TableName};

use crate::error::Result;
use crate::master::{Inner, server_of};

/// How often one range is asked before its answer is the operation's.
const TRIES_MAX: u32 = 10;
/// The wait before the third try; it doubles from there.
const BACKOFF_FIRST: Duration = Duration::from_millis(5);
/// Rows at which a table is divided by one request.
const SPLIT_ROWS_MAX: usize = 10_000;

/// A range with the way to its server.
#[derive(Clone)]
struct Kept {
    id: RangeId,
    rows: RowRange,
    target: RangeTarget,
    keeper: Arc<dyn RangeKeeper>,
}

/// What a range's server is asked for.
type Asked<T> = Pin<Box<dyn Future<Output = client::Result<T>> + Send>>;

/// A walk over a table's ranges with the layout as it was last looked up.
struct Walk<'a> {
    inner: &'a Inner,
    name: &'a TableName,
    ranges: Vec<Kept>,
}

impl Inner {
    pub(crate) async fn drop_rows(&self, name: &TableName, rows: &RowRange) -> Result<()> {
        let mut walk = Walk::begin(self, name).await?;
        let mut left = rows.clone();
        while !left.is_empty() {
            let drop = |kept: Kept| -> Asked<()> {
                let rows = rows.clone();
                Box::pin(async move { kept.keeper.drop_rows(kept.target, &rows).await })
            };
            let (kept, ()) = walk.at(&left.start, drop).await?;
            let Some(end) = kept.rows.end else { break };
            left.start = end;
        }
        Ok(())
    }

    pub(crate) async fn list_ranges(&self, name: &TableName) -> Result<Vec<TableRange>> {
        let ask = |kept: Kept| -> Asked<RangeStatus> {
            Box::pin(async move { kept.keeper.status(kept.target).await })
        };
        let asked = Walk::begin(self, name).await?.each(ask).await?;
        let described =
            |(kept, status): (Kept, _)| TableRange { range: kept.id, rows: kept.rows, status };
        Ok(asked.into_iter().map(described).collect())
    }

    pub(crate) async fn flush(&self, name: &TableName) -> Result<()> {
        let flush = |kept: Kept| -> Asked<()> {
            Box::pin(async move { kept.keeper.flush(kept.target).await })
        };
        Walk::begin(self, name).await?.each(flush).await.map(drop)
    }

    pub(crate) async fn compact_at(&self, name: &TableName, row: &Bytes) -> Result<TableRange> {
        let compact = |kept: Kept| -> Asked<RangeStatus> {
            Box::pin(async move { kept.keeper.compact(kept.target).await })
        };
        let (kept, status) = Walk::begin(self, name).await?.at(row, compact).await?;
        Ok(TableRange { range: kept.id, rows: kept.rows, status })
    }

    pub(crate) async fn split(&self, name: &TableName, rows: Vec<Bytes>) -> Result<Vec<Bytes>> {
        check_split_rows(&rows)?;
        let mut walk = Walk::begin(self, name).await?;
        if rows.is_empty() {
            let split = |kept: Kept| -> Asked<Option<Bytes>> {
                Box::pin(async move { kept.keeper.split(kept.target, None).await })
            };
            let asked = walk.each(split).await?;
            return Ok(asked.into_iter().filter_map(|(_, at)| at).collect());
        }
        let mut divided = Vec::new();
        for row in rows {
            let split = |kept: Kept| -> Asked<Option<Bytes>> {
                let row = row.clone();
                Box::pin(async move {
                    if kept.rows.start == row {
                        return Ok(None);
                    }
                    kept.keeper.split(kept.target, Some(row)).await
                })
            };
            divided.extend(walk.at(&row, split).await?.1);
        }
        Ok(divided)
    }

    async fn kept(&self, name: &TableName) -> Result<Vec<Kept>> {
        let (table, ranges) = self.catalog.layout(name).await?;
        let servers = self.servers();
        let mut kept = Vec::with_capacity(ranges.len());
        for range in ranges {
            let server = server_of(&servers, range.record.session).ok_or_else(|| {
                client::Error::new(ErrorKind::Unavailable, "no range server is running")
            })?;
            let target = RangeTarget {
                range: range.id,
                epoch: range.record.epoch,
                generation: table.record.schema.generation,
                deadline: None,
            };
            let keeper = Arc::clone(&server.keeper);
            kept.push(Kept { id: range.id, rows: range.record.rows, target, keeper });
        }
        Ok(kept)
    }
}

impl<'a> Walk<'a> {
    async fn begin(inner: &'a Inner, name: &'a TableName) -> Result<Walk<'a>> {
        Ok(Walk { inner, name, ranges: inner.kept(name).await? })
    }

    /// Asks every range, in the order of their rows.
    async fn each<T>(&mut self, ask: impl Fn(Kept) -> Asked<T>) -> Result<Vec<(Kept, T)>> {
        let mut answers = Vec::new();
        let mut next = Some(Bytes::new());
        while let Some(row) = next.take() {
            let answered = self.at(&row, &ask).await?;
            next.clone_from(&answered.0.rows.end);
            answers.push(answered);
        }
        Ok(answers)
    }

    /// Asks the range that holds `row`.
    async fn at<T>(&mut self, row: &Bytes, ask: impl Fn(Kept) -> Asked<T>) -> Result<(Kept, T)> {
        let mut wait = BACKOFF_FIRST;
        for tries in 1.. {
            let place = self.ranges.partition_point(|kept| kept.rows.start <= *row);
            let place = place.checked_sub(1).expect("the first range starts at the empty key");
            let kept = self.ranges[place].clone();
            let error = match ask(kept.clone()).await {
                Ok(answer) => return Ok((kept, answer)),
                Err(error) => error,
            };
            if error.kind() != ErrorKind::WrongRange || tries == TRIES_MAX {
                return Err(error.into());
            }
            if tries > 1 {
                self.inner.env.sleep(wait).await;
                wait *= 2;
            }
            self.ranges = self.inner.kept(self.name).await?;
        }
        unreachable!("the loop has no end of its own")
    }
}

fn check_split_rows(rows: &[Bytes]) -> client::Result<()> {
    if rows.len() > SPLIT_ROWS_MAX {
        let text = format!("{} split rows, more than {SPLIT_ROWS_MAX}", rows.len());
        return Err(client::Error::invalid(text));
    }
    if rows.iter().any(|row| row.is_empty() || row.len() > ROW_KEY_BYTES_MAX) {
        let text = format!("a split row must have 1 to {ROW_KEY_BYTES_MAX} bytes");
        return Err(client::Error::invalid(text));
    }
    Ok(())
}
