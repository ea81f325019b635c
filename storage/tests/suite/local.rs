//! Opening a data folder, and what only a disk has.
#![expect(clippy::disallowed_methods, reason = "the tests look at the folder from outside")]

use std::path::Path as DiskPath;
use std::sync::Arc;

use bytes::Bytes;
use env::Env;
use tepui_storage::local::{FORMAT, LocalFileSystem, LocalOptions};
use tepui_storage::{BlobReader, FileSystem, Operation, Result};
use types::ErrorKind;

use crate::{new_log, path, run};

fn open(root: &DiskPath) -> Result<LocalFileSystem> {
    LocalFileSystem::open(root, Env::simulated(7), LocalOptions::default())
}

fn refusal(root: &DiskPath) -> (ErrorKind, String) {
    let error = open(root).err().expect("the folder is refused");
    assert_eq!(error.operation(), Operation::OpenFileSystem);
    (error.kind(), error.to_string())
}

fn names(root: &DiskPath) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_folder_is_made_and_keeps_its_id() {
    let parent = tempfile::tempdir().unwrap();
    let root = parent.path().join("a/b/data");
    let first = open(&root).unwrap();
    let id = first.folder_id().to_owned();
    assert_eq!(names(&root), ["LOCK", "VERSION", "recycled", "tmp"]);
    let version = std::fs::read_to_string(root.join("VERSION")).unwrap();
    assert_eq!(version, format!("tepui data folder, format 1\nid {id}\n"));
    drop(first);
    assert_eq!(open(&root).unwrap().folder_id(), id);
}

#[test]
fn a_folder_in_use_is_refused_until_all_of_its_user_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let files = open(root).unwrap();
    let (kind, text) = refusal(root);
    assert_eq!(kind, ErrorKind::FailedPrecondition);
    let expected = format!(
        "cannot open the data folder: {} is in use by another process (pid {})",
        root.display(),
        std::process::id()
    );
    assert_eq!(text, expected);
    let log = run(new_log(&files, "wal/1.log", 0));
    drop(files);
    assert_eq!(refusal(root).0, ErrorKind::FailedPrecondition, "a log is still open");
    drop(log);
    open(root).unwrap();
}

#[test]
fn a_newer_format_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let newer = format!("tepui data folder, format {}\nsomething new\n", FORMAT + 1);
    std::fs::write(root.join("VERSION"), &newer).unwrap();
    std::fs::create_dir_all(root.join("tmp")).unwrap();
    std::fs::write(root.join("tmp/0123"), "left by the newer one").unwrap();
    let (kind, text) = refusal(root);
    assert_eq!(kind, ErrorKind::FailedPrecondition);
    assert!(text.contains("has format 2") && text.contains("formats up to 1"), "{text}");
    assert_eq!(names(root), ["VERSION", "tmp"]);
    assert_eq!(names(&root.join("tmp")), ["0123"]);
    assert_eq!(std::fs::read_to_string(root.join("VERSION")).unwrap(), newer);
}

#[test]
fn a_stranger_s_folder_is_refused_and_nothing_is_written() {
    for (file, content) in [("thesis.txt", "years of work"), ("VERSION", "16\n"), ("tmp/a", "1")] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        std::fs::write(root.join(file), content).unwrap();
        let before = names(root);
        let (kind, text) = refusal(root);
        assert_eq!(kind, ErrorKind::FailedPrecondition);
        assert!(text.contains("not a data folder of Tepui"), "{text}");
        assert_eq!(names(root), before);
        assert_eq!(std::fs::read_to_string(root.join(file)).unwrap(), content);
    }
}

#[test]
fn an_open_that_did_not_end_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::write(root.join("LOCK"), "").unwrap();
    std::fs::write(root.join(".VERSION.tmp"), "tepui da").unwrap();
    std::fs::create_dir_all(root.join("lost+found")).unwrap();
    let files = open(root).unwrap();
    assert_eq!(names(root), ["LOCK", "VERSION", "lost+found", "recycled", "tmp"]);
    drop(files);
    open(root).unwrap();
}

#[test]
fn a_file_in_the_folder_s_place_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("file");
    std::fs::write(&root, "content").unwrap();
    refusal(&root);
    assert_eq!(std::fs::read_to_string(&root).unwrap(), "content");
}

