//! Divides a range: its children refer to its files, clipped; no cell is read or written.
//!
//! 1. The owner chooses a row ([`Store::middle`]) and lets no batch in any more; what was placed is
//!    published and flushed.
//! 2. [`Store::seal`]: nothing is committed from now on. Reads go on.
//! 3. [`Store::write_child`], for each: its first manifest.
//! 4. The owner's catalog puts the children in the range's place, in one step. Then the range is
//!    closed and its folder goes ([`Store::remove_folder`]); its files are the children's.
//!
//! When the catalog refuses, [`Store::unseal`], and the children's folders go. When its answer is
//! unknown the range is closed; whoever opens it next asks the catalog.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use bytes::Bytes;
use sstable::ValueRef;
use types::{RangeId, RowRange, Timestamp, key};

use super::open::successor;
use super::{Store, range_folder};
use crate::clip::encoded;
use crate::cursor::{MergeCursor, MergeStep};
use crate::error::{Error, Result};
use crate::manifest::{Chain, Outcome};
use crate::resolve::past_all_rows;
use crate::sweep::remove_range_folder;
use crate::version::Version;

/// Of smaller ranges every row is looked at, bytes.
const WALKED_BYTES_MAX: u64 = 1 << 20;

impl Store {
    /// Stops all commits until [`Store::unseal`]: when this returns, none is under way.
    ///
    /// # Errors
    /// Something is not flushed; the store is poisoned, fenced or closed.
    pub async fn seal(&self) -> Result<()> {
        let _no_commit = self.head.lock().await;
        self.check()?;
        self.is_sealed.store(true, SeqCst);
        if self.state().layers().any(|layer| layer.is_used()) {
            self.unseal();
            return Err(Error::Cancelled);
        }
        Ok(())
    }

    /// Lets commits go on.
    pub fn unseal(&self) {
        self.is_sealed.store(false, SeqCst);
    }

    /// Writes the first manifest of a range that takes over `rows` of this one, which is sealed.
    ///
    /// # Errors
    /// The file system's; [`Error::RangeExists`].
    pub async fn write_child(&self, child: RangeId, rows: &RowRange) -> Result<()> {
        assert!(self.is_sealed.load(SeqCst), "a range is sealed before it is divided");
        let mut config = self.config.clone();
        config.range = child;
        config.bounds = rows.clone();
        let version = self.child_version(rows);
        let chain = Chain::new(Arc::clone(&config.files), config.range_folder());
        let manifest = successor(&config, None, version);
        let stored = Bytes::from(manifest.encode());
        match chain.commit(&manifest, stored).await? {
            Outcome::Committed => Ok(()),
            Outcome::Superseded(_) => Err(Error::RangeExists { folder: chain.folder().clone() }),
        }
    }

    fn child_version(&self, rows: &RowRange) -> Version {
        let version = self.version();
        let last: Timestamp = self.last_timestamp_bound();
        version.clipped_to(rows, last)
    }

    /// Removes the folder of a range of this table that is none (any more).
    ///
    /// # Errors
    /// The file system's.
    pub async fn remove_folder(&self, range: RangeId) -> Result<()> {
        let folder = range_folder(&self.config.table_folder, range);
        remove_range_folder(&self.config.files, &folder).await
    }

    /// A row with about half of the range's bytes before it, of which something is stored on both
    /// sides; `None` when there is none, as in a range of one row. Memtables count little.
    ///
    /// # Errors
    /// An index or a block cannot be read.
    pub async fn middle(self: &Arc<Self>) -> Result<Option<Bytes>> {
        let Some((first, last)) = self.ends().await? else {
            return Ok(None);
        };
        let spread = match self.version().bytes() < WALKED_BYTES_MAX {
            true => self.walk().await?,
            false => self.spread().await?,
        };
        Ok(middle_of(spread, &first, &last))
    }

    /// The first and the last row of which anything is stored.
    async fn ends(self: &Arc<Self>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut cursor = self.view()?.merge(self.bounds(), false);
        let (low, high) = encoded(self.bounds());
        let step = cursor.seek(&low)?;
        let first = row_of(&mut cursor, step).await?;
        let step = cursor.prev_row(&high.unwrap_or_else(past_all_rows))?;
        let last = row_of(&mut cursor, step).await?;
        Ok(first.zip(last))
    }

    /// Rows at which the files' indexes divide the range, each with the bytes from it on. Of a
    /// clipped file only the blocks that may have rows of the clip count.
    async fn spread(&self) -> Result<Vec<(Vec<u8>, u64)>> {
        let state = self.state();
        let mut spread = Vec::new();
        for reference in state.version.tables() {
            let table = state.tables.get(&reference.id()).expect("a version's tables are open");
            let rows = reference.rows().intersection(self.bounds());
            let first = key::row_prefix(reference.meta.smallest.as_bytes());
            let first = first.map(key::unescape_row).unwrap_or_default().max(rows.start.to_vec());
            let (low, high) = encoded(&rows);
            let blocks = table.spread().await?;
            for (place, (separator, bytes)) in blocks.iter().enumerate() {
                let is_before = blocks.get(place + 1).is_some_and(|(next, _)| *next <= low);
                let is_after = high.as_ref().is_some_and(|high| separator >= high);
                if !is_before && !is_after {
                    spread.push((row_at(separator).max(first.clone()), *bytes));
                }
            }
        }
        spread.sort_unstable();
        Ok(spread)
    }

