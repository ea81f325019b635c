//! The vocabulary of Tepui: keys, cells, mutations, schemas, ranges, ids and limits.
//!
//! No I/O, no async, no policy: every other crate speaks in these words.

mod activity;
mod error;
mod fields;
mod ids;
pub mod key;
pub mod limits;
mod mutation;
mod range;
mod read;
mod schema;
mod splice;
mod tombstone;

pub use activity::RangeActivity;
pub use error::ErrorKind;
pub use fields::Fields;
pub use ids::{Epoch, FamilyId, FileId, Generation, RangeId, SeqNo, SessionId, TableId, Timestamp};
pub use key::{CellKey, CellRef, Kind, ParsedKey};
pub use mutation::{Mutation, RowMutations};
pub use range::{RowRange, RowSet, row_successor};
pub use read::{ReadSpec, RowOrder};
pub use schema::{
    Aggregate, Bloom, ColumnFamily, Compression, Granularity, GroupSettings, LocalityGroup,
    Retention, TableName, TableSchema, validate_family_name, validate_instance_name,
    validate_table_id,
};
pub use splice::Splice;
pub use tombstone::TimestampRange;
