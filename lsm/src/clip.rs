//! Clips: a reference may stand for some rows of its file only.
//!
//! Rows cut out of a range, and the children of a divided range, leave their files as they are and
//! clip the references to them. A hole in the middle makes two references of one file.
//!
//! Invariant: a clipped reference is not empty as far as its file's bounds tell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sstable::Table;
use types::{FileId, RowRange, key};

use crate::version::{Group, TableRef, Version};

impl TableRef {
    /// The rows of the file that count.
    pub fn rows(&self) -> RowRange {
        self.clip.clone().unwrap_or_else(RowRange::all)
    }

    /// The part inside `rows`; `None` when the file has none there.
    pub(crate) fn within(&self, rows: &RowRange) -> Option<TableRef> {
        let clip = self.rows().intersection(rows);
        if clip.is_empty() {
            return None;
        }
        let (low, high) = encoded(&clip);
        let is_met = self.overlaps(&low, high.as_deref());
        is_met.then(|| TableRef { meta: self.meta.clone(), level: self.level, clip: Some(clip) })
    }

    /// What is left without `rows`: one reference, two around a hole, or none.
    pub(crate) fn without(self: &Arc<Self>, rows: &RowRange) -> Vec<Arc<TableRef>> {
        if self.within(rows).is_none() {
            return vec![Arc::clone(self)];
        }
        let before = RowRange { start: bytes::Bytes::new(), end: Some(rows.start.clone()) };
        let after = rows.end.clone().map(|start| RowRange { start, end: None });
        let sides = [Some(before), after].into_iter().flatten();
        sides
            .filter(|side| !side.is_empty())
            .filter_map(|side| self.within(&side))
            .map(Arc::new)
            .collect()
    }
}

/// Encoded bounds of keys.
pub(crate) fn encoded(rows: &RowRange) -> (Vec<u8>, Option<Vec<u8>>) {
    let position = |row: &[u8]| {
        let mut position = Vec::new();
        key::put_row_start(&mut position, row);
        position
    };
    (position(&rows.start), rows.end.as_deref().map(position))
}

/// How many bytes clipped references stand for: known while the range is open, not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shares(BTreeMap<(FileId, RowRange), u64>);

impl Shares {
    pub(crate) fn of(&self, file: FileId, clip: &RowRange) -> Option<u64> {
        // A look-up with borrowed parts would need a key of its own; clips are few.
        self.0.get(&(file, clip.clone())).copied()
    }

    pub(crate) fn note(&mut self, file: FileId, clip: &RowRange, bytes: u64) {
        self.0.insert((file, clip.clone()), bytes);
    }

    /// Forgets references that are gone.
    pub(crate) fn keep_only(&mut self, groups: &[Group]) {
        if self.0.is_empty() {
            return;
        }
        let tables = groups.iter().flat_map(|group| &group.tables);
        let clips: BTreeSet<(FileId, &RowRange)> =
            tables.filter_map(|table| Some((table.id(), table.clip.as_ref()?))).collect();
        self.0.retain(|(file, clip), _| clips.contains(&(*file, clip)));
    }
}

/// Asks the files' indexes how many bytes the clipped references stand for that are new. Those of
/// files whose index cannot be read go on counting whole: whoever reads their cells will be told.
pub(crate) async fn measure<'a>(
    version: &mut Version,
    reader: impl Fn(FileId) -> Option<&'a Arc<Table>>,
) {
    for table in version.unmeasured() {
        let (low, high) = encoded(&table.rows());
        let reader = reader(table.id()).expect("a version's tables are open");
        if let Ok(bytes) = reader.approximate_bytes(&low, high.as_deref()).await {
            version.measured(&table, bytes);
        }
    }
}
