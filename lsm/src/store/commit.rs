//! Commits an edit: next version → manifest → installed state. One at a time.
//!
//! A commit runs as a task of its own, so that a caller who goes away cannot leave it half done;
//! it holds the caller's turn, so that nobody begins the same work anew before it has ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sstable::Table;
use types::FileId;

use super::open::successor;
use super::{Head, Layer, State, Store, Turn};
use crate::clip::measure;
use crate::error::{Error, Result};
use crate::events::Event;
use crate::manifest::{Manifest, Outcome};
use crate::output::Written;
use crate::version::{Edit, TableRef, Version};

impl Store {
    /// Commits `edit` with the new files that it needs; `flushed` is the memtable that they
    /// replace.
    ///
    /// # Errors
    /// [`Error::Poisoned`] and [`Error::Fenced`] stop the store; after others nothing has changed.
    pub(crate) async fn commit(
        self: &Arc<Self>,
        edit: Edit,
        written: Written,
        flushed: Option<Arc<Layer>>,
        turn: Turn,
    ) -> Result<()> {
        let store = Arc::clone(self);
        let task = self.env().spawn("manifest commit", async move {
            let outcome = store.commit_here(edit, written, flushed).await;
            drop(turn);
            outcome.map_err(|failed| store.note_failure(failed))
        });
        task.join().await.unwrap_or(Err(Error::Closed))
    }

    async fn commit_here(
        self: &Arc<Self>,
        edit: Edit,
        written: Written,
        flushed: Option<Arc<Layer>>,
    ) -> Result<()> {
        self.tell(&Event::ManifestStarted);
        let mut head = self.head.lock().await;
        self.check()?;
        let started = self.env().monotonic();
        // Only a commit changes the version, and this is the only one.
        let state = self.state();
        let mut version = state.version.apply(&edit)?;
        measure(&mut version, |id| state.tables.get(&id).or_else(|| written.table(id))).await;
        drop(state);
        let version = Arc::new(version);
        let manifest = successor(&self.config, Some(*head), Version::clone(&version));
        let stored = Bytes::from(manifest.encode());
        let next = Head { number: manifest.number, checksum: Manifest::checksum(&stored) };
        let bytes = stored.len() as u64;
        match self.chain.commit(&manifest, stored).await {
            Ok(Outcome::Committed) => {}
            Ok(Outcome::Superseded(newest)) => {
                // Its successor may have built on ours before we looked: the files stay.
                written.keep();
                return Err(Error::Fenced { newest: newest.epoch, own: self.config.epoch });
            }
            Err(failed @ Error::Poisoned { .. }) => {
                // The manifest may be there and name them.
                written.keep();
                return Err(failed);
            }
            Err(failed) => return Err(failed),
        }
        *head = next;
        self.compactions.recount(&version, self.options());
        self.install(version, written, flushed);
        let duration = self.env().monotonic().saturating_sub(started);
        drop(head);
        self.tell(&Event::ManifestCommitted { number: next.number, bytes, duration });
        self.remove_retired().await;
        Ok(())
    }

    /// Makes the committed version the one that reads pin, and retires what it gave up.
    fn install(&self, version: Arc<Version>, written: Written, flushed: Option<Arc<Layer>>) {
        let writing = self.writing();
        let state = self.state();
        let live = version.file_ids();
        let mut tables = state.tables.clone();
        for new in written.keep() {
            // A manifest names it from here on.
            self.config.file_ids.settle(new.meta.file);
            tables.insert(new.meta.file, new.table);
        }
        let (tables, given_up): (BTreeMap<_, _>, BTreeMap<_, _>) =
            tables.into_iter().partition(|(id, _)| live.contains(id));
        let mut frozen = state.frozen.clone();
        if let Some(layer) = &flushed {
            let before = frozen.len();
            frozen.retain(|other| !Arc::ptr_eq(other, layer));
            assert!(frozen.len() + 1 == before, "a flushed memtable was frozen");
            layer.memtable.outlive(&self.config.outlived);
        }
        let active = Arc::clone(&state.active);
        self.pinned.install(Arc::new(State { version, tables, active, frozen }));
        drop(writing);
        self.retire_given_up(&state, given_up);
        if flushed.is_some() {
            // The last holder pays for the drop, a third of a second for a million cells: not
            // whoever commits, and mostly not a read.
            let env = self.env().clone();
            let blocking = env.clone();
            env.spawn("drop memtable", async move {
                blocking.blocking(move || drop((state, flushed)));
            });
        }
    }

    /// Files that were clipped may be another range's too: those are the table's to sweep.
    fn retire_given_up(&self, before: &State, given_up: BTreeMap<FileId, Arc<Table>>) {
        let find = |id: FileId| before.version.tables().find(move |table| table.id() == id);
        for (id, table) in given_up {
            let shared = |reference: &&Arc<TableRef>| reference.clip.is_none();
            if let Some(reference) = find(id).filter(shared) {
                self.files.retire(id, reference.meta.len, Some(table));
            }
        }
    }
}
