//! What crashes leave of the file system in memory.

use std::collections::BTreeSet;

use bytes::Bytes;
use tepui_storage::memory::{Crash, MemoryFileSystem};
use tepui_storage::{FileSystem, LogFile, Path, PlantedBug, Result};
use types::ErrorKind;

use crate::{new_log, path, run};

const SEEDS: u64 = 200;

fn cut(disk: &MemoryFileSystem, seed: u64) -> MemoryFileSystem {
    disk.deep_clone().crash(Crash::PowerCut { seed })
}

/// What power cuts leave of one file, over many seeds.
fn outcomes(disk: &MemoryFileSystem, at: &str) -> BTreeSet<Option<Bytes>> {
    (0..SEEDS).map(|seed| cut(disk, seed).read_all(&path(at))).collect()
}

#[test]
fn synced_bytes_survive_every_power_cut_and_others_may_not() {
    let disk = MemoryFileSystem::new();
    run(async {
        let mut log = new_log(&disk, "wal/1.log", 0).await;
        log.append(b"synced").unwrap();
        log.sync().unwrap();
        log.append(b"-not").unwrap();
    });
    assert_eq!(disk.synced_len(&path("wal/1.log")), Some(6));
    let found = outcomes(&disk, "wal/1.log");
    let expected = ["synced", "synced-not"].map(|text| Some(Bytes::from(text)));
    assert_eq!(found, BTreeSet::from(expected));
}

#[test]
fn a_write_may_keep_later_sectors_and_lose_earlier_ones() {
    let disk = MemoryFileSystem::new();
    run(async {
        let mut log = new_log(&disk, "wal/1.log", 0).await;
        log.append(&[1; 2048]).unwrap();
    });
    let mut shapes = BTreeSet::new();
    for content in outcomes(&disk, "wal/1.log").into_iter().flatten() {
        let sectors: Vec<&[u8]> = content.chunks(512).collect();
        for sector in &sectors {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "sectors are kept whole");
        }
        shapes.insert(sectors.iter().map(|sector| sector[0]).collect::<Vec<u8>>());
    }
    assert!(shapes.contains(&vec![]) && shapes.contains(&vec![1, 1, 1, 1]));
    assert!(shapes.contains(&vec![0, 0, 1, 1]) || shapes.contains(&vec![0, 1, 0, 1]), "{shapes:?}");
}

#[test]
fn a_sector_that_stays_has_all_earlier_writes_to_it() {
    let disk = MemoryFileSystem::new();
    run(async {
        let mut log = new_log(&disk, "wal/1.log", 512).await;
        for byte in 1..=4 {
            log.append(&[byte; 16]).unwrap();
        }
    });
    for content in outcomes(&disk, "wal/1.log").into_iter().flatten() {
        let kept: Vec<u8> = content.chunks(16).take(4).map(|piece| piece[0]).collect();
        let prefixes: [&[u8]; 5] =
            [&[0; 4], &[1, 0, 0, 0], &[1, 2, 0, 0], &[1, 2, 3, 0], &[1, 2, 3, 4]];
        assert!(prefixes.contains(&kept.as_slice()), "{kept:?}");
    }
}

