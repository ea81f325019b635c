//! Chooses what to merge: a pure function from a version to a plan.
//!
//! 1. The level that is fullest for its target comes first; none is chosen that is not full.
//! 2. Of level 0, all files that overlap where most lie on each other go into the base level. Of a
//!    higher level goes the file with the least to rewrite in the next one.
//! 3. The inputs are widened: by the output level's files with rows in between, so that it stays a
//!    sorted run; and by files of the first level that come along without rewriting more.
//! 4. Files with nothing to meet in the next level are *moved*: only the manifest is written.
//!
//! When no level is full, three kinds of files are seen to: those of which a clip has left little;
//! those with many tombstones or expired cells, which go down until they meet what keeps them; and
//! those with families of other locality groups.
//!
//! Any files may be merged with any others, whatever their age: keys carry the order. What may be
//! dropped is the merge's to know.

use std::collections::BTreeSet;
use std::sync::Arc;

use types::{FamilyId, FileId, SeqNo};

use super::levels::{LEVEL_LAST, Levels, Piece, SCORE_FULL, Span, deepest, hull};
use super::regroup::{holders, holds_others, is_misplaced};
use crate::events::Reason;
use crate::layout::Layout;
use crate::options::StoreOptions;
use crate::rules::{FamilyRules, Standing};
use crate::version::{TableRef, Version};

/// A file is not moved onto more than this many times `table_bytes` of the level after: merging it
/// from there would cost too much at once.
pub(super) const OVERLAP_TABLES_MAX: u64 = 10;
/// Files that need no merge of their own come along up to this many times `table_bytes` in all.
const WIDENED_TABLES_MAX: u64 = 25;

/// A file is rewritten when a clip has left at most one in so many of its bytes.
const CLIPPED_PART: u64 = 4;
/// A file goes down when at least one in so many of its entries is a tombstone, or of its bytes may
/// be dropped.
const DROPPABLE_PART: u64 = 4;
/// A run of level 0 that cannot go down is not merged with newer ones that all together are smaller
/// by more than this factor.
const FAR_LARGER: u64 = 3;
/// Files smaller than `table_bytes` by more than this factor are not worth a merge of their own.
const SMALL_PART: u64 = 16;

/// How the inputs come to their level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// They are merged into new files.
    Merge,
    /// They stay as they are; only the manifest says otherwise.
    Move,
}

/// What to merge, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Place of the locality group.
    pub group: usize,
    /// Why.
    pub reason: Reason,
    /// What happens to the inputs.
    pub work: Work,
    /// Files, ascending.
    pub inputs: Vec<FileId>,
    /// Level of the outcome.
    pub output_level: u32,
    /// Bytes of the inputs.
    pub bytes: u64,
}

/// Chooses what to merge, or nothing. No I/O, no clock, no locks.
///
/// Files in `busy` are left alone.
pub fn choose(version: &Version, options: &StoreOptions, busy: &BTreeSet<FileId>) -> Option<Plan> {
    let groups = version.groups().iter().enumerate();
    let choices: Vec<Choice<'_>> = groups
        .map(|(place, group)| Choice {
            place,
            version,
            levels: Levels::of(version, group, options),
            options,
            busy,
        })
        .collect();
    if let Some(plan) = choices.iter().find_map(Choice::take_in_strays) {
        return Some(plan);
    }
    let mut full: Vec<(u64, usize, usize)> = Vec::new();
    for choice in &choices {
        let scores = choice.levels.scores(options);
        let scores = scores.into_iter().filter(|(_, score)| *score >= SCORE_FULL);
        full.extend(scores.map(|(level, score)| (score, choice.place, level)));
    }
    full.sort_by_key(|(score, place, level)| (std::cmp::Reverse(*score), *place, *level));
    let relieved = full.into_iter().find_map(|(_, place, level)| choices[place].relieve(level));
    let shed = || choices.iter().find_map(Choice::shed_rests);
    let sunk = || choices.iter().find_map(Choice::sink_droppable);
    let regrouped = || choices.iter().find_map(Choice::regroup);
    relieved.or_else(shed).or_else(sunk).or_else(regrouped)
}

