//! Writes rows: one at a time, or many in batches.
//!
//! Many rows go as requests of bounded size, a few in flight at once. Each row has its own outcome;
//! those that failed in a way that waiting may help are sent again, alone.

use std::collections::VecDeque;

use bytes::Bytes;
use futures::{StreamExt, stream};
use proto::google::bigtable::v2 as data;
use tonic::Streaming;
use types::limits::MUTATIONS_MAX;
use types::{ErrorKind, Timestamp};

use super::mutation::RowMutation;
use super::retry::{Attempts, write_again};
use super::{Table, status};
use crate::{Error, Result};

/// Bytes of one request; a row that has more goes alone.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Rows of one request.
const BATCH_ROWS_MAX: usize = 10_000;
/// Requests of one [`Table::mutate_rows`] that wait for their answer at once.
const BATCHES_IN_FLIGHT_MAX: usize = 4;

impl Table {
    /// Writes one cell; `None` takes the server's time. It is durable when this returns.
    ///
    /// # Errors
    /// As [`Table::mutate_row`].
    pub async fn put(
        &self,
        row: impl Into<Bytes>,
        family: &str,
        qualifier: impl Into<Bytes>,
        at: Option<Timestamp>,
        value: impl Into<Bytes>,
    ) -> Result<()> {
        let row = RowMutation::new(row).set(family, qualifier, at, value);
        self.mutate_row(row).await
    }

    /// Changes one row, atomically. The change is durable when this returns.
    ///
    /// # Errors
    /// `NotFound` (the table or a family), `InvalidArgument`, `ResourceExhausted` and `Unavailable`
    /// change nothing; after `Aborted` and `DeadlineExceeded` the outcome is unknown.
    pub async fn mutate_row(&self, row: RowMutation) -> Result<()> {
        let mut attempts = Attempts::new();
        loop {
            let request = row.request(&self.name);
            let mut data = self.client.data();
            let Err(error) = self.client.call(data.mutate_row(request)).await else {
                return Ok(());
            };
            let again = write_again(&error, row.repeatable());
            attempts.wait(&self.client.env, error, again).await?;
        }
    }

    /// Changes many rows: each atomically, in no particular order, even where one row comes twice.
    /// The answer has one outcome for each, in the order of `rows`.
    pub async fn mutate_rows(&self, rows: Vec<RowMutation>) -> Vec<Result<()>> {
        let batches = cut(rows).into_iter().map(|batch| {
            let table = self.clone();
            async move { table.mutate_batch(batch).await }
        });
        let outcomes: Vec<_> =
            stream::iter(batches).buffered(BATCHES_IN_FLIGHT_MAX).collect().await;
        outcomes.into_iter().flatten().collect()
    }

    async fn mutate_batch(&self, rows: Vec<RowMutation>) -> Vec<Result<()>> {
        let mut outcomes: Vec<Result<()>> = vec![Ok(()); rows.len()];
        let mut pending: Vec<usize> = (0..rows.len()).collect();
        let mut attempts = Attempts::new();
        loop {
            let entries = pending.iter().map(|&place| rows[place].entry()).collect();
            let answers = self.send(entries).await;
            assert_eq!(answers.len(), pending.len(), "one outcome for each row");
            let mut again = Vec::new();
            let mut failure = None;
            for (&place, answer) in pending.iter().zip(answers) {
                if let Err(error) = &answer
                    && write_again(error, rows[place].repeatable())
                {
                    again.push(place);
                    failure.get_or_insert_with(|| error.clone());
                }
                outcomes[place] = answer;
            }
            let Some(error) = failure else {
                return outcomes;
            };
            if attempts.wait(&self.client.env, error, true).await.is_err() {
                return outcomes;
            }
            pending = again;
        }
    }

    /// Sends one request; one outcome for each entry comes back, whatever the server does.
    async fn send(&self, entries: Vec<data::mutate_rows_request::Entry>) -> Vec<Result<()>> {
        let mut outcomes: Vec<Option<Result<()>>> = vec![None; entries.len()];
        let request = data::MutateRowsRequest {
            table_name: self.name.clone(),
            entries,
            ..Default::default()
        };
        let mut data = self.client.data();
        let rest = match self.client.call(data.mutate_rows(request)).await {
            Ok(replies) => self.collect(replies.into_inner(), &mut outcomes).await,
            Err(error) => error,
        };
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(rest.clone()))).collect()
    }

    /// Fills in the outcomes that arrive; the answer is what became of those that did not.
    async fn collect(
        &self,
        mut replies: Streaming<data::MutateRowsResponse>,
        outcomes: &mut [Option<Result<()>>],
    ) -> Error {
        loop {
            let reply = match self.client.call(replies.message()).await {
                Ok(Some(reply)) => reply,
                Ok(None) => {
                    return Error::new(
                        ErrorKind::Aborted,
                        "the server gave no outcome for the row",
                    );
                }
                Err(error) => return error,
            };
            for entry in reply.entries {
                let place = usize::try_from(entry.index).ok();
                let Some(outcome) = place.and_then(|place| outcomes.get_mut(place)) else {
                    return Error::new(
                        ErrorKind::Aborted,
                        "the server's answer breaks the protocol: an outcome for no row",
                    );
                };
                let error = entry.status.as_ref().and_then(status::entry_error);
                *outcome = Some(error.map_or(Ok(()), Err));
            }
        }
    }
}

/// Cuts rows into requests.
fn cut(rows: Vec<RowMutation>) -> VecDeque<Vec<RowMutation>> {
    let mut batches = VecDeque::new();
    let mut batch: Vec<RowMutation> = Vec::new();
    let (mut bytes, mut mutations) = (0, 0);
    for row in rows {
        let full = bytes + row.bytes() > BATCH_BYTES_MAX
            || mutations + row.mutations() > MUTATIONS_MAX
            || batch.len() >= BATCH_ROWS_MAX;
        if full && !batch.is_empty() {
            batches.push_back(std::mem::take(&mut batch));
            (bytes, mutations) = (0, 0);
        }
        bytes += row.bytes();
        mutations += row.mutations();
        batch.push(row);
    }
    if !batch.is_empty() {
        batches.push_back(batch);
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: usize, bytes: usize, cells: usize) -> RowMutation {
        let mut row = RowMutation::new(key.to_string());
        for _ in 0..cells {
            row = row.set("f", "q", None, vec![0; bytes]);
        }
        row
    }

    #[test]
    fn requests_keep_to_every_limit_and_to_the_order() {
        let rows: Vec<_> = (0..30_000)
            .map(|key| match key {
                7 => row(key, BATCH_BYTES_MAX + 1, 1),
                8 => row(key, 0, MUTATIONS_MAX),
                _ => row(key, key % 2_000, 1),
            })
            .collect();
        let batches = cut(rows.clone());
        assert!(batches.len() > 6);
        for batch in &batches {
            assert!(!batch.is_empty() && batch.len() <= BATCH_ROWS_MAX);
            let bytes: usize = batch.iter().map(RowMutation::bytes).sum();
            assert!(bytes <= BATCH_BYTES_MAX || batch.len() == 1);
            let mutations: usize = batch.iter().map(RowMutation::mutations).sum();
            assert!(mutations <= MUTATIONS_MAX);
        }
        let joined: Vec<_> = batches.into_iter().flatten().collect();
        assert!(joined == rows);
    }

    #[test]
    fn no_rows_are_no_requests() {
        assert!(cut(Vec::new()).is_empty());
    }
}
