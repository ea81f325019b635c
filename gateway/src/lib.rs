//! The Bigtable gRPC API over client.
//!
//! * [`DataGateway`] serves the data API, [`AdminGateway`] the table admin API, [`RangesGateway`]
//!   our own service for operators. They check what a client sends against every limit, turn it
//!   into the project's own words and pass it to the seams of `client`; they keep nothing
//!   themselves.
//! * [`serve`] puts them behind a port, with a bound on connections, streams and bytes in flight.
//! * [`count_panics`] and [`panics`]: a panic anywhere in the process is counted, so that tests
//!   can claim that there was none.
//!
//! Methods that are not built answer UNIMPLEMENTED. Errors of clients answer INVALID_ARGUMENT or
//! NOT_FOUND, never a code that makes clients try again.

mod accept;
mod admin;
mod budget;
mod convert;
mod data;
mod layouts;
mod panics;
mod ranges;
mod serve;
mod status;
mod validate;

pub use admin::AdminGateway;
pub use budget::{Budgeted, LargeRequests, RequestBudget};
pub use data::DataGateway;
pub use layouts::LayoutGateway;
pub use panics::{count_panics, panics};
pub use ranges::RangesGateway;
pub use serve::{ServeOptions, Services, serve};
