//! Flipped bytes and missing files: a clear error, never an empty or an older state.

use storage::FileSystem;
use storage::memory::MemoryFileSystem;
use tepui_coordination::Transaction;
use types::ErrorKind;

use super::opening::{committed, everything, folder, open, run};

#[test]
fn after_a_clean_close_every_flipped_byte_is_found() {
    run(async {
        let disk = MemoryFileSystem::new();
        let coordinator = open(&disk, 1).await.unwrap();
        for number in 0..5 {
            let put = Transaction::new().put(format!("/{number}"), "value");
            committed(&coordinator, put).await;
        }
        coordinator.close().await.unwrap();
        let paths = disk.paths();
        assert_eq!(paths.len(), 1, "{paths:?}");
        for offset in 0..disk.read_all(&paths[0]).unwrap().len() as u64 {
            let copy = disk.deep_clone();
            copy.corrupt(&paths[0], offset, 0x20);
            let error = open(&copy, 2).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{offset}: {error}");
        }
    });
}

#[test]
fn after_a_crash_a_flipped_byte_is_found_or_costs_the_last_transaction() {
    run(async {
        let disk = MemoryFileSystem::new();
        let coordinator = open(&disk, 1).await.unwrap();
        for number in 0..4 {
            let put = Transaction::new().put(format!("/{number}"), "value");
            committed(&coordinator, put).await;
        }
        let (mut found_out, mut lost) = (0, 0);
        for path in disk.paths() {
            for offset in 0..disk.read_all(&path).unwrap().len() as u64 {
                let copy = disk.deep_clone();
                copy.corrupt(&path, offset, 0x20);
                match open(&copy, 2).await {
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corrupt, "{path} {offset}: {error}");
                        found_out += 1;
                    }
                    Ok(coordinator) => {
                        let found = everything(&coordinator).await.unwrap().len();
                        assert!((3..=4).contains(&found), "{path} {offset}: {found}");
                        lost += usize::from(found == 3);
                    }
                }
            }
        }
        assert!(found_out > 200 && lost > 50, "{found_out} {lost}");
    });
}

#[test]
fn a_missing_log_or_snapshot_is_no_empty_start() {
    run(async {
        let disk = MemoryFileSystem::new();
        let coordinator = open(&disk, 1).await.unwrap();
        committed(&coordinator, Transaction::new().put("/a", "v")).await;
        for path in disk.paths() {
            let copy = disk.deep_clone();
            copy.remove(&path).await.unwrap();
            match open(&copy, 2).await {
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{path}: {error}"),
                Ok(coordinator) => {
                    // A segment that stood ready and was never begun is no loss.
                    assert_eq!(everything(&coordinator).await.unwrap().len(), 1, "{path}");
                    assert!(path.name().starts_with("00000000000000000002"), "{path}");
                }
            }
        }
        assert!(!disk.list(&folder(), "").await.unwrap().is_empty());
    });
}
