use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sstable::{Properties, TableMeta};
use storage::faulty::{Action, FaultyFileSystem, Rule};
use storage::memory::MemoryFileSystem;
use storage::{BlobReader, BlobWriter, Entry, FileSystem, LogFile, Operation, Path, SealedLog};
use tepui_lsm::{
    Edit, Error, Manifest, Store, StoreOptions, TableRef, Version, inspect, manifest_name,
};
use types::{
    CellKey, Epoch, ErrorKind, FamilyId, FileId, RangeId, RowRange, SeqNo, SessionId, TableId,
};

use super::bed::{at, config, flush, put};
use super::golden;

fn table(counter: u64, level: u32, first: &str, last: &str) -> TableRef {
    let key = |row: &str, seq| {
        let seq = SeqNo::from_raw(seq).unwrap();
        CellKey::put(row.as_bytes(), FamilyId::new(1), b"q", at(5), seq)
    };
    let (smallest, largest) = (key(first, 2), key(last, 1));
    let properties = Properties {
        cells: 2,
        rows: 2,
        raw_bytes: 64,
        data_blocks: 1,
        timestamps: Some((at(5), at(5))),
        smallest_seq: SeqNo::from_raw(1).unwrap(),
        largest_seq: SeqNo::from_raw(2).unwrap(),
        smallest: smallest.as_bytes().to_vec(),
        largest: largest.as_bytes().to_vec(),
        ..Properties::default()
    };
    let file = FileId { session: 0xabcd, counter };
    let meta = TableMeta { file, len: 300, checksum: 77, smallest, largest, properties };
    TableRef { meta, level, clip: None }
}

fn example() -> Manifest {
    let rows = |start: &'static str, end: &'static str| RowRange {
        start: Bytes::from_static(start.as_bytes()),
        end: Some(Bytes::from_static(end.as_bytes())),
    };
    let mut clipped = table(3, 2, "a", "z");
    clipped.clip = Some(rows("b", "c"));
    let edit = Edit {
        added: vec![(0, table(1, 0, "b", "d")), (0, clipped)],
        flushed: SeqNo::from_raw(2),
        last_timestamp: Some(at(9)),
        ..Edit::default()
    };
    Manifest {
        table: TableId::new(3),
        range: RangeId::new(7),
        number: 2,
        epoch: Epoch::new(4),
        writer: 0x1111_2222,
        session: SessionId::new(0x5e55),
        previous: 0x99,
        bounds: rows("b", "x"),
        options: StoreOptions::default(),
        version: Version::empty().apply(&edit).unwrap(),
        min_writer: 1,
    }
}

fn file(number: u64) -> Path {
    Path::new("tables/3/ranges/7").join(&manifest_name(number))
}

#[test]
fn a_manifest_has_exactly_these_bytes_and_reads_back() {
    let stored = example().encode();
    golden::check("manifest_v1.hex", &golden::hex_dump(&stored));
    assert_eq!(Manifest::decode(&file(2), &stored).unwrap(), example());
}

#[test]
fn a_manifest_of_format_1_opens_for_ever() {
    let dump = String::from_utf8(golden::read("manifest_v1_fixture.hex")).unwrap();
    let manifest = Manifest::decode(&file(2), &golden::from_hex_dump(&dump)).unwrap();
    assert_eq!((manifest.number, manifest.epoch), (2, Epoch::new(4)));
    assert_eq!(manifest.version.tables().count(), 2);
}

#[test]
fn a_manifest_is_printed_for_people() {
    let text = inspect::manifest(&file(2), &example().encode()).unwrap();
    golden::check("manifest_v1.txt", &text);
}

#[test]
fn every_flipped_byte_of_a_manifest_is_found() {
    let stored = example().encode();
    for place in 0..stored.len() {
        let mut flipped = stored.clone();
        flipped[place] ^= 0x41;
        let refused = Manifest::decode(&file(2), &flipped).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "byte {place}: {refused}");
    }
}

/// Puts the checksum right again, so that the damage reaches the parts behind it.
fn resealed(mut stored: Vec<u8>) -> Vec<u8> {
    let end = stored.len().saturating_sub(8);
    stored.truncate(end);
    let checksum = xxhash_rust::xxh3::xxh3_64(&stored);
    stored.extend_from_slice(&checksum.to_le_bytes());
    stored
}

