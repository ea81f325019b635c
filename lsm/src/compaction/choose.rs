//! Chooses what to merge: a pure function from a version to a plan.
//!
//! The files of level 0 are a sorted run each, the files of a higher level are one run together.
//! Runs are merged by size, smallest first, so that each byte is rewritten about once for each
//! tier of sizes; the number of runs, and with it the cost of a read, stays bounded by `runs_max`.
//! Nothing is dropped, so any runs may be merged: their keys carry the order.

use std::collections::{BTreeMap, BTreeSet};

use types::FileId;

use crate::options::StoreOptions;
use crate::version::{Group, Version};

/// What to merge, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Place of the locality group.
    pub group: usize,
    /// Files to be merged.
    pub inputs: Vec<FileId>,
    /// Level of the outcome: one that no other run has.
    pub output_level: u32,
    /// Bytes of the inputs.
    pub bytes: u64,
}

/// A sorted run.
struct Run {
    bytes: u64,
    files: Vec<FileId>,
}

/// Chooses what to merge, or nothing. No I/O, no clock, no locks.
///
/// Runs with a file in `busy` are left alone.
pub fn choose(version: &Version, options: &StoreOptions, busy: &BTreeSet<FileId>) -> Option<Plan> {
    let mut groups = version.groups().iter().enumerate();
    groups.find_map(|(place, group)| choose_in_group(place, group, options, busy))
}

/// Everything in one group, merged into one run; nothing when it is one already.
pub(super) fn choose_all(version: &Version, group: usize) -> Option<Plan> {
    let runs = runs(version.groups().get(group)?);
    (runs.len() > 1).then(|| plan(group, &version.groups()[group], &runs))
}

fn choose_in_group(
    place: usize,
    group: &Group,
    options: &StoreOptions,
    busy: &BTreeSet<FileId>,
) -> Option<Plan> {
    let mut runs = runs(group);
    let surplus = (runs.len() as u64).saturating_sub(options.runs_max);
    runs.retain(|run| !run.files.iter().any(|file| busy.contains(file)));
    runs.sort_by_key(|run| run.bytes);
    let fan_in = usize::try_from(options.fan_in).unwrap_or(usize::MAX);
    let similar = similar_sizes(&runs, options.size_ratio_percent);
    let forced = if surplus > 0 { fan_in.max(count(surplus) + 1) } else { 0 };
    let taken = if similar >= fan_in { similar.max(forced) } else { forced };
    let taken = taken.min(runs.len());
    (taken >= 2).then(|| plan(place, group, &runs[..taken]))
}

/// How many of the smallest runs are of similar size.
fn similar_sizes(runs: &[Run], ratio_percent: u64) -> usize {
    let mut taken = 0;
    let mut bytes: u64 = 0;
    for run in runs {
        let limit = bytes / 100 * ratio_percent + bytes % 100 * ratio_percent / 100;
        if taken > 0 && run.bytes > limit.max(SMALL_RUN_BYTES) {
            break;
        }
        taken += 1;
        bytes += run.bytes;
    }
    taken
}

/// Runs up to this size count as similar whatever their ratio: each is one block or a few.
const SMALL_RUN_BYTES: u64 = 64 << 10;

fn runs(group: &Group) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut levels: BTreeMap<u32, Run> = BTreeMap::new();
    for table in &group.tables {
        if table.level == 0 {
            runs.push(Run { bytes: table.meta.len, files: vec![table.id()] });
            continue;
        }
        let run = levels.entry(table.level).or_insert(Run { bytes: 0, files: Vec::new() });
        run.bytes += table.meta.len;
        run.files.push(table.id());
    }
    runs.extend(levels.into_values());
    runs
}

fn plan(place: usize, group: &Group, runs: &[Run]) -> Plan {
    let mut inputs: Vec<FileId> = runs.iter().flat_map(|run| run.files.clone()).collect();
    inputs.sort_unstable();
    // A file may be referenced through several clips: it is one input.
    inputs.dedup();
    let taken: BTreeSet<u32> = group
        .tables
        .iter()
        .filter(|table| inputs.binary_search(&table.id()).is_err())
        .map(|table| table.level)
        .collect();
    let output_level = (1..).find(|level| !taken.contains(level)).expect("levels do not run out");
    Plan { group: place, inputs, output_level, bytes: runs.iter().map(|run| run.bytes).sum() }
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
