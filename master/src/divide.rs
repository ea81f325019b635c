//! Puts two ranges in the place of one.
//!
//! One transaction takes the range's record away and adds those of its children, guarded by the
//! record's and the table's revisions: at every moment the ranges of a table cover all rows, and a
//! range that was granted anew meanwhile, or whose table is going, is left alone.

use client::Division;
use coordination::{Expect, Transaction};
use types::{RangeId, TableName};

use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::locate::TRIES_MAX;
use crate::record::{NEXT_IDS, RangeRecord, TableState, range_key, table_key};

impl Catalog {
    /// Takes `count` ids of ranges; the first.
    pub(crate) async fn take_range_ids(&self, count: u64) -> Result<RangeId> {
        for _ in 0..TRIES_MAX {
            let (ids, taking) = self.taking_ids(0, count).await?;
            if self.commit(taking).await?.is_some() {
                return Ok(ids.range);
            }
        }
        Err(Error::Contended { key: NEXT_IDS.to_owned() })
    }

    /// Divides a range. `false`: it is not there so.
    pub(crate) async fn divide(&self, name: &TableName, division: &Division) -> Result<bool> {
        for _ in 0..TRIES_MAX {
            let Some(transaction) = self.dividing(name, division).await? else {
                return Ok(false);
            };
            if self.commit(transaction).await?.is_some() {
                return Ok(true);
            }
            // Perhaps the schema has changed, which matters to nobody here.
        }
        Ok(false)
    }

    async fn dividing(&self, name: &TableName, division: &Division) -> Result<Option<Transaction>> {
        let Division { table, range, epoch, session, children } = division;
        let found = self.table(name).await?.filter(|found| {
            found.record.state == TableState::Enabled && found.record.schema.id == *table
        });
        let parent = self.range(*table, *range).await?.filter(|parent| {
            let record = &parent.record;
            record.epoch == *epoch && record.session == Some(*session) && fits(record, children)
        });
        let (Some(found), Some(parent)) = (found, parent) else {
            return Ok(None);
        };
        let key = range_key(*table, *range);
        let mut transaction = Transaction::new()
            .guard(table_key(name), Expect::ModifiedAt(found.modified))
            .guard(&key, Expect::ModifiedAt(parent.modified))
            .delete(&key);
        for (child, rows) in children {
            let key = range_key(*table, *child);
            let record = RangeRecord { rows: rows.clone(), epoch: *epoch, session: Some(*session) };
            transaction = transaction.guard(&key, Expect::Absent).put(&key, record.encode());
        }
        Ok(Some(transaction))
    }
}

/// Do the children have the range's rows, each one once?
fn fits(record: &RangeRecord, children: &[(RangeId, types::RowRange); 2]) -> bool {
    let [(_, left), (_, right)] = children;
    left.start == record.rows.start
        && left.end.as_ref() == Some(&right.start)
        && right.end == record.rows.end
        && !left.is_empty()
        && !right.is_empty()
}
