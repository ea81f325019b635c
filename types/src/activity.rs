//! What the storage of ranges does, in numbers: what a byte costs to keep, and a read to answer.

/// What a range's storage has done since it was opened, and how its files stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeActivity {
    /// Bytes of the batches placed.
    pub placed_bytes: u64,
    /// Bytes of SSTables that flushes and recovery wrote.
    pub flushed_bytes: u64,
    /// Bytes of SSTables that merges read.
    pub merge_read_bytes: u64,
    /// Bytes of SSTables that merges wrote.
    pub merge_written_bytes: u64,
    /// Bytes of SSTables that came to another level as they are.
    pub moved_bytes: u64,
    /// Bytes of SSTables that were given up whole, all their cells being past their age.
    pub expired_file_bytes: u64,
    /// Merges done.
    pub merges: u64,
    /// Merges that failed: a full disk, or files that cannot be read.
    pub merges_failed: u64,
    /// SSTables that merges could not read: they are left alone for a while.
    pub files_set_aside: u64,
    /// Blocks of cells that merges wrote.
    pub merge_blocks: u64,
    /// Of these, those that were taken over as they were stored.
    pub merge_blocks_taken: u64,
    /// Writes that were slowed because merges fell behind.
    pub slowed_writes: u64,
    /// For how long, in all, µs.
    pub slowed_micros: u64,
    /// Writes that had to wait for room.
    pub stopped_writes: u64,
    /// For how long, in all, µs.
    pub stopped_micros: u64,
    /// Reads of single rows.
    pub row_reads: u64,
    /// SSTables with keys around the row of such a read.
    pub row_tables: u64,
    /// Of these, those that the filter ruled out.
    pub row_tables_ruled_out: u64,
    /// SSTables that such reads looked into although they hold nothing of the row.
    pub row_tables_in_vain: u64,
    /// Blocks that reads had to load.
    pub blocks_loaded: u64,
    /// Their bytes as they are stored.
    pub block_bytes_loaded: u64,
    /// Keys that finished scans looked at, those of cells that were seen among them.
    pub keys_read: u64,
    /// Cells that finished scans saw.
    pub cells_read: u64,
    /// Seeks of finished scans instead of further steps.
    pub seeks: u64,
    /// Bytes of the SSTables now.
    pub live_bytes: u64,
    /// Bytes of the level that holds most.
    pub largest_level_bytes: u64,
    /// SSTables that a read of one row may have to look into: those of level 0 that overlap, and
    /// one for each other level in use.
    pub sorted_runs: u64,
    /// About how many bytes merges must write until no level holds too much.
    pub merge_debt: u64,
}

impl RangeActivity {
    /// Adds another range's. Runs do not add up: the larger number stays.
    pub fn add(&mut self, other: &RangeActivity) {
        self.placed_bytes += other.placed_bytes;
        self.flushed_bytes += other.flushed_bytes;
        self.merge_read_bytes += other.merge_read_bytes;
        self.merge_written_bytes += other.merge_written_bytes;
        self.moved_bytes += other.moved_bytes;
        self.expired_file_bytes += other.expired_file_bytes;
        self.merges += other.merges;
        self.merges_failed += other.merges_failed;
        self.files_set_aside += other.files_set_aside;
        self.merge_blocks += other.merge_blocks;
        self.merge_blocks_taken += other.merge_blocks_taken;
        self.slowed_writes += other.slowed_writes;
        self.slowed_micros += other.slowed_micros;
        self.stopped_writes += other.stopped_writes;
        self.stopped_micros += other.stopped_micros;
        self.row_reads += other.row_reads;
        self.row_tables += other.row_tables;
        self.row_tables_ruled_out += other.row_tables_ruled_out;
        self.row_tables_in_vain += other.row_tables_in_vain;
        self.blocks_loaded += other.blocks_loaded;
        self.block_bytes_loaded += other.block_bytes_loaded;
        self.keys_read += other.keys_read;
        self.cells_read += other.cells_read;
        self.seeks += other.seeks;
        self.live_bytes += other.live_bytes;
        self.largest_level_bytes += other.largest_level_bytes;
        self.sorted_runs = self.sorted_runs.max(other.sorted_runs);
        self.merge_debt = self.merge_debt.saturating_add(other.merge_debt);
    }

    /// Bytes written to SSTables for each byte that was flushed.
    pub fn write_amplification(&self) -> f64 {
        ratio(self.flushed_bytes + self.merge_written_bytes, self.flushed_bytes)
    }

    /// Bytes of SSTables for each byte of the level that holds most.
    pub fn space_amplification(&self) -> f64 {
        ratio(self.live_bytes, self.largest_level_bytes)
    }

    /// SSTables that a read of a row looks into.
    pub fn tables_per_row(&self) -> f64 {
        ratio(self.row_tables - self.row_tables_ruled_out, self.row_reads)
    }
}

/// `part / whole`; 0 when there is nothing yet.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
