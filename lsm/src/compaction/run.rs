//! Merges the runs that a plan names into one.
//!
//! 1. Open a merge cursor over the inputs, clipped as the version refers to them; blocks that it
//!    reads do not stay in the cache.
//! 2. Copy every cell to new SSTables; values outside the blocks are copied as they are.
//! 3. Check that no cell was lost: the outputs' count against the inputs'.
//! 4. Commit a manifest that names the outputs in place of the inputs.
//!
//! It may be called off between any two blocks (drop the future, or close the store): files that
//! no manifest names are removed. Inputs are removed once nobody reads them.

use std::collections::BTreeSet;
use std::sync::Arc;

use sstable::ValueRef;
use types::{FileId, RowRange};

use super::choose::{Plan, choose, choose_all};
use crate::cursor::{MergeCursor, MergeStep, Source};
use crate::error::{Error, Result};
use crate::events::{Event, Reason};
use crate::output::{Output, Written};
use crate::store::{State, Store, Turn};
use crate::version::{Edit, TableRef};

/// Cells between two points at which other tasks may run, besides those at every block.
const CELLS_PER_TURN: usize = 1024;

impl Store {
    /// Merges what most needs it. `false`: nothing does.
    ///
    /// # Errors
    /// A full disk and damaged inputs leave everything as it was. [`Error::Poisoned`] and
    /// [`Error::Fenced`] stop the store.
    pub async fn compact_once(self: &Arc<Self>) -> Result<bool> {
        let turn = self.turn_to_compact().await?;
        let plan = choose(&self.version(), self.options(), &BTreeSet::new());
        self.compact(plan, Reason::TooManyRuns, turn).await
    }

    /// Merges everything into one run. `false`: it is one already.
    ///
    /// # Errors
    /// As [`Store::compact_once`].
    pub async fn compact_all(self: &Arc<Self>) -> Result<bool> {
        let groups = self.version().groups().len();
        let mut merged = false;
        for group in 0..groups {
            let turn = self.turn_to_compact().await?;
            let plan = choose_all(&self.version(), group);
            merged |= self.compact(plan, Reason::Asked, turn).await?;
        }
        Ok(merged)
    }

    async fn compact(
        self: &Arc<Self>,
        plan: Option<Plan>,
        reason: Reason,
        turn: Turn,
    ) -> Result<bool> {
        let Some(plan) = plan else {
            return Ok(false);
        };
        let started = self.env().monotonic();
        let (files, bytes) = (plan.inputs.len(), plan.bytes);
        self.tell(&Event::CompactionStarted { reason, files, bytes });
        match self.merge_and_commit(&plan, turn).await {
            Ok((files, bytes)) => {
                let duration = self.env().monotonic().saturating_sub(started);
                self.tell(&Event::CompactionFinished { files, bytes, duration });
                Ok(true)
            }
            Err(failed) => {
                self.tell(&Event::CompactionFailed { error: failed.to_string() });
                self.remove_retired().await;
                Err(self.note_failure(failed))
            }
        }
    }

    async fn merge_and_commit(self: &Arc<Self>, plan: &Plan, turn: Turn) -> Result<(usize, u64)> {
        let written = self.merge_inputs(plan).await?;
        let (files, bytes) = (written.tables().len(), written.bytes());
        let reference = |meta: &sstable::TableMeta| TableRef {
            meta: meta.clone(),
            level: plan.output_level,
            clip: None,
        };
        let added = written.tables().iter().map(|new| (plan.group, reference(&new.meta))).collect();
        let edit = Edit { removed: plan.inputs.clone(), added, ..Edit::default() };
        self.commit(edit, written, None, turn).await?;
        Ok((files, bytes))
    }

    async fn merge_inputs(&self, plan: &Plan) -> Result<Written> {
        let state = self.state();
        let references = inputs_of(&state, plan);
        let sources = references.iter().map(|table| source(&state, table, self.bounds())).collect();
        let mut cursor = MergeCursor::new(sources);
        let mut output = Output::new(&self.files, self.options());
        let mut step = cursor.seek(&[])?;
        let mut turn = 0;
        loop {
            match step {
                MergeStep::End => break,
                MergeStep::NeedBlock(pending) => {
                    self.check()?;
                    self.env().yield_now().await;
                    cursor.load(&pending).await?;
                    step = cursor.resume()?;
                    continue;
                }
                MergeStep::Cell => {}
            }
            match (cursor.value(), cursor.table()) {
                (ValueRef::Inline(value), _) => output.add(cursor.key(), value).await?,
                (ValueRef::Stored(value), Some(table)) => {
                    output.add_stored(cursor.key(), table, value).await?;
                }
                (ValueRef::Stored(_), None) => unreachable!("memtables store no values outside"),
            }
            turn += 1;
            if turn % CELLS_PER_TURN == 0 {
                self.check()?;
                self.env().yield_now().await;
            }
            step = cursor.next()?;
        }
        let written = output.finish().await?;
        check_counts(&references, &written)?;
        Ok(written)
    }
}

fn inputs_of(state: &State, plan: &Plan) -> Vec<Arc<TableRef>> {
    let wanted: BTreeSet<FileId> = plan.inputs.iter().copied().collect();
    let group = &state.version.groups()[plan.group];
    group.tables.iter().filter(|table| wanted.contains(&table.id())).cloned().collect()
}

fn source(state: &State, reference: &TableRef, bounds: &RowRange) -> Source {
    let table = state.tables.get(&reference.id()).expect("a version's tables are open");
    let rows = reference.clip.as_ref().unwrap_or(bounds);
    Source::table(table.cursor(false), rows)
}

/// A cell may be in several inputs (a log replayed twice), so the outputs may have fewer. But each
/// input's cells are distinct, so not fewer than the largest input; and never more than all.
fn check_counts(inputs: &[Arc<TableRef>], written: &Written) -> Result<()> {
    let cells = |input: &Arc<TableRef>| input.meta.properties.cells;
    let sum: u64 = inputs.iter().map(cells).sum();
    let unclipped = inputs.iter().filter(|input| input.clip.is_none());
    let least = unclipped.map(cells).max().unwrap_or(0);
    let found: u64 = written.tables().iter().map(|new| new.meta.properties.cells).sum();
    if (least..=sum).contains(&found) {
        return Ok(());
    }
    let what = format!("a merge of {least} to {sum} cells wrote {found}");
    Err(Error::CorruptCell { what })
}
