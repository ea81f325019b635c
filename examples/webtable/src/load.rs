//! Loads a tree of pages into the table.
//!
//! ```text
//!  find and sort ──► groups of pages ──► read, take links out ──► rows ──► batches to the server
//!                    (1 MiB of pages)      (PARSED_MAX groups)      (WRITTEN_MAX groups)
//! ```
//!
//! Memory is bounded by the groups in the middle, not by the tree: a group is at least one page and
//! about [`GROUP_BYTES`]. Every cell has the time its page was last changed at, so loading a
//! tree again writes the same cells.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{Client, NewFamily, RowMutation, Table};
use env::Env;
use futures::{StreamExt, TryStreamExt, stream};
use types::{ErrorKind, Retention};

use crate::address::Site;
use crate::files::{self, Found};
use crate::links;
use crate::screen::{Progress, Report};

/// The family of the pages themselves.
pub(crate) const CONTENTS: &str = "contents";
/// The column of a page as HTML.
pub(crate) const HTML: &[u8] = b"html";
/// The family of what other pages say of a page; a qualifier is a row that links here.
pub(crate) const ANCHOR: &str = "anchor";

/// Bytes of the pages of one group; the last page may exceed it.
const GROUP_BYTES: u64 = 1 << 20;
/// Pages of one group.
const GROUP_PAGES: usize = 64;
/// Groups that are read and parsed at once.
const PARSED_MAX: usize = 2;
/// Groups that are being written at once.
const WRITTEN_MAX: usize = 4;
/// Versions of a page that are worth keeping, as in the paper.
const PAGE_VERSIONS: u32 = 3;

/// What to load, and under which addresses.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// The folder.
    pub(crate) folder: PathBuf,
    /// Where it is published.
    pub(crate) site: Site,
    /// At most so many pages.
    pub(crate) limit: Option<usize>,
    /// Ranges that a new table is divided into.
    pub(crate) ranges: usize,
}

/// What a load did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loaded {
    /// Pages written.
    pub(crate) pages: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Links to pages of the host, counted singly.
    pub(crate) links: u64,
    /// Other links.
    pub(crate) dropped: u64,
    /// Anchor cells written: pairs of a page and a target.
    pub(crate) anchors: u64,
    /// Pages that no cell can hold.
    pub(crate) too_large: u64,
}

impl Loaded {
    fn add(&mut self, other: &Loaded) {
        self.pages += other.pages;
        self.bytes += other.bytes;
        self.links += other.links;
        self.dropped += other.dropped;
        self.anchors += other.anchors;
    }
}

/// Loads `tree` into the table called `table_id`, which is created when it is missing.
///
/// # Errors
/// A text that says what failed; pages before it stay loaded.
pub(crate) async fn load(client: &Client, table_id: &str, tree: &Tree) -> Result<(), String> {
    let env = Env::system();
    let begun = env.monotonic();
    let found = env.blocking(|| files::pages(&tree.folder, tree.limit))?;
    let bytes: u64 = found.found.iter().map(|page| page.bytes).sum();
    if found.found.is_empty() {
        return Err(format!("{} holds no *.html", tree.folder.display()));
    }
    println!(
        "loading {} pages ({:.1} MB) of {} as {}",
        found.found.len(),
        bytes as f64 / 1e6,
        tree.folder.display(),
        tree.site,
    );
    create(client, table_id, tree, &found.found).await?;
    let progress = Progress::of_bytes(bytes);
    let tree = Arc::new(tree.clone());
    let table = client.table(table_id);
    let mut loaded = stream::iter(groups(found.found))
        .map(|group| {
            let tree = Arc::clone(&tree);
            let inner = env.clone();
            let task =
                env.spawn("parse pages", async move { inner.blocking(|| parse(&tree, &group)) });
            async { task.join().await.ok_or("the parser was stopped")? }
        })
        .buffered(PARSED_MAX)
        .map(|parsed| write(table.clone(), parsed))
        .buffer_unordered(WRITTEN_MAX)
        .try_fold(Loaded::default(), |mut sum, group| {
            sum.add(&group);
            progress.at(&sum, env.monotonic().saturating_sub(begun));
            async move { Ok(sum) }
        })
        .await?;
    progress.end();
    loaded.too_large = found.too_large.len() as u64;
    report(&loaded, env.monotonic().saturating_sub(begun));
    Ok(())
}

async fn create(
    client: &Client,
    table_id: &str,
    tree: &Tree,
    pages: &[Found],
) -> Result<(), String> {
    let family = |name: &str, versions| NewFamily {
        name: name.to_owned(),
        retention: Some(Retention::MaxVersions(versions)),
        aggregate: None,
    };
    let families = [family(CONTENTS, PAGE_VERSIONS), family(ANCHOR, 1)];
    let splits = splits(tree, pages);
    match client.create_table(table_id, &families, &splits).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(format!("cannot create the table {table_id}: {error}")),
    }
}

/// The rows that divide the pages into parts of equal bytes.
fn splits(tree: &Tree, pages: &[Found]) -> Vec<Bytes> {
    let total: u64 = pages.iter().map(|page| page.bytes).sum();
    let ranges = tree.ranges.max(1) as u64;
    let mut splits = Vec::new();
    let mut before = 0;
    for page in pages {
        let part = splits.len() as u64 + 1;
        if part < ranges && before >= total / ranges * part && before > 0 {
            splits.push(Bytes::from(tree.site.row(&page.path)));
        }
        before += page.bytes;
    }
    splits
}

