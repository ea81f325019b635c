//! What a campaign met: a crash test that never tore a frame proves little.

use std::collections::BTreeMap;

use crate::history::machine::Machine;

/// Counters by name; each must be above zero at the end of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<&'static str, u64>);

/// What a campaign must have met.
const MUST: &[&str] = &[
    "histories",
    "crash points",
    "both kinds of crash in one history",
    "recoveries interrupted by a crash",
    "power cuts that tore a write",
    "torn logs read by a recovery",
    "recycled segments reused",
    "log segments released",
    "commit groups larger than one",
    "flushes",
    "flushes of two locality groups",
    "compactions",
    "cells dropped by retention",
    "operands folded by merges",
    "manifests committed",
    "frames replayed",
    "big values acknowledged",
    "outcomes unknown at the crash",
    "schema changes",
    "ranges divided",
    "rows cut out",
    "files swept",
];

impl Coverage {
    /// Counts `more` of something.
    pub fn add(&mut self, name: &'static str, more: u64) {
        *self.0.entry(name).or_default() += more;
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Coverage) {
        for (name, count) in &other.0 {
            self.add(name, *count);
        }
    }

    /// How many of it there were.
    pub fn count(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// What happened to the disk in all.
    pub fn note_disk(&mut self, machine: &Machine) {
        let counters = machine.disk().counters();
        self.add("recycled segments reused", counters.recycled_logs);
        self.add("power cuts that tore a write", counters.torn_writes);
        let both = u64::from(machine.had_both_kinds());
        self.add("both kinds of crash in one history", both);
    }

    /// The counters as text, one a line.
    pub fn report(&self) -> String {
        let mut text = String::new();
        for (name, count) in &self.0 {
            text.push_str(&format!("  {count:>9}  {name}\n"));
        }
        text
    }

    /// Fails if something never happened.
    pub fn assert_complete(&self) {
        let missing: Vec<_> = MUST.iter().filter(|name| self.count(name) == 0).collect();
        assert!(missing.is_empty(), "never happened: {missing:?}\n{}", self.report());
    }
}
