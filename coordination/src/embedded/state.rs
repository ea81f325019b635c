//! The state in memory: pure, without I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use types::SessionId;

use crate::{
    Change, Error, Expect, Guard, Keyed, Outcome, Page, Result, Revision, Transaction, Versioned,
};

/// Keys, live sessions, and whether anything is answered.
pub(super) struct State {
    pub(super) revision: Revision,
    pub(super) entries: BTreeMap<String, Versioned>,
    pub(super) sessions: BTreeSet<SessionId>,
    status: Status,
}

enum Status {
    Open,
    Closed,
    Poisoned(String),
}

/// What a transaction comes to.
pub(super) enum Prepared {
    /// Nothing is to be written.
    Answer(Outcome),
    /// These changes, each of which changes something.
    Write(Vec<Change>),
}

impl State {
    pub(super) fn new(revision: Revision, entries: BTreeMap<String, Versioned>) -> State {
        State { revision, entries, sessions: BTreeSet::new(), status: Status::Open }
    }

    pub(super) fn check_open(&self) -> Result<()> {
        match &self.status {
            Status::Open => Ok(()),
            Status::Closed => Err(Error::Closed),
            Status::Poisoned(reason) => Err(Error::Poisoned(reason.clone())),
        }
    }

    pub(super) fn close(&mut self) {
        self.status = Status::Closed;
    }

    pub(super) fn poison(&mut self, reason: &dyn std::error::Error) {
        if matches!(self.status, Status::Open) {
            self.status = Status::Poisoned(reason.to_string());
        }
    }

    /// Checks guards and sessions.
    pub(super) fn prepare(&self, transaction: Transaction) -> Result<Prepared> {
        self.check_open()?;
        let Transaction { guards, mut changes } = transaction;
        if !guards.iter().all(|guard| self.holds(guard)) {
            let current = guards.iter().map(|guard| self.entries.get(&guard.key));
            let current = current.map(|found| found.cloned()).collect();
            return Ok(Prepared::Answer(Outcome::Refused { current }));
        }
        for change in &changes {
            if let Change::Put { session: Some(session), .. } = change
                && !self.sessions.contains(session)
            {
                return Err(Error::SessionEnded(*session));
            }
        }
        changes.retain(|change| match change {
            Change::Put { .. } => true,
            Change::Delete { key } => self.entries.contains_key(key),
        });
        if changes.is_empty() {
            let revision = self.revision;
            return Ok(Prepared::Answer(Outcome::Committed { revision }));
        }
        Ok(Prepared::Write(changes))
    }

    fn holds(&self, guard: &Guard) -> bool {
        let found = self.entries.get(&guard.key);
        match guard.expect {
            Expect::Absent => found.is_none(),
            Expect::Present => found.is_some(),
            Expect::ModifiedAt(revision) => found.is_some_and(|found| found.modified == revision),
        }
    }

    pub(super) fn apply(&mut self, revision: Revision, changes: Vec<Change>) {
        assert_eq!(revision, self.revision.next(), "transactions apply in order");
        let applied = apply(&mut self.entries, revision, changes);
        assert!(applied, "prepare kept only deletes of what is there");
        self.revision = revision;
    }

    pub(super) fn list(&self, prefix: &str, after: &str, limit: usize) -> Page {
        let start = if after >= prefix { Bound::Excluded(after) } else { Bound::Included(prefix) };
        let mut found = self
            .entries
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix));
        let entries = found.by_ref().take(limit);
        let entries = entries.map(|(key, found)| Keyed { key: key.clone(), found: found.clone() });
        let entries: Vec<Keyed> = entries.collect();
        Page { entries, more: found.next().is_some(), revision: self.revision }
    }

    /// Deletes of all keys bound to a session.
    pub(super) fn deletes_of(&self, session: SessionId) -> Vec<Change> {
        let bound = self.entries.iter();
        let bound = bound.filter(|(_, found)| found.session == Some(session));
        bound.map(|(key, _)| Change::Delete { key: key.clone() }).collect()
    }
}

/// Applies the changes of one transaction. False when a key to delete is not there.
pub(super) fn apply(
    entries: &mut BTreeMap<String, Versioned>,
    revision: Revision,
    changes: Vec<Change>,
) -> bool {
    let mut all_there = true;
    for change in changes {
        match change {
            Change::Put { key, value, session } => {
                let created = entries.get(&key).map_or(revision, |found| found.created);
                let found = Versioned { value, created, modified: revision, session };
                entries.insert(key, found);
            }
            Change::Delete { key } => all_there &= entries.remove(&key).is_some(),
        }
    }
    all_there
}

/// The state when all sessions have ended; that takes a revision if anything goes.
pub(super) fn without_sessions(
    entries: &BTreeMap<String, Versioned>,
    revision: Revision,
) -> (BTreeMap<String, Versioned>, Revision) {
    let kept = entries.iter().filter(|(_, found)| found.session.is_none());
    let kept: BTreeMap<String, Versioned> =
        kept.map(|(key, found)| (key.clone(), found.clone())).collect();
    let revision = if kept.len() == entries.len() { revision } else { revision.next() };
    (kept, revision)
}