/// Everything in one group, merged into one run of the last level; nothing when it is that already
/// and, by `rules`, has nothing to drop.
pub(super) fn choose_all(
    version: &Version,
    group: usize,
    options: &StoreOptions,
    rules: Option<&FamilyRules>,
) -> Option<Plan> {
    let levels = Levels::of(version, version.groups().get(group)?, options);
    let scattered = levels.files(LEVEL_LAST).len() < levels.all().count();
    let busy = BTreeSet::new();
    let choice = Choice { place: group, version, levels, options, busy: &busy };
    let everything: BTreeSet<FileId> = choice.levels.all().map(Piece::id).collect();
    let tables = &version.groups()[group].tables;
    let misplaced = || holds_others(&Layout::of(version), group, tables);
    let full = || rules.is_some_and(|rules| tables.iter().any(|table| may_shrink(table, rules)));
    (scattered || misplaced() || full())
        .then(|| choice.plan(Reason::Asked, Work::Merge, everything, LEVEL_LAST))
}

/// May a merge of the file alone have something to drop, or a part of the file to give back?
fn may_shrink(table: &TableRef, rules: &FamilyRules) -> bool {
    let properties = &table.meta.properties;
    let drops = |family: &FamilyId| match rules.standing(*family) {
        Standing::Alive(rule) => rule.retention.is_some(),
        Standing::Dropped => true,
        Standing::Unknown => false,
    };
    table.clip.is_some()
        || properties.tombstones > 0
        || properties.families.as_ref().is_none_or(|families| families.iter().any(drops))
}

/// Why a file with much to drop should be merged.
fn droppable(piece: &Piece) -> Option<Reason> {
    let properties = &piece.table.meta.properties;
    if properties.tombstones >= (properties.cells / DROPPABLE_PART).max(1) {
        return Some(Reason::Tombstones);
    }
    let expired = properties.expired_bytes >= (properties.raw_bytes / DROPPABLE_PART).max(1);
    expired.then_some(Reason::Expired)
}

/// Files by the age of what they hold, the newest first: those with numbers between each other's
/// together.
fn by_age<'a>(files: &[&'a Piece]) -> Vec<Vec<&'a Piece>> {
    let numbers = |piece: &Piece| {
        let properties = &piece.table.meta.properties;
        (properties.smallest_seq, properties.largest_seq)
    };
    let mut files = files.to_vec();
    files.sort_by_key(|piece| (std::cmp::Reverse(numbers(piece).1), piece.id()));
    let mut runs: Vec<(SeqNo, Vec<&Piece>)> = Vec::new();
    for piece in files {
        let (smallest, largest) = numbers(piece);
        match runs.last_mut() {
            Some((oldest, run)) if largest >= *oldest => {
                *oldest = smallest.min(*oldest);
                run.push(piece);
            }
            _ => runs.push((smallest, vec![piece])),
        }
    }
    runs.into_iter().map(|(_, run)| run).collect()
}

/// What is chosen from in one group.
struct Choice<'a> {
    place: usize,
    version: &'a Version,
    levels: Levels,
    options: &'a StoreOptions,
    busy: &'a BTreeSet<FileId>,
}

