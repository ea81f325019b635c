//! The catalog and the operations on tables.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod suite {
    mod cluster;
    mod crash;
    mod divide;
    mod grants;
    mod records;
    mod tables;
}
