use std::fmt;
use std::sync::Arc;

use types::{RowRange, SeqNo, key};

use super::{State, Store};
use crate::cursor::{MergeCursor, Source};
use crate::resolve::Scan;
use crate::rules::FamilyRules;

/// What one read pins: the version, the memtables, and the number up to which it sees. Holding it
/// keeps its SSTables and memtables alive: a long scan takes a new one now and then.
#[derive(Clone)]
pub struct ReadView {
    store: Arc<Store>,
    state: Arc<State>,
    seq: SeqNo,
}

/// Rows as positions of encoded keys.
struct Span {
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    /// The only row, escaped and with its end mark.
    row: Option<Vec<u8>>,
    is_empty: bool,
}

impl Span {
    fn of(rows: &RowRange) -> Span {
        let encode = |put: fn(&mut Vec<u8>, &[u8]), row: &[u8]| {
            let mut out = Vec::new();
            put(&mut out, row);
            out
        };
        Span {
            low: encode(key::put_row_start, &rows.start),
            high: rows.end.as_deref().map(|end| encode(key::put_row_start, end)),
            row: rows.single_row().map(|row| encode(key::put_row_prefix, row)),
            is_empty: rows.is_empty(),
        }
    }
}

impl ReadView {
    pub(super) fn new(store: Arc<Store>, state: Arc<State>, seq: SeqNo) -> ReadView {
        ReadView { store, state, seq }
    }

    /// It sees everything up to this number, and nothing after.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }

    /// The visible cells of `rows`, as far as they are the range's; families that the rules do not
    /// know are not there. `fill_cache`: blocks that it reads stay in the cache (for single rows
    /// and short scans).
    ///
    /// Tables whose keys or filters rule the rows out, or that hold none of the families, are not
    /// looked into.
    pub fn scan(&self, rows: &RowRange, rules: &Arc<FamilyRules>, fill_cache: bool) -> Scan {
        let rows = rows.intersection(self.store.bounds());
        let span = Span::of(&rows);
        let merge = self.merge_of(&span, Some(rules), fill_cache);
        let scan = Scan::between(merge, span.low, span.high, self.seq, rules);
        match rules.drop_aggregates() {
            true => scan.as_of(self.store.env().now_micros()),
            false => scan,
        }
    }

    /// Everything stored of `rows`, whether visible or not, merged.
    pub fn merge(&self, rows: &RowRange, fill_cache: bool) -> MergeCursor {
        self.merge_of(&Span::of(rows), None, fill_cache)
    }

    /// Leaves out the tables that hold nothing that a reader of `wanted` must know: by what the
    /// tables say of themselves, never by their locality group.
    fn merge_of(&self, span: &Span, wanted: Option<&FamilyRules>, fill_cache: bool) -> MergeCursor {
        let wanted = wanted.map(FamilyRules::ids);
        let mut sources: Vec<Source> = self
            .state
            .layers()
            .rev()
            .filter(|layer| layer.is_used())
            .map(|layer| Source::memtable(layer.memtable.cursor()))
            .collect();
        if span.is_empty {
            return MergeCursor::new(sources);
        }
        let Span { low, high, row, .. } = span;
        let counters = &self.store.counters;
        let (mut around, mut ruled_out) = (0, 0);
        for reference in self.state.version.tables() {
            if !reference.overlaps(low, high.as_deref()) {
                continue;
            }
            let properties = &reference.meta.properties;
            if wanted.is_some_and(|families| !properties.may_concern(families)) {
                continue;
            }
            let table =
                self.state.tables.get(&reference.id()).expect("a version's tables are open");
            around += 1;
            if row.as_ref().is_some_and(|row| !table.may_contain_row(row)) {
                ruled_out += 1;
                continue;
            }
            let bounds = reference.clip.as_ref().unwrap_or_else(|| self.store.bounds());
            let cursor = table.cursor(fill_cache).ending_before(high.clone());
            sources.push(Source::table(cursor, bounds));
        }
        if row.is_some() {
            counters.row_reads.add(1);
            counters.row_tables.add(around);
            counters.row_tables_ruled_out.add(ruled_out);
        }
        MergeCursor::new(sources).counted_by(counters, row.clone()).limited_by(self.store.limiter())
    }

    /// Would a view that is pinned now hold the same files and memtables?
    pub fn is_newest(&self) -> bool {
        Arc::ptr_eq(&self.state, &self.store.state())
    }

    /// The range's storage.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

impl fmt::Debug for ReadView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadView").field("seq", &self.seq).finish_non_exhaustive()
    }
}
