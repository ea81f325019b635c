//! A look at a request before it is decoded.
//!
//! Decoded messages can be two hundred times as big as their bytes: an empty mutation has two
//! bytes on the wire and hundreds in memory. So what may stand in a request many times is counted
//! first, on the bytes, without keeping anything; a request with too much of it is never decoded.
//!
//! Only fields named by a [`Bound`] are looked into. Bytes that are no message are left to the
//! decoder, if they are not met on the way.

use crate::google::bigtable::admin::v2 as admin;
use crate::google::bigtable::v2 as data;
use crate::limits;
use crate::tepui::admin::v1 as own;

/// Bytes of types in the values of aggregate mutations: a server needs none.
const VALUE_TYPE_BYTES_MAX: usize = 1 << 20;
/// Bytes of arrays in the values of aggregate mutations: none is legal.
const VALUE_ARRAY_BYTES_MAX: usize = 4 << 10;
/// Bytes of a table's description, or of a change to it.
const SCHEMA_BYTES_MAX: usize = 1 << 20;
/// Row keys that a table is divided at, doubles included.
const SPLITS_MAX: usize = 10_000;

/// The most that there may be of something in one request.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Field numbers from the request down.
    path: &'static [u32],
    /// What stands there, in words.
    what: &'static str,
    most: Most,
    /// What is counted below the path, if there is anything.
    within: &'static [Bound],
}

#[derive(Clone, Copy, Debug)]
enum Most {
    Fields(usize),
    Bytes(usize),
}

const fn fields(path: &'static [u32], most: usize, what: &'static str) -> Bound {
    Bound { path, what, most: Most::Fields(most), within: &[] }
}

const fn bytes(path: &'static [u32], most: usize, what: &'static str) -> Bound {
    Bound { path, what, most: Most::Bytes(most), within: &[] }
}

/// Mutations of aggregate cells: their values can be deep, and big when decoded.
const fn aggregates(path: &'static [u32], what: &'static str) -> Bound {
    Bound { path, what, most: Most::Fields(limits::MUTATIONS_MAX), within: AGGREGATE_VALUES }
}

/// Column qualifier, timestamp and input of a mutation of an aggregate cell.
const AGGREGATE_VALUES: &[Bound] = &[
    bytes(&[2, 4], VALUE_ARRAY_BYTES_MAX, "arrays"),
    bytes(&[2, 7], VALUE_TYPE_BYTES_MAX, "types"),
    bytes(&[3, 4], VALUE_ARRAY_BYTES_MAX, "arrays"),
    bytes(&[3, 7], VALUE_TYPE_BYTES_MAX, "types"),
    bytes(&[4, 4], VALUE_ARRAY_BYTES_MAX, "arrays"),
    bytes(&[4, 7], VALUE_TYPE_BYTES_MAX, "types"),
];

/// A request that is looked at before it is decoded.
pub trait Admission {
    /// What is counted in it.
    const BOUNDS: &'static [Bound] = &[];

    /// Looks at an encoded request.
    ///
    /// # Errors
    /// A text that says what there is too much of, or that the bytes are no message.
    fn admit(encoded: &[u8]) -> Result<(), String> {
        Self::BOUNDS.iter().try_for_each(|bound| bound.check(encoded, &[]))
    }
}

impl Bound {
    /// Counts at its path below `above`.
    fn check(&self, encoded: &[u8], above: &[u32]) -> Result<(), String> {
        let path = [above, self.path].concat();
        let mut tally = Tally::default();
        tally.count(encoded, &path).ok_or("the request is not a message of its type")?;
        let (found, most, unit) = match self.most {
            Most::Fields(most) => (tally.fields, most, ""),
            Most::Bytes(most) => (tally.bytes, most, " bytes of"),
        };
        if found > most {
            let what = self.what;
            return Err(format!("{found}{unit} {what} in one request, more than {most}"));
        }
        if found == 0 {
            return Ok(());
        }
        self.within.iter().try_for_each(|bound| bound.check(encoded, &path))
    }
}

impl Admission for data::MutateRowRequest {
    const BOUNDS: &'static [Bound] = &[
        fields(&[3], limits::MUTATIONS_MAX, "mutations"),
        aggregates(&[3, 5], "AddToCell"),
        aggregates(&[3, 6], "MergeToCell"),
    ];
}

impl Admission for data::MutateRowsRequest {
    const BOUNDS: &'static [Bound] = &[
        fields(&[2], limits::MUTATIONS_MAX, "entries"),
        fields(&[2, 2], limits::MUTATIONS_MAX, "mutations"),
        aggregates(&[2, 2, 5], "AddToCell"),
        aggregates(&[2, 2, 6], "MergeToCell"),
    ];
}

impl Admission for data::ReadRowsRequest {
    const BOUNDS: &'static [Bound] = &[
        fields(&[2, 1], limits::ROW_KEYS_MAX, "row keys"),
        fields(&[2, 2], limits::ROW_KEYS_MAX, "row ranges"),
        bytes(&[3], limits::FILTER_BYTES_MAX, "filter"),
    ];
}

impl Admission for data::SampleRowKeysRequest {}
impl Admission for data::PingAndWarmRequest {}

impl Admission for admin::CreateTableRequest {
    const BOUNDS: &'static [Bound] =
        &[bytes(&[3], SCHEMA_BYTES_MAX, "table"), fields(&[4], SPLITS_MAX, "initial splits")];
}

impl Admission for admin::ModifyColumnFamiliesRequest {
    const BOUNDS: &'static [Bound] = &[bytes(&[2], SCHEMA_BYTES_MAX, "modifications")];
}

