//! A file system that wraps another and goes wrong by rule.
//!
//! Every operation has a number, reads, appends and syncs included, so a test can run a script once
//! to count its operations, then once for each of them with that one failing:
//!
//! ```
//! # use std::sync::Arc;
//! # use tepui_storage::{faulty::*, memory::MemoryFileSystem, Operation};
//! # use types::ErrorKind;
//! let disk = Arc::new(MemoryFileSystem::new());
//! let third_append = Rule::new(Action::Fail(ErrorKind::Io)).on(Operation::Append).nth(3);
//! let faulty = FaultyFileSystem::new(disk, vec![third_append]);
//! ```

mod rules;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use env::Env;
use types::ErrorKind;

use crate::{
    BlobReader, BlobWriter, BlockingLog, Entry, Error, FileSystem, LogFile, Operation, Path,
    Result, SealedLog,
};

pub use rules::{Action, Rule};

/// How many operations a trace remembers; later ones are only counted.
pub const TRACE_MAX: usize = 100_000;

/// A bug planted on purpose, to see that a test finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// A log's sync does nothing and reports success.
    SkipLogSync,
    /// The sync of a folder does nothing and reports success.
    SkipFolderSync,
}

/// A file system that goes wrong by rule. A clone shares rules and counters.
#[derive(Clone)]
pub struct FaultyFileSystem {
    inner: Arc<dyn FileSystem>,
    shared: Arc<Shared>,
}

/// What the file system has in common with the files opened through it.
struct Shared {
    state: Mutex<State>,
    operations: AtomicU64,
    faults: AtomicU64,
    /// Sleeping is the runtime's, so any environment serves.
    env: Env,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    trace: Vec<(Operation, Path)>,
    planted: Option<PlantedBug>,
}

impl FaultyFileSystem {
    /// Wraps `inner`. For each operation the first rule that fires decides.
    pub fn new(inner: Arc<dyn FileSystem>, rules: Vec<Rule>) -> FaultyFileSystem {
        let shared = Shared {
            state: Mutex::new(State { rules, ..State::default() }),
            operations: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            env: Env::system(),
        };
        FaultyFileSystem { inner, shared: Arc::new(shared) }
    }

    /// Replaces the rules, for files that are open too. Their counts start anew.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        self.shared.lock().rules = rules;
    }

    /// How many operations there were.
    pub fn operations(&self) -> u64 {
        self.shared.operations.load(Ordering::Relaxed)
    }

    /// The operations in order, the first [`TRACE_MAX`] of them.
    pub fn trace(&self) -> Vec<(Operation, Path)> {
        self.shared.lock().trace.clone()
    }

    /// How many operations a rule changed.
    pub fn faults(&self) -> u64 {
        self.shared.faults.load(Ordering::Relaxed)
    }

    /// Plants a bug, or removes it.
    pub fn set_planted(&self, bug: Option<PlantedBug>) {
        self.shared.lock().planted = bug;
    }

    /// From now on syncs of logs are not passed on.
    pub fn skip_log_sync(&self) {
        self.set_planted(Some(PlantedBug::SkipLogSync));
    }

    /// From now on syncs of folders are not passed on. What the wrapped file system syncs on its
    /// own account is its own: see [`crate::memory::MemoryFileSystem::set_planted`].
    pub fn skip_folder_sync(&self) {
        self.set_planted(Some(PlantedBug::SkipFolderSync));
    }
}

/// What a rule asks for, once delays are over.
enum Verdict {
    Pass,
    Fail(Error),
    Tear,
    FailAfter,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    fn is_planted(&self, bug: PlantedBug) -> bool {
        self.lock().planted == Some(bug)
    }

