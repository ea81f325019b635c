//! Whole-system tests, one binary: linking is what costs time.

#[path = "suite/house_rules.rs"]
mod house_rules;
