//! A range server and a locator over a map: the seams that the gateway stands on, with faults.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use client::{
    Error, Locator, RangeLocation, RangeSample, RangeService, RangeTarget, ReadReplies, ReadReply,
    ReadRequest, Result, TableLayout, WriteRequest,
};
use prost::Message;
use proto::google::bigtable::v2::ReadRowsResponse;
use proto::google::bigtable::v2::read_rows_response::CellChunk;
use proto::google::bigtable::v2::read_rows_response::cell_chunk::RowStatus;
use types::{
    Epoch, ErrorKind, FamilyId, Mutation, RangeId, RowOrder, RowRange, TableId, TableName,
    TableSchema, Timestamp,
};

/// What a SetCell without a timestamp gets.
pub(crate) const SERVER_TIME: i64 = 7_000_000;
/// Rows of one reply.
const REPLY_ROWS: usize = 3;

type Cells = BTreeMap<(FamilyId, Bytes, Reverse<Timestamp>), Bytes>;

pub(crate) struct Range {
    table: TableName,
    rows: RowRange,
    epoch: Epoch,
    cells: BTreeMap<Bytes, Cells>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) tables: BTreeMap<TableName, Arc<TableSchema>>,
    ranges: BTreeMap<RangeId, Range>,
    ids: u64,
    /// Kinds of error that the next writes fail with, before they change anything.
    pub(crate) failing_writes: VecDeque<ErrorKind>,
    /// Reads to come that break with an error after so many replies.
    pub(crate) breaking_reads: VecDeque<(usize, ErrorKind)>,
    /// Replies end in the middle of a row.
    pub(crate) half_rows: bool,
    /// Rows of each write request so far.
    pub(crate) writes: Vec<usize>,
    pub(crate) replies: usize,
    pub(crate) locates: usize,
    /// Rows that were dropped, by table.
    pub(crate) dropped: Vec<(TableName, RowRange)>,
}

#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<State>>);

impl Fake {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Divides the range that holds `key` at `key`; both halves get new ids.
    pub(crate) fn split(&self, table: &TableName, key: &'static str) {
        let mut state = self.state();
        let key = Bytes::from_static(key.as_bytes());
        let holds = |range: &Range| range.table == *table && range.rows.contains(&key);
        let id = state.ranges.iter().find(|(_, range)| holds(range));
        let id = *id.unwrap().0;
        let mut low = state.ranges.remove(&id).unwrap();
        let high_rows = RowRange { start: key.clone(), end: low.rows.end.replace(key.clone()) };
        let cells = low.cells.split_off(&key);
        let (low_rows, epoch) = (low.rows, Epoch::new(low.epoch.get() + 1));
        for (rows, cells) in [(low_rows, low.cells), (high_rows, cells)] {
            let id = RangeId::new(state.next_id());
            let table = table.clone();
            let range = Range { table, rows, epoch, cells };
            state.ranges.insert(id, range);
        }
    }
}

impl State {
    pub(crate) fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    pub(crate) fn add_ranges(&mut self, table: &TableName, splits: &[Bytes]) {
        let mut start = Bytes::new();
        let ends = splits.iter().cloned().map(Some).chain([None]);
        for end in ends {
            let id = RangeId::new(self.next_id());
            let rows = RowRange { start: start.clone(), end: end.clone() };
            let range =
                Range { table: table.clone(), rows, epoch: Epoch::new(1), cells: BTreeMap::new() };
            self.ranges.insert(id, range);
            start = end.unwrap_or_default();
        }
    }

    pub(crate) fn drop_ranges(&mut self, table: &TableName) {
        self.ranges.retain(|_, range| range.table != *table);
    }

    pub(crate) fn next_table_id(&mut self) -> TableId {
        TableId::new(self.next_id())
    }

    fn serving(&mut self, target: &RangeTarget) -> Result<(&mut Range, Arc<TableSchema>)> {
        let wrong = || Error::new(ErrorKind::WrongRange, "not served here");
        let range = self.ranges.get_mut(&target.range).ok_or_else(wrong)?;
        let schema = self.tables.get(&range.table).ok_or_else(wrong)?.clone();
        if range.epoch != target.epoch || schema.generation != target.generation {
            return Err(wrong());
        }
        Ok((range, schema))
    }
}

