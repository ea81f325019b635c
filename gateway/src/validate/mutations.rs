//! Lists of mutations: all of a row's list is checked before any of it goes on, so that a list
//! with an error changes nothing.

use client::{Error, Result};
use proto::google::bigtable::v2;
use proto::google::bigtable::v2::mutation::{
    AddToCell, DeleteFromColumn, MergeToCell, Mutation as Kind, SetCell, TimestampOrigin,
};
use proto::google::bigtable::v2::value;
use types::limits::{MUTATIONS_MAX, QUALIFIER_BYTES_MAX, VALUE_BYTES_MAX};
use types::{
    ColumnFamily, ErrorKind, Granularity, Mutation, RowMutations, TableSchema, Timestamp,
    TimestampRange, key,
};

use bytes::Bytes;

use super::{row_key, too_long};

/// What stands for "the server's time" in a SetCell.
const SERVER_TIME: i64 = -1;

/// Checks lists of mutations against one schema. Remembers the last family, since neighbours
/// mostly share it.
pub(crate) struct Checker<'a> {
    schema: &'a TableSchema,
    last: Option<&'a ColumnFamily>,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(schema: &'a TableSchema) -> Checker<'a> {
        Checker { schema, last: None }
    }

    /// The mutations of one row.
    pub(crate) fn row(&mut self, row: &Bytes, mutations: &[v2::Mutation]) -> Result<RowMutations> {
        row_key(row)?;
        if mutations.is_empty() {
            return Err(Error::invalid("No mutations provided"));
        }
        count(mutations.len())?;
        let mut checked = Vec::with_capacity(mutations.len());
        for (place, mutation) in mutations.iter().enumerate() {
            let mutation = self.mutation(mutation);
            checked.push(mutation.map_err(|error| at_place(place, &error))?);
        }
        Ok(RowMutations { row: row.clone(), mutations: checked })
    }

    fn mutation(&mut self, mutation: &v2::Mutation) -> Result<Mutation> {
        match &mutation.mutation {
            Some(Kind::SetCell(set)) => self.set_cell(set, mutation.timestamp_origin),
            Some(Kind::DeleteFromColumn(delete)) => self.delete_from_column(delete),
            Some(Kind::DeleteFromFamily(delete)) => {
                Ok(Mutation::DeleteFamily { family: self.family(&delete.family_name)?.id })
            }
            Some(Kind::DeleteFromRow(_)) => Ok(Mutation::DeleteRow),
            Some(Kind::AddToCell(add)) => self.add_to_cell(add, mutation.timestamp_origin),
            Some(Kind::MergeToCell(merge)) => self.merge_to_cell(merge, mutation.timestamp_origin),
            None => Err(Error::invalid("a mutation must be set")),
        }
    }

    fn set_cell(&mut self, set: &SetCell, origin: i32) -> Result<Mutation> {
        let family = self.family(&set.family_name)?;
        if family.aggregate.is_some() {
            let name = &set.family_name;
            let text = format!("SetCell cannot write to {name}, a family of an aggregate type");
            return Err(Error::invalid(text));
        }
        let family = family.id;
        qualifier(&set.column_qualifier)?;
        if set.value.len() > VALUE_BYTES_MAX {
            return Err(too_long("A cell's value", set.value.len(), VALUE_BYTES_MAX));
        }
        Ok(Mutation::SetCell {
            family,
            qualifier: set.column_qualifier.clone(),
            timestamp: self.timestamp(set.timestamp_micros, origin)?,
            value: set.value.clone(),
        })
    }

    fn add_to_cell(&mut self, add: &AddToCell, origin: i32) -> Result<Mutation> {
        let input = add.input.as_ref().and_then(|input| input.kind.as_ref());
        let Some(value::Kind::IntValue(operand)) = input else {
            self.aggregate_family(&add.family_name, "AddToCell")?;
            return Err(Error::invalid("AddToCell: input must be an int_value"));
        };
        let at = (add.column_qualifier.as_ref(), add.timestamp.as_ref(), origin);
        self.operand("AddToCell", &add.family_name, at, *operand)
    }

    /// The state of a sum, a least or a greatest is what adding it once does.
    fn merge_to_cell(&mut self, merge: &MergeToCell, origin: i32) -> Result<Mutation> {
        let state = match merge.input.as_ref().and_then(|input| input.kind.as_ref()) {
            Some(value::Kind::RawValue(raw) | value::Kind::BytesValue(raw)) => key::operand(raw),
            _ => None,
        };
        let Some(operand) = state else {
            self.aggregate_family(&merge.family_name, "MergeToCell")?;
            let text = "MergeToCell: input must be a raw_value of 8 bytes, a big-endian number";
            return Err(Error::invalid(text));
        };
        let at = (merge.column_qualifier.as_ref(), merge.timestamp.as_ref(), origin);
        self.operand("MergeToCell", &merge.family_name, at, operand)
    }

    fn operand(
        &mut self,
        what: &str,
        family: &str,
        (column, timestamp, origin): (Option<&v2::Value>, Option<&v2::Value>, i32),
        operand: i64,
    ) -> Result<Mutation> {
        let family = self.aggregate_family(family, what)?.id;
        let column = match column.and_then(|column| column.kind.as_ref()) {
            Some(value::Kind::RawValue(raw) | value::Kind::BytesValue(raw)) => raw.clone(),
            _ => {
                let text = format!("{what}: column_qualifier must be a raw_value");
                return Err(Error::invalid(text));
            }
        };
        qualifier(&column)?;
        let micros = match timestamp.and_then(|timestamp| timestamp.kind.as_ref()) {
            Some(value::Kind::RawTimestampMicros(micros)) => *micros,
            _ => {
                let text = format!("{what}: timestamp must be raw_timestamp_micros");
                return Err(Error::invalid(text));
            }
        };
        let timestamp = self.timestamp(micros, origin)?;
        Ok(Mutation::AddToCell { family, qualifier: column, timestamp, operand })
    }

    /// A cell's timestamp. One that the client's library has made up is rounded down to the
    /// table's granularity; one that its user has chosen must have it.
    fn timestamp(&self, micros: i64, origin: i32) -> Result<Option<Timestamp>> {
        if micros == SERVER_TIME {
            return Ok(None);
        }
        let granularity = self.schema.granularity;
        if origin == TimestampOrigin::ClientAutoGenerated as i32 {
            let at = not_negative(micros)?;
            return Ok(Some(at.truncated(granularity.micros())));
        }
        aligned(micros, granularity).map(Some)
    }

    fn delete_from_column(&mut self, delete: &DeleteFromColumn) -> Result<Mutation> {
        let family = self.family(&delete.family_name)?.id;
        qualifier(&delete.column_qualifier)?;
        let range = match &delete.time_range {
            None => TimestampRange::ALL,
            Some(range) => self.time_range(range)?,
        };
        Ok(Mutation::DeleteCells { family, qualifier: delete.column_qualifier.clone(), range })
    }

    /// `[start, end)`; an end of 0 is none.
    fn time_range(&self, range: &v2::TimestampRange) -> Result<TimestampRange> {
        let granularity = self.schema.granularity;
        let start = aligned(range.start_timestamp_micros, granularity)?;
        let end = aligned(range.end_timestamp_micros, granularity)?;
        let end = (end != Timestamp::ZERO).then_some(end);
        if end.is_some_and(|end| start >= end) {
            return Err(Error::invalid(format!(
                "start_timestamp_micros {} must be less than end_timestamp_micros {}",
                range.start_timestamp_micros, range.end_timestamp_micros
            )));
        }
        Ok(TimestampRange { start, end })
    }

    fn family(&mut self, name: &str) -> Result<&'a ColumnFamily> {
        if let Some(last) = self.last
            && last.name == name
        {
            return Ok(last);
        }
        let family = self.schema.family(name).ok_or_else(|| {
            Error::not_found(format!("Requested column family not found: {name}"))
        })?;
        self.last = Some(family);
        Ok(family)
    }

    fn aggregate_family(&mut self, name: &str, what: &str) -> Result<&'a ColumnFamily> {
        let family = self.family(name)?;
        if family.aggregate.is_none() {
            return Err(Error::invalid(format!(
                "{what} needs a family of an aggregate type; {name} is not of one"
            )));
        }
        Ok(family)
    }
}

