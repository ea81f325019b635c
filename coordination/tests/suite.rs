//! The coordinator: what every one must do, and what the embedded one survives.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod suite {
    mod bytes;
    mod conformance;
    mod crash;
    mod damage;
    mod embedded;
    mod opening;
}
