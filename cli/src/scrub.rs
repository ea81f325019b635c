//! `tepui table scrub`: reads all files of a table again and reports what is damaged.

use std::io::{IsTerminal, Write};

use client::{Client, ScrubbedFile};
use serde_json::json;

use crate::outcome::{Failure, Out};
use crate::target::Format;

const BAR_CELLS: u64 = 30;

/// What was read so far.
#[derive(Default)]
struct Report {
    files: u64,
    bytes: u64,
    damaged: u64,
}

/// Runs the command; damage is a failure.
///
/// # Errors
/// What the server, the connection or the output fails with; damage.
pub(crate) async fn run(
    client: &Client,
    table: &str,
    format: Format,
    out: &mut Out,
) -> Result<(), Failure> {
    let mut scrub = client.scrub(table).await?;
    let bar = Bar { shown: std::io::stderr().is_terminal() };
    let mut report = Report::default();
    while let Some(file) = scrub.next().await? {
        report.files += 1;
        report.bytes += file.bytes;
        bar.show(&report, &file);
        if file.damage.is_some() {
            report.damaged += 1;
            bar.clear();
            tell(out, format, &file)?;
        }
    }
    bar.clear();
    let Report { files, bytes, damaged } = report;
    match format {
        Format::Table => {
            out.text(&format!("read {files} files, {bytes} bytes: {damaged} damaged\n"))?;
        }
        Format::Json => {
            out.json(&json!({ "files": files, "bytes": bytes, "damaged": damaged }))?;
        }
    }
    if damaged == 0 {
        return Ok(());
    }
    Err(Failure::Said(format!("{damaged} of {files} files of table {table} are damaged")))
}

fn tell(out: &mut Out, format: Format, file: &ScrubbedFile) -> Result<(), Failure> {
    let Some(damage) = &file.damage else {
        return Ok(());
    };
    if format == Format::Json {
        return out.json(&json!({
            "file": file.path,
            "range": file.range.get(),
            "offset": damage.offset,
            "damage": damage.what,
        }));
    }
    let place = damage.offset.map_or_else(String::new, |offset| format!(" at offset {offset}"));
    out.text(&format!("{}{place} (range {}): {}\n", file.path, file.range, damage.what))
}

/// The progress of the range that is being read, for people who watch.
struct Bar {
    shown: bool,
}

impl Bar {
    fn show(&self, report: &Report, file: &ScrubbedFile) {
        let whole = (report.bytes + file.bytes_left).max(1);
        let full = report.bytes * BAR_CELLS / whole;
        let bar: String = (0..BAR_CELLS).map(|cell| if cell < full { '#' } else { '.' }).collect();
        let Report { files, bytes, damaged } = report;
        self.print(&format!("\r[{bar}] {files} files, {bytes} bytes, {damaged} damaged"));
    }

    fn clear(&self) {
        self.print("\r\x1b[K");
    }

    fn print(&self, text: &str) {
        if self.shown {
            // A bar that cannot be shown is no reason to stop.
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    }
}
