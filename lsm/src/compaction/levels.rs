//! A locality group's files by level, and what each level should hold.
//!
//! ```text
//! level 0      files as they were flushed; they may overlap
//! level 1      ┐ empty, until the group is so large that they are needed
//! ...          ┘
//! base level   at most `level_base_bytes`; level 0 is merged into it
//! ...          each `level_ratio` times the one above
//! level 6      nearly everything
//! ```
//!
//! Targets are counted from the largest level upwards, so that all others together stay near a
//! tenth of it: that bounds the space that overwritten cells take. A small group has level 6 only.
//! No level in use has a target below `level_base_bytes`: what level 0 brings at once would
//! overfill it, and be written once more for nothing.
//!
//! Spans are of whole rows: what begins or ends in the middle of a row counts as having all of it,
//! so a row never comes to lie in two files of one level.

use std::sync::Arc;

use types::{FileId, key};

use crate::options::StoreOptions;
use crate::version::{Group, TableRef, Version};

/// The last level.
pub(crate) const LEVEL_LAST: usize = 6;
/// A level with this score or more holds too much.
pub(super) const SCORE_FULL: u64 = 1_000;

/// Encoded positions: from `start` up to and without `end`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

impl Span {
    /// The rows of a reference, whole.
    pub(crate) fn of(table: &TableRef) -> Span {
        let row = |key: &[u8]| key::row_prefix(key).expect("a cell key has a row").to_vec();
        let mut start = row(table.meta.smallest.as_bytes());
        let mut end = row(table.meta.largest.as_bytes());
        // The end mark of an escaped row is never followed by anything but 00 or ff.
        *end.last_mut().expect("an escaped row has an end mark") = 1;
        if let Some(clip) = &table.clip {
            let encoded = |row: &[u8]| {
                let mut position = Vec::new();
                key::put_row_start(&mut position, row);
                position
            };
            start = start.max(encoded(&clip.start));
            end = clip.end.as_ref().map_or(end.clone(), |clip_end| end.min(encoded(clip_end)));
        }
        Span { end: end.max(start.clone()), start }
    }

    pub(super) fn overlaps(&self, other: &Span) -> bool {
        self.start < other.end && other.start < self.end
    }

    fn contains(&self, other: &Span) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The smallest span with both.
    fn with(self, other: &Span) -> Span {
        Span { start: self.start.min(other.start.clone()), end: self.end.max(other.end.clone()) }
    }
}

/// A reference as the choice sees it.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) table: Arc<TableRef>,
    pub(super) rows: Span,
    pub(super) bytes: u64,
}

impl Piece {
    fn of(version: &Version, table: &Arc<TableRef>) -> Piece {
        let bytes = version.reference_bytes(table);
        Piece { table: Arc::clone(table), rows: Span::of(table), bytes }
    }

    pub(super) fn id(&self) -> FileId {
        self.table.id()
    }
}

/// The smallest span with all of them; `None` when there are none.
pub(super) fn hull<'a>(pieces: impl IntoIterator<Item = &'a Piece>) -> Option<Span> {
    let spans = pieces.into_iter().map(|piece| &piece.rows);
    spans.fold(None, |hull: Option<Span>, rows| Some(hull.map_or(rows.clone(), |h| h.with(rows))))
}

/// A group's files by level. See the module's words.
#[derive(Debug)]
pub(super) struct Levels {
    levels: Vec<Vec<Piece>>,
    /// Files of levels past the last: former releases made such.
    pub(super) strays: Vec<Piece>,
    targets: [u64; LEVEL_LAST + 1],
    /// The level that level 0 is merged into.
    pub(super) base: usize,
}

impl Levels {
    pub(super) fn of(version: &Version, group: &Group, options: &StoreOptions) -> Levels {
        let mut levels = vec![Vec::new(); LEVEL_LAST + 1];
        let mut strays = Vec::new();
        for table in &group.tables {
            let level = usize::try_from(table.level).ok().and_then(|level| levels.get_mut(level));
            level.unwrap_or(&mut strays).push(Piece::of(version, table));
        }
        for level in &mut levels {
            level.sort_by(|a: &Piece, b| a.rows.start.cmp(&b.rows.start));
        }
        let bytes: Vec<u64> = levels.iter().map(|level| sum(level)).collect();
        let (base, targets) = targets(&bytes, options);
        Levels { levels, strays, targets, base }
    }

