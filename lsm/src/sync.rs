//! Locks and atomics of the lock-free parts: the standard library's, or, in a build with
//! `--cfg tepui_shuttle`, shuttle's, which tries many orders of the same steps.

#[cfg(not(tepui_shuttle))]
pub(crate) use std::sync::{
    RwLock,
    atomic::{AtomicU64, Ordering},
};

#[cfg(tepui_shuttle)]
pub(crate) use shuttle::sync::{
    RwLock,
    atomic::{AtomicU64, Ordering},
};
