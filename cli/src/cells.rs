//! `tepui put`, `get` and `scan`: cells over the network.

use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;
use client::Row;
use serde_json::{Value, json};
use types::limits::VALUE_BYTES_MAX;
use types::{RowRange, Timestamp};

use crate::files;
use crate::outcome::{Failure, Out};
use crate::target::{Format, Target};
use crate::text;

/// Characters of a value that a table shows.
const SHOWN_MAX: usize = 100;

/// A column, as FAMILY:QUALIFIER.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    family: String,
    qualifier: Bytes,
}

fn parse_column(argument: &str) -> Result<Column, String> {
    let (family, qualifier) = argument
        .split_once(':')
        .ok_or_else(|| format!("{argument:?} is no column: write FAMILY:QUALIFIER"))?;
    types::validate_family_name(family)?;
    Ok(Column { family: family.to_owned(), qualifier: text::parse(qualifier)? })
}

fn parse_timestamp(argument: &str) -> Result<Timestamp, String> {
    let micros = argument.parse().ok().and_then(Timestamp::from_micros);
    micros.ok_or_else(|| "write microseconds since 1970, for example 1700000000000000".to_owned())
}

/// Writes one cell; it is durable when the command ends.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tepui put users alice profile:name Alice
  tepui put users alice profile:photo --file alice.jpg
  date | tepui put log 'host\\x00web1' e:now --file -")]
pub(crate) struct PutArgs {
    #[command(flatten)]
    target: Target,
    /// The table
    table: String,
    /// The row key; \xNN is a byte, \\ a backslash
    #[arg(value_parser = text::parse)]
    row: Bytes,
    /// The column; its qualifier has the same escapes
    #[arg(value_name = "FAMILY:QUALIFIER", value_parser = parse_column)]
    column: Column,
    /// The value, as it is
    #[arg(required_unless_present = "file", conflicts_with = "file", allow_hyphen_values = true)]
    value: Option<String>,
    /// Takes the value from a file; - is the standard input
    #[arg(long)]
    file: Option<PathBuf>,
    /// The cell's age in microseconds since 1970 [default: the server's time]
    #[arg(long, value_name = "MICROS", value_parser = parse_timestamp)]
    timestamp: Option<Timestamp>,
}

/// Reads one row.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tepui get users alice
  tepui get users alice --output json
  tepui get users alice --cell profile:photo > alice.jpg")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    target: Target,
    /// The table
    table: String,
    /// The row key; \xNN is a byte, \\ a backslash
    #[arg(value_parser = text::parse)]
    row: Bytes,
    /// Prints only the newest value of one column, as it is
    #[arg(long, value_name = "FAMILY:QUALIFIER", value_parser = parse_column)]
    cell: Option<Column>,
}

/// Reads rows in order.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tepui scan users --limit 10
  tepui scan webtable --prefix org.rust-lang.doc/std/ --output json
  tepui scan users --start a --end c
  tepui scan log --prefix host1# --reversed --limit 20")]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    target: Target,
    /// The table
    table: String,
    /// Only rows that begin so; \xNN is a byte, \\ a backslash
    #[arg(long, value_parser = text::parse, conflicts_with_all = ["start", "end"])]
    prefix: Option<Bytes>,
    /// The first row
    #[arg(long, value_name = "ROW", value_parser = text::parse)]
    start: Option<Bytes>,
    /// The first row that is too far
    #[arg(long, value_name = "ROW", value_parser = text::parse)]
    end: Option<Bytes>,
    /// At most so many rows
    #[arg(long)]
    limit: Option<u64>,
    /// The largest row first; the limit counts from there
    #[arg(long)]
    reversed: bool,
}

/// Writes one cell.
///
/// # Errors
/// What the file, the server or the connection fails with.
pub(crate) async fn put(args: PutArgs) -> Result<(), Failure> {
    let value = match (&args.file, args.value) {
        (Some(path), _) => files::read(path, VALUE_BYTES_MAX as u64)?,
        (None, Some(value)) => Bytes::from(value),
        (None, None) => return Err(Failure::Said("a value is missing".to_owned())),
    };
    let table = args.target.open(&args.table).await?;
    let Column { family, qualifier } = args.column;
    table.put(args.row, &family, qualifier, args.timestamp, value).await?;
    Ok(())
}

/// Reads one row, or one cell of it.
///
/// # Errors
/// What the server, the connection or the output fails with; also a row or cell that is not there.
pub(crate) async fn get(args: GetArgs, out: &mut Out) -> Result<(), Failure> {
    let table = args.target.open(&args.table).await?;
    let row = table.get(args.row.clone()).await?;
    let shown = text::shown(&args.row);
    let row = row.ok_or_else(|| format!("table {} has no row {shown}", args.table))?;
    let Some(Column { family, qualifier }) = args.cell else {
        return print(out, args.target.output, &row);
    };
    let cell = row
        .cell(&family, &qualifier)
        .ok_or_else(|| format!("row {shown} has no cell {family}:{}", text::shown(&qualifier)))?;
    out.bytes(&cell.value)
}

