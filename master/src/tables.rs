//! A table's life, in steps that a crash may fall between: see [`crate::record`].
//!
//! Invariants
//! - There is a table if and only if its descriptor is *enabled*.
//! - No range of a table in another state is granted to anyone.
//! - Every step may be repeated. What a crash or an error leaves half done is undone (creating) or
//!   finished (deleting) by whoever meets it next: an opening, or an operation on the same name.
//! - One operation at a time changes tables (the master's *turn*); guards catch what else might.

use bytes::Bytes;
use client::NewTable;
use coordination::{Expect, Transaction};
use types::limits::{FAMILIES_MAX, INITIAL_SPLITS_MAX, ROW_KEY_BYTES_MAX};
use types::{
    Epoch, ErrorKind, FamilyId, Generation, RangeId, RowRange, TableId, TableName, TableSchema,
    validate_instance_name, validate_table_id,
};

use crate::catalog::{BATCH_MAX, Catalog, Stored};
use crate::error::{Error, Result};
use crate::locate::TRIES_MAX;
use crate::record::{Descriptor, NEXT_IDS, NextIds, RangeRecord, TableState, range_key, table_key};
use crate::{families, groups};

/// Checks a new table; its schema but for the id, and its ranges.
pub(crate) fn plan(table: NewTable) -> client::Result<(TableSchema, Vec<RowRange>)> {
    let NewTable { name, families, groups, splits, granularity } = table;
    validate_instance_name(&name.instance).map_err(client::Error::invalid)?;
    validate_table_id(&name.table).map_err(client::Error::invalid)?;
    if families.len() > FAMILIES_MAX {
        let text = format!("{} column families, more than {FAMILIES_MAX}", families.len());
        return Err(client::Error::invalid(text));
    }
    let mut schema = TableSchema {
        id: TableId::new(0),
        name,
        generation: Generation::new(1),
        granularity,
        families: Vec::new(),
        next_family: FamilyId::new(1),
        groups: Vec::new(),
    };
    for family in families {
        // Twice in one request is the request's fault, not a family's that is there already.
        families::add(&mut schema, family)
            .map_err(|error| client::Error::invalid(error.message()))?;
    }
    groups::define(&mut schema, groups).map_err(|error| client::Error::invalid(error.message()))?;
    Ok((schema, divide(splits)?))
}

/// The ranges between split keys.
fn divide(mut splits: Vec<Bytes>) -> client::Result<Vec<RowRange>> {
    splits.sort_unstable();
    splits.dedup();
    if splits.len() > INITIAL_SPLITS_MAX {
        let text = format!("{} initial splits, more than {INITIAL_SPLITS_MAX}", splits.len());
        return Err(client::Error::invalid(text));
    }
    if splits.iter().any(|key| key.is_empty() || key.len() > ROW_KEY_BYTES_MAX) {
        let text = format!("a split key must have 1 to {ROW_KEY_BYTES_MAX} bytes");
        return Err(client::Error::invalid(text));
    }
    let starts = std::iter::once(Bytes::new()).chain(splits.iter().cloned());
    let ends = splits.iter().cloned().map(Some).chain(std::iter::once(None));
    Ok(starts.zip(ends).map(|(start, end)| RowRange { start, end }).collect())
}

impl Catalog {
    /// Takes ids and writes the descriptor, then the ranges, then makes it a table. The name is
    /// free.
    pub(crate) async fn create(
        &self,
        schema: TableSchema,
        ranges: Vec<RowRange>,
    ) -> Result<TableSchema> {
        let (mut descriptor, first_range, mut modified) =
            self.begin_creating(schema, ranges.len() as u64).await?;
        let key = table_key(&descriptor.schema.name);
        let numbered: Vec<(u64, RowRange)> = (first_range.get()..).zip(ranges).collect();
        for batch in numbered.chunks(BATCH_MAX) {
            let mut transaction = Transaction::new().guard(&key, Expect::ModifiedAt(modified));
            for (id, rows) in batch {
                let rows = rows.clone();
                let record = RangeRecord { rows, epoch: Epoch::new(0), session: None };
                let range = range_key(descriptor.schema.id, RangeId::new(*id));
                transaction = transaction.guard(&range, Expect::Absent);
                transaction = transaction.put(range, record.encode());
            }
            self.commit_alone(transaction).await?;
        }
        descriptor.state = TableState::Enabled;
        modified = self.replace_table(modified, &descriptor).await?;
        debug_assert!(modified.get() > 0);
        Ok(descriptor.schema)
    }