#[test]
fn hostile_manifests_are_refused_without_panic() {
    let good = example().encode();
    for seed in 0..20_000 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut stored = good.clone();
        for _ in 0..random.random_range(1..4) {
            let place = random.random_range(8..stored.len());
            match random.random_range(0..4) {
                0 => stored[place] = random.random(),
                1 => stored[place] = [0, 1, 0x7f, 0xff][random.random_range(0..4)],
                2 => stored.truncate(place),
                _ => stored.insert(place, random.random()),
            }
            if stored.len() < 16 {
                break;
            }
        }
        if let Ok(manifest) = Manifest::decode(&file(2), &resealed(stored)) {
            // What is accepted must be whole: it can be written again and read the same.
            let again = Manifest::decode(&file(manifest.number), &manifest.encode()).unwrap();
            assert_eq!(again, manifest, "seed {seed}");
        }
    }
}

#[test]
fn a_newer_format_is_refused_as_newer() {
    let mut stored = example().encode();
    stored[8] = 2;
    let refused = Manifest::decode(&file(2), &resealed(stored)).unwrap_err();
    assert!(matches!(refused, Error::NewerManifest { .. }), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::FailedPrecondition);
}

#[tokio::test]
async fn an_old_owner_cannot_commit_after_a_new_one_opened() {
    let files: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let old = Store::create(config(Arc::clone(&files), 1)).await.unwrap();
    put(&old, "r", "q", 1, b"old");
    let new = Store::open(config(Arc::clone(&files), 2)).await.unwrap();
    let refused = flush(&old).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongRange, "{refused}");
    // For good, reads included.
    assert_eq!(old.view().unwrap_err().kind(), ErrorKind::WrongRange);
    put(&new, "r", "q", 1, b"new");
    flush(&new).await.unwrap();
    let refused = Store::open(config(Arc::clone(&files), 1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongRange, "{refused}");
}

/// slatedb/slatedb#1622: what fenced an old owner was swept, and its next write was acknowledged
/// and lost.
#[tokio::test]
async fn an_old_owner_cannot_commit_a_number_that_was_removed() {
    let memory = MemoryFileSystem::new();
    let files: Arc<dyn FileSystem> = Arc::new(memory.clone());
    let old = Store::create(config(Arc::clone(&files), 1)).await.unwrap();
    put(&old, "r", "q", 1, b"old");
    let new = Store::open(config(Arc::clone(&files), 2)).await.unwrap();
    for round in 0..3 {
        put(&new, "r", "q", round, b"new");
        flush(&new).await.unwrap();
    }
    assert!(!memory.paths().contains(&file(2)), "the old owner's next number is free");
    let refused = flush(&old).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongRange, "{refused}");
    let reopened = Store::open(config(files, 3)).await.unwrap();
    assert_eq!(reopened.flushed_seq(), new.flushed_seq());
}

#[tokio::test]
async fn two_owners_that_open_at_once_leave_the_later_one_serving() {
    for epochs in [(2, 3), (3, 2)] {
        let files: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
        Store::create(config(Arc::clone(&files), 1)).await.unwrap();
        let open = |epoch| Store::open(config(Arc::clone(&files), epoch));
        let (first, second) = tokio::join!(open(epochs.0), open(epochs.1));
        let (lower, higher) = if epochs.0 < epochs.1 { (first, second) } else { (second, first) };
        let higher = higher.unwrap();
        put(&higher, "r", "q", 1, b"v");
        flush(&higher).await.unwrap();
        if let Ok(lower) = lower {
            put(&lower, "r", "q", 1, b"v");
            assert_eq!(flush(&lower).await.unwrap_err().kind(), ErrorKind::WrongRange);
        }
    }
}

#[tokio::test]
async fn at_most_two_manifests_stay() {
    let memory = MemoryFileSystem::new();
    let store = Store::create(config(Arc::new(memory.clone()), 1)).await.unwrap();
    for round in 0..5 {
        put(&store, "r", "q", round, b"v");
        flush(&store).await.unwrap();
    }
    let manifests = memory.paths().into_iter().filter(|path| path.name().starts_with("manifest-"));
    assert_eq!(manifests.collect::<Vec<_>>(), [file(5), file(6)]);
}

#[tokio::test]
async fn a_range_is_created_once() {
    let files: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let missing = Store::open(config(Arc::clone(&files), 1)).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    Store::create(config(Arc::clone(&files), 1)).await.unwrap();
    let twice = Store::create(config(Arc::clone(&files), 1)).await.unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::AlreadyExists);
    Store::open_or_create(config(files, 2)).await.unwrap();
}