// Requests are counted before they are decoded too, so that none with more gets here.
const _: () = assert!(MUTATIONS_MAX == proto::limits::MUTATIONS_MAX);

/// Checks how many mutations a request has.
pub(crate) fn count(mutations: usize) -> Result<()> {
    if mutations > MUTATIONS_MAX {
        return Err(Error::invalid(format!(
            "{mutations} mutations in one request, more than {MUTATIONS_MAX}"
        )));
    }
    Ok(())
}

fn qualifier(qualifier: &[u8]) -> Result<()> {
    if qualifier.len() > QUALIFIER_BYTES_MAX {
        let bytes = qualifier.len();
        return Err(too_long("A column qualifier", bytes, QUALIFIER_BYTES_MAX));
    }
    Ok(())
}

fn not_negative(micros: i64) -> Result<Timestamp> {
    Timestamp::from_micros(micros)
        .ok_or_else(|| Error::invalid(format!("Invalid timestamp {micros}: it is negative")))
}

fn aligned(micros: i64, granularity: Granularity) -> Result<Timestamp> {
    let at = not_negative(micros)?;
    let step = granularity.micros();
    if at.truncated(step) != at {
        return Err(Error::invalid(format!(
            "Timestamp granularity mismatch. Expected a multiple of {step} (millisecond \
             granularity), but got {micros}."
        )));
    }
    Ok(at)
}

fn at_place(place: usize, error: &Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => error.clone(),
        kind => Error::new(kind, format!("Error in element #{place}: {}", error.message())),
    }
}
