//! Writing and reading without accidents.

use std::sync::Arc;
use std::task::{Context, Waker};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use storage::FileSystem;
use storage::memory::MemoryFileSystem;
use tepui_wal::{EntryKind, Position, inspect, recover, remove_log};
use types::ErrorKind;

use super::session::{SMALL, Session, check_prefix, entry, folder, random_group, read_all, run};

#[test]
fn what_was_appended_is_read_back_across_segments() {
    run(async {
        let disk = MemoryFileSystem::new();
        let mut session = Session::start(&disk, 1, SMALL).await.unwrap();
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..200 {
            let group = random_group(&mut random, 200);
            let end = session.append(group).await.unwrap();
            assert_eq!(session.log.end(), end);
            assert_eq!(session.log.sync().unwrap(), end);
            assert_eq!(session.log.synced(), end);
        }
        assert!(session.log.end().segment > 5, "it rolled: {}", session.log.end());
        let (frames, clean) = read_all(&disk, 1).await.unwrap();
        assert_eq!(frames.len(), 200);
        assert!(!clean);
        check_prefix(&frames, &session.written, 0, 200).unwrap();
        assert_eq!(frames[199].end, session.log.end());
        for (frame, (end, _)) in frames.iter().zip(&session.written) {
            assert_eq!(frame.end, *end);
        }
    });
}

#[test]
fn every_kind_of_entry_reads_back() {
    run(async {
        let disk = MemoryFileSystem::new();
        let mut session = Session::start(&disk, 1, SMALL).await.unwrap();
        let mut group = vec![entry(1, 5, b"a".to_vec()); 3];
        group[1].kind = EntryKind::Excise;
        group[2].kind = EntryKind::NoOp;
        group[2].payload = bytes::Bytes::new();
        session.append(group.clone()).await.unwrap();
        let (frames, _) = read_all(&disk, 1).await.unwrap();
        assert_eq!(frames[0].entries, group);
    });
}

#[test]
fn a_closed_log_says_so_and_takes_nothing_more() {
    run(async {
        for appends in [0, 1, 30] {
            let disk = MemoryFileSystem::new();
            let mut session = Session::start(&disk, 1, SMALL).await.unwrap();
            for number in 1..=appends {
                session.append(vec![entry(1, number, vec![7; 100])]).await.unwrap();
            }
            session.log.close().await.unwrap();
            let refused = session.append(vec![entry(1, 9, Vec::new())]).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::FailedPrecondition);
            assert!(session.log.sync().is_err());
            let (frames, clean) = read_all(&disk, 1).await.unwrap();
            assert!(clean);
            assert_eq!(frames.len(), appends as usize);
            let files: Arc<dyn FileSystem> = Arc::new(disk.clone());
            let names = files.list(&folder(1), "").await.unwrap();
            let last = session.log.end().segment;
            assert_eq!(names.len() as u64, last, "segments that stood ready are gone");
        }
    });
}

#[test]
fn a_log_that_should_have_been_closed_is_refused_without_its_mark() {
    run(async {
        let disk = MemoryFileSystem::new();
        let mut session = Session::start(&disk, 1, SMALL).await.unwrap();
        session.append(vec![entry(1, 1, vec![7; 100])]).await.unwrap();
        let files: Arc<dyn FileSystem> = Arc::new(disk.clone());
        let sealed = files.seal(&folder(1)).await.unwrap();
        let reader = recover(&files, &folder(1), sealed).await.unwrap();
        let mut reader = reader.must_end_cleanly();
        assert!(reader.next().await.unwrap().is_some());
        for _ in 0..2 {
            assert_eq!(reader.next().await.unwrap_err().kind(), ErrorKind::Corrupt);
        }
    });
}

