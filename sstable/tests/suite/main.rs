//! What a table promises, from outside.

#![expect(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod damage;
mod files;
mod fixtures;
mod raw_blocks;
mod read_ahead;
mod round_trip;
mod samples;
