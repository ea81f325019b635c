//! The size that a message and what is in it may have, and clients and servers set to it.
//!
//! tonic's own limit for what it decodes, 4 MiB, is less than one cell may hold. The official
//! clients set theirs to 256 MiB.

use bytes::Bytes;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, StdError};

use crate::google::bigtable::admin::v2::bigtable_table_admin_client::BigtableTableAdminClient;
use crate::google::bigtable::admin::v2::bigtable_table_admin_server::{
    BigtableTableAdmin, BigtableTableAdminServer,
};
use crate::google::bigtable::v2::bigtable_client::BigtableClient;
use crate::google::bigtable::v2::bigtable_server::{Bigtable, BigtableServer};
use crate::tepui::admin::v1::layouts_server::{Layouts, LayoutsServer};
use crate::tepui::admin::v1::ranges_client::RangesClient;
use crate::tepui::admin::v1::ranges_server::{Ranges, RangesServer};

/// The most that one message may have, sent or received, in bytes: mutations of 256 MiB, and what
/// stands around them.
pub const MESSAGE_BYTES_MAX: usize = (256 << 20) + (1 << 20);

/// Mutations of one request, and entries of one batch.
pub const MUTATIONS_MAX: usize = 100_000;
/// Row keys of one read, and row ranges.
pub const ROW_KEYS_MAX: usize = 500_000;
/// Bytes of one read's filter.
pub const FILTER_BYTES_MAX: usize = 20_480;

/// Returns the service that serves the data API with `bigtable`.
pub fn data_server<T: Bigtable>(bigtable: T) -> BigtableServer<T> {
    BigtableServer::new(bigtable)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Returns the service that serves the table admin API with `admin`.
pub fn table_admin_server<T: BigtableTableAdmin>(admin: T) -> BigtableTableAdminServer<T> {
    BigtableTableAdminServer::new(admin)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Returns the service that serves our own layouts API with `layouts`.
pub fn layouts_server<T: Layouts>(layouts: T) -> LayoutsServer<T> {
    LayoutsServer::new(layouts)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Returns the service that serves the care for ranges with `ranges`.
pub fn ranges_server<T: Ranges>(ranges: T) -> RangesServer<T> {
    RangesServer::new(ranges)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Returns a client of the care for ranges that calls over `channel`.
pub fn ranges_client<C>(channel: C) -> RangesClient<C>
where
    C: GrpcService<Body>,
    C::Error: Into<StdError>,
    C::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <C::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    RangesClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Returns a client of the data API that calls over `channel`.
pub fn data_client<C>(channel: C) -> BigtableClient<C>
where
    C: GrpcService<Body>,
    C::Error: Into<StdError>,
    C::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <C::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    BigtableClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Returns a client of the table admin API that calls over `channel`.
pub fn table_admin_client<C>(channel: C) -> BigtableTableAdminClient<C>
where
    C: GrpcService<Body>,
    C::Error: Into<StdError>,
    C::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <C::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    BigtableTableAdminClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}
