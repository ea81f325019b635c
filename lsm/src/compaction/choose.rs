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

#[cfg(test)]
mod tests {
    use sstable::{Properties, TableMeta};
    use types::{CellKey, FamilyId, SeqNo, Timestamp};

    use super::*;
    use crate::version::{Edit, TableRef};

    fn reference(counter: u64, level: u32, kib: u64, rows: (&str, &str)) -> (usize, TableRef) {
        let key = |row: &str| {
            CellKey::put(row.as_bytes(), FamilyId::new(1), b"", Timestamp::ZERO, SeqNo::ZERO)
        };
        let meta = TableMeta {
            file: FileId { session: 1, counter },
            len: kib << 10,
            checksum: 0,
            smallest: key(rows.0),
            largest: key(rows.1),
            properties: Properties::default(),
        };
        (0, TableRef { meta, level, clip: None })
    }

    fn version(tables: &[(u32, u64, (&str, &str))]) -> Version {
        let numbered = (1..).zip(tables);
        let added = numbered.map(|(id, (level, kib, rows))| reference(id, *level, *kib, *rows));
        let edit = Edit { added: added.collect(), ..Edit::default() };
        Version::empty().apply(&edit).unwrap()
    }

    /// Counters of the files that are chosen, and where to.
    fn chosen(version: &Version, busy: &[u64]) -> Option<(Vec<u64>, u32)> {
        let file = |counter: &u64| FileId { session: 1, counter: *counter };
        let busy = busy.iter().map(file).collect();
        let plan = choose(version, &StoreOptions::default(), &busy)?;
        Some((plan.inputs.iter().map(|id| id.counter).collect(), plan.output_level))
    }

    const ALL: (&str, &str) = ("a", "z");

    #[test]
    fn few_runs_and_runs_of_unlike_size_are_left_alone() {
        assert_eq!(chosen(&Version::empty(), &[]), None);
        assert_eq!(chosen(&version(&[(0, 100, ALL); 3]), &[]), None);
        let unlike = [(0, 100, ALL), (0, 1_000, ALL), (0, 10_000, ALL), (0, 100_000, ALL)];
        assert_eq!(chosen(&version(&unlike), &[]), None);
    }

    #[test]
    fn runs_of_similar_size_are_merged_and_a_big_one_is_not_rewritten() {
        let tables = [(1, 90_000, ALL), (0, 100, ALL), (0, 110, ALL), (0, 90, ALL), (0, 120, ALL)];
        // Level 1 is taken by the big run.
        assert_eq!(chosen(&version(&tables), &[]), Some((vec![2, 3, 4, 5], 2)));
        assert_eq!(chosen(&version(&tables), &[3]), None);
    }

    #[test]
    fn disjoint_files_of_a_level_are_one_run() {
        let halves = [(1, 100, ("a", "c")), (1, 100, ("d", "f")), (0, 100, ALL), (0, 100, ALL)];
        assert_eq!(chosen(&version(&halves), &[]), None);
        let mut more = halves.to_vec();
        more.push((0, 100, ALL));
        assert_eq!(chosen(&version(&more), &[]), Some((vec![1, 2, 3, 4, 5], 1)));
    }

    #[test]
    fn too_many_runs_are_merged_whatever_their_sizes() {
        let tables: Vec<_> = (0..10).map(|place| (0, 100 << (2 * place), ALL)).collect();
        let (inputs, level) = chosen(&version(&tables), &[]).unwrap();
        assert_eq!((inputs, level), (vec![1, 2, 3, 4], 1));
    }
}
