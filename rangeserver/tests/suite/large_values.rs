//! Values far larger than a message and than the memory given to requests.

use bytes::Bytes;
use storage::memory::MemoryFileSystem;
use types::RowRange;
use types::limits::{REPLY_BYTES_MAX, VALUE_BYTES_MAX};

use super::world::*;

fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 251) as u8 ^ (at % 251) as u8 ^ salt).collect()
}

#[tokio::test(start_paused = true)]
async fn large_values_stream_in_pieces_from_memory_and_from_files() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
    let world = started(&disk, &catalog, 1).await;
    let sizes = [VALUE_BYTES_MAX, 3 << 20, (1 << 20) + 1, 20_000, 10, 0];
    let mutations = sizes.iter().enumerate().map(|(number, size)| {
        let value = pattern(*size, number as u8);
        set(F, &format!("q{number}"), 1000, &value)
    });
    world.write(vec![mutate("big", mutations.collect())]).await.unwrap();
    world.put("next", b"v").await.unwrap();
    for turn in 0..3 {
        let replies = world.replies(RowRange::all(), 0).await.unwrap();
        assert!(replies.len() > VALUE_BYTES_MAX / REPLY_BYTES_MAX, "{}", replies.len());
        let ended: u64 = replies.iter().map(|reply| reply.rows).sum();
        assert_eq!(ended, 2);
        let rows = merge(&replies);
        assert_eq!(rows["next"][0].3, b"v");
        for (number, size) in sizes.iter().enumerate() {
            let value = &rows["big"][number].3;
            assert!(*value == pattern(*size, number as u8), "value {number}, turn {turn}");
        }
        world.server.flush_all().await.unwrap();
    }
    world.server.close().await.unwrap();
}

/// What comes after the row can be read.
#[tokio::test(start_paused = true)]
async fn a_row_with_too_many_bytes_is_refused_by_name() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
    let options = tepui_rangeserver::Options { row_bytes_max: 3 << 20, ..small_options() };
    let world = start(std::sync::Arc::new(disk.clone()), &catalog, 1, options).await.unwrap();
    let half = pattern(3 << 19, 1);
    for (row, columns) in [("fits", 1), ("wide", 3), ("later", 1)] {
        for column in 0..columns {
            let mutations = vec![set(F, &format!("q{column}"), 1000, &half)];
            world.write(vec![mutate(row, mutations)]).await.unwrap();
        }
    }
    for _ in 0..2 {
        let error = world.read(RowRange::all(), 0).await.unwrap_err();
        assert_eq!(error.kind(), types::ErrorKind::FailedPrecondition);
        assert_eq!(error.too_large().unwrap(), "wide");
        assert_eq!(world.get("fits").await.unwrap().unwrap(), half);
        assert_eq!(world.get("later").await.unwrap().unwrap(), half);
        world.server.flush_all().await.unwrap();
    }
    world.server.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_read_of_a_large_value_holds_little_memory() {
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&[]));
    let world = started(&disk, &catalog, 1).await;
    world.put("big", &pattern(8 << 20, 1)).await.unwrap();
    world.server.flush_all().await.unwrap();
    world.get("big").await.unwrap();
    let target = catalog.target(b"big").unwrap();
    let row = Bytes::from_static(b"big");
    let spec = types::ReadSpec {
        rows: types::RowSet::new(vec![RowRange::row(&row)]),
        rows_limit: 1,
        order: types::RowOrder::Ascending,
    };
    let request = client::ReadRequest { target, spec, row_keys: client::RowKeys::AtMessages };
    let mut read = client::RangeService::read(&*world.server, request).await.unwrap();
    while let Some(reply) = read.next().await.unwrap() {
        let held = world.server.statistics().request_bytes;
        assert!(held < 2 * REPLY_BYTES_MAX as u64, "{held} bytes held");
        drop(reply);
    }
    drop(read);
    assert_eq!(world.server.statistics().request_bytes, 0);
    world.server.close().await.unwrap();
}
