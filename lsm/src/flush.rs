//! Flush: a frozen memtable becomes SSTables that a manifest names.
//!
//! 1. Take the oldest frozen memtable whose last sequence number is published.
//! 2. Write its cells, in order, to the SSTables of their locality groups, cut at row boundaries;
//!    check each whole. Rows that the memtable's end cuts out of the range ([`crate::excise`]) are
//!    passed over.
//! 3. Commit one manifest with all of them, with the layout that they were written under, and with
//!    `flushed` at the memtable's last number: all groups are flushed up to one number. It cuts
//!    those rows out of all other files.
//! 4. Reads pin the new state; the memtable is dropped elsewhere.
//!
//! A full disk changes nothing: the memtable waits and the flush may be tried again.

use std::collections::BTreeSet;
use std::sync::Arc;

use env::planted::{PlantedBug, planted};
use types::SeqNo;

use crate::clip::encoded;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::events::{Event, Reason};
use crate::io::IoClass;
use crate::layout::Layout;
use crate::output::Written;
use crate::outputs::Outputs;
use crate::store::{Layer, Store, Turn};
use crate::version::{Edit, TableRef};

/// Cells between two points at which a flush lets other tasks run or is called off.
const CELLS_PER_TURN: usize = 1024;

/// What a flush did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// Everything up to this number is in SSTables.
    pub flushed: SeqNo,
    /// Locality groups that got SSTables.
    pub groups: usize,
    /// SSTables written.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Store {
    /// Flushes the oldest frozen memtable. `None`: there is none, or not all of it is published.
    ///
    /// # Errors
    /// `ResourceExhausted` when the disk is full: nothing has changed. [`Error::Poisoned`] and
    /// [`Error::Fenced`] stop the store.
    pub async fn flush(self: &Arc<Self>) -> Result<Option<Flushed>> {
        let turn = self.turn_to_flush().await?;
        let Some(layer) = self.state().frozen.first().cloned() else {
            return Ok(None);
        };
        let (last, reason) = *layer.frozen.get().expect("a frozen memtable has its last number");
        if last > self.published() && !planted(PlantedBug::FlushUnpublishedCell) {
            return Ok(None);
        }
        let started = self.env().monotonic();
        let bytes = layer.memtable.memory_bytes() as u64;
        self.tell(&Event::FlushStarted { reason, bytes });
        match self.flush_layer(layer, last, turn).await {
            Ok(done) => {
                let duration = self.env().monotonic().saturating_sub(started);
                let Flushed { groups, files, bytes, flushed } = done;
                self.counters.flushed_bytes.add(bytes);
                self.tell(&Event::FlushFinished { groups, files, bytes, flushed, duration });
                Ok(Some(done))
            }
            Err(failed) => {
                self.tell(&Event::FlushFailed { error: failed.to_string() });
                self.remove_retired().await;
                Err(self.note_failure(failed))
            }
        }
    }

    /// Freezes and flushes until every published batch is in SSTables: before a range is closed,
    /// moved, or for a test. To be called under the owner's lock against new batches.
    ///
    /// # Errors
    /// As [`Store::flush`].
    pub async fn flush_all(self: &Arc<Self>, reason: Reason) -> Result<()> {
        self.freeze(reason);
        while self.flush().await?.is_some() {}
        Ok(())
    }

    async fn flush_layer(
        self: &Arc<Self>,
        layer: Arc<Layer>,
        last: SeqNo,
        turn: Turn,
    ) -> Result<Flushed> {
        // A schema that changes from here on waits for the next flush.
        let layout = self.layout();
        let written = self.write_layer(&layer, &layout).await?;
        let groups: BTreeSet<usize> = written.tables().iter().map(|new| new.group).collect();
        let (groups, files) = (groups.len(), written.tables().len());
        let done = Flushed { flushed: last, groups, files, bytes: written.bytes() };
        let excised = layer.excised.get().cloned();
        let edit = Edit {
            excised: excised.clone().into_iter().collect(),
            added: level_zero(&written),
            layout: Some(layout),
            flushed: Some(last),
            last_timestamp: Some(self.last_timestamp_bound()),
            ..Edit::default()
        };
        // Handed over: nobody who waits for the flush shall pay for the memtable's drop.
        self.commit(edit, written, Some(layer), turn).await?;
        if excised.is_some() {
            self.tell(&Event::RowsExcised { seq: last });
        }
        Ok(done)
    }

    async fn write_layer(&self, layer: &Layer, layout: &Arc<Layout>) -> Result<Written> {
        let mut output = Outputs::new(&self.files, self.options(), layout);
        let mut cursor = layer.memtable.cursor();
        let cut = layer.excised.get().map(encoded);
        let mut more = cursor.seek(&[]);
        let (mut turn, mut noted) = (0, 0);
        while more {
            if let Some((low, high)) = &cut
                && cursor.key() >= &low[..]
                && high.as_ref().is_none_or(|high| cursor.key() < &high[..])
            {
                more = high.as_ref().is_some_and(|high| cursor.seek(high));
                continue;
            }
            output.add(cursor.key(), cursor.value()).await?;
            more = cursor.next();
            turn += 1;
            if turn == CELLS_PER_TURN {
                turn = 0;
                let written = output.bytes();
                self.limiter().spend(IoClass::Flush, written - noted).await;
                noted = written;
                self.env().yield_now().await;
                self.check()?;
            }
        }
        output.finish().await
    }
}

/// References to new files that may overlap others.
pub(crate) fn level_zero(written: &Written) -> Vec<(usize, TableRef)> {
    let reference =
        |meta: &sstable::TableMeta| TableRef { meta: meta.clone(), level: 0, clip: None };
    written.tables().iter().map(|new| (new.group, reference(&new.meta))).collect()
}
