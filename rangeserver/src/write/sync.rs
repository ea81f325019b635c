//! The primitives that the commit queue is built from, so that a scheduler can stand in for them:
//! a build with `--cfg tepui_shuttle` explores their interleavings.

#[cfg(not(tepui_shuttle))]
pub(crate) use std::{
    sync::atomic::{AtomicU8, Ordering},
    sync::{Arc, Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(tepui_shuttle)]
pub(crate) use shuttle::{
    sync::atomic::{AtomicU8, Ordering},
    sync::{Arc, Mutex, MutexGuard},
    thread::yield_now,
};
