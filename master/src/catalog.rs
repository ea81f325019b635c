//! Typed records over the coordinator: reads, and the transactions that change them.

use std::sync::Arc;

use coordination::{Coordinator, Expect, Outcome, Revision, Transaction};
use types::{RangeId, TableId, TableName};

use crate::error::{Error, Result};
use crate::record::{
    Descriptor, NEXT_IDS, NextIds, RangeRecord, Refusal, TABLES, VERSION, instance_prefix,
    parse_range_key, range_key, ranges_prefix, table_key,
};

/// Records that one transaction changes: below the coordinator's limits, in number and, at the
/// largest row keys, in bytes.
pub(crate) const BATCH_MAX: usize = 100;
/// Records of one page.
const PAGE: usize = 1000;

/// A record as it was at some revision.
#[derive(Clone, Debug)]
pub(crate) struct Stored<T> {
    pub(crate) record: T,
    pub(crate) modified: Revision,
}

/// A range with its key.
#[derive(Clone, Debug)]
pub(crate) struct StoredRange {
    pub(crate) table: TableId,
    pub(crate) id: RangeId,
    pub(crate) record: RangeRecord,
    pub(crate) modified: Revision,
}

/// The records.
#[derive(Clone)]
pub(crate) struct Catalog {
    coordinator: Arc<dyn Coordinator>,
}

impl Catalog {
    pub(crate) fn new(coordinator: Arc<dyn Coordinator>) -> Catalog {
        Catalog { coordinator }
    }

    /// Commits; false when a guard did not hold.
    pub(crate) async fn commit(&self, transaction: Transaction) -> Result<Option<Revision>> {
        let outcome = self.coordinator.commit(transaction).await?;
        Ok(match outcome {
            Outcome::Committed { revision } => Some(revision),
            Outcome::Refused { .. } => None,
        })
    }

    /// Commits what nobody else can have changed meanwhile.
    pub(crate) async fn commit_alone(&self, transaction: Transaction) -> Result<Revision> {
        let key = transaction.changes.first().map(|change| change.key().to_owned());
        let committed = self.commit(transaction).await?;
        committed.ok_or(Error::Contended { key: key.unwrap_or_default() })
    }

    /// The ids to be given out next; `None` as long as none was given out.
    pub(crate) async fn next_ids(&self) -> Result<Option<Stored<NextIds>>> {
        let Some(found) = self.coordinator.get(NEXT_IDS).await? else {
            return Ok(None);
        };
        let record = NextIds::decode(&found.value).map_err(|why| refused(NEXT_IDS, why))?;
        Ok(Some(Stored { record, modified: found.modified }))
    }

    /// A table in any state.
    pub(crate) async fn table(&self, name: &TableName) -> Result<Option<Stored<Descriptor>>> {
        let key = table_key(name);
        let Some(found) = self.coordinator.get(&key).await? else {
            return Ok(None);
        };
        let record = Descriptor::decode(&found.value, name.clone());
        let record = record.map_err(|why| refused(&key, why))?;
        Ok(Some(Stored { record, modified: found.modified }))
    }

    /// Some tables of an instance, in any state, whose id sorts after `after`; and whether there
    /// are more.
    pub(crate) async fn tables_of(
        &self,
        instance: &str,
        after: &str,
    ) -> Result<(Vec<Stored<Descriptor>>, bool)> {
        let prefix = instance_prefix(instance);
        self.tables_page(&prefix, &format!("{prefix}{after}")).await
    }

    /// All tables, in any state.
    pub(crate) async fn all_tables(&self) -> Result<Vec<Stored<Descriptor>>> {
        let mut all: Vec<Stored<Descriptor>> = Vec::new();
        loop {
            let after = all.last().map(|last| table_key(&last.record.schema.name));
            let page = self.tables_page(TABLES, after.as_deref().unwrap_or_default()).await?;
            all.extend(page.0);
            if !page.1 {
                return Ok(all);
            }
        }
    }

    async fn tables_page(
        &self,
        prefix: &str,
        after: &str,
    ) -> Result<(Vec<Stored<Descriptor>>, bool)> {
        let page = self.coordinator.list(prefix, after, PAGE).await?;
        let mut tables = Vec::with_capacity(page.entries.len());
        for entry in page.entries {
            let name = TableName::parse(entry.key.strip_prefix(TABLES).unwrap_or_default());
            let name = name.map_err(|what| Error::Corrupt { key: entry.key.clone(), what })?;
            let record = Descriptor::decode(&entry.found.value, name);
            let record = record.map_err(|why| refused(&entry.key, why))?;
            tables.push(Stored { record, modified: entry.found.modified });
        }
        Ok((tables, page.more))
    }

    /// One range.
    pub(crate) async fn range(&self, table: TableId, id: RangeId) -> Result<Option<StoredRange>> {
        let key = range_key(table, id);
        let Some(found) = self.coordinator.get(&key).await? else {
            return Ok(None);
        };
        let record = RangeRecord::decode(&found.value).map_err(|why| refused(&key, why))?;
        Ok(Some(StoredRange { table, id, record, modified: found.modified }))
    }

    /// All ranges of a table, by id.
    pub(crate) async fn ranges_of(&self, table: TableId) -> Result<Vec<StoredRange>> {
        self.ranges_under(&ranges_prefix(table)).await
    }

    /// The ranges whose keys begin with `prefix`.
    pub(crate) async fn ranges_under(&self, prefix: &str) -> Result<Vec<StoredRange>> {
        let mut all: Vec<StoredRange> = Vec::new();
        loop {
            let after = all.last().map(|last| range_key(last.table, last.id));
            let after = after.as_deref().unwrap_or_default();
            let page = self.coordinator.list(prefix, after, PAGE).await?;
            for entry in page.entries {
                let (table, id) = parse_range_key(&entry.key)
                    .ok_or_else(|| refused(&entry.key, Refusal::Damaged("its key is none")))?;
                let record = RangeRecord::decode(&entry.found.value);
                let record = record.map_err(|why| refused(&entry.key, why))?;
                all.push(StoredRange { table, id, record, modified: entry.found.modified });
            }
            if !page.more {
                return Ok(all);
            }
        }
    }

    /// Replaces a descriptor that has not changed since it was read.
    pub(crate) async fn replace_table(
        &self,
        read_at: Revision,
        descriptor: &Descriptor,
    ) -> Result<Revision> {
        let key = table_key(&descriptor.schema.name);
        let transaction = Transaction::new()
            .guard(&key, Expect::ModifiedAt(read_at))
            .put(&key, descriptor.encode());
        self.commit_alone(transaction).await
    }
}

pub(crate) fn refused(key: &str, refusal: Refusal) -> Error {
    let key = key.to_owned();
    match refusal {
        Refusal::Damaged(what) => Error::Corrupt { key, what: what.to_owned() },
        Refusal::TooNew(needed) => Error::TooNew { key, needed, known: VERSION },
    }
}
