//! What every coordinator must do. Takes any `Coordinator`, empty at the start, so that another
//! implementation can be held to it.

use std::time::Duration;

use storage::memory::MemoryFileSystem;
use tepui_coordination::{
    Coordinator, Error, Expect, OPERATIONS_MAX, Outcome, TRANSACTION_BYTES_MAX, Transaction,
    WATCH_BACKLOG, WatchEvent,
};
use types::ErrorKind;

use super::opening::{committed, open, run};

const TTL: Duration = Duration::from_secs(10);

fn with_embedded(claim: impl AsyncFnOnce(&dyn Coordinator)) {
    run(async {
        let coordinator = open(&MemoryFileSystem::new(), 1).await.unwrap();
        claim(&coordinator).await;
    });
}

#[test]
fn a_key_remembers_when_it_was_created_and_changed() {
    with_embedded(created_and_changed);
}

async fn created_and_changed(coordinator: &dyn Coordinator) {
    assert_eq!(coordinator.get("/a").await.unwrap(), None);
    let first = committed(coordinator, Transaction::new().put("/a", "1")).await;
    let second = committed(coordinator, Transaction::new().put("/a", "2")).await;
    assert!(first < second);
    let found = coordinator.get("/a").await.unwrap().unwrap();
    assert_eq!((found.created, found.modified), (first, second));
    assert_eq!(&found.value[..], b"2");
    let third = committed(coordinator, Transaction::new().delete("/a")).await;
    assert_eq!(coordinator.get("/a").await.unwrap(), None);
    let fourth = committed(coordinator, Transaction::new().put("/a", "3")).await;
    assert!(second < third && third < fourth);
    let found = coordinator.get("/a").await.unwrap().unwrap();
    assert_eq!((found.created, found.modified), (fourth, fourth));
    committed(coordinator, Transaction::new().delete("/absent")).await;
}

#[test]
fn a_transaction_happens_whole_or_not_at_all() {
    with_embedded(whole_or_not_at_all);
}

async fn whole_or_not_at_all(coordinator: &dyn Coordinator) {
    let put = Transaction::new().put("/a", "1").put("/b", "1");
    let at = committed(coordinator, put.guard("/a", Expect::Absent)).await;
    let both = Transaction::new()
        .guard("/a", Expect::ModifiedAt(at))
        .guard("/c", Expect::Present)
        .put("/a", "2")
        .delete("/b");
    let Outcome::Refused { current } = coordinator.commit(both).await.unwrap() else {
        panic!("/c is absent");
    };
    assert_eq!(current[0].as_ref().unwrap().modified, at);
    assert_eq!(current[1], None);
    assert_eq!(&coordinator.get("/a").await.unwrap().unwrap().value[..], b"1");
    for (expect, holds) in
        [(Expect::Absent, false), (Expect::Present, true), (Expect::ModifiedAt(at), true)]
    {
        let guarded = Transaction::new().guard("/b", expect).put("/c", "1");
        let outcome = coordinator.commit(guarded).await.unwrap();
        assert_eq!(outcome.committed().is_some(), holds, "{expect:?}");
    }
}

#[test]
fn what_no_coordinator_takes_is_refused_and_changes_nothing() {
    with_embedded(refused);
}

