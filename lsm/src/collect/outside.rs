use std::sync::Arc;

use sstable::Table;
use types::SeqNo;

/// A file that is not part of a merge but may hold keys of the same rows and families.
#[derive(Clone)]
pub(crate) struct OutsideFile {
    /// No key of it is before this position.
    pub(crate) first: Vec<u8>,
    /// All its keys are before this position.
    pub(crate) end: Vec<u8>,
    /// Its smallest sequence number.
    pub(crate) smallest: SeqNo,
    /// Its largest sequence number.
    pub(crate) largest: SeqNo,
    /// Its reader, whose filter may rule a row out.
    pub(crate) table: Option<Arc<Table>>,
}

/// The files outside a merge, asked row by row, the rows ascending.
pub(crate) struct Outside {
    /// By their first keys, the last of them first: those still to come.
    coming: Vec<OutsideFile>,
    /// Those that the walk is inside of.
    around: Vec<OutsideFile>,
    /// The row, escaped.
    row: Vec<u8>,
    /// The numbers of the files that may hold something of the row; `None`: nobody asked yet.
    numbers: Option<Vec<(SeqNo, SeqNo)>>,
}

impl Outside {
    pub(crate) fn new(mut files: Vec<OutsideFile>) -> Outside {
        files.sort_by(|a, b| b.first.cmp(&a.first));
        Outside { coming: files, around: Vec::new(), row: Vec::new(), numbers: None }
    }

    /// Enters a row (its prefix), which is after all that were entered before.
    pub(crate) fn enter_row(&mut self, row: &[u8]) {
        self.row.clear();
        self.row.extend_from_slice(row);
        self.numbers = None;
    }

    /// No file outside holds a smaller number of the row; [`SeqNo::MAX`] if none holds any.
    pub(crate) fn floor(&mut self) -> SeqNo {
        let smallest = self.numbers().iter().map(|(smallest, _)| *smallest).min();
        smallest.unwrap_or(SeqNo::MAX)
    }

    /// May a file outside hold a number of the row that is neither before `oldest` nor after
    /// `newest`?
    pub(crate) fn intersects(&mut self, oldest: SeqNo, newest: SeqNo) -> bool {
        let mut numbers = self.numbers().iter();
        numbers.any(|(smallest, largest)| *smallest <= newest && oldest <= *largest)
    }

    fn numbers(&mut self) -> &[(SeqNo, SeqNo)] {
        if self.numbers.is_none() {
            self.numbers = Some(self.look());
        }
        self.numbers.as_deref().unwrap_or_default()
    }

    fn look(&mut self) -> Vec<(SeqNo, SeqNo)> {
        let row = &self.row;
        // The first position after all keys of the row.
        let mut after = row.clone();
        *after.last_mut().expect("a row's prefix has its end mark") = 1;
        while let Some(file) = self.coming.pop_if(|file| file.first < after) {
            self.around.push(file);
        }
        self.around.retain(|file| file.end > *row);
        let holds = |file: &&OutsideFile| {
            file.table.as_ref().is_none_or(|table| table.may_contain_row(row))
        };
        self.around.iter().filter(holds).map(|file| (file.smallest, file.largest)).collect()
    }
}
