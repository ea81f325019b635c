//! Whole-system tests, one binary: linking is what costs time.

#[path = "suite/crashes.rs"]
mod crashes;
#[path = "suite/errors.rs"]
mod errors;
#[path = "suite/flips.rs"]
mod flips;
#[path = "suite/fuzzers.rs"]
mod fuzzers;
#[path = "suite/house_rules.rs"]
mod house_rules;
#[path = "suite/layouts.rs"]
mod layouts;
#[path = "suite/metamorphic.rs"]
mod metamorphic;
#[path = "suite/old_formats.rs"]
mod old_formats;
#[path = "suite/peers.rs"]
mod peers;
