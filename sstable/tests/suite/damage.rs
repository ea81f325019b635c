//! Damaged bytes give an error or the truth: never another answer, a panic, or a huge allocation.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tepui_sstable::{Error, Result, Step, Table, TableMeta, WriterOptions, inspect, verify_file};
use types::{Compression, ErrorKind, FileId, key};

use crate::files::{Cells, FILE, Reader, open, prev_row, scan, seek, value, write};
use crate::samples::{bytes, cell, random_cells};

/// A small table that has everything: several blocks and partitions, LZ4, a stored value, filters.
async fn small() -> (Cells, TableMeta, Vec<u8>) {
    let random = &mut StdRng::seed_from_u64(5);
    let mut cells = random_cells(random, 40);
    cells.insert(cell(b"big", 1, b"", 1, 99), bytes(random, 600));
    let options = WriterOptions {
        block_bytes: 256,
        index_block_bytes: 128,
        value_block_threshold: 500,
        compression: Compression::Lz4,
        ..WriterOptions::default()
    };
    let (meta, content) = write(&cells, options).await;
    assert!(meta.properties.data_blocks > 3 && meta.properties.value_block_bytes > 0);
    (cells, meta, content)
}

/// Reads everything in every way; all that is answered must be the truth.
async fn read_all(content: &[u8], cells: &Cells) -> Result<()> {
    let table = open(content.to_vec(), None).await?;
    for (key, expected) in cells {
        assert!(table.may_contain_row(key::row_prefix(key).unwrap()));
        let mut cursor = table.cursor(false);
        if !seek(&mut cursor, key).await? || cursor.key() != key {
            panic!("a cell was lost without an error");
        }
        assert_eq!(value(&cursor).await?, *expected);
        if prev_row(&mut cursor, key).await? {
            assert!(cells.contains_key(cursor.key()));
        }
    }
    assert_eq!(scan(&table).await?, *cells);
    table.verify().await
}

/// HBASE-15908, HBASE-11625, StarRocks/starrocks#77479: checksums were written and not verified.
#[tokio::test]
async fn any_one_flipped_byte_is_found() {
    let (cells, meta, content) = small().await;
    read_all(&content, &cells).await.unwrap();
    for place in 0..content.len() {
        let mut bad = content.clone();
        bad[place] ^= 1 << (place % 8);
        let error = read_all(&bad, &cells).await.expect_err("a reader of all of it notices");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {place}: {error}");
        let blob = Arc::new(Reader(bad));
        let error = verify_file(blob, FILE, meta.len, meta.checksum).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {place}: {error}");
    }
}

#[tokio::test]
async fn a_file_cut_or_lengthened_is_refused_at_open() {
    let (_, meta, content) = small().await;
    for len in (0..content.len()).chain([content.len() + 1]) {
        let mut bad = content.clone();
        bad.resize(len, 0);
        let with = |expected| Table::open(Arc::new(Reader(bad.clone())), FILE, expected, None);
        assert_eq!(with(meta.len).await.err().unwrap().kind(), ErrorKind::Corrupt);
        assert_eq!(with(len as u64).await.err().unwrap().kind(), ErrorKind::Corrupt);
    }
}

#[tokio::test]
async fn another_tables_file_is_refused() {
    let (_, meta, content) = small().await;
    let other = FileId { session: FILE.session, counter: FILE.counter + 1 };
    let opened = Table::open(Arc::new(Reader(content)), other, meta.len, None).await;
    assert!(matches!(opened.err(), Some(Error::Corrupt { what: "the file is another table", .. })));
}