#[test]
fn a_frame_larger_than_a_segment_gets_its_own() {
    run(async {
        let disk = MemoryFileSystem::new();
        let mut session = Session::start(&disk, 1, SMALL).await.unwrap();
        for (number, bytes) in [(1, 10), (2, 3_000_000), (3, 10), (4, 50_000), (5, 10)] {
            session.append(vec![entry(1, number, vec![number as u8; bytes])]).await.unwrap();
            session.log.sync().unwrap();
        }
        let (frames, _) = read_all(&disk, 1).await.unwrap();
        check_prefix(&frames, &session.written, 0, 5).unwrap();
        let refused = session.log.reserve((1 << 30) + 1, 1).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    });
}

/// Whatever is reserved fits, however the reservations are grouped into frames.
#[test]
fn reserved_space_suffices_for_every_grouping() {
    run(async {
        for seed in 0..60 {
            let mut random = StdRng::seed_from_u64(seed);
            let disk = MemoryFileSystem::new();
            let mut session = Session::start(&disk, 1, SMALL).await.unwrap();
            let mut written = 0;
            for round in 0..20 {
                let mut waiting = Vec::new();
                for _ in 0..random.random_range(1..12) {
                    let largest = if random.random_bool(0.1) { 9_000 } else { 900 };
                    let payload = vec![round; random.random_range(0..largest)];
                    let space = session.log.reserve(payload.len(), 1).await.unwrap();
                    waiting.push((space, entry(1, 1, payload)));
                }
                // From here on the disk is full.
                disk.set_capacity(Some(disk.used()));
                while !waiting.is_empty() {
                    let group = random.random_range(1..=waiting.len());
                    let group: Vec<_> = waiting.drain(..group).collect();
                    let entries: Vec<_> = group.iter().map(|(_, e)| e.as_entry()).collect();
                    let appended = session.log.append(&entries);
                    appended.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                    written += 1;
                }
                session.log.sync().unwrap();
                disk.set_capacity(None);
            }
            session.log.close().await.unwrap();
            let (frames, clean) = read_all(&disk, 1).await.unwrap();
            assert_eq!((frames.len(), clean), (written, true), "seed {seed}");
            session.written.clear();
        }
    });
}

