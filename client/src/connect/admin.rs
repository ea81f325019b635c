use bytes::Bytes;
use proto::google::bigtable::admin::v2 as admin;
use proto::google::bigtable::v2 as data;
use types::{Aggregate, ErrorKind, Granularity, Retention, TableName};

use super::retry::{Attempts, read_again, write_again};
use super::{Client, Table};
use crate::{Error, FamilyChange, NewFamily, Result};

/// Pages that a list of tables may have: more than any server's, so that a list ends.
const PAGES_MAX: usize = 10_000;
/// Sampled rows that a table may have: more ranges than a cluster's.
const SAMPLES_MAX: usize = 1_000_000;
const MICROS_PER_SECOND: i64 = 1_000_000;

/// A table as its server describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDescription {
    /// Its full name.
    pub name: TableName,
    /// Its families, sorted by name.
    pub families: Vec<NewFamily>,
    /// The step of its timestamps.
    pub granularity: Granularity,
}

impl Client {
    /// Creates a table, divided into ranges at the row keys `splits`.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidArgument`, and what the connection fails with.
    pub async fn create_table(
        &self,
        id: &str,
        families: &[NewFamily],
        splits: &[Bytes],
    ) -> Result<TableDescription> {
        let request = self.new_table(id, families, splits);
        let mut attempts = Attempts::new();
        loop {
            let mut client = self.admin();
            match self.call(client.create_table(request.clone())).await {
                Ok(table) => return describe(table.into_inner()),
                Err(error) => {
                    let again = write_again(&error, false);
                    attempts.wait(&self.env, error, again).await?;
                }
            }
        }
    }

    pub(super) fn new_table(
        &self,
        id: &str,
        families: &[NewFamily],
        splits: &[Bytes],
    ) -> admin::CreateTableRequest {
        let column_families =
            families.iter().map(|family| (family.name.clone(), wire_family(family))).collect();
        admin::CreateTableRequest {
            parent: self.instance.clone(),
            table_id: id.to_owned(),
            table: Some(admin::Table { column_families, ..Default::default() }),
            initial_splits: splits
                .iter()
                .map(|key| admin::create_table_request::Split { key: key.clone() })
                .collect(),
        }
    }

    /// The ids of the instance's tables, sorted.
    ///
    /// # Errors
    /// What the server or the connection fails with.
    pub async fn list_tables(&self) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        let mut request = admin::ListTablesRequest {
            parent: self.instance.clone(),
            view: admin::table::View::NameOnly.into(),
            ..Default::default()
        };
        let mut attempts = Attempts::new();
        for _ in 0..PAGES_MAX {
            let mut client = self.admin();
            let page = match self.call(client.list_tables(request.clone())).await {
                Ok(page) => page.into_inner(),
                Err(error) => {
                    let again = read_again(&error);
                    attempts.wait(&self.env, error, again).await?;
                    continue;
                }
            };
            for table in page.tables {
                ids.push(parse_name(&table.name)?.table);
            }
            if page.next_page_token.is_empty() {
                ids.sort_unstable();
                return Ok(ids);
            }
            request.page_token = page.next_page_token;
        }
        Err(violation("a list of tables without end"))
    }

    /// Describes the table called `id`.
    ///
    /// # Errors
    /// `NotFound`, and what the connection fails with.
    pub async fn describe_table(&self, id: &str) -> Result<TableDescription> {
        let request = admin::GetTableRequest {
            name: self.table_name(id).to_string(),
            view: admin::table::View::SchemaView.into(),
        };
        let mut attempts = Attempts::new();
        loop {
            let mut client = self.admin();
            match self.call(client.get_table(request.clone())).await {
                Ok(table) => return describe(table.into_inner()),
                Err(error) => {
                    let again = read_again(&error);
                    attempts.wait(&self.env, error, again).await?;
                }
            }
        }
    }

    /// Drops the table called `id`, with its data.
    ///
    /// # Errors
    /// `NotFound`, and what the connection fails with.
    pub async fn drop_table(&self, id: &str) -> Result<()> {
        let request = admin::DeleteTableRequest { name: self.table_name(id).to_string() };
        let mut attempts = Attempts::new();
        loop {
            let mut client = self.admin();
            let Err(error) = self.call(client.delete_table(request.clone())).await else {
                return Ok(());
            };
            let again = write_again(&error, false);
            attempts.wait(&self.env, error, again).await?;
        }
    }

    /// Changes the families of the table called `id`: all the changes or none.
    ///
    /// # Errors
    /// `NotFound` (the table or a family), `AlreadyExists`, `InvalidArgument`, and what the
    /// connection fails with.
    pub async fn modify_families(
        &self,
        id: &str,
        changes: &[FamilyChange],
    ) -> Result<TableDescription> {
        let request = admin::ModifyColumnFamiliesRequest {
            name: self.table_name(id).to_string(),
            modifications: changes.iter().map(wire_change).collect(),
            ignore_warnings: false,
        };
        let mut attempts = Attempts::new();
        loop {
            let mut client = self.admin();
            let call = client.modify_column_families(request.clone());
            match self.call(call).await {
                Ok(table) => return describe(table.into_inner()),
                Err(error) => {
                    let again = write_again(&error, false);
                    attempts.wait(&self.env, error, again).await?;
                }
            }
        }
    }
}