fn groups(pages: Vec<Found>) -> Vec<Vec<Found>> {
    let mut groups = Vec::new();
    let mut group: Vec<Found> = Vec::new();
    let mut bytes = 0;
    for page in pages {
        bytes += page.bytes;
        group.push(page);
        if bytes >= GROUP_BYTES || group.len() >= GROUP_PAGES {
            groups.push(std::mem::take(&mut group));
            bytes = 0;
        }
    }
    if !group.is_empty() {
        groups.push(group);
    }
    groups
}

/// A group, ready to be written.
struct Parsed {
    rows: Vec<RowMutation>,
    counts: Loaded,
}

/// Reads a group and turns it into rows: cells for the same row, of whichever pages, go together.
fn parse(tree: &Tree, group: &[Found]) -> Result<Parsed, String> {
    let mut rows: BTreeMap<Vec<u8>, RowMutation> = BTreeMap::new();
    let mut counts = Loaded::default();
    let mut set = |row: Vec<u8>, family: &str, qualifier: Bytes, page: &Found, value: Bytes| {
        let mutation = match rows.remove(&row) {
            Some(mutation) => mutation,
            None => RowMutation::new(row.clone()),
        };
        let mutation = mutation.set(family, qualifier, Some(page.changed), value);
        rows.insert(row, mutation);
    };
    for page in group {
        let html = files::read(&tree.folder, page)?;
        let row = Bytes::from(tree.site.row(&page.path));
        let links = links::links(&tree.site, &tree.site.url_path(&page.path), &html);
        counts.pages += 1;
        counts.bytes += html.len() as u64;
        counts.links += links.followed;
        counts.dropped += links.dropped;
        counts.anchors += links.targets.len() as u64;
        for (target, text) in links.targets {
            set(tree.site.row_of(&target), ANCHOR, row.clone(), page, text.into());
        }
        set(row.to_vec(), CONTENTS, Bytes::from_static(HTML), page, html.into());
    }
    Ok(Parsed { rows: rows.into_values().collect(), counts })
}

async fn write(table: Table, parsed: Result<Parsed, String>) -> Result<Loaded, String> {
    let parsed = parsed?;
    let keys: Vec<Bytes> = parsed.rows.iter().map(|row| row.row().clone()).collect();
    let outcomes = table.mutate_rows(parsed.rows).await;
    for (key, outcome) in keys.iter().zip(outcomes) {
        outcome.map_err(|error| format!("cannot write row {}: {error}", key.escape_ascii()))?;
    }
    Ok(parsed.counts)
}

fn report(loaded: &Loaded, took: Duration) {
    let seconds = took.as_secs_f64().max(1e-3);
    let cells = loaded.pages + loaded.anchors;
    let mut report = Report::new(&["loaded", "", "per second"]);
    report.row(&[
        "pages".into(),
        loaded.pages.to_string(),
        format!("{:.0}", loaded.pages as f64 / seconds),
    ]);
    report.row(&[
        "MB of pages".into(),
        format!("{:.1}", loaded.bytes as f64 / 1e6),
        format!("{:.1}", loaded.bytes as f64 / 1e6 / seconds),
    ]);
    report.row(&["cells".into(), cells.to_string(), format!("{:.0}", cells as f64 / seconds)]);
    report.row(&["anchor cells".into(), loaded.anchors.to_string(), String::new()]);
    report.row(&["links followed".into(), loaded.links.to_string(), String::new()]);
    report.row(&["links dropped".into(), loaded.dropped.to_string(), String::new()]);
    if loaded.too_large > 0 {
        let count = loaded.too_large.to_string();
        report.row(&["pages too large, left out".into(), count, String::new()]);
    }
    report.row(&["seconds".into(), format!("{seconds:.1}"), String::new()]);
    report.print();
}

#[cfg(test)]
mod tests {
    use types::Timestamp;

    use super::*;

    fn page(path: &str, bytes: u64) -> Found {
        Found { path: path.into(), bytes, changed: Timestamp::ZERO }
    }

    #[test]
    fn groups_keep_every_page_in_order_and_are_bounded() {
        let pages: Vec<_> =
            (0..1000u64).map(|n| page(&n.to_string(), n * n * 7 % (GROUP_BYTES / 3))).collect();
        let groups = groups(pages.clone());
        for group in &groups {
            let before_last: u64 = group.iter().rev().skip(1).map(|page| page.bytes).sum();
            assert!(before_last < GROUP_BYTES && group.len() <= GROUP_PAGES);
        }
        assert_eq!(groups.concat(), pages);
    }

    #[test]
    fn splits_divide_the_bytes_evenly() {
        let mut tree = Tree {
            folder: PathBuf::new(),
            site: Site::parse("https://docs.example/").unwrap(),
            limit: None,
            ranges: 4,
        };
        let pages: Vec<_> = (100..200).map(|n| page(&n.to_string(), 10)).collect();
        let rows = ["125", "150", "175"].map(|path| Bytes::from(tree.site.row(path.as_bytes())));
        assert_eq!(splits(&tree, &pages), rows);
        tree.ranges = 1;
        assert!(splits(&tree, &pages).is_empty());
        tree.ranges = 50;
        assert!(splits(&tree, &pages[..1]).is_empty());
    }
}
