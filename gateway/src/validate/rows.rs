//! Which rows a read asks for.
//!
//! - No set, or a set with neither keys nor ranges, is the whole table.
//! - A bound that is set but empty is no bound.
//! - A range whose start is past its end is refused; one that merely has nothing in it is not.

use bytes::Bytes;
use client::{Error, Result};
use proto::google::bigtable::v2;
use proto::google::bigtable::v2::row_range::{EndKey, StartKey};
use types::limits::ROW_KEY_BYTES_MAX;
use types::{RowRange, RowSet, row_successor};

use super::{row_key, too_long};

/// The rows of a message's set.
pub(crate) fn row_set(rows: Option<&v2::RowSet>) -> Result<RowSet> {
    let Some(rows) = rows else {
        return Ok(RowSet::all());
    };
    if rows.row_keys.is_empty() && rows.row_ranges.is_empty() {
        return Ok(RowSet::all());
    }
    let mut ranges = Vec::with_capacity(rows.row_keys.len() + rows.row_ranges.len());
    for key in &rows.row_keys {
        row_key(key)?;
        ranges.push(RowRange::row(key));
    }
    for (place, range) in rows.row_ranges.iter().enumerate() {
        ranges.push(row_range(place, range)?);
    }
    Ok(RowSet::new(ranges))
}

/// Checks how many rows a read may answer with; 0 means all.
pub(crate) fn rows_limit(limit: i64) -> Result<u64> {
    u64::try_from(limit)
        .map_err(|_| Error::invalid(format!("rows_limit must not be negative, but is {limit}")))
}

fn row_range(place: usize, range: &v2::RowRange) -> Result<RowRange> {
    let nothing = Bytes::new();
    let (start_name, start) = match &range.start_key {
        Some(StartKey::StartKeyClosed(key)) => ("start_key_closed", key),
        Some(StartKey::StartKeyOpen(key)) => ("start_key_open", key),
        None => ("start_key_closed", &nothing),
    };
    let (end_name, end) = match &range.end_key {
        Some(EndKey::EndKeyOpen(key)) => ("end_key_open", key),
        Some(EndKey::EndKeyClosed(key)) => ("end_key_closed", key),
        None => ("end_key_open", &nothing),
    };
    for bound in [start, end] {
        if bound.len() > ROW_KEY_BYTES_MAX {
            return Err(too_long("A bound of a row range", bound.len(), ROW_KEY_BYTES_MAX));
        }
    }
    if !end.is_empty() && start > end {
        return Err(Error::invalid(format!(
            "Error in element #{place}: {start_name} must be less than {end_name}"
        )));
    }
    let open = matches!(range.start_key, Some(StartKey::StartKeyOpen(_)));
    let closed = matches!(range.end_key, Some(EndKey::EndKeyClosed(_)));
    Ok(RowRange {
        // No row has the empty key, so after it and from it are the same.
        start: if open && !start.is_empty() { row_successor(start) } else { start.clone() },
        end: (!end.is_empty()).then(|| if closed { row_successor(end) } else { end.clone() }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: Option<StartKey>, end: Option<EndKey>) -> Result<RowRange> {
        let range = v2::RowRange { start_key: start, end_key: end };
        row_range(3, &range)
    }

    #[test]
    fn bounds_become_half_open() {
        let key = |text: &'static str| Bytes::from_static(text.as_bytes());
        let found =
            range(Some(StartKey::StartKeyOpen(key("a"))), Some(EndKey::EndKeyClosed(key("b"))));
        let expected = RowRange { start: key("a\0"), end: Some(key("b\0")) };
        assert_eq!(found.unwrap(), expected);
        let found =
            range(Some(StartKey::StartKeyClosed(key("a"))), Some(EndKey::EndKeyOpen(key("a"))));
        assert!(found.unwrap().is_empty());
        for end in [EndKey::EndKeyOpen(key("")), EndKey::EndKeyClosed(key(""))] {
            let found = range(Some(StartKey::StartKeyOpen(key(""))), Some(end));
            assert_eq!(found.unwrap(), RowRange::all());
        }
        assert_eq!(range(None, None).unwrap(), RowRange::all());
    }

    #[test]
    fn an_inverted_range_is_named_by_its_place() {
        let key = |text: &'static str| Bytes::from_static(text.as_bytes());
        let found =
            range(Some(StartKey::StartKeyOpen(key("b"))), Some(EndKey::EndKeyClosed(key("a"))));
        assert_eq!(
            found.unwrap_err().message(),
            "Error in element #3: start_key_open must be less than end_key_closed"
        );
    }
}
