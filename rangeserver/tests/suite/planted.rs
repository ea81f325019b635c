//! Bugs planted on purpose are noticed. Runs in builds with `--cfg tepui_planted_bugs` only.
#![cfg(tepui_planted_bugs)]

use env::planted::{PlantedBug, set};
use storage::memory::{Crash, MemoryFileSystem};

use super::world::*;

#[tokio::test(start_paused = true)]
async fn a_log_released_early_loses_what_a_crash_needs() {
    set(Some(PlantedBug::ReleaseLogEarly));
    let (disk, catalog) = (MemoryFileSystem::new(), Catalog::new(&["m"]));
    let world = started(&disk, &catalog, 1).await;
    world.put("cold", b"v").await.unwrap();
    for number in 0..200 {
        world.put(&format!("s{number:04}"), &[1; 1000]).await.unwrap();
    }
    world.server.abandon().await;
    set(None);
    let disk = disk.crash(Crash::Process);
    let world = started(&disk, &catalog, 2).await;
    assert_eq!(world.get("cold").await.unwrap(), None, "the bug was not noticed");
    world.server.abandon().await;
}
