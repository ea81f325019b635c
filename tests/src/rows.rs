//! Reads a table through a router and puts its rows together, strictly: whatever the wire format
//! does not allow is a violation, not a failed read.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use client::{ReadReplies, Router};
use prost::Message;
use proto::google::bigtable::v2::ReadRowsResponse;
use proto::google::bigtable::v2::read_rows_response::CellChunk;
use proto::google::bigtable::v2::read_rows_response::cell_chunk::RowStatus;
use types::{ReadSpec, RowOrder, RowSet, TableName};

use crate::model::{Row, Violation};

/// Rows by key.
pub type Rows = BTreeMap<Bytes, Row>;

/// Why a read gave no rows.
#[derive(Clone, Debug)]
pub enum ReadFailure {
    /// The store answered with an error.
    Error(client::Error),
    /// The answer breaks the wire format.
    Violation(Violation),
}

impl From<client::Error> for ReadFailure {
    fn from(error: client::Error) -> ReadFailure {
        ReadFailure::Error(error)
    }
}

/// Reads `rows` of a table to the end.
///
/// # Errors
/// See [`ReadFailure`].
pub async fn read(
    router: &Arc<Router>,
    name: &TableName,
    rows: RowSet,
) -> Result<Rows, ReadFailure> {
    let layout = router.layout(name).await?;
    let spec = ReadSpec { rows, rows_limit: 0, order: RowOrder::Ascending };
    let mut replies = router.read(name, layout, spec, None);
    let mut merge = Merge::default();
    while let Some(reply) = replies.next().await? {
        let response = ReadRowsResponse::decode(reply.encoded)
            .map_err(|error| ReadFailure::Violation(format!("a reply is no message: {error}")))?;
        for chunk in response.chunks {
            merge.add(chunk).map_err(ReadFailure::Violation)?;
        }
    }
    match merge.open {
        Some(_) => Err(ReadFailure::Violation("the reply ends inside a row".to_owned())),
        None => Ok(merge.rows),
    }
}

#[derive(Default)]
struct Merge {
    rows: Rows,
    open: Option<Open>,
}

#[derive(Default)]
struct Open {
    key: Bytes,
    row: Row,
    family: String,
    qualifier: Bytes,
    /// Timestamp and value of a cell that goes on in the next chunk.
    value: Option<(i64, Vec<u8>)>,
}

impl Merge {
    fn add(&mut self, chunk: CellChunk) -> Result<(), Violation> {
        if let Some(RowStatus::ResetRow(true)) = chunk.row_status {
            self.open = None;
            return Ok(());
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin(&chunk)?,
        };
        open.add(&chunk)?;
        match chunk.row_status {
            Some(RowStatus::CommitRow(true)) if open.value.is_some() => {
                Err("a row is committed inside a cell".to_owned())
            }
            Some(RowStatus::CommitRow(true)) => {
                self.rows.insert(open.key, open.row);
                Ok(())
            }
            _ => {
                self.open = Some(open);
                Ok(())
            }
        }
    }

    fn begin(&self, chunk: &CellChunk) -> Result<Open, Violation> {
        let last = self.rows.keys().next_back();
        if chunk.row_key.is_empty() || last.is_some_and(|last| *last >= chunk.row_key) {
            return Err(format!("row {} after {last:?}", chunk.row_key.escape_ascii()));
        }
        if chunk.family_name.is_none() || chunk.qualifier.is_none() {
            return Err("a row begins without a column".to_owned());
        }
        Ok(Open { key: chunk.row_key.clone(), ..Open::default() })
    }
}

impl Open {
    fn add(&mut self, chunk: &CellChunk) -> Result<(), Violation> {
        if let Some((at, mut value)) = self.value.take() {
            value.extend_from_slice(&chunk.value);
            return self.end_value(at, value, chunk.value_size > 0);
        }
        if let Some(family) = &chunk.family_name {
            self.family.clone_from(family);
        }
        if let Some(qualifier) = &chunk.qualifier {
            self.qualifier = qualifier.clone();
        }
        let value = chunk.value.to_vec();
        self.end_value(chunk.timestamp_micros, value, chunk.value_size > 0)
    }

    fn end_value(&mut self, at: i64, value: Vec<u8>, goes_on: bool) -> Result<(), Violation> {
        if goes_on {
            self.value = Some((at, value));
            return Ok(());
        }
        let place = (self.family.clone(), self.qualifier.clone(), Reverse(at));
        match self.row.insert(place.clone(), value.into()) {
            None => Ok(()),
            Some(_) => Err(format!("cell {place:?} comes twice")),
        }
    }
}
