//! Whole-table operations, made of operations on ranges.
//!
//! 1. A table's layout (schema and places of its ranges) is looked up once and kept.
//! 2. A batch of writes is divided by range: one request a range, all ranges at the same time.
//! 3. A read goes range by range and hands each reply on as it is (see `routed_read.rs`).
//! 4. Whoever answers `WrongRange` has moved on since the layout was taken: it is looked up again
//!    and the same part is tried again, a bounded number of times.
//!
//! Invariants
//! - Every row of a batch gets exactly one result, at its own place.
//! - A row that was validated under one generation of the schema is applied under another only if
//!   all of its families still exist: family ids are never used again, so the ids tell.
//! - The kept layouts are a hint. Safety comes from the server that checks epoch and generation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use env::Env;
use futures::stream::{self, StreamExt};
use types::{ErrorKind, Mutation, ReadSpec, RowMutations, TableName, TableSchema};

use crate::routed_read::RoutedRead;
use crate::{Error, Locator, RangeLocation, RangeTarget, Result, TableLayout, WriteRequest};

/// Tables whose layout is kept.
const LAYOUTS_MAX: usize = 1024;
/// Requests of one operation that run at the same time.
const RANGES_IN_FLIGHT_MAX: usize = 16;
/// How often one part of an operation is tried before its error is the answer.
pub(crate) const TRIES_MAX: u32 = 5;
/// The wait before the third try; it doubles from there.
const BACKOFF_FIRST: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Serves whole-table operations by asking the ranges of the table.
pub struct Router {
    locator: Arc<dyn Locator>,
    env: Env,
    layouts: Mutex<BTreeMap<TableName, Arc<TableLayout>>>,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("layouts", &self.layouts().len()).finish_non_exhaustive()
    }
}

/// A row key between two ranges of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySample {
    /// The first row past the range; empty at the end of the table.
    pub row: Bytes,
    /// Approximate bytes stored before it.
    pub bytes_before: u64,
}

impl Router {
    /// A router that looks tables up with `locator`; `env` is for its waits.
    pub fn new(locator: Arc<dyn Locator>, env: Env) -> Router {
        Router { locator, env, layouts: Mutex::default() }
    }

