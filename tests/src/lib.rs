//! Whole-system tests: crash histories, planted bugs, fuzzers, house rules
