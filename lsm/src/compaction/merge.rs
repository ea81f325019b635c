//! The work of a merge: every cell of some references, in order, to new SSTables.
//!
//! 1. Open a merge cursor over the references, clipped as the version has them; blocks that it
//!    reads do not stay in the cache.
//! 2. Write to the output what the [`Collector`] keeps; values outside the blocks, and whole blocks
//!    that nothing else touches ([`super::raw_copy`]), are copied as they are.
//! 3. Check that no cell was lost: what was written and left out, against what the inputs hold.
//!
//! It may be called off between any two blocks (drop the future, or close the store).

use std::sync::Arc;

use sstable::ValueRef;
use types::RowRange;

use super::pace::Pace;
use super::raw_copy::{Outcome, take_block};
use crate::collect::{self, Collected, Collector, Fate, Operand, Outside, OutsideFile};
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

/// What a merge has written and left out.
pub(crate) struct Merged {
    pub(crate) written: Written,
    pub(crate) collected: Collected,
    /// Blocks that were taken over as they were stored.
    pub(crate) blocks_taken: u64,
}

/// Merges the inputs into `output`, by the store's rules. `state` is the one whose version the
/// inputs are of. There may be nothing left to write.
///
/// # Errors
/// A full disk, damaged inputs, a store that stops: nothing is left of the output.
/// [`Error::Poisoned`] when a file could not be made durable.
pub(crate) async fn merge(
    store: &Arc<Store>,
    state: &State,
    inputs: &MergeInputs,
    mut output: Outputs,
) -> Result<Merged> {
    let merged = |outside: &Arc<TableRef>| inputs.merged.iter().any(|one| one == outside);
    assert!(!inputs.outside.iter().any(merged), "a reference is merged or outside, not both");
    let sources = inputs.merged.iter().map(|table| source(state, table, store.bounds())).collect();
    let mut cursor = MergeCursor::new(sources);
    let mut pace = Pace::new(store);
    let mut written_bytes = 0;
    // Taken after the version: they know every family that the inputs hold cells of.
    let rules = store.rules();
    let mut collector = Collector::new(&rules, outside(state, inputs), store.env().now_micros());
    let mut step = cursor.seek(&[])?;
    let (mut turn, mut blocks_taken) = (0, 0);
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
        let outcome = take_block(&mut cursor, &mut collector, &mut output).await?;
        if outcome == Outcome::Open {
            let fate = collector.push(cursor.key(), cursor.value())?;
            add_ready(&mut collector, &mut output).await?;
            add(&cursor, fate, &mut output).await?;
        }
        blocks_taken += u64::from(outcome == Outcome::Taken);
        turn += 1;
        if turn % CELLS_PER_TURN == 0 || outcome == Outcome::Taken {
            store.check()?;
            store.env().yield_now().await;
        }
        step = cursor.next()?;
    }
    collector.finish();
    add_ready(&mut collector, &mut output).await?;
    let written = output.finish().await?;
    let merged = Merged { written, collected: collector.counts(), blocks_taken };
    check_counts(&inputs.merged, cursor.repeated(), &merged)?;
    Ok(merged)
}

/// Writes the key that the cursor stands on, if it is to be.
pub(super) async fn add(cursor: &MergeCursor, fate: Fate, output: &mut Outputs) -> Result<()> {
    if fate == Fate::Pass {
        return Ok(());
    }
    let (key, value) = (cursor.key(), cursor.value());
    match (value, cursor.table()) {
        (ValueRef::Inline(value), _) => output.add(key, value).await?,
        (ValueRef::Stored(value), Some(table)) => output.add_stored(key, table, value).await?,
        (ValueRef::Stored(_), None) => unreachable!("memtables store no values outside"),
    }
    if fate == Fate::KeepExpired {
        output.note_expired(key, collect::bytes(key, value.len()))?;
    }
    Ok(())
}

/// Writes the operand that the collector has made, if it has.
async fn add_ready(collector: &mut Collector<'_>, output: &mut Outputs) -> Result<()> {
    match collector.ready() {
        Some(operand) => add_operand(&operand, output).await,
        None => Ok(()),
    }
}

/// Writes an operand.
pub(super) async fn add_operand(operand: &Operand, output: &mut Outputs) -> Result<()> {
    output.add(&operand.key, &operand.value).await?;
    if operand.is_expired {
        output.note_expired(&operand.key, operand.bytes())?;
    }
    Ok(())
}

fn outside(state: &State, inputs: &MergeInputs) -> Outside {
    let file = |reference: &Arc<TableRef>| OutsideFile {
        first: reference.low(),
        end: reference.end(),
        smallest: reference.meta.properties.smallest_seq,
        largest: reference.meta.properties.largest_seq,
        table: state.tables.get(&reference.id()).cloned(),
    };
    Outside::new(inputs.outside.iter().map(file).collect())
}

fn source(state: &State, reference: &TableRef, bounds: &RowRange) -> Source {
    let table = state.tables.get(&reference.id()).expect("a version's tables are open");
    let rows = reference.clip.as_ref().unwrap_or(bounds);
    Source::table(table.cursor(false), rows)
}

/// Nothing is lost or invented: what the inputs hold was met or repeated, and what was met was
/// written or left out for a reason. Of an input that is clipped, only a part counts.
fn check_counts(inputs: &[Arc<TableRef>], repeated: u64, merged: &Merged) -> Result<()> {
    let Merged { written, collected, .. } = merged;
    let cells = |input: &Arc<TableRef>| input.meta.properties.cells;
    let most: u64 = inputs.iter().map(cells).sum();
    let least: u64 = inputs.iter().filter(|input| input.clip.is_none()).map(cells).sum();
    let seen = collected.met + repeated;
    if !(least..=most).contains(&seen) {
        let what = format!("a merge of {least} to {most} cells has met {seen}");
        return Err(Error::CorruptCell { what });
    }
    let found: u64 = written.tables().iter().map(|new| new.meta.properties.cells).sum();
    if found + collected.left_out() != collected.met {
        let (met, left_out) = (collected.met, collected.left_out());
        let what = format!("a merge of {met} cells wrote {found} and left out {left_out}");
        return Err(Error::CorruptCell { what });
    }
    Ok(())
}
