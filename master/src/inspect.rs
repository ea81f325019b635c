//! Prints the catalog's records for people.

use std::fmt::Write;

use bytes::Bytes;
use types::{ColumnFamily, LocalityGroup, SessionId, TableName};

use crate::record::{
    Descriptor, NEXT_IDS, NextIds, RangeRecord, Refusal, TABLES, TableState, VERSION,
    parse_range_key,
};

/// The text of a record, on one line; `None` for a key that is not the catalog's.
///
/// # Errors
/// What is wrong with the record.
pub fn record(key: &str, stored: &Bytes) -> Result<Option<String>, String> {
    if key == NEXT_IDS {
        let NextIds { table, range } = NextIds::decode(stored).map_err(refused)?;
        return Ok(Some(format!("next table {table}, next range {range}")));
    }
    if let Some(name) = key.strip_prefix(TABLES) {
        let name = TableName::parse(name)?;
        return Descriptor::decode(stored, name).map_err(refused).map(|found| Some(table(&found)));
    }
    if parse_range_key(key).is_some() {
        return RangeRecord::decode(stored).map_err(refused).map(|found| Some(range(&found)));
    }
    Ok(None)
}

fn table(found: &Descriptor) -> String {
    let Descriptor { state, schema } = found;
    let state = match state {
        TableState::Creating => "creating",
        TableState::Enabled => "enabled",
        TableState::Deleting => "deleting",
    };
    let mut text = format!(
        "table {}, {state}, generation {}, {:?}, next family {}",
        schema.id, schema.generation, schema.granularity, schema.next_family
    );
    schema.families.iter().for_each(|found| family(&mut text, found));
    schema.groups.iter().for_each(|found| group(&mut text, found));
    text
}

fn family(text: &mut String, family: &ColumnFamily) {
    let ColumnFamily { id, name, retention, aggregate } = family;
    let _ = write!(text, "; family {id} {name:?}");
    if let Some(retention) = retention {
        let _ = write!(text, " drops {retention:?}");
    }
    if let Some(aggregate) = aggregate {
        let _ = write!(text, " keeps the {aggregate:?}");
    }
}

fn group(text: &mut String, group: &LocalityGroup) {
    let _ = write!(text, "; group {:?}", group.name);
    for family in &group.families {
        let _ = write!(text, " {family}");
    }
    let _ = write!(text, " {:?}", group.settings);
}

fn range(found: &RangeRecord) -> String {
    let RangeRecord { rows, epoch, session } = found;
    let owner = session.as_ref().map_or("no session".to_owned(), SessionId::to_string);
    format!("rows {rows:?}, epoch {epoch}, granted to {owner}")
}

fn refused(refusal: Refusal) -> String {
    match refusal {
        Refusal::Damaged(what) => what.to_owned(),
        Refusal::TooNew(needed) => {
            format!("it needs version {needed}; this program has version {VERSION}")
        }
    }
}

#[cfg(test)]
mod tests {
    use types::{Epoch, RangeId, RowRange, TableId};

    use super::*;
    use crate::record::range_key;

    #[test]
    fn records_are_shown_and_damage_and_foreign_keys_are_told_apart() {
        let ids = NextIds { table: TableId::new(3), range: RangeId::new(7) }.encode();
        let shown = record(NEXT_IDS, &ids).unwrap().unwrap();
        assert!(shown.contains('3') && shown.contains('7'), "{shown}");
        let rows = RowRange { start: Bytes::from_static(b"a"), end: None };
        let stored = RangeRecord { rows, epoch: Epoch::new(5), session: None }.encode();
        let key = range_key(TableId::new(3), RangeId::new(6));
        let shown = record(&key, &stored).unwrap().unwrap();
        assert!(shown.contains("[a, end)") && shown.contains("no session"), "{shown}");
        assert_eq!(record("/servers/1", &ids), Ok(None));
        record(&key, &ids).unwrap_err();
        record("/tables/nonsense", &ids).unwrap_err();
        for len in 0..stored.len() {
            record(&key, &stored.slice(..len)).unwrap_err();
        }
    }
}