impl Choice<'_> {
    /// Files of levels that no longer exist become files of level 0.
    fn take_in_strays(&self) -> Option<Plan> {
        let idle = self.levels.strays.iter().filter(|piece| self.is_idle(piece));
        let inputs: BTreeSet<FileId> = idle.map(Piece::id).collect();
        let some = !inputs.is_empty();
        some.then(|| self.plan(Reason::LevelShape, Work::Move, inputs, 0))
    }

    fn relieve(&self, level: usize) -> Option<Plan> {
        if level == 0 {
            return self.relieve_level0();
        }
        let reason = if level < self.levels.base { Reason::LevelShape } else { Reason::LevelFull };
        self.move_some(level, level + 1, reason).or_else(|| {
            let mut files: Vec<&Piece> = self.levels.files(level).iter().collect();
            files.sort_by_cached_key(|piece| self.cost(piece, level + 1));
            files.into_iter().find_map(|piece| self.merge(&[piece], level, level + 1, reason))
        })
    }

    fn relieve_level0(&self) -> Option<Plan> {
        let (reason, base) = (Reason::LevelZeroRuns, self.levels.base);
        if let Some(plan) = self.move_some(0, base, reason) {
            return Some(plan);
        }
        let files = self.levels.files(0).iter();
        let files: Vec<Piece> = files.filter(|piece| self.is_idle(piece)).cloned().collect();
        let (_, row) = deepest(&files)?;
        let at_row = Span { start: row.to_vec(), end: [row, &[0]].concat() };
        let stack = self.connected(&at_row);
        self.merge(&stack, 0, base, reason).or_else(|| self.thin_out(&at_row))
    }

    /// The base level, or a file of level 0, is not to be had: meanwhile files of level 0 with rows
    /// of `rows` are merged with each other when they are too many, so that reads stay cheap and
    /// writers need not wait. The newest, and older ones until one is far larger than all newer
    /// ones together: so none is written again and again for little ones that come.
    fn thin_out(&self, rows: &Span) -> Option<Plan> {
        let mut stack = self.connected(rows);
        let depth = stack.iter().filter(|piece| piece.rows.overlaps(rows)).count();
        if depth as u64 <= self.options.level0_merge_runs {
            return None;
        }
        stack.retain(|piece| self.is_idle(piece));
        let runs = by_age(&stack).into_iter();
        let runs: Vec<_> = runs.filter(|run| run.iter().any(|p| p.rows.overlaps(rows))).collect();
        let (mut inputs, mut bytes, mut merged) = (BTreeSet::new(), 0, 0);
        for run in &runs {
            let more: u64 = run.iter().map(|piece| piece.bytes).sum();
            if merged > 1 && more > FAR_LARGER.saturating_mul(bytes) {
                break;
            }
            bytes += more;
            merged += 1;
            inputs.extend(run.iter().map(|piece| piece.id()));
        }
        let at_rows = stack.iter().filter(|piece| piece.rows.overlaps(rows));
        let fewer = at_rows.filter(|piece| inputs.contains(&piece.id())).count() > 1;
        fewer.then(|| self.plan(Reason::LevelZeroRuns, Work::Merge, inputs, 0))
    }

    /// The files of level 0 with rows of `rows`, and all that overlap with them.
    fn connected(&self, rows: &Span) -> Vec<&Piece> {
        let mut rows = rows.clone();
        loop {
            let files = self.levels.files(0).iter();
            let found: Vec<&Piece> = files.filter(|piece| piece.rows.overlaps(&rows)).collect();
            let wider = hull(found.iter().copied()).unwrap_or_else(|| rows.clone());
            if wider == rows {
                return found;
            }
            rows = wider;
        }
    }

    /// Rewrites a file of which little is left, where it is.
    fn shed_rests(&self) -> Option<Plan> {
        self.by_level().find_map(|(level, piece)| {
            let id = BTreeSet::from([piece.id()]);
            let left: u64 = self.pieces_of(&id).map(|part| part.bytes).sum();
            let is_rest = left.saturating_mul(CLIPPED_PART) <= piece.table.meta.len;
            (piece.table.clip.is_some() && is_rest)
                .then(|| self.merge(&[piece], 0, level, Reason::Clipped))
                .flatten()
        })
    }

    /// Brings a file with much to drop to the next level. In the last one it is rewritten, once no
    /// other file keeps it from dropping anything.
    fn sink_droppable(&self) -> Option<Plan> {
        let mut levels = (1..=LEVEL_LAST)
            .flat_map(|level| self.levels.files(level).iter().map(move |piece| (level, piece)));
        levels.find_map(|(level, piece)| {
            let reason = droppable(piece).filter(|_| self.is_worth_a_merge(piece))?;
            if level == LEVEL_LAST {
                let alone = self.is_alone(piece);
                return alone.then(|| self.merge(&[piece], 0, level, reason)).flatten();
            }
            if self.may_move(piece, level + 1) {
                let inputs = BTreeSet::from([piece.id()]);
                return Some(self.plan(reason, Work::Move, inputs, level + 1));
            }
            self.merge(&[piece], level, level + 1, reason)
        })
    }

    /// Rewrites a file with families that belong to other groups, where it is. When tombstones of
    /// rows in other files hold it back, the file or theirs, whichever is higher up, goes down a
    /// level: so they come to be merged together.
    fn regroup(&self) -> Option<Plan> {
        if self.version.groups().len() == 1 {
            return None;
        }
        let layout = Layout::of(self.version);
        self.by_level().find_map(|(level, piece)| {
            let id = BTreeSet::from([piece.id()]);
            let tables: Vec<_> = self.pieces_of(&id).map(|part| part.table.clone()).collect();
            if !is_misplaced(&layout, self.place, &tables) {
                return None;
            }
            let holders = holders(self.version, self.place, &tables);
            if holders.is_empty() {
                return self.merge(&[piece], 0, level, Reason::Regroup);
            }
            let meets = |other: &Piece| other.id() == piece.id() || holders.contains(&other.id());
            let (level, upper) = self.by_level().find(|(_, other)| meets(other))?;
            match level {
                0 => self.merge(&self.connected(&upper.rows), 0, self.levels.base, Reason::Regroup),
                LEVEL_LAST => None,
                _ => self.merge(&[upper], level, level + 1, Reason::Regroup),
            }
        })
    }

    /// All files with their levels, level 0 first.
    fn by_level(&self) -> impl Iterator<Item = (usize, &Piece)> {
        (0..=LEVEL_LAST)
            .flat_map(|level| self.levels.files(level).iter().map(move |piece| (level, piece)))
    }

    fn is_worth_a_merge(&self, piece: &Piece) -> bool {
        piece.bytes >= self.options.table_bytes / SMALL_PART && self.is_idle(piece)
    }

    /// Moves files that meet nothing, as many as the level is too full by.
    fn move_some(&self, level: usize, to: usize, reason: Reason) -> Option<Plan> {
        let surplus = self.levels.surplus(level);
        let mut inputs = BTreeSet::new();
        let mut bytes = 0;
        for piece in self.apart(level) {
            if bytes >= surplus.max(1) {
                break;
            }
            if self.is_idle(piece) && self.may_move(piece, to) {
                bytes += piece.bytes;
                inputs.insert(piece.id());
            }
        }
        let some = !inputs.is_empty();
        some.then(|| self.plan(reason, Work::Move, inputs, to))
    }

    /// The files of a level that overlap no other of it.
    fn apart(&self, level: usize) -> Vec<&Piece> {
        let files = self.levels.files(level);
        let mut covered: &[u8] = &[];
        let mut apart = Vec::new();
        for (place, piece) in files.iter().enumerate() {
            let next = files.get(place + 1);
            let meets_next = next.is_some_and(|next| next.rows.start < piece.rows.end);
            if covered <= piece.rows.start.as_slice() && !meets_next {
                apart.push(piece);
            }
            covered = covered.max(&piece.rows.end);
        }
        apart
    }

    /// Would rewriting the file on its way to level `to` gain nothing?
    fn may_move(&self, piece: &Piece, to: usize) -> bool {
        let below: u64 = self.levels.overlapping(to + 1, &piece.rows).iter().map(|p| p.bytes).sum();
        piece.table.clip.is_none()
            && self.levels.overlapping(to, &piece.rows).is_empty()
            && below <= OVERLAP_TABLES_MAX * self.options.table_bytes
            && !self.may_drop(piece)
    }

    /// Has it something to drop, and nothing that keeps it?
    fn may_drop(&self, piece: &Piece) -> bool {
        let properties = &piece.table.meta.properties;
        (properties.tombstones > 0 || properties.expired_bytes > 0) && self.is_alone(piece)
    }

    /// Has no other file a row of its rows? Files of other groups count if they may hold one of its
    /// families, as they do for the merge: it could drop nothing, and be chosen again and again.
    fn is_alone(&self, piece: &Piece) -> bool {
        let mut others = self.levels.all().filter(|other| other.id() != piece.id());
        if others.any(|other| other.rows.overlaps(&piece.rows)) {
            return false;
        }
        let families = piece.table.meta.properties.families.as_deref();
        let bears = |other: &&Arc<TableRef>| {
            families.is_none_or(|families| other.meta.properties.may_hold(families))
        };
        let groups = self.version.groups().iter().enumerate();
        let elsewhere = groups.filter(|(place, _)| *place != self.place);
        let mut elsewhere = elsewhere.flat_map(|(_, group)| group.tables.iter().filter(bears));
        !elsewhere.any(|other| Span::of(other).overlaps(&piece.rows))
    }

    /// Bytes of the next level to be rewritten for each byte of the file, in thousandths. A clip's
    /// rewriting frees the rest of its file.
    fn cost(&self, piece: &Piece, to: usize) -> u128 {
        let next: u64 = self.levels.overlapping(to, &piece.rows).iter().map(|p| p.bytes).sum();
        u128::from(next) * 1_000 / u128::from(piece.table.meta.len.max(1))
    }

    /// A merge of `seed`, files of `level`, into level `to`.
    fn merge(&self, seed: &[&Piece], level: usize, to: usize, reason: Reason) -> Option<Plan> {
        let mut inputs: BTreeSet<FileId> = seed.iter().map(|piece| piece.id()).collect();
        if to > 0 {
            self.widen(&mut inputs, to);
        }
        if level > 0 {
            self.bring_along(&mut inputs, level);
        }
        let all_idle = inputs.iter().all(|file| !self.busy.contains(file));
        (all_idle && !inputs.is_empty()).then(|| self.plan(reason, Work::Merge, inputs, to))
    }

    /// Adds the files of level `to` that the outcome would overlap.
    fn widen(&self, inputs: &mut BTreeSet<FileId>, to: usize) {
        loop {
            let Some(rows) = hull(self.pieces_of(inputs)) else {
                return;
            };
            let before = inputs.len();
            inputs.extend(self.levels.overlapping(to, &rows).iter().map(Piece::id));
            if inputs.len() == before {
                return;
            }
        }
    }

    /// Adds files of `level` that lie inside what is rewritten anyway.
    fn bring_along(&self, inputs: &mut BTreeSet<FileId>, level: usize) {
        let Some(rows) = hull(self.pieces_of(inputs)) else {
            return;
        };
        let most = WIDENED_TABLES_MAX.saturating_mul(self.options.table_bytes);
        let mut bytes: u64 = self.pieces_of(inputs).map(|piece| piece.bytes).sum();
        for piece in self.levels.inside(level, &rows) {
            let is_whole = piece.table.clip.is_none();
            if is_whole && self.is_idle(piece) && bytes.saturating_add(piece.bytes) <= most {
                bytes += if inputs.insert(piece.id()) { piece.bytes } else { 0 };
            }
        }
    }

    /// All references of the files: a file may be referred to through several clips.
    fn pieces_of(&self, files: &BTreeSet<FileId>) -> impl Iterator<Item = &Piece> {
        self.levels.all().filter(|piece| files.contains(&piece.id()))
    }

    fn is_idle(&self, piece: &Piece) -> bool {
        !self.busy.contains(&piece.id())
    }

    fn plan(&self, reason: Reason, work: Work, inputs: BTreeSet<FileId>, to: usize) -> Plan {
        let bytes = self.pieces_of(&inputs).map(|piece| piece.bytes).sum();
        Plan {
            group: self.place,
            reason,
            work,
            inputs: inputs.into_iter().collect(),
            output_level: u32::try_from(to).expect("levels are few"),
            bytes,
        }
    }
}
