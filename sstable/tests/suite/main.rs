//! What a table promises, from outside.

mod damage;
mod files;
mod fixtures;
mod round_trip;
mod samples;
