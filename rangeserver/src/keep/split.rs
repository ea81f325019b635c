//! Divides a range into two, on request or because it has grown too large.
//!
//! 1. Take two fresh ids from the catalog.
//! 2. Flush while serving; choose the row, if none was asked for.
//! 3. Bar the range: batches wait. Flush what came meanwhile, which is little.
//! 4. Seal its storage and write the children's first manifests.
//! 5. Close it: requests wait. The catalog puts the children in its place, in one step. Requests
//!    are answered `WrongRange` and look it up again.
//! 6. Its storage is closed and its folder goes. The children open at their first request.
//!
//! A crash before the catalog's step leaves the range whole and the children's folders to the next
//! start, after it the children whole and the range's folder. When the catalog refuses, the range
//! goes on. When its answer is unknown, the range is closed and left: the next request asks the
//! catalog what is there.
//!
//! Reads that are under way end with `WrongRange` and go on in the children after their last row.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use client::{Division, Error, Result};
use lsm::{Event, Reason};
use types::{ErrorKind, RangeId, RowRange};

use crate::error::from_store;
use crate::maintenance;
use crate::range::Range;
use crate::server::Shared;

/// Lets batches go on when a division ends, however it does.
struct Bar<'a> {
    shared: &'a Shared,
    range: &'a Range,
}

impl<'a> Bar<'a> {
    fn new(shared: &'a Shared, range: &'a Range) -> Bar<'a> {
        range.bar(true);
        Bar { shared, range }
    }
}

impl Drop for Bar<'_> {
    fn drop(&mut self) {
        self.range.bar(false);
        self.shared.budget.wake_waiters();
    }
}

impl Shared {
    /// Divides a range at `at`, or near its middle; returns the row.
    pub(super) async fn split(
        self: &Arc<Self>,
        range: &Arc<Range>,
        at: Option<Bytes>,
    ) -> Result<Option<Bytes>> {
        let first = self.config.assignments.take_range_ids(2).await?;
        let _alone = range.alteration.lock().await;
        if range.is_closed() {
            return Err(range.closed());
        }
        self.flush_for_split(range).await?;
        let at = match at {
            Some(at) => Some(at),
            None => range.store().middle().await.map_err(|error| from_store(&error))?,
        };
        let Some(at) = at else {
            return Ok(None);
        };
        let bounds = range.store().bounds();
        if !bounds.contains(&at) || at == bounds.start {
            return Err(Error::invalid("a range is divided at a row inside it"));
        }
        let started = self.pipeline.env.monotonic();
        let children = [
            (first, RowRange { start: bounds.start.clone(), end: Some(at.clone()) }),
            (
                RangeId::new(first.get() + 1),
                RowRange { start: at.clone(), end: bounds.end.clone() },
            ),
        ];
        let division = Division {
            table: range.table(),
            range: range.id(),
            epoch: range.store().epoch(),
            session: self.config.session,
            children,
        };
        let bar = Bar::new(self, range);
        self.flush_for_split(range).await?;
        let divided = self.divide(range, &division).await;
        drop(bar);
        divided?;
        let [(left, _), (right, _)] = division.children;
        let duration = self.pipeline.env.monotonic().saturating_sub(started);
        self.config.events.on_event(range.id(), &Event::RangeSplit { left, right, duration });
        Ok(Some(at))
    }

    async fn flush_for_split(&self, range: &Arc<Range>) -> Result<()> {
        self.flush_whole(range, Reason::Split).await.map_err(Error::from)
    }

    /// From the sealed storage to the closed range.
    async fn divide(self: &Arc<Self>, range: &Arc<Range>, division: &Division) -> Result<()> {
        let store = range.store();
        store.seal().await.map_err(|error| from_store(&error))?;
        for (child, rows) in &division.children {
            if let Err(error) = store.write_child(*child, rows).await {
                self.note_store_failure(range, &error);
                self.undo(range, division).await;
                return Err(from_store(&error));
            }
        }
        // No read that is answered from here on may miss what the children take in.
        range.close_writing();
        let divided = self.config.assignments.divide(division).await;
        if matches!(divided, Ok(false)) {
            self.undo(range, division).await;
            if self.ranges.has(range) {
                range.reopen();
            }
            return Err(Error::new(ErrorKind::Aborted, "the range was granted anew, or is going"));
        }
        range.close().await;
        self.ranges.leave(range);
        maintenance::release_log(self).await;
        if divided? {
            // What a failure leaves of it is removed by the next start.
            let _ = store.remove_folder(range.id()).await;
        }
        Ok(())
    }

    async fn undo(&self, range: &Range, division: &Division) {
        for (child, _) in &division.children {
            // What a failure leaves of it is removed by the next start.
            let _ = range.store().remove_folder(*child).await;
        }
        range.store().unseal();
    }
}

/// Divides the ranges that have grown past their size. What is in memory counts too; it is written
/// out first, since only then it is known how large it is and at which row to divide.
/// `undividable`: ranges that had no row to be divided at, with their bytes then; they are not
/// tried again before they have doubled.
pub(crate) async fn split_large_ranges(
    shared: &Arc<Shared>,
    undividable: &mut BTreeMap<RangeId, u64>,
) {
    let most = shared.config.options.range_bytes_max;
    let ranges = shared.ranges.all();
    undividable.retain(|id, _| ranges.iter().any(|range| range.id() == *id));
    for range in ranges {
        let tried = undividable.get(&range.id()).copied().unwrap_or(0);
        let is_due = |bytes: u64| most > 0 && bytes > most && bytes / 2 >= tried;
        let in_files = || range.store().version().bytes();
        let in_all = in_files().saturating_add(range.store().memory_bytes() as u64);
        if !is_due(in_all) || shared.is_stopping() {
            continue;
        }
        // The reason of a failure has been told, or passes; and the next look finds it so again.
        let is_written =
            is_due(in_files()) || shared.flush_whole(&range, Reason::Split).await.is_ok();
        let bytes = in_files();
        if !is_written || !is_due(bytes) {
            continue;
        }
        match shared.split(&range, None).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                undividable.insert(range.id(), bytes);
            }
            // Another time: the reason has been told, or passes.
            Err(_) => {}
        }
    }
}
