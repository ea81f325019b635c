//! The SSTable files of one table's folder: names, ids, opening, checking, removing.
//!
//! A file that a version gives up is *retired*: it is removed once no view and no cursor holds its
//! reader. A file that was written but whose manifest never counted is retired at once. Whatever a
//! crash leaves behind, the table's sweep removes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sstable::{BlockCache, Table, TableMeta, TableWriter, WriterOptions};
use storage::{FileSystem, Path};
use types::{ErrorKind, FileId, GroupSettings, SessionId};

use crate::error::Result;

/// Folder of a table's SSTables, in the table's folder.
pub(crate) const FILES_FOLDER: &str = "files";
/// Folder of the folders of a table's ranges, in the table's folder.
pub(crate) const RANGES_FOLDER: &str = "ranges";

/// Gives out the ids of one session's files, and knows which files are in use: shared by all its
/// ranges, so that a sweep leaves alone what no manifest names yet or any more.
#[derive(Debug)]
pub struct FileIds {
    session: u64,
    next: AtomicU64,
    use_of: Mutex<InUse>,
}

#[derive(Debug, Default)]
struct InUse {
    /// Begun, and neither named by a manifest nor removed.
    unfinished: BTreeSet<FileId>,
    /// Open, here or there.
    readers: BTreeMap<FileId, Vec<Weak<Table>>>,
}

impl FileIds {
    /// Ids of the files that `session` writes.
    pub fn new(session: SessionId) -> FileIds {
        let use_of = Mutex::default();
        FileIds { session: upper_half(session), next: AtomicU64::new(1), use_of }
    }

    /// An id that no other file has, for a file that is begun.
    pub fn next(&self) -> FileId {
        let counter = self.next.fetch_add(1, Ordering::Relaxed);
        let id = FileId { session: self.session, counter };
        self.in_use().unfinished.insert(id);
        id
    }

    /// A manifest names the file, or it is gone.
    pub(crate) fn settle(&self, file: FileId) {
        self.in_use().unfinished.remove(&file);
    }

    /// May a manifest still come to name the file?
    pub(crate) fn is_unfinished(&self, file: FileId) -> bool {
        self.in_use().unfinished.contains(&file)
    }

    fn note_reader(&self, file: FileId, reader: &Arc<Table>) {
        let mut in_use = self.in_use();
        let readers = in_use.readers.entry(file).or_default();
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(Arc::downgrade(reader));
    }

    /// Does anything in this process hold the file open?
    pub(crate) fn is_read(&self, file: FileId) -> bool {
        let in_use = self.in_use();
        let readers = in_use.readers.get(&file);
        readers.is_some_and(|readers| readers.iter().any(|reader| reader.strong_count() > 0))
    }

    /// Forgets files that nothing holds open.
    pub(crate) fn forget_unread(&self) {
        let is_read =
            |readers: &Vec<Weak<Table>>| readers.iter().any(|reader| reader.strong_count() > 0);
        self.in_use().readers.retain(|_, readers| is_read(readers));
    }

    fn in_use(&self) -> MutexGuard<'_, InUse> {
        self.use_of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Was the file written by this session?
    pub fn is_ours(&self, file: FileId) -> bool {
        file.session == self.session
    }
}

fn upper_half(session: SessionId) -> u64 {
    u64::try_from(session.get() >> 64).expect("64 bits are left")
}

/// The path of an SSTable in its table's folder.
pub fn table_path(table_folder: &Path, file: FileId) -> Path {
    table_folder.join(FILES_FOLDER).join(&format!("{file}.sst"))
}

/// A file that waits to be removed.
struct Retired {
    id: FileId,
    bytes: u64,
    /// Held by views and cursors too, while they read it.
    reader: Option<Arc<Table>>,
}

