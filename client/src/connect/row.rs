use bytes::Bytes;
use types::Timestamp;

/// One cell, as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its column's qualifier; may be empty.
    pub qualifier: Bytes,
    /// Its age.
    pub timestamp: Timestamp,
    /// Its content.
    pub value: Bytes,
    /// What a filter labelled it with; empty unless one did.
    pub labels: Vec<String>,
}

/// The cells of one family of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFamily {
    /// The family's name.
    pub name: String,
    /// By qualifier ascending, then timestamp descending; at least one.
    pub cells: Vec<Cell>,
}

/// One row, as read: at one moment, with at least one cell.
///
/// Its bytes are slices of the messages they came in, so a row that is kept keeps up to a message
/// (a megabyte) alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The row's key.
    pub key: Bytes,
    /// The families that have cells, in the order they were created in.
    pub families: Vec<RowFamily>,
}

impl Row {
    /// The cells of the family called `name`; empty when the row has none there.
    pub fn family(&self, name: &str) -> &[Cell] {
        self.families.iter().find(|family| family.name == name).map_or(&[], |family| &family.cells)
    }

    /// The newest cell of one column.
    pub fn cell(&self, family: &str, qualifier: &[u8]) -> Option<&Cell> {
        self.family(family).iter().find(|cell| cell.qualifier == qualifier)
    }

    /// How many cells it has.
    pub fn cells(&self) -> usize {
        self.families.iter().map(|family| family.cells.len()).sum()
    }

    /// Bytes of its key, qualifiers and values.
    pub fn bytes(&self) -> usize {
        let cells = self.families.iter().flat_map(|family| &family.cells);
        self.key.len() + cells.map(|cell| cell.qualifier.len() + cell.value.len()).sum::<usize>()
    }
}
