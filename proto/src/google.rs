//! The generated code, in modules nested as the packages are; only the nesting is written by hand.

/// Packages of Bigtable.
pub mod bigtable {
    /// Package `google.bigtable.v2`: the data API.
    pub mod v2 {
        tonic::include_proto!("google.bigtable.v2");
        tonic::include_proto!("google.bigtable.v2.Bigtable");
    }
    /// Packages of the admin APIs.
    pub mod admin {
        /// Package `google.bigtable.admin.v2`: tables, and instances with what belongs to them.
        pub mod v2 {
            tonic::include_proto!("google.bigtable.admin.v2");
            tonic::include_proto!("google.bigtable.admin.v2.BigtableTableAdmin");
        }
    }
}

/// Packages of access control.
pub mod iam {
    /// Package `google.iam.v1`: policies.
    pub mod v1 {
        tonic::include_proto!("google.iam.v1");
    }
}

/// Package `google.longrunning`: operations that outlive their call.
pub mod longrunning {
    tonic::include_proto!("google.longrunning");
}

/// Package `google.protobuf`, as far as its types are named in server traits; the others are in
/// `prost_types`.
pub mod protobuf {
    /// The message without fields.
    pub type Empty = ();
}

/// Package `google.rpc`: statuses and their details.
pub mod rpc {
    tonic::include_proto!("google.rpc");
}

/// Package `google.type`: common values.
pub mod r#type {
    tonic::include_proto!("google.r#type");
}