#[tokio::test]
async fn exchanged_blocks_are_refused() {
    let options = WriterOptions { compression: Compression::None, ..WriterOptions::default() };
    let mut cells = Cells::new();
    for row in 1..21u8 {
        cells.insert(cell(&[b'r', row], 1, b"q", 1, 1), vec![row; 3000]);
    }
    let (meta, content) = write(&cells, options).await;
    let table = open(content.clone(), None).await.unwrap();
    let first = data_block(&table, cells.keys().next().unwrap()).await;
    let second = data_block(&table, cells.keys().nth(1).unwrap()).await;
    assert_eq!(first.len(), second.len());
    let mut bad = content.clone();
    bad[first.clone()].copy_from_slice(&content[second.clone()]);
    bad[second].copy_from_slice(&content[first]);
    assert_ne!(bad, content);
    let table = open(bad, None).await.unwrap();
    assert_eq!(scan(&table).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(meta.properties.data_blocks, 20);
}

/// Where the block of `key` lies in the file, with its trailer.
async fn data_block(table: &Arc<Table>, key: &[u8]) -> std::ops::Range<usize> {
    let mut cursor = table.cursor(false);
    let mut step = cursor.seek(key).unwrap();
    let mut last = 0..0;
    while let Step::NeedBlock(handle) = step {
        last = handle.offset as usize..handle.offset as usize + handle.len as usize + 10;
        step = cursor.load_and_resume(handle).await.unwrap();
    }
    last
}

#[tokio::test]
async fn a_file_of_a_newer_format_says_so() {
    let (_, meta, mut content) = small().await;
    let footer = content.len() - 96;
    content[footer + 74] = 2;
    let checksum = xxhash_rust::xxh3::xxh3_64_with_seed(&content[footer..footer + 80], meta.len);
    content[footer + 80..footer + 88].copy_from_slice(&checksum.to_le_bytes());
    let error = open(content, None).await.err().unwrap();
    assert!(matches!(error, Error::NewerFormat { needed: 2, known: 1, .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
}

/// Damage *under* valid checksums: what a bug or an attacker could write. Anything but a panic, an
/// endless loop or a huge allocation may come of it.
#[tokio::test]
async fn crafted_bytes_never_panic() {
    let options = WriterOptions {
        block_bytes: 256,
        index_block_bytes: 64,
        value_block_threshold: 200,
        ..WriterOptions::default()
    };
    let mut opened = 0;
    for seed in 0..3_000 {
        let random = &mut StdRng::seed_from_u64(seed);
        let cells = random_cells(random, 30);
        let (_, content) = write(&cells, options).await;
        let mut bad = content.clone();
        for _ in 0..random.random_range(1..4) {
            mutate_with_checksum(random, &mut bad);
        }
        let Ok(table) = open(bad, None).await else {
            continue;
        };
        opened += 1;
        let mut cursor = table.cursor(false);
        let mut steps = 0;
        let mut found = seek(&mut cursor, &[]).await;
        while let Ok(true) = found {
            let _ = value(&cursor).await;
            steps += 1;
            assert!(steps < 10_000, "seed {seed}: an endless scan");
            found = crate::files::next(&mut cursor).await;
        }
        for key in cells.keys().take(5) {
            let _ = seek(&mut cursor, key).await;
            let _ = prev_row(&mut cursor, key).await;
            let _ = table.may_contain_column(key);
        }
        let _ = table.verify().await;
        let mut text = String::new();
        let _ = inspect::summary(&table);
        let _ = inspect::write_index(&table, &mut text).await;
        let _ = inspect::write_cells(&table, &mut text).await;
    }
    assert!(opened > 500, "most of the damage lies deeper than the footer: {opened}");
}

/// Changes a byte of some block's payload, or of the footer, and makes the checksum right again.
fn mutate_with_checksum(random: &mut StdRng, content: &mut [u8]) {
    use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};
    let footer = content.len() - 96;
    let blocks = blocks_of(content);
    if blocks.is_empty() || random.random_bool(0.1) {
        content[footer + random.random_range(0..80)] = random.random();
        let checksum = xxh3_64_with_seed(&content[footer..footer + 80], content.len() as u64);
        content[footer + 80..footer + 88].copy_from_slice(&checksum.to_le_bytes());
        return;
    }
    let (start, end) = blocks[random.random_range(0..blocks.len())];
    content[random.random_range(start..end + 2)] = match random.random_bool(0.5) {
        true => random.random(),
        false => [0, 1, 0x7f, 0x80, 0xff][random.random_range(0..5)],
    };
    let salt = xxh3_64(&content[footer..footer + 16]);
    let checksum = xxh3_64_with_seed(&content[start..end + 2], salt ^ start as u64);
    content[end + 2..end + 10].copy_from_slice(&checksum.to_le_bytes());
}

/// Start and end of the payloads of the file's blocks, found by their checksums.
fn blocks_of(content: &[u8]) -> Vec<(usize, usize)> {
    let footer = content.len() - 96;
    let u64_at = |at: usize| u64::from_le_bytes(content[at..at + 8].try_into().unwrap());
    let u32_at = |at: usize| u32::from_le_bytes(content[at..at + 4].try_into().unwrap());
    [16, 28, 40, 52]
        .into_iter()
        .map(|at| (u64_at(footer + at) as usize, u32_at(footer + at + 8) as usize))
        .filter(|&(start, len)| len > 0 && start + len + 10 <= footer)
        .map(|(start, len)| (start, start + len))
        .chain(first_blocks(content))
        .collect()
}

/// The data blocks from the file's start on, as far as they follow each other.
fn first_blocks(content: &[u8]) -> Vec<(usize, usize)> {
    let footer = content.len() - 96;
    let salt = xxhash_rust::xxh3::xxh3_64(&content[footer..footer + 16]);
    let mut blocks = Vec::new();
    let mut start = 0;
    while let Some(end) = (start + 8..footer.min(start + 2_000)).find(|&end| {
        end + 10 <= footer
            && content[end] == 1
            && content[end + 1] >> 4 == 1
            && xxhash_rust::xxh3::xxh3_64_with_seed(&content[start..end + 2], salt ^ start as u64)
                .to_le_bytes()
                == content[end + 2..end + 10]
    }) {
        blocks.push((start, end));
        start = end + 10;
    }
    blocks
}
