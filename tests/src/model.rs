//! What the store must answer: a slow reference model of rows.
//!
//! Each row has one writer at a time, so its states form a list: the state after each operation, in
//! the order of issue. Three things are known of the list:
//!
//! - `must`: the place of the newest state that was acknowledged or seen by a reader. What is
//!   before it is gone for good (must-have).
//! - The last place belongs to an operation that may be under way, or whose outcome is unknown
//!   (may-have).
//! - An answer is legal if it *is* one of the states from `must` on, but for cells that a rule of
//!   their family may have dropped: see [`State`]. So every operation on a row is atomic and in
//!   order, and nothing that was acknowledged or seen is lost.
//!
//! After a crash the first answer decides what became of the unknown operation: the list shrinks
//! to that one state.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use bytes::Bytes;

use crate::state::{Asked, Rule, Rules, State};

/// A broken promise, in words.
pub type Violation = String;

/// Where a cell is in its row: family, qualifier, timestamp in microseconds (newest first).
pub type Place = (String, Bytes, Reverse<i64>);

/// The cells of a row.
pub type Row = BTreeMap<Place, Bytes>;

/// One change to a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Writes a cell.
    Set {
        /// Its family.
        family: String,
        /// Its qualifier.
        qualifier: Bytes,
        /// Its timestamp, microseconds.
        timestamp: i64,
        /// Its value.
        value: Bytes,
    },
    /// Adds a number to a cell of a family of sums.
    Add {
        /// Its family.
        family: String,
        /// Its qualifier.
        qualifier: Bytes,
        /// Its timestamp, microseconds.
        timestamp: i64,
        /// The number.
        operand: i64,
    },
    /// Hides the cells of a column whose timestamp is in `[start, end)`; no end when 0.
    DeleteCells {
        /// The column's family.
        family: String,
        /// The column's qualifier.
        qualifier: Bytes,
        /// The oldest timestamp hidden, microseconds.
        start: i64,
        /// The first timestamp not hidden, microseconds.
        end: i64,
    },
    /// Hides a family.
    DeleteFamily {
        /// Which.
        family: String,
    },
    /// Hides the row.
    DeleteRow,
}

impl Change {
    /// Does what it says to a row's cells.
    pub fn apply(&self, row: &mut Row) {
        match self {
            Change::Set { family, qualifier, timestamp, value } => {
                let place = (family.clone(), qualifier.clone(), Reverse(*timestamp));
                row.insert(place, value.clone());
            }
            Change::Add { family, qualifier, timestamp, operand } => {
                let place = (family.clone(), qualifier.clone(), Reverse(*timestamp));
                let so_far = row.get(&place).map_or(0, |value| {
                    i64::from_be_bytes(value[..].try_into().expect("a sum has eight bytes"))
                });
                let sum = so_far.wrapping_add(*operand);
                row.insert(place, Bytes::copy_from_slice(&sum.to_be_bytes()));
            }
            Change::DeleteCells { family, qualifier, start, end } => {
                row.retain(|(of, column, Reverse(at)), _| {
                    let hidden = at >= start && (*end == 0 || at < end);
                    !(of == family && column == qualifier && hidden)
                })
            }
            Change::DeleteFamily { family } => row.retain(|(of, ..), _| of != family),
            Change::DeleteRow => row.clear(),
        }
    }

    /// The family that it touches; `None`: all.
    pub fn family(&self) -> Option<&str> {
        match self {
            Change::Set { family, .. }
            | Change::Add { family, .. }
            | Change::DeleteCells { family, .. }
            | Change::DeleteFamily { family } => Some(family),
            Change::DeleteRow => None,
        }
    }

    /// The cell that it writes, if it writes one.
    pub fn written(&self) -> Option<Place> {
        match self {
            Change::Set { family, qualifier, timestamp, .. }
            | Change::Add { family, qualifier, timestamp, .. } => {
                Some((family.clone(), qualifier.clone(), Reverse(*timestamp)))
            }
            Change::DeleteCells { .. } | Change::DeleteFamily { .. } | Change::DeleteRow => None,
        }
    }
}

/// One row: see the module.
#[derive(Clone, Debug)]
struct Known {
    states: Vec<State>,
    must: usize,
}

impl Default for Known {
    fn default() -> Known {
        Known { states: vec![State::default()], must: 0 }
    }
}

impl Known {
    fn last(&self) -> usize {
        self.states.len() - 1
    }

    fn newest(&self) -> &State {
        &self.states[self.last()]
    }
}

/// A table.
#[derive(Clone, Debug, Default)]
struct Table {
    families: BTreeSet<String>,
    rules: Rules,
    rows: BTreeMap<Bytes, Known>,
}

