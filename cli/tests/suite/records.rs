//! What one client keeps of its operations, in a file that is synced at every acknowledgement.
//!
//! ```text
//! intent N         operation N will be sent; not synced, since the machine does not go down
//! done N P P …     its row changes at these places were acknowledged
//! found N P P …    a later look found these others applied too, and no more
//! ```
//!
//! Whether an operation that was interrupted took effect is found out before the next is sent, so
//! only the last operation can be open.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::load::{Cells, Operation};

/// The file, open to append.
pub(crate) struct Records {
    file: File,
}

impl Records {
    pub(crate) fn open(path: &Path) -> Records {
        Records { file: File::options().append(true).create(true).open(path).unwrap() }
    }

    pub(crate) fn intent(&mut self, number: u64) {
        self.file.write_all(format!("intent {number}\n").as_bytes()).unwrap();
    }

    pub(crate) fn done(&mut self, number: u64, places: &[usize]) {
        self.keep(&format!("done {number}{}\n", listed(places)));
    }

    pub(crate) fn found(&mut self, number: u64, places: &[usize]) {
        self.keep(&format!("found {number}{}\n", listed(places)));
    }

    fn keep(&mut self, line: &str) {
        self.file.write_all(line.as_bytes()).unwrap();
        self.file.sync_data().unwrap();
    }
}

fn listed(places: &[usize]) -> String {
    places.iter().map(|place| format!(" {place}")).collect()
}

/// What a client's records say.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The number of the next operation.
    pub(crate) next: u64,
    /// What each row must hold, the open row changes left aside.
    pub(crate) rows: BTreeMap<u32, Cells>,
    /// The last operation and those of its row changes of which nobody knows whether they took
    /// effect, by place.
    pub(crate) open: Option<(u64, Vec<usize>)>,
}

impl History {
    /// Reads the records of `client` at `path`.
    pub(crate) fn read(path: &Path, seed: u64, client: u32) -> History {
        let mut history = History::default();
        // Of the last operation.
        let mut unknown = BTreeSet::new();
        for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
            let mut words = line.split(' ');
            let what = words.next().unwrap();
            let number: u64 = words.next().unwrap().parse().unwrap();
            let operation = Operation::new(seed, client, number);
            if what == "intent" {
                assert!(unknown.is_empty(), "operation {number} follows one that is open");
                assert_eq!(number, history.next);
                history.next = number + 1;
                unknown = (0..operation.rows.len()).collect();
            }
            for place in words.map(|word| word.parse::<usize>().unwrap()) {
                assert!(unknown.remove(&place), "{line}");
                let change = &operation.rows[place];
                change.apply(history.rows.entry(change.row).or_default());
            }
            if what == "found" {
                unknown.clear();
            }
        }
        if !unknown.is_empty() {
            history.open = Some((history.next - 1, unknown.into_iter().collect()));
        }
        history
    }
}
