//! What the store's tests stand on: a range on a file system, written to and read by short words.

use std::sync::Arc;

use bytes::Bytes;
use env::Env;
use storage::{FileSystem, Path};
use tepui_lsm::{
    Batch, CountingListener, FileIds, LogPosition, Reason, Result, Store, StoreConfig, StoreOptions,
};
use types::{
    Epoch, FamilyId, Mutation, RangeId, RowMutations, RowRange, SessionId, TableId, Timestamp,
    TimestampRange,
};

/// The family that tests write to.
pub(super) const FAMILY: FamilyId = FamilyId::new(1);

/// Options small enough that a few cells make several files.
pub(super) fn tiny_options() -> StoreOptions {
    StoreOptions {
        memtable_bytes: 4 << 10,
        table_bytes: 1 << 10,
        block_bytes: 128,
        value_block_threshold: 1 << 10,
        runs_max: 4,
        fan_in: 3,
        ..StoreOptions::default()
    }
}

/// The range 7 of table 3, all rows, for the owner `epoch` (each owner is a session of its own).
pub(super) fn config(files: Arc<dyn FileSystem>, epoch: u64) -> StoreConfig {
    let session = SessionId::new((u128::from(epoch) << 64) | 0x5e55);
    StoreConfig {
        files,
        env: Env::simulated(epoch),
        table_folder: Path::new("tables/3"),
        table: TableId::new(3),
        range: RangeId::new(7),
        bounds: RowRange::all(),
        epoch: Epoch::new(epoch),
        session,
        file_ids: Arc::new(FileIds::new(session)),
        cache: None,
        events: Arc::new(CountingListener::default()),
        options: tiny_options(),
    }
}

pub(super) fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros).unwrap()
}

pub(super) fn set(qualifier: &str, micros: i64, value: &[u8]) -> Mutation {
    Mutation::SetCell {
        family: FAMILY,
        qualifier: Bytes::copy_from_slice(qualifier.as_bytes()),
        timestamp: Some(at(micros)),
        value: Bytes::copy_from_slice(value),
    }
}

pub(super) fn delete_cells(qualifier: &str) -> Mutation {
    Mutation::DeleteCells {
        family: FAMILY,
        qualifier: Bytes::copy_from_slice(qualifier.as_bytes()),
        range: TimestampRange::ALL,
    }
}

pub(super) fn on_row(row: &str, mutations: Vec<Mutation>) -> RowMutations {
    RowMutations { row: Bytes::copy_from_slice(row.as_bytes()), mutations }
}

/// A sequenced batch that follows what the store has.
pub(super) fn sequenced(store: &Store, rows: &[RowMutations]) -> Batch {
    let mut batch = Batch::encode(rows);
    batch.sequence(store.next_seq(), at(1_000));
    batch
}

/// Writes rows as if the log had them: inserted and published.
pub(super) fn write(store: &Store, rows: &[RowMutations]) -> Result<()> {
    let batch = sequenced(store, rows);
    let floor = LogPosition { segment: 1, offset: batch.first_seq().get() };
    store.insert(&batch, floor)?;
    store.publish(batch.last_seq());
    Ok(())
}

/// Writes one cell.
pub(super) fn put(store: &Store, row: &str, qualifier: &str, micros: i64, value: &[u8]) {
    write(store, &[on_row(row, vec![set(qualifier, micros, value)])]).unwrap();
}

/// Freezes and flushes what there is.
pub(super) async fn flush(store: &Arc<Store>) -> Result<()> {
    store.flush_all(Reason::Asked).await
}
