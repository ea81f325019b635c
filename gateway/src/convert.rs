//! Schemas as the admin API has them, and back.

use std::collections::BTreeMap;

use client::{Error, FamilyChange, NewFamily, Result};
use prost::Message;
use proto::google::bigtable::admin::v2;
use proto::google::bigtable::admin::v2::gc_rule::{Intersection, Rule, Union};
use proto::google::bigtable::admin::v2::modify_column_families_request::Modification;
use proto::google::bigtable::admin::v2::modify_column_families_request::modification::Mod;
use proto::google::bigtable::admin::v2::table::{TimestampGranularity, View};
use proto::google::bigtable::admin::v2::r#type::aggregate::Aggregator;
use proto::google::bigtable::admin::v2::r#type::{self, Kind, int64};
use types::limits::{FAMILIES_MAX, RETENTION_BYTES_MAX};
use types::{Aggregate, Granularity, Retention, TableSchema, validate_family_name};

use crate::validate::{too_long, unimplemented};

const MICROS_PER_SECOND: i64 = 1_000_000;
/// The longest duration on the wire: 10,000 years.
const SECONDS_MAX: i64 = 315_576_000_000;

/// A table as `view` shows it.
pub(crate) fn table(schema: &TableSchema, view: View) -> v2::Table {
    let mut table = v2::Table { name: schema.name.to_string(), ..Default::default() };
    if matches!(view, View::SchemaView | View::Full | View::Unspecified) {
        let granularity = match schema.granularity {
            Granularity::Millis => TimestampGranularity::Millis,
            Granularity::Micros => TimestampGranularity::Micros,
        };
        table.granularity = granularity as i32;
        table.column_families = families(schema);
    }
    table
}

fn families(schema: &TableSchema) -> BTreeMap<String, v2::ColumnFamily> {
    let family = |declared: &types::ColumnFamily| v2::ColumnFamily {
        gc_rule: Some(v2::GcRule { rule: declared.retention.as_ref().map(rule) }),
        value_type: declared.aggregate.map(value_type),
    };
    let named = schema.families.iter().map(|declared| (declared.name.clone(), family(declared)));
    named.collect()
}

