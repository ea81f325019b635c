//! Drops rows of a range: logged, then cut out of memory and files in one manifest.
//!
//! 1. Set log space aside, then under the range's lock take a sequence number, end the memtable
//!    with the cut and queue its log record. From here on batches wait.
//! 2. Wait until the record is durable: a crash no longer brings the rows back.
//! 3. Flush up to the cut. Batches go on.
//!
//! If the flush fails (a full disk), batches wait until a later one does not: one that went ahead
//! could be seen beside cells that are about to go.

use std::sync::Arc;

use client::Result;
use lsm::encode_excise;
use types::RowRange;

use crate::error::from_store;
use crate::range::Range;
use crate::server::Shared;

impl Shared {
    pub(super) async fn drop_rows(
        self: &Arc<Self>,
        range: &Arc<Range>,
        rows: &RowRange,
    ) -> Result<()> {
        let rows = rows.intersection(range.store().bounds());
        if rows.is_empty() {
            return Ok(());
        }
        let _alone = range.alteration.lock().await;
        let payload = encode_excise(&rows);
        let space = self.log_space(payload.len()).await?;
        self.check_serving()?;
        let ticket = range.place_excise(&rows, payload, space, &self.pipeline)?;
        let logged = ticket.wait(&self.pipeline.env).await;
        logged.map_err(|failed| client::Error::new(failed.kind, &*failed.reason))?;
        self.flush_cut(range).await
    }

    async fn flush_cut(self: &Arc<Self>, range: &Arc<Range>) -> Result<()> {
        while range.store().has_pending_excise() {
            let flushed = range.store().flush().await;
            range.recount();
            self.budget.wake_waiters();
            if let Err(error) = flushed {
                self.note_store_failure(range, &error);
                self.budget.flush_work.notify_one();
                return Err(from_store(&error));
            }
            self.check_serving()?;
        }
        self.compaction_work.notify_one();
        Ok(())
    }
}
