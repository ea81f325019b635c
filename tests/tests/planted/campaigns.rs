//! Bugs that crash histories find.

use env::planted::{PlantedBug, set};
use storage::PlantedBug as DiskBug;
use tepui_tests::history::campaign::{Failure, some_points};
use tepui_tests::history::coverage::Coverage;

/// Histories tried before a bug counts as not found.
const HISTORIES: u64 = 300;
/// Crash points of each.
const POINTS: u64 = 12;
/// Histories that must be clean without the bug.
const CLEAN: u64 = 8;

fn campaign(histories: u64, disk: Option<DiskBug>) -> Result<(), Failure> {
    let mut coverage = Coverage::default();
    (5_000..5_000 + histories).try_for_each(|seed| some_points(seed, POINTS, disk, &mut coverage))
}

fn is_caught(bug: Option<PlantedBug>, disk: Option<DiskBug>) {
    set(None);
    if let Err(failure) = campaign(CLEAN, None) {
        panic!("without a planted bug: {failure}");
    }
    set(bug);
    let caught = campaign(HISTORIES, disk);
    set(None);
    match caught {
        Err(failure) => println!("{bug:?} {disk:?} caught: {failure}"),
        Ok(()) => panic!("{bug:?} {disk:?} was not caught in {HISTORIES} histories"),
    }
}

#[test]
fn skipping_fsync_is_caught() {
    is_caught(Some(PlantedBug::SkipFsync), Some(DiskBug::SkipLogSync));
}

#[test]
fn skipping_a_folders_fsync_is_caught() {
    is_caught(Some(PlantedBug::SkipFolderFsync), Some(DiskBug::SkipFolderSync));
}

#[test]
fn publishing_before_the_sync_is_caught() {
    is_caught(Some(PlantedBug::PublishBeforeSync), None);
}

#[test]
fn accepting_a_stale_frame_is_caught() {
    is_caught(Some(PlantedBug::AcceptStaleFrame), None);
}

#[test]
fn releasing_the_log_early_is_caught() {
    is_caught(Some(PlantedBug::ReleaseLogEarly), None);
}

#[test]
fn giving_out_a_recovered_number_again_is_caught() {
    is_caught(Some(PlantedBug::ReuseSequenceNumber), None);
}

#[test]
fn ending_a_file_inside_a_row_is_caught() {
    is_caught(Some(PlantedBug::CutOutputInsideRow), None);
}
