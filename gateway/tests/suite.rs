//! Tests of the Bigtable API and of the router below it, over tables kept in a map.
#![expect(clippy::unwrap_used, reason = "a test that meets an error fails")]

mod suite {
    mod admin;
    mod fake;
    mod fake_admin;
    mod hostile;
    mod ranges;
    mod reads;
    mod routing;
    mod samples;
    mod serving;
    mod world;
    mod writes;
}
