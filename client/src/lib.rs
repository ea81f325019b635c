//! Finds the range and talks to its server.
//!
//! Two things meet here. **Seams** that the layers above share: [`RangeService`] (data operations
//! on one range), [`RangeKeeper`] (the care for one range), [`AdminService`] (schemas and whole
//! tables), [`Locator`], [`Assignments`] and [`SchemaObserver`] (the catalog). And the **clients**:
//! [`Router`], which serves whole-table operations over those seams inside a server, and `Client`,
//! which talks to a server over the network.

mod catalog;
mod connect;
mod error;
mod keeper;
mod routed_read;
mod router;
mod scrub;
mod service;

pub use catalog::{
    AdminService, Assignments, FamilyChange, Locator, NewFamily, NewGroup, NewTable,
    RangeAssignment, RangeLocation, SchemaObserver, TableLayout, TablePage, TableRange,
};
pub use connect::{
    Cell, Client, Compaction, DroppedRows, Merger, RemoteScrub, Row, RowFamily, RowMutation, Scan,
    Table, TableDescription,
};
pub use error::{Error, Result};
pub use keeper::{Division, RangeKeeper, RangeStatus};
pub use routed_read::RoutedRead;
pub use router::{KeySample, Router};
pub use scrub::{FileDamage, RangeScrub, ScrubbedFile, TableScrub};
pub use service::{
    RangeSample, RangeService, RangeTarget, ReadReplies, ReadReply, ReadRequest, RowKeys,
    WriteRequest,
};
