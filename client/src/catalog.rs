//! The seams around the catalog: where ranges are, who may serve them, and how schemas change.
//!
//! The master implements them over the coordinator. Routers ask a [`Locator`]; range servers ask
//! [`Assignments`]; whoever administers uses [`AdminService`]; the master tells range servers
//! through [`SchemaObserver`] and waits, so that a schema change is in force everywhere when the
//! call that made it returns.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use types::{
    Aggregate, Epoch, ErrorKind, Granularity, GroupSettings, RangeId, Retention, RowRange,
    SessionId, TableId, TableName, TableSchema,
};

use crate::{Division, Error, RangeService, RangeStatus, Result};

/// A family to be declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFamily {
    /// Its name.
    pub name: String,
    /// Which of its cells may be dropped.
    pub retention: Option<Retention>,
    /// Its cells are aggregates. Fixed for good; a change of the retention passes it over.
    pub aggregate: Option<Aggregate>,
}

/// A locality group to be defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGroup {
    /// Its name; "default" is the group of every family that no other names.
    pub name: String,
    /// The names of its families; none for "default".
    pub families: Vec<String>,
    /// How its files are written and kept.
    pub settings: GroupSettings,
}

/// A table to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTable {
    /// Its name.
    pub name: TableName,
    /// Its families, in creation order.
    pub families: Vec<NewFamily>,
    /// Its locality groups.
    pub groups: Vec<NewGroup>,
    /// Row keys at which it is divided into ranges from the start; any order, no doubles needed.
    pub splits: Vec<Bytes>,
    /// The step of its timestamps.
    pub granularity: Granularity,
}

/// One step of a change to a table's families; a list of them applies in order and atomically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FamilyChange {
    /// Declares a family. `AlreadyExists` if there is one of that name.
    Create(NewFamily),
    /// Replaces a family's retention. `NotFound` if there is none of that name.
    SetRetention(NewFamily),
    /// Drops a family and hides its cells for good. `NotFound` if there is none of that name.
    Drop(String),
}

/// A page of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePage {
    /// Sorted by name.
    pub tables: Vec<Arc<TableSchema>>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<String>,
}

/// Operations on schemas. Each returns when the change is durable and in force on every server.
#[async_trait]
pub trait AdminService: Send + Sync + 'static {
    /// Creates a table.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidArgument`.
    async fn create_table(&self, table: NewTable) -> Result<Arc<TableSchema>>;

    /// The tables of an instance whose name sorts after `after` (all for ""), at most `limit`.
    async fn list_tables(&self, instance: &str, after: &str, limit: usize) -> Result<TablePage>;

    /// One table.
    ///
    /// # Errors
    /// `NotFound`.
    async fn get_table(&self, name: &TableName) -> Result<Arc<TableSchema>>;

    /// Drops a table with its data.
    ///
    /// # Errors
    /// `NotFound`.
    async fn delete_table(&self, name: &TableName) -> Result<()>;

    /// Changes the families of a table: all the changes or none.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `InvalidArgument`.
    async fn modify_families(
        &self,
        name: &TableName,
        changes: Vec<FamilyChange>,
    ) -> Result<Arc<TableSchema>>;

    /// Replaces the locality groups of a table. What is stored already moves with time.
    ///
    /// # Errors
    /// `NotFound` (the table or a family), `InvalidArgument`.
    async fn set_groups(
        &self,
        name: &TableName,
        groups: Vec<NewGroup>,
    ) -> Result<Arc<TableSchema>> {
        let text = format!("no locality groups of {name} can be set here: {} given", groups.len());
        Err(Error::new(ErrorKind::Unimplemented, text))
    }

    /// Removes all cells of `rows` for good: of every range that has some, each at its own moment.
    /// May be repeated.
    ///
    /// # Errors
    /// `NotFound`; others leave it open which of the rows are gone, or will be.
    async fn drop_rows(&self, name: &TableName, rows: &RowRange) -> Result<()>;

    /// The table's ranges, ascending.
    ///
    /// # Errors
    /// `NotFound`.
    async fn list_ranges(&self, name: &TableName) -> Result<Vec<TableRange>>;

    /// Divides the table at `rows`, or every range near its middle if there are none. Where it is
    /// divided already nothing happens. Returns the rows at which a range was divided.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument`; after others some may be divided.
    async fn split_table(&self, name: &TableName, rows: Vec<Bytes>) -> Result<Vec<Bytes>>;

    /// Writes all memtables of the table out.
    ///
    /// # Errors
    /// `NotFound`, and what the disk fails with.
    async fn flush_table(&self, name: &TableName) -> Result<()>;

    /// Merges the files of the range that holds `row` into one sorted run: going on at the end of
    /// its rows, a caller merges the table and sees how far it is.
    ///
    /// # Errors
    /// As [`AdminService::flush_table`].
    async fn compact_at(&self, name: &TableName, row: &Bytes) -> Result<TableRange>;
}

