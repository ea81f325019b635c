//! Commands for ranges and for rows by the many: lists and describes ranges, divides, flushes and
//! merges tables, drops rows.

use bytes::Bytes;
use clap::{Args, Subcommand};
use client::{Client, DroppedRows, TableRange};
use serde_json::{Value, json};

use crate::activity;
use crate::outcome::{Failure, Out};
use crate::target::{Format, Target};
use crate::text;

/// Looks at the ranges of tables.
#[derive(Args, Debug)]
pub(crate) struct RangeArgs {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: RangeCommand,
}

#[derive(Subcommand, Debug)]
enum RangeCommand {
    /// Lists a table's ranges: id, rows, size, files, sorted runs.
    #[command(after_help = "\
Examples:
  tepui range list users
  tepui range list users --output json")]
    List {
        /// The table
        table: String,
    },
    /// Shows what a table's ranges have done since they were opened: what was written, read and
    /// merged, how useful filters were, what was passed over.
    #[command(after_help = "\
Examples:
  tepui range describe users
  tepui range describe users alice
  tepui range describe users --id 3 --output json")]
    Describe {
        /// The table
        table: String,
        /// Only the range that this row belongs to; \xNN is a byte
        #[arg(value_parser = text::parse)]
        row: Option<Bytes>,
        /// Only the range with this id
        #[arg(long, value_name = "ID", conflicts_with = "row")]
        id: Option<u64>,
    },
}

/// Drops rows by the many.
#[derive(Args, Debug)]
pub(crate) struct RowsArgs {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: RowsCommand,
}

#[derive(Subcommand, Debug)]
enum RowsCommand {
    /// Drops all rows with a prefix, or all rows of the table, for good and at once.
    #[command(after_help = "\
Examples:
  tepui rows drop events --prefix 2025-01 --yes
  tepui rows drop events --all --yes")]
    Drop(DropArgs),
}

#[derive(Args, Debug)]
struct DropArgs {
    /// The table
    table: String,
    #[command(flatten)]
    which: Which,
    /// Really drops them: there is no way back
    #[arg(long)]
    yes: bool,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Which {
    /// The rows that begin with this; \xNN is a byte
    #[arg(long, value_name = "PREFIX", value_parser = text::parse)]
    prefix: Option<Bytes>,
    /// All rows; the table stays
    #[arg(long)]
    all: bool,
}

/// Runs a command for ranges.
///
/// # Errors
/// What the server, the connection or the output fails with.
pub(crate) async fn run(args: RangeArgs, out: &mut Out) -> Result<(), Failure> {
    let format = args.target.output;
    let (RangeCommand::List { table } | RangeCommand::Describe { table, .. }) = &args.command;
    let ranges = args.target.connect().await?.list_ranges(table).await?;
    let RangeCommand::Describe { row, id, .. } = &args.command else {
        return list(out, format, &ranges);
    };
    let is_meant = |range: &&TableRange| {
        row.as_ref().is_none_or(|row| range.rows.contains(row))
            && id.is_none_or(|id| range.range.get() == id)
    };
    let meant: Vec<&TableRange> = ranges.iter().filter(is_meant).collect();
    match (id, meant.is_empty()) {
        (Some(id), true) => Err(Failure::Said(format!("table {table} has no range {id}"))),
        _ => activity::describe(out, format, &meant),
    }
}

/// Runs a command for rows by the many.
///
/// # Errors
/// Without `--yes`; and what the server, the connection or the output fails with.
pub(crate) async fn run_rows(args: RowsArgs, out: &mut Out) -> Result<(), Failure> {
    let RowsCommand::Drop(DropArgs { table, which, yes }) = args.command;
    let (rows, what) = match which.prefix {
        Some(prefix) if prefix.is_empty() => {
            return Err(Failure::Said("an empty prefix means all rows: say --all".to_owned()));
        }
        Some(prefix) => {
            let what = format!("the rows of {table} that begin with {}", text::shown(&prefix));
            (DroppedRows::Prefix(prefix), what)
        }
        None => (DroppedRows::All, format!("all rows of {table}")),
    };
    if !yes {
        return Err(Failure::Said(format!("this drops {what} for good: say --yes to do it")));
    }
    args.target.connect().await?.drop_rows(&table, &rows).await?;
    match args.target.output {
        Format::Table => out.text(&format!("dropped {what}\n")),
        Format::Json => out.json(&json!({ "dropped": what })),
    }
}

/// Divides a table, and says where.
pub(crate) async fn split(
    client: &Client,
    table: &str,
    rows: &[Bytes],
    format: Format,
    out: &mut Out,
) -> Result<(), Failure> {
    let divided = client.split_table(table, rows).await?;
    if format == Format::Json {
        let rows: Vec<_> = divided.iter().map(|row| text::shown(row)).collect();
        return out.json(&json!({ "table": table, "split_at": rows }));
    }
    if divided.is_empty() {
        let why = if rows.is_empty() {
            "no range has two rows to divide it between"
        } else {
            "it is divided there already"
        };
        return out.text(&format!("nothing to split: {why}\n"));
    }
    divided.iter().try_for_each(|row| out.text(&format!("split at {}\n", text::shown(row))))
}

/// Merges a table's files, with a line for each range that is done.
pub(crate) async fn compact(
    client: &Client,
    table: &str,
    format: Format,
    out: &mut Out,
) -> Result<(), Failure> {
    let mut compaction = client.compact_table(table).await?;
    while let Some(range) = compaction.next().await? {
        match format {
            Format::Json => out.json(&range_json(&range))?,
            Format::Table => {
                let (rows, bytes) = (shown(&range), range.status.bytes);
                out.text(&format!("merged range {} {rows}, {bytes} bytes\n", range.range.get()))?;
            }
        }
        out.flush()?;
    }
    Ok(())
}

fn list(out: &mut Out, format: Format, ranges: &[TableRange]) -> Result<(), Failure> {
    if format == Format::Json {
        return ranges.iter().try_for_each(|range| out.json(&range_json(range)));
    }
    let rows: Vec<_> = ranges
        .iter()
        .map(|range| {
            let (start, end) = bounds(range);
            vec![
                range.range.get().to_string(),
                start,
                end,
                range.status.bytes.to_string(),
                range.status.memory_bytes.to_string(),
                range.status.files.to_string(),
                range.status.sorted_runs.to_string(),
            ]
        })
        .collect();
    let heads = ["range", "from", "to", "bytes, about", "in memory", "files", "sorted runs"];
    out.text(&text::table(&heads, &rows))
}

pub(crate) fn bounds(range: &TableRange) -> (String, String) {
    let end = range.rows.end.as_ref();
    (text::shown(&range.rows.start), end.map_or("(end)".to_owned(), |end| text::shown(end)))
}

fn shown(range: &TableRange) -> String {
    let (start, end) = bounds(range);
    format!("from {} to {end}", if start.is_empty() { "(start)" } else { &start })
}

pub(crate) fn range_json(range: &TableRange) -> Value {
    json!({
        "range": range.range.get(),
        "from": text::shown(&range.rows.start),
        "to": range.rows.end.as_ref().map(|end| text::shown(end)),
        "bytes": range.status.bytes,
        "memory_bytes": range.status.memory_bytes,
        "files": range.status.files,
        "sorted_runs": range.status.sorted_runs,
    })
}