    /// The files of a level, sorted by their first rows.
    pub(super) fn files(&self, level: usize) -> &[Piece] {
        self.levels.get(level).map_or(&[], |level| level.as_slice())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Piece> {
        self.levels.iter().flatten().chain(&self.strays)
    }

    pub(super) fn bytes(&self, level: usize) -> u64 {
        sum(self.files(level))
    }

    /// Bytes of a level that do not belong there: all, where it should be empty.
    pub(super) fn surplus(&self, level: usize) -> u64 {
        let target = if level < self.base { 0 } else { self.targets[level] };
        self.bytes(level).saturating_sub(target)
    }

    /// The files of a level above 0 that have a row of `rows`.
    pub(super) fn overlapping(&self, level: usize, rows: &Span) -> &[Piece] {
        let files = self.files(level);
        let from = files.partition_point(|piece| piece.rows.end <= rows.start);
        let past = files.partition_point(|piece| piece.rows.start < rows.end);
        files.get(from..past).unwrap_or(&[])
    }

    /// The files of a level that have no row outside `rows`.
    pub(super) fn inside(&self, level: usize, rows: &Span) -> impl Iterator<Item = &Piece> {
        self.files(level).iter().filter(|piece| rows.contains(&piece.rows))
    }

    /// How full each level is: 1000 and more is too full. The last level is never.
    pub(super) fn scores(&self, options: &StoreOptions) -> Vec<(usize, u64)> {
        (0..LEVEL_LAST).map(|level| (level, self.score(level, options))).collect()
    }

    fn score(&self, level: usize, options: &StoreOptions) -> u64 {
        let bytes = self.bytes(level);
        if level == 0 {
            let runs = deepest(self.files(0)).map_or(0, |(depth, _)| depth);
            let by_runs = share(runs, options.level0_merge_runs);
            return by_runs.max(share(bytes, options.level_base_bytes));
        }
        if level < self.base {
            // It should be empty; nothing hurries.
            return if self.files(level).is_empty() { 0 } else { SCORE_FULL };
        }
        share(bytes, self.targets[level])
    }

    /// About how many bytes must be written until no level holds too much.
    pub(super) fn debt(&self, options: &StoreOptions) -> u64 {
        let (mut debt, mut carried) = (0_u64, 0_u64);
        if self.score(0, options) >= SCORE_FULL {
            carried = self.bytes(0);
            debt = carried.saturating_add(self.bytes(self.base));
        }
        for level in 1..LEVEL_LAST {
            let target = if level < self.base { 0 } else { self.targets[level] };
            let arriving = if level == self.base { std::mem::take(&mut carried) } else { 0 };
            let held = self.bytes(level).saturating_add(arriving).saturating_add(carried);
            let surplus = held.saturating_sub(target);
            let next = self.bytes(level + 1);
            let rewritten = u128::from(surplus) * u128::from(next) / u128::from(held.max(1));
            let rewritten = u64::try_from(rewritten).unwrap_or(u64::MAX);
            debt = debt.saturating_add(surplus).saturating_add(rewritten);
            if level >= self.base {
                carried = surplus;
            }
        }
        debt
    }
}

fn sum(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.bytes).sum()
}

fn share(part: u64, whole: u64) -> u64 {
    let score = u128::from(part) * u128::from(SCORE_FULL) / u128::from(whole.max(1));
    u64::try_from(score).unwrap_or(u64::MAX)
}

/// The base level, and what each level from there on should hold at most, bytes.
fn targets(bytes: &[u64], options: &StoreOptions) -> (usize, [u64; LEVEL_LAST + 1]) {
    let largest = bytes.iter().skip(1).copied().max().unwrap_or(0);
    let mut targets = [0; LEVEL_LAST + 1];
    let mut level = LEVEL_LAST;
    targets[level] = largest.max(options.level_base_bytes);
    while targets[level] > options.level_base_bytes && level > 1 {
        targets[level - 1] = (targets[level] / options.level_ratio).max(1);
        level -= 1;
    }
    for target in &mut targets[level..] {
        *target = (*target).max(options.level_base_bytes);
    }
    (level, targets)
}

/// How many files have the row that most have, and where that row begins. A read of the row looks
/// into that many files.
pub(super) fn deepest(pieces: &[Piece]) -> Option<(u64, &[u8])> {
    let starts = pieces.iter().map(|piece| (piece.rows.start.as_slice(), true));
    let ends = pieces.iter().map(|piece| (piece.rows.end.as_slice(), false));
    let mut turns: Vec<(&[u8], bool)> = starts.chain(ends).collect();
    // Of the turns at one place ends come first.
    turns.sort_unstable();
    let mut depth = 0_u64;
    let mut deepest: Option<(u64, &[u8])> = None;
    for (place, begins) in turns {
        if !begins {
            depth = depth.saturating_sub(1);
            continue;
        }
        depth += 1;
        if deepest.is_none_or(|(most, _)| depth > most) {
            deepest = Some((depth, place));
        }
    }
    deepest
}

/// How a range's files stand: counts of runs and the score are the most over its groups, bytes the
/// sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Files of level 0 that a read of one row may have to look into.
    pub(crate) level0_runs: u64,
    /// These, and one for each other level in use.
    pub(crate) sorted_runs: u64,
    /// How full the fullest level is; from [`SCORE_FULL`] on it is to be merged.
    pub(crate) score: u64,
    /// About how many bytes must be written until no level holds too much.
    pub(crate) debt: u64,
    /// Bytes of all files.
    pub(crate) live_bytes: u64,
    /// Bytes of the level that holds most.
    pub(crate) largest_level_bytes: u64,
}

pub(crate) fn need(version: &Version, options: &StoreOptions) -> Need {
    let mut need = Need::default();
    for group in version.groups() {
        let levels = Levels::of(version, group, options);
        let runs = deepest(levels.files(0)).map_or(0, |(depth, _)| depth);
        let score = levels.scores(options).into_iter().map(|(_, score)| score).max();
        let in_use = (1..=LEVEL_LAST).filter(|level| !levels.files(*level).is_empty()).count();
        let bytes = (0..=LEVEL_LAST).map(|level| levels.bytes(level));
        need.level0_runs = need.level0_runs.max(runs);
        need.sorted_runs = need.sorted_runs.max(runs + in_use as u64);
        need.live_bytes += levels.all().map(|piece| piece.bytes).sum::<u64>();
        need.largest_level_bytes += bytes.max().unwrap_or(0);
        need.score = need.score.max(score.unwrap_or(0));
        need.debt = need.debt.saturating_add(levels.debt(options));
    }
    need
}