/// The type of an aggregate family: numbers of 64 bits go in, and their big-endian bytes are kept.
fn value_type(aggregate: Aggregate) -> v2::Type {
    let aggregator = match aggregate {
        Aggregate::Sum => Aggregator::Sum(r#type::aggregate::Sum {}),
        Aggregate::Min => Aggregator::Min(r#type::aggregate::Min {}),
        Aggregate::Max => Aggregator::Max(r#type::aggregate::Max {}),
    };
    let big_endian = int64::encoding::BigEndianBytes { bytes_type: None };
    let encoding = int64::encoding::Encoding::BigEndianBytes(big_endian);
    let number = v2::Type {
        kind: Some(Kind::Int64Type(r#type::Int64 {
            encoding: Some(int64::Encoding { encoding: Some(encoding) }),
        })),
    };
    v2::Type {
        kind: Some(Kind::AggregateType(Box::new(r#type::Aggregate {
            input_type: Some(Box::new(number.clone())),
            state_type: Some(Box::new(number)),
            aggregator: Some(aggregator),
        }))),
    }
}

/// How a family that is created with this type folds; `None`: its cells are put.
fn aggregate(value_type: Option<&v2::Type>) -> Result<Option<Aggregate>> {
    let Some(kind) = value_type.and_then(|value_type| value_type.kind.as_ref()) else {
        return Ok(None);
    };
    let Kind::AggregateType(declared) = kind else {
        return Err(unimplemented("A value type of a column family that is no aggregate"));
    };
    let aggregate = match &declared.aggregator {
        Some(Aggregator::Sum(_)) => Aggregate::Sum,
        Some(Aggregator::Min(_)) => Aggregate::Min,
        Some(Aggregator::Max(_)) => Aggregate::Max,
        Some(Aggregator::HllppUniqueCount(_)) => {
            return Err(unimplemented("An aggregate of type hllpp_unique_count"));
        }
        None => return Err(Error::invalid("an aggregate type needs an aggregator")),
    };
    let input = declared.input_type.as_deref().and_then(|input| input.kind.as_ref());
    match input {
        Some(Kind::Int64Type(number)) => big_endian(number).map(|()| Some(aggregate)),
        Some(_) => Err(Error::invalid("the input of an aggregate must be of type int64")),
        None => Err(Error::invalid("an aggregate type needs an input type")),
    }
}

/// Numbers are kept as their big-endian bytes, which is also what no encoding means.
fn big_endian(number: &r#type::Int64) -> Result<()> {
    let encoding = number.encoding.as_ref().and_then(|encoding| encoding.encoding.as_ref());
    match encoding {
        None | Some(int64::encoding::Encoding::BigEndianBytes(_)) => Ok(()),
        Some(int64::encoding::Encoding::OrderedCodeBytes(_)) => {
            Err(Error::invalid("the input of an aggregate must be encoded as big_endian_bytes"))
        }
    }
}

fn rule(retention: &Retention) -> Rule {
    let rules = |parts: &[Retention]| {
        let wrapped = parts.iter().map(|part| v2::GcRule { rule: Some(rule(part)) });
        wrapped.collect()
    };
    match retention {
        Retention::MaxVersions(versions) => {
            Rule::MaxNumVersions(i32::try_from(*versions).unwrap_or(i32::MAX))
        }
        Retention::MaxAge(micros) => Rule::MaxAge(prost_types::Duration {
            seconds: micros / MICROS_PER_SECOND,
            nanos: i32::try_from(micros % MICROS_PER_SECOND * 1000).unwrap_or(0),
        }),
        Retention::Intersection(parts) => Rule::Intersection(Intersection { rules: rules(parts) }),
        Retention::Union(parts) => Rule::Union(Union { rules: rules(parts) }),
    }
}

/// The families that a table is created with, in the order of their names.
pub(crate) fn new_families(
    families: &BTreeMap<String, v2::ColumnFamily>,
) -> Result<Vec<NewFamily>> {
    if families.len() > FAMILIES_MAX {
        return Err(Error::invalid(format!(
            "{} column families, more than {FAMILIES_MAX}",
            families.len()
        )));
    }
    families.iter().map(|(name, family)| new_family(name, family)).collect()
}

fn new_family(name: &str, family: &v2::ColumnFamily) -> Result<NewFamily> {
    validate_family_name(name).map_err(Error::invalid)?;
    let aggregate = aggregate(family.value_type.as_ref())?;
    let retention = retention(family.gc_rule.as_ref())?;
    Ok(NewFamily { name: name.to_owned(), retention, aggregate })
}

/// The granularity that a table is created with.
pub(crate) fn granularity(wire: i32) -> Result<Granularity> {
    match TimestampGranularity::try_from(wire) {
        Ok(TimestampGranularity::Unspecified | TimestampGranularity::Millis) => {
            Ok(Granularity::Millis)
        }
        Ok(TimestampGranularity::Micros) => Ok(Granularity::Micros),
        Err(_) => Err(Error::invalid(format!("invalid timestamp granularity {wire}"))),
    }
}

/// A rule as retention. `None`, which keeps all, when it says nothing.
fn retention(rule: Option<&v2::GcRule>) -> Result<Option<Retention>> {
    let Some(rule) = rule else {
        return Ok(None);
    };
    let bytes = rule.encoded_len();
    if bytes > RETENTION_BYTES_MAX {
        return Err(too_long("A GC rule", bytes, RETENTION_BYTES_MAX));
    }
    rule.rule.as_ref().map(retention_of).transpose()
}

fn retention_of(rule: &Rule) -> Result<Retention> {
    match rule {
        Rule::MaxNumVersions(versions) => match u32::try_from(*versions) {
            Ok(versions) if versions > 0 => Ok(Retention::MaxVersions(versions)),
            _ => Err(Error::invalid(format!(
                "max_num_versions must be at least 1, but is {versions}"
            ))),
        },
        Rule::MaxAge(age) => max_age(age),
        Rule::Intersection(Intersection { rules }) => parts(rules).map(Retention::Intersection),
        Rule::Union(Union { rules }) => parts(rules).map(Retention::Union),
    }
}

fn parts(rules: &[v2::GcRule]) -> Result<Vec<Retention>> {
    if rules.is_empty() {
        let text = "a union or intersection of GC rules needs at least one rule";
        return Err(Error::invalid(text));
    }
    let part = |rule: &v2::GcRule| match &rule.rule {
        Some(rule) => retention_of(rule),
        None => Err(Error::invalid("a nested GC rule must be set")),
    };
    rules.iter().map(part).collect()
}

/// Computed by hand: prost's own conversion panics at the ends of what a client can send.
fn max_age(age: &prost_types::Duration) -> Result<Retention> {
    let whole = (0..=SECONDS_MAX).contains(&age.seconds);
    let micros = (whole && (0..1_000_000_000).contains(&age.nanos))
        .then(|| age.seconds * MICROS_PER_SECOND + i64::from(age.nanos / 1000));
    micros
        .filter(|micros| *micros >= 1000)
        .map(Retention::MaxAge)
        .ok_or_else(|| Error::invalid("max_age must be from one millisecond to 10,000 years"))
}

/// The steps of a change to a table's families, in the order of the request.
pub(crate) fn family_changes(modifications: &[Modification]) -> Result<Vec<FamilyChange>> {
    if modifications.is_empty() {
        return Err(Error::invalid("No modifications provided"));
    }
    // Each family may be dropped and created again in one request.
    let limit = 2 * FAMILIES_MAX;
    if modifications.len() > limit {
        return Err(Error::invalid(format!(
            "{} modifications in one request, more than {limit}",
            modifications.len()
        )));
    }
    modifications.iter().map(family_change).collect()
}

fn family_change(modification: &Modification) -> Result<FamilyChange> {
    let name = &modification.id;
    validate_family_name(name).map_err(Error::invalid)?;
    match &modification.r#mod {
        Some(Mod::Create(family)) => new_family(name, family).map(FamilyChange::Create),
        Some(Mod::Update(family)) => {
            only_the_gc_rule(modification.update_mask.as_ref())?;
            Ok(FamilyChange::SetRetention(NewFamily {
                name: name.clone(),
                retention: retention(family.gc_rule.as_ref())?,
                aggregate: None,
            }))
        }
        Some(Mod::Drop(true)) => Ok(FamilyChange::Drop(name.clone())),
        Some(Mod::Drop(false)) => Err(Error::invalid("drop must be true if set")),
        None => Err(Error::invalid(format!("no change is set for family {name}"))),
    }
}

