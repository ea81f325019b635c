//! The real binary, run as people run it; one test binary for all of it.
#![expect(clippy::unwrap_used, reason = "a test that meets an error fails")]

#[path = "suite/commands.rs"]
mod commands;
#[path = "suite/dev.rs"]
mod dev;
#[path = "suite/groups.rs"]
mod groups;
#[path = "suite/inspect.rs"]
mod inspect;
#[path = "suite/kill.rs"]
mod kill;
#[path = "suite/large.rs"]
mod large;
#[path = "suite/load.rs"]
mod load;
#[path = "suite/python.rs"]
mod python;
#[path = "suite/ranges.rs"]
mod ranges;
#[path = "suite/records.rs"]
mod records;
#[path = "suite/tepui.rs"]
mod tepui;
#[path = "suite/weather.rs"]
mod weather;
