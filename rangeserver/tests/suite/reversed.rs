//! Reads with the largest row first, against a sorted map.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{ReadReply, ReadRequest, RowKeys};
use prost::Message;
use proto::google::bigtable::v2::ReadRowsResponse;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use storage::memory::MemoryFileSystem;
use tepui_rangeserver::Options;
use types::{Mutation, ReadSpec, RowOrder, RowRange, RowSet};

use super::world::*;

fn random_range(random: &mut StdRng) -> RowRange {
    let key = |number: u32| Bytes::from(format!("r{number:02}"));
    let (low, high) = (random.random_range(0..60), random.random_range(0..70));
    match random.random_range(0..4) {
        0 => RowRange::row(&key(low)),
        1 => RowRange { start: key(low), end: None },
        2 => RowRange { start: Bytes::new(), end: Some(key(high)) },
        _ => RowRange { start: key(low.min(high)), end: Some(key(low.max(high))) },
    }
}

fn keys_in_order(reply: &ReadReply) -> Vec<Bytes> {
    let chunks = ReadRowsResponse::decode(&reply.encoded[..]).unwrap().chunks;
    chunks.into_iter().map(|chunk| chunk.row_key).filter(|key| !key.is_empty()).collect()
}

/// HBASE-14206, HBASE-17688: of several ranges of rows, rows outside of them were given.
/// HBASE-21961: in a table of one region the search for the row before never ended.
///
/// Rows in memory and in several files, some deleted; views grow old at every row.
#[tokio::test(start_paused = true)]
async fn reversed_reads_give_what_a_sorted_map_gives_backwards() {
    for seed in 0..30 {
        let mut random = StdRng::seed_from_u64(seed);
        let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
        let view_age_max = Duration::from_secs(random.random_range(0..2));
        let options = Options { view_age_max, ..small_options() };
        let world = start(Arc::new(disk.clone()), &catalog, seed, options).await.unwrap();
        for _ in 0..random.random_range(20..120) {
            let row = format!("r{:02}", random.random_range(0..60));
            let mutation = match random.random_range(0..5) {
                0 => Mutation::DeleteRow,
                _ => set(F, ["a", "b"][random.random_range(0..2)], 1000, &[7; 1000]),
            };
            world.write(vec![mutate(&row, vec![mutation])]).await.unwrap();
            if random.random_range(0..20) == 0 {
                world.server.flush_all().await.unwrap();
            }
        }
        let all = world.read_all().await.unwrap();
        for _ in 0..20 {
            let ranges = (0..random.random_range(1..4)).map(|_| random_range(&mut random));
            let rows = RowSet::new(ranges.collect());
            let rows_limit = random.random_range(0..6);
            let target = catalog.target(b"r").unwrap();
            let wanted = |row: &str| rows.ranges().iter().any(|run| run.contains(row.as_bytes()));
            let most = if rows_limit == 0 { usize::MAX } else { rows_limit as usize };
            let expected: Vec<_> =
                all.iter().rev().filter(|(row, _)| wanted(row)).take(most).collect();
            let order = RowOrder::Descending;
            let spec = ReadSpec { rows: rows.clone(), rows_limit, order };
            let request = ReadRequest { target, spec, row_keys: RowKeys::AtCells };
            let replies = world.collect(request).await.unwrap();
            let keys: Vec<Bytes> = replies.iter().flat_map(keys_in_order).collect();
            let merged = merge(&replies);
            let found: Vec<_> = merged.iter().rev().collect();
            assert!(found == expected, "seed {seed}: {rows:?} limit {rows_limit}");
            assert!(keys.is_sorted_by(|a, b| a > b), "seed {seed}: {keys:?}");
        }
        world.server.close().await.unwrap();
    }
}
