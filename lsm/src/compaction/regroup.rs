//! Merges and locality groups: what a merge must know of the other groups, and where its cells go.
//!
//! A merge takes files of one group. When groups have changed, these may hold families that belong
//! elsewhere now: such cells go to level 0 of their present group. The tombstones of a row stay,
//! for every group has its own.
//!
//! A moved cell must not leave a tombstone behind that its new group lacks: a group that was made
//! after the row was deleted has none. Inside the merge such a cell is dropped. Outside of it, a
//! file of the same group with a row tombstone among the same rows keeps the cells where they are
//! ([`holders`]): both must be merged together.
//!
//! So that cells do not wait for a merge that never comes, a file with families that belong
//! elsewhere is chosen for one of its own ([`is_misplaced`]), once nothing else is to be done. It
//! ends: the merge leaves no such family in the file's group, or brings the file, or one that holds
//! it back, a level down, until they meet.

use std::collections::BTreeSet;
use std::sync::Arc;

use types::{FamilyId, FileId};

use super::levels::Span;
use super::merge::MergeInputs;
use crate::layout::Layout;
use crate::outputs::{Moves, Outputs};
use crate::store::{State, Store};
use crate::version::{TableRef, Version};

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
    let moved = holds_others(&layout, group, &inputs.merged)
        && holders(&state.version, group, &inputs.merged).is_empty();
    let moves = match moved {
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

/// Has a group a file whose references, `of_file`, hold families that belong elsewhere? One of
/// which nobody knows the families is none.
pub(super) fn is_misplaced(layout: &Layout, place: usize, of_file: &[Arc<TableRef>]) -> bool {
    let known = of_file.iter().all(|table| table.meta.properties.families.is_some());
    known && holds_others(layout, place, of_file)
}

/// The group's other files with tombstones of rows among the inputs' rows: as long as there are
/// any, cells of the inputs stay in the group.
pub(super) fn holders(
    version: &Version,
    group: usize,
    inputs: &[Arc<TableRef>],
) -> BTreeSet<FileId> {
    // By whole rows: a row's tombstone sorts before all its cells.
    let rows: Vec<Span> = inputs.iter().map(|table| Span::of(table)).collect();
    let merged = |table: &&Arc<TableRef>| inputs.iter().any(|one| one.id() == table.id());
    let others = version.groups()[group].tables.iter().filter(|table| !merged(table));
    let holds = |table: &&Arc<TableRef>| {
        let own = Span::of(table);
        table.meta.properties.row_tombstones > 0 && rows.iter().any(|span| span.overlaps(&own))
    };
    others.filter(holds).map(|table| table.id()).collect()
}

/// The families that files hold, ascending; `None`: not known of all.
fn families_of(tables: &[Arc<TableRef>]) -> Option<Vec<FamilyId>> {
    let mut all = BTreeSet::new();
    for table in tables {
        all.extend(table.meta.properties.families.as_ref()?.iter().copied());
    }
    Some(all.into_iter().collect())
}
