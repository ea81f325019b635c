//! Prints manifests, and what the log holds of a range, for people.

use std::fmt::Write;

use storage::Path;
use types::{CellKey, CellRef, GroupSettings, Kind, ParsedKey, RowRange, TimestampRange, key};

use crate::batch::decode_payload;
use crate::error::Result;
use crate::excise::decode_excise;
use crate::manifest::Manifest;
use crate::version::{Group, TableRef};

/// Bytes of a value that are shown.
const SHOWN_BYTES: usize = 48;

/// Writes a line for each cell and tombstone of a batch as the log keeps it. A writer that refuses
/// a line ends it without error.
///
/// # Errors
/// [`crate::Error::CorruptBatch`], with the offset in the batch; then nothing is written.
pub fn batch(payload: &[u8], out: &mut dyn Write) -> Result<()> {
    for cell in decode_payload(payload)? {
        let Some(key) = ParsedKey::parse(cell.key) else {
            continue;
        };
        if writeln!(out, "    {key:?}{}", value(cell, key.kind)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Writes the rows of an excise as the log keeps it. A writer that refuses ends it without error.
///
/// # Errors
/// [`crate::Error::CorruptBatch`]; then nothing is written.
pub fn excise(payload: &[u8], out: &mut dyn Write) -> Result<()> {
    let rows = decode_excise(payload)?;
    // As said above.
    let _ = writeln!(out, "    rows {rows:?}");
    Ok(())
}

/// What follows the key of a checked cell.
fn value(cell: CellRef<'_>, kind: Kind) -> String {
    match kind {
        Kind::Put if cell.value.len() > SHOWN_BYTES => {
            let shown = cell.value[..SHOWN_BYTES].escape_ascii();
            format!(" = \"{shown}\"... ({} bytes)", cell.value.len())
        }
        Kind::Put => format!(" = \"{}\"", cell.value.escape_ascii()),
        Kind::Add => key::operand(cell.value).map_or(String::new(), |add| format!(" = {add:+}")),
        Kind::DeleteCells => TimestampRange::decode(cell.value).map_or(String::new(), |ages| {
            let end = ages.end.map_or("end".to_owned(), |end| end.to_string());
            format!(" of [{}, {end})", ages.start)
        }),
        Kind::DeleteFamily | Kind::DeleteRow => String::new(),
    }
}

/// The text of a stored manifest; `path` stands in error texts, and its number must be the file's.
///
/// # Errors
/// Damage, or a format newer than this release's.
pub fn manifest(path: &Path, stored: &[u8]) -> Result<String> {
    let manifest = Manifest::decode(path, stored)?;
    let mut text = String::new();
    write_manifest(&mut text, &manifest).expect("a string takes all text");
    Ok(text)
}

fn write_manifest(out: &mut String, manifest: &Manifest) -> std::fmt::Result {
    let version = &manifest.version;
    writeln!(out, "manifest {} of range {}", manifest.number, manifest.range)?;
    writeln!(out, "  table           {}", manifest.table)?;
    writeln!(out, "  rows            {:?}", manifest.bounds)?;
    writeln!(out, "  epoch           {}", manifest.epoch)?;
    writeln!(out, "  session         {}", manifest.session)?;
    writeln!(out, "  writer          {:032x}", manifest.writer)?;
    writeln!(out, "  previous        {:016x}", manifest.previous)?;
    writeln!(out, "  min_writer      {}", manifest.min_writer)?;
    writeln!(out, "  flushed         {}", version.flushed())?;
    writeln!(out, "  last timestamp  {}", version.last_timestamp())?;
    writeln!(out, "  bytes           {}", version.bytes())?;
    for group in version.groups() {
        write_group(out, group)?;
    }
    writeln!(out, "  options")?;
    for (name, value) in manifest.options.echo() {
        writeln!(out, "    {name} = {value}")?;
    }
    Ok(())
}

fn write_group(out: &mut String, group: &Group) -> std::fmt::Result {
    write!(out, "  group {:?}", group.name)?;
    for family in &group.families {
        write!(out, " {family}")?;
    }
    writeln!(out, ": {} SSTables", group.tables.len())?;
    if group.settings != GroupSettings::default() {
        writeln!(out, "    {}", settings(&group.settings))?;
    }
    group.tables.iter().try_for_each(|table| write_table(out, table))
}

fn settings(settings: &GroupSettings) -> String {
    let server = || "the server's".to_owned();
    let block = settings.block_bytes.map_or_else(server, |bytes| format!("{bytes} bytes"));
    let compression = settings.compression.map_or_else(server, |codec| format!("{codec:?}"));
    let memory = if settings.in_memory { ", in memory" } else { "" };
    format!("blocks {block}, compression {compression}, filters {:?}{memory}", settings.bloom)
}

fn write_table(out: &mut String, table: &TableRef) -> std::fmt::Result {
    let TableRef { meta, level, clip } = table;
    writeln!(out, "    L{level} {} {} bytes, xxh3 {:016x}", meta.file, meta.len, meta.checksum)?;
    let properties = &meta.properties;
    writeln!(
        out,
        "      {} cells, {} tombstones, {} rows, {}..={}",
        properties.cells,
        properties.tombstones,
        properties.rows,
        properties.smallest_seq,
        properties.largest_seq
    )?;
    write_key(out, "from", &meta.smallest)?;
    write_key(out, "to", &meta.largest)?;
    write_clip(out, clip.as_ref())
}

fn write_key(out: &mut String, name: &str, key: &CellKey) -> std::fmt::Result {
    writeln!(out, "      {name:<5}{key:?}")
}

fn write_clip(out: &mut String, clip: Option<&RowRange>) -> std::fmt::Result {
    match clip {
        Some(rows) => writeln!(out, "      clip {rows:?}"),
        None => Ok(()),
    }
}