    async fn begin_creating(
        &self,
        mut schema: TableSchema,
        ranges: u64,
    ) -> Result<(Descriptor, RangeId, coordination::Revision)> {
        let key = table_key(&schema.name);
        for _ in 0..TRIES_MAX {
            let (ids, taking) = self.taking_ids(1, ranges).await?;
            schema.id = ids.table;
            let descriptor = Descriptor { state: TableState::Creating, schema: schema.clone() };
            let creating = taking.guard(&key, Expect::Absent).put(&key, descriptor.encode());
            if let Some(modified) = self.commit(creating).await? {
                return Ok((descriptor, ids.range, modified));
            }
            // Ranges that are divided take ids, too.
        }
        Err(Error::Contended { key })
    }

    /// The ids that are next, and a transaction that takes some of them.
    pub(crate) async fn taking_ids(
        &self,
        tables: u64,
        ranges: u64,
    ) -> Result<(NextIds, Transaction)> {
        let found = self.next_ids().await?;
        let expect =
            found.as_ref().map_or(Expect::Absent, |found| Expect::ModifiedAt(found.modified));
        let ids = found.map_or_else(NextIds::default, |found| found.record);
        let next = NextIds {
            table: TableId::new(ids.table.get() + tables),
            range: RangeId::new(ids.range.get() + ranges),
        };
        let transaction = Transaction::new().guard(NEXT_IDS, expect).put(NEXT_IDS, next.encode());
        Ok((ids, transaction))
    }

    /// Makes a table none: from here on it can only be removed.
    pub(crate) async fn begin_deleting(
        &self,
        found: Stored<Descriptor>,
    ) -> Result<Stored<Descriptor>> {
        let mut record = found.record;
        record.state = TableState::Deleting;
        let modified = self.replace_table(found.modified, &record).await?;
        Ok(Stored { record, modified })
    }

    /// Removes the records of what is no table (any more), the descriptor last.
    pub(crate) async fn remove_records(&self, found: &Stored<Descriptor>) -> Result<()> {
        let Stored { record, modified } = found;
        assert_ne!(record.state, TableState::Enabled, "a table is deleted before it is removed");
        let key = table_key(&record.schema.name);
        let unchanged = || Transaction::new().guard(&key, Expect::ModifiedAt(*modified));
        let ranges = self.ranges_of(record.schema.id).await?;
        for batch in ranges.chunks(BATCH_MAX) {
            let deletes = batch.iter().fold(unchanged(), |transaction, range| {
                transaction.delete(range_key(range.table, range.id))
            });
            self.commit_alone(deletes).await?;
        }
        self.commit_alone(unchanged().delete(&key)).await?;
        Ok(())
    }

    /// A table; not what is being created or deleted.
    pub(crate) async fn enabled(&self, name: &TableName) -> Result<Stored<Descriptor>> {
        let found = self.table(name).await?;
        let enabled = found.filter(|found| found.record.state == TableState::Enabled);
        enabled.ok_or_else(|| Error::Request(absent(name)))
    }
}

pub(crate) fn absent(name: &TableName) -> client::Error {
    client::Error::new(ErrorKind::NotFound, format!("Table not found: {name}"))
}

pub(crate) fn present(name: &TableName) -> client::Error {
    client::Error::new(ErrorKind::AlreadyExists, format!("Table already exists: {name}"))
}
