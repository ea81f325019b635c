//! The work of a merge: every cell of some references, in order, to new SSTables.
//!
//! 1. Open a merge cursor over the references, clipped as the version has them; blocks that it
//!    reads do not stay in the cache.
//! 2. Copy every cell to the output; values outside the blocks are copied as they are.
//! 3. Check that no cell was lost: the output's count against the inputs'.
//!
//! It may be called off between any two blocks (drop the future, or close the store).

use std::sync::Arc;

use sstable::ValueRef;
use types::RowRange;

use super::pace::Pace;
use crate::cursor::{MergeCursor, MergeStep, Source};
use crate::error::{Error, Result};
use crate::output::Written;
use crate::outputs::Outputs;
use crate::store::{State, Store};
use crate::version::TableRef;

/// Cells between two points at which other tasks may run, besides those at every block.
const CELLS_PER_TURN: usize = 1024;

/// What a merge takes, and what it must know of the rest: references of one version.
pub(crate) struct MergeInputs {
    /// The references to be merged.
    pub(crate) merged: Vec<Arc<TableRef>>,
    /// All others that may hold cells of the same families.
    pub(crate) outside: Vec<Arc<TableRef>>,
}

/// Merges the inputs into `output`. `state` is the one whose version they are of.
///
/// # Errors
/// A full disk, damaged inputs, a store that stops: nothing is left of the output.
/// [`Error::Poisoned`] when a file could not be made durable.
pub(crate) async fn merge(
    store: &Arc<Store>,
    state: &State,
    inputs: &MergeInputs,
    mut output: Outputs,
) -> Result<Written> {
    let merged = |outside: &Arc<TableRef>| inputs.merged.iter().any(|one| one == outside);
    assert!(!inputs.outside.iter().any(merged), "a reference is merged or outside, not both");
    let sources = inputs.merged.iter().map(|table| source(state, table, store.bounds())).collect();
    let mut cursor = MergeCursor::new(sources);
    let mut pace = Pace::new(store);
    let mut written_bytes = 0;
    let mut step = cursor.seek(&[])?;
    let mut turn = 0;
    loop {
        match step {
            MergeStep::End => break,
            MergeStep::NeedBlock(pending) => {
                store.check()?;
                let more = output.bytes() - written_bytes;
                written_bytes += more;
                pace.spend(pending.stored_bytes() + more).await;
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
            store.check()?;
            store.env().yield_now().await;
        }
        step = cursor.next()?;
    }
    let written = output.finish().await?;
    check_counts(&inputs.merged, &written)?;
    Ok(written)
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
