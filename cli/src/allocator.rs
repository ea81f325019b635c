//! The C library's allocator, so that freed memory goes back to the system.
//!
//! Left to itself, glibc maps a piece of memory on its own only while it is larger than any that
//! was freed before; all others come from heaps, of which there are eight for each core, and a heap
//! shrinks from its end only. So the blocks of memtables and the payloads of batches come to lie
//! below what lives longer, and the process keeps what no budget counts any more: half as much
//! again as the budget, measured.
//!
//! With a fixed threshold they are mapped each on its own, and the few heaps are shared. What is
//! free inside of the heaps is given back whenever the process has grown past its budget.
#![expect(unsafe_code, reason = "the C library has these settings, and nobody wraps them")]

use std::time::Duration;

use env::Env;

/// Pieces of at least so many bytes are mapped each on its own.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES_MIN: i32 = 256 << 10;
/// Heaps at most: what threads allocate in small pieces mostly comes from caches of their own.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAPS_MAX: i32 = 2;

/// Between two looks at how much the process has.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The same after a look that found nothing more to give back: a trim holds up whoever allocates.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[cfg(all(target_os = "linux", target_env = "gnu"))]
unsafe extern "C" {
    /// Sets `parameter`; 0 when it was refused. It takes any values, at any time.
    safe fn mallopt(parameter: i32, value: i32) -> i32;
    /// Gives the free pages of all heaps back, but for `keep` bytes at their ends; 1 when there
    /// were any. It takes the heaps' own locks.
    safe fn malloc_trim(keep: usize) -> i32;
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

/// Looks again and again, and gives back what is free while the process has more than `most`
/// bytes. Runs until it is dropped.
pub(crate) async fn keep_below(most: u64, env: Env) {
    let is_past = || resident_bytes().is_some_and(|bytes| bytes > most);
    let mut wait = LOOK_EVERY;
    loop {
        env.sleep(wait).await;
        if is_past() {
            env.blocking(trim);
        }
        wait = if is_past() { LOOK_AGAIN } else { LOOK_EVERY };
    }
}

fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    malloc_trim(0);
}

/// Memory of this process that is its own; `None` where the system does not say.
fn resident_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = pages.split(' ').skip(1).map_while(|number| number.parse::<u64>().ok());
    let (resident, shared) = (pages.next()?, pages.next()?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}
