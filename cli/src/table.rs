//! `tepui table …`: creates, lists, describes and drops tables.

use clap::{Args, Subcommand};
use client::{NewFamily, NewGroup, TableDescription};
use serde_json::{Value, json};
use types::{Aggregate, Granularity};

use crate::outcome::{Failure, Out};
use crate::target::{Format, Target};
use crate::text;
use crate::{group, range, retention, scrub};

/// Creates, lists, describes, divides, flushes, merges and drops tables.
#[derive(Args, Debug)]
pub(crate) struct TableArgs {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Creates a table.
    #[command(after_help = "\
Examples:
  tepui table create users --family profile --family log:maxage=30d
  tepui table create events --family 'e:maxversions=3 or maxage=7d' --split m --split t
  tepui table create pages --family text --family links --group hot=links,in-memory
  tepui table create hits --family count:sum --family slowest:max:maxage=90d")]
    Create {
        /// 1 to 50 of the characters -_.a-zA-Z0-9
        name: String,
        /// A family, with a rule for the cells that may be dropped: NAME, NAME:maxversions=N,
        /// NAME:maxage=30d (s, m, h, d), or two or more rules with `or` or `and` between them.
        /// NAME:sum, NAME:min or NAME:max (and then a rule) makes its cells aggregates, to which
        /// numbers are added
        #[arg(long = "family", value_name = "NAME[:AGGREGATE][:RULE]", value_parser = parse_family)]
        families: Vec<NewFamily>,
        /// A locality group, whose families are stored apart: NAME=FAMILY,... and any of in-memory,
        /// compression:none, compression:lz4, filters:rows, filters:none, block:SIZE. The group
        /// `default` has all other families
        #[arg(long = "group", value_name = "NAME=FAMILY,...", value_parser = group::parse)]
        groups: Vec<NewGroup>,
        /// A row key at which the table is divided from the start; \xNN is a byte
        #[arg(long = "split", value_name = "ROW", value_parser = text::parse)]
        splits: Vec<bytes::Bytes>,
    },
    /// Lists the tables of the instance.
    List,
    /// Shows a table's families, their rules, and its ranges.
    Describe {
        /// The table
        name: String,
    },
    /// Replaces a table's locality groups; what is stored moves with the merges to come.
    #[command(after_help = "\
Examples:
  tepui table alter pages --group hot=links,in-memory --group big=text,block:64K
  tepui table alter pages --no-groups")]
    Alter {
        /// The table
        name: String,
        /// A locality group, as `table create` has it
        #[arg(long = "group", value_name = "NAME=FAMILY,...", value_parser = group::parse,
              required_unless_present = "no_groups")]
        groups: Vec<NewGroup>,
        /// All families are stored together again
        #[arg(long, conflicts_with = "groups")]
        no_groups: bool,
    },
    /// Reads all files of a table again and reports what is damaged; fails if anything is.
    #[command(after_help = "Example: tepui table scrub users")]
    Scrub {
        /// The table
        name: String,
    },
    /// Drops a table with its data.
    Drop {
        /// The table
        name: String,
    },
    /// Divides a table into more ranges, at row keys or each range near its middle.
    #[command(after_help = "\
Examples:
  tepui table split users m
  tepui table split users")]
    Split {
        /// The table
        name: String,
        /// Row keys to divide the table at; \xNN is a byte
        #[arg(value_name = "ROW", value_parser = text::parse)]
        rows: Vec<bytes::Bytes>,
    },
    /// Writes what a table has in memory to files.
    Flush {
        /// The table
        name: String,
    },
    /// Merges a table's files, each range into one sorted run; tells of each range.
    Compact {
        /// The table
        name: String,
    },
}

/// Runs a command.
///
/// # Errors
/// What the server, the connection or the output fails with.
pub(crate) async fn run(args: TableArgs, out: &mut Out) -> Result<(), Failure> {
    let client = args.target.connect().await?;
    let format = args.target.output;
    match args.command {
        Command::Create { name, families, groups, splits } => {
            let table = match groups.is_empty() {
                true => client.create_table(&name, &families, &splits).await?,
                false => client.create_table_in_groups(&name, &families, &splits, &groups).await?,
            };
            done(out, format, "created", &table.name.table)
        }
        Command::List => list(out, format, &client.list_tables().await?),
        Command::Describe { name } => {
            let table = client.describe_table(&name).await?;
            let ranges = ranges(client.table(&name).sample_row_keys().await?);
            let groups = client.groups(&name).await?;
            describe(out, format, &table, &groups, &ranges)
        }
        Command::Alter { name, groups, no_groups: _ } => {
            client.set_groups(&name, &groups).await?;
            done(out, format, "altered", &name)
        }
        Command::Scrub { name } => scrub::run(&client, &name, format, out).await,
        Command::Drop { name } => {
            client.drop_table(&name).await?;
            done(out, format, "dropped", &name)
        }
        Command::Split { name, rows } => range::split(&client, &name, &rows, format, out).await,
        Command::Flush { name } => {
            client.flush_table(&name).await?;
            done(out, format, "flushed", &name)
        }
        Command::Compact { name } => range::compact(&client, &name, format, out).await,
    }
}

fn parse_family(argument: &str) -> Result<NewFamily, String> {
    let mut parts = argument.splitn(3, ':');
    let name = parts.next().unwrap_or_default();
    types::validate_family_name(name)?;
    let mut rest = parts.next();
    let aggregate = rest.and_then(parse_aggregate);
    if aggregate.is_some() {
        rest = parts.next();
    }
    if let Some(more) = parts.next() {
        return Err(format!("{more:?} is one part too many: write NAME[:AGGREGATE][:RULE]"));
    }
    let retention = rest.map(retention::parse).transpose()?;
    Ok(NewFamily { name: name.to_owned(), retention, aggregate })
}

