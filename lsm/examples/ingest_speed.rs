//! Measures the part of a restart after a kill that grows with the log: 128 MiB of log in small
//! cells, sorted straight into SSTables in memory.
//!
//!     cargo run --release -p tepui-lsm --example ingest_speed

use std::sync::Arc;

use env::Env;
use storage::Path;
use storage::memory::MemoryFileSystem;
use tepui_lsm::{FileIds, NoListener, Store, StoreConfig, StoreOptions};
use types::{CellKey, Epoch, FamilyId, RangeId, RowRange, SeqNo, SessionId, TableId, Timestamp};

const CELLS: u64 = 2_060_000;

fn cells(is_random: bool) -> Vec<CellKey> {
    let key = |number: u64| {
        let row = if is_random { number.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { number };
        let row = format!("user{row:020}");
        let seq = SeqNo::from_raw(number).expect("a small number");
        CellKey::put(row.as_bytes(), FamilyId::new(1), b"q", Timestamp::ZERO, seq)
    };
    (1..=CELLS).map(key).collect()
}

#[tokio::main]
async fn main() {
    for is_random in [false, true] {
        let cells = cells(is_random);
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
            events: Arc::new(NoListener),
            options: StoreOptions::default(),
        };
        let env = config.env.clone();
        let store = Store::create(config).await.expect("a range in memory");
        let started = env.monotonic();
        let mut ingest = store.ingest(512 << 20).expect("an open range");
        for key in &cells {
            ingest.add(key.as_bytes(), b"0123456789").await.expect("a valid key");
        }
        let gathered = env.monotonic() - started;
        let done = ingest.finish().await.expect("space in memory");
        let taken = env.monotonic() - started;
        println!("random order {is_random}: gathered {gathered:?}, in all {taken:?}, {done:?}");
    }
}
