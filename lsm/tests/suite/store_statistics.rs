//! What a range's storage tells of its reads.

use std::sync::Arc;

use bytes::Bytes;
use storage::memory::MemoryFileSystem;
use tepui_lsm::{Scan, Store};
use types::RowRange;

use super::bed::{config, flush, put, rules};

fn scan(store: &Arc<Store>, row: &str) -> Scan {
    let rows = RowRange::row(&Bytes::copy_from_slice(row.as_bytes()));
    store.view().unwrap().scan(&rows, &rules(), true)
}

async fn cells_of(store: &Arc<Store>, row: &str) -> usize {
    let mut scan = scan(store, row);
    let mut cells = 0;
    while scan.next().await.unwrap() {
        cells += 1;
    }
    cells
}

#[tokio::test]
async fn reads_of_rows_tell_filters_that_helped_from_tables_read_in_vain() {
    let files = Arc::new(MemoryFileSystem::new());
    let store = Store::create(config(files, 1)).await.unwrap();
    for (table, rows) in [["a", "c", "e"], ["a", "d", "e"]].into_iter().enumerate() {
        for row in rows {
            put(&store, row, "q", 1, &[table as u8; 10]);
        }
        flush(&store).await.unwrap();
    }
    assert_eq!(store.statistics().row_reads, 0);
    assert_eq!(cells_of(&store, "a").await, 1);
    let of_both = store.statistics();
    assert_eq!((of_both.row_reads, of_both.row_tables), (1, 2));
    assert_eq!((of_both.row_tables_ruled_out, of_both.row_tables_in_vain), (0, 0));
    assert_eq!((of_both.cells_read, of_both.keys_read), (1, 2), "the older one is passed over");
    assert_eq!(of_both.blocks_loaded, 4, "of each table an index partition and a data block");
    assert!(of_both.block_bytes_loaded > 0, "{of_both:?}");

    assert_eq!(cells_of(&store, "c").await, 1);
    for absent in ["b", "z"] {
        assert_eq!(cells_of(&store, absent).await, 0);
    }
    let now = store.statistics();
    assert_eq!((now.row_reads, now.row_tables, now.cells_read), (4, 6, 2));
    assert_eq!(now.row_tables_ruled_out + now.row_tables_in_vain, 3, "{now:?}");

    // Nothing is known of tables that a read given up did not come to.
    drop(scan(&store, "a"));
    let given_up = store.statistics();
    assert_eq!((given_up.row_reads, given_up.row_tables), (5, 8));
    assert_eq!(given_up.row_tables_in_vain, now.row_tables_in_vain);
    assert_eq!(given_up.keys_read, now.keys_read);
    store.close().await;
}
