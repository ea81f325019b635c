//! Settings of the C library's allocator, so that freed memory goes back to the system.
//!
//! Left to itself, glibc maps a piece of memory on its own only while it is larger than any that
//! was freed before; all others come from heaps, of which there are eight for each core, and a heap
//! shrinks from its end only. So the blocks of memtables and the payloads of batches come to lie
//! below what lives longer, and the process keeps what no budget counts any more: half as much
//! again as the budget, measured.
//!
//! With a fixed threshold they are mapped each on its own, and the few heaps are shared.
#![expect(unsafe_code, reason = "the C library has these settings, and nobody wraps them")]

/// Pieces of at least so many bytes are mapped each on its own.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES_MIN: i32 = 256 << 10;
/// Heaps at most: what threads allocate in small pieces mostly comes from caches of their own.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAPS_MAX: i32 = 2;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
unsafe extern "C" {
    /// Sets `parameter`; 0 when it was refused. It takes any values, at any time.
    safe fn mallopt(parameter: i32, value: i32) -> i32;
}

/// Makes the settings. To be called before other threads are started.
pub(crate) fn return_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const M_MMAP_THRESHOLD: i32 = -3;
        const M_ARENA_MAX: i32 = -8;
        // Refused, they change nothing but how much is kept.
        mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        mallopt(M_ARENA_MAX, HEAPS_MAX);
    }
}