/// A range of a table with what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRange {
    /// Which range.
    pub range: RangeId,
    /// Its rows.
    pub rows: RowRange,
    /// What it holds.
    pub status: RangeStatus,
}

/// Where a range is served.
#[derive(Clone)]
pub struct RangeLocation {
    /// Which range.
    pub range: RangeId,
    /// Its rows.
    pub rows: RowRange,
    /// The epoch it is served under.
    pub epoch: Epoch,
    /// The server.
    pub server: Arc<dyn RangeService>,
}

impl std::fmt::Debug for RangeLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {}", self.range, self.rows, self.epoch)
    }
}

/// A table's schema and the places of its ranges, which cover all rows, ascending.
#[derive(Clone, Debug)]
pub struct TableLayout {
    /// The schema.
    pub schema: Arc<TableSchema>,
    /// Every range of the table; the first starts at the empty key, the last has no end.
    pub ranges: Vec<RangeLocation>,
}

/// Finds tables and their ranges.
#[async_trait]
pub trait Locator: Send + Sync + 'static {
    /// The table's present layout, read from the source of truth (callers cache it).
    ///
    /// # Errors
    /// `NotFound`.
    async fn locate(&self, name: &TableName) -> Result<Arc<TableLayout>>;
}

/// What a range server must know to serve a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeAssignment {
    /// Which range.
    pub range: RangeId,
    /// Its rows.
    pub rows: RowRange,
    /// The epoch granted: higher than any before.
    pub epoch: Epoch,
    /// The schema of its table.
    pub schema: Arc<TableSchema>,
}

/// Grants ranges to sessions of range servers.
#[async_trait]
pub trait Assignments: Send + Sync + 'static {
    /// Every range of every live table, with its table: what recovery needs to sort the records of
    /// a dead session's log, and what else the session's folder may refer to.
    async fn ranges(&self) -> Result<Vec<(RangeId, TableId)>>;

    /// Grants ranges to `session` under a new epoch each, durably, before it returns. Ranges that
    /// no longer exist are left out of the answer.
    async fn assign(&self, ranges: &[RangeId], session: SessionId) -> Result<Vec<RangeAssignment>>;

    /// Takes `count` ids that no range has or ever had, durably; returns the first.
    async fn take_range_ids(&self, count: u64) -> Result<RangeId>;

    /// Puts two ranges in the place of one, in one step. `false`: the range is not granted so, or
    /// the table is going; nothing has changed.
    ///
    /// # Errors
    /// It is unknown whether it was done.
    async fn divide(&self, division: &Division) -> Result<bool>;
}

/// A range server as the master sees it.
#[async_trait]
pub trait SchemaObserver: Send + Sync + 'static {
    /// Puts a changed schema in force. When it returns, no request validated against an older
    /// generation will be applied.
    async fn schema_changed(&self, schema: Arc<TableSchema>) -> Result<()>;

    /// Stops serving a dropped table's ranges. When it returns, no request to them will be applied
    /// or answered, and their log records hold back no segment.
    async fn table_dropped(&self, table: TableId, ranges: &[RangeId]) -> Result<()>;
}
