//! The router: one request a range, ranges that move, reads that break, schemas that change.

use std::time::Duration;

use bytes::Bytes;
use client::{AdminService, FamilyChange, NewFamily};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::Code;
use types::{ErrorKind, Mutation, RowMutations};

use super::world::{World, read_request, set, table_name};

fn row(key: &'static str) -> Bytes {
    Bytes::from_static(key.as_bytes())
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_one_request_a_range() {
    let mut world = World::with_table(&["c", "m"]).await;
    let entries =
        ["z", "a", "n", "b", "d", "a"].map(|key| (row(key), vec![set("f", "q", 0, key)])).to_vec();
    world.mutate_rows(entries).await.unwrap();
    let mut writes = world.fake.state().writes.clone();
    writes.sort_unstable();
    assert_eq!(writes, [1, 2, 3]);
    assert_eq!(world.fake.state().locates, 1, "the layout is kept");
}

#[tokio::test(start_paused = true)]
async fn writes_find_ranges_that_have_moved() {
    let mut world = World::with_table(&["m"]).await;
    world.fill(&["a", "z"]).await;
    world.fake.split(&table_name(), "c");
    world.fake.split(&table_name(), "x");
    let entries = ["b", "d", "n", "y"].map(|key| (row(key), vec![set("f", "q", 0, key)])).to_vec();
    let codes = world.mutate_rows(entries).await.unwrap();
    assert_eq!(codes, [Code::Ok; 4]);
    let keys = world.keys(read_request()).await.unwrap();
    assert_eq!(keys, ["a", "b", "d", "n", "y", "z"]);
}

#[tokio::test(start_paused = true)]
async fn a_failing_range_fails_its_own_rows_only() {
    let mut world = World::with_table(&["m"]).await;
    world.fake.state().failing_writes.push_back(ErrorKind::ResourceExhausted);
    let entries = ["a", "z", "b"].map(|key| (row(key), vec![set("f", "q", 0, key)])).to_vec();
    let codes = world.mutate_rows(entries).await.unwrap();
    assert_eq!(codes, [Code::ResourceExhausted, Code::Ok, Code::ResourceExhausted]);
    assert_eq!(world.keys(read_request()).await.unwrap(), ["z"]);
}

#[tokio::test(start_paused = true)]
async fn a_range_that_is_nowhere_is_unavailable_after_a_few_tries() {
    let mut world = World::with_table(&[]).await;
    world.fake.state().failing_writes.extend([ErrorKind::WrongRange; 100]);
    let status = world.mutate("r", vec![set("f", "q", 0, "")]).await;
    assert_eq!(status.unwrap_err().code(), Code::Unavailable);
    let tries = world.fake.state().writes.len();
    assert!((2..=10).contains(&tries), "{tries}");
}

#[tokio::test(start_paused = true)]
async fn a_family_that_was_just_created_is_known() {
    let mut world = World::with_table(&[]).await;
    world.fill(&["a"]).await;
    // Behind the gateway's back, as another gateway would do it.
    let family = |name: &str| NewFamily { name: name.to_owned(), retention: None, aggregate: None };
    let changes = vec![FamilyChange::Create(family("new"))];
    world.fake.modify_families(&table_name(), changes).await.unwrap();
    world.mutate("b", vec![set("new", "q", 0, "")]).await.unwrap();
    assert_eq!(world.read_all().await[1].1, "new");
}

#[tokio::test(start_paused = true)]
async fn a_family_that_was_just_dropped_is_not_found() {
    let mut world = World::with_table(&[]).await;
    world.fill(&["a"]).await;
    let changes = || {
        let again = NewFamily { name: "f".to_owned(), retention: None, aggregate: None };
        vec![FamilyChange::Drop("f".to_owned()), FamilyChange::Create(again)]
    };
    world.fake.modify_families(&table_name(), changes()).await.unwrap();
    // Validated under the schema before the change, these rows must not be applied.
    let status = world.mutate("b", vec![set("f", "q", 0, "")]).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert!(world.read_all().await.is_empty(), "old cells stay hidden");
    world.mutate("b", vec![set("f", "q", 0, "")]).await.unwrap();
    assert_eq!(world.read_all().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_table_that_was_created_again_is_written_only_after_a_new_check() {
    let mut world = World::with_table(&[]).await;
    world.fill(&["a"]).await;
    world.fake.delete_table(&table_name()).await.unwrap();
    let status = world.mutate("b", vec![set("f", "q", 0, "")]).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let request = super::world::create_request("t", &["other"], &[]);
    world.admin.create_table(request).await.unwrap();
    let status = world.mutate("b", vec![set("f", "q", 0, "")]).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    world.mutate("b", vec![set("other", "q", 0, "")]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_row_checked_against_a_dropped_table_is_not_written_to_its_successor() {
    let mut world = World::with_table(&[]).await;
    let layout = world.router.layout(&table_name()).await.unwrap();
    let family = layout.schema.family("f").unwrap().id;
    world.fake.delete_table(&table_name()).await.unwrap();
    let request = super::world::create_request("t", &["f"], &[]);
    world.admin.create_table(request).await.unwrap();
    let row = RowMutations { row: row("a"), mutations: vec![Mutation::DeleteFamily { family }] };
    let results = world.router.write_rows(&table_name(), layout, vec![row], None).await;
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].as_ref().unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_tries() {
    let mut world = World::with_table(&[]).await;
    world.fill(&["a"]).await;
    let breaks = [(0, ErrorKind::Unavailable); 100];
    world.fake.state().breaking_reads.extend(breaks);
    let mut request = tonic::Request::new(read_request());
    request.set_timeout(Duration::from_millis(5));
    let mut stream = world.data.read_rows(request).await.unwrap().into_inner();
    let status = stream.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(world.fake.state().breaking_reads.len() >= 97);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_keeps_breaking_ends_with_the_error() {
    let mut world = World::with_table(&[]).await;
    world.fill(&["a"]).await;
    let breaks = [(0, ErrorKind::Unavailable); 100];
    world.fake.state().breaking_reads.extend(breaks);
    let status = world.keys(read_request()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    world.fake.state().breaking_reads.clear();
    world.fake.state().breaking_reads.push_back((0, ErrorKind::Corrupt));
    let status = world.keys(read_request()).await.unwrap_err();
    assert_eq!(status.code(), Code::DataLoss, "never tried again");
}

/// Reads break at random places, ranges split meanwhile, replies end inside rows: every read gives
/// every row once, whole and in order (the merger checks the order), up to its limit.
///
/// FoundationDB/fdb-record-layer#1106: a scan that went on began anew.
#[tokio::test(start_paused = true)]
async fn broken_reads_go_on_after_the_last_row() {
    const KEYS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let (mut resets, mut locates) = (0, 0);
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut world = World::with_table(&["d", "h"]).await;
        for key in KEYS {
            let mutations = vec![set("f", "p", 1000, key), set("g", "q", 1000, key)];
            world.mutate(key, mutations).await.unwrap();
        }
        world.fake.state().half_rows = random.random_bool(0.7);
        for _ in 0..random.random_range(0..6) {
            let kinds = [ErrorKind::WrongRange, ErrorKind::Unavailable, ErrorKind::Aborted];
            let kind = kinds[random.random_range(0..3)];
            let after = random.random_range(0..5);
            world.fake.state().breaking_reads.push_back((after, kind));
        }
        if random.random_bool(0.5) {
            let key = KEYS[random.random_range(1..12)];
            world.fake.split(&table_name(), key);
        }
        let limit = random.random_range(0..14);
        let mut request = read_request();
        request.rows_limit = limit;
        request.reversed = random.random_bool(0.5);
        let mut keys = KEYS.to_vec();
        if request.reversed {
            keys.reverse();
        }
        let cells = world.read(request).await;
        let cells = cells.unwrap_or_else(|status| panic!("seed {seed}: {status:?}"));
        let rows = if limit == 0 { 12 } else { limit.min(12) };
        let rows = usize::try_from(rows).unwrap();
        let expected: Vec<&str> = keys[..rows].iter().flat_map(|key| [*key; 2]).collect();
        let found: Vec<Bytes> = cells.into_iter().map(|cell| cell.0).collect();
        assert_eq!(found, expected, "seed {seed}");
        resets += world.resets;
        locates += world.fake.state().locates;
    }
    assert!(resets > 5 && locates > 100, "{resets} resets, {locates} look-ups");
}
