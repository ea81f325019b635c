//! The care for ranges: rows dropped, ranges divided, flushed and merged, on request or by size.
//!
//! An alteration (a drop, a division) runs in a task of its own, one at a time in each range: a
//! caller that goes away does not leave it half done.

mod drop_rows;
mod split;
pub(crate) mod sweep;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use client::{RangeKeeper, RangeStatus, RangeTarget, Result};
use lsm::Reason;
use types::{ErrorKind, RowRange};

use crate::error::from_store;
use crate::range::Range;
use crate::server::{RangeServer, Shared};

pub(crate) use split::split_large_ranges;

#[async_trait]
impl RangeKeeper for RangeServer {
    async fn drop_rows(&self, target: RangeTarget, rows: &RowRange) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let (range, rows) = (shared.kept(&target).await?, rows.clone());
        self.alter("drop rows", async move { shared.drop_rows(&range, &rows).await }).await
    }

    async fn split(&self, target: RangeTarget, at: Option<Bytes>) -> Result<Option<Bytes>> {
        let shared = Arc::clone(&self.shared);
        let range = shared.kept(&target).await?;
        self.alter("divide a range", async move { shared.split(&range, at).await }).await
    }

    async fn flush(&self, target: RangeTarget) -> Result<()> {
        let range = self.shared.kept(&target).await?;
        self.shared.flush_kept(&range).await
    }

    async fn compact(&self, target: RangeTarget) -> Result<RangeStatus> {
        let range = self.shared.kept(&target).await?;
        self.shared.flush_kept(&range).await?;
        match range.store().compact_all().await {
            Ok(_) => Ok(status_of(&range)),
            Err(_) if range.is_closed() => Err(range.closed()),
            Err(error) => {
                self.shared.note_store_failure(&range, &error);
                Err(from_store(&error))
            }
        }
    }

    async fn status(&self, target: RangeTarget) -> Result<RangeStatus> {
        let range = self.shared.kept(&target).await?;
        Ok(status_of(&range))
    }
}

impl RangeServer {
    async fn alter<T: Send + 'static>(
        &self,
        name: &'static str,
        alteration: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let task = self.shared.pipeline.env.spawn(name, alteration);
        let broken_off = || client::Error::new(ErrorKind::Aborted, format!("{name}: broken off"));
        task.join().await.unwrap_or_else(|| Err(broken_off()))
    }
}

impl Shared {
    async fn kept(&self, target: &RangeTarget) -> Result<Arc<Range>> {
        self.check_serving()?;
        self.ranges.serving(target).await
    }

    async fn flush_kept(&self, range: &Arc<Range>) -> Result<()> {
        match self.flush_whole(range, Reason::Asked).await {
            Ok(()) => Ok(()),
            Err(_) if range.is_closed() => Err(range.closed()),
            Err(error) => Err(error.into()),
        }
    }
}

fn status_of(range: &Range) -> RangeStatus {
    let (store, version) = (range.store(), range.store().version());
    let runs = version.groups().iter().map(|group| {
        let (new, levels): (Vec<u32>, Vec<u32>) =
            group.tables.iter().map(|table| table.level).partition(|level| *level == 0);
        let levels: std::collections::BTreeSet<u32> = levels.into_iter().collect();
        new.len() + levels.len()
    });
    RangeStatus {
        bytes: version.bytes(),
        memory_bytes: store.memory_bytes() as u64,
        files: version.file_ids().len() as u64,
        sorted_runs: runs.sum::<usize>() as u64,
        activity: range.activity(),
    }
}
