//! Whatever is done to a range while a merge runs changes no answer: writes and deletes, flushes,
//! cuts, divisions, other locality groups, families that are dropped and made anew.
//!
//! A merge is a future that is polled a few times between steps, or let fall; flushes are tasks, or
//! are waited for.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use storage::memory::MemoryFileSystem;
use tepui_lsm::{FamilyRule, FamilyRules, Reason, Result, Store, StoreConfig, StoreOptions};
use types::{
    Aggregate, ErrorKind, FamilyId, LocalityGroup, Mutation, RowMutations, RowRange, TimestampRange,
};

use super::bed::{Cell, Log, at, config, flush_cuts, on_row, random_settings, tiny_options};
use super::store_ranges::divide;

type Merge = Pin<Box<dyn Future<Output = Result<bool>>>>;

/// A range and the merge that is under way in it.
struct Part {
    config: StoreConfig,
    store: Arc<Store>,
    merge: Option<Merge>,
    flushes: Vec<env::Task<()>>,
}

impl Part {
    fn new(config: StoreConfig, store: Arc<Store>) -> Part {
        Part { config, store, merge: None, flushes: Vec::new() }
    }

    /// Flushes what there is, now or in the background.
    async fn flush(&mut self, is_waited_for: bool) {
        self.store.freeze(Reason::Asked);
        let store = Arc::clone(&self.store);
        let flush = async move { _ = store.flush().await.unwrap() };
        self.flushes.push(self.config.env.spawn("flush", flush));
        if is_waited_for {
            self.end_flushes().await;
        }
    }

    async fn end_flushes(&mut self) {
        for flush in std::mem::take(&mut self.flushes) {
            flush.join().await.unwrap();
        }
    }
}

/// A table: its ranges, and what should be in them.
struct World {
    random: StdRng,
    parts: Vec<Part>,
    log: Log,
    /// Two families whose cells are put, and the sums.
    families: [FamilyId; 3],
    next_family: FamilyId,
    next_range: u64,
    met: Met,
}

/// What a run has met.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    /// Merges that ended well after something was done meanwhile.
    merged: u64,
    /// Merges that found something changed, and left all as it was.
    outdated: u64,
    /// Merges that were let fall.
    fallen: u64,
    /// Divisions.
    divided: u64,
}

impl World {
    async fn new(seed: u64) -> World {
        let config = StoreConfig {
            options: StoreOptions { level0_merge_runs: 2, ..tiny_options() },
            ..config(Arc::new(MemoryFileSystem::new()), 1)
        };
        let store = Store::create(config.clone()).await.unwrap();
        let mut world = World {
            random: StdRng::seed_from_u64(seed),
            parts: vec![Part::new(config, store)],
            log: Log::default(),
            families: [1, 2, 3].map(FamilyId::new),
            next_family: FamilyId::new(4),
            next_range: 8,
            met: Met::default(),
        };
        world.declare();
        world
    }

    fn rules(&self) -> Arc<FamilyRules> {
        let rule = |(place, id): (usize, &FamilyId)| FamilyRule {
            id: *id,
            retention: None,
            aggregate: (place == 2).then_some(Aggregate::Sum),
        };
        let rules = self.families.iter().enumerate().map(rule).collect();
        Arc::new(FamilyRules::new(rules, self.next_family))
    }

    fn declare(&mut self) {
        let rules = self.rules();
        self.parts.iter().for_each(|part| part.store.set_rules(&rules));
    }

    fn some_part(&mut self) -> usize {
        self.random.random_range(0..self.parts.len())
    }

    async fn step(&mut self) {
        match self.random.random_range(0..100) {
            0..40 => self.write().await,
            40..60 => {
                let (part, is_waited_for) = (self.some_part(), self.random.random());
                self.parts[part].flush(is_waited_for).await;
            }
            60..72 => {
                let part = self.some_part();
                let groups = self.groups();
                self.parts[part].store.set_groups(&groups);
                if self.random.random() {
                    // Something to be written, so that the groups are recorded.
                    self.write().await;
                    self.parts[part].flush(true).await;
                }
            }
            72..80 => self.cut().await,
            80..84 => self.recreate(),
            84..85 => self.divide().await,
            85..88 => {
                let part = self.some_part();
                self.met.fallen += u64::from(self.parts[part].merge.take().is_some());
            }
            _ => self.begin_merge(),
        }
        for part in 0..self.parts.len() {
            let polls = self.random.random_range(0..6);
            self.poll(part, polls).await;
        }
    }

