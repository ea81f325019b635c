//! Removes what no range of a table needs: files that no newest manifest names, and folders of
//! ranges that are none.
//!
//! A range removes the files that it alone refers to. Clipped files may be several ranges': they
//! are left to the sweep, which reads the newest manifest of every range.
//!
//! While the table is served, a pass ([`Sweep::pass`])
//! 1. lists the files, and then passes over those that are still being written: what is listed and
//!    finished is named by a manifest by now, or never will be;
//! 2. reads the newest manifest of every range's folder; a folder without one, a damaged one, or
//!    folders that change meanwhile (a range is being divided) end the pass;
//! 3. removes a file that no manifest names if the pass before found it so too, and nothing in the
//!    process holds it open.

use std::collections::BTreeSet;
use std::sync::Arc;

use storage::{FileSystem, Path};
use types::{FileId, RangeId};

use crate::error::Result;
use crate::files::{FILES_FOLDER, FileIds, RANGES_FOLDER};
use crate::manifest::Chain;

/// The sweep of one table's folder while its ranges are served, from pass to pass.
#[derive(Debug, Default)]
pub struct Sweep {
    /// Files that the last pass found unnamed.
    suspects: BTreeSet<FileId>,
}

impl Sweep {
    /// One pass; the files that it removed. Passes are to be a while apart.
    ///
    /// # Errors
    /// A folder or a manifest cannot be read: then nothing was removed.
    pub async fn pass(
        &mut self,
        files: &Arc<dyn FileSystem>,
        table_folder: &Path,
        ids: &FileIds,
    ) -> Result<Vec<FileId>> {
        let before = std::mem::take(&mut self.suspects);
        let mut unnamed = tables_in(files, table_folder).await?;
        unnamed.retain(|file| !ids.is_unfinished(*file));
        if unnamed.is_empty() {
            return Ok(Vec::new());
        }
        let ranges = range_folders(files, table_folder).await?;
        let Some(named) = named_by(files, &ranges).await? else {
            return Ok(Vec::new());
        };
        if range_folders(files, table_folder).await? != ranges {
            return Ok(Vec::new());
        }
        unnamed.retain(|file| !named.contains(file));
        ids.forget_unread();
        let is_due = |file: &FileId| before.contains(file) && !ids.is_read(*file);
        let (due, suspects): (BTreeSet<FileId>, _) = unnamed.into_iter().partition(is_due);
        self.suspects = suspects;
        if !due.is_empty() {
            // A manifest that a crash can take back must not cost the files of the one before.
            for folder in &ranges {
                files.sync_folder(folder).await?;
            }
        }
        let mut removed = Vec::new();
        for file in due {
            files.remove(&crate::table_path(table_folder, file)).await?;
            removed.push(file);
        }
        Ok(removed)
    }
}

/// Removes the SSTables in a table's folder that no range's newest manifest names: what a crash
/// left behind. To be called before the first range of the table is opened, by the table's only
/// owner. Returns the removed files.
///
/// # Errors
/// A folder or a manifest cannot be read: then nothing was removed.
pub async fn sweep_table(files: &Arc<dyn FileSystem>, table_folder: &Path) -> Result<Vec<FileId>> {
    let mut live: BTreeSet<FileId> = BTreeSet::new();
    for folder in range_folders(files, table_folder).await? {
        // A manifest that a crash can still take back must not cost the files of the one before.
        files.sync_folder(&folder).await?;
        if let Some((manifest, _)) = Chain::new(Arc::clone(files), folder).newest().await? {
            live.extend(manifest.version.file_ids());
        }
    }
    let mut removed = Vec::new();
    for file in tables_in(files, table_folder).await? {
        if !live.contains(&file) {
            files.remove(&crate::table_path(table_folder, file)).await?;
            removed.push(file);
        }
    }
    Ok(removed)
}

/// Removes the folders of ranges that are not among `known`: of ranges that were divided, and of
/// children that never came to be. To be called as [`sweep_table`], before it. Returns how many.
///
/// # Errors
/// A folder cannot be read or removed.
pub async fn remove_ranges_but(
    known: &BTreeSet<RangeId>,
    files: &Arc<dyn FileSystem>,
    table_folder: &Path,
) -> Result<u64> {
    let mut removed = 0;
    for folder in range_folders(files, table_folder).await? {
        let range = folder.name().parse().ok().map(RangeId::new);
        if range.is_some_and(|range| !known.contains(&range)) {
            remove_range_folder(files, &folder).await?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Removes a range's folder with its manifests, the oldest first: at no time is an old one the
/// newest.
pub(crate) async fn remove_range_folder(files: &Arc<dyn FileSystem>, folder: &Path) -> Result<()> {
    for entry in files.list(folder, "").await? {
        files.remove(&folder.join(&entry.name)).await?;
    }
    Ok(files.remove_folder(folder).await?)
}

/// The folders of a table's ranges, sorted by name.
async fn range_folders(files: &Arc<dyn FileSystem>, table_folder: &Path) -> Result<Vec<Path>> {
    let ranges = table_folder.join(RANGES_FOLDER);
    let entries = files.list(&ranges, "").await?;
    let folders = entries.iter().filter(|entry| entry.is_folder);
    Ok(folders.map(|entry| ranges.join(&entry.name)).collect())
}

/// The files that the newest manifests name; `None` when a folder has none.
async fn named_by(
    files: &Arc<dyn FileSystem>,
    folders: &[Path],
) -> Result<Option<BTreeSet<FileId>>> {
    let mut named = BTreeSet::new();
    for folder in folders {
        let chain = Chain::new(Arc::clone(files), folder.clone());
        let Some((manifest, _)) = chain.newest().await? else {
            return Ok(None);
        };
        named.extend(manifest.version.file_ids());
    }
    Ok(Some(named))
}

/// The SSTables in a table's folder.
async fn tables_in(files: &Arc<dyn FileSystem>, table_folder: &Path) -> Result<BTreeSet<FileId>> {
    let entries = files.list(&table_folder.join(FILES_FOLDER), "").await?;
    let tables = entries.iter().filter_map(|entry| entry.name.strip_suffix(".sst"));
    Ok(tables.filter_map(FileId::parse).collect())
}
