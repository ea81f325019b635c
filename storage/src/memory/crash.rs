//! What a crash leaves.
//!
//! Of the writes to a log that were not synced, each stays whole, in part or not at all. The disk
//! keeps whole sectors, so a sector that stays as one write left it has all earlier writes too.
//!
//! Of the names that were not made durable, each stays as it was after some number of its changes.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::state::{File, Inode, Node, State};
use super::{Counters, Crash};
use crate::Path;

/// What a disk writes whole or not at all, in bytes.
const SECTOR_BYTES: u64 = 512;

/// How much of the un-synced stays: the extremes are where most bugs are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mercy {
    Nothing,
    Everything,
    Some,
}

impl State {
    /// The disk as the next process finds it.
    pub(super) fn crashed(&self, crash: Crash) -> State {
        let mut next = self.without_handles();
        next.operations = 0;
        next.crash_after = None;
        match crash {
            Crash::Process => next.counters.process_crashes += 1,
            Crash::PowerCut { seed } => next.cut_power(&mut StdRng::seed_from_u64(seed)),
        }
        next
    }

    fn cut_power(&mut self, random: &mut StdRng) {
        self.counters.power_cuts += 1;
        let mercy = match random.random_range(0..4) {
            0 => Mercy::Nothing,
            1 => Mercy::Everything,
            _ => Mercy::Some,
        };
        self.cut_names(random, mercy);
        for file in self.files.values_mut() {
            cut_writes(file, random, mercy, &mut self.counters);
        }
    }

    fn cut_names(&mut self, random: &mut StdRng, mercy: Mercy) {
        let mut names = std::mem::take(&mut self.durable_names);
        let mut changes: BTreeMap<Path, Vec<Option<Node>>> = BTreeMap::new();
        for change in std::mem::take(&mut self.changes) {
            changes.entry(change.path).or_default().push(change.node);
        }
        for (path, history) in changes {
            let kept = match mercy {
                Mercy::Nothing => 0,
                Mercy::Everything => history.len(),
                Mercy::Some => random.random_range(0..=history.len()),
            };
            if kept < history.len() {
                self.counters.lost_names += 1;
            }
            match kept.checked_sub(1).and_then(|last| history.get(last)) {
                None => {}
                Some(Some(node)) => {
                    names.insert(path, *node);
                }
                Some(None) => {
                    names.remove(&path);
                }
            }
        }
        drop_orphans(&mut names);
        keep_one_name_each(&mut names, random);
        self.pool.retain(|(inode, _)| !names.values().any(|node| *node == Node::File(*inode)));
        self.durable_names.clone_from(&names);
        self.names = names;
        self.collect();
    }
}

/// A name in a folder that is not there cannot be reached. Folders sort before what is in them.
fn drop_orphans(names: &mut BTreeMap<Path, Node>) {
    let mut folders = BTreeSet::from([Path::root()]);
    names.retain(|path, node| {
        let is_reachable = folders.contains(&path.parent());
        if is_reachable && *node == Node::Folder {
            folders.insert(path.clone());
        }
        is_reachable
    });
}

/// A renamed file whose two names both stayed has one of them: a rename is atomic.
fn keep_one_name_each(names: &mut BTreeMap<Path, Node>, random: &mut StdRng) {
    let mut of_file: BTreeMap<Inode, Vec<Path>> = BTreeMap::new();
    for (path, node) in names.iter() {
        if let Node::File(inode) = node {
            of_file.entry(*inode).or_default().push(path.clone());
        }
    }
    for paths in of_file.values().filter(|paths| paths.len() > 1) {
        let kept = random.random_range(0..paths.len());
        for (_, path) in paths.iter().enumerate().filter(|(at, _)| *at != kept) {
            names.remove(path);
        }
    }
}

fn cut_writes(file: &mut File, random: &mut StdRng, mercy: Mercy, counters: &mut Counters) {
    let writes = std::mem::take(&mut file.writes);
    file.appended = file.appended_synced;
    // For each sector, the last of the writes that it stays with.
    let mut last_kept: BTreeMap<u64, usize> = BTreeMap::new();
    for (number, write) in writes.iter().enumerate() {
        if write.content.is_empty() {
            continue;
        }
        let end = write.offset + write.content.len() as u64;
        let sectors = write.offset / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES;
        let mercy = match mercy {
            Mercy::Some => match random.random_range(0..4) {
                0 => Mercy::Nothing,
                1 => Mercy::Everything,
                _ => Mercy::Some,
            },
            decided => decided,
        };
        let (mut kept, mut lost) = (0_u64, 0_u64);
        for sector in sectors {
            let stays = match mercy {
                Mercy::Nothing => false,
                Mercy::Everything => true,
                Mercy::Some => random.random_bool(0.5),
            };
            if stays {
                last_kept.insert(sector, number);
                kept += 1;
            } else {
                lost += 1;
            }
        }
        counters.torn_writes += u64::from(kept > 0 && lost > 0);
        counters.lost_writes += u64::from(kept == 0);
    }
    for (number, write) in writes.iter().enumerate() {
        let mut rest = write.content.as_slice();
        let mut offset = write.offset;
        while !rest.is_empty() {
            let sector = offset / SECTOR_BYTES;
            let room = usize::try_from((sector + 1) * SECTOR_BYTES - offset).unwrap_or(rest.len());
            let (piece, after) = rest.split_at(room.min(rest.len()));
            if last_kept.get(&sector).is_some_and(|last| number <= *last) {
                file.keep(offset, piece);
            }
            offset += piece.len() as u64;
            rest = after;
        }
    }
    file.len = file.synced_len;
}