    /// The layout of a table, perhaps an outdated one.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn layout(&self, name: &TableName) -> Result<Arc<TableLayout>> {
        let kept = self.layouts().get(name).cloned();
        match kept {
            Some(layout) => Ok(layout),
            None => self.fresh_layout(name).await,
        }
    }

    /// The layout of a table as it is now. Ask for it before a name that the kept schema does not
    /// know is refused.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn fresh_layout(&self, name: &TableName) -> Result<Arc<TableLayout>> {
        let found = self.locator.locate(name).await;
        let mut layouts = self.layouts();
        let layout = match found {
            Ok(layout) => layout,
            Err(error) => {
                if error.kind() == ErrorKind::NotFound {
                    layouts.remove(name);
                }
                return Err(error);
            }
        };
        assert!(
            layout.ranges.first().is_some_and(|first| first.rows.start.is_empty()),
            "the ranges of a table cover all rows"
        );
        // A slow look-up must not put back what a later one has replaced.
        let outdated = layouts.get(name).is_some_and(|kept| {
            kept.schema.id == layout.schema.id && kept.schema.generation > layout.schema.generation
        });
        if !outdated {
            layouts.insert(name.clone(), layout.clone());
            if layouts.len() > LAYOUTS_MAX {
                let other = layouts.keys().find(|key| *key != name).cloned();
                other.map(|key| layouts.remove(&key));
            }
        }
        Ok(layout)
    }

    /// Drops what is kept of a table: for whoever has just changed it.
    pub fn forget(&self, name: &TableName) {
        self.layouts().remove(name);
    }

    /// Writes rows that were validated against `layout`'s schema. The results stand in the order
    /// of the rows. `deadline` is how long the caller will wait.
    pub async fn write_rows(
        &self,
        name: &TableName,
        layout: Arc<TableLayout>,
        rows: Vec<RowMutations>,
        deadline: Option<Duration>,
    ) -> Vec<Result<()>> {
        let until = self.until(deadline);
        let validated = layout.schema.clone();
        let mut results: Vec<Option<Result<()>>> = vec![None; rows.len()];
        let mut pending: Vec<(usize, RowMutations)> = rows.into_iter().enumerate().collect();
        let mut layout = layout;
        for failures in 1.. {
            let moved = self.write_once(&layout, pending, until, &mut results).await;
            let Some((first, _)) = moved.first() else {
                break;
            };
            let error = results[*first].clone().and_then(Result::err);
            let error = error.expect("a row that is tried again has failed");
            if !self.wait_to_retry(&error, failures, until).await {
                break;
            }
            layout = match self.fresh_layout(name).await {
                Ok(layout) => layout,
                Err(error) => {
                    for (place, _) in moved {
                        results[place] = Some(Err(error.clone()));
                    }
                    break;
                }
            };
            pending = Vec::with_capacity(moved.len());
            for (place, row) in moved {
                match still_valid(&row, &validated, &layout.schema) {
                    Ok(()) => pending.push((place, row)),
                    Err(error) => results[place] = Some(Err(error)),
                }
            }
        }
        let answered = results.into_iter().collect::<Option<Vec<_>>>();
        answered.expect("every row was sent or refused")
    }

    /// Sends each row to its range and notes its result. Returns the rows whose range was not
    /// where `layout` says.
    async fn write_once(
        &self,
        layout: &TableLayout,
        rows: Vec<(usize, RowMutations)>,
        until: Option<Duration>,
        results: &mut [Option<Result<()>>],
    ) -> Vec<(usize, RowMutations)> {
        let mut groups: BTreeMap<usize, Vec<(usize, RowMutations)>> = BTreeMap::new();
        for (place, row) in rows {
            let range = layout.place_of(&row.row);
            groups.entry(range).or_default().push((place, row));
        }
        let deadline = self.left(until);
        // A value that is most of its part must also be most of the whole, or be on its own.
        let kept_from = match groups.len() {
            1 => 0,
            _ => groups.values().flatten().map(|(_, row)| row.bytes()).sum::<usize>() / 2,
        };
        let writes = groups.into_iter().map(|(range, group)| {
            let location = &layout.ranges[range];
            let mut rows: Vec<_> = group.iter().map(|(_, row)| row.clone()).collect();
            rows.iter_mut().for_each(|row| row.detach_values(kept_from));
            let request = WriteRequest { target: location.target(&layout.schema, deadline), rows };
            async move { (group, location.server.write(request).await) }
        });
        let mut moved = Vec::new();
        let mut writes = stream::iter(writes).buffer_unordered(RANGES_IN_FLIGHT_MAX);
        while let Some((group, result)) = writes.next().await {
            for (place, _) in &group {
                results[*place] = Some(result.clone());
            }
            if result.is_err_and(|error| error.kind() == ErrorKind::WrongRange) {
                moved.extend(group);
            }
        }
        moved
    }

    /// Starts a read of what `spec` asks for. `deadline` is how long the caller will wait.
    pub fn read(
        self: &Arc<Self>,
        name: &TableName,
        layout: Arc<TableLayout>,
        spec: ReadSpec,
        deadline: Option<Duration>,
    ) -> RoutedRead {
        let until = self.until(deadline);
        RoutedRead::new(self.clone(), name.clone(), layout, spec, until)
    }

    /// The row keys at which a table is divided, ascending, with the bytes before each; the last
    /// is the empty key, with the bytes of the whole table.
    ///
    /// # Errors
    /// `NotFound`, or what a range answered.
    pub async fn samples(&self, name: &TableName) -> Result<Vec<KeySample>> {
        let mut layout = self.layout(name).await?;
        for failures in 1.. {
            match sample_once(&layout).await {
                Err(error) if error.kind() == ErrorKind::WrongRange => {
                    if !self.wait_to_retry(&error, failures, None).await {
                        return Err(error);
                    }
                    layout = self.fresh_layout(name).await?;
                }
                answer => return answer,
            }
        }
        unreachable!("the loop has no end of its own")
    }

    /// Waits before the next try of what has failed `failures` times. False when there should be
    /// none.
    pub(crate) async fn wait_to_retry(
        &self,
        error: &Error,
        failures: u32,
        until: Option<Duration>,
    ) -> bool {
        if failures >= TRIES_MAX {
            return false;
        }
        // Whoever only had an outdated layout need not wait.
        let outdated = error.kind() == ErrorKind::WrongRange && failures == 1;
        let doublings = failures.saturating_sub(2).min(16);
        let backoff = if outdated {
            Duration::ZERO
        } else {
            (BACKOFF_FIRST * (1 << doublings)).min(BACKOFF_MAX)
        };
        let wait = backoff.max(error.retry_delay().unwrap_or_default());
        if self.left(until).is_some_and(|left| left <= wait) {
            return false;
        }
        if wait > Duration::ZERO {
            self.env.sleep(wait).await;
        }
        true
    }

    fn until(&self, deadline: Option<Duration>) -> Option<Duration> {
        deadline.map(|deadline| self.env.monotonic().saturating_add(deadline))
    }

    /// How much time there is until `until`.
    pub(crate) fn left(&self, until: Option<Duration>) -> Option<Duration> {
        until.map(|until| until.saturating_sub(self.env.monotonic()))
    }

    fn layouts(&self) -> MutexGuard<'_, BTreeMap<TableName, Arc<TableLayout>>> {
        self.layouts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TableLayout {
    /// The place in `ranges` of the range that holds `row`.
    pub fn place_of(&self, row: &[u8]) -> usize {
        let after = self.ranges.partition_point(|location| &location.rows.start[..] <= row);
        after.checked_sub(1).expect("the first range starts at the empty key")
    }

    /// The place in `ranges` of the range with the last rows before `end`; of the last without one.
    pub fn place_before(&self, end: Option<&[u8]>) -> usize {
        let is_before =
            |location: &RangeLocation| end.is_none_or(|end| &location.rows.start[..] < end);
        self.ranges.partition_point(is_before).saturating_sub(1)
    }
}

