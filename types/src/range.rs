use std::fmt;

use bytes::Bytes;

/// A half-open run of rows, `[start, end)`; without an end it goes to the last row. An empty
/// `start` is before every row.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowRange {
    /// The first row inside.
    pub start: Bytes,
    /// The first row past it.
    pub end: Option<Bytes>,
}

impl RowRange {
    /// Every row.
    pub fn all() -> RowRange {
        RowRange { start: Bytes::new(), end: None }
    }

    /// Just `row`.
    pub fn row(row: &Bytes) -> RowRange {
        RowRange { start: row.clone(), end: Some(successor(row)) }
    }

    /// The rows that begin with `prefix`.
    pub fn prefix(prefix: &Bytes) -> RowRange {
        let mut end = prefix.to_vec();
        while end.last() == Some(&0xff) {
            end.pop();
        }
        let end = end.pop().map(|last| {
            end.push(last + 1);
            Bytes::from(end)
        });
        RowRange { start: prefix.clone(), end }
    }

    /// Is `row` inside?
    pub fn contains(&self, row: &[u8]) -> bool {
        row >= &self.start[..] && self.end.as_ref().is_none_or(|end| row < &end[..])
    }

    /// Can no row be inside?
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// The one row inside, when only one can be.
    pub fn single_row(&self) -> Option<&Bytes> {
        let end = self.end.as_ref()?;
        let one = end.len() == self.start.len() + 1
            && end.ends_with(&[0])
            && end[..self.start.len()] == self.start[..];
        one.then_some(&self.start)
    }

    /// The rows inside both.
    pub fn intersection(&self, other: &RowRange) -> RowRange {
        let end = match (&self.end, &other.end) {
            (Some(a), Some(b)) => Some(a.min(b).clone()),
            (a, b) => a.clone().or_else(|| b.clone()),
        };
        RowRange { start: (&self.start).max(&other.start).clone(), end }
    }
}

impl fmt::Debug for RowRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, ", self.start.escape_ascii())?;
        match &self.end {
            Some(end) => write!(f, "{})", end.escape_ascii()),
            None => write!(f, "end)"),
        }
    }
}

/// The smallest row after `row`.
fn successor(row: &Bytes) -> Bytes {
    let mut next = Vec::with_capacity(row.len() + 1);
    next.extend_from_slice(row);
    next.push(0);
    Bytes::from(next)
}

/// The smallest row after `row`: turns inclusive bounds into half-open ones.
pub fn row_successor(row: &Bytes) -> Bytes {
    successor(row)
}

/// Which rows a read asks for: sorted, disjoint, none of them empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSet(Vec<RowRange>);

impl RowSet {
    /// Every row.
    pub fn all() -> RowSet {
        RowSet(vec![RowRange::all()])
    }

    /// Sorts the ranges, drops empty ones and joins those that overlap. Ranges that merely touch
    /// stay apart, so that a single row is still recognised as one.
    pub fn new(mut ranges: Vec<RowRange>) -> RowSet {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_unstable();
        let mut joined: Vec<RowRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            let Some(last) = joined.last_mut() else {
                joined.push(range);
                continue;
            };
            let overlaps = last.end.as_ref().is_none_or(|end| range.start < *end);
            if !overlaps {
                joined.push(range);
            } else if let Some(end) = &last.end
                && range.end.as_ref().is_none_or(|other| other > end)
            {
                last.end = range.end;
            }
        }
        RowSet(joined)
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> &[RowRange] {
        &self.0
    }

    /// Does it ask for nothing?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What of it lies inside `bounds`.
    pub fn within(&self, bounds: &RowRange) -> RowSet {
        RowSet(
            self.0
                .iter()
                .map(|range| range.intersection(bounds))
                .filter(|range| !range.is_empty())
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &'static str, end: &'static str) -> RowRange {
        let end = (!end.is_empty()).then(|| Bytes::from_static(end.as_bytes()));
        RowRange { start: Bytes::from_static(start.as_bytes()), end }
    }

    #[test]
    fn overlapping_ranges_are_joined_and_empty_ones_dropped() {
        let set =
            RowSet::new(vec![range("m", "p"), range("a", "c"), range("b", "d"), range("x", "x")]);
        assert_eq!(set.ranges(), [range("a", "d"), range("m", "p")]);
        let set = RowSet::new(vec![range("c", ""), range("a", "d"), range("z", "")]);
        assert_eq!(set.ranges(), [range("a", "")]);
    }

    #[test]
    fn a_single_row_is_recognised() {
        let row = Bytes::from_static(b"k");
        assert_eq!(RowRange::row(&row).single_row(), Some(&row));
        assert_eq!(range("k", "l").single_row(), None);
        assert!(RowRange::row(&row).contains(b"k"));
        assert!(!RowRange::row(&row).contains(b"k\0"));
    }

    #[test]
    fn a_prefix_of_all_ones_has_no_end() {
        assert_eq!(RowRange::prefix(&Bytes::from_static(b"\xff\xff")).end, None);
        assert_eq!(
            RowRange::prefix(&Bytes::from_static(b"a\xff")).end,
            Some(Bytes::from_static(b"b"))
        );
    }
}
