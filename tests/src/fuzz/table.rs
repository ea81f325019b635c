//! Damaged SSTables: blocks and footers with forged checksums are refused or read without panic;
//! without forging, what is read is what was written.

use std::sync::Arc;

use bytes::Bytes;
use rand::Rng;
use rand::rngs::StdRng;
use sstable::{
    BlockHandle, BlockKind, Step, Table, TableWriter, ValueRef, WriterOptions, verify_file,
};
use storage::memory::MemoryFileSystem;
use storage::{FileSystem, Path};
use types::{Bloom, CellKey, Compression, ErrorKind, FamilyId, FileId, SeqNo, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

use super::coding::{FOOTER_BYTES, forge_block, forge_footer, u64_at};
use super::{damage, run, short_bytes};

const FILE: FileId = FileId { session: 3, counter: 5 };

/// Steps after which a walk through a small table is taken for one without end.
const STEPS_MAX: u32 = 100_000;

type Cells = Vec<(Vec<u8>, Vec<u8>)>;

fn cells(random: &mut StdRng) -> Cells {
    let mut cells = Cells::new();
    for number in 1..random.random_range(2..60) {
        let row = [b"r".to_vec(), short_bytes(random, 3)].concat();
        let family = FamilyId::new(random.random_range(1..3));
        let time = Timestamp::from_micros(random.random_range(0..4)).expect("not negative");
        let seq = SeqNo::from_raw(number).expect("a legal number");
        let key = CellKey::put(&row, family, &short_bytes(random, 2), time, seq);
        let len = if random.random_bool(0.1) { 1500 } else { 30 };
        cells.push((key.as_bytes().to_vec(), short_bytes(random, len)));
    }
    cells.sort();
    cells
}

fn options(random: &mut StdRng) -> WriterOptions {
    WriterOptions {
        block_bytes: [64, 256, 4096][random.random_range(0..3)],
        index_block_bytes: [64, 4096][random.random_range(0..2)],
        restart_interval: random.random_range(1..17),
        bloom: [Bloom::RowAndColumn, Bloom::Row, Bloom::None][random.random_range(0..3)],
        compression: [Compression::None, Compression::Lz4][random.random_range(0..2)],
        bloom_bits_per_key: 10,
        value_block_threshold: 1024,
    }
}

async fn on_disk(bytes: Vec<u8>) -> Arc<dyn storage::BlobReader> {
    let disk = MemoryFileSystem::new();
    let path = Path::new("table");
    let put = disk.put_if_absent(&path, Bytes::from(bytes)).await;
    put.expect("a disk in memory takes a file");
    disk.open(&path).await.expect("and gives it back")
}

async fn written(random: &mut StdRng, cells: &Cells) -> Vec<u8> {
    let disk = MemoryFileSystem::new();
    let path = Path::new("table");
    let blob = disk.create(&path).await.expect("a disk in memory takes files");
    let mut writer = TableWriter::new(blob, FILE, options(random));
    for (key, value) in cells {
        writer.add(key, value).await.expect("valid keys are taken");
    }
    writer.finish().await.expect("a disk in memory never fails");
    disk.read_all(&path).expect("the file is there").to_vec()
}

async fn plain_value(table: &Table, value: ValueRef<'_>) -> sstable::Result<Vec<u8>> {
    match value {
        ValueRef::Inline(value) => Ok(value.to_vec()),
        ValueRef::Stored(stored) => {
            let mut plain = Vec::new();
            for piece in 0..stored.pieces().min(8) {
                plain.extend_from_slice(&table.read_value_piece(stored, piece).await?);
            }
            Ok(plain)
        }
    }
}

/// Reads every cell forwards and every row backwards; notes the blocks it meets.
async fn walk(table: &Arc<Table>, met: &mut Vec<BlockHandle>) -> sstable::Result<Cells> {
    let mut cursor = table.cursor(false);
    let mut found = Cells::new();
    let mut step = cursor.seek(b"")?;
    for steps in 0.. {
        assert!(steps < STEPS_MAX, "a walk without end");
        step = match step {
            Step::End => break,
            Step::NeedBlock(handle) => {
                met.push(handle);
                cursor.load_and_resume(handle).await?
            }
            Step::Cell => {
                let value = plain_value(table, cursor.value()).await?;
                found.push((cursor.key().to_vec(), value));
                cursor.next()?
            }
        };
    }
    let mut before = vec![0xff; 3];
    let mut step = cursor.prev_row(&before)?;
    for steps in 0.. {
        assert!(steps < STEPS_MAX, "a walk back without end");
        step = match step {
            Step::End => break,
            Step::NeedBlock(handle) => cursor.load_and_resume(handle).await?,
            Step::Cell => {
                // Only in a forged block are keys out of order.
                if cursor.key() >= &before[..] {
                    break;
                }
                before = cursor.key().to_vec();
                cursor.prev_row(&before)?
            }
        };
    }
    for (key, _) in &found {
        let _ = table.may_contain_row(types::key::row_prefix(key).unwrap_or_default());
    }
    Ok(found)
}

async fn read(bytes: Vec<u8>, met: &mut Vec<BlockHandle>) -> sstable::Result<Cells> {
    let len = bytes.len() as u64;
    let blob = on_disk(bytes).await;
    let table = Table::open(blob, FILE, len, None).await?;
    let _ = table.verify().await;
    walk(&table, met).await
}

fn check_refusal(error: &sstable::Error) {
    let kind = error.kind();
    assert!(matches!(kind, ErrorKind::Corrupt | ErrorKind::FailedPrecondition), "{kind}: {error}");
}

/// A block whose content is wrong although its checksum holds.
pub(super) fn block(random: &mut StdRng) {
    run(async {
        let cells = cells(random);
        let mut bytes = written(random, &cells).await;
        let mut met = Vec::new();
        let found = read(bytes.clone(), &mut met).await;
        assert!(found.expect("an undamaged table is read") == cells);
        let footer = bytes.len() - FOOTER_BYTES;
        let kinds = [
            BlockKind::RowFilter,
            BlockKind::ColumnFilter,
            BlockKind::TopIndex,
            BlockKind::Properties,
        ];
        for (number, kind) in kinds.into_iter().enumerate() {
            let offset = u64_at(&bytes, footer + 16 + 12 * number);
            let len = u64_at(&bytes, footer + 24 + 12 * number) as u32;
            met.push(BlockHandle { offset, len, kind });
        }
        let chosen = met[random.random_range(0..met.len())];
        if chosen.len == 0 {
            return;
        }
        let (offset, len) = (chosen.offset as usize, chosen.len as usize);
        damage(random, &mut bytes[offset..offset + len]);
        forge_block(&mut bytes, FILE, offset, len);
        if let Err(error) = read(bytes, &mut Vec::new()).await {
            check_refusal(&error);
        }
    });
}

/// A footer whose content is wrong although its checksum holds.
pub(super) fn footer(random: &mut StdRng) {
    run(async {
        let cells = cells(random);
        let mut bytes = written(random, &cells).await;
        let footer = bytes.len() - FOOTER_BYTES;
        damage(random, &mut bytes[footer..footer + 80]);
        forge_footer(&mut bytes);
        let blob = on_disk(bytes.clone()).await;
        let _ = sstable::file_id(&*blob).await;
        if let Err(error) = read(bytes, &mut Vec::new()).await {
            check_refusal(&error);
        }
    });
}

/// Any damage to any bytes, nothing forged: what was written, or an error.
pub(super) fn table_bytes(random: &mut StdRng) {
    run(async {
        let cells = cells(random);
        let whole = written(random, &cells).await;
        let mut bytes = whole.clone();
        damage(random, &mut bytes);
        let is_whole = bytes == whole;
        let (len, sum) = (whole.len() as u64, xxh3_64(&whole));
        let verified = verify_file(on_disk(bytes.clone()).await, FILE, len, sum).await;
        assert_eq!(verified.is_ok(), is_whole, "damage is found by verification");
        match read(bytes, &mut Vec::new()).await {
            Ok(found) => assert!(found == cells, "neither the truth nor an error"),
            Err(error) => check_refusal(&error),
        }
    });
}
