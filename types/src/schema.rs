use std::fmt;

use crate::limits::{FAMILY_NAME_BYTES_MAX, TABLE_ID_BYTES_MAX};
use crate::{ErrorKind, FamilyId, Generation, TableId, Timestamp};

/// A table's full name, `projects/P/instances/I/tables/T`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TableName {
    /// `projects/P/instances/I`.
    pub instance: String,
    /// `T`.
    pub table: String,
}

impl TableName {
    /// Takes a full name apart.
    ///
    /// # Errors
    /// A text that says what is wrong with the name.
    pub fn parse(full: &str) -> Result<TableName, String> {
        let malformed =
            || format!("invalid table name {full:?}: expected projects/P/instances/I/tables/T");
        let (instance, table) = full.rsplit_once("/tables/").ok_or_else(malformed)?;
        validate_instance_name(instance)?;
        if table.contains('/') {
            return Err(malformed());
        }
        validate_table_id(table)?;
        Ok(TableName { instance: instance.to_owned(), table: table.to_owned() })
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/tables/{}", self.instance, self.table)
    }
}

/// Checks the form of `projects/P/instances/I`.
///
/// # Errors
/// A text that says what is wrong.
pub fn validate_instance_name(instance: &str) -> Result<(), String> {
    let parts: Vec<&str> = instance.split('/').collect();
    match parts[..] {
        ["projects", project, "instances", id] if !project.is_empty() && !id.is_empty() => Ok(()),
        _ => Err(format!("invalid instance name {instance:?}: expected projects/P/instances/I")),
    }
}

/// Checks a table id: 1 to 50 characters, `[_a-zA-Z0-9][-_.a-zA-Z0-9]*`.
///
/// # Errors
/// A text that says what is wrong.
pub fn validate_table_id(id: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let valid = id.chars().all(legal) && id.chars().next().is_some_and(first);
    if valid && id.len() <= TABLE_ID_BYTES_MAX {
        return Ok(());
    }
    Err(format!(
        "invalid table id {id:?}: it must have 1 to {TABLE_ID_BYTES_MAX} characters of \
         [-_.a-zA-Z0-9] and begin with a letter, a digit or _"
    ))
}

/// Checks a family name: 1 to 64 characters, `[-_.a-zA-Z0-9]+`.
///
/// # Errors
/// A text that says what is wrong.
pub fn validate_family_name(name: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.is_empty() && name.len() <= FAMILY_NAME_BYTES_MAX && name.chars().all(legal) {
        return Ok(());
    }
    Err(format!(
        "invalid column family name {name:?}: it must have 1 to {FAMILY_NAME_BYTES_MAX} \
         characters of [-_.a-zA-Z0-9]"
    ))
}

/// The step of a table's timestamps. Fixed when the table is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Granularity {
    /// Multiples of 1000 microseconds.
    #[default]
    Millis,
    /// Any microsecond.
    Micros,
}

impl Granularity {
    /// Microseconds between neighbouring timestamps.
    pub fn micros(self) -> i64 {
        match self {
            Granularity::Millis => 1000,
            Granularity::Micros => 1,
        }
    }

    /// The newest timestamp of a table with this granularity.
    pub fn newest(self) -> Timestamp {
        Timestamp::MAX.truncated(self.micros())
    }
}

/// Which cells of a column may be dropped (when a compaction meets them).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retention {
    /// All but the newest so many.
    MaxVersions(u32),
    /// Those whose timestamp is more than so many microseconds ago.
    MaxAge(i64),
    /// Those that every one of the rules would drop.
    Intersection(Vec<Retention>),
    /// Those that any of the rules would drop.
    Union(Vec<Retention>),
}

/// How the numbers that are added to one cell become its value: eight bytes, big-endian, signed.
/// The numbers are stored: frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Aggregate {
    /// Their sum, wrapping around at the ends of a 64-bit number.
    Sum = 1,
    /// The least.
    Min = 2,
    /// The greatest.
    Max = 3,
}

impl Aggregate {
    /// Reads a stored number.
    pub fn from_raw(raw: u8) -> Option<Aggregate> {
        match raw {
            1 => Some(Aggregate::Sum),
            2 => Some(Aggregate::Min),
            3 => Some(Aggregate::Max),
            _ => None,
        }
    }

