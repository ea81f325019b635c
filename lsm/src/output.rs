//! Writes cells in key order to SSTables: what flush, compaction and recovery have in common.
//!
//! 1. Cells go to one file until it has its size; it is cut at the next row boundary, so a row is
//!    never in two files of one output and its tombstones need no repeating.
//! 2. A full file is finished (durable) and read again whole, its checksum compared.
//! 3. It is opened, and waits for the manifest that names it.
//!
//! An output that is dropped before its files are taken retires them: nothing names them.

use std::sync::Arc;

use env::planted::{PlantedBug, planted};
use sstable::{RawBlock, StoredValue, Table, TableMeta, TableWriter, WriterOptions};
use types::{ErrorKind, FileId, GroupSettings, key};

use crate::error::{Error, Result};
use crate::files::TableFiles;
use crate::layout::writer_options;
use crate::options::StoreOptions;

/// A file that is written, checked and open.
pub(crate) struct NewTable {
    /// The place of its locality group.
    pub(crate) group: usize,
    pub(crate) meta: TableMeta,
    pub(crate) table: Arc<Table>,
}

/// Writes one run of SSTables.
pub(crate) struct Output {
    files: Arc<TableFiles>,
    table_bytes: u64,
    writer_options: WriterOptions,
    group: usize,
    settings: GroupSettings,
    writer: Option<(FileId, TableWriter)>,
    /// The escaped row that the last whole file ended with.
    row: Vec<u8>,
    neighbours: Neighbours,
    /// The file that is being finished: it may be there already.
    finishing: Option<FileId>,
    done: Vec<NewTable>,
}

/// Files of another level, of which no output shall overlap too many bytes.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    /// Encoded positions that the files end before, with their bytes; ascending.
    ends: Vec<(Vec<u8>, u64)>,
    bytes_max: u64,
    passed: usize,
    /// Bytes of the files that ended since the last cut.
    overlapped: u64,
}

impl Neighbours {
    pub(crate) fn new(ends: Vec<(Vec<u8>, u64)>, bytes_max: u64) -> Neighbours {
        Neighbours { ends, bytes_max, passed: 0, overlapped: 0 }
    }

    /// Goes on to `row`, encoded. Should a file that overlaps them since the last cut end here?
    fn ask_for_cut(&mut self, row: &[u8]) -> bool {
        while let Some((_, bytes)) = self.ends.get(self.passed).filter(|(end, _)| **end <= *row) {
            self.overlapped = self.overlapped.saturating_add(*bytes);
            self.passed += 1;
        }
        self.overlapped > self.bytes_max
    }
}

impl Output {
    /// Will write files of the locality group at the place `group`.
    pub(crate) fn new(
        files: &Arc<TableFiles>,
        options: &StoreOptions,
        group: usize,
        settings: &GroupSettings,
    ) -> Output {
        Output {
            files: Arc::clone(files),
            table_bytes: options.table_bytes,
            writer_options: writer_options(options, settings),
            group,
            settings: *settings,
            writer: None,
            row: Vec::new(),
            neighbours: Neighbours::default(),
            finishing: None,
            done: Vec::new(),
        }
    }

    /// Cuts also where a file would overlap too much of `neighbours`.
    pub(crate) fn set_neighbours(&mut self, neighbours: Neighbours) {
        self.neighbours = neighbours;
    }