impl Table {
    /// The last row keys of the table's ranges, ascending, each with the bytes up to it,
    /// approximately; the empty key stands for the end of the table.
    ///
    /// # Errors
    /// `NotFound`, and what the connection fails with.
    pub async fn sample_row_keys(&self) -> Result<Vec<(Bytes, u64)>> {
        let mut attempts = Attempts::new();
        loop {
            match self.sample_once().await {
                Ok(samples) => return Ok(samples),
                Err(error) => {
                    let again = read_again(&error);
                    attempts.wait(&self.client.env, error, again).await?;
                }
            }
        }
    }

    async fn sample_once(&self) -> Result<Vec<(Bytes, u64)>> {
        let request =
            data::SampleRowKeysRequest { table_name: self.name.clone(), ..Default::default() };
        let mut client = self.client.data();
        let answer = self.client.call(client.sample_row_keys(request)).await?;
        let mut replies = answer.into_inner();
        let mut samples = Vec::new();
        while let Some(sample) = self.client.call(replies.message()).await? {
            let bytes = u64::try_from(sample.offset_bytes)
                .map_err(|_| violation("a negative count of bytes"))?;
            samples.push((sample.row_key, bytes));
            if samples.len() > SAMPLES_MAX {
                return Err(violation("a list of sampled rows without end"));
            }
        }
        Ok(samples)
    }
}

fn wire_family(family: &NewFamily) -> admin::ColumnFamily {
    admin::ColumnFamily {
        gc_rule: family.retention.as_ref().map(wire_rule),
        value_type: family.aggregate.map(wire_aggregate),
    }
}

fn wire_aggregate(aggregate: Aggregate) -> admin::Type {
    use admin::r#type::aggregate::{Aggregator, Max, Min, Sum};
    use admin::r#type::{self as wire, Kind, int64};
    let aggregator = match aggregate {
        Aggregate::Sum => Aggregator::Sum(Sum {}),
        Aggregate::Min => Aggregator::Min(Min {}),
        Aggregate::Max => Aggregator::Max(Max {}),
    };
    let big_endian = int64::encoding::BigEndianBytes { bytes_type: None };
    let encoding = int64::encoding::Encoding::BigEndianBytes(big_endian);
    let number = wire::Int64 { encoding: Some(int64::Encoding { encoding: Some(encoding) }) };
    let declared = wire::Aggregate {
        input_type: Some(Box::new(admin::Type { kind: Some(Kind::Int64Type(number)) })),
        state_type: None,
        aggregator: Some(aggregator),
    };
    admin::Type { kind: Some(Kind::AggregateType(Box::new(declared))) }
}

/// `None` for a family whose cells are put.
fn parse_aggregate(declared: Option<admin::Type>) -> Result<Option<Aggregate>> {
    use admin::r#type::Kind;
    use admin::r#type::aggregate::Aggregator;
    let Some(Kind::AggregateType(declared)) = declared.and_then(|declared| declared.kind) else {
        return Ok(None);
    };
    match declared.aggregator {
        Some(Aggregator::Sum(_)) => Ok(Some(Aggregate::Sum)),
        Some(Aggregator::Min(_)) => Ok(Some(Aggregate::Min)),
        Some(Aggregator::Max(_)) => Ok(Some(Aggregate::Max)),
        Some(Aggregator::HllppUniqueCount(_)) | None => {
            Err(violation("an aggregate of a kind that is not known"))
        }
    }
}