/// The name of the test below, and the variable that tells it that it is the child.
const READ_ONLY_TEST: &str = "local::a_read_only_folder_is_refused";
const READ_ONLY_FOLDER: &str = "TEPUI_TEST_READ_ONLY_FOLDER";

#[test]
fn a_read_only_folder_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    if let Some(root) = std::env::var_os(READ_ONLY_FOLDER) {
        let root = std::path::PathBuf::from(root);
        for root in [root.join("absent"), root.join("empty"), root.join("full")] {
            let (kind, text) = refusal(&root);
            assert_eq!(kind, ErrorKind::PermissionDenied, "{text}");
            assert!(text.contains("must be a folder that this user may write to"), "{text}");
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::create_dir(root.join("empty")).unwrap();
    drop(open(&root.join("full")).unwrap());
    let mode = |path: &DiskPath, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&root.join("full/LOCK"), 0o444);
    for folder in ["empty", "full", ""] {
        mode(&root.join(folder), 0o555);
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", READ_ONLY_TEST]).env(READ_ONLY_FOLDER, root);
    if rustix::process::geteuid().is_root() {
        // Permissions do not stop root, so the child is nobody.
        child.uid(65534);
    }
    let ended = child.output();
    for folder in ["", "empty", "full"] {
        mode(&root.join(folder), 0o755);
    }
    match ended {
        Ok(ended) => {
            let text = String::from_utf8_lossy(&ended.stdout).into_owned();
            assert!(ended.status.success() && text.contains("1 passed"), "{text}");
        }
        Err(error) => eprintln!("SKIPPED {READ_ONLY_TEST}: cannot run as another user: {error}"),
    }
}

const FULL_DISK_TEST: &str = "local::a_full_disk_refuses_and_recovers_unaided";
const FULL_DISK_FOLDER: &str = "TEPUI_TEST_FULL_DISK_FOLDER";

/// Runs on a disk of 4 MiB.
async fn fill_and_recover(files: &LocalFileSystem) {
    let mut log = new_log(files, "wal/1.log", 1 << 20).await;
    let filler = Bytes::from(vec![7; 100_000]);
    let mut count = 0;
    let refused = loop {
        match files.put_if_absent(&path(&format!("t/{count}")), filler.clone()).await {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::ResourceExhausted, "{refused}");
    assert!(count > 10);
    let refused = files.create_log(&path("wal/2.log"), 1 << 20).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::ResourceExhausted, "{refused}");
    let mut writer = files.create(&path("t/x")).await.unwrap();
    let refused = writer.append(filler.clone()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceExhausted, "{refused}");
    drop(writer);
    assert_eq!(files.list(&path("t"), "").await.unwrap().len(), count);
    assert_eq!(files.list(&path("wal"), "").await.unwrap().len(), 1);
    // The log's space is its own, and reads go on.
    log.append(&[1; 1 << 20]).unwrap();
    log.sync().unwrap();
    let reader = files.open(&path("t/0")).await.unwrap();
    assert_eq!(reader.read_at(0, 100_000).await.unwrap(), filler);
    assert_eq!(log.append(&[1; 1 << 20]).unwrap_err().kind(), ErrorKind::Poisoned);
    for number in 0..count {
        files.remove(&path(&format!("t/{number}"))).await.unwrap();
    }
    files.put_if_absent(&path("t/x"), filler).await.unwrap();
    drop(new_log(files, "wal/2.log", 1 << 20).await);
}

#[test]
fn a_full_disk_refuses_and_recovers_unaided() {
    if let Some(root) = std::env::var_os(FULL_DISK_FOLDER) {
        let files = open(DiskPath::new(&root)).unwrap();
        run(fill_and_recover(&files));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=4m none \"${FULL_DISK_FOLDER}\" || exit 42; \
         exec \"$0\" --exact {FULL_DISK_TEST}"
    );
    let ended = std::process::Command::new("unshare")
        .args(["-Urm", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(FULL_DISK_FOLDER, folder.path())
        .output();
    let text = match &ended {
        Ok(ended) => format!(
            "{}{}",
            String::from_utf8_lossy(&ended.stdout),
            String::from_utf8_lossy(&ended.stderr)
        ),
        Err(error) => error.to_string(),
    };
    match ended {
        Ok(ended) if ended.status.success() => assert!(text.contains("1 passed"), "{text}"),
        Ok(ended) if text.contains("running 1 test") => panic!("{}: {text}", ended.status),
        _ => eprintln!("SKIPPED {FULL_DISK_TEST}: no user namespace with mounts here: {text}"),
    }
}

#[test]
fn unfinished_blobs_are_gone_after_an_open() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let files = open(root).unwrap();
    run(async {
        let mut writer = files.create(&path("t/a")).await.unwrap();
        writer.append(Bytes::from_static(b"half")).await.unwrap();
        assert_eq!(names(&root.join("tmp")).len(), 1);
        // As a killed process leaves it.
        std::fs::write(root.join("tmp/left"), "over").unwrap();
    });
    drop(files);
    let _files = open(root).unwrap();
    assert_eq!(names(&root.join("tmp")), [""; 0]);
}

#[test]
fn the_pool_is_bounded_and_keeps_the_largest_logs() {
    let folder = tempfile::tempdir().unwrap();
    let options = LocalOptions { recycled_logs_max: 2, ..LocalOptions::default() };
    let files = LocalFileSystem::open(folder.path(), Env::simulated(1), options.clone()).unwrap();
    run(async {
        for (number, reserve) in [(1, 1000), (2, 3000), (3, 2000), (4, 500)] {
            let name = format!("wal/{number}.log");
            drop(new_log(&files, &name, reserve).await);
        }
        for number in 1..=4 {
            files.remove(&path(&format!("wal/{number}.log"))).await.unwrap();
        }
        assert_eq!(files.recycled_logs(), 2);
        assert_eq!(new_log(&files, "wal/5.log", 1500).await.reserved(), 2000, "the smallest fit");
        assert_eq!(new_log(&files, "wal/6.log", 4000).await.reserved(), 4000, "none fits");
    });
    drop(files);
    // What is there outlives the process, within the limit.
    std::fs::write(folder.path().join("recycled/small.log"), [1; 10]).unwrap();
    std::fs::write(folder.path().join("recycled/large.log"), [1; 9000]).unwrap();
    let files = LocalFileSystem::open(folder.path(), Env::simulated(2), options).unwrap();
    assert_eq!(files.recycled_logs(), 2);
    assert_eq!(run(new_log(&files, "wal/7.log", 5000)).reserved(), 9000);
}

#[test]
fn a_repeated_seed_recycles_beside_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    for life in 0..3 {
        let files = open(folder.path()).unwrap();
        run(async {
            let at = format!("wal/{life}.log");
            drop(new_log(&files, &at, 1000 + life).await);
            files.remove(&path(&at)).await.unwrap();
        });
        assert_eq!(files.recycled_logs() as u64, life + 1);
    }
}

#[test]
fn a_name_that_is_taken_leaves_the_pool_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let files = open(folder.path()).unwrap();
    run(async {
        drop(new_log(&files, "wal/1.log", 1000).await);
        files.remove(&path("wal/1.log")).await.unwrap();
        drop(new_log(&files, "wal/2.log", 2000).await);
        assert_eq!(files.recycled_logs(), 1);
        let refused = files.create_log(&path("wal/2.log"), 500).await;
        assert_eq!(refused.err().unwrap().kind(), ErrorKind::AlreadyExists);
        assert_eq!(files.recycled_logs(), 1);
    });
}

