//! The C library's allocator, so that freed memory goes back to the system.
//!
//! Left to itself, glibc maps a piece of memory on its own only while it is larger than any that
//! was freed before; all others come from heaps, of which there are eight for each core, and a heap
//! shrinks from its end only. So the blocks of memtables and the payloads of batches come to lie
//! below what lives longer, and the process keeps what no budget counts any more: half as much
//! again as the budget, measured.
//!
//! With a fixed threshold they are mapped each on its own, and the few heaps are shared. What is
//! free inside of the heaps is given back when the process has much more than it accounts for.
#![expect(unsafe_code, reason = "the C library has these settings, and nobody wraps them")]

use std::sync::Arc;
use std::time::Duration;

use env::Env;

/// Pieces of at least so many bytes are mapped each on its own.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES_MIN: i32 = 256 << 10;
/// Heaps at most: what threads allocate in small pieces mostly comes from caches of their own.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAPS_MAX: i32 = 2;

/// Between two looks at how much the process has. Giving memory back holds up whoever allocates,
/// for some milliseconds.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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

/// Who knows what memory is for.
pub(crate) trait Account: Send + Sync {
    /// The process has `bytes`; how many of them are more than what is accounted for.
    fn note(&self, bytes: u64) -> u64;
}

/// Looks again and again how much memory the process has, and tells `account`. While it has more
/// than is accounted for, and than half of `most` bytes, what is free is given back. Runs until it
/// is dropped.
pub(crate) async fn keep_below(most: u64, env: Env, account: Arc<dyn Account>) {
    loop {
        env.sleep(LOOK_EVERY).await;
        let Some(bytes) = resident_bytes() else {
            return;
        };
        let unaccounted = account.note(bytes);
        if unaccounted > 0 && bytes > most / 2 {
            env.blocking(trim);
            let left = resident_bytes();
            tracing::debug!(bytes, unaccounted, ?left, "gave free memory back");
        }
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

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Accounts for nothing.
    #[derive(Default)]
    struct Told(Mutex<Vec<u64>>);

    impl Account for Told {
        fn note(&self, bytes: u64) -> u64 {
            self.0.lock().expect("no holder panics").push(bytes);
            bytes
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_free_between_pieces_in_use_is_given_back() {
        const PIECE_BYTES: usize = 1 << 10;
        const PIECES: usize = 64 << 10;
        let env = Env::simulated(1);
        let mut pieces: Vec<_> = (0..PIECES).map(|piece| vec![piece as u8; PIECE_BYTES]).collect();
        let mut place = 0;
        pieces.retain(|_| {
            place += 1;
            place % 100 == 0
        });
        let told = Arc::new(Told::default());
        let watching = keep_below(1, env.clone(), Arc::clone(&told) as Arc<_>);
        let watched = env.timeout(LOOK_EVERY * 3, watching).await;
        assert!(watched.is_err(), "it ends only where the system does not say");
        let told = told.0.lock().expect("no holder panics");
        let free = (PIECES * PIECE_BYTES / 2) as u64;
        assert!(told.len() >= 2 && told[1] + free < told[0], "{told:?}");
        assert!(pieces.iter().all(|piece| piece.len() == PIECE_BYTES));
    }
}