fn apply(row: &mut Cells, mutation: Mutation, schema: &TableSchema) {
    match mutation {
        Mutation::SetCell { family, qualifier, timestamp, value } => {
            let at = timestamp.unwrap_or(Timestamp::from_micros(SERVER_TIME).unwrap());
            row.insert((family, qualifier, Reverse(at)), value);
        }
        Mutation::AddToCell { family, qualifier, timestamp, operand } => {
            let at = timestamp.unwrap_or(Timestamp::from_micros(SERVER_TIME).unwrap());
            let how = schema.family_by_id(family).and_then(|family| family.aggregate);
            let how = how.expect("only aggregates are added to");
            let value = row.entry((family, qualifier, Reverse(at))).or_default();
            let whole =
                types::key::operand(value).map_or(operand, |state| how.fold(state, operand));
            *value = Bytes::copy_from_slice(&whole.to_be_bytes());
        }
        Mutation::DeleteCells { family, qualifier, range } => {
            row.retain(|(f, q, Reverse(at)), _| {
                *f != family || *q != qualifier || !range.contains(*at)
            })
        }
        Mutation::DeleteFamily { family } => row.retain(|(f, _, _), _| *f != family),
        Mutation::DeleteRow => row.clear(),
    }
}

#[async_trait]
impl Locator for Fake {
    async fn locate(&self, name: &TableName) -> Result<Arc<TableLayout>> {
        let mut state = self.state();
        state.locates += 1;
        let schema = state.tables.get(name).cloned();
        let schema = schema.ok_or_else(|| Error::not_found("no such table"))?;
        let mut ranges: Vec<RangeLocation> = Vec::new();
        for (id, range) in state.ranges.iter().filter(|(_, r)| r.table == *name) {
            ranges.push(RangeLocation {
                range: *id,
                rows: range.rows.clone(),
                epoch: range.epoch,
                server: Arc::new(self.clone()),
            });
        }
        ranges.sort_by(|a, b| a.rows.start.cmp(&b.rows.start));
        Ok(Arc::new(TableLayout { schema, ranges }))
    }
}

#[async_trait]
impl RangeService for Fake {
    async fn write(&self, request: WriteRequest) -> Result<()> {
        let mut state = self.state();
        state.writes.push(request.rows.len());
        if let Some(kind) = state.failing_writes.pop_front() {
            return Err(Error::new(kind, "as the test wants it"));
        }
        let (range, schema) = state.serving(&request.target)?;
        for row in request.rows {
            assert!(range.rows.contains(&row.row), "a row of another range");
            let cells = range.cells.entry(row.row).or_default();
            for mutation in row.mutations {
                if let Mutation::SetCell { family, .. } = &mutation {
                    assert!(schema.family_by_id(*family).is_some(), "a dropped family");
                }
                apply(cells, mutation, &schema);
            }
        }
        Ok(())
    }

    async fn read(&self, request: ReadRequest) -> Result<Box<dyn ReadReplies>> {
        let mut state = self.state();
        let half_rows = state.half_rows;
        let breaks = state.breaking_reads.pop_front();
        let (range, schema) = state.serving(&request.target)?;
        let mut replies = Vec::new();
        let mut waiting: Vec<(Bytes, Vec<CellChunk>)> = Vec::new();
        let mut found = 0;
        let mut rows: Vec<_> = range.cells.iter().collect();
        if request.spec.order == RowOrder::Descending {
            rows.reverse();
        }
        for (row, cells) in rows {
            let asked = request.spec.rows.ranges();
            let chunks = chunks(row, cells, &schema);
            let wanted = asked.iter().any(|range| range.contains(row));
            if !wanted || chunks.is_empty() || limit_reached(found, request.spec.rows_limit) {
                continue;
            }
            found += 1;
            waiting.push((row.clone(), chunks));
            if waiting.len() == REPLY_ROWS {
                replies.push(reply(std::mem::take(&mut waiting)));
            }
        }
        replies.push(reply(waiting));
        if half_rows {
            replies = replies.into_iter().flat_map(halves).collect();
        }
        Ok(Box::new(Replies {
            fake: self.clone(),
            replies: replies.into_iter().filter(|r| !r.encoded.is_empty()).collect(),
            breaks,
        }))
    }

