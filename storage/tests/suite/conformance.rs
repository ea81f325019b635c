//! One contract, every backend.

use std::sync::Arc;

use bytes::Bytes;
use env::Env;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tepui_storage::faulty::FaultyFileSystem;
use tepui_storage::local::{LocalFileSystem, LocalOptions};
use tepui_storage::memory::MemoryFileSystem;
use tepui_storage::{FileSystem, Path};
use types::ErrorKind;

use crate::{new_log, path, run};

/// Runs a claim on every backend.
fn on_each(claim: impl AsyncFn(&dyn FileSystem)) {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let local =
            LocalFileSystem::open(folder.path(), Env::simulated(1), LocalOptions::default())
                .unwrap();
        claim(&local).await;
        claim(&MemoryFileSystem::new()).await;
        claim(&FaultyFileSystem::new(Arc::new(MemoryFileSystem::new()), Vec::new())).await;
    });
}

async fn put(files: &dyn FileSystem, at: &str, content: &'static str) {
    files.put_if_absent(&path(at), Bytes::from_static(content.as_bytes())).await.unwrap();
}

async fn get(files: &dyn FileSystem, at: &str) -> Bytes {
    let reader = files.open(&path(at)).await.unwrap();
    reader.read_at(0, usize::try_from(reader.len()).unwrap()).await.unwrap()
}

async fn names(files: &dyn FileSystem, folder: &str, after: &str) -> Vec<String> {
    let found = files.list(&path(folder), after).await.unwrap();
    found.into_iter().map(|entry| entry.name).collect()
}

#[test]
fn a_blob_reads_as_it_was_put() {
    on_each(async |files| {
        put(files, "a/b/c", "hello").await;
        let reader = files.open(&path("a/b/c")).await.unwrap();
        assert_eq!(reader.len(), 5);
        assert!(!reader.is_empty());
        assert_eq!(reader.read_at(1, 3).await.unwrap(), "ell");
        assert_eq!(reader.read_at(5, 0).await.unwrap(), "");
        put(files, "a/empty", "").await;
        assert!(files.open(&path("a/empty")).await.unwrap().is_empty());
    });
}