/// Carries puts out but reports the next one as timed out.
struct UnknownPut {
    inner: MemoryFileSystem,
    next: AtomicBool,
}

#[async_trait::async_trait]
impl FileSystem for UnknownPut {
    async fn create(&self, path: &Path) -> storage::Result<Box<dyn BlobWriter>> {
        self.inner.create(path).await
    }

    async fn put_if_absent(&self, path: &Path, content: Bytes) -> storage::Result<()> {
        self.inner.put_if_absent(path, content).await?;
        if self.next.swap(false, Ordering::Relaxed) {
            let kind = ErrorKind::DeadlineExceeded;
            return Err(storage::Error::new(Operation::PutIfAbsent, path, kind, "no answer"));
        }
        Ok(())
    }

    async fn open(&self, path: &Path) -> storage::Result<Arc<dyn BlobReader>> {
        self.inner.open(path).await
    }

    async fn list(&self, folder: &Path, after: &str) -> storage::Result<Vec<Entry>> {
        self.inner.list(folder, after).await
    }

    async fn remove(&self, path: &Path) -> storage::Result<()> {
        self.inner.remove(path).await
    }

    async fn remove_folder(&self, folder: &Path) -> storage::Result<()> {
        self.inner.remove_folder(folder).await
    }

    async fn sync_folder(&self, folder: &Path) -> storage::Result<()> {
        self.inner.sync_folder(folder).await
    }

    async fn create_log(&self, path: &Path, reserve: u64) -> storage::Result<LogFile> {
        self.inner.create_log(path, reserve).await
    }

    async fn seal(&self, folder: &Path) -> storage::Result<Vec<SealedLog>> {
        self.inner.seal(folder).await
    }
}

#[tokio::test]
async fn a_commit_whose_outcome_is_unknown_is_looked_up() {
    let inner = MemoryFileSystem::new();
    let files = Arc::new(UnknownPut { inner, next: AtomicBool::new(false) });
    let store = Store::create(config(files.clone(), 1)).await.unwrap();
    put(&store, "r", "q", 1, b"v");
    files.next.store(true, Ordering::Relaxed);
    flush(&store).await.unwrap();
    assert!(!files.next.load(Ordering::Relaxed));
    assert_eq!(store.flushed_seq(), store.published());
}

#[tokio::test]
async fn a_commit_that_did_not_arrive_is_repeated() {
    let memory: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let faulty = Arc::new(FaultyFileSystem::new(memory, Vec::new()));
    let store = Store::create(config(faulty.clone(), 1)).await.unwrap();
    put(&store, "r", "q", 1, b"v");
    let lost = Rule::new(Action::Fail(ErrorKind::Unavailable));
    faulty.set_rules(vec![lost.on(Operation::PutIfAbsent).nth(1)]);
    flush(&store).await.unwrap();
    assert_eq!(faulty.faults(), 1);
}

#[tokio::test]
async fn a_failed_commit_poisons_and_the_next_open_finds_the_truth() {
    for done in [false, true] {
        let memory: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
        let faulty = Arc::new(FaultyFileSystem::new(Arc::clone(&memory), Vec::new()));
        let store = Store::create(config(faulty.clone(), 1)).await.unwrap();
        put(&store, "r", "q", 1, b"v");
        let action = if done { Action::FailAfter } else { Action::Fail(ErrorKind::Io) };
        faulty.set_rules(vec![Rule::new(action).on(Operation::PutIfAbsent).nth(1)]);
        let failed = flush(&store).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Poisoned, "{failed}");
        assert_eq!(store.view().unwrap_err().kind(), ErrorKind::Poisoned);
        let reopened = Store::open(config(memory, 2)).await.unwrap();
        assert_eq!(reopened.flushed_seq() == store.published(), done);
    }
}

#[tokio::test]
async fn a_damaged_newest_manifest_is_an_error_not_an_empty_range() {
    let memory = MemoryFileSystem::new();
    let store = Store::create(config(Arc::new(memory.clone()), 1)).await.unwrap();
    put(&store, "r", "q", 1, b"v");
    flush(&store).await.unwrap();
    memory.corrupt(&file(2), 60, 1);
    let refused = Store::open(config(Arc::new(memory), 2)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
}
