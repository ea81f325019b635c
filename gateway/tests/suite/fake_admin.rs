//! Schema operations over the same map.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use client::{
    AdminService, Error, FamilyChange, NewTable, RangeStatus, Result, TablePage, TableRange,
};
use types::{
    ErrorKind, FamilyId, Generation, RangeActivity, RangeId, RowRange, TableName, TableSchema,
};

use super::fake::Fake;

#[async_trait]
impl AdminService for Fake {
    async fn create_table(&self, table: NewTable) -> Result<Arc<TableSchema>> {
        let mut state = self.state();
        if state.tables.contains_key(&table.name) {
            return Err(Error::new(ErrorKind::AlreadyExists, "table exists"));
        }
        let mut schema = TableSchema {
            id: state.next_table_id(),
            name: table.name.clone(),
            generation: Generation::new(1),
            granularity: table.granularity,
            families: Vec::new(),
            next_family: FamilyId::new(1),
            groups: Vec::new(),
        };
        for family in table.families {
            schema.add_family(&family.name, family.retention, family.aggregate).unwrap();
        }
        let schema = Arc::new(schema);
        state.add_ranges(&table.name, &table.splits);
        state.tables.insert(table.name, schema.clone());
        Ok(schema)
    }

    async fn list_tables(&self, instance: &str, after: &str, limit: usize) -> Result<TablePage> {
        let state = self.state();
        let mut tables: Vec<_> = state
            .tables
            .values()
            .filter(|schema| schema.name.instance == instance && *schema.name.table > *after)
            .take(limit + 1)
            .cloned()
            .collect();
        let more = tables.len() > limit;
        tables.truncate(limit);
        let next = tables.last().map(|schema| schema.name.table.clone());
        Ok(TablePage { tables, next: next.filter(|_| more) })
    }

    async fn get_table(&self, name: &TableName) -> Result<Arc<TableSchema>> {
        let found = self.state().tables.get(name).cloned();
        found.ok_or_else(|| Error::not_found(format!("Table not found: {name}")))
    }

    async fn delete_table(&self, name: &TableName) -> Result<()> {
        let mut state = self.state();
        state.drop_ranges(name);
        let dropped = state.tables.remove(name).map(|_| ());
        dropped.ok_or_else(|| Error::not_found(format!("Table not found: {name}")))
    }

    async fn modify_families(
        &self,
        name: &TableName,
        changes: Vec<FamilyChange>,
    ) -> Result<Arc<TableSchema>> {
        let present = self.get_table(name).await?;
        let mut schema = (*present).clone();
        schema.generation = Generation::new(schema.generation.get() + 1);
        for change in changes {
            match change {
                FamilyChange::Create(family) => {
                    let added = schema.add_family(&family.name, family.retention, family.aggregate);
                    added.map_err(|kind| Error::new(kind, "family exists"))?;
                }
                FamilyChange::SetRetention(family) => {
                    let mut families = schema.families.iter_mut();
                    let declared = families.find(|declared| declared.name == family.name);
                    let declared = declared.ok_or_else(|| Error::not_found("no such family"))?;
                    declared.retention = family.retention;
                }
                FamilyChange::Drop(dropped) => {
                    if schema.family(&dropped).is_none() {
                        return Err(Error::not_found("no such family"));
                    }
                    schema.families.retain(|family| family.name != dropped);
                }
            }
        }
        let schema = Arc::new(schema);
        self.state().tables.insert(name.clone(), schema.clone());
        Ok(schema)
    }

    async fn drop_rows(&self, name: &TableName, rows: &RowRange) -> Result<()> {
        self.state().dropped.push((name.clone(), rows.clone()));
        Ok(())
    }

    async fn list_ranges(&self, name: &TableName) -> Result<Vec<TableRange>> {
        self.get_table(name).await?;
        Ok(vec![range(1, "", "m"), range(2, "m", "")])
    }

    async fn split_table(&self, name: &TableName, rows: Vec<Bytes>) -> Result<Vec<Bytes>> {
        self.get_table(name).await?;
        Ok(rows)
    }

    async fn flush_table(&self, name: &TableName) -> Result<()> {
        self.get_table(name).await.map(drop)
    }

    async fn compact_at(&self, name: &TableName, row: &Bytes) -> Result<TableRange> {
        let ranges = self.list_ranges(name).await?;
        Ok(ranges.into_iter().find(|range| range.rows.contains(row)).unwrap())
    }
}

fn range(id: u64, start: &'static str, end: &'static str) -> TableRange {
    let rows = RowRange {
        start: Bytes::from_static(start.as_bytes()),
        end: (!end.is_empty()).then(|| Bytes::from_static(end.as_bytes())),
    };
    let activity = RangeActivity { keys_read: id * 7, ..RangeActivity::default() };
    let status =
        RangeStatus { bytes: id * 100, sorted_runs: id, activity, ..RangeStatus::default() };
    TableRange { range: RangeId::new(id), rows, status }
}
