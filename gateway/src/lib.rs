//! The Bigtable gRPC API over client
