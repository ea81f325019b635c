//! The integration tests of this crate, as one binary.
#![expect(clippy::unwrap_used, reason = "a test that meets an error fails")]

#[path = "suite/network.rs"]
mod network;
#[path = "suite/scripted.rs"]
mod scripted;
