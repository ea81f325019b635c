//! Chooses files that go whole, by a manifest alone: every cell of them is past its age. A pure
//! function from a version to a list; nothing is read or written.
//!
//! To give some files up is to merge them into nothing. So it is allowed exactly when a merge of
//! them would write nothing (see `collect`, rules 1, 3 and 4), and of that the manifest knows
//! enough:
//!
//! 1. The families of a file have been dropped, or have a rule that by age alone, however few
//!    newer versions there are, allows to drop a cell as young as the youngest of the file. The
//!    others are older. A file of tombstones only has no youngest.
//! 2. No file that stays, and that may have something of the same rows and families, holds a
//!    sequence number as small as the file's largest. So nothing older is left that the file's
//!    cells overwrite or its tombstones hide: neither now nor when the rule is relaxed does
//!    anything come back. (Memtables hold larger numbers than every file.)
//!
//! Files that go in one manifest go at once: by rule 2 only those count that stay. So the files of
//! rule 1 are narrowed down, until none of them meets an older one that stays.
//!
//! A file whose families nobody knows, or a family that the rules do not know yet, stays. Bounds,
//! numbers and ages of a clipped file are those of the whole file, which only keeps it for longer.

use std::sync::Arc;

use types::FileId;

use super::levels::Span;
use crate::collect::retention_allows;
use crate::rules::{FamilyRules, Standing};
use crate::version::{TableRef, Version};

/// The files that may be given up whole at this time, ascending. No I/O, no clock, no locks.
pub fn choose_expired(version: &Version, rules: &FamilyRules, now_micros: i64) -> Vec<FileId> {
    let groups = version.groups().iter().enumerate();
    let references =
        || groups.clone().flat_map(|(group, of)| of.tables.iter().map(move |table| (group, table)));
    let is_past = |table: &TableRef| is_past_its_age(table, rules, now_micros);
    if !references().any(|(_, table)| is_past(table)) {
        return Vec::new();
    }
    let mut files: Vec<Candidate<'_>> = references()
        .map(|(group, table)| Candidate {
            group,
            table,
            rows: Span::of(table),
            goes: is_past(table),
        })
        .collect();
    while let Some(place) = (0..files.len()).find(|place| is_kept(&files, *place)) {
        // With all its references: a file goes whole.
        let id = files[place].table.id();
        files.iter_mut().filter(|file| file.table.id() == id).for_each(|file| file.goes = false);
    }
    let mut going: Vec<FileId> =
        files.iter().filter(|file| file.goes).map(|file| file.table.id()).collect();
    going.sort_unstable();
    going.dedup();
    going
}

struct Candidate<'a> {
    group: usize,
    table: &'a Arc<TableRef>,
    rows: Span,
    goes: bool,
}

/// Rule 1.
fn is_past_its_age(table: &TableRef, rules: &FamilyRules, now_micros: i64) -> bool {
    let properties = &table.meta.properties;
    let Some((_, newest)) = properties.timestamps else {
        return true;
    };
    let age = now_micros.saturating_sub(newest.micros());
    let allows = |family| match rules.standing(family) {
        Standing::Dropped => true,
        Standing::Unknown => false,
        Standing::Alive(rule) => {
            rule.retention.as_ref().is_some_and(|retention| retention_allows(retention, 0, age))
        }
    };
    properties.families.as_ref().is_some_and(|all| all.iter().all(|family| allows(*family)))
}

/// Does rule 2 keep the candidate at `place`?
fn is_kept(files: &[Candidate<'_>], place: usize) -> bool {
    let file = &files[place];
    let properties = &file.table.meta.properties;
    let may_bear = |other: &Candidate<'_>| {
        let families = properties.families.as_deref();
        let shares = |families| other.table.meta.properties.may_hold(families);
        other.group == file.group || families.is_none_or(shares)
    };
    let mut staying = files.iter().filter(|other| !other.goes);
    file.goes
        && staying.any(|other| {
            other.table.meta.properties.smallest_seq <= properties.largest_seq
                && other.rows.overlaps(&file.rows)
                && may_bear(other)
        })
}
