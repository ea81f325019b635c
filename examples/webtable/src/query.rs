//! The three questions that the table answers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use bytes::Bytes;
use client::Table;
use env::Env;
use types::RowRange;

use crate::address::Site;
use crate::load::{ANCHOR, CONTENTS, HTML};
use crate::screen::{Progress, Report, shown};

/// Who links to `page`, and with which words? Prints the first `count`.
///
/// # Errors
/// A text that says what failed.
pub(crate) async fn links_to(
    table: &Table,
    site: &Site,
    page: &str,
    count: usize,
) -> Result<(), String> {
    let env = Env::system();
    let begun = env.monotonic();
    let row = site.row_meant(page);
    let found = table.get(row.clone()).await.map_err(|error| error.to_string())?;
    let took = env.monotonic().saturating_sub(begun);
    let Some(found) = found else {
        return Err(format!("no page and no link knows {}", shown(&row)));
    };
    let anchors = found.family(ANCHOR);
    println!(
        "{} pages link to {} (one row of {} bytes, read in {})",
        anchors.len(),
        shown(&row),
        found.bytes(),
        milliseconds(took),
    );
    let mut report = Report::new(&["from", "as"]);
    for anchor in anchors.iter().take(count) {
        report.row(&[shown(&anchor.qualifier), shortened(&shown(&anchor.value))]);
    }
    report.print();
    if anchors.len() > count {
        println!("… and {} more", anchors.len() - count);
    }
    Ok(())
}

/// Which pages do most others link to? The answer is the row of the first of them, if any page
/// links to another.
///
/// # Errors
/// A text that says what failed.
pub(crate) async fn top(table: &Table, count: usize) -> Result<Option<String>, String> {
    let env = Env::system();
    let begun = env.monotonic();
    let progress = Progress::endless();
    let (mut rows, mut bytes, mut anchors) = (0_u64, 0_u64, 0_u64);
    let mut best: BinaryHeap<Reverse<(usize, Reverse<Bytes>)>> = BinaryHeap::new();
    let mut scan = table.scan(RowRange::all(), None);
    while let Some(row) = scan.next().await.map_err(|error| error.to_string())? {
        rows += 1;
        bytes += row.bytes() as u64;
        let links = row.family(ANCHOR).len();
        anchors += links as u64;
        // A copy: the key as read keeps its whole message alive.
        best.push(Reverse((links, Reverse(Bytes::copy_from_slice(&row.key)))));
        if best.len() > count {
            best.pop();
        }
        if rows % 1000 == 0 {
            progress.read(rows, bytes);
        }
    }
    progress.end();
    let took = env.monotonic().saturating_sub(begun);
    let best = best.into_sorted_vec();
    let mut report = Report::new(&["links", "page"]);
    for Reverse((links, Reverse(row))) in &best {
        report.row(&[links.to_string(), shown(row)]);
    }
    report.print();
    println!(
        "{rows} rows with {anchors} anchors, {:.1} MB, read in {}",
        bytes as f64 / 1e6,
        milliseconds(took),
    );
    let first = best.into_iter().next().filter(|Reverse((links, _))| *links > 0);
    Ok(first.map(|Reverse((_, Reverse(row)))| shown(&row)))
}

/// Which pages are in a folder? Prints the first `count`, in order, and counts all.
///
/// # Errors
/// A text that says what failed.
pub(crate) async fn scan(
    table: &Table,
    site: &Site,
    prefix: &str,
    count: usize,
) -> Result<(), String> {
    let env = Env::system();
    let begun = env.monotonic();
    let prefix = Bytes::from(site.row_meant(prefix));
    let mut report = Report::new(&["page", "bytes", "links to it"]);
    let (mut rows, mut bytes) = (0_usize, 0_usize);
    let mut scan = table.scan(RowRange::prefix(&prefix), None);
    while let Some(row) = scan.next().await.map_err(|error| error.to_string())? {
        rows += 1;
        bytes += row.bytes();
        if rows > count {
            continue;
        }
        let size = match row.cell(CONTENTS, HTML) {
            Some(page) => page.value.len().to_string(),
            None => "no page".to_owned(),
        };
        let links = row.family(ANCHOR).len().to_string();
        report.row(&[shown(&row.key), size, links]);
    }
    let took = env.monotonic().saturating_sub(begun);
    report.print();
    println!(
        "{rows} rows under {}, {:.1} MB, read in {}",
        shown(&prefix),
        bytes as f64 / 1e6,
        milliseconds(took),
    );
    Ok(())
}

fn milliseconds(took: Duration) -> String {
    format!("{:.1} ms", took.as_secs_f64() * 1e3)
}

fn shortened(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    match text.char_indices().nth(SHOWN_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