#[test]
fn a_second_put_changes_nothing() {
    on_each(async |files| {
        put(files, "a", "first").await;
        let second = files.put_if_absent(&path("a"), Bytes::from_static(b"second")).await;
        assert_eq!(second.unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(get(files, "a").await, "first");
    });
}

#[test]
fn a_blob_appears_whole_when_it_is_finished() {
    on_each(async |files| {
        let mut writer = files.create(&path("t/x.sst")).await.unwrap();
        writer.append(Bytes::from_static(b"one ")).await.unwrap();
        writer.append(Bytes::from_static(b"two")).await.unwrap();
        assert_eq!(files.open(&path("t/x.sst")).await.err().unwrap().kind(), ErrorKind::NotFound);
        assert!(names(files, "t", "").await.is_empty());
        writer.finish().await.unwrap();
        assert_eq!(get(files, "t/x.sst").await, "one two");
    });
}

#[test]
fn a_dropped_writer_leaves_nothing() {
    on_each(async |files| {
        let mut writer = files.create(&path("t/x.sst")).await.unwrap();
        writer.append(Bytes::from_static(b"half")).await.unwrap();
        drop(writer);
        assert!(names(files, "", "").await.iter().all(|name| name == "t"));
        put(files, "t/x.sst", "whole").await;
        assert_eq!(get(files, "t/x.sst").await, "whole");
    });
}

#[test]
fn a_writer_never_overwrites() {
    on_each(async |files| {
        let mut writer = files.create(&path("x")).await.unwrap();
        writer.append(Bytes::from_static(b"late")).await.unwrap();
        put(files, "x", "early").await;
        assert_eq!(writer.finish().await.unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(get(files, "x").await, "early");
    });
}

#[test]
fn reads_outside_a_file_are_corruption_and_allocate_nothing() {
    on_each(async |files| {
        put(files, "a", "12345").await;
        let reader = files.open(&path("a")).await.unwrap();
        for (offset, len) in [(0, 6), (5, 1), (6, 0), (u64::MAX, 2), (0, usize::MAX)] {
            let kind = reader.read_at(offset, len).await.unwrap_err().kind();
            assert_eq!(kind, ErrorKind::Corrupt, "{len} bytes at {offset}");
        }
    });
}

#[test]
fn lists_are_sorted_and_begin_after_a_name() {
    on_each(async |files| {
        for at in ["t/b", "t/a", "t/a-b", "t/sub/deep/x", "t0", "u/z"] {
            put(files, at, "1").await;
        }
        assert_eq!(names(files, "t", "").await, ["a", "a-b", "b", "sub"]);
        assert_eq!(names(files, "t", "a").await, ["a-b", "b", "sub"]);
        assert_eq!(names(files, "t", "sub").await, [""; 0]);
        assert_eq!(names(files, "absent", "").await, [""; 0]);
        assert_eq!(names(files, "", "").await, ["t", "t0", "u"]);
        let found = files.list(&path("t"), "b").await.unwrap();
        assert!(found[0].is_folder && found[0].len == 0);
        assert_eq!(files.list(&path("t"), "").await.unwrap()[0].len, 1);
    });
}

#[test]
fn what_is_removed_is_gone_and_may_be_removed_again() {
    on_each(async |files| {
        put(files, "t/a", "1").await;
        files.remove(&path("t/a")).await.unwrap();
        files.remove(&path("t/a")).await.unwrap();
        files.remove(&path("absent/a")).await.unwrap();
        files.remove(&path("absent/a.log")).await.unwrap();
        assert_eq!(files.open(&path("t/a")).await.err().unwrap().kind(), ErrorKind::NotFound);
        put(files, "t/a", "2").await;
        assert_eq!(get(files, "t/a").await, "2");
    });
}

#[test]
fn a_reader_outlives_the_name_of_its_file() {
    on_each(async |files| {
        put(files, "t/a", "content").await;
        let reader = files.open(&path("t/a")).await.unwrap();
        files.remove(&path("t/a")).await.unwrap();
        files.sync_folder(&path("t")).await.unwrap();
        assert_eq!(reader.read_at(0, 7).await.unwrap(), "content");
    });
}

#[test]
fn only_empty_folders_are_removed() {
    on_each(async |files| {
        put(files, "t/sub/a", "1").await;
        let refused = files.remove_folder(&path("t/sub")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::FailedPrecondition);
        files.remove(&path("t/sub/a")).await.unwrap();
        assert_eq!(names(files, "t", "").await, ["sub"]);
        files.remove_folder(&path("t/sub")).await.unwrap();
        files.remove_folder(&path("t/sub")).await.unwrap();
        assert_eq!(names(files, "t", "").await, [""; 0]);
        put(files, "t/sub/a", "again").await;
        assert_eq!(get(files, "t/sub/a").await, "again");
    });
}

#[test]
fn folders_absent_or_present_can_be_synced() {
    on_each(async |files| {
        put(files, "t/sub/a", "1").await;
        for folder in ["", "t", "t/sub", "absent"] {
            files.sync_folder(&path(folder)).await.unwrap();
        }
    });
}

#[test]
fn a_log_holds_its_appends_in_order_with_space_to_spare() {
    on_each(async |files| {
        let mut log = new_log(files, "wal/s/1.log", 10_000).await;
        assert!(log.is_empty());
        assert!(log.reserved() >= 10_000);
        for piece in ["one", "two", "three"] {
            log.append(piece.as_bytes()).unwrap();
        }
        log.sync().unwrap();
        assert_eq!(log.len(), 11);
        let reader = files.open(&path("wal/s/1.log")).await.unwrap();
        assert!(reader.len() >= 10_000);
        assert_eq!(reader.read_at(0, 11).await.unwrap(), "onetwothree");
        assert!(reader.read_at(11, 100).await.unwrap().iter().all(|byte| *byte == 0));
    });
}

#[test]
fn a_log_may_outgrow_its_space() {
    on_each(async |files| {
        for (name, reserve) in [("wal/1.log", 0), ("wal/2.log", 100)] {
            let mut log = new_log(files, name, reserve).await;
            log.append(&[7; 3000]).unwrap();
            log.append(&[8; 3000]).unwrap();
            log.sync().unwrap();
            let content = get(files, name).await;
            assert_eq!(content.len(), 6000);
            assert!(content[..3000].iter().all(|byte| *byte == 7));
            assert!(content[3000..].iter().all(|byte| *byte == 8));
        }
    });
}

#[test]
fn logs_are_created_exclusively() {
    on_each(async |files| {
        let _log = new_log(files, "wal/1.log", 0).await;
        let second = files.create_log(&path("wal/1.log"), 0).await;
        assert_eq!(second.err().unwrap().kind(), ErrorKind::AlreadyExists);
        assert_eq!(names(files, "wal", "").await, ["1.log"]);
    });
}

#[test]
fn a_sealed_log_takes_no_more() {
    on_each(async |files| {
        let mut one = new_log(files, "wal/s1/1.log", 100).await;
        let mut two = new_log(files, "wal/s1/2.log", 0).await;
        let mut other = new_log(files, "wal/s2/1.log", 0).await;
        put(files, "wal/s1/note", "not a log").await;
        one.append(b"abc").unwrap();
        two.append(b"de").unwrap();
        let sealed = files.seal(&path("wal/s1")).await.unwrap();
        let found: Vec<(Path, u64)> = sealed.into_iter().map(|it| (it.path, it.len)).collect();
        assert_eq!(found, [(path("wal/s1/1.log"), 100), (path("wal/s1/2.log"), 2)]);
        assert!(one.append(b"x").is_err() && one.sync().is_err());
        assert!(two.append(b"x").is_err() && two.sync().is_err());
        other.append(b"x").unwrap();
        other.sync().unwrap();
        assert_eq!(get(files, "wal/s1/2.log").await, "de");
        assert!(files.seal(&path("wal/absent")).await.unwrap().is_empty());
    });
}

#[test]
fn a_removed_log_s_file_serves_a_later_log() {
    on_each(async |files| {
        let mut log = new_log(files, "wal/1.log", 4096).await;
        log.append(b"former").unwrap();
        log.sync().unwrap();
        drop(log);
        files.remove(&path("wal/1.log")).await.unwrap();
        assert_eq!(names(files, "wal", "").await, [""; 0]);
        let mut log = new_log(files, "wal/2.log", 4000).await;
        assert!(log.is_empty());
        log.append(b"NEW").unwrap();
        let content = get(files, "wal/2.log").await;
        assert_eq!(&content[..6], b"NEWmer", "the rest of the former log is still there");
        assert_eq!(files.open(&path("wal/1.log")).await.err().unwrap().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_log_that_is_open_is_not_recycled() {
    on_each(async |files| {
        let mut open = new_log(files, "wal/1.log", 4096).await;
        files.remove(&path("wal/1.log")).await.unwrap();
        let mut next = new_log(files, "wal/2.log", 4096).await;
        next.append(b"mine").unwrap();
        // It may succeed or fail, but it must not reach the other log.
        let _ = open.append(b"theirs");
        assert_eq!(&get(files, "wal/2.log").await[..4], b"mine");
    });
}

/// Compares random calls with a plain map.
async fn follows_a_model(files: &dyn FileSystem, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut model = std::collections::BTreeMap::new();
    for step in 0..200_u32 {
        let at = path(&format!("d{}/f{}", random.random_range(0..3), random.random_range(0..4)));
        let context = format!("seed {seed}, step {step}, {at:?}");
        match random.random_range(0..5) {
            0 | 1 => {
                let content = Bytes::from(format!("{step}"));
                let done = files.put_if_absent(&at, content.clone()).await;
                assert_eq!(done.is_ok(), !model.contains_key(&at), "{context}");
                model.entry(at).or_insert(content);
            }
            2 => {
                files.remove(&at).await.unwrap();
                model.remove(&at);
            }
            3 => {
                let found = files.list(&at.parent(), at.name()).await.unwrap();
                let found: Vec<Path> = found.iter().map(|it| at.parent().join(&it.name)).collect();
                let expected = model.keys().filter(|it| it.parent() == at.parent() && **it > at);
                assert_eq!(found, expected.cloned().collect::<Vec<_>>(), "{context}");
            }
            _ => match files.open(&at).await {
                Ok(reader) => {
                    let len = usize::try_from(reader.len()).unwrap();
                    let content = reader.read_at(0, len).await.unwrap();
                    assert_eq!(Some(&content), model.get(&at), "{context}");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound, "{context}");
                    assert!(!model.contains_key(&at), "{context}");
                }
            },
        }
    }
}

#[test]
fn random_calls_follow_a_map() {
    for seed in 0..3 {
        on_each(async |files| follows_a_model(files, seed).await);
    }
}
