//! A file in memory, and the shortest way from cells to an open table.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use storage::{BlobReader, BlobWriter, Error, Operation, Path, Result};
use tepui_sstable::{
    BlockCache, Step, Table, TableCursor, TableMeta, TableWriter, ValueRef, WriterOptions,
};
use types::{ErrorKind, FileId};

pub(crate) const FILE: FileId = FileId { session: 0x1122_3344_5566_7788, counter: 9 };

/// Entries by key.
pub(crate) type Cells = BTreeMap<Vec<u8>, Vec<u8>>;

struct Writer(Arc<Mutex<Vec<u8>>>);

#[async_trait]
impl BlobWriter for Writer {
    async fn append(&mut self, content: Bytes) -> Result<()> {
        self.0.lock().unwrap().extend_from_slice(&content);
        Ok(())
    }

    async fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

pub(crate) struct Reader(pub(crate) Vec<u8>);

#[async_trait]
impl BlobReader for Reader {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        let start = usize::try_from(offset).unwrap();
        let content = start.checked_add(len).and_then(|end| self.0.get(start..end));
        let short = || {
            Error::new(Operation::Read, &Path::new("table"), ErrorKind::Corrupt, "it ends before")
        };
        content.map(Bytes::copy_from_slice).ok_or_else(short)
    }
}

/// A writer, and where its bytes will be.
pub(crate) fn writer(options: WriterOptions) -> (TableWriter, Arc<Mutex<Vec<u8>>>) {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    (TableWriter::new(Box::new(Writer(Arc::clone(&bytes))), FILE, options), bytes)
}

pub(crate) async fn write(cells: &Cells, options: WriterOptions) -> (TableMeta, Vec<u8>) {
    let (mut writer, bytes) = writer(options);
    for (key, value) in cells {
        writer.add(key, value).await.unwrap();
    }
    let meta = writer.finish().await.unwrap();
    let bytes = bytes.lock().unwrap().clone();
    assert_eq!(meta.len, bytes.len() as u64);
    (meta, bytes)
}

pub(crate) async fn open(
    bytes: Vec<u8>,
    cache: Option<Arc<BlockCache>>,
) -> tepui_sstable::Result<Arc<Table>> {
    let len = bytes.len() as u64;
    Table::open(Arc::new(Reader(bytes)), FILE, len, cache).await
}

/// Loads blocks until the movement has ended; is there an entry?
pub(crate) async fn settle(cursor: &mut TableCursor, step: Step) -> tepui_sstable::Result<bool> {
    let mut step = step;
    loop {
        match step {
            Step::Cell => return Ok(true),
            Step::End => return Ok(false),
            Step::NeedBlock(handle) => step = cursor.load_and_resume(handle).await?,
        }
    }
}

pub(crate) async fn seek(cursor: &mut TableCursor, key: &[u8]) -> tepui_sstable::Result<bool> {
    let step = cursor.seek(key)?;
    settle(cursor, step).await
}

pub(crate) async fn next(cursor: &mut TableCursor) -> tepui_sstable::Result<bool> {
    let step = cursor.next()?;
    settle(cursor, step).await
}

pub(crate) async fn prev_row(
    cursor: &mut TableCursor,
    before: &[u8],
) -> tepui_sstable::Result<bool> {
    let step = cursor.prev_row(before)?;
    settle(cursor, step).await
}

/// The value at the cursor, read whole.
pub(crate) async fn value(cursor: &TableCursor) -> tepui_sstable::Result<Vec<u8>> {
    match cursor.value() {
        ValueRef::Inline(bytes) => Ok(bytes.to_vec()),
        ValueRef::Stored(stored) => {
            let mut whole = Vec::new();
            for piece in 0..stored.pieces() {
                whole.extend_from_slice(&cursor.table().read_value_piece(stored, piece).await?);
            }
            assert_eq!(whole.len() as u64, stored.len());
            Ok(whole)
        }
    }
}

/// All entries, in a cursor's order.
pub(crate) async fn scan(table: &Arc<Table>) -> tepui_sstable::Result<Cells> {
    let mut cells = Cells::new();
    let mut cursor = table.cursor(false);
    let mut found = seek(&mut cursor, &[]).await?;
    while found {
        let key = cursor.key().to_vec();
        assert!(cells.last_key_value().is_none_or(|(last, _)| *last < key), "keys ascend");
        cells.insert(key, value(&cursor).await?);
        found = next(&mut cursor).await?;
    }
    Ok(cells)
}
