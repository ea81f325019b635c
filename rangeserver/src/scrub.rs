//! A scrub of a range, as the seam has it.

use std::sync::Arc;

use async_trait::async_trait;
use client::{FileDamage, RangeScrub, Result, ScrubbedFile};
use lsm::Scrub;

use crate::error::from_store;
use crate::range::Range;

/// A scrub under way.
pub(crate) struct Scrubbing {
    range: Arc<Range>,
    scrub: Scrub,
}

impl Scrubbing {
    /// Begins to scrub what `range` stores.
    pub(crate) async fn start(range: Arc<Range>, bytes_per_second: u64) -> Result<Scrubbing> {
        let begun = range.store().scrub(bytes_per_second).await;
        let scrub = begun.map_err(|error| from_store(&error))?;
        Ok(Scrubbing { range, scrub })
    }
}

#[async_trait]
impl RangeScrub for Scrubbing {
    async fn next(&mut self) -> Result<Option<ScrubbedFile>> {
        let scrubbed = match self.scrub.next().await {
            Ok(scrubbed) => scrubbed,
            Err(_) if self.range.is_closed() => return Err(self.range.closed()),
            Err(error) => return Err(from_store(&error)),
        };
        Ok(scrubbed.map(|scrubbed| ScrubbedFile {
            range: self.range.id(),
            path: scrubbed.path.to_string(),
            bytes: scrubbed.bytes,
            damage: scrubbed.damage.map(|found| FileDamage {
                kind: found.kind,
                offset: found.offset,
                what: found.what,
            }),
            bytes_left: self.scrub.bytes_left(),
        }))
    }
}
