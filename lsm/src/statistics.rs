//! Counts what a range's storage does.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use types::RangeActivity;

use crate::resolve::ScanCounts;

/// The counting part of [`RangeActivity`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) placed_bytes: Counter,
    pub(crate) flushed_bytes: Counter,
    pub(crate) merge_read_bytes: Counter,
    pub(crate) merge_written_bytes: Counter,
    pub(crate) moved_bytes: Counter,
    pub(crate) expired_file_bytes: Counter,
    pub(crate) merges: Counter,
    pub(crate) merges_failed: Counter,
    pub(crate) merge_blocks: Counter,
    pub(crate) merge_blocks_taken: Counter,
    pub(crate) row_reads: Counter,
    pub(crate) row_tables: Counter,
    pub(crate) row_tables_ruled_out: Counter,
    pub(crate) row_tables_in_vain: Counter,
    pub(crate) blocks_loaded: Counter,
    pub(crate) block_bytes_loaded: Counter,
    pub(crate) keys_read: Counter,
    pub(crate) cells_read: Counter,
    pub(crate) seeks: Counter,
}

impl Counters {
    /// Adds what a scan has done, and how many SSTables it looked into in vain.
    pub(crate) fn add_scan(&self, counts: &ScanCounts, tables_in_vain: u64) {
        self.keys_read.add(counts.keys);
        self.cells_read.add(counts.visible);
        self.seeks.add(counts.seeks);
        self.row_tables_in_vain.add(tables_in_vain);
    }

    /// The counts; how the files stand is not theirs to know.
    pub(crate) fn read(&self) -> RangeActivity {
        // Ruled out is read first: it is never more than all.
        let row_tables_ruled_out = self.row_tables_ruled_out.get();
        RangeActivity {
            placed_bytes: self.placed_bytes.get(),
            flushed_bytes: self.flushed_bytes.get(),
            merge_read_bytes: self.merge_read_bytes.get(),
            merge_written_bytes: self.merge_written_bytes.get(),
            moved_bytes: self.moved_bytes.get(),
            expired_file_bytes: self.expired_file_bytes.get(),
            merges: self.merges.get(),
            merges_failed: self.merges_failed.get(),
            merge_blocks: self.merge_blocks.get(),
            merge_blocks_taken: self.merge_blocks_taken.get(),
            row_reads: self.row_reads.get(),
            row_tables: self.row_tables.get().max(row_tables_ruled_out),
            row_tables_ruled_out,
            row_tables_in_vain: self.row_tables_in_vain.get(),
            blocks_loaded: self.blocks_loaded.get(),
            block_bytes_loaded: self.block_bytes_loaded.get(),
            keys_read: self.keys_read.get(),
            cells_read: self.cells_read.get(),
            seeks: self.seeks.get(),
            ..RangeActivity::default()
        }
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
