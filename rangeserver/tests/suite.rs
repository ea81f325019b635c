//! The range server over an in-memory disk, a simulated world and a small fake catalog.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod suite {
    mod alterations;
    mod basics;
    mod commits;
    mod crashes;
    mod faults;
    mod large_values;
    mod peers;
    mod planted;
    mod pressure;
    mod reversed;
    mod world;
}
