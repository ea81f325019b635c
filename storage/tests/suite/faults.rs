//! The file system that goes wrong by rule.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use env::Env;
use tepui_storage::faulty::{Action, FaultyFileSystem, Rule};
use tepui_storage::memory::{Crash, MemoryFileSystem};
use tepui_storage::{FileSystem, LogFile, Operation, PlantedBug, Result};
use types::ErrorKind;

use crate::{new_log, path, run};

fn faulty(rules: Vec<Rule>) -> (MemoryFileSystem, FaultyFileSystem) {
    let disk = MemoryFileSystem::new();
    (disk.clone(), FaultyFileSystem::new(Arc::new(disk), rules))
}

/// One of everything.
async fn script(files: &dyn FileSystem) -> Result<()> {
    files.put_if_absent(&path("t/m"), Bytes::from_static(b"manifest")).await?;
    let mut writer = files.create(&path("t/a.sst")).await?;
    writer.append(Bytes::from_static(b"abcd")).await?;
    writer.finish().await?;
    files.open(&path("t/a.sst")).await?.read_at(0, 4).await?;
    files.list(&path("t"), "").await?;
    files.remove(&path("t/m")).await?;
    files.remove_folder(&path("gone")).await?;
    files.sync_folder(&path("t")).await?;
    let LogFile::Blocking(mut log) = files.create_log(&path("wal/1.log"), 100).await?;
    log.append(b"abcd")?;
    log.sync()?;
    files.seal(&path("wal")).await?;
    Ok(())
}

#[test]
fn each_operation_can_be_the_one_that_fails() {
    let (_, files) = faulty(Vec::new());
    run(script(&files)).unwrap();
    let total = files.operations();
    assert_eq!(total, 14);
    assert_eq!(files.faults(), 0);
    let trace = files.trace();
    for failing in 1..=total {
        for action in [Action::Fail(ErrorKind::Io), Action::Tear, Action::FailAfter] {
            let (_, files) = faulty(vec![Rule::new(action).nth(failing)]);
            let error = run(script(&files)).unwrap_err();
            let index = usize::try_from(failing - 1).unwrap();
            assert_eq!((error.operation(), error.path().clone()), trace[index]);
            assert_eq!(error.kind(), ErrorKind::Io);
            assert_eq!((files.operations(), files.faults()), (failing, 1), "{action:?}");
        }
    }
}

#[test]
fn rules_select_by_operation_path_and_count() {
    let fail = || Rule::new(Action::Fail(ErrorKind::ResourceExhausted));
    let (_, files) = faulty(vec![fail().on(Operation::PutIfAbsent).path("t/").nth(2)]);
    run(async {
        let put = async |at: &str| files.put_if_absent(&path(at), Bytes::new()).await;
        put("t/1").await.unwrap();
        put("u/1").await.unwrap();
        files.list(&path("t"), "").await.unwrap();
        assert_eq!(put("t/2").await.unwrap_err().kind(), ErrorKind::ResourceExhausted);
        put("t/3").await.unwrap();
        files.set_rules(vec![fail().from(2)]);
        put("t/4").await.unwrap();
        put("t/5").await.unwrap_err();
        put("t/6").await.unwrap_err();
        files.set_rules(Vec::new());
        put("t/6").await.unwrap();
    });
}

#[test]
fn a_torn_append_leaves_its_first_half_and_ends_the_log() {
    let (disk, files) = faulty(vec![Rule::new(Action::Tear).on(Operation::Append).nth(2)]);
    run(async {
        let mut log = new_log(&files, "wal/1.log", 0).await;
        log.append(b"good").unwrap();
        log.append(b"torn").unwrap_err();
        assert_eq!(disk.read_all(&path("wal/1.log")).unwrap(), "goodto");
        assert_eq!(log.append(b"more").unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(log.sync().unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(disk.read_all(&path("wal/1.log")).unwrap(), "goodto");
    });
}

#[test]
fn what_fails_after_it_was_done_is_done() {
    let rules = vec![Rule::new(Action::FailAfter).nth(1), Rule::new(Action::FailAfter).nth(4)];
    let (disk, files) = faulty(rules);
    run(async {
        files.put_if_absent(&path("a"), Bytes::from_static(b"there")).await.unwrap_err();
        assert_eq!(disk.read_all(&path("a")).unwrap(), "there");
        let mut log = new_log(&files, "wal/1.log", 0).await;
        log.append(b"there").unwrap();
        log.sync().unwrap_err();
        assert_eq!(disk.synced_len(&path("wal/1.log")), Some(5));
    });
}

#[test]
fn a_failed_put_and_a_torn_put_change_nothing() {
    for action in [Action::Fail(ErrorKind::Io), Action::Tear] {
        let (disk, files) = faulty(vec![Rule::new(action).nth(1)]);
        run(files.put_if_absent(&path("a"), Bytes::from_static(b"content"))).unwrap_err();
        assert!(disk.paths().is_empty());
    }
}

#[test]
fn a_delayed_operation_waits_and_succeeds() {
    let hour = Duration::from_secs(3600);
    let (disk, files) = faulty(vec![Rule::new(Action::Delay(hour)).on(Operation::PutIfAbsent)]);
    run(async {
        let env = Env::simulated(1);
        let before = env.monotonic();
        files.put_if_absent(&path("a"), Bytes::new()).await.unwrap();
        assert!(env.monotonic() - before >= hour);
    });
    assert_eq!(disk.paths(), [path("a")]);
}

#[test]
fn skipped_log_syncs_lose_acknowledged_bytes() {
    for plant_in_wrapper in [true, false] {
        let (disk, files) = faulty(Vec::new());
        run(async {
            let mut log = new_log(&files, "wal/1.log", 0).await;
            log.append(b"durable").unwrap();
            log.sync().unwrap();
            if plant_in_wrapper {
                files.skip_log_sync();
            } else {
                disk.set_planted(Some(PlantedBug::SkipLogSync));
            }
            log.append(b" or not").unwrap();
            log.sync().unwrap();
        });
        assert_eq!(disk.synced_len(&path("wal/1.log")), Some(7));
        let lengths: Vec<u64> = (0..20)
            .map(|seed| disk.deep_clone().crash(Crash::PowerCut { seed }))
            .map(|disk| disk.read_all(&path("wal/1.log")).unwrap().len() as u64)
            .collect();
        assert!(lengths.contains(&7) && lengths.contains(&14), "{lengths:?}");
    }
}

#[test]
fn skipped_folder_syncs_lose_names() {
    let (disk, files) = faulty(Vec::new());
    files.skip_folder_sync();
    disk.set_planted(Some(PlantedBug::SkipFolderSync));
    run(async {
        files.put_if_absent(&path("t/a"), Bytes::from_static(b"lost")).await.unwrap();
        files.sync_folder(&path("t")).await.unwrap();
    });
    assert_eq!(disk.synced_len(&path("t/a")), Some(0));
    let lost = |seed| disk.deep_clone().crash(Crash::PowerCut { seed }).paths().is_empty();
    assert!((0..20).any(lost), "no power cut loses the name");
    assert!(!(0..20).all(lost), "every power cut loses the name");
    // The real sync makes it durable.
    run(disk.sync_folder(&path("t"))).unwrap();
    assert!(!(0..20).any(lost));
}