    /// Goes on with the merge of a range.
    async fn poll(&mut self, part: usize, polls: u32) {
        for _ in 0..polls {
            let Some(merge) = &mut self.parts[part].merge else {
                return;
            };
            let once = std::future::poll_fn(|context| Poll::Ready(merge.as_mut().poll(context)));
            if let Poll::Ready(ended) = once.await {
                self.parts[part].merge = None;
                match ended {
                    Ok(_) => self.met.merged += 1,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Aborted, "{error}");
                        self.met.outdated += 1;
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }

    fn begin_merge(&mut self) {
        let (part, all) = (self.some_part(), self.random.random::<bool>());
        let part = &mut self.parts[part];
        if part.merge.is_none() {
            let store = Arc::clone(&part.store);
            part.merge = Some(Box::pin(async move {
                if all { store.compact_all().await } else { store.compact_once().await }
            }));
        }
    }

    async fn write(&mut self) {
        let row = format!("row {}", self.random.random_range(0..7));
        let count = self.random.random_range(1..4);
        let mutations = (0..count).map(|_| self.mutation()).collect();
        self.write_to(on_row(&row, mutations)).await;
    }

    async fn write_to(&mut self, row: RowMutations) {
        let holds = |part: &&Part| part.store.bounds().contains(&row.row);
        let part = self.parts.iter().find(holds).unwrap();
        flush_cuts(&part.store).await.unwrap();
        self.log.write(&part.store, &[row]).unwrap();
    }

    fn mutation(&mut self) -> Mutation {
        let place = self.random.random_range(0..3);
        let family = self.families[place];
        let qualifier = Bytes::from(["", "a", "b"][self.random.random_range(0..3)]);
        let micros = self.random.random_range(0..4);
        match self.random.random_range(0..12) {
            0 => Mutation::DeleteRow,
            1 => Mutation::DeleteFamily { family },
            2 | 3 => {
                let end = Some(at(micros + 1));
                let range = TimestampRange { start: at(micros), end };
                Mutation::DeleteCells { family, qualifier, range }
            }
            _ if place == 2 => {
                let operand = self.random.random_range(-1_000..1_000);
                Mutation::AddToCell { family, qualifier, timestamp: Some(at(micros)), operand }
            }
            _ => {
                let value = (0..40).map(|_| self.random.random_range(b'a'..=b'z')).collect();
                let (timestamp, value) = (Some(at(micros)), Bytes::from_owner::<Vec<u8>>(value));
                Mutation::SetCell { family, qualifier, timestamp, value }
            }
        }
    }

    /// Locality groups over the present families: none, one or two.
    fn groups(&mut self) -> Vec<LocalityGroup> {
        let names = ["a", "b"];
        let mut groups: Vec<LocalityGroup> = Vec::new();
        for family in self.families {
            let Some(name) = names.get(self.random.random_range(0..3_usize)) else {
                continue;
            };
            match groups.iter_mut().find(|group| group.name == *name) {
                Some(group) => group.families.push(family),
                None => groups.push(LocalityGroup {
                    name: (*name).to_owned(),
                    families: vec![family],
                    settings: random_settings(&mut self.random),
                }),
            }
        }
        groups
    }

    async fn cut(&mut self) {
        let part = self.some_part();
        let row = |number: u32| Bytes::from(format!("row {number}"));
        let start = self.random.random_range(0..7);
        let rows =
            RowRange { start: row(start), end: Some(row(self.random.random_range(start + 1..8))) };
        let store = Arc::clone(&self.parts[part].store);
        let rows = rows.intersection(store.bounds());
        if !rows.is_empty() {
            flush_cuts(&store).await.unwrap();
            self.log.excise(&store, &rows).unwrap();
            flush_cuts(&store).await.unwrap();
        }
    }

    /// Drops a family, and makes another of its name: with an id of its own.
    fn recreate(&mut self) {
        let place = self.random.random_range(0..3);
        let dropped = std::mem::replace(&mut self.families[place], self.next_family);
        self.next_family = FamilyId::new(self.next_family.get() + 1);
        self.log.model.drop_family(dropped);
        self.declare();
    }

    async fn divide(&mut self) {
        if self.parts.len() > 2 {
            return;
        }
        let part = self.some_part();
        let at = format!("row {}", self.random.random_range(1..7));
        let bounds = self.parts[part].store.bounds();
        if !bounds.contains(at.as_bytes()) || bounds.start == at.as_bytes() {
            return;
        }
        self.parts[part].merge = None;
        let mut divided = self.parts.remove(part);
        divided.end_flushes().await;
        let Part { config, store, .. } = divided;
        flush_cuts(&store).await.unwrap();
        let hold = store.hold_compactions().await.unwrap();
        let children = divide(&store, &config, &at, self.next_range).await;
        drop(hold);
        self.next_range += 2;
        store.close().await;
        store.remove_folder(config.range).await.unwrap();
        for config in children {
            let store = Store::open(config.clone()).await.unwrap();
            self.parts.push(Part::new(config, store));
        }
        self.parts.sort_by(|a, b| a.store.bounds().start.cmp(&b.store.bounds().start));
        self.declare();
        self.met.divided += 1;
    }

    /// The visible cells of all ranges, the rows ascending or descending.
    async fn cells(&self, descending: bool) -> Vec<Cell> {
        let rules = self.rules();
        let mut cells = Vec::new();
        for part in &self.parts {
            let view = part.store.view().unwrap();
            let mut scan = view.scan(&RowRange::all(), &rules, false).seeking_after(2);
            if descending {
                scan = scan.descending();
            }
            while scan.next().await.unwrap() {
                let cell = scan.cell();
                let (mut row, mut qualifier) = (Vec::new(), Vec::new());
                cell.row_into(&mut row);
                cell.qualifier_into(&mut qualifier);
                let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
                let sstable::ValueRef::Inline(value) = cell.value else {
                    panic!("no value is large");
                };
                let (family, micros) = (cell.family.get(), cell.timestamp.micros());
                cells.push((text(row), family, text(qualifier), micros, value.to_vec()));
            }
        }
        // Cells of a row keep their order.
        if descending {
            cells.sort_by(|a, b| a.0.cmp(&b.0));
        }
        cells
    }

    async fn check(&self, what: &str) {
        let expected = self.log.model.cells();
        for descending in [false, true] {
            assert_eq!(self.cells(descending).await, expected, "{what}, descending: {descending}");
        }
    }

    /// Ends what is under way, and then everything that is to be done.
    async fn settle(&mut self, what: &str) {
        for part in 0..self.parts.len() {
            self.parts[part].end_flushes().await;
            self.poll(part, u32::MAX).await;
            let store = Arc::clone(&self.parts[part].store);
            let mut steps = 0;
            while store.compact_once().await.unwrap() {
                steps += 1;
                assert!(steps < 200, "{what}: it never ends");
            }
            self.check(what).await;
            store.compact_all().await.unwrap();
            self.check(what).await;
        }
    }
}

async fn run(seed: u64, steps: u32) -> Met {
    let mut world = World::new(seed).await;
    for step in 0..steps {
        world.step().await;
        world.check(&format!("seed {seed} step {step}")).await;
    }
    world.settle(&format!("seed {seed} at the end")).await;
    world.met
}

#[tokio::test(start_paused = true)]
async fn nothing_done_while_a_merge_runs_changes_an_answer() {
    let mut met = Met::default();
    for seed in 0..40 {
        let one = run(seed, 300).await;
        met.merged += one.merged;
        met.outdated += one.outdated;
        met.fallen += one.fallen;
        met.divided += one.divided;
    }
    assert!(met.merged > 100 && met.outdated > 20 && met.fallen > 20 && met.divided > 5, "{met:?}");
}