#[test]
fn a_full_disk_refuses_reservations_and_recovers_unaided() {
    run(async {
        let disk = MemoryFileSystem::new();
        let mut session = Session::start(&disk, 1, SMALL).await.unwrap();
        disk.set_capacity(Some(disk.used()));
        let mut accepted = 0;
        let refused = loop {
            match session.append(vec![entry(1, 1, vec![1; 100])]).await {
                Ok(_) => accepted += 1,
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
        assert!((2..10).contains(&accepted), "{accepted} frames of the first segment");
        session.log.sync().unwrap();
        disk.set_capacity(None);
        session.append(vec![entry(1, 1, vec![1; 100])]).await.unwrap();
        session.log.close().await.unwrap();
        let (frames, clean) = read_all(&disk, 1).await.unwrap();
        assert_eq!((frames.len(), clean), (accepted + 1, true));
    });
}

#[test]
fn an_append_that_nobody_reserved_is_refused_and_changes_nothing() {
    run(async {
        let disk = MemoryFileSystem::new();
        let mut session = Session::start(&disk, 1, SMALL).await.unwrap();
        let large = entry(1, 1, vec![1; 2000]);
        let refused = session.log.append(&[large.as_entry()]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
        session.append(vec![large]).await.unwrap();
        assert_eq!(read_all(&disk, 1).await.unwrap().0.len(), 1);
    });
}

#[test]
fn released_segments_go_oldest_first_and_never_the_current() {
    run(async {
        let disk = MemoryFileSystem::new();
        let mut session = Session::start(&disk, 1, SMALL).await.unwrap();
        for number in 1..=60 {
            session.append(vec![entry(1, number, vec![1; 300])]).await.unwrap();
        }
        session.log.sync().unwrap();
        let before = session.log.retained_bytes();
        assert_eq!(session.log.oldest_segment(), 1);
        session.log.release_before(3).await.unwrap();
        assert_eq!(session.log.oldest_segment(), 3);
        assert!(session.log.retained_bytes() < before);
        let (frames, _) = read_all(&disk, 1).await.unwrap();
        check_prefix(&frames, &session.written, 3, 60).unwrap();
        assert_eq!(frames[0].position.segment, 3);
        session.log.release_before(u64::MAX).await.unwrap();
        assert_eq!(session.log.oldest_segment(), session.log.end().segment);
        assert_eq!(session.log.retained_bytes(), session.log.end().offset);
    });
}

#[test]
fn a_segment_before_the_first_synced_frame_of_its_successor_stays() {
    run(async {
        let disk = MemoryFileSystem::new();
        let mut session = Session::start(&disk, 1, SMALL).await.unwrap();
        while session.log.end().segment < 2 {
            session.append(vec![entry(1, 1, vec![1; 300])]).await.unwrap();
        }
        assert_eq!(session.log.synced().segment, 1, "rolling synced the first segment");
        session.log.release_before(2).await.unwrap();
        assert_eq!(session.log.oldest_segment(), 1);
        session.log.sync().unwrap();
        session.log.release_before(2).await.unwrap();
        assert_eq!(session.log.oldest_segment(), 2);
    });
}

#[test]
fn a_removed_log_is_gone_and_removing_it_again_is_nothing() {
    run(async {
        let disk = MemoryFileSystem::new();
        let mut session = Session::start(&disk, 1, SMALL).await.unwrap();
        for number in 1..=20 {
            session.append(vec![entry(1, number, vec![1; 300])]).await.unwrap();
        }
        session.log.close().await.unwrap();
        let files: Arc<dyn FileSystem> = Arc::new(disk.clone());
        remove_log(&files, &folder(1)).await.unwrap();
        remove_log(&files, &folder(1)).await.unwrap();
        assert!(files.list(&folder(1), "").await.unwrap().is_empty());
    });
}

#[test]
fn an_inspection_prints_frames_and_the_end() {
    run(async {
        let disk = MemoryFileSystem::new();
        let mut session = Session::start(&disk, 1, SMALL).await.unwrap();
        session.append(vec![entry(3, 42, b"hello".to_vec())]).await.unwrap();
        session.log.close().await.unwrap();
        let files: Arc<dyn FileSystem> = Arc::new(disk.clone());
        let name = files.list(&folder(1), "").await.unwrap()[0].name.clone();
        let mut text = String::new();
        inspect(&files, &folder(1).join(&name), None, &mut text).await.unwrap();
        for expected in [
            "segment 1 seed",
            "88 frame 1 88 bytes, synced to 0\n",
            "  Batch r3 e1 #42..#42 5 bytes\n",
            "176 frame 2 48 bytes, synced to 176 end mark\n",
            "224 end: the end mark\n",
        ] {
            assert!(text.contains(expected), "{expected:?} in {text}");
        }
    });
}

#[test]
fn positions_order_by_segment_first() {
    let at = |segment, offset| Position { segment, offset };
    assert!(at(1, 900) < at(2, 0) && at(2, 0) < at(2, 8));
}

/// A caller that goes away while a segment is prepared for it: nothing is lost, nothing is kept.
#[test]
fn a_reservation_that_is_cancelled_at_any_poll_leaves_the_log_whole() {
    run(async {
        for polls in 0..8 {
            let disk = MemoryFileSystem::new();
            let mut session = Session::start(&disk, 1, SMALL).await.unwrap();
            for number in 1..=10 {
                let mut reserve = Box::pin(session.log.reserve(5_000 * number, 1));
                for _ in 0..polls {
                    let mut context = Context::from_waker(Waker::noop());
                    if reserve.as_mut().poll(&mut context).is_ready() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                drop(reserve);
                let group = vec![entry(1, number as u64, vec![1; 700])];
                session.append(group).await.unwrap();
                session.log.sync().unwrap();
            }
            session.log.close().await.unwrap();
            let (frames, clean) = read_all(&disk, 1).await.unwrap();
            assert!(clean, "{polls} polls");
            check_prefix(&frames, &session.written, 0, 10).unwrap();
        }
    });
}
