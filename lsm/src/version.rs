//! Which SSTables make a range: an immutable [`Version`], changed only by a pure
//! [`Version::apply`].
//!
//! Invariants
//! - In a group, the references of one level above 0 cover disjoint runs of rows and are sorted by
//!   them: a row with its tombstones is in one file of them. Level 0 may overlap. Which run is
//!   older matters to nobody: keys carry their sequence number, so any two references merge into
//!   the same cells.
//! - `flushed` never moves back: every mutation up to it is in the SSTables or dropped by
//!   retention.
//! - A file is referenced more than once only through disjoint clips.
//! - All groups share one `flushed` number.

use std::collections::BTreeSet;
use std::sync::Arc;

use sstable::TableMeta;
use types::{FamilyId, FileId, GroupSettings, RowRange, SeqNo, Timestamp, key};

use crate::clip::Shares;
use crate::layout::{DEFAULT_GROUP, Layout};

/// A reference to an SSTable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRef {
    /// The file, as its writer described it: whole, whatever the clip.
    pub meta: TableMeta,
    /// 0: may overlap others of level 0. Above: one of a sorted run of disjoint files.
    pub level: u32,
    /// Only these rows of the file belong to the range; `None` means all.
    pub clip: Option<RowRange>,
}

impl TableRef {
    /// The file's id.
    pub fn id(&self) -> FileId {
        self.meta.file
    }

    /// May the reference hold keys from `from` (encoded) up to and without `to`?
    pub fn overlaps(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        match &self.clip {
            None => {
                to.is_none_or(|to| self.meta.smallest.as_bytes() < to)
                    && from <= self.meta.largest.as_bytes()
            }
            Some(_) => {
                to.is_none_or(|to| self.low().as_slice() < to)
                    && match self.high() {
                        Bound::At(last) => from <= last,
                        Bound::Before(end) => from < end.as_slice(),
                    }
            }
        }
    }

    /// Encoded position that no key of the reference is before.
    pub(crate) fn low(&self) -> Vec<u8> {
        let mut low = Vec::new();
        if let Some(clip) = &self.clip {
            key::put_row_start(&mut low, &clip.start);
        }
        low.max(self.meta.smallest.as_bytes().to_vec())
    }

    /// Encoded position that all its keys are before.
    pub(crate) fn end(&self) -> Vec<u8> {
        match self.high() {
            Bound::At(last) => [last, &[0]].concat(),
            Bound::Before(end) => end,
        }
    }

    fn high(&self) -> Bound<'_> {
        if let Some(end) = self.clip.as_ref().and_then(|clip| clip.end.as_ref()) {
            let mut before = Vec::new();
            key::put_row_start(&mut before, end);
            if before.as_slice() <= self.meta.largest.as_bytes() {
                return Bound::Before(before);
            }
        }
        Bound::At(self.meta.largest.as_bytes())
    }

    /// Do all its rows sort before all of `later`'s?
    fn is_before(&self, later: &TableRef) -> bool {
        let low = later.low();
        match self.high() {
            Bound::At(last) => {
                let in_last_row = key::row_prefix(last).is_none_or(|row| low.starts_with(row));
                last < &low[..] && !in_last_row
            }
            Bound::Before(end) => end <= low,
        }
    }
}

enum Bound<'a> {
    At(&'a [u8]),
    Before(Vec<u8>),
}

/// Families stored together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The group's name; the first is "default".
    pub name: String,
    /// Which families; the default group takes every family that no other group names.
    pub families: Vec<FamilyId>,
    /// How its files are written and kept.
    pub settings: GroupSettings,
    /// No schema names it any more, and it holds nothing: it only keeps the places of the groups
    /// after it, until the range is opened again. Not stored.
    pub is_retired: bool,
    /// References sorted by level, then where they begin, then id.
    pub tables: Vec<Arc<TableRef>>,
}

impl Group {
    /// Cuts rows out of every reference.
    fn excise(&mut self, excised: &[RowRange]) {
        for rows in excised {
            let cut = self.tables.iter().flat_map(|table| table.without(rows));
            self.tables = cut.collect();
        }
    }

    fn sort(&mut self) {
        self.tables.sort_by_cached_key(|table| order(table));
    }

    /// The group that takes every family that no other names.
    pub fn default_group() -> Group {
        Group::empty(DEFAULT_GROUP)
    }