#[test]
fn a_process_crash_keeps_everything_and_a_later_power_cut_may_not() {
    let disk = MemoryFileSystem::new();
    run(async {
        let mut log = new_log(&disk, "wal/1.log", 0).await;
        log.append(b"written").unwrap();
        disk.put_if_absent(&path("t/a"), Bytes::from_static(b"blob")).await.unwrap();
        disk.remove(&path("t/a")).await.unwrap();
    });
    let after = disk.crash(Crash::Process);
    assert_eq!(after.read_all(&path("wal/1.log")).unwrap(), "written");
    assert_eq!(after.read_all(&path("t/a")), None);
    assert_eq!(after.synced_len(&path("wal/1.log")), Some(0));
    assert!(outcomes(&after, "wal/1.log").contains(&Some(Bytes::new())));
    assert!(outcomes(&after, "t/a").contains(&Some(Bytes::from_static(b"blob"))));
    // After a sync of the folder the removal is for good.
    run(after.sync_folder(&path("t"))).unwrap();
    assert_eq!(outcomes(&after, "t/a"), BTreeSet::from([None]));
    // What a power cut left is durable.
    let cut = after.crash(Crash::PowerCut { seed: 3 });
    let left = cut.snapshot();
    for seed in 0..SEEDS {
        assert_eq!(cut.deep_clone().crash(Crash::PowerCut { seed }).snapshot(), left);
    }
    let counters = cut.counters();
    assert_eq!((counters.process_crashes, counters.power_cuts), (1, 1));
}

#[test]
fn everything_opened_before_a_crash_fails_after_it() {
    run(async {
        let disk = MemoryFileSystem::new();
        disk.put_if_absent(&path("a"), Bytes::from_static(b"1")).await.unwrap();
        let reader = disk.open(&path("a")).await.unwrap();
        let mut writer = disk.create(&path("b")).await.unwrap();
        let mut log = new_log(&disk, "wal/1.log", 0).await;
        let next = disk.crash(Crash::Process);
        let errors = [
            reader.read_at(0, 1).await.unwrap_err(),
            writer.append(Bytes::new()).await.unwrap_err(),
            writer.finish().await.unwrap_err(),
            log.append(b"x").unwrap_err(),
            log.sync().unwrap_err(),
            disk.put_if_absent(&path("c"), Bytes::new()).await.unwrap_err(),
            disk.list(&path("a"), "").await.unwrap_err(),
            disk.seal(&path("wal")).await.unwrap_err(),
            disk.remove(&path("a")).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().ends_with("crashed"), "{error}");
        }
        assert_eq!(next.paths(), [path("a"), path("wal/1.log")]);
    });
}

#[test]
fn finished_blobs_survive_and_unfinished_ones_do_not() {
    let disk = MemoryFileSystem::new();
    run(async {
        let mut writer = disk.create(&path("t/x")).await.unwrap();
        writer.append(Bytes::from_static(b"whole")).await.unwrap();
        writer.finish().await.unwrap();
        let mut writer = disk.create(&path("t/y")).await.unwrap();
        writer.append(Bytes::from_static(b"half")).await.unwrap();
        for seed in 0..SEEDS {
            let after = cut(&disk, seed);
            assert_eq!(after.read_all(&path("t/x")).unwrap(), "whole");
            assert_eq!(after.paths(), [path("t/x")]);
        }
    });
}

#[test]
fn a_recycled_log_shows_stale_bytes_after_a_power_cut() {
    let disk = MemoryFileSystem::new();
    run(async {
        let mut log = new_log(&disk, "wal/1.log", 1024).await;
        log.append(&[1; 1024]).unwrap();
        log.sync().unwrap();
        drop(log);
        disk.remove(&path("wal/1.log")).await.unwrap();
        assert!(outcomes(&disk, "wal/1.log").len() == 2, "the removal may be undone");
        let mut log = new_log(&disk, "wal/2.log", 1024).await;
        assert_eq!(disk.counters().recycled_logs, 1);
        assert_eq!(outcomes(&disk, "wal/1.log"), BTreeSet::from([None]), "gone for good");
        assert_eq!(disk.synced_len(&path("wal/2.log")), Some(0));
        log.append(&[2; 1024]).unwrap();
    });
    let mixed = outcomes(&disk, "wal/2.log").into_iter().flatten().any(|content| {
        content[..512].iter().all(|byte| *byte == 1) && content[512..].iter().all(|b| *b == 2)
    });
    assert!(mixed, "stale bytes lie before new ones in some outcome");
}

