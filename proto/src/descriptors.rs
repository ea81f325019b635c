//! What the contract says of itself, for reflection and for the table of fields.

/// The descriptors of all our .proto files and of those they import: an encoded
/// `google.protobuf.FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
