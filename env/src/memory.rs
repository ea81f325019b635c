//! Memory for many bytes that are all written soon.
//!
//! The system hands out memory a small page at a time, each at its first use, with an interruption
//! that costs more than filling the page: a third of the time in which a log is read. Large pages
//! come five hundred times as seldom.
#![expect(
    unsafe_code,
    reason = "the system is told by address how to back memory; what is in it stays as it is"
)]

use rustix::mm::{Advice, madvise};

const LARGE_PAGE_BYTES: usize = 2 << 20;

/// So many zeros, in large pages where the system has them and there are enough to make some up.
pub fn zeros(len: usize) -> Vec<u8> {
    let mut zeros = vec![0; len];
    let start = zeros.as_ptr().align_offset(LARGE_PAGE_BYTES);
    let whole = len.saturating_sub(start) / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
    let inside = start.checked_add(whole).and_then(|end| zeros.get_mut(start..end));
    if let Some(inside) = inside.filter(|inside| !inside.is_empty()) {
        // SAFETY: the address and the length are those of a slice that is ours alone, at a page's
        // start, and this advice changes no content. Where it is not followed nothing is lost.
        let _ = unsafe { madvise(inside.as_mut_ptr().cast(), inside.len(), Advice::LinuxHugepage) };
    }
    zeros
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_of_any_number_are_all_zero_and_can_be_written() {
        for len in [0, 1, 4096, LARGE_PAGE_BYTES, 3 * LARGE_PAGE_BYTES + 5] {
            let mut zeros = zeros(len);
            assert_eq!(zeros.len(), len);
            assert!(zeros.iter().all(|byte| *byte == 0));
            zeros.fill(7);
            assert!(zeros.iter().all(|byte| *byte == 7));
        }
    }
}
