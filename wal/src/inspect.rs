use std::fmt::Write;
use std::sync::Arc;

use storage::{FileSystem, Path};

use crate::format::{OwnedEntry, SEGMENT_HEADER_BYTES};
use crate::segment::{Found, Segment};
use crate::{Error, Result};

/// Writes what the payload of an entry says, or answers what is wrong with it.
pub type PayloadText<'a> =
    dyn Fn(&OwnedEntry, &mut dyn Write) -> std::result::Result<(), String> + Sync + 'a;

/// Prints a segment as text: its header, a line for each frame and each entry, what `payloads`
/// makes of the entries, and why it ends where it ends. Looks at this segment alone.
///
/// # Errors
/// `Corrupt` for what is wrong although its checksum holds; those of reading; `Io` when `out`
/// refuses text.
pub async fn inspect(
    files: &Arc<dyn FileSystem>,
    path: &Path,
    payloads: Option<&PayloadText<'_>>,
    out: &mut (dyn Write + Send),
) -> Result<()> {
    let mut segment = Segment::open(files, path, u64::MAX).await?;
    writeln!(out, "segment {} seed {:016x}", segment.name.number, segment.name.seed)?;
    match &segment.header {
        None => writeln!(out, "no header: not begun, torn or damaged")?,
        Some(header) => {
            writeln!(out, "session {}", header.session)?;
            if let Some(before) = header.predecessor {
                writeln!(
                    out,
                    "follows seed {:016x}, which ends at {} with frame {}",
                    before.seed, before.len, before.last_frame
                )?;
            }
        }
    }
    let mut offset = SEGMENT_HEADER_BYTES as u64;
    let mut reason = "nothing";
    while segment.header.is_some() {
        match segment.frame_at(offset).await? {
            Found::Nothing(why) => {
                reason = why;
                break;
            }
            Found::Frame(header, entries) => {
                let (number, synced_to) = (header.number, header.synced_to);
                let mark = if header.is_end { " end mark" } else { "" };
                let bytes = header.frame_len();
                writeln!(
                    out,
                    "{offset} frame {number} {bytes} bytes, synced to {synced_to}{mark}"
                )?;
                for entry in entries {
                    let last = entry.first_seq.get() + u64::from(entry.count.max(1)) - 1;
                    writeln!(
                        out,
                        "  {:?} {} {} {}..#{last} {} bytes",
                        entry.kind,
                        entry.range,
                        entry.epoch,
                        entry.first_seq,
                        entry.payload.len()
                    )?;
                    if let Some(payloads) = payloads {
                        payloads(&entry, out).map_err(|what| Error::corrupt(path, offset, what))?;
                    }
                }
                offset += bytes;
                if header.is_end {
                    reason = "the end mark";
                    break;
                }
            }
        }
    }
    if segment.header.is_none() {
        offset = 0;
    }
    writeln!(out, "{offset} end: {reason}")?;
    if let Some((at, header)) = segment.evidence_after(offset, Some(offset)).await? {
        let number = header.number;
        writeln!(out, "DAMAGED: frame {number} at {at} shows that {offset} was durable")?;
    }
    Ok(())
}
