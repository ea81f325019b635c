//! The wire contract of Tepui: `google.bigtable.v2`, `google.bigtable.admin.v2` and what they need.
//!
//! * `proto/` holds our own .proto text; `FIELDS.txt` lists every message, field, enum value and
//!   RPC of it, and `refresh/compare.py` compares what is Google's of it with their Python package.
//! * [`google`] and [`tepui`] hold the generated messages, clients and server traits, at the path
//!   of their package; [`tepui`] those of our own services. Fields of type bytes are
//!   [`bytes::Bytes`]: slices of the message they came in.
//! * [`admission`] looks at requests before they are decoded.
//! * [`codec`] lets a server answer with messages that are encoded already.
//! * [`limits`] holds the size that a message may have, and clients and servers set to it.
//!
//! Only the methods listed in `build.rs` have a place in the server traits; a server answers all
//! others with UNIMPLEMENTED. Clients have every method.

mod activity;
pub mod admission;
pub mod codec;
mod descriptors;
#[expect(
    missing_docs,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    reason = "generated code has no docs, long functions, and its own way to switch lints off"
)]
pub mod google;
pub mod limits;
#[expect(
    missing_docs,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    reason = "generated code has no docs, long functions, and its own way to switch lints off"
)]
pub mod tepui;

pub use descriptors::FILE_DESCRIPTOR_SET;
