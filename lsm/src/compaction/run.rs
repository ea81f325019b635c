//! Carries a plan out.
//!
//! 1. Merge the inputs into new SSTables ([`super::merge`]).
//! 2. Commit a manifest that names the outputs in place of the inputs.
//!
//! Inputs that are only moved to another level, or given up whole, need the last step alone.
//!
//! It may be called off at any await of the merge (drop the future, hold compactions or close the
//! store): files that no manifest names are removed. Inputs are removed once nobody reads them.

use std::sync::Arc;

use super::choose::{OVERLAP_TABLES_MAX, Plan, Work, choose, choose_all};
use super::expire::choose_expired;
use super::levels::{LEVEL_LAST, Span};
use super::merge::{Merged, merge};
use super::regroup;
use crate::error::{Error, Result};
use crate::events::Event;
use crate::output::{Neighbours, NewTable, Written};
use crate::store::{State, Store, Turn};
use crate::version::{Edit, TableRef, Version};
use types::FileId;

impl Store {
    /// Does what is most needed: gives up files whose cells are all past their age, or brings
    /// files to where they belong. `false`: nothing is.
    ///
    /// # Errors
    /// A full disk leaves everything as it was; so does [`Error::DamagedInput`], after which the
    /// damaged files are left alone for a while. [`Error::Poisoned`] and [`Error::Fenced`] stop the
    /// store.
    pub async fn compact_once(self: &Arc<Self>) -> Result<bool> {
        self.record_layout().await?;
        let turn = self.turn_to_compact().await?;
        let version = self.version();
        let expired = choose_expired(&version, &self.rules(), self.env().now_micros());
        if !expired.is_empty() {
            return self.give_up(expired, &version, turn).await;
        }
        let aside = self.compactions.aside.files(self.env().monotonic());
        let plan = choose(&version, self.options(), &aside);
        self.compact(plan, turn).await
    }

    /// Merges everything into the last level, and drops all that may be dropped. `false`: all is
    /// there, and nothing can be dropped.
    ///
    /// # Errors
    /// As [`Store::compact_once`].
    pub async fn compact_all(self: &Arc<Self>) -> Result<bool> {
        self.record_layout().await?;
        let groups = self.version().groups().len();
        let mut merged = false;
        let rules = self.rules();
        // What the first round brings to another group lies on level 0 there.
        let rounds = [Some(&*rules), None];
        for (rules, group) in rounds.iter().flat_map(|of| (0..groups).map(move |at| (*of, at))) {
            let turn = self.turn_to_compact().await?;
            let plan = choose_all(&self.version(), group, self.options(), rules);
            merged |= self.compact(plan, turn).await?;
        }
        Ok(merged)
    }

    /// Puts the layout that the schema declares in force without waiting for a flush.
    async fn record_layout(self: &Arc<Self>) -> Result<()> {
        if self.layout().is_of(&self.version()) {
            return Ok(());
        }
        let turn = self.turn_to_flush().await?;
        let layout = self.layout();
        if layout.is_of(&self.version()) {
            return Ok(());
        }
        let edit = Edit { layout: Some(layout), ..Edit::default() };
        self.commit(edit, Written::none(&self.files), None, turn).await
    }

    async fn compact(self: &Arc<Self>, plan: Option<Plan>, turn: Turn) -> Result<bool> {
        let Some(plan) = plan else {
            return Ok(false);
        };
        if self.compactions.is_held() {
            return Err(Error::Cancelled);
        }
        match plan.work {
            Work::Move => self.move_and_tell(&plan, turn).await?,
            Work::Merge => self.merge_and_tell(&plan, turn).await?,
        }
        Ok(true)
    }

    /// Gives files up whole.
    async fn give_up(
        self: &Arc<Self>,
        files: Vec<FileId>,
        version: &Version,
        turn: Turn,
    ) -> Result<bool> {
        if self.compactions.is_held() {
            return Err(Error::Cancelled);
        }
        let going = version.tables().filter(|table| files.binary_search(&table.id()).is_ok());
        let bytes = going.map(|table| version.reference_bytes(table)).sum();
        let count = files.len();
        let edit = Edit { removed: files, cuts: version.cuts(), ..Edit::default() };
        self.commit(edit, Written::none(&self.files), None, turn).await?;
        self.counters.expired_file_bytes.add(bytes);
        self.tell(&Event::FilesExpired { files: count, bytes });
        Ok(true)
    }

