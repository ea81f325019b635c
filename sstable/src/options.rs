use types::{Bloom, Compression};

/// How a table is written. Any table is readable whatever it was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// Target size of a data block before compression, in bytes; at most 1 MiB.
    pub block_bytes: usize,
    /// Target size of an index partition before compression, in bytes; at most 1 MiB.
    pub index_block_bytes: usize,
    /// Entries between two whole keys of a data block.
    pub restart_interval: usize,
    /// How data blocks and index partitions are compressed; LZ4 where it saves one eighth.
    pub compression: Compression,
    /// Which filters are written.
    pub bloom: Bloom,
    /// Filter bits per row and per column; 0 writes no filters.
    pub bloom_bits_per_key: u32,
    /// Values of at least so many bytes live outside the blocks; 1 byte to 1 MiB.
    pub value_block_threshold: usize,
}

/// The largest target size of a block, and the largest threshold for values outside blocks.
pub(crate) const TARGET_BYTES_MAX: usize = 1 << 20;

impl Default for WriterOptions {
    fn default() -> WriterOptions {
        WriterOptions {
            block_bytes: 4096,
            index_block_bytes: 4096,
            restart_interval: 16,
            compression: Compression::Lz4,
            bloom: Bloom::RowAndColumn,
            bloom_bits_per_key: 10,
            value_block_threshold: 16 << 10,
        }
    }
}

impl WriterOptions {
    /// Options are ours, never a client's: a bad one is a bug.
    pub(crate) fn assert_valid(&self) {
        assert!((1..=TARGET_BYTES_MAX).contains(&self.block_bytes), "{self:?}");
        assert!((1..=TARGET_BYTES_MAX).contains(&self.index_block_bytes), "{self:?}");
        assert!((1..=1024).contains(&self.restart_interval), "{self:?}");
        assert!(self.bloom_bits_per_key <= 64, "{self:?}");
        assert!((1..=TARGET_BYTES_MAX).contains(&self.value_block_threshold), "{self:?}");
    }
}