/// Everything that was written, by table.
#[derive(Clone, Debug, Default)]
pub struct Model {
    tables: BTreeMap<String, Table>,
    /// Reads that have ended.
    reads: u64,
    /// The latest time that a clock has shown, microseconds: a clock may go back.
    latest: i64,
}

/// What the model knew when a read began.
#[derive(Clone, Debug)]
pub struct ReadStart {
    must: BTreeMap<Bytes, usize>,
    /// Reads that had ended.
    reads: u64,
}

impl Model {
    /// The table is there, with these families and no rows.
    pub fn create_table(&mut self, table: &str, families: &[&str]) {
        let made = Table {
            families: families.iter().map(|&family| family.to_owned()).collect(),
            ..Table::default()
        };
        self.tables.insert(table.to_owned(), made);
    }

    /// From now on, cells of a family may be dropped.
    pub fn set_rule(&mut self, table: &str, family: &str, rule: Rule) {
        self.table(table).rules.insert(family.to_owned(), rule);
    }

    /// A clock shows this time, microseconds.
    pub fn time_is(&mut self, micros: i64) {
        self.latest = self.latest.max(micros);
    }

    /// The table is gone.
    pub fn drop_table(&mut self, table: &str) {
        self.tables.remove(table);
    }

    /// Is the table there?
    pub fn has_table(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    /// The tables, sorted.
    pub fn tables(&self) -> Vec<String> {
        self.tables.keys().cloned().collect()
    }

    /// The families of a table, sorted.
    pub fn families(&self, table: &str) -> Vec<String> {
        let table = self.tables.get(table);
        table.map_or_else(Vec::new, |table| table.families.iter().cloned().collect())
    }

    /// A family was declared.
    pub fn add_family(&mut self, table: &str, family: &str) {
        self.table(table).families.insert(family.to_owned());
    }

    /// A family was dropped: its cells are gone from every state.
    pub fn drop_family(&mut self, table: &str, family: &str) {
        let table = self.table(table);
        table.families.remove(family);
        for state in table.rows.values_mut().flat_map(|row| &mut row.states) {
            state.drop_family(family);
        }
    }

    fn table(&mut self, table: &str) -> &mut Table {
        self.tables.get_mut(table).expect("the table is known")
    }

    fn row(&mut self, table: &str, row: &Bytes) -> &mut Known {
        self.table(table).rows.entry(row.clone()).or_default()
    }

    /// The rows of a table that begin with `prefix` and may be there.
    pub fn rows_with(&self, table: &str, prefix: &[u8]) -> Vec<Bytes> {
        let rows = self.tables.get(table).into_iter().flat_map(|table| table.rows.keys());
        rows.filter(|row| row.starts_with(prefix)).cloned().collect()
    }

    /// An operation on a row is issued; the one before it has ended.
    pub fn begin(&mut self, table: &str, row: &Bytes, changes: &[Change]) {
        let table = self.table(table);
        let known = table.rows.entry(row.clone()).or_default();
        let next = known.newest().after(changes, &table.rules);
        known.states.push(next);
    }

    /// The operation issued last was acknowledged.
    pub fn acknowledge(&mut self, table: &str, row: &Bytes) {
        let known = self.row(table, row);
        known.must = known.last();
    }

    /// The operation issued last was refused: nothing has changed.
    ///
    /// # Errors
    /// A reader has seen what it wrote.
    pub fn refuse(&mut self, table: &str, row: &Bytes) -> Result<(), Violation> {
        let known = self.row(table, row);
        if known.must == known.last() {
            let text = "an operation was refused whose effect a reader has seen";
            return Err(format!("{table} {}: {text}", row.escape_ascii()));
        }
        known.states.pop();
        Ok(())
    }

    /// A read of a table begins.
    pub fn read_begins(&self, table: &str) -> ReadStart {
        let rows = self.tables.get(table).map(|table| &table.rows);
        let rows = rows.into_iter().flatten();
        let must = rows.map(|(row, known)| (row.clone(), known.must)).collect();
        ReadStart { must, reads: self.reads }
    }

    /// A read has ended: checks the rows that `asked` selects, and remembers what was seen.
    ///
    /// # Errors
    /// The answer is none that the model allows.
    pub fn read_ends(
        &mut self,
        table: &str,
        begun: &ReadStart,
        answer: &BTreeMap<Bytes, Row>,
        asked: impl Fn(&Bytes) -> bool,
    ) -> Result<(), Violation> {
        self.reads += 1;
        let (reads, now) = (self.reads, self.latest);
        let Table { rows, rules, .. } = self.table(table);
        let strange = answer.keys().find(|row| !rows.contains_key(*row) || !asked(row));
        if let Some(row) = strange {
            return Err(format!("{table}: nobody wrote or asked for row {}", row.escape_ascii()));
        }
        let asked_at = Asked { rules, now, reads: begun.reads };
        let nothing = Row::new();
        for (row, known) in rows.iter_mut().filter(|(row, _)| asked(row)) {
            let seen = answer.get(row).unwrap_or(&nothing);
            let must = begun.must.get(row).copied().unwrap_or(0);
            let is_legal = |place: &usize| known.states[*place].allows(seen, &asked_at);
            let place = (must..known.states.len()).find(is_legal);
            let place = place.ok_or_else(|| explain(table, row, known, must, seen))?;
            known.must = known.must.max(place);
            State::note_gone(&mut known.states[place..], seen, reads);
        }
        Ok(())
    }

    /// The answer decided what became of unknown operations: forgets all other states.
    ///
    /// # Errors
    /// The answer is none that the model allows.
    pub fn settle(&mut self, table: &str, answer: &BTreeMap<Bytes, Row>) -> Result<(), Violation> {
        let begun = self.read_begins(table);
        self.read_ends(table, &begun, answer, |_| true)?;
        let (reads, now) = (begun.reads, self.latest);
        let Table { rows, rules, .. } = self.table(table);
        let asked_at = Asked { rules, now, reads };
        for (row, known) in rows {
            let seen = answer.get(row).cloned().unwrap_or_default();
            let states = known.states[known.must..].iter();
            let legal = states.filter(|state| state.allows(&seen, &asked_at));
            *known = Known { states: vec![State::settled(seen.clone(), legal)], must: 0 };
        }
        Ok(())
    }
}

fn explain(table: &str, row: &Bytes, known: &Known, must: usize, seen: &Row) -> Violation {
    let mut text = format!(
        "{table} {}: the answer is none of the {} states from {must} on\n  answer: {}\n",
        row.escape_ascii(),
        known.states.len() - must,
        cells(seen)
    );
    for (place, state) in known.states.iter().enumerate() {
        let mark = if place < must { "  (past)" } else { "" };
        let _ = writeln!(text, "  state {place}{mark}: {}", cells(state.cells()));
        let _ = writeln!(text, "    may be gone: {state}");
    }
    text
}

fn cells(row: &Row) -> String {
    let cell = |((family, qualifier, Reverse(at)), value): (&Place, &Bytes)| {
        let start = value[..value.len().min(16)].escape_ascii();
        let column = qualifier.escape_ascii();
        format!("{family}:{column}@{at}={start}({} bytes)", value.len())
    };
    row.iter().map(cell).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(value: &'static str) -> Change {
        Change::Set {
            family: "f".to_owned(),
            qualifier: Bytes::from_static(b"q"),
            timestamp: 5,
            value: Bytes::from_static(value.as_bytes()),
        }
    }

    fn answer(value: &'static str) -> BTreeMap<Bytes, Row> {
        let mut row = Row::new();
        set(value).apply(&mut row);
        BTreeMap::from([(Bytes::from_static(b"r"), row)])
    }

    #[test]
    fn an_answer_must_be_acknowledged_seen_or_under_way() {
        let row = Bytes::from_static(b"r");
        let mut model = Model::default();
        model.create_table("t", &["f"]);
        model.begin("t", &row, &[set("1")]);
        model.acknowledge("t", &row);
        model.begin("t", &row, &[set("2")]);
        let mut lost = model.clone();
        assert!(lost.settle("t", &BTreeMap::new()).is_err(), "1 was acknowledged");
        assert!(lost.settle("t", &answer("3")).is_err(), "nobody wrote 3");
        model.clone().settle("t", &answer("1")).unwrap();
        model.clone().settle("t", &answer("2")).unwrap();
        let begun = model.read_begins("t");
        model.read_ends("t", &begun, &answer("2"), |_| true).unwrap();
        assert!(model.settle("t", &answer("1")).is_err(), "2 was seen");
        assert!(model.refuse("t", &row).is_err(), "2 was seen");
    }

    #[test]
    fn deletes_hide_what_was_written_before_only() {
        let mut row = Row::new();
        let hide = |start, end| Change::DeleteCells {
            family: "f".to_owned(),
            qualifier: Bytes::from_static(b"q"),
            start,
            end,
        };
        set("1").apply(&mut row);
        hide(6, 0).apply(&mut row);
        hide(0, 5).apply(&mut row);
        assert_eq!(row.len(), 1);
        hide(5, 6).apply(&mut row);
        assert_eq!(row.len(), 0);
        set("1").apply(&mut row);
        Change::DeleteFamily { family: "g".to_owned() }.apply(&mut row);
        assert_eq!(row.len(), 1);
        Change::DeleteRow.apply(&mut row);
        assert_eq!(row.len(), 0);
    }
}