    fn empty(name: &str) -> Group {
        Group {
            name: name.to_owned(),
            families: Vec::new(),
            settings: GroupSettings::default(),
            is_retired: false,
            tables: Vec::new(),
        }
    }
}

/// A change to a version, in the order of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// Files no longer referenced, with all their clips.
    pub removed: Vec<FileId>,
    /// [`Version::cuts`] of the version whose files the removed ones were read as: what was cut out
    /// since, or deleted while their group was not there, must not come back with the files that
    /// replace them.
    pub cuts: u64,
    /// Rows cut out of every reference that is left: a hole makes two of it, and one with nothing
    /// left goes.
    pub excised: Vec<RowRange>,
    /// New references, each with the place of its group: in `layout` if there is one. Nothing is
    /// cut out of them.
    pub added: Vec<(usize, TableRef)>,
    /// The groups that the range has from now on; `None` leaves them.
    pub layout: Option<Arc<Layout>>,
    /// Everything up to here is now in SSTables; `None` leaves it.
    pub flushed: Option<SeqNo>,
    /// No server timestamp above this was handed out; `None` leaves it. Never lowers it.
    pub last_timestamp: Option<Timestamp>,
}

/// Why an edit does not fit a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// A file to be removed is not referenced.
    #[error("file {0} is not referenced")]
    NotLive(FileId),
    /// A file to be added is referenced already.
    #[error("file {0} is referenced already")]
    Duplicate(FileId),
    /// Rows were cut out, or a group was given up, after the files to be removed were read.
    #[error("rows were cut out, or a group was given up, meanwhile")]
    Outdated,
    /// There is no such group.
    #[error("there is no group {0}")]
    NoGroup(usize),
}

/// Which SSTables make a range at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    groups: Vec<Group>,
    flushed: SeqNo,
    last_timestamp: Timestamp,
    shares: Shares,
    /// How often rows were cut out, or a group was retired, since the version was read or begun.
    cuts: u64,
}

impl Version {
    /// A range with no cells and one group.
    pub fn empty() -> Version {
        Version {
            groups: vec![Group::default_group()],
            flushed: SeqNo::ZERO,
            last_timestamp: Timestamp::ZERO,
            shares: Shares::default(),
            cuts: 0,
        }
    }