    /// Counts one operation and finds what to do about it. Every rule sees it, so that a rule's
    /// count does not depend on the rules before it.
    fn next_action(&self, operation: Operation, path: &Path) -> Option<Action> {
        self.operations.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        if state.trace.len() < TRACE_MAX {
            state.trace.push((operation, path.clone()));
        }
        let mut found = None;
        for rule in &mut state.rules {
            if rule.fires(operation, path) && found.is_none() {
                found = Some(rule.action());
            }
        }
        if found.is_some() {
            self.faults.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    async fn before(&self, operation: Operation, path: &Path) -> Verdict {
        match self.next_action(operation, path) {
            Some(Action::Delay(duration)) => {
                self.env.sleep(duration).await;
                Verdict::Pass
            }
            action => verdict(action, operation, path),
        }
    }

    /// As `before`, for the operations of logs, which block their thread.
    fn before_blocking(&self, operation: Operation, path: &Path) -> Verdict {
        match self.next_action(operation, path) {
            Some(Action::Delay(duration)) => {
                block_for(duration);
                Verdict::Pass
            }
            action => verdict(action, operation, path),
        }
    }
}

fn verdict(action: Option<Action>, operation: Operation, path: &Path) -> Verdict {
    match action {
        None | Some(Action::Delay(_)) => Verdict::Pass,
        Some(Action::Fail(kind)) => {
            Verdict::Fail(Error::new(operation, path, kind, "a planned fault"))
        }
        Some(Action::Tear) => Verdict::Tear,
        Some(Action::FailAfter) => Verdict::FailAfter,
    }
}

#[expect(clippy::disallowed_methods, reason = "a slow disk blocks the thread, and so does this")]
fn block_for(duration: Duration) {
    std::thread::sleep(duration);
}

/// The error of an operation that went wrong in a way its caller cannot know.
fn unknown(operation: Operation, path: &Path) -> Error {
    Error::new(operation, path, ErrorKind::Io, "a planned fault; the outcome is unknown")
}

/// What the caller gets of an operation that was carried out.
fn after<T>(verdict: &Verdict, operation: Operation, path: &Path, done: Result<T>) -> Result<T> {
    match verdict {
        Verdict::FailAfter => done.and_then(|_| Err(unknown(operation, path))),
        _ => done,
    }
}

impl FaultyFileSystem {
    /// Decides on one operation that cannot be torn: half of it is none of it.
    async fn before(&self, operation: Operation, path: &Path) -> Result<Verdict> {
        match self.shared.before(operation, path).await {
            Verdict::Fail(error) => Err(error),
            Verdict::Tear => Err(unknown(operation, path)),
            passed => Ok(passed),
        }
    }
}

#[async_trait]
impl FileSystem for FaultyFileSystem {
    async fn create(&self, path: &Path) -> Result<Box<dyn BlobWriter>> {
        let verdict = self.before(Operation::Create, path).await?;
        let inner = after(&verdict, Operation::Create, path, self.inner.create(path).await)?;
        Ok(Box::new(Writer { inner, path: path.clone(), shared: Arc::clone(&self.shared) }))
    }

    async fn put_if_absent(&self, path: &Path, content: Bytes) -> Result<()> {
        let verdict = self.before(Operation::PutIfAbsent, path).await?;
        let done = self.inner.put_if_absent(path, content).await;
        after(&verdict, Operation::PutIfAbsent, path, done)
    }

    async fn open(&self, path: &Path) -> Result<Arc<dyn BlobReader>> {
        let verdict = self.before(Operation::Open, path).await?;
        let inner = after(&verdict, Operation::Open, path, self.inner.open(path).await)?;
        Ok(Arc::new(Reader { inner, path: path.clone(), shared: Arc::clone(&self.shared) }))
    }

    async fn list(&self, folder: &Path, after_name: &str) -> Result<Vec<Entry>> {
        let verdict = self.before(Operation::List, folder).await?;
        after(&verdict, Operation::List, folder, self.inner.list(folder, after_name).await)
    }

    async fn remove(&self, path: &Path) -> Result<()> {
        let verdict = self.before(Operation::Remove, path).await?;
        after(&verdict, Operation::Remove, path, self.inner.remove(path).await)
    }

    async fn remove_folder(&self, folder: &Path) -> Result<()> {
        let verdict = self.before(Operation::Remove, folder).await?;
        after(&verdict, Operation::Remove, folder, self.inner.remove_folder(folder).await)
    }

    async fn sync_folder(&self, folder: &Path) -> Result<()> {
        let verdict = self.before(Operation::SyncFolder, folder).await?;
        if self.shared.is_planted(PlantedBug::SkipFolderSync) {
            return Ok(());
        }
        after(&verdict, Operation::SyncFolder, folder, self.inner.sync_folder(folder).await)
    }

    async fn create_log(&self, path: &Path, reserve: u64) -> Result<LogFile> {
        let verdict = self.before(Operation::CreateLog, path).await?;
        let done = self.inner.create_log(path, reserve).await;
        let LogFile::Blocking(inner) = after(&verdict, Operation::CreateLog, path, done)?;
        let shared = Arc::clone(&self.shared);
        let log = Log { inner, path: path.clone(), shared, is_failed: false };
        Ok(LogFile::Blocking(Box::new(log)))
    }

    async fn seal(&self, folder: &Path) -> Result<Vec<SealedLog>> {
        let verdict = self.before(Operation::Seal, folder).await?;
        after(&verdict, Operation::Seal, folder, self.inner.seal(folder).await)
    }
}

struct Writer {
    inner: Box<dyn BlobWriter>,
    path: Path,
    shared: Arc<Shared>,
}

#[async_trait]
impl BlobWriter for Writer {
    async fn append(&mut self, content: Bytes) -> Result<()> {
        let operation = Operation::WriteBlob;
        let verdict = self.shared.before(operation, &self.path).await;
        match verdict {
            Verdict::Fail(error) => Err(error),
            Verdict::Tear => {
                self.inner.append(content.slice(..content.len() / 2)).await?;
                Err(unknown(operation, &self.path))
            }
            passed => after(&passed, operation, &self.path, self.inner.append(content).await),
        }
    }

    async fn finish(self: Box<Self>) -> Result<()> {
        let operation = Operation::FinishBlob;
        let Writer { inner, path, shared } = *self;
        match shared.before(operation, &path).await {
            Verdict::Fail(error) => Err(error),
            Verdict::Tear => Err(unknown(operation, &path)),
            passed => after(&passed, operation, &path, inner.finish().await),
        }
    }
}

struct Reader {
    inner: Arc<dyn BlobReader>,
    path: Path,
    shared: Arc<Shared>,
}

#[async_trait]
impl BlobReader for Reader {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        let operation = Operation::Read;
        match self.shared.before(operation, &self.path).await {
            Verdict::Fail(error) => Err(error),
            Verdict::Tear => Err(unknown(operation, &self.path)),
            passed => {
                let done = self.inner.read_at(offset, len).await;
                after(&passed, operation, &self.path, done)
            }
        }
    }
}

struct Log {
    inner: Box<dyn BlockingLog>,
    path: Path,
    shared: Arc<Shared>,
    /// After a failure the log takes no more, as the contract says.
    is_failed: bool,
}

impl Log {
    fn run(
        &mut self,
        operation: Operation,
        whole: impl FnOnce(&mut dyn BlockingLog) -> Result<()>,
        half: impl FnOnce(&mut dyn BlockingLog) -> Result<()>,
    ) -> Result<()> {
        if self.is_failed {
            let reason = "an earlier append or sync failed";
            return Err(Error::new(operation, &self.path, ErrorKind::Poisoned, reason));
        }
        let done = match self.shared.before_blocking(operation, &self.path) {
            Verdict::Fail(error) => Err(error),
            Verdict::Tear => half(&mut *self.inner).and(Err(unknown(operation, &self.path))),
            passed => after(&passed, operation, &self.path, whole(&mut *self.inner)),
        };
        self.is_failed = done.is_err();
        done
    }
}

impl BlockingLog for Log {
    fn append(&mut self, content: &[u8]) -> Result<()> {
        self.run(
            Operation::Append,
            |log| log.append(content),
            |log| log.append(&content[..content.len() / 2]),
        )
    }

    fn sync(&mut self) -> Result<()> {
        let is_skipped = self.shared.is_planted(PlantedBug::SkipLogSync);
        self.run(Operation::SyncLog, |log| if is_skipped { Ok(()) } else { log.sync() }, |_| Ok(()))
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn reserved(&self) -> u64 {
        self.inner.reserved()
    }
}