impl Admission for admin::DeleteTableRequest {}
impl Admission for admin::DropRowRangeRequest {}
impl Admission for admin::GetTableRequest {}
impl Admission for admin::ListTablesRequest {}

impl Admission for own::CreateTableRequest {
    const BOUNDS: &'static [Bound] = &[
        bytes(&[1, 3], SCHEMA_BYTES_MAX, "table"),
        fields(&[1, 4], SPLITS_MAX, "initial splits"),
        bytes(&[2], SCHEMA_BYTES_MAX, "locality groups"),
    ];
}

impl Admission for own::SetLocalityGroupsRequest {
    const BOUNDS: &'static [Bound] = &[bytes(&[2], SCHEMA_BYTES_MAX, "locality groups")];
}

impl Admission for own::GetLayoutRequest {}
impl Admission for own::ScrubTableRequest {}

impl Admission for own::SplitTableRequest {
    const BOUNDS: &'static [Bound] = &[fields(&[2], SPLITS_MAX, "row keys")];
}

impl Admission for own::CompactTableRequest {}
impl Admission for own::FlushTableRequest {}
impl Admission for own::ListRangesRequest {}

/// How much stands at a path.
#[derive(Default)]
struct Tally {
    fields: usize,
    bytes: usize,
}

impl Tally {
    /// Counts what stands in `message` at `path`. `None` when the bytes are no message.
    fn count(&mut self, message: &[u8], path: &[u32]) -> Option<()> {
        let (&wanted, inner) = path.split_first()?;
        let mut rest = message;
        while !rest.is_empty() {
            let key = varint(&mut rest)?;
            let (number, wire_type) = (key >> 3, key & 7);
            let length = match wire_type {
                0 => {
                    varint(&mut rest)?;
                    continue;
                }
                1 => 8,
                2 => usize::try_from(varint(&mut rest)?).ok()?,
                5 => 4,
                _ => return None,
            };
            let (content, after) = rest.split_at_checked(length)?;
            rest = after;
            if number != u64::from(wanted) || wire_type != 2 {
                continue;
            }
            if inner.is_empty() {
                self.fields += 1;
                self.bytes += content.len();
            } else {
                self.count(content, inner)?;
            }
        }
        Some(())
    }
}

/// Takes a number of at most ten bytes off the front.
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for place in 0..10 {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    fn mutate_rows(entries: usize, mutations: usize) -> Vec<u8> {
        let entry = data::mutate_rows_request::Entry {
            row_key: vec![b'r'; 300].into(),
            mutations: vec![data::Mutation::default(); mutations],
            idempotency: None,
        };
        let request = data::MutateRowsRequest {
            table_name: "t".to_owned(),
            entries: vec![entry; entries],
            ..Default::default()
        };
        request.encode_to_vec()
    }

    #[test]
    fn mutations_are_counted_over_all_entries() {
        for (entries, mutations) in [(1, 100_000), (1000, 100), (100_000, 1), (0, 0)] {
            data::MutateRowsRequest::admit(&mutate_rows(entries, mutations)).unwrap();
        }
        for (entries, mutations) in [(1, 100_001), (1001, 100), (100_001, 0)] {
            data::MutateRowsRequest::admit(&mutate_rows(entries, mutations)).unwrap_err();
        }
    }

    #[test]
    fn the_values_of_aggregates_are_looked_into() {
        use data::value::Kind;
        let add = |input: data::Value| {
            let add = data::mutation::AddToCell { input: Some(input), ..Default::default() };
            let mutation = data::mutation::Mutation::AddToCell(add);
            let mutations = vec![data::Mutation { mutation: Some(mutation), timestamp_origin: 0 }];
            data::MutateRowRequest { mutations, ..Default::default() }.encode_to_vec()
        };
        let value = |kind| data::Value { kind: Some(kind), r#type: None };
        data::MutateRowRequest::admit(&add(value(Kind::IntValue(7)))).unwrap();
        let array = data::ArrayValue { values: vec![data::Value::default(); 10_000] };
        let text = data::MutateRowRequest::admit(&add(value(Kind::ArrayValue(array))));
        assert_eq!(text.unwrap_err(), "20000 bytes of arrays in one request, more than 4096");
    }

    #[test]
    fn a_filter_past_the_limit_is_not_decoded() {
        let with_regex = |bytes: usize| {
            let regex = data::row_filter::Filter::ValueRegexFilter(vec![b'a'; bytes].into());
            let filter = data::RowFilter { filter: Some(regex) };
            let request = data::ReadRowsRequest { filter: Some(filter), ..Default::default() };
            request.encode_to_vec()
        };
        data::ReadRowsRequest::admit(&with_regex(20_000)).unwrap();
        let text = data::ReadRowsRequest::admit(&with_regex(20_480)).unwrap_err();
        assert_eq!(text, "20484 bytes of filter in one request, more than 20480");
    }

    #[test]
    fn cut_bytes_are_refused_or_left_to_the_decoder() {
        let whole = mutate_rows(3, 2);
        for length in 0..whole.len() {
            let cut = &whole[..length];
            let admitted = data::MutateRowsRequest::admit(cut).is_ok();
            let decodes = data::MutateRowsRequest::decode(cut).is_ok();
            assert!(admitted || !decodes, "length {length}");
        }
        data::MutateRowRequest::admit(&[0xff; 20]).unwrap_err();
        data::MutateRowRequest::admit(&[0x1a, 0xff, 0xff, 0xff, 0xff, 0x7f]).unwrap_err();
        data::MutateRowRequest::admit(&[0x1b]).unwrap_err();
    }
}
