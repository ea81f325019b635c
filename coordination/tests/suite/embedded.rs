//! Opening, closing, snapshots.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use storage::FileSystem;
use storage::memory::{Crash, MemoryFileSystem};
use tepui_coordination::format::Snapshot;
use tepui_coordination::{Coordinator, Transaction};
use types::ErrorKind;

use super::opening::{committed, everything, folder, open, run};

async fn names(disk: &MemoryFileSystem) -> (Vec<String>, Vec<String>) {
    let entries = disk.list(&folder(), "").await.unwrap();
    let (logs, snapshots): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| entry.is_folder);
    let names = |entries: Vec<storage::Entry>| entries.into_iter().map(|e| e.name).collect();
    (names(snapshots), names(logs))
}

#[test]
fn what_was_committed_is_there_after_a_stop_of_any_kind() {
    run(async {
        let mut disk = MemoryFileSystem::new();
        let mut expected = Vec::new();
        for round in 0..12 {
            let coordinator = open(&disk, round).await.unwrap();
            assert_eq!(everything(&coordinator).await.unwrap(), expected, "round {round}");
            for number in 0..5 {
                let key = format!("/{}", (round * 3 + number) % 11);
                let put = Transaction::new().put(key, format!("{round}.{number}"));
                committed(&coordinator, put).await;
            }
            expected = everything(&coordinator).await.unwrap();
            match round % 3 {
                0 => coordinator.close().await.unwrap(),
                1 => disk = disk.crash(Crash::Process),
                _ => disk = disk.crash(Crash::PowerCut { seed: round }),
            }
        }
    });
}

#[test]
fn an_opening_leaves_one_snapshot_and_one_log_and_a_close_no_log() {
    run(async {
        let disk = MemoryFileSystem::new();
        for round in 0..3 {
            let coordinator = open(&disk, round).await.unwrap();
            let (snapshots, logs) = names(&disk).await;
            assert_eq!((snapshots.len(), logs.len()), (1, 1));
            for _ in 0..3 {
                committed(&coordinator, Transaction::new().put("/a", "v")).await;
            }
            coordinator.close().await.unwrap();
            let (snapshots, logs) = names(&disk).await;
            assert_eq!((snapshots.len(), logs.len()), (1, 0), "{snapshots:?} {logs:?}");
            let refused = coordinator.get("/a").await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unavailable);
        }
    });
}

#[test]
fn snapshots_let_the_log_go() {
    run(async {
        let disk = MemoryFileSystem::new();
        let coordinator = open(&disk, 1).await.unwrap();
        for number in 0..100 {
            let put = Transaction::new().put("/a", format!("{number}"));
            committed(&coordinator, put).await;
            tokio::task::yield_now().await;
        }
        // Waits for its turn, so that a snapshot that is due comes first.
        committed(&coordinator, Transaction::new().put("/a", "last")).await;
        let (snapshots, logs) = names(&disk).await;
        let newest = Snapshot::parse_name(snapshots.last().unwrap()).unwrap();
        assert!(newest >= 10, "{newest}");
        let log = folder().join(&logs[0]);
        let segments = disk.list(&log, "").await.unwrap();
        assert!(segments.len() <= 4, "{segments:?}");
        let disk = disk.crash(Crash::Process);
        let coordinator = open(&disk, 2).await.unwrap();
        let found = coordinator.get("/a").await.unwrap().unwrap();
        assert_eq!(&found.value[..], b"last");
        assert_eq!(found.modified.get(), 101);
    });
}

#[test]
fn keys_of_a_dead_process_are_gone_when_its_successor_opens() {
    run(async {
        for clean in [false, true] {
            let disk = MemoryFileSystem::new();
            let coordinator = open(&disk, 1).await.unwrap();
            let session = coordinator.open_session(Duration::from_secs(10)).await.unwrap();
            let put = Transaction::new().put_bound("/s", "v", session).put("/a", "v");
            let at = committed(&coordinator, put).await;
            if clean {
                coordinator.close().await.unwrap();
            }
            let coordinator = open(&disk.crash(Crash::Process), 2).await.unwrap();
            let found = everything(&coordinator).await.unwrap();
            assert_eq!(found.len(), 1);
            assert!(coordinator.revision() > at);
            let late = Transaction::new().put_bound("/s", "v", session);
            let refused = coordinator.commit(late).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::FailedPrecondition);
        }
    });
}

#[test]
fn a_full_disk_refuses_commits_and_recovers_unaided() {
    run(async {
        let disk = MemoryFileSystem::new();
        let coordinator = open(&disk, 1).await.unwrap();
        disk.set_capacity(Some(disk.used()));
        let mut committed = 0;
        let refused = loop {
            match coordinator.commit(Transaction::new().put("/a", vec![1; 100])).await {
                Ok(_) => committed += 1,
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
        assert!(coordinator.get("/a").await.unwrap().is_some(), "reads go on");
        disk.set_capacity(None);
        coordinator.commit(Transaction::new().put("/b", "v")).await.unwrap();
        assert_eq!(coordinator.revision().get(), committed + 1);
    });
}

#[test]
fn commits_at_once_all_happen_in_some_order() {
    run(async {
        let disk = MemoryFileSystem::new();
        let coordinator = Arc::new(open(&disk, 1).await.unwrap());
        let env = env::Env::simulated(1);
        let tasks: Vec<_> = (0..50)
            .map(|number| {
                let coordinator = Arc::clone(&coordinator);
                env.spawn("commit", async move {
                    let put = Transaction::new().put(format!("/{number:02}"), "v");
                    committed(&*coordinator, put).await
                })
            })
            .collect();
        let mut revisions = Vec::new();
        for task in tasks {
            revisions.push(task.join().await.unwrap().get());
        }
        revisions.sort_unstable();
        assert_eq!(revisions, (1..=50).collect::<Vec<_>>());
    });
}

/// A caller that goes away, after any number of polls: the transaction happened whole or not at
/// all, and the next one finds its way.
#[test]
fn a_commit_that_is_cancelled_at_any_poll_happens_whole_or_not_at_all() {
    run(async {
        let (mut happened, mut did_not) = (0, 0);
        for polls in 0..12 {
            let disk = MemoryFileSystem::new();
            let coordinator = open(&disk, 1).await.unwrap();
            for number in 0..6 {
                // Large, so that segments are prepared on the way.
                let put = Transaction::new().put(format!("/{number}"), vec![1; 300]);
                let put = put.put(format!("/{number}/too"), "v");
                let mut commit = coordinator.commit(put);
                for _ in 0..polls {
                    let mut context = Context::from_waker(Waker::noop());
                    if commit.as_mut().poll(&mut context).is_ready() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                drop(commit);
            }
            committed(&coordinator, Transaction::new().put("/last", "v")).await;
            let found = everything(&coordinator).await.unwrap();
            let with_pair = found.iter().filter(|entry| entry.key.ends_with("/too")).count();
            assert_eq!(found.len(), 2 * with_pair + 1, "{polls} polls");
            assert_eq!(coordinator.revision().get(), with_pair as u64 + 1);
            happened += with_pair;
            did_not += 6 - with_pair;
            let coordinator = open(&disk.crash(Crash::PowerCut { seed: 1 }), 2).await.unwrap();
            assert_eq!(everything(&coordinator).await.unwrap(), found);
        }
        assert!(happened > 0 && did_not > 0, "{happened} {did_not}");
    });
}
