use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Classes of group sizes: 1, 2, 3–4, 5–8, … batches.
pub const GROUP_SIZE_CLASSES: usize = 12;

/// Counts commit groups.
#[derive(Debug, Default)]
pub(crate) struct CommitCounters {
    groups: AtomicU64,
    groups_of_many: AtomicU64,
    batches: AtomicU64,
    bytes: AtomicU64,
    largest: AtomicU64,
    classes: [AtomicU64; GROUP_SIZE_CLASSES],
}

/// What was committed since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitStatistics {
    /// Groups: each is one frame and one sync of the log.
    pub groups: u64,
    /// Groups of more than one batch.
    pub groups_of_many: u64,
    /// Batches: one for each write request.
    pub batches: u64,
    /// Bytes of the batches.
    pub bytes: u64,
    /// Batches of the largest group.
    pub largest: u64,
    /// Groups by their size: of 1, 2, 3–4, 5–8, … batches; the last class is open.
    pub classes: [u64; GROUP_SIZE_CLASSES],
}

impl CommitCounters {
    pub(crate) fn count_group(&self, batches: usize, bytes: usize) {
        assert!(batches > 0, "a group has a member");
        let class = (usize::BITS - (batches - 1).leading_zeros()) as usize;
        self.classes[class.min(GROUP_SIZE_CLASSES - 1)].fetch_add(1, Relaxed);
        self.groups.fetch_add(1, Relaxed);
        self.groups_of_many.fetch_add(u64::from(batches > 1), Relaxed);
        self.batches.fetch_add(batches as u64, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.largest.fetch_max(batches as u64, Relaxed);
    }

    pub(crate) fn read(&self) -> CommitStatistics {
        CommitStatistics {
            groups: self.groups.load(Relaxed),
            groups_of_many: self.groups_of_many.load(Relaxed),
            batches: self.batches.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            largest: self.largest.load(Relaxed),
            classes: std::array::from_fn(|class| self.classes[class].load(Relaxed)),
        }
    }
}