/// Reads rows in order.
///
/// # Errors
/// What the server, the connection or the output fails with.
pub(crate) async fn scan(args: ScanArgs, out: &mut Out) -> Result<(), Failure> {
    let table = args.target.open(&args.table).await?;
    let rows = match args.prefix {
        Some(prefix) => RowRange::prefix(&prefix),
        None => RowRange {
            start: args.start.unwrap_or_default(),
            end: args.end.filter(|end| !end.is_empty()),
        },
    };
    let mut scan = table.scan(rows, args.limit);
    if args.reversed {
        scan = scan.reversed();
    }
    while let Some(row) = scan.next().await? {
        print(out, args.target.output, &row)?;
    }
    Ok(())
}

fn print(out: &mut Out, format: Format, row: &Row) -> Result<(), Failure> {
    match format {
        Format::Json => out.json(&row_json(row)),
        Format::Table => out.text(&row_text(row)),
    }
}

fn row_json(row: &Row) -> Value {
    let cells: Vec<Value> = row
        .families
        .iter()
        .flat_map(|family| {
            family.cells.iter().map(|cell| {
                json!({
                    "family": family.name,
                    "qualifier": text::shown(&cell.qualifier),
                    "timestamp": cell.timestamp.micros(),
                    "value": text::shown(&cell.value),
                })
            })
        })
        .collect();
    json!({ "row": text::shown(&row.key), "cells": cells })
}

/// The key, then a line for each cell: column, age, value.
fn row_text(row: &Row) -> String {
    let mut cells = Vec::new();
    for family in &row.families {
        for cell in &family.cells {
            let column = format!("{}:{}", family.name, text::shown(&cell.qualifier));
            cells.push((column, text::moment(cell.timestamp), shortened(&cell.value)));
        }
    }
    let width = cells.iter().map(|(column, ..)| column.chars().count()).max().unwrap_or(0);
    let mut out = format!("{}\n", text::shown(&row.key));
    for (column, moment, value) in cells {
        out += &format!("  {column:width$}  {moment}  {value}\n");
    }
    out
}

fn shortened(value: &[u8]) -> String {
    // Four bytes are at least one character, so this much is enough to show.
    let begin = &value[..value.len().min(4 * SHOWN_MAX)];
    let shown = text::shown(begin);
    match shown.char_indices().nth(SHOWN_MAX) {
        None if begin.len() == value.len() => shown,
        end => {
            let end = end.map_or(shown.len(), |(end, _)| end);
            format!("{}… ({} bytes)", &shown[..end], value.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use client::{Cell, RowFamily};

    use super::*;

    fn row() -> Row {
        let cell = |qualifier: &'static [u8], value: &'static [u8]| Cell {
            qualifier: Bytes::from_static(qualifier),
            timestamp: Timestamp::from_micros(1_000_000).unwrap(),
            value: Bytes::from_static(value),
            labels: Vec::new(),
        };
        Row {
            key: Bytes::from_static(b"k\0"),
            families: vec![RowFamily {
                name: "f".to_owned(),
                cells: vec![cell(b"", b"a\\"), cell(b"long", &[0xff; 500])],
            }],
        }
    }

    #[test]
    fn a_row_is_a_line_of_json() {
        let value = row_json(&row());
        assert_eq!(value["row"], "k\\x00");
        assert_eq!(value["cells"][0]["value"], "a\\\\");
        assert_eq!(value["cells"][0]["timestamp"], 1_000_000);
        assert_eq!(value["cells"][1]["value"], "\\xff".repeat(500));
    }

    #[test]
    fn a_row_for_people_is_aligned_and_shortens_values() {
        let shown = row_text(&row());
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "k\\x00");
        assert_eq!(lines[1], "  f:      1970-01-01T00:00:01.000Z  a\\\\");
        assert!(lines[2].starts_with("  f:long  1970-01-01T00:00:01.000Z  \\xff\\xff"));
        assert!(lines[2].ends_with("… (500 bytes)"));
        assert!(lines[2].len() < 250);
    }

    #[test]
    fn columns_and_ages_are_checked() {
        let column = parse_column("f:a:b\\x00").unwrap();
        assert_eq!((column.family.as_str(), &column.qualifier[..]), ("f", &b"a:b\0"[..]));
        parse_column("f").unwrap_err();
        parse_column(":q").unwrap_err();
        parse_timestamp("-1").unwrap_err();
        parse_timestamp("now").unwrap_err();
        assert_eq!(parse_timestamp("5").unwrap().micros(), 5);
    }
}