#[test]
fn a_large_log_has_its_blocks_before_its_first_append() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let files = open(folder.path()).unwrap();
    let _small = run(new_log(&files, "wal/1.log", 100_000));
    let _large = run(new_log(&files, "wal/2.log", 3 << 20));
    for (name, len) in [("wal/1.log", 100_000), ("wal/2.log", 3 << 20)] {
        let found = std::fs::metadata(folder.path().join(name)).unwrap();
        assert_eq!(found.len(), len);
        assert!(found.blocks() * 512 >= len, "{name}");
    }
    assert_eq!(names(&folder.path().join("tmp")), [""; 0]);
}

#[test]
fn space_that_is_not_there_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let files = open(folder.path()).unwrap();
    // 2^62 bytes: more than any disk has.
    let refused = run(files.create_log(&path("wal/1.log"), 1 << 62)).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::ResourceExhausted, "{refused}");
    assert_eq!(names(&folder.path().join("tmp")), [""; 0]);
    assert!(run(files.list(&path("wal"), "")).unwrap().is_empty());
    drop(run(new_log(&files, "wal/1.log", 1000)));
}

#[test]
#[should_panic(expected = "belongs to the file system itself")]
fn the_file_system_s_own_names_are_not_the_callers() {
    let folder = tempfile::tempdir().unwrap();
    let files = open(folder.path()).unwrap();
    let _ = run(files.put_if_absent(&path("tmp/a"), Bytes::new()));
}

