//! Measures the part of a restart after a kill that grows with the log: 128 MiB of log in small
//! cells, sorted straight into SSTables in memory.
//!
//!     cargo run --release -p tepui-lsm --example ingest_speed

use std::sync::Arc;

use bytes::Bytes;
use env::Env;
use storage::Path;
use storage::memory::MemoryFileSystem;
use tepui_lsm::{
    Batch, FileIds, NoListener, OutlivedMemory, RateLimiter, Store, StoreConfig, StoreOptions,
};
use types::{
    Epoch, FamilyId, Mutation, RangeId, RowMutations, RowRange, SeqNo, SessionId, TableId,
    Timestamp,
};

const CELLS: u64 = 2_060_000;

const BATCH_CELLS: u64 = 1000;

fn payloads(is_random: bool) -> Vec<Bytes> {
    let row = |number: u64| {
        let row = if is_random { number.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { number };
        let cell = Mutation::SetCell {
            family: FamilyId::new(1),
            qualifier: Bytes::from_static(b"q"),
            timestamp: Some(Timestamp::ZERO),
            value: Bytes::from_static(b"0123456789"),
        };
        RowMutations { row: Bytes::from(format!("user{row:020}")), mutations: vec![cell] }
    };
    let payload = |first: u64| {
        let rows: Vec<RowMutations> = (first..first + BATCH_CELLS).map(row).collect();
        let mut batch = Batch::encode(&rows);
        batch.sequence(SeqNo::from_raw(first).expect("a small number"), Timestamp::ZERO);
        Bytes::copy_from_slice(&batch.payload())
    };
    (0..CELLS / BATCH_CELLS).map(|number| payload(number * BATCH_CELLS + 1)).collect()
}

#[tokio::main]
async fn main() {
    for is_random in [false, true] {
        let payloads = payloads(is_random);
        let session = SessionId::new(1);
        let config = StoreConfig {
            files: Arc::new(MemoryFileSystem::new()),
            env: Env::system(),
            table_folder: Path::new("tables/1"),
            table: TableId::new(1),
            range: RangeId::new(1),
            bounds: RowRange::all(),
            epoch: Epoch::new(1),
            session,
            file_ids: Arc::new(FileIds::new(session)),
            cache: None,
            limiter: Arc::new(RateLimiter::new(Env::system(), 0)),
            outlived: OutlivedMemory::default(),
            events: Arc::new(NoListener),
            options: StoreOptions::default(),
        };
        let env = config.env.clone();
        let store = Store::create(config).await.expect("a range in memory");
        let started = env.monotonic();
        let mut ingest = store.ingest(512 << 20).expect("an open range");
        for payload in payloads {
            ingest.add_payload(payload).await.expect("a valid batch");
        }
        let gathered = env.monotonic() - started;
        let done = ingest.finish().await.expect("space in memory");
        let taken = env.monotonic() - started;
        println!("random order {is_random}: gathered {gathered:?}, in all {taken:?}, {done:?}");
    }
}