async fn refused(coordinator: &dyn Coordinator) {
    let many =
        |count| (0..count).fold(Transaction::new(), |all, n| all.put(format!("/k/{n:04}"), "v"));
    let large = vec![0_u8; TRANSACTION_BYTES_MAX];
    for bad in [
        Transaction::new(),
        Transaction::new().put("", "v"),
        Transaction::new().put("/a", "1").delete("/a"),
        Transaction::new().put("/a", "1").put("/a", "2"),
        Transaction::new().put("/a", large),
        many(OPERATIONS_MAX + 1),
    ] {
        let error = coordinator.commit(bad).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    assert!(coordinator.list("", "", 10).await.unwrap().entries.is_empty());
    committed(coordinator, many(OPERATIONS_MAX)).await;
    let large = vec![0_u8; TRANSACTION_BYTES_MAX - 2];
    committed(coordinator, Transaction::new().put("/a", large)).await;
}

#[test]
fn a_listing_is_paged_sorted_and_bounded_by_its_prefix() {
    with_embedded(listing);
}

async fn listing(coordinator: &dyn Coordinator) {
    let keys = ["/a", "/t", "/t/1", "/t/2", "/t/3", "/t0", "/u"];
    for key in keys {
        committed(coordinator, Transaction::new().put(key, "v")).await;
    }
    let names = |page: tepui_coordination::Page| {
        let names: Vec<String> = page.entries.into_iter().map(|entry| entry.key).collect();
        (names, page.more)
    };
    let page = names(coordinator.list("/t/", "", 2).await.unwrap());
    assert_eq!(page, (vec!["/t/1".to_owned(), "/t/2".to_owned()], true));
    let page = names(coordinator.list("/t/", "/t/2", 2).await.unwrap());
    assert_eq!(page, (vec!["/t/3".to_owned()], false));
    let page = names(coordinator.list("/t/", "/t/3", 2).await.unwrap());
    assert_eq!(page, (Vec::new(), false));
    let page = names(coordinator.list("/t", "/a", 100).await.unwrap());
    assert_eq!(page.0, ["/t", "/t/1", "/t/2", "/t/3", "/t0"]);
    let page = names(coordinator.list("", "", 100).await.unwrap());
    assert_eq!(page.0, keys);
}

#[test]
fn a_sessions_keys_end_with_it() {
    with_embedded(sessions);
}

async fn sessions(coordinator: &dyn Coordinator) {
    let one = coordinator.open_session(TTL).await.unwrap();
    let two = coordinator.open_session(TTL).await.unwrap();
    assert_ne!(one, two);
    let put = Transaction::new()
        .put_bound("/one", "v", one)
        .put_bound("/both", "v", one)
        .put_bound("/two", "v", two)
        .put("/free", "v");
    committed(coordinator, put).await;
    assert_eq!(coordinator.get("/one").await.unwrap().unwrap().session, Some(one));
    // A later put binds a key anew.
    committed(coordinator, Transaction::new().put("/both", "v")).await;
    coordinator.end_session(one).await.unwrap();
    coordinator.end_session(one).await.unwrap();
    for (key, there) in [("/one", false), ("/both", true), ("/two", true), ("/free", true)] {
        assert_eq!(coordinator.get(key).await.unwrap().is_some(), there, "{key}");
    }
    let late = Transaction::new().put_bound("/late", "v", one);
    let error = coordinator.commit(late).await.unwrap_err();
    assert!(matches!(error, Error::SessionEnded(ended) if ended == one));
}

#[test]
fn a_watch_hints_at_changes_under_its_prefix() {
    with_embedded(watching);
}

async fn watching(coordinator: &dyn Coordinator) {
    committed(coordinator, Transaction::new().put("/t/0", "v")).await;
    let mut watch = coordinator.watch("/t/").await.unwrap();
    committed(coordinator, Transaction::new().put("/u", "v")).await;
    let put = Transaction::new().put("/t/1", "v").put("/v", "v").delete("/t/0");
    let revision = committed(coordinator, put).await;
    let keys = vec!["/t/1".to_owned(), "/t/0".to_owned()];
    assert_eq!(watch.next().await, Some(WatchEvent::Changed { revision, keys }));
    let refused = Transaction::new().guard("/t/1", Expect::Absent).put("/t/1", "w");
    coordinator.commit(refused).await.unwrap();
    let session = coordinator.open_session(TTL).await.unwrap();
    committed(coordinator, Transaction::new().put_bound("/t/s", "v", session)).await;
    coordinator.end_session(session).await.unwrap();
    for _ in 0..2 {
        let hint = watch.next().await.unwrap();
        assert!(matches!(hint, WatchEvent::Changed { keys, .. } if keys == ["/t/s"]));
    }
}

#[test]
fn a_watcher_that_lags_is_told_to_read_again() {
    with_embedded(lagging);
}

async fn lagging(coordinator: &dyn Coordinator) {
    let mut watch = coordinator.watch("/t/").await.unwrap();
    for _ in 0..2 * WATCH_BACKLOG {
        committed(coordinator, Transaction::new().put("/t/1", "v")).await;
    }
    assert_eq!(watch.next().await, Some(WatchEvent::Resync));
    assert!(matches!(watch.next().await, Some(WatchEvent::Changed { .. })));
}
