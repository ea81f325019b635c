//! A table as text, for people.

use std::fmt::Write;
use std::sync::Arc;

use types::{CellKey, FamilyId, ParsedKey};

use crate::block::BlockCursor;
use crate::cursor::Step;
use crate::error::Result;
use crate::footer::FOOTER_BYTES;
use crate::frame::{BlockHandle, BlockKind};
use crate::index;
use crate::table::Table;
use crate::value::ValueRef;

/// Bytes of a value that are shown.
const SHOWN_BYTES: usize = 48;

/// Describes the footer, the filters and the properties.
pub fn summary(table: &Table) -> String {
    let mut out = String::new();
    let footer = table.footer();
    let properties = table.properties();
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "{name:<18}{text}");
    };
    line("file", table.file().to_string());
    line("format", footer.written_by.to_string());
    line("length", format!("{} bytes", table.blob().len()));
    line("cells", format!("{} in {} rows", properties.cells, properties.rows));
    line(
        "tombstones",
        format!(
            "{} ({} of rows, {} of families)",
            properties.tombstones, properties.row_tombstones, properties.family_tombstones
        ),
    );
    if properties.operands > 0 {
        line("operands", properties.operands.to_string());
    }
    if properties.expired_bytes > 0 {
        line("expired", format!("{} bytes", properties.expired_bytes));
    }
    let ages = properties
        .timestamps
        .map_or("none".to_owned(), |(oldest, newest)| format!("{oldest} to {newest}"));
    line("timestamps", ages);
    let [smallest, largest] = [properties.smallest_seq, properties.largest_seq];
    line("sequence numbers", format!("{smallest} to {largest}"));
    line("families", families_text(properties.families.as_deref()));
    line("smallest key", key_text(&properties.smallest));
    line("largest key", key_text(&properties.largest));
    line("raw", format!("{} bytes", properties.raw_bytes));
    line("stored values", format!("{} bytes", properties.value_block_bytes));
    line("data blocks", format!("{} up to {}", properties.data_blocks, footer.data_end));
    let filters = [footer.row_filter, footer.column_filter];
    for ((name, handle), filter) in
        [("row filter", filters[0]), ("column filter", filters[1])].into_iter().zip(table.filters())
    {
        let text = handle.zip(filter).map_or("none".to_owned(), |(handle, filter)| {
            let (probes, bits) = filter.shape();
            format!("{}, {bits} bits, {probes} probes", place(handle))
        });
        line(name, text);
    }
    line("top index", place(footer.top_index));
    line("properties", place(footer.properties));
    line("footer", format!("at {}", table.blob().len() - FOOTER_BYTES as u64));
    out
}

/// Writes one line per index partition and data block: place, stored length, separator.
///
/// # Errors
/// `Corrupt`, `Storage`. A writer that refuses a line ends it without error.
pub async fn write_index(table: &Table, out: &mut (dyn Write + Send)) -> Result<()> {
    let top_offset = table.footer().top_index.offset;
    let mut partitions = BlockCursor::new(table.top_index().clone());
    while partitions.next().map_err(|malformed| table.corrupt(top_offset, malformed))? {
        let kind = BlockKind::IndexPartition;
        let handle = index::handle(partitions.value(), kind, table.end_max(kind));
        let handle = handle.map_err(|malformed| table.corrupt(top_offset, malformed))?;
        let separator = partitions.key().escape_ascii();
        if writeln!(out, "partition {} from \"{separator}\"", place(handle)).is_err() {
            return Ok(());
        }
        let mut blocks = BlockCursor::new(table.load(handle, false).await?);
        while blocks.next().map_err(|malformed| table.corrupt(handle.offset, malformed))? {
            let data = index::handle(blocks.value(), BlockKind::Data, table.footer().data_end);
            let data = data.map_err(|malformed| table.corrupt(handle.offset, malformed))?;
            let separator = blocks.key().escape_ascii();
            if writeln!(out, "  block {} from \"{separator}\"", place(data)).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Writes one line per entry: key, length and beginning of the value.
///
/// # Errors
/// `Corrupt`, `Storage`. A writer that refuses a line ends it without error.
pub async fn write_cells(table: &Arc<Table>, out: &mut (dyn Write + Send)) -> Result<()> {
    let mut cursor = table.cursor(false);
    let mut step = cursor.seek(&[])?;
    loop {
        match step {
            Step::NeedBlock(handle) => step = cursor.load_and_resume(handle).await?,
            Step::End => return Ok(()),
            Step::Cell => {
                let line = format!("{} = {}", key_text(cursor.key()), value_text(cursor.value()));
                if writeln!(out, "{line}").is_err() {
                    return Ok(());
                }
                step = cursor.next()?;
            }
        }
    }
}

fn families_text(families: Option<&[FamilyId]>) -> String {
    let Some(families) = families else {
        return "not known".to_owned();
    };
    let names: Vec<String> = families.iter().map(ToString::to_string).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}

fn key_text(key: &[u8]) -> String {
    match ParsedKey::parse(key) {
        Some(_) => format!("{:?}", CellKey::from_valid(key)),
        None => format!("not a key: {}", key.escape_ascii()),
    }
}

fn value_text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Inline(bytes) if bytes.len() <= SHOWN_BYTES => {
            format!("\"{}\"", bytes.escape_ascii())
        }
        ValueRef::Inline(bytes) => {
            let shown = bytes[..SHOWN_BYTES].escape_ascii();
            format!("\"{shown}\"... ({} bytes)", bytes.len())
        }
        ValueRef::Stored(stored) => {
            let (len, pieces) = (stored.len(), stored.pieces());
            format!("{len} bytes in {pieces} pieces at {}", stored.offset())
        }
    }
}

fn place(handle: BlockHandle) -> String {
    format!("at {} of {} bytes", handle.offset, handle.len)
}
