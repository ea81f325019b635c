//! What one call may ask for. They are etcd's, so that what works embedded works there.

/// Guards, and changes, of one transaction.
pub const OPERATIONS_MAX: usize = 128;
/// Bytes of keys and values of one transaction.
pub const TRANSACTION_BYTES_MAX: usize = 1536 << 10;
/// Keys of one page.
pub const PAGE_MAX: usize = 2_000;
/// Transactions that a watcher may lag behind before it is told to read everything again.
pub const WATCH_BACKLOG: usize = 256;
