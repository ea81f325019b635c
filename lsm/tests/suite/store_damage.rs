//! A merge that meets a damaged file: it fails loudly, makes nothing of it, and costs nobody else.
//!
//! risingwavelabs/risingwave#24673: a compaction that met a damaged block was tried again each
//! second, for ever.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use env::Env;
use storage::Path;
use storage::memory::MemoryFileSystem;
use tepui_lsm::{CountingListener, Error, Result, Store, StoreConfig, table_path};
use types::{ErrorKind, FileId, RowRange};

use super::bed::{Cell, config, flush, put, visible, visible_in};

struct Bed {
    disk: MemoryFileSystem,
    store: Arc<Store>,
    events: Arc<CountingListener>,
    env: Env,
}

impl Bed {
    async fn new() -> Bed {
        let disk = MemoryFileSystem::new();
        let events = Arc::new(CountingListener::default());
        let config = StoreConfig { events: events.clone(), ..config(Arc::new(disk.clone()), 1) };
        let env = config.env.clone();
        Bed { disk, store: Store::create(config).await.unwrap(), events, env }
    }

    /// Four runs of the rows that begin with `letter`; the file of the second.
    async fn four_runs(&self, letter: char) -> FileId {
        let before = self.store.version().file_ids();
        let mut second = None;
        for round in 0..4 {
            for row in 0..10 {
                put(&self.store, &format!("{letter}{row}"), "q", round, &[round as u8; 20]);
            }
            flush(&self.store).await.unwrap();
            if round == 1 {
                let new = self.store.version().file_ids();
                second = new.difference(&before).max().copied();
            }
        }
        second.unwrap()
    }

    fn flip(&self, file: FileId) {
        self.disk.corrupt(&path(file), 20, 0x40);
    }

    /// Compacts until nothing is to be done; the failures met.
    async fn settle(&self) -> Vec<Error> {
        let mut failures = Vec::new();
        for _ in 0..100 {
            match self.store.compact_once().await {
                Ok(true) => {}
                Ok(false) => return failures,
                Err(failed) => failures.push(failed),
            }
        }
        panic!("it never ends: {failures:?}");
    }

    async fn cells_of(&self, letter: char) -> Result<Vec<Cell>> {
        visible_in(&self.store, &RowRange::prefix(&Bytes::from(letter.to_string()))).await
    }
}

fn path(file: FileId) -> Path {
    table_path(&Path::new("tables/3"), file)
}

