//! Merges and locality groups: what a merge must know of the other groups, and where its cells go.
//!
//! A merge takes files of one group. When groups have changed, these may hold families that belong
//! elsewhere now: such cells go to level 0 of their present group. The tombstones of a row stay,
//! for every group has its own.
//!
//! A moved cell must not leave a tombstone behind that its new group lacks: a group that was made
//! after the row was deleted has none. Inside the merge such a cell is dropped. Outside of it, a
//! file of the same group with a row tombstone over the same keys keeps the cells where they are;
//! a later merge takes both.

use std::collections::BTreeSet;
use std::sync::Arc;

use types::{FamilyId, FileId};

use super::merge::MergeInputs;
use crate::layout::Layout;
use crate::outputs::{Moves, Outputs};
use crate::store::{State, Store};
use crate::version::TableRef;

/// The files `wanted` of a group, and all that may bear on their cells: the group's other files,
/// and those of any group that hold one of their families.
pub(super) fn inputs(state: &State, group: usize, wanted: &[FileId]) -> MergeInputs {
    let wanted: BTreeSet<FileId> = wanted.iter().copied().collect();
    let groups = state.version.groups();
    let tables = groups[group].tables.iter().cloned();
    let (merged, mut outside): (Vec<_>, Vec<_>) =
        tables.partition(|table: &Arc<TableRef>| wanted.contains(&table.id()));
    let families = families_of(&merged);
    let elsewhere = groups.iter().enumerate().filter(|(place, _)| *place != group);
    let bears = |table: &&Arc<TableRef>| match &families {
        Some(families) => table.meta.properties.may_hold(families),
        None => true,
    };
    outside.extend(elsewhere.flat_map(|(_, other)| other.tables.iter().filter(bears).cloned()));
    MergeInputs { merged, outside }
}

/// The files that a merge of files of a group writes.
pub(super) fn outputs(store: &Store, state: &State, group: usize, inputs: &MergeInputs) -> Outputs {
    let layout = Arc::new(Layout::of(&state.version));
    let moves = match holds_others(&layout, group, &inputs.merged) && may_move(group, state, inputs)
    {
        true => Moves::Families { home: group },
        false => Moves::Nothing { home: group },
    };
    Outputs::of_merge(&store.files, store.options(), &layout, moves)
}

/// Do files of the group at `place` hold families that belong elsewhere?
pub(super) fn holds_others(layout: &Layout, place: usize, tables: &[Arc<TableRef>]) -> bool {
    let moved = |family: &FamilyId| layout.place_of(*family) != place;
    tables.iter().any(|table| match &table.meta.properties.families {
        Some(families) => families.iter().any(moved),
        None => layout.groups().len() > 1,
    })
}

fn may_move(group: usize, state: &State, inputs: &MergeInputs) -> bool {
    let keys = inputs.merged.iter().map(|table| (&table.meta.smallest, &table.meta.largest));
    let Some(smallest) = keys.clone().map(|(smallest, _)| smallest).min() else {
        return false;
    };
    let last = keys.map(|(_, largest)| largest.as_bytes()).max().unwrap_or_default();
    // The first position after the last key.
    let end = [last, &[0]].concat();
    let merged = |table: &&Arc<TableRef>| inputs.merged.iter().any(|one| one.id() == table.id());
    let mut others = state.version.groups()[group].tables.iter().filter(|table| !merged(table));
    !others.any(|table| {
        table.meta.properties.row_tombstones > 0 && table.overlaps(smallest.as_bytes(), Some(&end))
    })
}

/// The families that files hold, ascending; `None`: not known of all.
fn families_of(tables: &[Arc<TableRef>]) -> Option<Vec<FamilyId>> {
    let mut all = BTreeSet::new();
    for table in tables {
        all.extend(table.meta.properties.families.as_ref()?.iter().copied());
    }
    Some(all.into_iter().collect())
}
