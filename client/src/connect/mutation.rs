use bytes::Bytes;
use proto::google::bigtable::v2 as data;
use types::{Timestamp, TimestampRange};

/// The wire's way to ask for the server's time.
const SERVER_TIME: i64 = -1;

/// The changes to one row, applied in order and atomically. Built up by its methods.
///
/// ```ignore
/// RowMutation::new("com.example/").set("contents", "html", None, page).delete_family("anchor")
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RowMutation {
    row: Bytes,
    mutations: Vec<data::Mutation>,
    bytes: usize,
    repeatable: bool,
}

impl RowMutation {
    /// No change yet to `row`.
    pub fn new(row: impl Into<Bytes>) -> RowMutation {
        let row = row.into();
        RowMutation { bytes: row.len(), row, mutations: Vec::new(), repeatable: true }
    }

    /// Writes a cell. `None` asks for the server's time; a request with such a cell is not
    /// repeated by itself when its outcome is unknown, because it could leave two cells.
    pub fn set(
        self,
        family: &str,
        qualifier: impl Into<Bytes>,
        at: Option<Timestamp>,
        value: impl Into<Bytes>,
    ) -> RowMutation {
        let cell = data::mutation::SetCell {
            family_name: family.to_owned(),
            column_qualifier: qualifier.into(),
            timestamp_micros: at.map_or(SERVER_TIME, Timestamp::micros),
            value: value.into(),
        };
        let bytes = family.len() + cell.column_qualifier.len() + cell.value.len();
        let mut next = self.with(data::mutation::Mutation::SetCell(cell), bytes);
        next.repeatable &= at.is_some();
        next
    }

    /// Adds a number to a cell of an aggregate family. The request is not repeated by itself when
    /// its outcome is unknown, because it could count twice.
    pub fn add_to_cell(
        self,
        family: &str,
        qualifier: impl Into<Bytes>,
        at: Timestamp,
        number: i64,
    ) -> RowMutation {
        use data::value::Kind;
        let value = |kind| Some(data::Value { kind: Some(kind), r#type: None });
        let qualifier = qualifier.into();
        let bytes = family.len() + qualifier.len();
        let add = data::mutation::AddToCell {
            family_name: family.to_owned(),
            column_qualifier: value(Kind::RawValue(qualifier)),
            timestamp: value(Kind::RawTimestampMicros(at.micros())),
            input: value(Kind::IntValue(number)),
        };
        let mut next = self.with(data::mutation::Mutation::AddToCell(add), bytes);
        next.repeatable = false;
        next
    }

    /// Deletes the cells of one column whose timestamp is in `range`.
    pub fn delete_cells(
        self,
        family: &str,
        qualifier: impl Into<Bytes>,
        range: TimestampRange,
    ) -> RowMutation {
        let delete = data::mutation::DeleteFromColumn {
            family_name: family.to_owned(),
            column_qualifier: qualifier.into(),
            time_range: Some(data::TimestampRange {
                start_timestamp_micros: range.start.micros(),
                end_timestamp_micros: range.end.map_or(0, Timestamp::micros),
            }),
        };
        let bytes = family.len() + delete.column_qualifier.len();
        self.with(data::mutation::Mutation::DeleteFromColumn(delete), bytes)
    }

    /// Deletes the row's cells in one family.
    pub fn delete_family(self, family: &str) -> RowMutation {
        let delete = data::mutation::DeleteFromFamily { family_name: family.to_owned() };
        let bytes = family.len();
        self.with(data::mutation::Mutation::DeleteFromFamily(delete), bytes)
    }

    /// Deletes the whole row.
    pub fn delete_row(self) -> RowMutation {
        let delete = data::mutation::DeleteFromRow {};
        self.with(data::mutation::Mutation::DeleteFromRow(delete), 0)
    }

    fn with(mut self, mutation: data::mutation::Mutation, bytes: usize) -> RowMutation {
        /// What the wire adds around each mutation, about.
        const AROUND_BYTES: usize = 32;
        self.bytes += bytes + AROUND_BYTES;
        self.mutations.push(data::Mutation { mutation: Some(mutation), ..Default::default() });
        self
    }

    /// The row's key.
    pub fn row(&self) -> &Bytes {
        &self.row
    }

    /// How many changes it has.
    pub fn mutations(&self) -> usize {
        self.mutations.len()
    }

    /// Bytes that it takes in a request, approximately.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Does applying it twice leave what applying it once does?
    pub(crate) fn repeatable(&self) -> bool {
        self.repeatable
    }

    pub(crate) fn request(&self, table_name: &str) -> data::MutateRowRequest {
        data::MutateRowRequest {
            table_name: table_name.to_owned(),
            row_key: self.row.clone(),
            mutations: self.mutations.clone(),
            ..Default::default()
        }
    }

    pub(crate) fn entry(&self) -> data::mutate_rows_request::Entry {
        data::mutate_rows_request::Entry {
            row_key: self.row.clone(),
            mutations: self.mutations.clone(),
            idempotency: None,
        }
    }
}