    /// Adds a cell without waiting; keys ascend. `false`: that cannot be, and nothing has changed.
    ///
    /// # Errors
    /// A key that is none, or does not ascend.
    #[inline]
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        let Some((_, writer)) = &mut self.writer else {
            return Ok(false);
        };
        let next = writer.next_key(key)?.ok_or_else(not_ascending)?;
        let may_cut = next.begins_row() || planted(PlantedBug::CutOutputInsideRow);
        if may_cut
            && (writer.bytes() >= self.table_bytes
                || self.neighbours.ask_for_cut(next.parsed().row_prefix()))
        {
            return Ok(false);
        }
        Ok(writer.put(&next, value))
    }

    /// Adds a cell; keys ascend.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when a file could not be made durable; any other error leaves nothing.
    pub(crate) async fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.put(key, value)? {
            return Ok(());
        }
        let writer = self.writer_for(key).await?;
        Ok(writer.add(key, value).await?)
    }

    /// Adds a cell whose value lies outside the blocks of `from`: its pieces are copied as they
    /// are.
    ///
    /// # Errors
    /// As [`Output::add`], and damage of the pieces.
    pub(crate) async fn add_stored(
        &mut self,
        key: &[u8],
        from: &Arc<Table>,
        value: &StoredValue,
    ) -> Result<()> {
        let writer = self.writer_for(key).await?;
        Ok(writer.add_stored(key, from, value).await?)
    }

    /// May a block be taken over next, as far as the open file is concerned?
    pub(crate) fn is_between_blocks(&self) -> bool {
        self.writer.as_ref().is_none_or(|(_, writer)| writer.is_between_blocks())
    }

    /// Would a file of this output have such a block?
    pub(crate) fn takes(&self, raw: &RawBlock) -> bool {
        self.writer_options.takes(raw)
    }

    /// Adds the entries of a block, which is kept as it is stored. A file is cut before it, not in
    /// the middle of it.
    ///
    /// # Errors
    /// As [`Output::add`].
    pub(crate) async fn add_raw(&mut self, raw: &RawBlock) -> Result<()> {
        let mut entries = raw.entries();
        let first = entries.next_entry()?.map(|(key, _)| key.to_vec());
        let Some(first) = first else {
            return Ok(());
        };
        let writer = self.writer_for(&first).await?;
        Ok(writer.add_raw(raw).await?)
    }

    /// Bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        let done: u64 = self.done.iter().map(|new| new.meta.len).sum();
        done + self.writer.as_ref().map_or(0, |(_, writer)| writer.bytes())
    }

    /// The cell just added is one that retention allows to drop: `bytes` of key and value.
    pub(crate) fn note_expired(&mut self, bytes: u64) {
        if let Some((_, writer)) = &mut self.writer {
            writer.note_expired(bytes);
        }
    }

    /// The writer of the file that `key` belongs into.
    async fn writer_for(&mut self, key: &[u8]) -> Result<&mut TableWriter> {
        if let Some((_, writer)) = &mut self.writer {
            let next = writer.next_key(key)?.ok_or_else(not_ascending)?;
            if next.begins_row() || planted(PlantedBug::CutOutputInsideRow) {
                let too_wide = self.neighbours.ask_for_cut(next.parsed().row_prefix());
                if writer.bytes() >= self.table_bytes || too_wide {
                    self.cut().await?;
                }
            }
        }
        if self.writer.is_none() {
            let row = key::row_prefix(key)
                .ok_or_else(|| Error::CorruptCell { what: "a key has no row".to_owned() })?;
            if self.row.as_slice() > row {
                return Err(not_ascending());
            }
            // What ends before the first row overlaps no file.
            self.neighbours.ask_for_cut(row);
            self.neighbours.overlapped = 0;
            self.writer = Some(self.files.create(self.writer_options).await?);
        }
        let (_, writer) = self.writer.as_mut().expect("it was just made");
        Ok(writer)
    }

    /// Finishes, checks and opens the present file.
    async fn cut(&mut self) -> Result<()> {
        self.neighbours.overlapped = 0;
        let Some((id, writer)) = self.writer.take() else {
            return Ok(());
        };
        self.row.clear();
        self.row.extend_from_slice(key::row_prefix(writer.last_key()).unwrap_or_default());
        self.finishing = Some(id);
        let new = self.finish_one(writer).await?;
        self.finishing = None;
        self.done.push(new);
        Ok(())
    }

    async fn finish_one(&self, writer: TableWriter) -> Result<NewTable> {
        let meta = writer.finish().await.map_err(poison_unless_full)?;
        self.files.verify(&meta).await?;
        let table = self.files.open(&meta, &self.settings).await?;
        Ok(NewTable { group: self.group, meta, table })
    }

    /// Finishes the last file and hands over all of them.
    ///
    /// # Errors
    /// As [`Output::add`].
    pub(crate) async fn finish(mut self) -> Result<Written> {
        self.cut().await?;
        Ok(Written { files: Arc::clone(&self.files), tables: std::mem::take(&mut self.done) })
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some((id, _)) = self.writer.take() {
            // A file that was never finished is not there.
            self.files.settle(id);
        }
        if let Some(id) = self.finishing {
            self.files.retire(id, 0, None);
        }
        retire_all(&self.files, std::mem::take(&mut self.done));
    }
}

/// Files that are written, checked and open, and that no manifest names yet.
pub(crate) struct Written {
    files: Arc<TableFiles>,
    tables: Vec<NewTable>,
}

impl Written {
    /// No files yet.
    pub(crate) fn none(files: &Arc<TableFiles>) -> Written {
        Written { files: Arc::clone(files), tables: Vec::new() }
    }

    /// The files.
    pub(crate) fn tables(&self) -> &[NewTable] {
        &self.tables
    }

    /// The reader of one of the files.
    pub(crate) fn table(&self, id: FileId) -> Option<&Arc<Table>> {
        self.tables.iter().find(|new| new.meta.file == id).map(|new| &new.table)
    }

    /// Bytes of the files.
    pub(crate) fn bytes(&self) -> u64 {
        self.tables.iter().map(|new| new.meta.len).sum()
    }

    /// Takes in those of another run.
    pub(crate) fn append(&mut self, mut other: Written) {
        self.tables.append(&mut other.tables);
    }

    /// Hands the files over: a manifest names them, or may.
    pub(crate) fn keep(mut self) -> Vec<NewTable> {
        std::mem::take(&mut self.tables)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        retire_all(&self.files, std::mem::take(&mut self.tables));
    }
}

fn retire_all(files: &TableFiles, tables: Vec<NewTable>) {
    for new in tables {
        files.retire(new.meta.file, new.meta.len, Some(new.table));
    }
}

fn not_ascending() -> Error {
    Error::CorruptCell { what: "keys do not ascend".to_owned() }
}

/// A file that could not be made durable leaves the disk in doubt, unless it was just full.
fn poison_unless_full(failed: sstable::Error) -> Error {
    match failed.kind() {
        ErrorKind::ResourceExhausted => Error::Table(failed),
        _ => Error::Poisoned { reason: failed.to_string() },
    }
}
