//! The real binary, run as people run it; one test binary for all of it.
#![expect(clippy::unwrap_used, reason = "a test that meets an error fails")]

#[path = "suite/commands.rs"]
mod commands;
#[path = "suite/tepui.rs"]
mod tepui;
