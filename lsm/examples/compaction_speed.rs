//! Measures what leveled compaction costs: a random fill of one range in memory, flushed and merged
//! as it goes.
//!
//!     cargo run --release -p tepui-lsm --example compaction_speed -- 256
//!
//! The argument is the size of the load, MB.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use env::Env;
use storage::Path;
use storage::memory::MemoryFileSystem;
use tepui_lsm::{
    Batch, FileIds, LogPosition, NoListener, OutlivedMemory, RateLimiter, Reason, Store,
    StoreConfig, StoreOptions,
};
use types::{
    Epoch, FamilyId, Mutation, RangeId, RowMutations, RowRange, SessionId, TableId, Timestamp,
};

const VALUE_BYTES: usize = 100;
const BATCH_ROWS: u64 = 100;

/// Sizes a sixteenth of the defaults, so that a small load fills several levels.
fn options() -> StoreOptions {
    StoreOptions {
        memtable_bytes: 4 << 20,
        table_bytes: 4 << 20,
        level_base_bytes: 16 << 20,
        compaction_bytes_per_second: 0,
        ..StoreOptions::default()
    }
}

fn config(env: &Env) -> StoreConfig {
    let session = SessionId::new(1);
    StoreConfig {
        files: Arc::new(MemoryFileSystem::new()),
        env: env.clone(),
        table_folder: Path::new("tables/1"),
        table: TableId::new(1),
        range: RangeId::new(1),
        bounds: RowRange::all(),
        epoch: Epoch::new(1),
        session,
        file_ids: Arc::new(FileIds::new(session)),
        cache: None,
        limiter: Arc::new(RateLimiter::new(env.clone(), 0)),
        outlived: OutlivedMemory::default(),
        events: Arc::new(NoListener),
        options: options(),
    }
}

/// Rows in random order, each key about twice, with values that compress to about half.
fn rows(env: &Env, keys: u64) -> Vec<RowMutations> {
    let row = |_| {
        let key = env.random_u64() % keys;
        let mut value = vec![0; VALUE_BYTES];
        for chunk in value.chunks_mut(8).step_by(2) {
            chunk.copy_from_slice(&env.random_u64().to_le_bytes()[..chunk.len()]);
        }
        let set = Mutation::SetCell {
            family: FamilyId::new(1),
            qualifier: Bytes::from_static(b"q"),
            timestamp: Some(Timestamp::ZERO),
            value: Bytes::from(value),
        };
        RowMutations { row: Bytes::from(format!("user{key:020}")), mutations: vec![set] }
    };
    (0..BATCH_ROWS).map(row).collect()
}

/// Flushes what is frozen and merges until every level has its size.
async fn settle(store: &Arc<Store>) -> (Duration, Duration) {
    let env = Env::system();
    let started = env.monotonic();
    while store.flush().await.expect("space in memory").is_some() {}
    let flushed = env.monotonic();
    while store.compact_once().await.expect("sound files") {}
    (flushed - started, env.monotonic() - flushed)
}

#[tokio::main]
async fn main() {
    let megabytes: u64 = std::env::args().nth(1).map_or(64, |arg| arg.parse().expect("a number"));
    let env = Env::system();
    let store = Store::create(config(&env)).await.expect("a range in memory");
    let cells = (megabytes << 20) / VALUE_BYTES as u64;
    let (mut flushing, mut merging) = (Duration::ZERO, Duration::ZERO);
    for number in 0..cells / BATCH_ROWS {
        let mut batch = Batch::encode(&rows(&env, (cells / 2).max(1)));
        batch.sequence(store.next_seq(), Timestamp::ZERO);
        store.insert(&batch, LogPosition { segment: 1, offset: number }).expect("an open range");
        store.publish(batch.last_seq());
        if store.wants_freeze() && store.freeze(Reason::MemtableFull) {
            let (flush, merge) = settle(&store).await;
            flushing += flush;
            merging += merge;
        }
    }
    let statistics = store.statistics();
    println!("{cells} cells, {megabytes} MB of values: {statistics:#?}");
    println!("write amplification {:.2}", statistics.write_amplification());
    let blocks = (statistics.merge_blocks_taken, statistics.merge_blocks);
    println!("{} of {} blocks were taken over", blocks.0, blocks.1);
    println!("space amplification {:.2}", statistics.space_amplification());
    let per_cell = |taken: Duration| taken.as_nanos() / u128::from(cells.max(1));
    println!("flushes {} ns a cell, merges {} ns a cell", per_cell(flushing), per_cell(merging));
}
