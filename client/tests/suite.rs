//! The integration tests of this crate, as one binary.

#[path = "suite/network.rs"]
mod network;
#[path = "suite/scripted.rs"]
mod scripted;
