use std::sync::Arc;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use storage::FileSystem;
use storage::memory::MemoryFileSystem;
use tepui_lsm::{Batch, Store, sweep_table, table_path};
use types::{ErrorKind, FileId, SeqNo};

use super::bed::{at, config, flush, on_row, put, rules, set, visible};

fn seq(raw: u64) -> SeqNo {
    SeqNo::from_raw(raw).unwrap()
}

fn payload(batch: &Batch) -> Bytes {
    Bytes::copy_from_slice(&batch.payload())
}

/// The payload of one cell with number 1.
fn one_cell(row: &str, value: &[u8]) -> Bytes {
    let mut batch = Batch::encode(&[on_row(row, vec![set("q", 1, value)])]);
    batch.sequence(seq(1), at(0));
    payload(&batch)
}

#[tokio::test]
async fn cells_in_any_order_and_twice_become_sorted_tables() {
    let files: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let store = Store::create(config(files, 1)).await.unwrap();
    let mut random = StdRng::seed_from_u64(5);
    let mut ingest = store.ingest(0).unwrap();
    let mut last = 0;
    for number in 1..2_000 {
        let row = format!("row {:03}", random.random_range(0..500));
        let mut batch = Batch::encode(&[on_row(&row, vec![set("q", number, b"value")])]);
        batch.sequence(seq(number as u64), at(0));
        for _ in 0..random.random_range(1..3) {
            ingest.add_payload(payload(&batch)).await.unwrap();
        }
        last = number as u64;
    }
    let done = ingest.finish().await.unwrap();
    assert!(done.files > 10, "bounded memory makes several runs: {done:?}");
    assert_eq!((store.flushed_seq(), store.published()), (seq(last), seq(last)));
    assert_eq!(store.last_timestamp_bound(), at(1_999));
    assert_eq!(visible(&store).await.unwrap().len(), 1_999);
    // Merging drops the cells that came twice, and changes nothing else.
    assert!(store.compact_all().await.unwrap());
    assert_eq!(visible(&store).await.unwrap().len(), 1_999);
    let kept: u64 = store.version().tables().map(|table| table.meta.properties.cells).sum();
    assert_eq!(kept, 1_999);
    assert!(!store.compact_all().await.unwrap(), "it is one run");
}

#[tokio::test]
async fn what_is_flushed_is_not_taken_up_again() {
    let files: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let store = Store::create(config(Arc::clone(&files), 1)).await.unwrap();
    put(&store, "r", "q", 1, b"flushed");
    flush(&store).await.unwrap();
    let store = Store::open(config(files, 2)).await.unwrap();
    let mut ingest = store.ingest(1 << 20).unwrap();
    ingest.add_payload(one_cell("r", b"replayed")).await.unwrap();
    ingest.note_seq(seq(4));
    assert_eq!(ingest.finish().await.unwrap().files, 0);
    assert_eq!(store.next_seq(), seq(5));
    assert_eq!(visible(&store).await.unwrap()[0].4, b"flushed");
}

#[tokio::test]
async fn a_row_outside_the_range_and_a_broken_key_are_refused() {
    let mut config = config(Arc::new(MemoryFileSystem::new()), 1);
    config.bounds.start = "m".into();
    let store = Store::create(config).await.unwrap();
    let mut ingest = store.ingest(1 << 20).unwrap();
    let refused = ingest.add_payload(one_cell("a", b"v")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
    let refused = ingest.add_payload(Bytes::from_static(b"no batch")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
}

#[tokio::test]
async fn files_that_no_manifest_names_are_swept_and_others_stay() {
    let memory = MemoryFileSystem::new();
    let files: Arc<dyn FileSystem> = Arc::new(memory.clone());
    let config = config(Arc::clone(&files), 1);
    let store = Store::create(config.clone()).await.unwrap();
    put(&store, "r", "q", 1, b"v");
    flush(&store).await.unwrap();
    store.close().await;
    let orphan = FileId { session: 0xbad, counter: 1 };
    let path = table_path(&config.table_folder, orphan);
    files.put_if_absent(&path, "left behind".into()).await.unwrap();
    assert_eq!(sweep_table(&files, &config.table_folder).await.unwrap(), [orphan]);
    assert!(!memory.paths().contains(&path));
    let store = Store::open(super::bed::config(files, 2)).await.unwrap();
    assert_eq!(visible(&store).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_file_stays_while_a_scan_reads_it() {
    let memory = MemoryFileSystem::new();
    let store = Store::create(config(Arc::new(memory.clone()), 1)).await.unwrap();
    for round in 0..3 {
        put(&store, "r", "q", round, b"v");
        flush(&store).await.unwrap();
    }
    let tables = || memory.paths().iter().filter(|path| path.name().ends_with(".sst")).count();
    let view = store.view().unwrap();
    let mut scan = view.scan(&types::RowRange::all(), &rules(), false);
    assert!(scan.next().await.unwrap());
    assert!(store.compact_all().await.unwrap());
    assert_eq!((tables(), store.retired_count()), (4, 3));
    drop(view);
    store.remove_retired().await;
    assert!(scan.next().await.unwrap() && scan.next().await.unwrap());
    assert!(!scan.next().await.unwrap());
    drop(scan);
    store.remove_retired().await;
    assert_eq!((tables(), store.retired_count()), (1, 0));
}