    /// Every row with the bytes of its keys and values.
    async fn walk(self: &Arc<Self>) -> Result<Vec<(Vec<u8>, u64)>> {
        let view = self.view()?;
        let mut cursor = view.merge(self.bounds(), false);
        let mut rows: Vec<(Vec<u8>, u64)> = Vec::new();
        let mut step = cursor.seek(&[])?;
        loop {
            match step {
                MergeStep::End => return Ok(rows),
                MergeStep::NeedBlock(pending) => {
                    cursor.load(&pending).await?;
                    step = cursor.resume()?;
                    continue;
                }
                MergeStep::Cell => {}
            }
            let bytes = cursor.key().len() as u64 + value_bytes(cursor.value());
            let row = key::row_prefix(cursor.key()).map(key::unescape_row).unwrap_or_default();
            match rows.last_mut() {
                Some((last, sum)) if *last == row => *sum += bytes,
                _ => rows.push((row, bytes)),
            }
            step = cursor.next()?;
        }
    }
}

fn value_bytes(value: ValueRef<'_>) -> u64 {
    match value {
        ValueRef::Inline(value) => value.len() as u64,
        ValueRef::Stored(stored) => stored.len(),
    }
}

/// The row that begins at or after a separator, which may be cut anywhere: shorter than the row
/// when it ends inside it.
fn row_at(separator: &[u8]) -> Vec<u8> {
    if let Some(prefix) = key::row_prefix(separator) {
        return key::unescape_row(prefix);
    }
    let whole = match separator.split_last() {
        // Half of an escaped zero, or of the end mark.
        Some((0, rest)) => rest,
        _ => separator,
    };
    let mut marked = whole.to_vec();
    marked.extend_from_slice(&[0, 0]);
    key::unescape_row(&marked)
}

/// The row that the cursor comes to by a step.
async fn row_of(cursor: &mut MergeCursor, mut step: MergeStep) -> Result<Option<Vec<u8>>> {
    loop {
        match step {
            MergeStep::Cell => return Ok(key::row_prefix(cursor.key()).map(key::unescape_row)),
            MergeStep::End => return Ok(None),
            MergeStep::NeedBlock(pending) => {
                cursor.load(&pending).await?;
                step = cursor.resume()?;
            }
        }
    }
}

/// The row nearest to the middle of the bytes that divides the rows from `first` to `last`.
fn middle_of(spread: Vec<(Vec<u8>, u64)>, first: &[u8], last: &[u8]) -> Option<Bytes> {
    let total: u64 = spread.iter().map(|(_, bytes)| bytes).sum();
    let mut before = 0_u64;
    let mut best: Option<(u64, Vec<u8>)> = None;
    for (row, bytes) in spread {
        let off = before.abs_diff(total / 2);
        let divides = &row[..] > first && &row[..] <= last;
        if divides && best.as_ref().is_none_or(|(least, _)| off < *least) {
            best = Some((off, row));
        }
        before = before.saturating_add(bytes);
    }
    best.map(|(_, row)| Bytes::from(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(rows: &[(&str, u64)]) -> Vec<(Vec<u8>, u64)> {
        rows.iter().map(|(row, bytes)| (row.as_bytes().to_vec(), *bytes)).collect()
    }

    #[test]
    fn the_middle_is_by_bytes_and_never_the_first_row() {
        let middle = |rows: &[(&str, u64)]| {
            let ends = rows.first().zip(rows.last());
            let (first, last) = ends.map_or(("", ""), |(first, last)| (first.0, last.0));
            middle_of(spread(rows), first.as_bytes(), last.as_bytes()).map(|row| row.to_vec())
        };
        assert_eq!(middle(&[]), None);
        assert_eq!(middle(&[("a", 5)]), None);
        assert_eq!(middle(&[("a", 5), ("a", 9)]), None, "a single row is never divided");
        assert_eq!(middle(&[("a", 1), ("b", 100)]), Some(b"b".to_vec()));
        assert_eq!(middle(&[("a", 100), ("b", 1)]), Some(b"b".to_vec()));
        let even = [("a", 10), ("b", 10), ("c", 10), ("d", 10)];
        assert_eq!(middle(&even), Some(b"c".to_vec()));
        // Places that are no rows are taken if there are rows on both sides.
        let between = |first: &[u8], last: &[u8]| middle_of(spread(&even), first, last);
        assert_eq!(between(b"bb", b"d").unwrap(), "c");
        assert_eq!(between(b"c", b"d").unwrap(), "d");
        assert_eq!(between(b"a", b"b5").unwrap(), "b");
        assert_eq!(between(b"c", b"c5"), None);
    }

    #[test]
    fn a_cut_separator_is_a_row_that_begins_it() {
        let mut key = Vec::new();
        key::put_row_prefix(&mut key, b"r\0w");
        assert_eq!(key, b"r\x00\xffw\x00\x00");
        for (len, row) in [(0, &b""[..]), (1, b"r"), (2, b"r"), (3, b"r\0"), (4, b"r\0w")] {
            assert_eq!(row_at(&key[..len]), row, "of {len} bytes");
        }
        assert_eq!(row_at(&key[..5]), b"r\0w");
        assert_eq!(row_at(&key), b"r\0w");
        assert_eq!(row_at(b"r\x00\x00\x00\x00\x00\x01rest"), b"r");
    }
}
