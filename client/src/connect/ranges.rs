use bytes::Bytes;
use proto::google::bigtable::admin::v2 as admin;
use proto::tepui::admin::v1;
use tonic::Streaming;

use super::Client;
use super::retry::{Attempts, read_again, write_again};
use crate::{Result, TableRange};

/// Which rows of a table are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DroppedRows {
    /// Those that begin with this, which is not empty.
    Prefix(Bytes),
    /// All.
    All,
}

/// A merge of a table under way, range by range. Dropping it stops it after the present range.
#[derive(Debug)]
pub struct Compaction {
    client: Client,
    answers: Streaming<v1::CompactTableResponse>,
}

impl Compaction {
    /// The next range that is merged; `None` when all are.
    ///
    /// # Errors
    /// What the server or the connection fails with.
    pub async fn next(&mut self) -> Result<Option<TableRange>> {
        let answer = self.client.call(self.answers.message()).await?;
        Ok(answer.map(|answer| TableRange::from(answer.range.unwrap_or_default())))
    }
}

impl Client {
    /// Drops rows of the table called `id` with all their cells, for good.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument`, and what the connection fails with: then some of the rows may
    /// be dropped.
    pub async fn drop_rows(&self, id: &str, rows: &DroppedRows) -> Result<()> {
        use admin::drop_row_range_request::Target;
        let target = match rows {
            DroppedRows::Prefix(prefix) => Target::RowKeyPrefix(prefix.clone()),
            DroppedRows::All => Target::DeleteAllDataFromTable(true),
        };
        let name = self.table_name(id).to_string();
        let request = admin::DropRowRangeRequest { name, target: Some(target) };
        let mut attempts = Attempts::new();
        loop {
            let mut client = self.admin();
            let Err(error) = self.call(client.drop_row_range(request.clone())).await else {
                return Ok(());
            };
            let again = write_again(&error, false);
            attempts.wait(&self.env, error, again).await?;
        }
    }

    /// The ranges of the table called `id`, in the order of their rows.
    ///
    /// # Errors
    /// `NotFound`, and what the connection fails with.
    pub async fn list_ranges(&self, id: &str) -> Result<Vec<TableRange>> {
        let table_name = self.table_name(id).to_string();
        let request = v1::ListRangesRequest { table_name };
        let mut attempts = Attempts::new();
        loop {
            let mut client = self.ranges();
            match self.call(client.list_ranges(request.clone())).await {
                Ok(answer) => {
                    let ranges = answer.into_inner().ranges.into_iter();
                    return Ok(ranges.map(TableRange::from).collect());
                }
                Err(error) => {
                    let again = read_again(&error);
                    attempts.wait(&self.env, error, again).await?;
                }
            }
        }
    }

    /// Divides the table called `id` at `rows`, or each of its ranges near the middle if there are
    /// none. Returns the rows at which a range was divided.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument`, and what the connection fails with: then some may be divided.
    pub async fn split_table(&self, id: &str, rows: &[Bytes]) -> Result<Vec<Bytes>> {
        let table_name = self.table_name(id).to_string();
        let request = v1::SplitTableRequest { table_name, row_keys: rows.to_vec() };
        let mut attempts = Attempts::new();
        loop {
            let mut client = self.ranges();
            match self.call(client.split_table(request.clone())).await {
                Ok(answer) => return Ok(answer.into_inner().row_keys),
                Err(error) => {
                    // Where it is divided already nothing happens.
                    let again = write_again(&error, !rows.is_empty());
                    attempts.wait(&self.env, error, again).await?;
                }
            }
        }
    }

    /// Writes what the table called `id` has in memory to files.
    ///
    /// # Errors
    /// `NotFound`, and what the connection fails with.
    pub async fn flush_table(&self, id: &str) -> Result<()> {
        let request = v1::FlushTableRequest { table_name: self.table_name(id).to_string() };
        let mut attempts = Attempts::new();
        loop {
            let mut client = self.ranges();
            let Err(error) = self.call(client.flush_table(request.clone())).await else {
                return Ok(());
            };
            let again = write_again(&error, true);
            attempts.wait(&self.env, error, again).await?;
        }
    }

    /// Merges the files of the table called `id`, range by range, as the answers are taken.
    ///
    /// # Errors
    /// `InvalidArgument`, and what the connection fails with.
    pub async fn compact_table(&self, id: &str) -> Result<Compaction> {
        let request = v1::CompactTableRequest { table_name: self.table_name(id).to_string() };
        let answers = self.call(self.ranges().compact_table(request)).await?.into_inner();
        Ok(Compaction { client: self.clone(), answers })
    }
}
