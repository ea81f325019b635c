//! Files that merges could not read: set aside, so that one damaged file costs its range no more
//! than the merges that need it.
//!
//! 1. A merge that meets damage of an input, or cannot read it, ends without an outcome: what is
//!    damaged never makes a new file. Nothing was written that anybody relies on, so the range goes
//!    on: this is no failed write.
//! 2. The file to blame is set aside. The chooser leaves it alone, and so all that a merge of it
//!    would take along; all else is merged as before, and every row that is whole is read.
//! 3. After a pause it may be merged again, since a disk may have been mended; every failure makes
//!    the pause twice as long. A merge that is asked for is tried at once.
//!
//! Who is to blame: the input that the failure names; if it names none, the inputs that a scrub
//! finds damaged; if it finds none, all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use types::{ErrorKind, FileId};

use super::choose::Plan;
use crate::error::{Error, Result};
use crate::events::Event;
use crate::scrub::{Pace, check_table};
use crate::store::{State, Store};
use crate::version::{TableRef, Version};

/// The pause after the first failure.
const PAUSE_MIN: Duration = Duration::from_secs(60);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// The files that are set aside.
#[derive(Debug, Default)]
pub(crate) struct Aside(Mutex<BTreeMap<FileId, Pause>>);

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Duration,
    long: Duration,
}

impl Aside {
    /// The files that no merge is to be tried with yet.
    pub(crate) fn files(&self, now: Duration) -> BTreeSet<FileId> {
        let held = self.held();
        held.iter().filter(|(_, pause)| now < pause.until).map(|(file, _)| *file).collect()
    }

    /// How many files are set aside, those among them whose pause has passed.
    pub(crate) fn count(&self) -> u64 {
        self.held().len() as u64
    }

    /// A merge could not read the file; for how long it is left alone now.
    fn add(&self, file: FileId, now: Duration) -> Duration {
        let mut held = self.held();
        let before = held.get(&file).map(|pause| pause.long);
        let long = before.map_or(PAUSE_MIN, |before| (before * 2).min(PAUSE_MAX));
        held.insert(file, Pause { until: now.saturating_add(long), long });
        long
    }

    /// Forgets files that the range no longer has.
    pub(crate) fn keep_only(&self, version: &Version) {
        let mut held = self.held();
        if !held.is_empty() {
            let live = version.file_ids();
            held.retain(|file, _| live.contains(file));
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<FileId, Pause>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Sets the inputs aside that made a merge fail; other failures come back as they are.
    pub(super) async fn set_aside(&self, plan: &Plan, failed: Error) -> Error {
        let files = match named(plan, &failed) {
            Blame::None => return failed,
            Blame::File(file) => vec![file],
            Blame::Unknown => self.damaged_inputs(plan).await,
        };
        for file in &files {
            let pause = self.compactions.aside.add(*file, self.env().monotonic());
            let what = failed.to_string();
            self.tell(&Event::FileSetAside { file: *file, what, pause });
        }
        Error::DamagedInput { files, failed: Box::new(failed) }
    }

    /// The inputs that are damaged; all, if none is found to be.
    async fn damaged_inputs(&self, plan: &Plan) -> Vec<FileId> {
        let state = self.state();
        let mut damaged = Vec::new();
        for reference in inputs(&state, plan) {
            if self.scrub_one(reference).await.is_err() {
                damaged.push(reference.id());
            }
        }
        if damaged.is_empty() { plan.inputs.clone() } else { damaged }
    }

    async fn scrub_one(&self, reference: &TableRef) -> Result<()> {
        let pace = Arc::new(Pace::new(self.env().clone(), 0, Arc::clone(self.limiter())));
        check_table(self.disk(), self.table_folder(), reference, &pace).await
    }
}

fn inputs<'a>(state: &'a State, plan: &'a Plan) -> impl Iterator<Item = &'a Arc<TableRef>> {
    state.version.tables().filter(|table| plan.inputs.contains(&table.id()))
}

enum Blame {
    /// The inputs are not to blame.
    None,
    /// It is this one.
    File(FileId),
    /// It is some of them.
    Unknown,
}

fn named(plan: &Plan, failed: &Error) -> Blame {
    use sstable::Error::{Corrupt, NotAKey, Storage};
    let failed = match failed {
        Error::Table(failed) => failed,
        Error::CorruptCell { .. } => return Blame::Unknown,
        _ => return Blame::None,
    };
    match failed {
        Corrupt { file, .. } if plan.inputs.contains(file) => Blame::File(*file),
        Storage { file, source } if plan.inputs.contains(file) => match source.kind() {
            ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::NotFound => Blame::File(*file),
            _ => Blame::None,
        },
        NotAKey { .. } => Blame::Unknown,
        _ => Blame::None,
    }
}
