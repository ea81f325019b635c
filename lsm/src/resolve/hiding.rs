use std::collections::BTreeMap;

use types::{SeqNo, Timestamp, TimestampRange};

/// Which tombstone hides a cell: how far it reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The whole row.
    Row,
    /// One family of the row.
    Family,
    /// One column's cells from this timestamp on.
    CellsFrom(Timestamp),
}

/// The tombstones in force at a scan's place.
///
/// They come in key order, so latest first within a scope: of a row's or family's tombstones the
/// first decides all, and a column's later ones add only the times that are not covered yet.
#[derive(Debug, Default)]
pub(crate) struct Hiding {
    row: Option<SeqNo>,
    family: Option<SeqNo>,
    /// Disjoint runs of timestamps: start → end (exclusive, as u64) and the number that hides.
    cells: BTreeMap<u64, (u64, SeqNo)>,
    /// The same times, joined where they touch: start → end. A tombstone joins all runs that it
    /// meets, so that a hundred thousand of them are met about as often, and not each by each.
    covered: BTreeMap<u64, u64>,
}

impl Hiding {
    pub(crate) fn enter_row(&mut self) {
        self.row = None;
        self.enter_family();
    }

    pub(crate) fn enter_family(&mut self) {
        self.family = None;
        self.enter_column();
    }

    pub(crate) fn enter_column(&mut self) {
        if !self.cells.is_empty() {
            self.cells.clear();
            self.covered.clear();
        }
    }

    pub(crate) fn delete_row(&mut self, seq: SeqNo) {
        self.row = self.row.max(Some(seq));
    }

    pub(crate) fn delete_family(&mut self, seq: SeqNo) {
        self.family = self.family.max(Some(seq));
    }

    /// Adds a column's tombstone; its number is smaller than those added before it. `false`: they
    /// hide all that it would.
    pub(crate) fn delete_cells(&mut self, seq: SeqNo, range: TimestampRange) -> bool {
        let micros = |at: Timestamp| at.micros() as u64;
        let (mut start, end) = (micros(range.start), range.end.map_or(u64::MAX, micros));
        if start >= end {
            return false;
        }
        let (mut from, mut to, mut adds) = (start, end, false);
        if let Some((&first, &covered_to)) = self.covered.range(..=start).next_back()
            && covered_to >= start
        {
            if covered_to >= end {
                return false;
            }
            (from, start) = (first, covered_to);
        }
        while start < end {
            let next = self.covered.range(start..=end).next();
            let (gap_end, covered_to) =
                next.map_or((end, end), |(&at, &covered_to)| (at, covered_to));
            if start < gap_end {
                self.cells.insert(start, (gap_end, seq));
                adds = true;
            }
            self.covered.remove(&gap_end);
            to = to.max(covered_to);
            start = covered_to;
        }
        self.covered.insert(from, to);
        adds
    }

    /// Does a tombstone of the row hide everything in it that is older than `seq`?
    pub(crate) fn row_hides(&self, seq: SeqNo) -> bool {
        self.row.is_some_and(|row| seq < row)
    }

    /// Does a tombstone of the row or family hide everything in the family older than `seq`?
    pub(crate) fn family_hides(&self, seq: SeqNo) -> bool {
        self.row_hides(seq) || self.family.is_some_and(|family| seq < family)
    }

    /// The tombstone that hides a cell, if one does: its number and how far it reaches.
    #[inline]
    pub(crate) fn hides(&self, at: Timestamp, seq: SeqNo) -> Option<(SeqNo, Scope)> {
        if let Some(row) = self.row
            && seq < row
        {
            return Some((row, Scope::Row));
        }
        if let Some(family) = self.family
            && seq < family
        {
            return Some((family, Scope::Family));
        }
        if self.cells.is_empty() {
            return None;
        }
        let micros = at.micros() as u64;
        let (&start, &(end, cells)) = self.cells.range(..=micros).next_back()?;
        let start = Timestamp::from_micros(i64::try_from(start).ok()?)?;
        (micros < end && seq < cells).then_some((cells, Scope::CellsFrom(start)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn overlapping_ranges_hide_what_the_latest_that_covers_a_cell_hides() {
        let mut random = StdRng::seed_from_u64(5);
        let at = |micros| Timestamp::from_micros(micros).unwrap();
        let seq = |raw| SeqNo::from_raw(raw).unwrap();
        for round in 0..3_000 {
            let mut hiding = Hiding::default();
            let mut all = Vec::new();
            for i in 0..random.random_range(1..7) {
                let start = random.random_range(0..10);
                let end = random.random_range(0..12);
                let range =
                    TimestampRange { start: at(start), end: (end > start).then(|| at(end)) };
                let number = seq(100 - 10 * i);
                hiding.delete_cells(number, range);
                all.push((number, range));
            }
            let times = |start: u64, end: u64| start..end.min(20);
            let runs = hiding.cells.iter().flat_map(|(&start, &(end, _))| times(start, end));
            let joined = hiding.covered.iter().flat_map(|(&start, &end)| times(start, end));
            assert_eq!(runs.collect::<Vec<_>>(), joined.collect::<Vec<_>>(), "round {round}");
            let ends: BTreeSet<&u64> = hiding.covered.values().collect();
            assert!(hiding.covered.keys().all(|start| !ends.contains(start)), "round {round}");
            for micros in 0..14 {
                for number in (35..105).map(seq) {
                    let hidden = hiding.hides(at(micros), number);
                    let expected = all
                        .iter()
                        .filter(|(deleted, range)| range.contains(at(micros)) && number < *deleted)
                        .map(|(deleted, _)| *deleted)
                        .max();
                    assert_eq!(hidden.map(|h| h.0), expected, "round {round}: {all:?}");
                }
            }
        }
    }
    /// Were each tombstone compared with all runs below it, these would be minutes of work.
    #[test]
    fn many_tombstones_over_many_runs_are_joined_at_once() {
        let at = |micros| Timestamp::from_micros(micros).unwrap();
        let mut hiding = Hiding::default();
        let mut seq = (1..=150_000).rev().map(|raw| SeqNo::from_raw(raw).unwrap());
        for micros in (0..100_000).step_by(2) {
            let range = TimestampRange { start: at(micros), end: Some(at(micros + 1)) };
            assert!(hiding.delete_cells(seq.next().unwrap(), range));
        }
        assert_eq!((hiding.cells.len(), hiding.covered.len()), (50_000, 50_000));
        let all = TimestampRange { start: at(0), end: None };
        assert!(hiding.delete_cells(seq.next().unwrap(), all));
        assert_eq!((hiding.cells.len(), hiding.covered.len()), (100_000, 1));
        seq.for_each(|seq| assert!(!hiding.delete_cells(seq, all)));
    }
}