    async fn move_and_tell(self: &Arc<Self>, plan: &Plan, turn: Turn) -> Result<()> {
        let state = self.state();
        let moved = regroup::inputs(&state, plan.group, &plan.inputs).merged;
        let level = plan.output_level;
        let moved = moved.iter().map(|table| TableRef { level, ..TableRef::clone(table) });
        let added = moved.map(|table| (plan.group, table)).collect();
        let (removed, cuts) = (plan.inputs.clone(), state.version.cuts());
        drop(state);
        let edit = Edit { removed, cuts, added, ..Edit::default() };
        self.commit(edit, Written::none(&self.files), None, turn).await?;
        let (files, bytes) = (plan.inputs.len(), plan.bytes);
        self.counters.moved_bytes.add(bytes);
        self.tell(&Event::FilesMoved { reason: plan.reason, files, bytes, level });
        Ok(())
    }

    async fn merge_and_tell(self: &Arc<Self>, plan: &Plan, turn: Turn) -> Result<()> {
        let started = self.env().monotonic();
        let Plan { reason, bytes, output_level: level, .. } = *plan;
        let files = plan.inputs.len();
        self.tell(&Event::CompactionStarted { reason, files, bytes, level });
        match self.merge_and_commit(plan, turn).await {
            Ok((files, bytes)) => {
                let duration = self.env().monotonic().saturating_sub(started);
                self.counters.merges.add(1);
                self.counters.merge_read_bytes.add(plan.bytes);
                self.counters.merge_written_bytes.add(bytes);
                self.tell(&Event::CompactionFinished { files, bytes, duration });
                Ok(())
            }
            Err(failed) => {
                let failed = self.set_aside(plan, failed).await;
                let called_off = matches!(failed, Error::Cancelled | Error::Closed);
                self.counters.merges_failed.add(u64::from(!called_off));
                self.tell(&Event::CompactionFailed { error: failed.to_string() });
                self.remove_retired().await;
                Err(self.note_failure(failed))
            }
        }
    }

    async fn merge_and_commit(self: &Arc<Self>, plan: &Plan, turn: Turn) -> Result<(usize, u64)> {
        let state = self.state();
        let neighbours = neighbours(&state, plan, self.options().table_bytes);
        let inputs = regroup::inputs(&state, plan.group, &plan.inputs);
        let outputs = regroup::outputs(self, &state, plan.group, &inputs).beside(neighbours);
        let merged = tokio::select! { biased;
            () = self.compactions.called_off() => return Err(Error::Cancelled),
            merged = merge(self, &state, &inputs, outputs) => merged?,
        };
        let cuts = state.version.cuts();
        drop(state);
        let Merged { written, collected, blocks_taken } = merged;
        let (files, bytes) = (written.tables().len(), written.bytes());
        let blocks = written.tables().iter().map(|new| new.meta.properties.data_blocks).sum();
        self.counters.merge_blocks.add(blocks);
        self.counters.merge_blocks_taken.add(blocks_taken);
        let reference = |new: &NewTable| {
            // What goes to another group may overlap anything there.
            let level = if new.group == plan.group { plan.output_level } else { 0 };
            (new.group, TableRef { meta: new.meta.clone(), level, clip: None })
        };
        let added = written.tables().iter().map(reference).collect();
        let removed = plan.inputs.clone();
        let edit = Edit { removed, cuts, added, ..Edit::default() };
        self.commit(edit, written, None, turn).await?;
        if collected.left_out() + collected.expired_bytes_left > 0 {
            self.tell(&Event::CellsCollected(collected));
        }
        Ok((files, bytes))
    }
}

/// The files of the level after the output's: an output is cut where it would overlap too much of
/// them, so that no single merge of it costs much.
fn neighbours(state: &State, plan: &Plan, table_bytes: u64) -> Neighbours {
    let after = plan.output_level + 1;
    let tables = &state.version.groups()[plan.group].tables;
    let is_sorted = plan.output_level > 0 && plan.output_level < LEVEL_LAST as u32;
    let next = tables.iter().filter(|table| is_sorted && table.level == after);
    let end = |table: &Arc<TableRef>| (Span::of(table).end, state.version.reference_bytes(table));
    let ends = next.map(end).collect();
    Neighbours::new(ends, OVERLAP_TABLES_MAX.saturating_mul(table_bytes))
}
