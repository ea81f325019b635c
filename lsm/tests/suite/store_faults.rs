//! An error at every single file operation: the truth or an error, and the next open has the truth.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use storage::FileSystem;
use storage::faulty::{Action as Fault, FaultyFileSystem, Rule};
use storage::memory::MemoryFileSystem;
use tepui_lsm::{Reason, Result, Store};
use types::ErrorKind;

use super::bed::{Action, Log, act, config, flush, history, put, visible};

const FAULTS: [Fault; 6] = [
    Fault::Fail(ErrorKind::Io),
    Fault::Fail(ErrorKind::ResourceExhausted),
    Fault::Fail(ErrorKind::Unavailable),
    Fault::Fail(ErrorKind::Corrupt),
    Fault::Tear,
    Fault::FailAfter,
];

/// Carries the history on past errors; says how many there were. A stopped store is reopened.
async fn run(
    files: &Arc<dyn FileSystem>,
    script: &[Action],
    log: &mut Log,
    context: &str,
) -> Result<()> {
    let mut epoch = 1;
    let mut store = log.recover(config(Arc::clone(files), epoch)).await?;
    for action in script {
        if act(&store, log, action).await.is_err() && store.view().is_err() {
            epoch += 1;
            store = log.recover(config(Arc::clone(files), epoch)).await?;
        }
        // What is about to be cut out is seen until it is.
        let is_cut = !store.has_pending_excise();
        if let (true, Ok(cells)) = (is_cut, visible(&store).await) {
            assert_eq!(cells, log.model.cells(), "{context}");
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_error_at_any_operation_gives_the_truth_or_an_error() {
    let mut faults = 0;
    for seed in 0..2 {
        let script = history(&mut StdRng::seed_from_u64(seed), 24);
        let memory: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
        let faulty = Arc::new(FaultyFileSystem::new(memory, Vec::new()));
        let files: Arc<dyn FileSystem> = faulty.clone();
        run(&files, &script, &mut Log::default(), "no fault").await.unwrap();
        let operations = faulty.operations();
        for (fault, place) in FAULTS.iter().flat_map(|f| (1..=operations).map(move |p| (*f, p))) {
            let context = format!("seed {seed}, {fault:?} at operation {place}");
            let memory: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
            let rule = Rule::new(fault).nth(place);
            let faulty = Arc::new(FaultyFileSystem::new(Arc::clone(&memory), vec![rule]));
            let mut log = Log::default();
            let files: Arc<dyn FileSystem> = faulty.clone();
            let _ = run(&files, &script, &mut log, &context).await;
            faults += faulty.faults();
            let reopened = log.recover(config(memory, 99)).await.expect(&context);
            assert_eq!(visible(&reopened).await.unwrap(), log.model.cells(), "{context}");
        }
    }
    assert!(faults > 500, "only {faults} faults");
}

#[tokio::test]
async fn a_full_disk_stops_the_flush_and_nothing_else() {
    let memory = MemoryFileSystem::new();
    let store = Store::create(config(Arc::new(memory.clone()), 1)).await.unwrap();
    put(&store, "r", "q", 1, &[b'v'; 10_000]);
    memory.set_capacity(Some(memory.used() + 100));
    let full = flush(&store).await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::ResourceExhausted, "{full}");
    put(&store, "r", "q", 2, b"still writable");
    assert_eq!(visible(&store).await.unwrap().len(), 2);
    assert_eq!(memory.paths().len(), 1, "the unfinished file is gone: {:?}", memory.paths());
    memory.set_capacity(None);
    flush(&store).await.unwrap();
    assert_eq!(store.flushed_seq(), store.published());
    assert_eq!(visible(&store).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_caller_who_goes_away_leaves_a_flush_whole() {
    for polls in 0..8 {
        let memory = MemoryFileSystem::new();
        let store = Store::create(config(Arc::new(memory.clone()), 1)).await.unwrap();
        put(&store, "r", "q", 1, b"v");
        store.freeze(Reason::Asked);
        {
            let mut flush = std::pin::pin!(store.flush());
            for poll in 0..polls {
                // Not after the last poll: what the flush began has then not gone on.
                if poll > 0 {
                    tokio::task::yield_now().await;
                }
                let turn = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(flush.as_mut().poll(context).is_ready())
                });
                if turn.await {
                    break;
                }
            }
        }
        while store.flush().await.unwrap().is_some() {}
        assert_eq!(store.flushed_seq(), store.published(), "after {polls} polls");
        assert_eq!(visible(&store).await.unwrap().len(), 1, "after {polls} polls");
        store.remove_retired().await;
        let tables = memory.paths().into_iter().filter(|path| path.name().ends_with(".sst"));
        assert_eq!(tables.count(), 1, "after {polls} polls");
    }
}
