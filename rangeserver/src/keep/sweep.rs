//! Removes files that no range of their table needs any more: see [`lsm::Sweep`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lsm::{Event, Sweep};
use types::TableId;

use crate::ranges::table_folder;
use crate::server::Shared;

/// The sweeps of all tables of which a range is open, from pass to pass.
#[derive(Default)]
pub(crate) struct Sweeps(BTreeMap<TableId, Sweep>);

impl Sweeps {
    /// One pass over each table.
    pub(crate) async fn pass(&mut self, shared: &Arc<Shared>) {
        let ranges = shared.ranges.all();
        let tables: BTreeSet<TableId> = ranges.iter().map(|range| range.table()).collect();
        self.0.retain(|table, _| tables.contains(table));
        for table in tables {
            if shared.is_stopping() {
                return;
            }
            let (files, ids) = (&shared.config.files, shared.ranges.file_ids());
            let sweep = self.0.entry(table).or_default();
            // A pass that fails removes nothing; what is damaged is told by whoever needs it.
            let swept = sweep.pass(files, &table_folder(table), ids).await.unwrap_or_default();
            let told = ranges.iter().find(|range| range.table() == table);
            for _ in swept {
                if let Some(range) = told {
                    shared.config.events.on_event(range.id(), &Event::FileSwept);
                }
            }
        }
    }
}
