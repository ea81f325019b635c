//! `tepui range describe`: what ranges have done since they were opened, and what that cost.

use client::TableRange;
use serde_json::{Map, Value, json};
use types::RangeActivity;

use crate::outcome::{Failure, Out};
use crate::range::{bounds, range_json};
use crate::target::Format;
use crate::text;

/// A number of a range, its name in JSON, and what it means.
type Line = (&'static str, Value, &'static str);

/// Prints ranges with all their numbers.
///
/// # Errors
/// Those of the output.
pub(crate) fn describe(
    out: &mut Out,
    format: Format,
    ranges: &[&TableRange],
) -> Result<(), Failure> {
    for (place, range) in ranges.iter().enumerate() {
        let activity = &range.status.activity;
        let lines: Vec<Line> = counted(activity).into_iter().chain(derived(activity)).collect();
        if format == Format::Json {
            let numbers = lines.into_iter().map(|(name, value, _)| (name.to_owned(), value));
            let mut whole = range_json(range);
            whole["activity"] = Value::Object(numbers.collect::<Map<_, _>>());
            out.json(&whole)?;
            continue;
        }
        if place > 0 {
            out.text("\n")?;
        }
        let (start, end) = bounds(range);
        let start = if start.is_empty() { "(start)".to_owned() } else { start };
        out.text(&format!("range {} from {start} to {end}\n", range.range))?;
        let status = &range.status;
        let now = [
            ("bytes", json!(status.bytes), "in files, about"),
            ("memory_bytes", json!(status.memory_bytes), "in memory, not yet in files"),
            ("files", json!(status.files), "files"),
            ("sorted_runs", json!(status.sorted_runs), "sorted runs that a read may look into"),
        ];
        let row = |(name, value, meaning): Line| {
            vec![name.replace('_', " "), value.to_string(), meaning.to_owned()]
        };
        let rows: Vec<_> = now.into_iter().chain(lines).map(row).collect();
        out.text(&text::table(&["number", "value", "meaning"], &rows))?;
    }
    Ok(())
}

/// What was counted since the range was opened.
fn counted(of: &RangeActivity) -> Vec<Line> {
    let skipped = of.keys_read.saturating_sub(of.cells_read);
    vec![
        ("live_bytes", json!(of.live_bytes), "bytes of the files it refers to"),
        ("largest_level_bytes", json!(of.largest_level_bytes), "bytes of the largest level"),
        ("merge_debt", json!(of.merge_debt), "bytes that merges have still to write, about"),
        ("placed_bytes", json!(of.placed_bytes), "bytes of batches written"),
        ("flushed_bytes", json!(of.flushed_bytes), "bytes of files that flushes wrote"),
        ("merges", json!(of.merges), "merges"),
        ("merges_failed", json!(of.merges_failed), "merges that failed"),
        (
            "files_set_aside",
            json!(of.files_set_aside),
            "files that merges could not read, left alone for a while: see table scrub",
        ),
        ("merge_read_bytes", json!(of.merge_read_bytes), "bytes that merges read"),
        ("merge_written_bytes", json!(of.merge_written_bytes), "bytes that merges wrote"),
        ("merge_blocks", json!(of.merge_blocks), "blocks that merges wrote"),
        (
            "merge_blocks_taken",
            json!(of.merge_blocks_taken),
            "of these, those taken over as they were stored",
        ),
        ("moved_bytes", json!(of.moved_bytes), "bytes moved to another level as they are"),
        (
            "expired_file_bytes",
            json!(of.expired_file_bytes),
            "bytes of files that went whole, past their age",
        ),
        ("slowed_writes", json!(of.slowed_writes), "writes slowed because merges fell behind"),
        ("slowed_micros", json!(of.slowed_micros), "for how long in all, microseconds"),
        ("stopped_writes", json!(of.stopped_writes), "writes that had to wait for room"),
        ("stopped_micros", json!(of.stopped_micros), "for how long in all, microseconds"),
        ("row_reads", json!(of.row_reads), "reads of single rows"),
        ("row_tables", json!(of.row_tables), "files around these rows: filters asked"),
        ("row_tables_ruled_out", json!(of.row_tables_ruled_out), "files that filters ruled out"),
        (
            "row_tables_in_vain",
            json!(of.row_tables_in_vain),
            "files without the row, not ruled out",
        ),
        ("blocks_loaded", json!(of.blocks_loaded), "blocks loaded for reads"),
        ("block_bytes_loaded", json!(of.block_bytes_loaded), "their bytes"),
        ("keys_read", json!(of.keys_read), "keys looked at"),
        ("cells_read", json!(of.cells_read), "cells seen"),
        ("keys_skipped", json!(skipped), "keys passed over: hidden, old or deleted"),
        ("seeks", json!(of.seeks), "seeks instead of further steps"),
    ]
}

/// What follows from it.
fn derived(of: &RangeActivity) -> Vec<Line> {
    let looked_into = of.row_tables.saturating_sub(of.row_tables_ruled_out);
    let written = of.flushed_bytes.saturating_add(of.merge_written_bytes);
    let absent = of.row_tables_ruled_out.saturating_add(of.row_tables_in_vain);
    vec![
        (
            "write_amplification",
            ratio(written, of.flushed_bytes),
            "bytes written for each byte flushed",
        ),
        ("read_amplification", ratio(looked_into, of.row_reads), "files looked into for each row"),
        (
            "space_amplification",
            ratio(of.live_bytes, of.largest_level_bytes),
            "bytes kept for each byte of the largest level",
        ),
        (
            "filter_usefulness",
            ratio(of.row_tables_ruled_out, absent),
            "of the files without the row, the part that filters ruled out",
        ),
    ]
}

/// `part / whole` to three places; nothing when there is nothing yet.
fn ratio(part: u64, whole: u64) -> Value {
    if whole == 0 {
        return Value::Null;
    }
    json!((part as f64 / whole as f64 * 1000.0).round() / 1000.0)
}
