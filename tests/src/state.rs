//! One state of a row, and what the rules of its families may have made of it.
//!
//! A store drops what a rule allows when it likes. So an answer lies between two sets of cells:
//!
//! - *may*: what was written and neither deleted nor overwritten, without any rule;
//! - *must*: of these, what no rule may have dropped so far. A cell counts as one that may be
//!   dropped, for good, from the first moment at which its rule allowed it: though newer versions
//!   are deleted later, or a clock goes back.
//!
//! A cell that a reader missed is gone: no later read finds it, until it is written again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::model::{Change, Place, Row};

/// What of a family may be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// All but the newest so many cells of a column.
    Versions(usize),
    /// Cells whose timestamp is more than so many microseconds ago.
    Age(i64),
}

/// Rules by family.
pub type Rules = BTreeMap<String, Rule>;

/// When and by what rules an answer is judged.
pub struct Asked<'a> {
    /// The table's rules.
    pub rules: &'a Rules,
    /// The latest time that a clock has shown, microseconds.
    pub now: i64,
    /// How many reads had ended when this one began.
    pub reads: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct State {
    may: Row,
    /// Cells that were once one too many.
    loose: BTreeSet<Place>,
    /// Cells that the state's own operation wrote.
    wrote: BTreeSet<Place>,
    /// Cells that a read missed: which read that was.
    gone: BTreeMap<Place, u64>,
}

impl State {
    /// What is found if no rule drops anything.
    pub fn cells(&self) -> &Row {
        &self.may
    }

    /// The state after an operation.
    #[must_use]
    pub fn after(&self, changes: &[Change], rules: &Rules) -> State {
        let mut next = State { wrote: BTreeSet::new(), ..self.clone() };
        for change in changes {
            change.apply(&mut next.may);
            if let Some(place) = change.written() {
                next.loose.remove(&place);
                next.gone.remove(&place);
                next.wrote.insert(place);
            }
            next.forget_absent();
            next.loosen(rules);
        }
        next
    }

