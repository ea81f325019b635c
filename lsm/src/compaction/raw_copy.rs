//! Takes over whole blocks in a merge.
//!
//! 1. The cursor stands on the first entry of a block, and no other input has a key among the
//!    block's entries.
//! 2. The collector is told every entry as in any merge. If it keeps them all, the block goes to
//!    the output as it is stored: nothing is compressed or built anew.
//! 3. If not, the entries kept so far are added one by one, and the merge goes on as usual.

use sstable::{RawBlock, ValueRef};

use super::merge::{add, add_operand};
use crate::collect::{Collector, Fate};
use crate::cursor::{MergeCursor, MergeStep};
use crate::error::{Error, Result};
use crate::outputs::Outputs;

/// What came of the cell that the cursor stands on afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is still to be asked for.
    Open,
    /// It was dealt with.
    Done,
    /// It was the last of a block that was taken over.
    Taken,
}

/// Takes over the block that the cursor has just entered, if it may.
pub(super) async fn take_block(
    cursor: &mut MergeCursor,
    collector: &mut Collector<'_>,
    outputs: &mut Outputs,
) -> Result<Outcome> {
    // Several groups would have to share the block.
    let Some(output) = outputs.only().filter(|output| output.is_between_blocks()) else {
        return Ok(Outcome::Open);
    };
    let Some(block) = cursor.lone_block()? else {
        return Ok(Outcome::Open);
    };
    let raw = cursor.load_raw(&block).await?;
    if !output.takes(&raw) {
        return Ok(Outcome::Open);
    }
    let mut kept = 0;
    loop {
        if matches!(cursor.value(), ValueRef::Stored(_)) {
            add_first(&raw, kept, outputs).await?;
            return Ok(Outcome::Open);
        }
        let fate = collector.push(cursor.key(), cursor.value())?;
        let ready = collector.ready();
        if fate != Fate::Keep || ready.is_some() {
            add_first(&raw, kept, outputs).await?;
            if let Some(operand) = ready {
                add_operand(&operand, outputs).await?;
            }
            add(cursor, fate, outputs).await?;
            return Ok(Outcome::Done);
        }
        if cursor.key() == block.largest {
            let output = outputs.only().expect("it was there before");
            output.add_raw(&raw).await?;
            return Ok(Outcome::Taken);
        }
        kept += 1;
        if !matches!(cursor.next()?, MergeStep::Cell) {
            return Err(Error::CorruptCell { what: "a block ends before its last key".to_owned() });
        }
    }
}

/// Adds the first entries of a block that is not taken over.
async fn add_first(raw: &RawBlock, count: usize, outputs: &mut Outputs) -> Result<()> {
    let mut entries = raw.entries();
    for _ in 0..count {
        let Some((key, value)) = entries.next_entry()? else {
            return Err(Error::CorruptCell { what: "a block changes between reads".to_owned() });
        };
        outputs.add(key, value).await?;
    }
    Ok(())
}
