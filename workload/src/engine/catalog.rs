//! The catalog of a measurement: one table with one family, in one range.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use async_trait::async_trait;
use bytes::Bytes;
use client::{Assignments, Division, RangeAssignment, RangeTarget};
use types::{
    Epoch, FamilyId, Generation, Granularity, Mutation, RangeId, RowMutations, RowRange, SessionId,
    TableId, TableName, TableSchema, Timestamp,
};

const TABLE: TableId = TableId::new(1);
const RANGE: RangeId = RangeId::new(1);
const NAME: &str = "projects/figures/instances/figures/tables/engine";

/// See the module's words.
pub(crate) struct OneRange {
    schema: Arc<TableSchema>,
    family: FamilyId,
    epoch: AtomicU64,
}

impl OneRange {
    pub(crate) fn new() -> OneRange {
        let mut schema = TableSchema {
            id: TABLE,
            name: TableName::parse(NAME).expect("a table's name"),
            generation: Generation::new(1),
            granularity: Granularity::Millis,
            families: Vec::new(),
            next_family: FamilyId::new(1),
            groups: Vec::new(),
        };
        let family = schema.add_family("cf", None, None).expect("the first family");
        OneRange { schema: Arc::new(schema), family, epoch: AtomicU64::new(1) }
    }

    /// Where all rows are.
    pub(crate) fn target(&self) -> RangeTarget {
        RangeTarget {
            range: RANGE,
            epoch: Epoch::new(self.epoch.load(SeqCst)),
            generation: self.schema.generation,
            deadline: None,
        }
    }

    /// A put of the one column. Its timestamp is fixed, so that a key that comes again is
    /// overwritten, as in stores without versions.
    pub(crate) fn put(&self, key: Bytes, value: Bytes) -> RowMutations {
        let cell = Mutation::SetCell {
            family: self.family,
            qualifier: Bytes::from_static(b"q"),
            timestamp: Some(Timestamp::ZERO),
            value,
        };
        RowMutations { row: key, mutations: vec![cell] }
    }
}

#[async_trait]
impl Assignments for OneRange {
    async fn ranges(&self) -> client::Result<Vec<(RangeId, TableId)>> {
        Ok(vec![(RANGE, TABLE)])
    }

    async fn assign(
        &self,
        ranges: &[RangeId],
        _session: SessionId,
    ) -> client::Result<Vec<RangeAssignment>> {
        let granted = |range: &RangeId| RangeAssignment {
            range: *range,
            rows: RowRange::all(),
            epoch: Epoch::new(self.epoch.fetch_add(1, SeqCst) + 1),
            schema: Arc::clone(&self.schema),
        };
        Ok(ranges.iter().filter(|range| **range == RANGE).map(granted).collect())
    }

    async fn take_range_ids(&self, _count: u64) -> client::Result<RangeId> {
        Ok(RangeId::new(2))
    }

    async fn divide(&self, _division: &Division) -> client::Result<bool> {
        Ok(false)
    }
}
