//! A scrub of a table: every range reads all that it stores again, one range after the other.
//!
//! 1. The range that holds the next row is asked to scrub; what it finds is handed on, file by
//!    file.
//! 2. When it has ended, the scrub stands at the range's end.
//! 3. A range that was moved is looked up again and begun anew: files may come twice, none is left
//!    out.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use types::{ErrorKind, RangeId, TableName};

use crate::{Result, Router};

/// One file that was read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubbedFile {
    /// The range that the file belongs to.
    pub range: RangeId,
    /// The file's path in the data folder.
    pub path: String,
    /// Its bytes.
    pub bytes: u64,
    /// What is wrong with it, if anything is.
    pub damage: Option<FileDamage>,
    /// Bytes that the range has still to read.
    pub bytes_left: u64,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDamage {
    /// `Corrupt` for damaged bytes, `NotFound` for a file that is gone, else why it cannot be read.
    pub kind: ErrorKind,
    /// Where in the file, as far as that is known.
    pub offset: Option<u64>,
    /// What is wrong.
    pub what: String,
}

/// A scrub of one range: pulled, file by file. Dropping it ends it.
#[async_trait]
pub trait RangeScrub: Send {
    /// Reads the next file; `None` at the end.
    ///
    /// # Errors
    /// The range is no longer served here. Damage is no error.
    async fn next(&mut self) -> Result<Option<ScrubbedFile>>;
}

/// A scrub of a table: pulled, file by file. Dropping it ends it.
pub struct TableScrub {
    router: Arc<Router>,
    name: TableName,
    /// All before is read; `None` at the end of the table.
    from: Option<Bytes>,
    running: Option<Running>,
    failures: u32,
}

struct Running {
    scrub: Box<dyn RangeScrub>,
    end: Option<Bytes>,
}

impl std::fmt::Debug for TableScrub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableScrub")
            .field("table", &self.name)
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}

impl Router {
    /// Starts to read all files of a table again.
    pub fn scrub(self: &Arc<Self>, name: &TableName) -> TableScrub {
        TableScrub {
            router: Arc::clone(self),
            name: name.clone(),
            from: Some(Bytes::new()),
            running: None,
            failures: 0,
        }
    }
}

impl TableScrub {
    /// The next file; `None` at the end.
    ///
    /// # Errors
    /// `NotFound`, or what a range answered. Damage is no error.
    pub async fn next(&mut self) -> Result<Option<ScrubbedFile>> {
        loop {
            match self.pull().await {
                Ok(Some(file)) => {
                    self.failures = 0;
                    return Ok(Some(file));
                }
                Ok(None) if self.from.is_none() => return Ok(None),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::WrongRange => {
                    self.running = None;
                    self.failures += 1;
                    if !self.router.wait_to_retry(&error, self.failures, None).await {
                        return Err(error);
                    }
                    self.router.forget(&self.name);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The next file of the present range; `None` when it has ended.
    async fn pull(&mut self) -> Result<Option<ScrubbedFile>> {
        let Some(from) = self.from.clone() else {
            return Ok(None);
        };
        if self.running.is_none() {
            let layout = self.router.layout(&self.name).await?;
            let location = &layout.ranges[layout.place_of(&from)];
            let target = location.target(&layout.schema, None);
            let scrub = location.server.scrub(target).await?;
            self.running = Some(Running { scrub, end: location.rows.end.clone() });
        }
        let Some(running) = &mut self.running else {
            return Ok(None);
        };
        let file = running.scrub.next().await?;
        if file.is_none() {
            self.from = running.end.take();
            self.running = None;
        }
        Ok(file)
    }
}
