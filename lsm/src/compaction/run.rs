//! Merges the runs that a plan names into one.
//!
//! 1. Write the cells of the inputs, merged, to new SSTables ([`merge`]).
//! 2. Commit a manifest that names the outputs in place of the inputs.
//!
//! It may be called off between any two blocks (drop the future, or close the store): files that
//! no manifest names are removed. Inputs are removed once nobody reads them.

use std::collections::BTreeSet;
use std::sync::Arc;

use types::FileId;

use super::choose::{Plan, choose, choose_all};
use super::merge::{MergeInputs, merge};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::events::{Event, Reason};
use crate::output::Output;
use crate::store::{State, Store, Turn};
use crate::version::{Edit, TableRef};

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
        let state = self.state();
        let output = Output::new(&self.files, self.options());
        let written = merge(self, &state, &inputs_of(&state, plan), output).await?;
        let cuts = state.version.cuts();
        drop(state);
        let (files, bytes) = (written.tables().len(), written.bytes());
        let reference = |meta: &sstable::TableMeta| TableRef {
            meta: meta.clone(),
            level: plan.output_level,
            clip: None,
        };
        let added = written.tables().iter().map(|new| (plan.group, reference(&new.meta))).collect();
        let removed = plan.inputs.clone();
        let edit = Edit { removed, cuts, added, ..Edit::default() };
        self.commit(edit, written, None, turn).await?;
        Ok((files, bytes))
    }
}

fn inputs_of(state: &State, plan: &Plan) -> MergeInputs {
    let wanted: BTreeSet<FileId> = plan.inputs.iter().copied().collect();
    let tables = state.version.groups()[plan.group].tables.iter().cloned();
    let (merged, outside) = tables.partition(|table| wanted.contains(&table.id()));
    MergeInputs { merged, outside }
}
