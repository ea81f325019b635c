//! The queue over a world that only remembers what it was asked.

use super::*;

/// What the fake world was asked, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    Log(Vec<u32>),
    Sync,
    Lease,
    Publish(u32),
    Poisoned,
}

#[derive(Default)]
struct Fake {
    asked: Mutex<Vec<Asked>>,
    fail_sync: std::sync::atomic::AtomicBool,
    panic_in_log: std::sync::atomic::AtomicBool,
    orphaned: std::sync::atomic::AtomicU64,
}

impl Fake {
    fn note(&self, what: Asked) {
        self.asked.lock().unwrap().push(what);
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    fn published(&self) -> Vec<u32> {
        let number = |asked: &Asked| match asked {
            Asked::Publish(number) => Some(*number),
            _ => None,
        };
        self.asked().iter().filter_map(number).collect()
    }
}

impl CommitEnv for Fake {
    type Batch = u32;

    fn log(&self, group: &[&u32]) -> Result<(), CommitError> {
        assert!(!self.panic_in_log.load(Ordering::SeqCst), "told to");
        self.note(Asked::Log(group.iter().map(|number| **number).collect()));
        Ok(())
    }

    fn sync(&self) -> Result<(), CommitError> {
        self.note(Asked::Sync);
        if self.fail_sync.load(Ordering::SeqCst) {
            return Err(CommitError::new(ErrorKind::Poisoned, "the disk is gone"));
        }
        Ok(())
    }

    fn check_lease(&self) -> Result<(), CommitError> {
        self.note(Asked::Lease);
        Ok(())
    }

    fn publish(&self, batch: &u32) {
        self.note(Asked::Publish(*batch));
    }

    fn poisoned(&self, _failure: &CommitError) {
        self.note(Asked::Poisoned);
    }

    fn orphaned(&self) {
        self.orphaned.fetch_add(1, Ordering::SeqCst);
    }
}

fn queue(groups_per_leader: usize) -> Arc<CommitQueue<Fake>> {
    let limits = GroupLimits { group_bytes: 100, group_batches: 3, groups_per_leader };
    Arc::new(CommitQueue::new(Fake::default(), limits))
}

fn write(queue: &Arc<CommitQueue<Fake>>, number: u32) -> Ticket<Fake> {
    let ticket = queue.enqueue(number, 10);
    ticket.inserted();
    ticket
}

#[cfg(not(tepui_shuttle))]
mod scheduled_by_hand {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::Context;

    use super::*;

    type Writer = Pin<Box<dyn Future<Output = Outcome>>>;

    fn writers(queue: &Arc<CommitQueue<Fake>>, count: u32) -> Vec<Option<Writer>> {
        let start = |number| {
            let ticket = write(queue, number);
            let world = env::Env::simulated(1);
            let future: Writer = Box::pin(async move { ticket.wait(&world).await });
            Some(future)
        };
        (0..count).map(start).collect()
    }

    fn poll(writer: &mut Option<Writer>) -> Option<Outcome> {
        let mut context = Context::from_waker(Waker::noop());
        let polled = writer.as_mut()?.as_mut().poll(&mut context);
        match polled {
            Poll::Ready(outcome) => {
                *writer = None;
                Some(outcome)
            }
            Poll::Pending => None,
        }
    }

    /// Polls all in turn until all have ended; what each was told.
    fn run(queue: &CommitQueue<Fake>, writers: &mut [Option<Writer>]) -> Vec<Option<Outcome>> {
        let mut told = vec![None; writers.len()];
        for _ in 0..100 {
            for (writer, told) in writers.iter_mut().zip(&mut told) {
                *told = told.take().or(poll(writer));
            }
            if writers.iter().all(Option::is_none) {
                queue.lead_orphans();
                return told;
            }
        }
        panic!("writers wait for ever");
    }

    #[test]
    fn nothing_is_visible_before_it_is_synced_and_the_lease_checked() {
        let queue = queue(4);
        let mut all = writers(&queue, 3);
        assert_eq!(queue.env().asked(), []);
        let told = run(&queue, &mut all);
        assert_eq!(told, vec![Some(Ok(())); 3]);
        let expected = [
            Asked::Log(vec![0, 1, 2]),
            Asked::Sync,
            Asked::Lease,
            Asked::Publish(0),
            Asked::Publish(1),
            Asked::Publish(2),
        ];
        assert_eq!(queue.env().asked(), expected);
        let counted = queue.counters().read();
        assert_eq!((counted.groups, counted.groups_of_many, counted.largest), (1, 1, 3));
        assert!(queue.is_idle());
    }

    #[test]
    fn a_writer_cancelled_at_any_poll_leaves_its_batch_and_the_lead() {
        for count in 1..8_u32 {
            for victim in 0..count as usize {
                for polls in 0..6 {
                    for groups in [1, 2] {
                        cancel(count, victim, polls, groups);
                    }
                }
            }
        }
    }

    fn cancel(count: u32, victim: usize, polls: usize, groups_per_leader: usize) {
        let at = format!("{count} writers, victim {victim} after {polls} polls");
        let queue = queue(groups_per_leader);
        let mut all = writers(&queue, count);
        for _ in 0..polls {
            for (place, writer) in all.iter_mut().enumerate() {
                // The victim advances first; the others no further than it.
                if place == victim || polls > 2 {
                    poll(writer);
                }
            }
        }
        all[victim] = None;
        run(&queue, &mut all);
        let expected: Vec<u32> = (0..count).collect();
        assert_eq!(queue.env().published(), expected, "{at}");
        assert!(queue.is_idle(), "{at}");
    }

