use std::sync::Arc;

use storage::FileSystem;
use storage::memory::MemoryFileSystem;
use tepui_lsm::{LogPosition, Reason, Store};
use types::{ErrorKind, SeqNo};

use super::bed::{at, config, flush, on_row, put, sequenced, set};

fn seq(raw: u64) -> SeqNo {
    SeqNo::from_raw(raw).unwrap()
}

async fn new_store() -> Arc<Store> {
    Store::create(config(Arc::new(MemoryFileSystem::new()), 1)).await.unwrap()
}

#[tokio::test]
async fn a_memtable_is_flushed_only_when_its_last_number_is_published() {
    let store = new_store().await;
    let batch = sequenced(&store, &[on_row("r", vec![set("q", 1, b"v"), set("p", 1, b"v")])]);
    store.insert(&batch, LogPosition { segment: 1, offset: 0 }).unwrap();
    assert!(store.freeze(Reason::Asked));
    assert_eq!(store.flush().await.unwrap(), None);
    store.publish(batch.last_seq());
    let flushed = store.flush().await.unwrap().unwrap();
    assert_eq!((flushed.flushed, store.flushed_seq()), (seq(2), seq(2)));
    assert_eq!(store.flush().await.unwrap(), None);
    assert!(!store.freeze(Reason::Asked), "nothing was placed since");
}

#[tokio::test]
async fn the_log_is_needed_from_the_first_batch_that_is_not_flushed() {
    let store = new_store().await;
    assert_eq!(store.oldest_needed(), None);
    let mut batches = Vec::new();
    for segment in 1..4 {
        let batch = sequenced(&store, &[on_row("r", vec![set("q", 1, b"v")])]);
        store.insert(&batch, LogPosition { segment, offset: 8 }).unwrap();
        if segment < 3 {
            assert!(store.freeze(Reason::Asked));
        }
        batches.push(batch);
    }
    for segment in 1..4 {
        assert_eq!(store.oldest_needed(), Some(LogPosition { segment, offset: 8 }));
        store.publish(batches[segment as usize - 1].last_seq());
        store.freeze(Reason::Asked);
        store.flush().await.unwrap().unwrap();
    }
    assert_eq!(store.oldest_needed(), None);
}

#[tokio::test]
async fn an_open_range_goes_on_where_it_was() {
    let files: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let store = Store::create(config(Arc::clone(&files), 1)).await.unwrap();
    for round in 0..3 {
        put(&store, &format!("row {round}"), "q", 500 + round, b"v");
    }
    flush(&store).await.unwrap();
    store.close().await;
    assert_eq!(store.view().unwrap_err().kind(), ErrorKind::Unavailable);
    let store = Store::open(config(files, 2)).await.unwrap();
    assert_eq!((store.next_seq(), store.published()), (seq(4), seq(3)));
    assert_eq!(store.last_timestamp_bound(), at(502));
}

#[tokio::test]
async fn a_timestamp_of_the_far_future_moves_the_servers_by_the_drift_at_most() {
    let store = new_store().await;
    put(&store, "r", "q", i64::MAX, b"v");
    let limit = store.version().last_timestamp();
    assert_eq!(limit, at(0));
    let bound = store.last_timestamp_bound();
    let start = 1_577_836_800_000_000;
    assert!(bound >= at(start) && bound <= at(start + 10_000_000), "{bound}");
}

#[tokio::test]
async fn a_flushed_memtable_is_counted_until_its_last_reader_lets_go() {
    let config = config(Arc::new(MemoryFileSystem::new()), 1);
    let outlived = config.outlived.clone();
    let store = Store::create(config).await.unwrap();
    put(&store, "r", "q", 1, b"v");
    let bytes = store.memory_bytes() as u64;
    let view = store.view().unwrap();
    assert!(bytes > 0);
    assert_eq!(outlived.bytes(), 0, "it is the store's");
    flush(&store).await.unwrap();
    assert_eq!((store.memory_bytes(), outlived.bytes()), (0, bytes));
    let reader = view.clone();
    drop(view);
    assert_eq!(outlived.bytes(), bytes);
    drop(reader);
    while outlived.bytes() > 0 {
        // The flush's own part of it is dropped by a task.
        tokio::task::yield_now().await;
    }
    put(&store, "r", "q", 2, b"v");
    store.close().await;
    assert!(outlived.bytes() > 0, "what a closed store did not flush is in memory too");
    drop(store);
    assert_eq!(outlived.bytes(), 0);
}