    /// Builds a version from stored parts.
    ///
    /// # Errors
    /// The invariant that they break.
    pub(crate) fn from_parts(
        groups: Vec<Group>,
        flushed: SeqNo,
        last_timestamp: Timestamp,
    ) -> Result<Version, &'static str> {
        let shares = Shares::default();
        let version = Version { groups, flushed, last_timestamp, shares, cuts: 0 };
        version.check()?;
        version.check_sums()?;
        Ok(version)
    }

    /// Stored counts come from outside: whoever adds them up later must not overflow.
    fn check_sums(&self) -> Result<(), &'static str> {
        let sums = self.tables().try_fold((0_u64, 0_u64), |(bytes, cells), table| {
            let cells = cells.checked_add(table.meta.properties.cells)?;
            Some((bytes.checked_add(table.meta.len)?, cells))
        });
        sums.map(drop).ok_or("the files' sizes are past all limits")
    }

    /// The locality groups.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Every mutation up to this number is in the SSTables.
    pub fn flushed(&self) -> SeqNo {
        self.flushed
    }

    /// No server timestamp above this was handed out before it was committed.
    pub fn last_timestamp(&self) -> Timestamp {
        self.last_timestamp
    }

    /// How often rows were cut out of the range, or a group was retired, since it was opened: see
    /// [`Edit::cuts`].
    pub fn cuts(&self) -> u64 {
        self.cuts
    }

    /// All references of all groups.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableRef>> {
        self.groups.iter().flat_map(|group| &group.tables)
    }

    /// The files referenced.
    pub fn file_ids(&self) -> BTreeSet<FileId> {
        self.tables().map(|table| table.id()).collect()
    }

    /// Bytes of the range's part of its files, about.
    pub fn bytes(&self) -> u64 {
        self.tables().map(|table| self.reference_bytes(table)).sum()
    }

    /// Bytes that a reference stands for: the file's length, or of a clipped file the part inside
    /// the clip, about, as the file's index tells.
    pub fn reference_bytes(&self, table: &TableRef) -> u64 {
        let share = table.clip.as_ref().and_then(|clip| self.shares.of(table.id(), clip));
        share.unwrap_or(table.meta.len)
    }

    /// Cells that a reference stands for, about: of a clipped file as large a part as of its bytes.
    pub fn reference_cells(&self, table: &TableRef) -> u64 {
        let (part, whole) = (self.reference_bytes(table), table.meta.len.max(1));
        let cells = u128::from(table.meta.properties.cells);
        let share = cells * u128::from(part.min(whole)) / u128::from(whole);
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// The clipped references whose part of their file is not known yet.
    pub(crate) fn unmeasured(&self) -> Vec<Arc<TableRef>> {
        let is_unknown = |table: &&Arc<TableRef>| {
            table.clip.as_ref().is_some_and(|clip| self.shares.of(table.id(), clip).is_none())
        };
        self.tables().filter(is_unknown).cloned().collect()
    }

    /// Notes how many bytes a clipped reference stands for.
    pub(crate) fn measured(&mut self, table: &TableRef, bytes: u64) {
        if let Some(clip) = &table.clip {
            self.shares.note(table.id(), clip, bytes);
        }
    }

    /// What a range that takes over `rows` of this one begins with: the same files, clipped. They
    /// are clipped even where that cuts nothing off, since they may be read elsewhere.
    pub(crate) fn clipped_to(&self, rows: &RowRange, last_timestamp: Timestamp) -> Version {
        let mut next = self.clone();
        for group in &mut next.groups {
            let kept = group.tables.iter().filter_map(|table| table.within(rows));
            group.tables = kept.map(Arc::new).collect();
            group.sort();
        }
        next.last_timestamp = next.last_timestamp.max(last_timestamp);
        next.shares.keep_only(&next.groups);
        next
    }

    /// The only way a range's file set changes; pure, so it is tested without I/O.
    ///
    /// # Errors
    /// The edit was not made for this version.
    pub fn apply(&self, edit: &Edit) -> Result<Version, EditError> {
        if !edit.removed.is_empty() && edit.cuts != self.cuts {
            return Err(EditError::Outdated);
        }
        let mut next = self.clone();
        for id in &edit.removed {
            let mut found = false;
            for group in &mut next.groups {
                let before = group.tables.len();
                group.tables.retain(|table| table.id() != *id);
                found |= group.tables.len() < before;
            }
            if !found {
                return Err(EditError::NotLive(*id));
            }
        }
        for group in &mut next.groups {
            group.excise(&edit.excised);
        }
        let places = edit.layout.as_ref().map(|layout| next.regroup(layout));
        let mut live = next.file_ids();
        for (place, table) in &edit.added {
            let unclipped = table.clip.is_none();
            if !live.insert(table.id()) && unclipped {
                return Err(EditError::Duplicate(table.id()));
            }
            let place = places.as_ref().map_or(Some(*place), |known| known.get(*place).copied());
            next.add(place.unwrap_or(usize::MAX), table)?;
        }
        for group in &mut next.groups {
            group.sort();
        }
        next.shares.keep_only(&next.groups);
        next.cuts += edit.excised.len() as u64;
        next.flushed = edit.flushed.unwrap_or(self.flushed);
        next.last_timestamp = self.last_timestamp.max(edit.last_timestamp.unwrap_or_default());
        assert!(next.flushed >= self.flushed, "a flush never moves backwards");
        if let Err(broken) = next.check() {
            panic!("an edit breaks its version: {broken}");
        }
        Ok(next)
    }

    fn add(&mut self, place: usize, table: &TableRef) -> Result<(), EditError> {
        let group = self.groups.get_mut(place).filter(|group| !group.is_retired);
        group.ok_or(EditError::NoGroup(place))?.tables.push(Arc::new(table.clone()));
        Ok(())
    }

    /// Puts a layout in force; the places of its groups. A group that it does not name is retired:
    /// its files are the default group's from now on, which has tombstones of every row, too. What
    /// was read before is outdated: the group gets no tombstones meanwhile, and may yet come back.
    fn regroup(&mut self, layout: &Layout) -> Vec<usize> {
        let mut places = Vec::new();
        for (number, declared) in layout.groups().iter().enumerate() {
            let named = self.groups.iter().position(|group| group.name == declared.name);
            let place = if number == 0 { 0 } else { named.unwrap_or(self.groups.len()) };
            if place == self.groups.len() {
                self.groups.push(Group::empty(&declared.name));
            }
            let group = &mut self.groups[place];
            group.families.clone_from(&declared.families);
            (group.settings, group.is_retired) = (declared.settings, false);
            places.push(place);
        }
        for place in (1..self.groups.len()).filter(|place| !places.contains(place)) {
            let group = &mut self.groups[place];
            self.cuts += u64::from(!group.is_retired);
            (group.is_retired, group.families) = (true, Vec::new());
            let left = std::mem::take(&mut group.tables);
            let moved =
                left.iter().map(|table| Arc::new(TableRef { level: 0, ..(**table).clone() }));
            self.groups[0].tables.extend(moved);
        }
        places
    }

    /// The invariants, held after every edit and checked in every manifest that is read.
    fn check(&self) -> Result<(), &'static str> {
        if self.groups.is_empty() {
            return Err("a version has no locality group");
        }
        let mut seen: Vec<(FileId, Option<&RowRange>)> = Vec::new();
        for group in &self.groups {
            let sorted = group.tables.is_sorted_by(|a, b| order(a) <= order(b));
            if !sorted {
                return Err("references are not sorted");
            }
            for pair in group.tables.windows(2) {
                let [left, right] = pair else { continue };
                let one_run = left.level > 0 && left.level == right.level;
                if one_run && !left.is_before(right) {
                    return Err("references of one level overlap");
                }
            }
            for table in &group.tables {
                if table.meta.smallest > table.meta.largest {
                    return Err("a file's smallest key is after its largest");
                }
                seen.push((table.id(), table.clip.as_ref()));
            }
        }
        seen.sort();
        let twice = seen.windows(2).any(|pair| pair[0].0 == pair[1].0 && !disjoint(pair));
        if twice { Err("a file is referenced twice") } else { Ok(()) }
    }
}

