//! Whole-system tests. This library holds what several of them share; the tests themselves are one
//! binary, `tests/suite.rs`, and `tests/planted.rs` for builds with planted bugs. Its programs:
//! `fuzz` and `crash`.

pub mod cluster;
pub mod fuzz;
pub mod history;
pub mod metamorphic;
pub mod model;
pub mod panics;
pub mod rows;
pub mod state;
pub mod tree;
pub mod watched;