fn wire_change(change: &FamilyChange) -> admin::modify_column_families_request::Modification {
    use admin::modify_column_families_request::Modification;
    use admin::modify_column_families_request::modification::Mod;
    let (id, wire) = match change {
        FamilyChange::Create(family) => (&family.name, Mod::Create(wire_family(family))),
        FamilyChange::SetRetention(family) => (&family.name, Mod::Update(wire_family(family))),
        FamilyChange::Drop(name) => (name, Mod::Drop(true)),
    };
    Modification { id: id.clone(), update_mask: None, r#mod: Some(wire) }
}

fn wire_rule(retention: &Retention) -> admin::GcRule {
    use admin::gc_rule::{Intersection, Rule, Union};
    let all = |rules: &[Retention]| rules.iter().map(wire_rule).collect();
    let rule = match retention {
        Retention::MaxVersions(count) => {
            Rule::MaxNumVersions(i32::try_from(*count).unwrap_or(i32::MAX))
        }
        Retention::MaxAge(micros) => Rule::MaxAge(prost_types::Duration {
            seconds: micros / MICROS_PER_SECOND,
            nanos: i32::try_from(micros % MICROS_PER_SECOND * 1000).unwrap_or(0),
        }),
        Retention::Intersection(rules) => Rule::Intersection(Intersection { rules: all(rules) }),
        Retention::Union(rules) => Rule::Union(Union { rules: all(rules) }),
    };
    admin::GcRule { rule: Some(rule) }
}

pub(super) fn describe(table: admin::Table) -> Result<TableDescription> {
    let families = table.column_families.into_iter().map(|(name, family)| {
        let rule = family.gc_rule.and_then(|gc| gc.rule);
        let retention = rule.map(parse_rule).transpose()?;
        let aggregate = parse_aggregate(family.value_type)?;
        Ok(NewFamily { name, retention, aggregate })
    });
    let granularity = match table.granularity {
        wire if wire == i32::from(admin::table::TimestampGranularity::Micros) => {
            Granularity::Micros
        }
        _ => Granularity::Millis,
    };
    Ok(TableDescription {
        name: parse_name(&table.name)?,
        families: families.collect::<Result<_>>()?,
        granularity,
    })
}

/// As deep as the decoder lets a message nest.
fn parse_rule(rule: admin::gc_rule::Rule) -> Result<Retention> {
    use admin::gc_rule::Rule;
    let all = |rules: Vec<admin::GcRule>| {
        let rules = rules.into_iter().filter_map(|gc| gc.rule);
        rules.map(parse_rule).collect::<Result<Vec<_>>>()
    };
    Ok(match rule {
        Rule::MaxNumVersions(count) => Retention::MaxVersions(
            u32::try_from(count).map_err(|_| violation("a negative count of versions"))?,
        ),
        Rule::MaxAge(age) => {
            let micros = age.seconds.checked_mul(MICROS_PER_SECOND);
            let micros = micros.and_then(|micros| micros.checked_add(i64::from(age.nanos / 1000)));
            Retention::MaxAge(micros.ok_or_else(|| violation("an age out of range"))?)
        }
        Rule::Intersection(rules) => Retention::Intersection(all(rules.rules)?),
        Rule::Union(rules) => Retention::Union(all(rules.rules)?),
    })
}

fn parse_name(full: &str) -> Result<TableName> {
    TableName::parse(full).map_err(|text| violation(&text))
}

fn violation(what: &str) -> Error {
    Error::new(ErrorKind::Io, format!("the server's answer breaks the protocol: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_survives_the_wire() {
        let day = 24 * 3600 * MICROS_PER_SECOND;
        let rule = Retention::Union(vec![
            Retention::Intersection(vec![Retention::MaxVersions(3), Retention::MaxAge(day + 7)]),
            Retention::MaxVersions(10),
        ]);
        assert_eq!(parse_rule(wire_rule(&rule).rule.unwrap()), Ok(rule));
    }

    #[test]
    fn aggregates_survive_the_wire() {
        for aggregate in [Aggregate::Sum, Aggregate::Min, Aggregate::Max] {
            assert_eq!(parse_aggregate(Some(wire_aggregate(aggregate))), Ok(Some(aggregate)));
        }
        assert_eq!(parse_aggregate(None), Ok(None));
    }

    #[test]
    fn an_age_out_of_range_is_an_error() {
        let age = prost_types::Duration { seconds: i64::MAX, nanos: 0 };
        parse_rule(admin::gc_rule::Rule::MaxAge(age)).unwrap_err();
        parse_rule(admin::gc_rule::Rule::MaxNumVersions(-1)).unwrap_err();
    }
}
