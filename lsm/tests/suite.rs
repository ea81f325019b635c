//! Tests of a range's storage through its public face.

mod suite {
    mod bed;
    mod golden;
    mod store_manifest;
    mod store_versions;
}