    async fn sample(&self, target: RangeTarget) -> Result<RangeSample> {
        let mut state = self.state();
        let (range, _) = state.serving(&target)?;
        let values = range.cells.values().flat_map(BTreeMap::values);
        let bytes = values.map(|value| value.len() as u64).sum();
        Ok(RangeSample { bytes })
    }
}

fn limit_reached(found: u64, limit: u64) -> bool {
    limit > 0 && found >= limit
}

/// The cells of a row as chunks; what did not change since the chunk before is left out.
fn chunks(row: &Bytes, cells: &Cells, schema: &TableSchema) -> Vec<CellChunk> {
    let mut chunks: Vec<CellChunk> = Vec::new();
    let mut column: Option<(FamilyId, &Bytes)> = None;
    for ((family, qualifier, Reverse(at)), value) in cells {
        let Some(declared) = schema.family_by_id(*family) else {
            continue;
        };
        let new_family = column.is_none_or(|(last, _)| last != *family);
        let new_qualifier = new_family || column.is_none_or(|(_, last)| last != qualifier);
        column = Some((*family, qualifier));
        chunks.push(CellChunk {
            row_key: if chunks.is_empty() { row.clone() } else { Bytes::new() },
            family_name: new_family.then(|| declared.name.clone()),
            qualifier: new_qualifier.then(|| qualifier.clone()),
            timestamp_micros: at.micros(),
            value: value.clone(),
            ..Default::default()
        });
    }
    if let Some(last) = chunks.last_mut() {
        last.row_status = Some(RowStatus::CommitRow(true));
    }
    chunks
}

fn reply(rows: Vec<(Bytes, Vec<CellChunk>)>) -> ReadReply {
    let (count, last_row) = (rows.len() as u64, rows.last().map(|(row, _)| row.clone()));
    let response = ReadRowsResponse {
        chunks: rows.into_iter().flat_map(|(_, chunks)| chunks).collect(),
        ..Default::default()
    };
    ReadReply { encoded: response.encode_to_vec().into(), rows: count, last_row }
}

/// Divides a reply before its last chunk, which is inside the last row if that has two cells.
fn halves(whole: ReadReply) -> Vec<ReadReply> {
    let mut low = ReadRowsResponse::decode(whole.encoded.clone()).unwrap();
    let mut high = ReadRowsResponse::default();
    high.chunks.extend(low.chunks.pop());
    let is_end = |chunk: &CellChunk| chunk.row_status == Some(RowStatus::CommitRow(true));
    let rows = low.chunks.iter().filter(|chunk| is_end(chunk)).count() as u64;
    let mut last_row = None;
    let mut row = Bytes::new();
    for chunk in &low.chunks {
        if !chunk.row_key.is_empty() {
            row = chunk.row_key.clone();
        }
        if is_end(chunk) {
            last_row = Some(row.clone());
        }
    }
    vec![
        ReadReply { encoded: low.encode_to_vec().into(), rows, last_row },
        ReadReply {
            encoded: high.encode_to_vec().into(),
            rows: whole.rows - rows,
            last_row: whole.last_row,
        },
    ]
}

struct Replies {
    fake: Fake,
    replies: VecDeque<ReadReply>,
    breaks: Option<(usize, ErrorKind)>,
}

#[async_trait]
impl ReadReplies for Replies {
    async fn next(&mut self) -> Result<Option<ReadReply>> {
        self.fake.state().replies += 1;
        match &mut self.breaks {
            Some((0, kind)) => return Err(Error::new(*kind, "as the test wants it")),
            Some((left, _)) => *left -= 1,
            None => {}
        }
        Ok(self.replies.pop_front())
    }
}