#[test]
fn overwriting_a_log_whose_removal_is_not_durable_shows_when_planted() {
    let disk = MemoryFileSystem::new();
    run(async {
        let mut log = new_log(&disk, "wal/1.log", 512).await;
        log.append(b"acknowledged").unwrap();
        log.sync().unwrap();
        drop(log);
        disk.set_planted(Some(PlantedBug::SkipFolderSync));
        disk.remove(&path("wal/1.log")).await.unwrap();
        let mut log = new_log(&disk, "wal/2.log", 512).await;
        log.append(b"OVERWRITTEN!").unwrap();
        log.sync().unwrap();
    });
    let found = outcomes(&disk, "wal/1.log");
    let overwritten = found.iter().flatten().any(|content| content.starts_with(b"OVERWRITTEN!"));
    assert!(overwritten, "the old name shows the new log's bytes in some outcome");
}

/// A history whose parts are many operations each.
async fn history(disk: &MemoryFileSystem) -> Result<()> {
    disk.put_if_absent(&path("t/m/1"), Bytes::from_static(b"one")).await?;
    let LogFile::Blocking(mut log) = disk.create_log(&path("wal/1.log"), 100).await?;
    log.append(b"abc")?;
    log.sync()?;
    drop(log);
    disk.remove(&path("wal/1.log")).await?;
    let LogFile::Blocking(_log) = disk.create_log(&path("wal/2.log"), 100).await?;
    let mut writer = disk.create(&path("t/x")).await?;
    writer.append(Bytes::from_static(b"abcd")).await?;
    writer.finish().await?;
    disk.remove(&path("t/x")).await?;
    disk.remove_folder(&path("absent")).await
}

