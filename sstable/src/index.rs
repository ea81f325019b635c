//! The two-level index while it is built, and the handles that are its values.

use crate::block_builder::{BlockBuilder, Place};
use crate::coding::{put_varint, varint};
use crate::error::Malformed;
use crate::frame::{BlockHandle, BlockKind};

/// Index entries are whole keys: they are searched far more often than they are read through.
const RESTART_INTERVAL: usize = 1;

pub(crate) fn put_handle(out: &mut Vec<u8>, handle: BlockHandle) {
    put_varint(out, handle.offset);
    put_varint(out, u64::from(handle.len));
}

/// Reads the value of an index entry; the block it names ends at `end_max` at the latest.
pub(crate) fn handle(
    value: &[u8],
    kind: BlockKind,
    end_max: u64,
) -> std::result::Result<BlockHandle, Malformed> {
    let mut at = 0;
    let mut read = || -> Option<BlockHandle> {
        let offset = varint(value, &mut at)?;
        let len = u32::try_from(varint(value, &mut at)?).ok()?;
        let handle = BlockHandle { offset, len, kind };
        (at == value.len() && handle.end()? <= end_max).then_some(handle)
    };
    read().ok_or(Malformed("an index entry's handle is damaged"))
}

/// A finished index partition: its separator and its payload.
pub(crate) struct Partition {
    pub(crate) separator: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// Collects the entries of data blocks into partitions.
pub(crate) struct IndexBuilder {
    partitions: Vec<Partition>,
    current: BlockBuilder,
    separator: Vec<u8>,
    value: Vec<u8>,
    block_bytes: usize,
}

impl IndexBuilder {
    pub(crate) fn new(block_bytes: usize) -> IndexBuilder {
        IndexBuilder {
            partitions: Vec::new(),
            current: BlockBuilder::new(RESTART_INTERVAL),
            separator: Vec::new(),
            value: Vec::new(),
            block_bytes,
        }
    }

    /// Adds a data block; separators ascend.
    pub(crate) fn add(&mut self, separator: &[u8], data: BlockHandle) {
        if self.current.is_empty() {
            self.separator.clear();
            self.separator.extend_from_slice(separator);
        }
        self.value.clear();
        put_handle(&mut self.value, data);
        self.current.add(separator, 0, &self.value, Place::Inline);
        if self.current.bytes() >= self.block_bytes {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let payload = self.current.finish().to_vec();
        self.partitions.push(Partition { separator: self.separator.clone(), payload });
        self.current.clear();
    }

    pub(crate) fn finish(mut self) -> Vec<Partition> {
        if !self.current.is_empty() {
            self.cut();
        }
        self.partitions
    }
}

/// Builds the top index: one entry per partition.
pub(crate) struct TopIndexBuilder(BlockBuilder);

impl TopIndexBuilder {
    pub(crate) fn new() -> TopIndexBuilder {
        TopIndexBuilder(BlockBuilder::new(RESTART_INTERVAL))
    }

    pub(crate) fn add(&mut self, separator: &[u8], partition: BlockHandle) {
        let mut value = Vec::new();
        put_handle(&mut value, partition);
        self.0.add(separator, 0, &value, Place::Inline);
    }

    pub(crate) fn finish(&mut self) -> &[u8] {
        self.0.finish()
    }
}
