//! The generated code of our own packages, in modules nested as the packages are.

/// Packages of administration.
pub mod admin {
    /// Package `tepui.admin.v1`: what the Bigtable API has no words for.
    pub mod v1 {
        tonic::include_proto!("tepui.admin.v1");
        tonic::include_proto!("tepui.admin.v1.Layouts");
        tonic::include_proto!("tepui.admin.v1.Ranges");
    }
}