/// Do two references of one file, sorted by their clips, have no row in common?
fn disjoint(pair: &[(FileId, Option<&RowRange>)]) -> bool {
    match (pair[0].1, pair[1].1) {
        (Some(first), Some(second)) => first.end.as_ref().is_some_and(|end| *end <= second.start),
        _ => false,
    }
}

/// Within a level by where the reference begins, which its clip may put off.
fn order(table: &TableRef) -> (u32, Vec<u8>, FileId, Option<RowRange>) {
    (table.level, table.low(), table.id(), table.clip.clone())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sstable::Properties;
    use types::CellKey;

    use super::*;

    fn row_key(row: &str) -> CellKey {
        CellKey::put(row.as_bytes(), FamilyId::new(1), b"q", Timestamp::ZERO, SeqNo::ZERO)
    }

    fn reference(counter: u64, level: u32, first: &str, last: &str) -> TableRef {
        let meta = TableMeta {
            file: FileId { session: 1, counter },
            len: 10,
            checksum: 0,
            smallest: row_key(first),
            largest: row_key(last),
            properties: Properties::default(),
        };
        TableRef { meta, level, clip: None }
    }

    fn clipped(counter: u64, start: &'static str, end: &'static str) -> TableRef {
        let end = Some(Bytes::from_static(end.as_bytes()));
        let clip = Some(RowRange { start: Bytes::from_static(start.as_bytes()), end });
        TableRef { clip, ..reference(counter, 1, "a", "z") }
    }

    fn adding(tables: Vec<TableRef>) -> Edit {
        Edit { added: tables.into_iter().map(|table| (0, table)).collect(), ..Edit::default() }
    }

    #[test]
    fn an_edit_removes_what_is_there_and_adds_what_is_not() {
        let version = Version::empty().apply(&adding(vec![reference(1, 0, "a", "b")])).unwrap();
        let id = |counter| FileId { session: 1, counter };
        let gone = Edit { removed: vec![id(2)], ..Edit::default() };
        assert_eq!(version.apply(&gone).unwrap_err(), EditError::NotLive(id(2)));
        let twice = adding(vec![reference(1, 0, "a", "b")]);
        assert_eq!(version.apply(&twice).unwrap_err(), EditError::Duplicate(id(1)));
        let mut replaced = adding(vec![reference(2, 1, "a", "b")]);
        replaced.removed = vec![id(1)];
        replaced.flushed = SeqNo::from_raw(7);
        let version = version.apply(&replaced).unwrap();
        assert_eq!(version.file_ids(), BTreeSet::from([id(2)]));
        assert_eq!((version.flushed().get(), version.bytes()), (7, 10));
    }

    #[test]
    #[should_panic(expected = "a flush never moves backwards")]
    fn flushed_never_moves_back() {
        let forward = Edit { flushed: SeqNo::from_raw(7), ..Edit::default() };
        let back = Edit { flushed: SeqNo::from_raw(6), ..Edit::default() };
        let _ = Version::empty().apply(&forward).unwrap().apply(&back);
    }

    #[test]
    #[should_panic(expected = "references of one level overlap")]
    fn files_of_a_level_are_disjoint() {
        let tables = vec![reference(1, 1, "a", "m"), reference(2, 1, "m", "z")];
        let _ = Version::empty().apply(&adding(tables));
    }

    #[test]
    fn level_0_may_overlap_and_a_file_may_have_disjoint_clips() {
        let tables = vec![reference(1, 0, "a", "m"), reference(2, 0, "b", "c")];
        Version::empty().apply(&adding(tables)).unwrap();
        let excised = vec![clipped(1, "a", "f"), clipped(1, "k", "z")];
        let mut version = Version::empty().apply(&adding(excised)).unwrap();
        assert_eq!(version.unmeasured().len(), 2);
        for (table, bytes) in version.unmeasured().iter().zip([6, 3]) {
            version.measured(table, bytes);
        }
        assert_eq!((version.tables().count(), version.bytes()), (2, 9));
        // What is known of clips goes with them.
        let gone = Edit { removed: vec![FileId { session: 1, counter: 1 }], ..Edit::default() };
        let version = version.apply(&gone).unwrap().apply(&adding(vec![clipped(1, "a", "f")]));
        assert_eq!(version.unwrap().unmeasured().len(), 1);
    }

    #[test]
    fn rows_cut_out_leave_a_hole_or_a_side_or_nothing() {
        let rows = |start: &'static str, end: &'static str| RowRange {
            start: Bytes::from_static(start.as_bytes()),
            end: (!end.is_empty()).then(|| Bytes::from_static(end.as_bytes())),
        };
        let cut = |excised: Vec<RowRange>| {
            let version = Version::empty().apply(&adding(vec![reference(1, 1, "c", "m")]));
            let edit = Edit { excised, ..Edit::default() };
            let version = version.unwrap().apply(&edit).unwrap();
            version.tables().map(|table| table.clip.clone()).collect::<Vec<_>>()
        };
        assert_eq!(cut(vec![rows("a", "c")]), [None], "it has no such rows");
        assert_eq!(cut(vec![rows("n", "")]), [None]);
        let hole = [Some(rows("", "e")), Some(rows("f", ""))];
        assert_eq!(cut(vec![rows("e", "f")]), hole);
        assert_eq!(cut(vec![rows("a", "f")]), [Some(rows("f", ""))]);
        assert_eq!(cut(vec![rows("e", "")]), [Some(rows("", "e"))]);
        assert_eq!(cut(vec![rows("c", "n")]), []);
        assert_eq!(cut(vec![rows("e", "f"), rows("", "d"), rows("h", "")]).len(), 2);
        assert_eq!(cut(vec![rows("e", "f"), rows("", "")]), []);
    }

    #[test]
    fn files_read_before_a_cut_are_not_replaced_after_it() {
        let version = Version::empty().apply(&adding(vec![reference(1, 0, "a", "b")])).unwrap();
        let cuts = version.cuts();
        let excised = vec![RowRange { start: Bytes::from_static(b"b"), end: None }];
        let version = version.apply(&Edit { excised, ..Edit::default() }).unwrap();
        let removed = vec![FileId { session: 1, counter: 1 }];
        let outdated = Edit { removed: removed.clone(), cuts, ..Edit::default() };
        assert_eq!(version.apply(&outdated).unwrap_err(), EditError::Outdated);
        version.apply(&Edit { removed, cuts: version.cuts(), ..Edit::default() }).unwrap();
    }

    #[test]
    fn overlap_respects_keys_and_clips() {
        let at = |row: &str| {
            let mut position = Vec::new();
            key::put_row_start(&mut position, row.as_bytes());
            position
        };
        let whole = reference(1, 0, "c", "f");
        let part = clipped(2, "d", "e");
        for (from, to, in_whole, in_part) in [
            ("", None, true, true),
            ("a", Some("c"), false, false),
            ("c", Some("d"), true, false),
            ("d", Some("e"), true, true),
            ("e", Some("f"), true, false),
            ("f", None, true, false),
            ("g", None, false, false),
        ] {
            let to = to.map(&at);
            let overlaps = |table: &TableRef| table.overlaps(&at(from), to.as_deref());
            assert_eq!((overlaps(&whole), overlaps(&part)), (in_whole, in_part), "from {from}");
        }
    }
}
