//! Writes cells in key order to the files of their locality groups: one pass over the cells, one
//! [`Output`] for each group.
//!
//! A cell goes to the group of its family. A row's tombstone belongs to no family: a flush writes
//! it to every group, so that each group hides by itself what it holds. The tombstones of a row
//! thus come once for each group; a merge of the groups shows them once, since their keys are the
//! same.

use std::sync::Arc;

use sstable::{StoredValue, Table};
use types::{FamilyId, key};

use crate::error::{Error, Result};
use crate::files::TableFiles;
use crate::layout::Layout;
use crate::options::StoreOptions;
use crate::output::{Neighbours, Output, Written};

/// What of a merge's cells goes to another group than that of its inputs, `home`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moves {
    /// Nothing.
    Nothing { home: usize },
    /// Cells of families that belong elsewhere. The tombstones of rows stay.
    Families { home: usize },
}

impl Moves {
    fn home(self) -> usize {
        match self {
            Moves::Nothing { home } | Moves::Families { home } => home,
        }
    }
}

/// Writes one run of SSTables for each locality group.
pub(crate) struct Outputs {
    layout: Arc<Layout>,
    /// `None`: what is written was in no file before.
    moves: Option<Moves>,
    outputs: Vec<Output>,
    /// The family that came last, and the place of its group.
    last: (FamilyId, usize),
}

impl Outputs {
    pub(crate) fn new(
        files: &Arc<TableFiles>,
        options: &StoreOptions,
        layout: &Arc<Layout>,
    ) -> Outputs {
        let groups = layout.groups().iter().enumerate();
        let output = |(place, group): (usize, &types::LocalityGroup)| {
            Output::new(files, options, place, &group.settings)
        };
        let last = (FamilyId::ROW, 0);
        let outputs = groups.map(output).collect();
        Outputs { layout: Arc::clone(layout), moves: None, outputs, last }
    }

    /// For the cells of a merge.
    pub(crate) fn of_merge(
        files: &Arc<TableFiles>,
        options: &StoreOptions,
        layout: &Arc<Layout>,
        moves: Moves,
    ) -> Outputs {
        Outputs { moves: Some(moves), ..Outputs::new(files, options, layout) }
    }

    /// Cuts the files of a merge's own group by those of the level after theirs.
    #[must_use]
    pub(crate) fn beside(mut self, neighbours: Neighbours) -> Outputs {
        let home = self.moves.map_or(0, Moves::home);
        self.outputs[home].set_neighbours(neighbours);
        self
    }

    /// Bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.outputs.iter().map(Output::bytes).sum()
    }

    /// Adds a cell without waiting, as [`Output::put`].
    ///
    /// # Errors
    /// As [`Output::put`].
    #[inline]
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        match self.place(key)? {
            Some(place) => self.outputs[place].put(key, value),
            None => Ok(false),
        }
    }

    /// Adds a cell; keys ascend.
    ///
    /// # Errors
    /// As [`Output::add`].
    pub(crate) async fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self.place(key)? {
            Some(place) => self.outputs[place].add(key, value).await,
            None => {
                for output in &mut self.outputs {
                    output.add(key, value).await?;
                }
                Ok(())
            }
        }
    }

    /// The only output that a merge's cells go to, if there is only one.
    pub(crate) fn only(&mut self) -> Option<&mut Output> {
        match self.moves {
            Some(Moves::Nothing { home }) => self.outputs.get_mut(home),
            _ if self.outputs.len() == 1 => self.outputs.first_mut(),
            _ => None,
        }
    }

    /// The cell just added, of this key, is one that retention allows to drop: `bytes` of key and
    /// value.
    ///
    /// # Errors
    /// What is no key.
    pub(crate) fn note_expired(&mut self, key: &[u8], bytes: u64) -> Result<()> {
        let place = self.place(key)?.unwrap_or_default();
        self.outputs[place].note_expired(bytes);
        Ok(())
    }

    /// The group that a key goes to; `None`: all of them.
    #[inline]
    fn place(&mut self, key: &[u8]) -> Result<Option<usize>> {
        if self.outputs.len() == 1 {
            return Ok(Some(0));
        }
        if let Some(Moves::Nothing { home }) = self.moves {
            return Ok(Some(home));
        }
        let family = family_of(key)?;
        if family == FamilyId::ROW {
            return Ok(self.moves.map(Moves::home));
        }
        if self.last.0 != family {
            self.last = (family, self.layout.place_of(family));
        }
        Ok(Some(self.last.1))
    }

    /// Adds a cell whose value lies outside the blocks of `from`; see [`Output::add_stored`].
    ///
    /// # Errors
    /// As [`Output::add_stored`].
    pub(crate) async fn add_stored(
        &mut self,
        key: &[u8],
        from: &Arc<Table>,
        value: &StoredValue,
    ) -> Result<()> {
        let place = self.place(key)?.unwrap_or_default();
        self.outputs[place].add_stored(key, from, value).await
    }

    /// Finishes the last files and hands over all of them.
    ///
    /// # Errors
    /// As [`Output::add`].
    pub(crate) async fn finish(self) -> Result<Written> {
        let mut written: Option<Written> = None;
        for output in self.outputs {
            let more = output.finish().await?;
            match &mut written {
                Some(written) => written.append(more),
                None => written = Some(more),
            }
        }
        Ok(written.expect("there is a default group"))
    }
}

fn family_of(key: &[u8]) -> Result<FamilyId> {
    let row = key::row_prefix(key).map_or(usize::MAX, <[u8]>::len);
    let family = key.get(row..).and_then(<[u8]>::first_chunk::<4>);
    let family =
        family.ok_or_else(|| Error::CorruptCell { what: "a key has no row".to_owned() })?;
    Ok(FamilyId::new(u32::from_be_bytes(*family)))
}
