//! The commit queue under a scheduler that explores interleavings: the tests stand with the queue,
//! in `src/write/commit/tests.rs`. Empty unless built with `--cfg tepui_shuttle`.
#![cfg(tepui_shuttle)]
#![expect(
    dead_code,
    unreachable_pub,
    reason = "the queue's own source, of which the tests use a part"
)]

#[path = "../src/write"]
mod write {
    pub(crate) mod commit;
    pub(crate) mod counters;
    pub(crate) mod sync;
}