    /// What two numbers make together. Order does not matter.
    pub fn fold(self, left: i64, right: i64) -> i64 {
        match self {
            Aggregate::Sum => left.wrapping_add(right),
            Aggregate::Min => left.min(right),
            Aggregate::Max => left.max(right),
        }
    }
}

/// A declared group of columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnFamily {
    /// Its stable ordinal: creation order, never reused.
    pub id: FamilyId,
    /// Its name.
    pub name: String,
    /// What may be dropped; `None` keeps all.
    pub retention: Option<Retention>,
    /// Its cells are aggregates, to which numbers are added; `None`: they are set. Fixed when the
    /// family is created.
    pub aggregate: Option<Aggregate>,
}

/// How blocks of cells are compressed. The numbers are stored: frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Compression {
    /// Not at all.
    None = 0,
    /// LZ4, where it pays.
    Lz4 = 1,
}

/// Which bloom filters a file has. The numbers are stored: frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Bloom {
    /// Of rows and of columns.
    #[default]
    RowAndColumn = 0,
    /// Of rows.
    Row = 1,
    /// None.
    None = 2,
}

/// How a locality group's files are written and kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GroupSettings {
    /// Target size of a block of cells, bytes; `None` leaves it to the server.
    pub block_bytes: Option<u32>,
    /// How blocks are compressed; `None` leaves it to the server.
    pub compression: Option<Compression>,
    /// Which bloom filters there are.
    pub bloom: Bloom,
    /// Blocks are kept in memory before all others, once they were read.
    pub in_memory: bool,
}

/// Families whose cells are stored together, apart from all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalityGroup {
    /// Its name; "default" is the group of every family that no other names.
    pub name: String,
    /// Which families, ascending; a family is in one group at most. Empty for "default".
    pub families: Vec<FamilyId>,
    /// How its files are written and kept.
    pub settings: GroupSettings,
}

/// What a table is: its identity and its declared families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSchema {
    /// Its identity.
    pub id: TableId,
    /// Its name.
    pub name: TableName,
    /// Grows with every change.
    pub generation: Generation,
    /// The step of its timestamps.
    pub granularity: Granularity,
    /// Its families in creation order, which is id order.
    pub families: Vec<ColumnFamily>,
    /// The id that the next family gets.
    pub next_family: FamilyId,
    /// Its locality groups. The default group stands here only if its settings are not the usual.
    pub groups: Vec<LocalityGroup>,
}

impl TableSchema {
    /// The family called `name`.
    pub fn family(&self, name: &str) -> Option<&ColumnFamily> {
        self.families.iter().find(|family| family.name == name)
    }

    /// The family with this id; `None` when it was dropped.
    pub fn family_by_id(&self, id: FamilyId) -> Option<&ColumnFamily> {
        let place = self.families.binary_search_by_key(&id, |family| family.id).ok()?;
        self.families.get(place)
    }

    /// Adds a family; the caller has validated its name.
    ///
    /// # Errors
    /// `AlreadyExists`.
    pub fn add_family(
        &mut self,
        name: &str,
        retention: Option<Retention>,
        aggregate: Option<Aggregate>,
    ) -> Result<FamilyId, ErrorKind> {
        if self.family(name).is_some() {
            return Err(ErrorKind::AlreadyExists);
        }
        let id = self.next_family;
        self.next_family = FamilyId::new(id.get() + 1);
        self.families.push(ColumnFamily { id, name: name.to_owned(), retention, aggregate });
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_and_checked() {
        let name = TableName::parse("projects/p/instances/i/tables/t.1-x_").unwrap();
        assert_eq!(
            (name.instance.as_str(), name.table.as_str()),
            ("projects/p/instances/i", "t.1-x_")
        );
        assert_eq!(name.to_string(), "projects/p/instances/i/tables/t.1-x_");
        for bad in [
            "t",
            "projects/p/instances/i/tables/",
            "projects/p/instances/i/tables/bad id!",
            "projects//instances/i/tables/t",
            "projects/p/instances/i/tables/-t",
            &format!("projects/p/instances/i/tables/{}", "t".repeat(51)),
        ] {
            TableName::parse(bad).unwrap_err();
        }
        validate_family_name("").unwrap_err();
        validate_family_name(&"f".repeat(65)).unwrap_err();
        validate_family_name("a:b").unwrap_err();
        validate_family_name("-_.9").unwrap();
    }
}