fn parse_aggregate(word: &str) -> Option<Aggregate> {
    [Aggregate::Sum, Aggregate::Min, Aggregate::Max]
        .into_iter()
        .find(|aggregate| aggregate_word(*aggregate) == word)
}

fn aggregate_word(aggregate: Aggregate) -> &'static str {
    match aggregate {
        Aggregate::Sum => "sum",
        Aggregate::Min => "min",
        Aggregate::Max => "max",
    }
}

fn done(out: &mut Out, format: Format, what: &str, name: &str) -> Result<(), Failure> {
    match format {
        Format::Table => out.text(&format!("{what} {name}\n")),
        Format::Json => out.json(&json!({ what: name })),
    }
}

fn list(out: &mut Out, format: Format, names: &[String]) -> Result<(), Failure> {
    match format {
        Format::Table => {
            let rows: Vec<_> = names.iter().map(|name| vec![name.clone()]).collect();
            out.text(&text::table(&["table"], &rows))
        }
        Format::Json => names.iter().try_for_each(|name| out.json(&json!({ "table": name }))),
    }
}

/// A range of a table, as sampled.
struct Sampled {
    start: bytes::Bytes,
    end: bytes::Bytes,
    /// Stored bytes, approximately.
    bytes: u64,
}

fn ranges(samples: Vec<(bytes::Bytes, u64)>) -> Vec<Sampled> {
    let mut start = bytes::Bytes::new();
    let mut before = 0;
    let mut ranges = Vec::new();
    for (end, offset) in samples {
        let bytes = offset.saturating_sub(before);
        ranges.push(Sampled { start, end: end.clone(), bytes });
        (start, before) = (end, offset);
    }
    ranges
}

fn describe(
    out: &mut Out,
    format: Format,
    table: &TableDescription,
    groups: &[NewGroup],
    ranges: &[Sampled],
) -> Result<(), Failure> {
    let granularity = match table.granularity {
        Granularity::Millis => "milliseconds",
        Granularity::Micros => "microseconds",
    };
    if format == Format::Json {
        return out.json(&json!({
            "table": table.name.table,
            "name": table.name.to_string(),
            "granularity": granularity,
            "families": table.families.iter().map(family_json).collect::<Vec<_>>(),
            "groups": groups.iter().map(group::to_json).collect::<Vec<_>>(),
            "ranges": ranges.iter().map(range_json).collect::<Vec<_>>(),
        }));
    }
    out.text(&format!("{}\ntimestamps in {granularity}\n\n", table.name))?;
    let rows: Vec<_> = table.families.iter().map(family_row).collect();
    out.text(&text::table(&["family", "cells", "drop when"], &rows))?;
    if !groups.is_empty() {
        let row = |one: &NewGroup| {
            vec![one.name.clone(), one.families.join(" "), group::settings(&one.settings)]
        };
        let rows: Vec<_> = groups.iter().map(row).collect();
        out.text("\n")?;
        out.text(&text::table(&["locality group", "families", "settings"], &rows))?;
    }
    let rows: Vec<_> = ranges
        .iter()
        .map(|range| {
            let end = if range.end.is_empty() { "(end)".into() } else { text::shown(&range.end) };
            vec![text::shown(&range.start), end, range.bytes.to_string()]
        })
        .collect();
    out.text("\n")?;
    out.text(&text::table(&["range from", "to", "bytes, about"], &rows))
}

fn family_row(family: &NewFamily) -> Vec<String> {
    let cells = family.aggregate.map_or("values", aggregate_word);
    let rule = family.retention.as_ref().map_or("keep all".to_owned(), retention::text);
    vec![family.name.clone(), cells.to_owned(), rule]
}

fn family_json(family: &NewFamily) -> Value {
    json!({
        "family": family.name,
        "aggregate": family.aggregate.map(aggregate_word),
        "drop_when": family.retention.as_ref().map(retention::text),
    })
}

fn range_json(range: &Sampled) -> Value {
    json!({
        "from": text::shown(&range.start),
        "to": text::shown(&range.end),
        "bytes": range.bytes,
    })
}

#[cfg(test)]
mod tests {
    use types::Retention;

    use super::*;

    #[test]
    fn a_family_may_have_a_rule() {
        let family = parse_family("f").unwrap();
        assert_eq!((family.name.as_str(), family.retention), ("f", None));
        let family = parse_family("f:maxversions=2").unwrap();
        assert_eq!(family.retention, Some(Retention::MaxVersions(2)));
        let family = parse_family("f:sum").unwrap();
        assert_eq!((family.aggregate, family.retention), (Some(Aggregate::Sum), None));
        let family = parse_family("max:max:maxversions=2").unwrap();
        assert_eq!(family.aggregate, Some(Aggregate::Max));
        assert_eq!(family.retention, Some(Retention::MaxVersions(2)));
        let bad_aggregates =
            ["f:sum:", "f:avg", "f:sum:min", "f:maxversions=2:sum", "f:sum:sum:min"];
        for bad in ["", ":maxage=1d", "f:", "f g", "f:keep"].into_iter().chain(bad_aggregates) {
            parse_family(bad).expect_err(bad);
        }
    }

    #[test]
    fn sampled_keys_are_the_ends_of_ranges() {
        let ranges = ranges(vec![("m".into(), 10), ("".into(), 25)]);
        let shown: Vec<_> =
            ranges.iter().map(|range| (&range.start[..], &range.end[..], range.bytes)).collect();
        assert_eq!(shown, [(&b""[..], &b"m"[..], 10), (b"m", b"", 15)]);
    }
}
