//! Whole-system tests. This library holds what several of them share; the tests themselves are one
//! binary, `tests/suite.rs`.

pub mod tree;