    /// What is left after a read that gave `seen` and that each of `legal` allowed.
    pub fn settled<'a>(seen: Row, legal: impl Iterator<Item = &'a State>) -> State {
        let loose = legal.flat_map(|state| state.loose.iter().cloned()).collect();
        let mut state = State { may: seen, loose, ..State::default() };
        state.forget_absent();
        state
    }

    /// A family was dropped.
    pub fn drop_family(&mut self, family: &str) {
        self.may.retain(|(of, ..), _| of != family);
        self.forget_absent();
    }

    fn forget_absent(&mut self) {
        let may = &self.may;
        self.loose.retain(|place| may.contains_key(place));
        self.gone.retain(|place, _| may.contains_key(place));
    }

    /// Notes which cells are too many now.
    fn loosen(&mut self, rules: &Rules) {
        let mut newer = BTreeMap::new();
        for place in self.may.keys() {
            let (family, qualifier, _) = place;
            let count = newer.entry((family, qualifier)).or_insert(0);
            if matches!(rules.get(family), Some(Rule::Versions(most)) if *count >= *most) {
                self.loose.insert(place.clone());
            }
            *count += 1;
        }
    }

    /// Is `seen` an answer to a read?
    pub fn allows(&self, seen: &Row, asked: &Asked<'_>) -> bool {
        let may_be_seen = |(place, value): (&Place, _)| {
            let was_gone = self.gone.get(place).is_some_and(|read| *read <= asked.reads);
            self.may.get(place) == Some(value) && !was_gone
        };
        let is_old = |(family, _, Reverse(at)): &Place| match asked.rules.get(family) {
            Some(Rule::Age(most)) => asked.now.saturating_sub(*at) > *most,
            _ => false,
        };
        let may_be_missed = |place: &Place| self.loose.contains(place) || is_old(place);
        seen.iter().all(may_be_seen)
            && self.may.keys().all(|place| seen.contains_key(place) || may_be_missed(place))
    }

    /// The read with the number `read` gave `seen`, which the first of `states` allows: what it
    /// missed is gone, in that state and in later ones that did not write it again.
    pub fn note_gone(states: &mut [State], seen: &Row, read: u64) {
        let first = states.first().expect("there is the state that was seen");
        let missed = first.may.keys().filter(|place| !seen.contains_key(*place));
        for place in missed.cloned().collect::<Vec<_>>() {
            for (number, state) in states.iter_mut().enumerate() {
                let is_another = number > 0 && state.wrote.contains(&place);
                if is_another || !state.may.contains_key(&place) {
                    break;
                }
                state.gone.entry(place.clone()).or_insert(read);
            }
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (family, qualifier, Reverse(at)) in &self.loose {
            write!(f, "{family}:{}@{at} ", qualifier.escape_ascii())?;
        }
        for ((family, qualifier, Reverse(at)), read) in &self.gone {
            write!(f, "{family}:{}@{at} (since read {read}) ", qualifier.escape_ascii())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn set(family: &str, timestamp: i64) -> Change {
        Change::Set {
            family: family.to_owned(),
            qualifier: Bytes::from_static(b"q"),
            timestamp,
            value: Bytes::from_static(b"v"),
        }
    }

    fn row(family: &str, timestamps: &[i64]) -> Row {
        let mut row = Row::new();
        timestamps.iter().for_each(|&at| set(family, at).apply(&mut row));
        row
    }

    fn rules() -> Rules {
        Rules::from([("v".to_owned(), Rule::Versions(2)), ("o".to_owned(), Rule::Age(10))])
    }

    #[test]
    fn a_cell_that_was_once_one_too_many_may_be_missed_for_good() {
        let rules = rules();
        let asked = Asked { rules: &rules, now: 0, reads: 0 };
        let delete = Change::DeleteCells {
            family: "v".to_owned(),
            qualifier: Bytes::from_static(b"q"),
            start: 3,
            end: 0,
        };
        let two = State::default().after(&[set("v", 1), set("v", 2)], &rules);
        assert!(!two.allows(&row("v", &[2]), &asked));
        let again = two.after(&[set("v", 3), delete], &rules);
        assert!(again.allows(&row("v", &[2]), &asked));
        assert!(again.allows(&row("v", &[1, 2]), &asked));
        assert!(!again.allows(&row("v", &[1]), &asked));
        assert!(!again.after(&[set("v", 1)], &rules).allows(&row("v", &[2]), &asked));
    }

    #[test]
    fn a_cell_may_be_missed_when_it_is_too_old_and_not_before() {
        let rules = rules();
        let state = State::default().after(&[set("o", 5)], &rules);
        assert!(!state.allows(&Row::new(), &Asked { rules: &rules, now: 15, reads: 0 }));
        assert!(state.allows(&Row::new(), &Asked { rules: &rules, now: 16, reads: 0 }));
        assert!(state.allows(&row("o", &[5]), &Asked { rules: &rules, now: 16, reads: 0 }));
    }

    #[test]
    fn what_a_read_missed_never_returns_to_later_reads_unless_written_again() {
        let rules = rules();
        let begun_at = |reads| Asked { rules: &rules, now: 0, reads };
        let all = row("v", &[1, 2, 3]);
        let state = State::default().after(&[set("v", 1), set("v", 2), set("v", 3)], &rules);
        let mut states = vec![state.clone(), state.after(&[set("v", 1)], &rules)];
        assert!(states[0].allows(&row("v", &[2, 3]), &begun_at(6)));
        State::note_gone(&mut states, &row("v", &[2, 3]), 7);
        assert!(states[0].allows(&all, &begun_at(6)), "it began before");
        assert!(!states[0].allows(&all, &begun_at(7)));
        assert!(states[1].allows(&all, &begun_at(7)), "it was written again");
    }
}
