//! Files that go whole when all their cells are past their age: no byte is read or written for it,
//! and nothing older comes back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use storage::memory::MemoryFileSystem;
use tepui_lsm::{CountingListener, FamilyRule, FamilyRules, Store, StoreConfig};
use types::{FamilyId, Mutation, Retention, Timestamp, TimestampRange};

use super::bed::{FAMILY, SUMS, config, flush, on_row, visible, write};

const SECOND: i64 = 1_000_000;

struct Bed {
    store: Arc<Store>,
    events: Arc<CountingListener>,
    env: env::Env,
}

fn rules(retention: Option<Retention>) -> Arc<FamilyRules> {
    let rule = |id: FamilyId| FamilyRule {
        id,
        retention: retention.clone(),
        aggregate: (id == SUMS).then_some(types::Aggregate::Sum),
    };
    let kept = FamilyRule { id: FamilyId::new(2), retention: None, aggregate: None };
    Arc::new(FamilyRules::new(vec![rule(FAMILY), kept, rule(SUMS)], FamilyId::new(5)))
}

fn aged(seconds: i64) -> Option<Retention> {
    Some(Retention::MaxAge(seconds * SECOND))
}

impl Bed {
    async fn new(retention: Option<Retention>) -> Bed {
        let events = Arc::new(CountingListener::default());
        let files = Arc::new(MemoryFileSystem::new());
        let config = StoreConfig { events: events.clone(), ..config(files, 1) };
        let env = config.env.clone();
        let store = Store::create(config).await.unwrap();
        store.set_rules(&rules(retention));
        Bed { store, events, env }
    }

    /// So many seconds from now.
    fn at(&self, seconds: i64) -> Timestamp {
        Timestamp::from_micros(self.env.now_micros() + seconds * SECOND).unwrap()
    }

    fn set(&self, family: FamilyId, seconds: i64) -> Mutation {
        let (qualifier, value) = (Bytes::from("q"), Bytes::from("some value"));
        Mutation::SetCell { family, qualifier, timestamp: Some(self.at(seconds)), value }
    }

    /// One file.
    async fn file(&self, row: &str, mutations: Vec<Mutation>) {
        write(&self.store, &[on_row(row, mutations)]).unwrap();
        flush(&self.store).await.unwrap();
    }

    async fn pass(&self, seconds: u64) {
        self.env.sleep(Duration::from_secs(seconds)).await;
    }

    /// Does all work that there is; how many files went whole.
    async fn settle(&self) -> u64 {
        let before = self.events.count("files_expired");
        for _ in 0..50 {
            if !self.store.compact_once().await.unwrap() {
                return self.events.count("files_expired") - before;
            }
        }
        panic!("it never ends");
    }