/// No mask, or an empty one, means the GC rule: the one field that can change.
fn only_the_gc_rule(mask: Option<&prost_types::FieldMask>) -> Result<()> {
    let paths = mask.map(|mask| &mask.paths[..]).unwrap_or_default();
    match paths.iter().find(|path| *path != "gc_rule") {
        None => Ok(()),
        Some(path) => {
            Err(Error::invalid(format!("update_mask path {path:?}: only gc_rule can be updated")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(seconds: i64, nanos: i32) -> Rule {
        Rule::MaxAge(prost_types::Duration { seconds, nanos })
    }

    fn round_trip(wire: &Rule) -> Result<Rule> {
        let wrapped = v2::GcRule { rule: Some(wire.clone()) };
        let stored = retention(Some(&wrapped))?.expect("a rule is set");
        Ok(rule(&stored))
    }

    fn both(rules: Vec<Rule>) -> Rule {
        let wrap = |rule| v2::GcRule { rule: Some(rule) };
        Rule::Intersection(Intersection { rules: rules.into_iter().map(wrap).collect() })
    }

    #[test]
    fn rules_survive_the_way_there_and_back() {
        for rule in [
            Rule::MaxNumVersions(1),
            Rule::MaxNumVersions(i32::MAX),
            age(0, 1_000_000),
            age(86_400 * 365, 999_999_000),
            both(vec![Rule::MaxNumVersions(2), age(7, 0)]),
            Rule::Union(Union {
                rules: vec![v2::GcRule {
                    rule: Some(both(vec![age(3, 0), Rule::MaxNumVersions(9)])),
                }],
            }),
        ] {
            assert_eq!(round_trip(&rule).unwrap(), rule);
        }
    }

    #[test]
    fn aggregate_types_survive_the_way_there_and_back() {
        for kind in [Aggregate::Sum, Aggregate::Min, Aggregate::Max] {
            assert_eq!(aggregate(Some(&value_type(kind))).unwrap(), Some(kind));
        }
        assert_eq!(aggregate(Some(&v2::Type::default())).unwrap(), None);
    }

    #[test]
    fn senseless_rules_are_refused() {
        for rule in [
            Rule::MaxNumVersions(0),
            Rule::MaxNumVersions(-1),
            age(0, 999_999),
            age(-1, 0),
            age(i64::MAX, 0),
            age(i64::MIN, i32::MIN),
            both(Vec::new()),
            both(vec![Rule::MaxNumVersions(2); 200]),
        ] {
            round_trip(&rule).unwrap_err();
        }
    }
}
