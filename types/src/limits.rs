//! Every limit that clients can meet, and those that must relate to one another.

/// Bytes of a row key; at least one.
pub const ROW_KEY_BYTES_MAX: usize = 4 << 10;
/// Bytes of a qualifier; may be empty.
pub const QUALIFIER_BYTES_MAX: usize = 16 << 10;
/// Bytes of a family name.
pub const FAMILY_NAME_BYTES_MAX: usize = 64;
/// Characters of a table id (the last part of a table's name).
pub const TABLE_ID_BYTES_MAX: usize = 50;
/// Bytes of a cell's value.
pub const VALUE_BYTES_MAX: usize = 100 << 20;
/// Bytes of a row that is read; what makes up more is refused while it is read.
pub const ROW_BYTES_MAX: usize = 256 << 20;
/// A value of at least so many bytes that makes up most of its request is not copied on its way
/// into the log and the memtable.
pub const SPLICED_BYTES_MIN: usize = 256 << 10;
/// Mutations of one row operation, and in total of one batch of rows.
pub const MUTATIONS_MAX: usize = 100_000;
/// Bytes of one request, and of the mutations that one row operation carries.
pub const REQUEST_BYTES_MAX: usize = 256 << 20;
/// Families of one table.
pub const FAMILIES_MAX: usize = 100;
/// Locality groups of one table, the default group not counted.
pub const GROUPS_MAX: usize = 16;
/// Bytes of a block of cells that a locality group may ask for.
pub const GROUP_BLOCK_BYTES_MIN: u32 = 1 << 10;
/// See [`GROUP_BLOCK_BYTES_MIN`].
pub const GROUP_BLOCK_BYTES_MAX: u32 = 1 << 20;
/// Ranges that a table can be created with.
pub const INITIAL_SPLITS_MAX: usize = 1_000;
/// Serialized bytes of a retention rule.
pub const RETENTION_BYTES_MAX: usize = 500;
/// Bytes of one streamed reply message; bigger values are split over several.
pub const REPLY_BYTES_MAX: usize = 1 << 20;

/// Bytes of an encoded cell key: each of row and qualifier may double when escaped.
pub const CELL_KEY_BYTES_MAX: usize =
    2 * (ROW_KEY_BYTES_MAX + QUALIFIER_BYTES_MAX) + 4 + crate::key::FIXED_BYTES;

const _: () = assert!(VALUE_BYTES_MAX + CELL_KEY_BYTES_MAX < REQUEST_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_MAX < ROW_BYTES_MAX);