/// The SSTables of one table's folder, as one range uses them.
pub(crate) struct TableFiles {
    files: Arc<dyn FileSystem>,
    folder: Path,
    ids: Arc<FileIds>,
    cache: Option<Arc<BlockCache>>,
    retired: Mutex<Vec<Retired>>,
}

impl TableFiles {
    pub(crate) fn new(
        files: Arc<dyn FileSystem>,
        table_folder: Path,
        ids: Arc<FileIds>,
        cache: Option<Arc<BlockCache>>,
    ) -> TableFiles {
        let retired = Mutex::new(Vec::new());
        TableFiles { files, folder: table_folder, ids, cache, retired }
    }

    pub(crate) fn path(&self, file: FileId) -> Path {
        table_path(&self.folder, file)
    }

    /// Makes the names in the folder durable: before anything is built on what was found there.
    pub(crate) async fn sync_folder(&self) -> Result<()> {
        Ok(self.files.sync_folder(&self.folder.join(FILES_FOLDER)).await?)
    }

    /// Starts a new SSTable.
    pub(crate) async fn create(&self, options: WriterOptions) -> Result<(FileId, TableWriter)> {
        let id = self.ids.next();
        let blob = self.files.create(&self.path(id)).await?;
        Ok((id, TableWriter::new(blob, id, options)))
    }

    /// Opens a file that a manifest names, checking its length, footer, index and filters; reads it
    /// whole if its group is to be kept in memory.
    pub(crate) async fn open(
        &self,
        meta: &TableMeta,
        settings: &GroupSettings,
    ) -> Result<Arc<Table>> {
        let blob = self.files.open(&self.path(meta.file)).await?;
        let table = Table::open(blob, meta.file, meta.len, self.cache.clone()).await?;
        self.ids.note_reader(meta.file, &table);
        if settings.in_memory {
            // Whoever reads a damaged block will be told; the others need not wait for it.
            let _ = table.keep_in_memory().await;
        }
        Ok(table)
    }

    /// Reads a file that was just written again, whole, and checks every byte of it.
    pub(crate) async fn verify(&self, meta: &TableMeta) -> Result<()> {
        let blob = self.files.open(&self.path(meta.file)).await?;
        sstable::verify_checksum(blob.as_ref(), meta.file, meta.len, meta.checksum).await?;
        Ok(())
    }

    /// Leaves a file to be removed when nobody reads it any more.
    pub(crate) fn retire(&self, id: FileId, bytes: u64, reader: Option<Arc<Table>>) {
        self.retired().push(Retired { id, bytes, reader });
    }

    /// The file is named by a manifest, or gone.
    pub(crate) fn settle(&self, id: FileId) {
        self.ids.settle(id);
    }

    /// Files that wait to be removed.
    pub(crate) fn retired_count(&self) -> usize {
        self.retired().len()
    }

    /// Removes the retired files that nobody reads; returns the bytes of each. A removal that fails
    /// is tried again the next time.
    pub(crate) async fn remove_retired(&self) -> Vec<u64> {
        let mut removed = Vec::new();
        for mut file in self.take_unread() {
            file.reader = None;
            match self.files.remove(&self.path(file.id)).await {
                Ok(()) => {
                    self.settle(file.id);
                    removed.push(file.bytes);
                }
                // It never came to be.
                Err(failed) if failed.kind() == ErrorKind::NotFound => self.settle(file.id),
                Err(_) => self.retired().push(file),
            }
        }
        removed
    }

    /// Takes out the files whose reader only this list holds: nobody can begin to read them again.
    fn take_unread(&self) -> Vec<Retired> {
        let mut retired = self.retired();
        let (unread, read) = retired
            .drain(..)
            .partition(|file| file.reader.as_ref().is_none_or(|r| Arc::strong_count(r) == 1));
        *retired = read;
        unread
    }

    fn retired(&self) -> std::sync::MutexGuard<'_, Vec<Retired>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TableFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableFiles").field("folder", &self.folder).finish_non_exhaustive()
    }
}
