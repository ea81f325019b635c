//! Where ranges are, and who may serve them.

use std::collections::BTreeMap;

use client::RangeAssignment;
use coordination::{Expect, Revision, Transaction};
use types::{Epoch, RangeId, SessionId, TableId, TableName};

use std::sync::Arc;

use crate::catalog::{BATCH_MAX, Catalog, Stored, StoredRange};
use crate::error::{Error, Result};
use crate::record::{Descriptor, RANGES, TableState, range_key, table_key};

/// How often a read or a grant that others interfere with is tried.
pub(crate) const TRIES_MAX: u32 = 10;

impl Catalog {
    /// A table with its ranges in the order of their rows, both as they were at one moment.
    pub(crate) async fn layout(
        &self,
        name: &TableName,
    ) -> Result<(Stored<Descriptor>, Vec<StoredRange>)> {
        let mut last: Option<Vec<(RangeId, Revision)>> = None;
        for _ in 0..TRIES_MAX {
            let before = self.enabled(name).await?;
            let mut ranges = self.ranges_of(before.record.schema.id).await?;
            ranges.sort_by(|one, other| one.record.rows.start.cmp(&other.record.rows.start));
            if covers_all_rows(&ranges) {
                return Ok((before, ranges));
            }
            // Pages of a listing may show different moments: ranges come, are divided and go. What
            // two listings show in the same way is so.
            let after = self.enabled(name).await?;
            let seen = ids_of(&ranges);
            let is_same = last.replace(seen.clone()) == Some(seen);
            if is_same && after.modified == before.modified {
                let what = "the ranges of the table do not cover all rows exactly once";
                return Err(Error::Corrupt { key: table_key(name), what: what.to_owned() });
            }
        }
        Err(Error::Contended { key: table_key(name) })
    }

    /// Every range of every enabled table.
    pub(crate) async fn live_ranges(&self) -> Result<Vec<(RangeId, TableId)>> {
        let tables = self.all_tables().await?;
        let mut live = Vec::new();
        for table in tables {
            if table.record.state == TableState::Enabled {
                let ranges = self.ranges_of(table.record.schema.id).await?;
                live.extend(ranges.into_iter().map(|range| (range.id, range.table)));
            }
        }
        Ok(live)
    }

    /// Grants ranges of a table to a session; those that are not there, or of no enabled table,
    /// are left out.
    pub(crate) async fn grant(
        &self,
        name: &TableName,
        table: TableId,
        wanted: &[RangeId],
        session: SessionId,
    ) -> Result<Vec<RangeAssignment>> {
        let mut granted = Vec::with_capacity(wanted.len());
        for batch in wanted.chunks(BATCH_MAX) {
            granted.extend(self.grant_batch(name, table, batch, session).await?);
        }
        Ok(granted)
    }

    async fn grant_batch(
        &self,
        name: &TableName,
        table: TableId,
        wanted: &[RangeId],
        session: SessionId,
    ) -> Result<Vec<RangeAssignment>> {
        for _ in 0..TRIES_MAX {
            let found = self.table(name).await?;
            let Some(found) = found.filter(|found| {
                found.record.state == TableState::Enabled && found.record.schema.id == table
            }) else {
                return Ok(Vec::new());
            };
            let schema = Arc::new(found.record.schema);
            // The schema that is granted is the table's at the moment of the grant.
            let unchanged = Expect::ModifiedAt(found.modified);
            let mut transaction = Transaction::new().guard(table_key(name), unchanged);
            let mut granted = Vec::with_capacity(wanted.len());
            for id in wanted {
                let Some(range) = self.range(table, *id).await? else {
                    continue;
                };
                let key = range_key(table, *id);
                let mut record = range.record;
                record.epoch = Epoch::new(record.epoch.get() + 1);
                record.session = Some(session);
                transaction = transaction
                    .guard(&key, Expect::ModifiedAt(range.modified))
                    .put(&key, record.encode());
                granted.push(RangeAssignment {
                    range: *id,
                    rows: record.rows,
                    epoch: record.epoch,
                    schema: Arc::clone(&schema),
                });
            }
            if granted.is_empty() || self.commit(transaction).await?.is_some() {
                return Ok(granted);
            }
        }
        Err(Error::Contended { key: table_key(name) })
    }

    /// Which table each of these ranges belongs to, as far as there are any.
    pub(crate) async fn tables_of_ranges(
        &self,
        ranges: &[RangeId],
    ) -> Result<BTreeMap<RangeId, TableId>> {
        let all = self.ranges_under(RANGES).await?;
        let wanted: std::collections::BTreeSet<RangeId> = ranges.iter().copied().collect();
        let found = all.into_iter().filter(|range| wanted.contains(&range.id));
        Ok(found.map(|range| (range.id, range.table)).collect())
    }
}

fn ids_of(ranges: &[StoredRange]) -> Vec<(RangeId, Revision)> {
    ranges.iter().map(|range| (range.id, range.modified)).collect()
}

fn covers_all_rows(ranges: &[StoredRange]) -> bool {
    let ends_open = ranges.last().is_some_and(|last| last.record.rows.end.is_none());
    let starts_open = ranges.first().is_some_and(|first| first.record.rows.start.is_empty());
    let joined = ranges.windows(2).all(|pair| match pair {
        [one, next] => one.record.rows.end.as_ref() == Some(&next.record.rows.start),
        _ => true,
    });
    starts_open && ends_open && joined && ranges.iter().all(|range| !range.record.rows.is_empty())
}