#[test]
fn the_disk_can_stop_after_every_operation() {
    let disk = MemoryFileSystem::new();
    run(history(&disk)).unwrap();
    let total = disk.operations();
    let mut states = BTreeSet::new();
    for last in 0..total {
        let disk = MemoryFileSystem::new();
        disk.crash_after(last);
        let error = run(history(&disk)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(disk.is_frozen());
        assert_eq!(disk.operations(), last);
        let before = disk.snapshot();
        run(disk.put_if_absent(&path("later"), Bytes::new())).unwrap_err();
        assert_eq!(disk.snapshot(), before, "it stands still");
        let after = disk.crash(Crash::Process);
        assert_eq!(after.snapshot(), before);
        run(after.put_if_absent(&path("later"), Bytes::new())).unwrap();
        let cuts: Vec<_> = (0..20).map(|seed| cut(&after, seed).snapshot()).collect();
        states.insert((before, cuts));
    }
    assert!(states.len() as u64 > total / 2, "{} states of {total} points", states.len());
}

#[test]
fn the_same_seed_cuts_the_same_way() {
    let build = || {
        let disk = MemoryFileSystem::new();
        run(async {
            history(&disk).await.unwrap();
            let mut log = new_log(&disk, "wal/9.log", 0).await;
            for byte in 0..50 {
                log.append(&[byte; 700]).unwrap();
            }
        });
        disk
    };
    for seed in 0..50 {
        let (one, two) = (cut(&build(), seed), cut(&build(), seed));
        assert_eq!(one.snapshot(), two.snapshot(), "seed {seed}");
        assert_eq!(one.counters(), two.counters(), "seed {seed}");
    }
    let torn: u64 = (0..50).map(|seed| cut(&build(), seed).counters().torn_writes).sum();
    assert!(torn > 0);
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    run(async {
        let disk = MemoryFileSystem::new();
        disk.set_capacity(Some(1000));
        let mut log = new_log(&disk, "wal/1.log", 600).await;
        let refused = disk.create_log(&path("wal/2.log"), 600).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
        log.append(&[1; 600]).unwrap();
        assert_eq!(log.append(&[1; 401]).unwrap_err().kind(), ErrorKind::ResourceExhausted);
        let mut writer = disk.create(&path("a")).await.unwrap();
        writer.append(Bytes::from(vec![0; 400])).await.unwrap();
        let refused = writer.append(Bytes::from(vec![0; 1])).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
        drop(writer);
        assert_eq!(disk.used(), 600);
        disk.put_if_absent(&path("a"), Bytes::from(vec![0; 400])).await.unwrap();
        let refused = disk.put_if_absent(&path("b"), Bytes::from_static(b"1")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
        assert_eq!(disk.paths(), [path("a"), path("wal/1.log")]);
        disk.remove(&path("a")).await.unwrap();
        disk.sync_folder(&Path::root()).await.unwrap();
        disk.put_if_absent(&path("b"), Bytes::from_static(b"1")).await.unwrap();
    });
}

#[test]
fn corrupt_flips_one_byte_wherever_it_is() {
    run(async {
        let disk = MemoryFileSystem::new();
        disk.put_if_absent(&path("a"), Bytes::from_static(b"abc")).await.unwrap();
        disk.corrupt(&path("a"), 1, 0xff);
        disk.corrupt(&path("a"), 99, 0xff);
        disk.corrupt(&path("absent"), 0, 0xff);
        assert_eq!(&disk.read_all(&path("a")).unwrap()[..], [b'a', !b'b', b'c']);
        let mut log = new_log(&disk, "wal/1.log", 8).await;
        log.append(b"xyz").unwrap();
        disk.corrupt(&path("wal/1.log"), 2, 0x01);
        disk.corrupt(&path("wal/1.log"), 7, 0x01);
        let expected = *b"xy{\0\0\0\0\x01";
        assert_eq!(&disk.read_all(&path("wal/1.log")).unwrap()[..], expected);
        log.sync().unwrap();
        assert_eq!(&disk.read_all(&path("wal/1.log")).unwrap()[..], expected);
    });
}

#[test]
fn a_copy_is_a_disk_of_its_own() {
    run(async {
        let disk = MemoryFileSystem::new();
        let mut log = new_log(&disk, "wal/1.log", 0).await;
        log.append(b"both").unwrap();
        let copy = disk.deep_clone();
        log.append(b" one").unwrap();
        copy.remove(&path("wal/1.log")).await.unwrap();
        assert_eq!(disk.read_all(&path("wal/1.log")).unwrap(), "both one");
        assert!(copy.paths().is_empty());
    });
}

#[test]
fn nothing_durable_is_ever_lost() {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    for seed in 0..SEEDS {
        let mut random = StdRng::seed_from_u64(seed);
        let mut disk = MemoryFileSystem::new();
        let mut durable = std::collections::BTreeMap::new();
        for life in 0..4 {
            run(async {
                let mut log = new_log(&disk, &format!("wal/{life}.log"), 256).await;
                for step in 0..10_u32 {
                    let at = path(&format!("t{}/{life}-{step}", random.random_range(0..2)));
                    let content = Bytes::from(format!("{seed}-{step}"));
                    disk.put_if_absent(&at, content.clone()).await.unwrap();
                    durable.insert(at, content);
                    log.append(&vec![life; random.random_range(1..1500)]).unwrap();
                    if random.random_bool(0.3) {
                        log.sync().unwrap();
                    }
                }
                let at = path(&format!("wal/{life}.log"));
                let len = disk.synced_len(&at).unwrap();
                let len = usize::try_from(len).unwrap();
                let content = disk.read_all(&at).unwrap().slice(..len);
                assert!(content.iter().all(|byte| *byte == life));
                durable.insert(at, content);
            });
            let crash = match random.random_range(0..2) {
                0 => Crash::Process,
                _ => Crash::PowerCut { seed: random.random() },
            };
            disk = disk.crash(crash);
            for (at, content) in &durable {
                let found = disk.read_all(at).unwrap_or_default();
                assert!(found.starts_with(content), "seed {seed}, life {life}, {at:?}");
            }
        }
    }
}