impl RangeLocation {
    /// How a request names the range.
    pub fn target(&self, schema: &TableSchema, deadline: Option<Duration>) -> RangeTarget {
        RangeTarget {
            range: self.range,
            epoch: self.epoch,
            generation: schema.generation,
            deadline,
        }
    }
}

async fn sample_once(layout: &TableLayout) -> Result<Vec<KeySample>> {
    let ask = |location: RangeLocation| {
        let target = location.target(&layout.schema, None);
        async move {
            let sample = location.server.sample(target).await?;
            Ok::<_, Error>((location.rows.end.unwrap_or_default(), sample.bytes))
        }
    };
    let asked = layout.ranges.iter().cloned().map(ask);
    // Each range is asked, whatever the others answer: all that have moved have done so by then.
    let answers: Vec<Result<(Bytes, u64)>> =
        stream::iter(asked).buffered(RANGES_IN_FLIGHT_MAX).collect().await;
    let sizes = answers.into_iter().collect::<Result<Vec<_>>>()?;
    let mut before = 0u64;
    let samples = sizes.into_iter().map(|(row, bytes)| {
        before = before.saturating_add(bytes);
        KeySample { row, bytes_before: before }
    });
    Ok(samples.collect())
}

/// May a row that was validated against `then` be written under `now`?
fn still_valid(row: &RowMutations, then: &TableSchema, now: &TableSchema) -> Result<()> {
    if then.id != now.id {
        let text = format!("table {} was dropped and created again", now.name);
        return Err(Error::new(ErrorKind::Unavailable, text));
    }
    if then.generation == now.generation {
        return Ok(());
    }
    let dropped = row.mutations.iter().find_map(|mutation| match mutation {
        Mutation::SetCell { family, .. }
        | Mutation::AddToCell { family, .. }
        | Mutation::DeleteCells { family, .. }
        | Mutation::DeleteFamily { family } => {
            now.family_by_id(*family).is_none().then_some(*family)
        }
        Mutation::DeleteRow => None,
    });
    match dropped {
        None => Ok(()),
        Some(id) => {
            let name = then.family_by_id(id).map_or("", |family| &family.name);
            let text = format!("Requested column family not found: {name}");
            Err(Error::not_found(text))
        }
    }
}
