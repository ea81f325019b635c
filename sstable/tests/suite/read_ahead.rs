//! How much is read at once, and of what.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use storage::{BlobReader, Result};
use tepui_sstable::{BlockCache, Table, WriterOptions};

use crate::files::{Cells, FILE, Reader, next, seek, value, write};
use crate::samples::cell;

/// A file that notes what is read of it: offset and length.
struct Noted {
    content: Reader,
    reads: Mutex<Vec<(u64, usize)>>,
}

#[async_trait]
impl BlobReader for Noted {
    fn len(&self) -> u64 {
        self.content.len()
    }

    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.reads.lock().unwrap().push((offset, len));
        self.content.read_at(offset, len).await
    }
}

impl Noted {
    fn take(&self) -> Vec<(u64, usize)> {
        std::mem::take(&mut self.reads.lock().unwrap())
    }
}

fn key(number: u32) -> Vec<u8> {
    cell(format!("row {number:06}").as_bytes(), 1, b"q", 1, 1)
}

/// Many blocks of 4 KiB, with a value apart behind every one of them if `apart`.
fn cells(count: u32, apart: bool) -> Cells {
    let value = |number: u32| match apart && number.is_multiple_of(40) {
        true => vec![7; 30 << 10],
        false => format!("{number:0100}").into_bytes(),
    };
    (0..count).map(|number| (key(number), value(number))).collect()
}

async fn noted(cells: &Cells, cache: Option<Arc<BlockCache>>) -> (Arc<Noted>, Arc<Table>) {
    let (_, content) = write(cells, WriterOptions::default()).await;
    let len = content.len() as u64;
    let file = Arc::new(Noted { content: Reader(content), reads: Mutex::default() });
    let table = Table::open(file.clone(), FILE, len, cache).await.unwrap();
    file.take();
    (file, table)
}

async fn scanned(table: &Arc<Table>) -> Cells {
    let mut cursor = table.cursor(false);
    let mut read = Cells::new();
    let mut found = seek(&mut cursor, &[]).await.unwrap();
    while found {
        read.insert(cursor.key().to_vec(), value(&cursor).await.unwrap());
        found = next(&mut cursor).await.unwrap();
    }
    read
}

#[tokio::test]
async fn a_scan_reads_many_blocks_at_once_and_no_byte_twice() {
    let cells = cells(20_000, false);
    let (file, table) = noted(&cells, None).await;
    assert_eq!(scanned(&table).await, cells);
    let reads = file.take();
    let bytes: usize = reads.iter().map(|(_, len)| len).sum();
    assert!(bytes as u64 <= file.len(), "{bytes} bytes of {}", file.len());
    let largest = reads.iter().map(|(_, len)| *len).max().unwrap();
    assert_eq!(largest, 64 << 10);
    // Beside the data there are only index partitions.
    assert!(reads.len() as u64 <= 12 + file.len() / (48 << 10), "{} reads", reads.len());
}

#[tokio::test]
async fn values_that_lie_apart_are_not_read_ahead() {
    let cells = cells(4_000, true);
    let (file, table) = noted(&cells, None).await;
    let mut cursor = table.cursor(false);
    let mut found = seek(&mut cursor, &[]).await.unwrap();
    while found {
        found = next(&mut cursor).await.unwrap();
    }
    let bytes: usize = file.take().iter().map(|(_, len)| len).sum();
    let inline = 4_000 * 200;
    assert!(bytes < inline, "{bytes} bytes were read to see the keys");
}

#[tokio::test]
async fn single_looks_read_a_block_each() {
    let cells = cells(20_000, false);
    let (file, table) = noted(&cells, None).await;
    let mut cursor = table.cursor(false);
    for number in (0..20_000).step_by(997) {
        assert!(seek(&mut cursor, &key(number)).await.unwrap());
        assert_eq!(cursor.key(), key(number));
    }
    let largest = file.take().into_iter().map(|(_, len)| len).max().unwrap();
    assert!(largest <= 5 << 10, "{largest} bytes for one block");
}

#[tokio::test]
async fn a_reader_that_fills_the_cache_does_not_read_ahead() {
    let cells = cells(20_000, false);
    let cache = Arc::new(BlockCache::new(64 << 20));
    let (file, table) = noted(&cells, Some(cache)).await;
    let mut cursor = table.cursor(true);
    let mut found = seek(&mut cursor, &[]).await.unwrap();
    while found {
        found = next(&mut cursor).await.unwrap();
    }
    let largest = file.take().into_iter().map(|(_, len)| len).max().unwrap();
    assert!(largest <= 5 << 10, "a cached block would hold {largest} bytes");
    assert_eq!(scanned(&table).await, cells);
    assert!(file.take().is_empty(), "all is in the cache");
}

#[tokio::test]
async fn a_scan_goes_on_reading_ahead_past_cached_blocks() {
    let cells = cells(20_000, false);
    let cache = Arc::new(BlockCache::new(64 << 20));
    let (file, table) = noted(&cells, Some(cache)).await;
    let mut some = table.cursor(true);
    for number in (0..20_000).step_by(600) {
        assert!(seek(&mut some, &key(number)).await.unwrap());
    }
    file.take();
    assert_eq!(scanned(&table).await, cells);
    let reads = file.take();
    assert!(reads.len() < 60, "{} reads", reads.len());
}

#[tokio::test]
async fn a_reader_of_one_row_reads_no_block_behind_it() {
    let cells = cells(2_000, false);
    let (file, table) = noted(&cells, None).await;
    for number in 0..2_000 {
        let mut end = format!("row {number:06}").into_bytes();
        let start = end.clone();
        // The start of the row that is one zero byte longer.
        end.extend_from_slice(&[0, 0xff]);
        let mut cursor = table.cursor(true).ending_before(Some(end.clone()));
        assert!(seek(&mut cursor, &start).await.unwrap());
        assert_eq!(cursor.key(), key(number));
        let more = next(&mut cursor).await.unwrap();
        assert!(!more || cursor.key() >= end.as_slice());
        let reads = file.take();
        assert!(reads.len() <= 2, "an index partition and a block, not {reads:?}");
    }
}