fn set_aside(failed: &Error) -> &[FileId] {
    match failed {
        Error::DamagedInput { files, .. } => files,
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_merge_that_meets_damage_fails_loudly_and_all_else_goes_on() {
    let bed = Bed::new().await;
    let damaged = bed.four_runs('a').await;
    bed.four_runs('z').await;
    let expected = visible(&bed.store).await.unwrap();
    bed.flip(damaged);

    let failures = bed.settle().await;
    let [failed] = &failures[..] else {
        panic!("{failures:?}");
    };
    assert_eq!((failed.kind(), set_aside(failed)), (ErrorKind::Corrupt, &[damaged][..]));
    assert!(failed.to_string().contains(&damaged.to_string()), "{failed}");
    let counts = |name| bed.events.count(name);
    assert_eq!((counts("compaction_failed"), counts("file_set_aside")), (1, 1));
    assert_eq!(counts("poisoned"), 0);
    let statistics = bed.store.statistics();
    assert_eq!((statistics.merges_failed, statistics.files_set_aside), (1, 1));

    // The other rows are merged and read, new ones written; of the damaged file nothing is lost.
    let version = bed.store.version();
    let level_of = |letter: char| {
        let of_letter = version
            .tables()
            .filter(move |table| table.meta.smallest.as_bytes().first() == Some(&(letter as u8)));
        of_letter.map(|table| table.level).collect::<Vec<_>>()
    };
    assert!(level_of('z').iter().all(|level| *level > 0), "{:?}", level_of('z'));
    assert!(version.file_ids().contains(&damaged));
    let of = |letter: char| {
        expected.iter().filter(|cell| cell.0.starts_with(letter)).cloned().collect::<Vec<_>>()
    };
    assert_eq!(bed.cells_of('z').await.unwrap(), of('z'));
    assert_eq!(bed.cells_of('a').await.unwrap_err().kind(), ErrorKind::Corrupt);
    put(&bed.store, "z9", "new", 1, b"v");
    flush(&bed.store).await.unwrap();
    assert_eq!(bed.cells_of('z').await.unwrap().len(), of('z').len() + 1);
    let mut scrub = bed.store.scrub(0).await.unwrap();
    let mut found = Vec::new();
    while let Some(scrubbed) = scrub.next().await.unwrap() {
        found.extend(scrubbed.damage.map(|_| scrubbed.path));
    }
    assert_eq!(found, [path(damaged)]);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_file_is_tried_again_after_pauses_that_grow_until_it_is_mended() {
    let bed = Bed::new().await;
    let damaged = bed.four_runs('a').await;
    let expected = visible(&bed.store).await.unwrap();
    bed.flip(damaged);
    assert_eq!(bed.settle().await.len(), 1);
    let mut tries = Vec::new();
    for second in 1..20_000 {
        bed.env.sleep(Duration::from_secs(1)).await;
        if !bed.settle().await.is_empty() {
            tries.push(second);
        }
    }
    assert_eq!(tries, [60, 180, 420, 900, 1860, 3780, 7380, 10980, 14580, 18180]);

    // Somebody who asks is answered at once.
    let asked = bed.store.compact_all().await.unwrap_err();
    assert_eq!(set_aside(&asked), [damaged]);
    bed.flip(damaged);
    assert!(bed.store.compact_all().await.unwrap());
    assert_eq!(bed.store.statistics().files_set_aside, 0);
    assert_eq!(visible(&bed.store).await.unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_range_with_a_damaged_file_keeps_few_runs_of_the_others() {
    let bed = Bed::new().await;
    let damaged = bed.four_runs('a').await;
    bed.flip(damaged);
    bed.settle().await;
    for _ in 0..10 {
        bed.four_runs('a').await;
        assert_eq!(bed.settle().await.len(), 0);
        assert!(bed.store.level0_runs() <= 4, "{} runs", bed.store.level0_runs());
    }
}

/// Level 0 cannot be merged into the level below: that its files are merged with each other instead
/// costs little for each byte that is written, however long it lasts, and writers go on.
#[tokio::test(start_paused = true)]
async fn a_damaged_base_level_leaves_level_0_with_few_runs_and_little_to_rewrite() {
    let bed = Bed::new().await;
    bed.four_runs('a').await;
    assert_eq!(bed.settle().await.len(), 0);
    let base = bed.store.version();
    assert!(base.tables().all(|table| table.level == 6) && base.tables().count() > 0);
    base.tables().for_each(|table| bed.flip(table.id()));
    let mut written_per_byte = Vec::new();
    for round in 0..400 {
        for row in 0..10 {
            put(&bed.store, &format!("a{row}"), &format!("q{round}"), 0, &[round as u8; 20]);
        }
        flush(&bed.store).await.unwrap();
        bed.settle().await;
        assert!(bed.store.level0_runs() <= 4, "{} runs", bed.store.level0_runs());
        let done = bed.store.statistics();
        written_per_byte.push(done.merge_written_bytes as f64 / done.flushed_bytes as f64);
    }
    assert!(bed.store.write_delay().is_zero());
    let (hundred, four_hundred) = (written_per_byte[99], written_per_byte[399]);
    println!("{hundred} bytes written for each after 100 flushes, {four_hundred} after 400");
    assert!(four_hundred < 10.0, "{four_hundred} bytes written for each");
}

#[tokio::test(start_paused = true)]
async fn no_flipped_byte_makes_a_merge_write_what_was_not_there() {
    let bed = Bed::new().await;
    let damaged = bed.four_runs('a').await;
    let expected = visible(&bed.store).await.unwrap();
    bed.store.close().await;
    let len = bed.disk.read_all(&path(damaged)).unwrap().len() as u64;
    let (mut refused, mut failed) = (0, 0);
    for (place, epoch) in (0..len).zip(2..) {
        let disk = bed.disk.deep_clone();
        disk.corrupt(&path(damaged), place, 0x04);
        // Damage of what every reader needs is found by the open.
        let Ok(store) = Store::open(config(Arc::new(disk.clone()), epoch)).await else {
            refused += 1;
            continue;
        };
        match store.compact_once().await {
            Ok(_) => assert_eq!(visible(&store).await.unwrap(), expected, "byte {place}"),
            Err(error) => {
                failed += 1;
                assert_eq!(set_aside(&error), [damaged], "byte {place}");
                assert!(store.version().file_ids().contains(&damaged), "byte {place}");
            }
        }
    }
    assert!(failed > 100 && refused > 100, "{failed} failed, {refused} refused of {len}");
}
