//! How a write becomes durable: its row's stripe, its place in the commit queue, its timestamp.

pub(crate) mod clock;
pub(crate) mod commit;
pub(crate) mod counters;
pub(crate) mod group;
pub(crate) mod stalls;
pub(crate) mod stripes;
pub(crate) mod sync;
