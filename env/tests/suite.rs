//! What a world promises: it repeats, its time jumps, its blocking sections are bounded.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tepui_env::{BLOCKED_THREADS_MAX, Elapsed, Env, ManualClock};

const HOUR: Duration = Duration::from_secs(3600);

fn current_thread() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap()
}

fn multi_thread() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn a_seed_repeats_its_numbers_and_others_differ() {
    let numbers = |seed| {
        let env = Env::simulated(seed);
        (0..100).map(|_| env.random_u64()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(1), numbers(1));
    assert_ne!(numbers(1), numbers(2));
    let env = Env::simulated(1);
    let (high, low) = (numbers(1)[0], numbers(1)[1]);
    assert_eq!(env.random_u128(), (u128::from(high) << 64) | u128::from(low));
}

#[test]
fn clones_share_one_sequence() {
    let env = Env::simulated(1);
    let clone = env.clone();
    assert_ne!(env.random_u64(), clone.random_u64());
}

#[test]
fn the_system_s_numbers_do_not_repeat() {
    let env = Env::system();
    assert_ne!(env.random_u128(), env.random_u128());
    assert_ne!(env.random_u64(), Env::system().random_u64());
}

#[test]
fn simulated_time_stands_still_until_all_wait_and_then_jumps() {
    current_thread().block_on(async {
        let env = Env::simulated(1);
        let (wall, monotonic) = (env.now_micros(), env.monotonic());
        assert_eq!(wall, 1_577_836_800_000_000);
        for _ in 0..100 {
            env.yield_now().await;
        }
        assert_eq!(env.now_micros(), wall);
        let sleeper = env.clone();
        let task = env.spawn("sleeper", async move { sleeper.sleep(24 * HOUR).await });
        env.sleep(HOUR).await;
        assert!(!task.is_finished());
        assert_eq!(task.name(), "sleeper");
        assert_eq!(env.monotonic() - monotonic, HOUR);
        assert_eq!(task.join().await, Some(()));
        assert_eq!(env.monotonic() - monotonic, 24 * HOUR);
        assert_eq!(env.now_micros() - wall, 24 * 3_600_000_000);
    });
}

#[test]
fn a_simulated_run_repeats_in_every_order_and_time() {
    let run = || {
        current_thread().block_on(async {
            let env = Env::simulated(42);
            let order = Arc::new(std::sync::Mutex::new(Vec::new()));
            let tasks: Vec<_> = (0..20)
                .map(|number| {
                    let (env, order) = (env.clone(), Arc::clone(&order));
                    env.clone().spawn("actor", async move {
                        for _ in 0..5 {
                            env.sleep(Duration::from_millis(env.random_u64() % 50)).await;
                            order.lock().unwrap().push((number, env.now_micros()));
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.join().await.unwrap();
            }
            Arc::into_inner(order).unwrap().into_inner().unwrap()
        })
    };
    let first = run();
    assert_eq!(first.len(), 100);
    assert_eq!(first, run());
}

#[test]
fn a_timeout_drops_what_is_late_and_returns_what_is_in_time() {
    current_thread().block_on(async {
        let env = Env::simulated(1);
        assert_eq!(env.timeout(HOUR, async { 5 }).await, Ok(5));
        let held = Arc::new(());
        let inside = Arc::clone(&held);
        let late = async {
            env.sleep(2 * HOUR).await;
            drop(inside);
        };
        assert_eq!(env.timeout(HOUR, late).await, Err(Elapsed));
        assert_eq!(Arc::strong_count(&held), 1, "the late future was dropped");
        assert_eq!(Elapsed.to_string(), "the time limit passed");
    });
}

#[test]
fn an_aborted_task_returns_nothing_and_a_panic_goes_on_where_it_is_joined() {
    let runtime = current_thread();
    runtime.block_on(async {
        let env = Env::simulated(1);
        let task = env.spawn("endless", std::future::pending::<()>());
        task.abort();
        assert_eq!(task.join().await, None);
    });
    let joined = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        runtime.block_on(async {
            Env::simulated(1).spawn("broken", async { panic!("on purpose") }).join().await
        })
    }));
    assert_eq!(joined.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
}

#[test]
fn blocking_sections_run_where_they_are_called_in_every_world() {
    let section = || std::thread::current().id();
    current_thread().block_on(async {
        let env = Env::simulated(1);
        assert_eq!(env.blocking(section), section());
        assert_eq!(env.blocking_permit().await.run(section), section());
    });
    let runtime = multi_thread();
    runtime.block_on(async {
        let env = Env::system();
        let task = env.clone().spawn("blocker", async move {
            let inside = env.blocking_permit().await.run(section);
            inside == section() && env.blocking(section) == section()
        });
        assert_eq!(task.join().await, Some(true));
    });
    // Without a runtime there is no one to tell.
    assert_eq!(Env::system().blocking(section), section());
}

#[test]
fn blocking_places_are_bounded_and_come_back() {
    current_thread().block_on(async {
        let env = Env::simulated(1);
        let mut permits = Vec::new();
        for _ in 0..BLOCKED_THREADS_MAX {
            permits.push(env.blocking_permit().await);
        }
        assert!(env.timeout(HOUR, env.blocking_permit()).await.is_err(), "all are taken");
        drop(permits.pop());
        let permit = env.timeout(HOUR, env.blocking_permit()).await.unwrap();
        assert_eq!(permit.run(|| 5), 5);
        env.timeout(HOUR, env.blocking_permit()).await.unwrap();
    });
}

#[test]
fn no_more_sections_block_at_once_than_there_are_places() {
    let runtime = multi_thread();
    let env = Env::system();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..BLOCKED_THREADS_MAX * 3)
            .map(|_| {
                let (env, now, most) = (env.clone(), Arc::clone(&now), Arc::clone(&most));
                env.clone().spawn("blocker", async move {
                    env.blocking_permit().await.run(|| {
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                    });
                })
            })
            .collect();
        for task in tasks {
            task.join().await.unwrap();
        }
    });
    let most = most.load(Ordering::SeqCst);
    assert!((1..=BLOCKED_THREADS_MAX).contains(&most), "{most} at once");
}

#[test]
fn a_manual_clock_moves_as_it_is_told() {
    let clock = Arc::new(ManualClock::new(1_000_000));
    let env = Env::simulated(1).with_clock(clock.clone());
    assert_eq!((env.now_micros(), env.monotonic()), (1_000_000, Duration::ZERO));
    clock.advance(Duration::from_secs(2));
    assert_eq!((env.now_micros(), env.monotonic()), (3_000_000, Duration::from_secs(2)));
    clock.set(-5);
    assert_eq!((env.now_micros(), env.monotonic()), (-5, Duration::from_secs(2)));
}

#[test]
fn system_time_is_of_this_century_and_monotonic_time_does_not_go_back() {
    let env = Env::system();
    assert!(env.now_micros() > 1_577_836_800_000_000);
    let mut last = env.monotonic();
    for _ in 0..1000 {
        let next = env.monotonic();
        assert!(next >= last);
        last = next;
    }
}

#[test]
fn a_thread_has_its_name_and_returns_its_value() {
    let name = || std::thread::current().name().map(str::to_owned);
    let thread = Env::system().spawn_thread("committer", name).unwrap();
    assert_eq!(thread.join().unwrap().as_deref(), Some("committer"));
}