#[test]
fn many_tasks_share_a_disk_in_the_real_world() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let env = Env::system();
    let files = LocalFileSystem::open(folder.path(), env.clone(), LocalOptions::default()).unwrap();
    runtime.block_on(async {
        // Each name is wanted by four tasks: one gets it.
        let tasks: Vec<_> = (0..80_u32)
            .map(|number| {
                let files = files.clone();
                env.spawn("put", async move {
                    let at = path(&format!("d{}/f{}", number % 2, number % 20));
                    files.put_if_absent(&at, Bytes::from(format!("{number}"))).await.is_ok()
                })
            })
            .collect();
        let mut won = 0;
        for task in tasks {
            won += u32::from(task.join().await.unwrap());
        }
        assert_eq!(won, 20);
        assert_eq!(files.list(&path("d1"), "").await.unwrap().len(), 10);
    });
}

/// A file system with files `t/0` and up, each with a reader, of which `most` may be open.
fn with_readers(
    root: &DiskPath,
    count: usize,
    most: usize,
) -> (LocalFileSystem, Vec<Arc<dyn BlobReader>>) {
    let options = LocalOptions { open_files_max: most, ..LocalOptions::default() };
    let files = LocalFileSystem::open(root, Env::simulated(7), options).unwrap();
    let readers = run(async {
        let mut readers = Vec::new();
        for number in 0..count {
            let at = path(&format!("t/{number}"));
            let content = Bytes::from(format!("content {number:04}"));
            files.put_if_absent(&at, content).await.unwrap();
            readers.push(files.open(&at).await.unwrap());
        }
        readers
    });
    (files, readers)
}

async fn content(reader: &dyn BlobReader) -> Result<Bytes> {
    reader.read_at(0, usize::try_from(reader.len()).unwrap()).await
}

#[test]
fn many_readers_share_few_open_files() {
    let folder = tempfile::tempdir().unwrap();
    let (files, readers) = with_readers(folder.path(), 50, 8);
    assert_eq!(files.open_files(), 8);
    for round in 0..200 {
        let number = round * 7 % 50;
        let read = run(content(&*readers[number])).unwrap();
        assert_eq!(read, format!("content {number:04}"));
        assert!(files.open_files() <= 8, "{} files are open", files.open_files());
    }
    drop(readers);
    assert_eq!(files.open_files(), 0);
}

#[test]
fn a_file_that_is_read_all_the_time_stays_open() {
    let folder = tempfile::tempdir().unwrap();
    let (_files, readers) = with_readers(folder.path(), 50, 8);
    run(content(&*readers[0])).unwrap();
    // If it is ever opened again, that is found out.
    std::fs::remove_file(folder.path().join("t/0")).unwrap();
    for round in 1..500 {
        run(content(&*readers[1 + round % 49])).unwrap();
        assert_eq!(run(content(&*readers[0])).unwrap(), "content 0000");
    }
}

#[test]
fn a_closed_file_whose_place_another_has_taken_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let (_files, readers) = with_readers(folder.path(), 20, 2);
    let place = folder.path().join("t/3");
    std::fs::write(folder.path().join("t/other"), "CONTENT 0003").unwrap();
    std::fs::rename(folder.path().join("t/other"), &place).unwrap();
    let refused = run(content(&*readers[3])).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
    std::fs::remove_file(&place).unwrap();
    let refused = run(content(&*readers[3])).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
}

#[test]
fn readers_of_many_threads_share_few_open_files() {
    let folder = tempfile::tempdir().unwrap();
    let (files, readers) = with_readers(folder.path(), 24, 3);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let readers = &readers;
            scope.spawn(move || {
                for round in 0..500 {
                    let number = (round * 5 + thread * 7) % 24;
                    let read = run(content(&*readers[number])).unwrap();
                    assert_eq!(read, format!("content {number:04}"));
                }
            });
        }
    });
    assert!(files.open_files() <= 3 + 4, "{} files are open", files.open_files());
    drop(readers);
    assert_eq!(files.open_files(), 0);
}
