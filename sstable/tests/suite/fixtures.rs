//! Bytes that must never change, and a file of the first format that must open for ever.

use std::fmt::Write;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tepui_sstable::{Table, WriterOptions, file_id, inspect, verify_file};
use types::Compression;

use crate::files::{Cells, FILE, Reader, open, scan, write};
use crate::samples::{bytes, cell, random_cells};

const TWO_CELLS: &str = include_str!("../golden/two_cells.hex");
const SUMMARY: &str = include_str!("../golden/two_cells.txt");
const SMALL: &[u8] = include_bytes!("../golden/v1_small.sst");
const SMALL_CHECKSUM: u64 = 0x8b59_3d13_53db_305a;

/// 32 bytes a line, with offsets.
fn hex_dump(content: &[u8]) -> String {
    let mut out = String::new();
    for (number, line) in content.chunks(32).enumerate() {
        let _ = write!(out, "{:04x}", number * 32);
        for (place, byte) in line.iter().enumerate() {
            let gap = if place % 8 == 0 { "  " } else { " " };
            let _ = write!(out, "{gap}{byte:02x}");
        }
        out.push('\n');
    }
    out
}

/// Without LZ4: two compressors may pack one block differently, and both be right.
fn plain() -> WriterOptions {
    WriterOptions { compression: Compression::None, ..WriterOptions::default() }
}

fn two_cells() -> Cells {
    let cells = [("apple", "red"), ("pear", "green")];
    cells
        .into_iter()
        .zip(7..)
        .map(|((row, value), seq)| (cell(row.as_bytes(), 1, b"q", 1000, seq), value.into()))
        .collect()
}

#[tokio::test]
async fn a_two_cell_table_has_exactly_these_bytes() {
    let (meta, content) = write(&two_cells(), plain()).await;
    let dump = hex_dump(&content);
    assert_eq!(dump, TWO_CELLS, "the file as it is now:\n{dump}");
    let blob = Arc::new(Reader(content));
    assert_eq!(file_id(&*blob).await.unwrap(), FILE);
    verify_file(blob, FILE, meta.len, meta.checksum).await.unwrap();
}

#[tokio::test]
async fn a_table_describes_itself() {
    let (_, content) = write(&two_cells(), plain()).await;
    let table = open(content, None).await.unwrap();
    let mut text = inspect::summary(&table);
    inspect::write_index(&table, &mut text).await.unwrap();
    inspect::write_cells(&table, &mut text).await.unwrap();
    assert_eq!(text, SUMMARY, "the text as it is now:\n{text}");
}

/// What `v1_small.sst` was made of.
fn small_cells() -> Cells {
    let random = &mut StdRng::seed_from_u64(11);
    let mut cells = random_cells(random, 60);
    cells.insert(cell(b"big", 1, b"", 1, 99), bytes(random, 700));
    cells
}

#[tokio::test]
async fn a_file_of_the_first_format_opens_for_ever() {
    let len = SMALL.len() as u64;
    let blob = Arc::new(Reader(SMALL.to_vec()));
    verify_file(blob.clone(), FILE, len, SMALL_CHECKSUM).await.unwrap();
    let table = Table::open(blob, FILE, len, None).await.unwrap();
    let properties = table.properties();
    assert_eq!(properties.cells, 61);
    assert!(properties.data_blocks > 5, "{properties:?}");
    assert!(properties.value_block_bytes > 0, "{properties:?}");
    assert_eq!(scan(&table).await.unwrap(), small_cells());
}
