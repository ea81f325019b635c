//! Tests of a range's storage through its public face.

#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod suite {
    mod bed;
    mod choose_script;
    mod golden;
    mod groups;
    mod interleavings;
    mod peers;
    mod planted;
    mod scrubs;
    mod store_crash;
    mod store_damage;
    mod store_expiry;
    mod store_faults;
    mod store_ingest;
    mod store_levels;
    mod store_manifest;
    mod store_ranges;
    mod store_script;
    mod store_statistics;
    mod store_versions;
    mod sweep_races;
    mod wide_rows;
}
