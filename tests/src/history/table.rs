//! The table that histories create: families without rules, families with rules, and sums.

use bytes::Bytes;
use client::{NewFamily, NewGroup, NewTable};
use types::{
    Aggregate, Bloom, Compression, Granularity, GroupSettings, Mutation, Retention, TableName,
    TableSchema, Timestamp, TimestampRange,
};

use super::plan::{
    AGE_MAX_MICROS, AGED_FAMILY, FAMILIES, SPLITS, SUM_FAMILY, TABLES, VERSIONS_FAMILY,
    VERSIONS_MAX,
};
use crate::model::{Change, Model};
use crate::state::Rule;

/// The full name of a table of a history.
pub fn table_name(table: &str) -> TableName {
    TableName { instance: "projects/p/instances/i".to_owned(), table: table.to_owned() }
}

/// A family of this name, without a rule unless the name stands for one.
pub fn new_family(name: &str) -> NewFamily {
    let retention = rule(name).map(|rule| match rule {
        Rule::Versions(most) => Retention::MaxVersions(u32::try_from(most).expect("a few")),
        Rule::Age(most) => Retention::MaxAge(most),
    });
    let aggregate = (name == SUM_FAMILY).then_some(Aggregate::Sum);
    NewFamily { name: name.to_owned(), retention, aggregate }
}

fn rule(family: &str) -> Option<Rule> {
    match family {
        VERSIONS_FAMILY => Some(Rule::Versions(VERSIONS_MAX)),
        AGED_FAMILY => Some(Rule::Age(AGE_MAX_MICROS)),
        _ => None,
    }
}

/// The second family and an aged one, stored apart and unlike the others.
pub fn second_group() -> NewGroup {
    let settings = GroupSettings {
        block_bytes: Some(1 << 10),
        compression: Some(Compression::None),
        bloom: Bloom::Row,
        in_memory: true,
    };
    let families = vec![FAMILIES[1].to_owned(), AGED_FAMILY.to_owned()];
    NewGroup { name: "apart".to_owned(), families, settings }
}

/// The table that histories create under this name.
pub fn new_table(table: &str) -> NewTable {
    NewTable {
        name: table_name(table),
        families: FAMILIES.into_iter().map(new_family).collect(),
        groups: if table == TABLES[0] { vec![second_group()] } else { Vec::new() },
        splits: SPLITS.into_iter().map(|at| Bytes::from_static(at.as_bytes())).collect(),
        granularity: Granularity::Micros,
    }
}

/// Puts the table into the model.
pub fn note_new_table(model: &mut Model, table: &str) {
    model.create_table(table, &FAMILIES);
    for family in FAMILIES {
        if let Some(rule) = rule(family) {
            model.set_rule(table, family, rule);
        }
    }
}

/// The change as the store takes it; `None` when its family is not in the schema.
pub fn mutation(change: &Change, schema: &TableSchema) -> Option<Mutation> {
    let id = |family: &str| schema.family(family).map(|family| family.id);
    let at = |micros| Timestamp::from_micros(micros).expect("plans have no negative times");
    Some(match change {
        Change::Set { family, qualifier, timestamp, value } => Mutation::SetCell {
            family: id(family)?,
            qualifier: qualifier.clone(),
            timestamp: Some(at(*timestamp)),
            value: value.clone(),
        },
        Change::Add { family, qualifier, timestamp, operand } => Mutation::AddToCell {
            family: id(family)?,
            qualifier: qualifier.clone(),
            timestamp: Some(at(*timestamp)),
            operand: *operand,
        },
        Change::DeleteCells { family, qualifier, start, end } => Mutation::DeleteCells {
            family: id(family)?,
            qualifier: qualifier.clone(),
            range: TimestampRange { start: at(*start), end: (*end != 0).then(|| at(*end)) },
        },
        Change::DeleteFamily { family } => Mutation::DeleteFamily { family: id(family)? },
        Change::DeleteRow => Mutation::DeleteRow,
    })
}
