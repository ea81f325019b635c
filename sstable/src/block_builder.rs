use crate::coding::{put_varint, varint_len};

/// Builds the payload of a data or index block; see FORMAT.md.
pub(crate) struct BlockBuilder {
    payload: Vec<u8>,
    restarts: Vec<u32>,
    restart_interval: usize,
    since_restart: usize,
}

/// Where an entry's value bytes lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// They are the value.
    Inline,
    /// They are the handle of a value outside the blocks.
    Stored,
}

impl BlockBuilder {
    pub(crate) fn new(restart_interval: usize) -> BlockBuilder {
        BlockBuilder {
            payload: Vec::new(),
            restarts: Vec::new(),
            restart_interval,
            since_restart: 0,
        }
    }

    /// Appends an entry; keys ascend. It has its first `shared` bytes in common with the last one.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], shared: usize, value: &[u8], place: Place) {
        let shared = if self.is_restart_due() {
            self.restarts.push(self.payload.len() as u32);
            self.since_restart = 0;
            0
        } else {
            shared
        };
        self.since_restart += 1;
        let rest = &key[shared..];
        let tag = (value.len() as u64) << 1 | u64::from(place == Place::Stored);
        put_varint(&mut self.payload, shared as u64);
        put_varint(&mut self.payload, rest.len() as u64);
        put_varint(&mut self.payload, tag);
        self.payload.extend_from_slice(rest);
        self.payload.extend_from_slice(value);
    }

    /// Is the next entry's key to be kept whole?
    fn is_restart_due(&self) -> bool {
        self.restarts.is_empty() || self.since_restart == self.restart_interval
    }

    /// Payload bytes if it ended now.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len() + 4 * (self.restarts.len() + 1)
    }

    /// Payload bytes that another entry would add; `shared` as for [`BlockBuilder::add`].
    #[inline]
    pub(crate) fn entry_bytes(&self, key_len: usize, shared: usize, value_len: usize) -> usize {
        let whole = self.is_restart_due();
        let shared = if whole { 0 } else { shared };
        let rest = key_len - shared;
        let numbers = varint_len(shared as u64)
            + varint_len(rest as u64)
            + varint_len((value_len as u64) << 1 | 1);
        numbers + rest + value_len + if whole { 4 } else { 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    /// Completes the payload. [`BlockBuilder::clear`] begins the next.
    pub(crate) fn finish(&mut self) -> &[u8] {
        for restart in &self.restarts {
            self.payload.extend_from_slice(&restart.to_le_bytes());
        }
        let count = self.restarts.len() as u32;
        self.payload.extend_from_slice(&count.to_le_bytes());
        &self.payload
    }

    /// Forgets all entries, keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.payload.clear();
        self.restarts.clear();
        self.since_restart = 0;
    }
}

/// How many bytes `a` and `b` have in common at their start.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let limit = a.len().min(b.len());
    let mut at = 0;
    while at + 8 <= limit && a[at..at + 8] == b[at..at + 8] {
        at += 8;
    }
    while at < limit && a[at] == b[at] {
        at += 1;
    }
    at
}
