//! Blocks that one table takes over from another as they are stored.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tepui_sstable::{TableMeta, WriterOptions, verify_file};
use types::{Compression, ErrorKind};

use crate::files::{Cells, FILE, Reader, next, open, scan, seek, write, writer};
use crate::samples::{cell, random_cells};

/// Copies a table: whole blocks where the writer takes them and luck wills it, else single entries.
async fn copy(
    content: Vec<u8>,
    options: WriterOptions,
    random: &mut StdRng,
) -> (TableMeta, Vec<u8>, u64) {
    let table = open(content, None).await.unwrap();
    let (mut writer, bytes) = writer(options);
    let mut cursor = table.cursor(false);
    let mut found = seek(&mut cursor, &[]).await.unwrap();
    let mut taken = 0;
    while found {
        let block = cursor.begun_block().unwrap();
        let block = block.filter(|_| writer.is_between_blocks() && random.random_bool(0.7));
        if let Some((handle, largest)) = block {
            let raw = cursor.load_raw(handle).await.unwrap();
            if options.takes(&raw) {
                writer.add_raw(&raw).await.unwrap();
                taken += 1;
                while cursor.key() < largest.as_slice() {
                    assert!(next(&mut cursor).await.unwrap());
                }
                found = next(&mut cursor).await.unwrap();
                continue;
            }
        }
        let value = crate::files::value(&cursor).await.unwrap();
        writer.add(cursor.key(), &value).await.unwrap();
        found = next(&mut cursor).await.unwrap();
    }
    let meta = writer.finish().await.unwrap();
    let bytes = bytes.lock().unwrap().clone();
    (meta, bytes, taken)
}

#[tokio::test]
async fn a_table_of_blocks_taken_over_is_whole_and_reads_the_same() {
    let mut all_taken = 0;
    for seed in 0..60 {
        let random = &mut StdRng::seed_from_u64(seed);
        let count = random.random_range(1..500);
        let cells = random_cells(random, count);
        let options = WriterOptions {
            block_bytes: [64, 512, 2048][random.random_range(0..3)],
            compression: [Compression::Lz4, Compression::None][random.random_range(0..2)],
            ..WriterOptions::default()
        };
        let (_, content) = write(&cells, options).await;
        let (meta, copied, taken) = copy(content, options, random).await;
        all_taken += taken;
        let table = open(copied.clone(), None).await.unwrap();
        assert_eq!(scan(&table).await.unwrap(), cells, "seed {seed} {options:?}");
        let reader = Arc::new(Reader(copied));
        verify_file(reader, FILE, meta.len, meta.checksum).await.unwrap();
    }
    assert!(all_taken > 300, "only {all_taken} blocks were taken over");
}

#[tokio::test]
async fn a_block_that_does_not_follow_is_refused() {
    let keys = |from: u8| {
        let key = |number: u8| (cell(&[number], 1, b"q", 1, 1), vec![number; 50]);
        (from..from + 20).map(key).collect::<Cells>()
    };
    let options = WriterOptions::default();
    let (_, content) = write(&keys(1), options).await;
    let table = open(content, None).await.unwrap();
    let mut cursor = table.cursor(false);
    seek(&mut cursor, &[]).await.unwrap();
    let (handle, _) = cursor.begun_block().unwrap().unwrap();
    let raw = cursor.load_raw(handle).await.unwrap();
    let (mut writer, _) = writer(options);
    writer.add(&cell(&[9], 1, b"q", 1, 1), b"v").await.unwrap();
    let refused = writer.add_raw(&raw).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
}

#[tokio::test]
async fn a_block_of_another_codec_or_size_is_not_taken() {
    let row = |number: u16| (cell(&number.to_be_bytes(), 1, b"q", 1, 1), vec![b'x'; 50]);
    let cells: Cells = (0..500).map(row).collect();
    let options = WriterOptions::default();
    let (_, content) = write(&cells, options).await;
    let table = open(content, None).await.unwrap();
    let mut cursor = table.cursor(false);
    seek(&mut cursor, &[]).await.unwrap();
    let (handle, _) = cursor.begun_block().unwrap().unwrap();
    let raw = cursor.load_raw(handle).await.unwrap();
    assert!(options.takes(&raw));
    let plain = WriterOptions { compression: Compression::None, ..options };
    assert!(!plain.takes(&raw), "it is compressed");
    for block_bytes in [1 << 10, 16 << 10] {
        assert!(!WriterOptions { block_bytes, ..options }.takes(&raw));
    }
}

#[tokio::test]
async fn a_block_that_its_last_value_makes_large_is_taken() {
    let row = |number: u16| (cell(&number.to_be_bytes(), 1, b"q", 1, 1), vec![b'x'; 10_000]);
    let cells: Cells = (0..20).map(row).collect();
    let options = WriterOptions::default();
    let (_, content) = write(&cells, options).await;
    let mut random = StdRng::seed_from_u64(1);
    let table = open(content.clone(), None).await.unwrap();
    let blocks = table.properties().data_blocks;
    assert_eq!(blocks, 20, "each value has a block");
    let (_, copied, taken) = copy(content, options, &mut random).await;
    assert!(taken > 0, "no block was taken");
    assert_eq!(scan(&open(copied, None).await.unwrap()).await.unwrap(), cells);
}