    #[test]
    fn when_all_writers_are_cancelled_somebody_else_is_asked_to_lead() {
        let queue = queue(4);
        drop(writers(&queue, 3));
        assert_eq!(queue.env().published(), []);
        assert_eq!(queue.env().orphaned.load(Ordering::SeqCst), 1);
        queue.lead_orphans();
        assert_eq!(queue.env().published(), [0, 1, 2]);
    }

    #[test]
    fn the_next_writer_commits_those_that_nobody_awaits() {
        let queue = queue(4);
        drop(writers(&queue, 2));
        let mut next = vec![Some(Box::pin({
            let ticket = write(&queue, 2);
            async move { ticket.wait(&env::Env::simulated(1)).await }
        }) as Writer)];
        assert_eq!(run(&queue, &mut next), [Some(Ok(()))]);
        assert_eq!(queue.env().published(), [0, 1, 2]);
    }

    #[test]
    fn a_leader_commits_a_bounded_number_of_groups_and_hands_over() {
        let queue = queue(2);
        let mut all = writers(&queue, 9);
        assert_eq!(poll(&mut all[0]), None, "it yields before it leads");
        assert_eq!(poll(&mut all[0]), Some(Ok(())));
        assert_eq!(queue.env().published(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(run(&queue, &mut all)[6..], vec![Some(Ok(())); 3]);
        assert_eq!(queue.env().published(), (0..9).collect::<Vec<u32>>());
    }

    #[test]
    fn a_group_is_bounded_in_bytes_but_takes_one_batch_of_any_size() {
        let queue = queue(4);
        let big = queue.enqueue(0, 1000);
        big.inserted();
        let small = write(&queue, 1);
        queue.lead();
        assert_eq!(queue.env().asked()[0], Asked::Log(vec![0]));
        drop((big, small));
        assert_eq!(queue.env().published(), [0, 1]);
    }

    #[test]
    fn after_a_failed_sync_every_batch_is_refused() {
        let queue = queue(1);
        let mut all = writers(&queue, 5);
        queue.env().fail_sync.store(true, Ordering::SeqCst);
        for told in run(&queue, &mut all) {
            assert_eq!(told.unwrap().unwrap_err().kind, ErrorKind::Poisoned);
        }
        queue.env().fail_sync.store(false, Ordering::SeqCst);
        let mut late = writers(&queue, 2);
        for told in run(&queue, &mut late) {
            assert_eq!(told.unwrap().unwrap_err().kind, ErrorKind::Poisoned);
        }
        let asked = queue.env().asked();
        assert_eq!(asked, [Asked::Log(vec![0, 1, 2]), Asked::Sync, Asked::Poisoned]);
    }

    #[test]
    fn a_leader_that_panics_leaves_nobody_waiting() {
        let queue = queue(1);
        let mut all = writers(&queue, 3);
        queue.env().panic_in_log.store(true, Ordering::SeqCst);
        assert_eq!(poll(&mut all[0]), None);
        let lead = std::panic::AssertUnwindSafe(|| poll(&mut all[0]));
        std::panic::catch_unwind(lead).unwrap_err();
        all.remove(0);
        assert_eq!(queue.failure().unwrap().kind, ErrorKind::Poisoned);
        // Its group and whoever was still in the queue are refused.
        for told in run(&queue, &mut all) {
            assert_eq!(told.unwrap().unwrap_err().kind, ErrorKind::Poisoned);
        }
    }

    #[test]
    fn a_batch_whose_insertion_panicked_is_never_published() {
        let queue = queue(1);
        let lost = queue.enqueue(0, 10);
        drop(lost);
        queue.lead_orphans();
        assert_eq!(queue.env().published(), []);
        assert!(queue.failure().is_some());
    }

    #[cfg(tepui_planted_bugs)]
    #[test]
    fn a_batch_published_before_its_sync_is_noticed() {
        env::planted::set(Some(PlantedBug::PublishBeforeSync));
        let queue = queue(4);
        let mut all = writers(&queue, 1);
        run(&queue, &mut all);
        env::planted::set(None);
        let asked = queue.env().asked();
        let place = |what: &Asked| asked.iter().position(|asked| asked == what);
        assert!(place(&Asked::Publish(0)) < place(&Asked::Sync), "the bug was not planted");
    }
}

#[cfg(tepui_shuttle)]
mod explored {
    use shuttle::future::block_on;
    use shuttle::thread;

    use super::*;

    /// Writers of one range; the last is cancelled after it was sequenced.
    fn history() {
        let queue = queue(1);
        let range = Arc::new(Mutex::new(0_u32));
        let writer = |is_cancelled: bool| {
            let (queue, range) = (Arc::clone(&queue), Arc::clone(&range));
            thread::spawn(move || {
                let mut ticket = {
                    let mut next = range.lock().unwrap();
                    let number = *next;
                    *next += 1;
                    queue.enqueue(number, 10)
                };
                yield_now();
                ticket.inserted();
                if is_cancelled {
                    return;
                }
                while let Signal::Lead = block_on(ticket.signal()) {
                    queue.lead();
                }
            })
        };
        let threads = [writer(false), writer(false), writer(false), writer(true)];
        for thread in threads {
            thread.join().unwrap();
        }
        queue.lead_orphans();
        assert_eq!(queue.env().published(), [0, 1, 2, 3]);
        assert!(queue.is_idle());
    }

    #[test]
    fn no_interleaving_loses_a_batch_or_its_order() {
        shuttle::check_random(history, 2_000);
        shuttle::check_pct(history, 2_000, 3);
    }
}
