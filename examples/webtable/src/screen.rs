//! What people see: a progress bar while something lasts, and tables of results.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::load::Loaded;

/// A bar on the terminal; nothing where the output is no terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar that is full after `bytes` of pages.
    pub(crate) fn of_bytes(bytes: u64) -> Progress {
        let bar = ProgressBar::new(bytes);
        let style = "{bar:30} {percent:>3}%  {bytes}/{total_bytes}  {msg}  {eta} left";
        bar.set_style(style_of(style));
        Progress(bar)
    }

    /// A bar for work of unknown length.
    pub(crate) fn endless() -> Progress {
        let bar = ProgressBar::new_spinner();
        bar.set_style(style_of("{spinner} {msg}"));
        Progress(bar)
    }

    /// So much is loaded.
    pub(crate) fn at(&self, loaded: &Loaded, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64().max(1e-3);
        self.0.set_position(loaded.bytes);
        self.0.set_message(format!(
            "{} pages, {} cells, {:.0} pages/s, {:.1} MB/s",
            loaded.pages,
            loaded.pages + loaded.anchors,
            loaded.pages as f64 / seconds,
            loaded.bytes as f64 / 1e6 / seconds,
        ));
    }

    /// So many rows and bytes are read.
    pub(crate) fn read(&self, rows: u64, bytes: u64) {
        self.0.set_message(format!("{rows} rows, {:.1} MB", bytes as f64 / 1e6));
        self.0.tick();
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        self.0.finish_and_clear();
    }
}

fn style_of(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is valid")
}

/// A table of text whose columns are as wide as they need to be; the last one ends where its text
/// does.
pub(crate) struct Report {
    rows: Vec<Vec<String>>,
}

impl Report {
    /// A table with these column titles.
    pub(crate) fn new(titles: &[&str]) -> Report {
        Report { rows: vec![titles.iter().map(|title| (*title).to_owned()).collect()] }
    }

    /// Adds a row with a text for each column.
    pub(crate) fn row(&mut self, texts: &[String]) {
        assert_eq!(texts.len(), self.rows[0].len(), "one text for each column");
        self.rows.push(texts.to_vec());
    }

    /// Prints the table.
    pub(crate) fn print(&self) {
        print!("{}", self.text());
    }

    fn text(&self) -> String {
        let width = |column: usize| {
            let texts = self.rows.iter().map(|row| row[column].chars().count());
            texts.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        let mut out = String::new();
        for (place, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (text, width) in row.iter().zip(&widths) {
                line += &format!("{text:width$}  ");
            }
            out += line.trim_end();
            out.push('\n');
            if place == 0 {
                let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                out += &(rules.join("  ") + "\n");
            }
        }
        out
    }
}

/// Bytes for people: printable ones as they are, others as `\xNN`.
pub(crate) fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut report = Report::new(&["page", "links"]);
        report.row(&["a".into(), "12".into()]);
        report.row(&["éé-long".into(), "3".into()]);
        assert_eq!(report.text(), "page     links\n-------  -----\na        12\néé-long  3\n");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(shown("é b".as_bytes()), "é b");
        assert_eq!(shown(b"a\x1b[2J\xff"), "a\\x1b[2J\\xff");
    }
}
