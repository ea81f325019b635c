//! Scrubbing finds every damaged file, names it and the place, and leaves the rest served.

use std::sync::Arc;
use std::time::Duration;

use storage::memory::MemoryFileSystem;
use storage::{FileSystem, Path};
use tepui_lsm::{Result, Scrubbed, Store, manifest_name, table_path};
use types::ErrorKind;

use super::bed::{config, flush, put, visible};

async fn filled(disk: &MemoryFileSystem) -> Arc<Store> {
    let store = Store::create(config(Arc::new(disk.clone()), 1)).await.unwrap();
    for round in 0..3 {
        for row in 0..8 {
            put(&store, &format!("row {row}"), "q", round, b"some value");
        }
        put(&store, "row 8", "big", round, &[b'x'; 3_000]);
        flush(&store).await.unwrap();
    }
    store
}

async fn scrub(store: &Arc<Store>) -> Result<Vec<Scrubbed>> {
    let mut scrub = store.scrub(0).await?;
    let mut found = Vec::new();
    while let Some(scrubbed) = scrub.next().await? {
        found.push(scrubbed);
    }
    assert_eq!((scrub.files_left(), scrub.bytes_left()), (0, 0));
    Ok(found)
}

#[tokio::test]
async fn a_scrub_of_what_is_whole_reads_every_file_and_finds_nothing() {
    let disk = MemoryFileSystem::new();
    let store = filled(&disk).await;
    let found = scrub(&store).await.unwrap();
    let mut read: Vec<_> = found.iter().map(|scrubbed| scrubbed.path.clone()).collect();
    read.sort();
    assert_eq!(read, disk.paths(), "every file that there is");
    assert!(found.iter().all(|scrubbed| scrubbed.damage.is_none()), "{found:?}");
    let bytes: u64 = found.iter().map(|scrubbed| scrubbed.bytes).sum();
    let stored = |path| disk.read_all(path).map_or(0, |content| content.len() as u64);
    assert_eq!(bytes, read.iter().map(stored).sum::<u64>());
}

#[tokio::test]
async fn any_flipped_byte_is_found_in_its_file_and_the_others_are_served() {
    let disk = MemoryFileSystem::new();
    let store = filled(&disk).await;
    let table = store.version().tables().next().unwrap().clone();
    let path = table_path(&Path::new("tables/3"), table.id());
    let mut with_offset = 0;
    for place in 0..table.meta.len {
        disk.corrupt(&path, place, 0x20);
        let found = scrub(&store).await.unwrap();
        let damaged: Vec<_> = found.iter().filter(|one| one.damage.is_some()).collect();
        let [one] = damaged[..] else {
            panic!("byte {place}: {damaged:?}");
        };
        let damage = one.damage.as_ref().unwrap();
        assert_eq!((&one.path, damage.kind), (&path, ErrorKind::Corrupt), "byte {place}");
        with_offset += u64::from(damage.offset.is_some());
        disk.corrupt(&path, place, 0x20);
    }
    assert_eq!(with_offset, table.meta.len);
    assert_eq!(visible(&store).await.unwrap().len(), 27);
}

#[tokio::test]
async fn damaged_and_missing_files_are_told_by_name() {
    let disk = MemoryFileSystem::new();
    let store = filled(&disk).await;
    let tables: Vec<_> = store.version().tables().map(|table| table.id()).collect();
    disk.remove(&table_path(&Path::new("tables/3"), tables[0])).await.unwrap();
    let manifest =
        disk.paths().into_iter().find(|path| path.name().starts_with("manifest")).unwrap();
    disk.corrupt(&manifest, 40, 1);
    let found = scrub(&store).await.unwrap();
    let damaged: Vec<_> = found
        .iter()
        .filter_map(|one| Some((one.path.clone(), one.damage.as_ref()?.kind)))
        .collect();
    let expected = [
        (manifest, ErrorKind::Corrupt),
        (table_path(&Path::new("tables/3"), tables[0]), ErrorKind::NotFound),
    ];
    assert_eq!(damaged, expected);
    assert_eq!(manifest_name(1).len(), expected[0].0.name().len());
}

#[tokio::test(start_paused = true)]
async fn a_scrub_goes_at_the_pace_that_it_is_given() {
    let disk = MemoryFileSystem::new();
    let store = filled(&disk).await;
    let bytes = store.version().bytes();
    let clock = config(Arc::new(disk.clone()), 2).env;
    let started = clock.monotonic();
    let mut scrub = store.scrub(bytes / 10).await.unwrap();
    while scrub.next().await.unwrap().is_some() {}
    let took = clock.monotonic() - started;
    assert!(took > Duration::from_secs(15) && took < Duration::from_secs(40), "{took:?}");
}

#[tokio::test]
async fn files_that_are_merged_away_during_a_scrub_are_still_read() {
    let disk = MemoryFileSystem::new();
    let store = filled(&disk).await;
    let mut scrub = store.scrub(0).await.unwrap();
    assert!(store.compact_all().await.unwrap());
    let mut files = 0;
    while let Some(scrubbed) = scrub.next().await.unwrap() {
        assert_eq!(scrubbed.damage, None, "{}", scrubbed.path);
        files += 1;
    }
    assert!(files >= 3, "{files} files");
    drop(scrub);
    store.remove_retired().await;
    assert_eq!(store.retired_count(), 0);
    store.close().await;
    assert_eq!(store.scrub(0).await.err().map(|error| error.kind()), Some(ErrorKind::Unavailable));
}