    fn files(&self) -> usize {
        self.store.version().file_ids().len()
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_goes_whole_when_its_age_has_passed_and_no_byte_is_written() {
    let bed = Bed::new(aged(100)).await;
    for (row, seconds) in [("a", 0), ("b", 50), ("c", 90)] {
        bed.file(row, vec![bed.set(FAMILY, seconds), bed.set(FAMILY, seconds - 20)]).await;
    }
    assert_eq!((bed.settle().await, bed.files()), (0, 3));
    let before = bed.store.statistics();
    bed.pass(100).await;
    assert_eq!((bed.settle().await, bed.files()), (0, 3), "a cell of just that age stays");
    bed.pass(1).await;
    assert_eq!((bed.settle().await, bed.files()), (1, 2));
    bed.pass(60).await;
    assert_eq!((bed.settle().await, bed.files()), (1, 1));
    let after = bed.store.statistics();
    assert_eq!(after.merge_written_bytes, before.merge_written_bytes);
    assert_eq!(after.merge_read_bytes, before.merge_read_bytes);
    assert_eq!(after.live_bytes + after.expired_file_bytes, before.live_bytes);
    let rows: Vec<String> = visible(&bed.store).await.unwrap().into_iter().map(|c| c.0).collect();
    assert_eq!(rows, ["c", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_shadows_an_older_one_stays_as_long_as_that_does() {
    // The older file holds a cell that will be young for long, which a tombstone of the newer
    // hides; the newer one's own cells are past their age soon.
    let bed = Bed::new(aged(100)).await;
    bed.file("a", vec![bed.set(FAMILY, 500)]).await;
    let range = TimestampRange { start: bed.at(400), end: None };
    let delete = Mutation::DeleteCells { family: FAMILY, qualifier: Bytes::from("q"), range };
    bed.file("a", vec![delete, bed.set(FAMILY, 0)]).await;
    bed.file("b", vec![bed.set(FAMILY, 0)]).await;
    bed.pass(200).await;
    assert_eq!(bed.settle().await, 1, "only that of the other row goes");
    assert_eq!(visible(&bed.store).await.unwrap().len(), 1, "the old one, until a merge");
    bed.store.set_rules(&rules(None));
    assert_eq!(visible(&bed.store).await.unwrap()[0].3, bed.at(-200).micros());
    bed.store.set_rules(&rules(aged(100)));
    bed.pass(500).await;
    assert_eq!((bed.settle().await, bed.files()), (1, 0), "both go at once");
}

#[tokio::test(start_paused = true)]
async fn a_file_stays_for_a_family_or_a_rule_that_keeps_anything() {
    let versions = Retention::MaxVersions(1);
    let age = Retention::MaxAge(100 * SECOND);
    let both = Retention::Intersection(vec![versions.clone(), age.clone()]);
    let any = Retention::Union(vec![versions.clone(), age.clone()]);
    for (retention, families, goes) in [
        (None, &[1][..], 0),
        (Some(versions), &[1], 0),
        (Some(both), &[1], 0),
        (Some(age.clone()), &[1, 2], 0),
        // Of a family that the rules do not know yet.
        (Some(age.clone()), &[1, 9], 0),
        (Some(age.clone()), &[1], 1),
        (Some(any), &[1], 1),
        // Of one that was dropped.
        (Some(age), &[1, 3], 1),
        (None, &[3], 1),
    ] {
        let bed = Bed::new(retention.clone()).await;
        let cells = families.iter().map(|id| bed.set(FamilyId::new(*id), 0));
        bed.file("a", cells.collect()).await;
        bed.pass(1_000).await;
        assert_eq!(bed.settle().await, goes, "{retention:?} {families:?}");
    }
}

/// Random histories under rules of age: what is young and was not overwritten is there, and what
/// was deleted or overwritten never comes back, whatever went whole.
#[tokio::test(start_paused = true)]
async fn nothing_young_goes_and_nothing_old_comes_back() {
    let mut expired = 0;
    for seed in 0..150 {
        let mut random = StdRng::seed_from_u64(seed);
        let age = random.random_range(5..60);
        let bed = Bed::new(aged(age)).await;
        let mut before = Vec::new();
        for step in 0..60 {
            let row = format!("row {}", random.random_range(0..3));
            let seconds = random.random_range(-60..30);
            let qualifier = Bytes::from("q");
            match random.random_range(0..12) {
                0 => write(&bed.store, &[on_row(&row, vec![Mutation::DeleteRow])]).unwrap(),
                1 | 2 => {
                    let range = TimestampRange { start: bed.at(seconds), end: None };
                    let delete = Mutation::DeleteCells { family: FAMILY, qualifier, range };
                    write(&bed.store, &[on_row(&row, vec![delete])]).unwrap();
                }
                3..6 => write(&bed.store, &[on_row(&row, vec![bed.set(FAMILY, seconds)])]).unwrap(),
                6..9 => flush(&bed.store).await.unwrap(),
                9 => bed.pass(random.random_range(1..20)).await,
                10 => drop(bed.store.compact_all().await.unwrap()),
                _ => {
                    let (files, seen) = (bed.files(), visible(&bed.store).await.unwrap());
                    bed.store.compact_once().await.unwrap();
                    let limit = bed.env.now_micros() - age * SECOND;
                    let left = visible(&bed.store).await.unwrap();
                    assert!(left.iter().all(|cell| seen.contains(cell)), "seed {seed} step {step}");
                    let must = seen.iter().filter(|cell| cell.3 >= limit);
                    must.for_each(|cell| {
                        assert!(left.contains(cell), "seed {seed} step {step} {files} files");
                    });
                }
            }
            before.clone_from(&visible(&bed.store).await.unwrap());
        }
        // With the rule gone nothing that a tombstone hid or a write replaced is seen again.
        bed.pass(120).await;
        bed.settle().await;
        bed.store.set_rules(&rules(None));
        let after = visible(&bed.store).await.unwrap();
        assert!(after.iter().all(|cell| before.contains(cell)), "seed {seed}: {after:?}");
        expired += bed.events.count("files_expired");
    }
    assert!(expired > 100, "{expired} times files went whole");
}

#[tokio::test(start_paused = true)]
async fn operands_past_their_age_go_whole_and_younger_ones_keep_their_sum() {
    let bed = Bed::new(aged(100)).await;
    let add = |seconds, operand| Mutation::AddToCell {
        family: SUMS,
        qualifier: Bytes::from("q"),
        timestamp: Some(bed.at(seconds)),
        operand,
    };
    bed.file("a", vec![add(0, 5)]).await;
    let (first, second) = (add(150, 1), add(150, 2));
    bed.file("a", vec![first]).await;
    bed.file("a", vec![second]).await;
    bed.pass(120).await;
    assert_eq!(bed.settle().await, 1);
    let left = visible(&bed.store).await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].4, 3_i64.to_be_bytes());
}
