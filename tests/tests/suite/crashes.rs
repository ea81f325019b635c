//! Crash histories: see `tepui_tests::history`. The same by its own command, for longer:
//! `cargo run --release -p tepui-tests --bin crash -- --seconds 600`.

use tepui_tests::history::campaign::{every_point, one, some_points};
use tepui_tests::history::coverage::Coverage;

/// Histories of which every crash point is tried, in each of two tests.
const WHOLE: u64 = 10;
/// Histories of which some crash points are tried, in each of two tests.
const SAMPLED: u64 = 100;
/// Crash points of each of those.
const POINTS: u64 = 11;

fn every_point_of(seeds: std::ops::Range<u64>) {
    let mut coverage = Coverage::default();
    for seed in seeds {
        if let Err(failure) = every_point(seed, &mut coverage) {
            panic!("{failure}");
        }
    }
    println!("{}", coverage.report());
    assert!(coverage.count("histories") >= WHOLE);
    coverage.assert_complete();
}

fn random_points_of(seeds: std::ops::Range<u64>) {
    let mut coverage = Coverage::default();
    for seed in seeds {
        if let Err(failure) = some_points(seed, POINTS, None, &mut coverage) {
            panic!("{failure}");
        }
    }
    println!("{}", coverage.report());
    assert!(coverage.count("crash points") >= 1_000);
    coverage.assert_complete();
}

// Halves, so that both cores work.

#[test]
fn a_crash_at_any_operation_of_ten_histories_loses_nothing() {
    every_point_of(0..WHOLE);
}

#[test]
fn a_crash_at_any_operation_of_ten_more_histories_loses_nothing() {
    every_point_of(WHOLE..2 * WHOLE);
}

#[test]
fn a_crash_at_random_operations_of_a_hundred_histories_loses_nothing() {
    random_points_of(1_000..1_000 + SAMPLED);
}

#[test]
fn a_crash_at_random_operations_of_a_hundred_more_histories_loses_nothing() {
    random_points_of(1_000 + SAMPLED..1_000 + 2 * SAMPLED);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |point| {
        let mut coverage = Coverage::default();
        let operations = one(7, point, None, &mut coverage).unwrap_or_else(|f| panic!("{f}"));
        (operations, coverage)
    };
    assert_eq!(run(None), run(None));
    assert_eq!(run(Some(100)), run(Some(100)));
    assert!(run(None).0 > 100, "a history has operations");
}
