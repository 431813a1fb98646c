//! Handlers and functions that send, call onward and begin operations.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use hydrant::{Error, Function, Handler, Job, Rank, Result, Signal, when_all};
use hydrant_base::block_on;
use parking_lot::Mutex;

use crate::support::{builder, local};

/// A token goes round the ring by requests of handlers.
#[test_on(every)]
fn a_token_goes_round_the_ring() {
    local(4, |job| {
        let here = job.downgrade();
        let own = Arc::new(OnceLock::<Handler>::new());
        let arrived = job.alloc::<u64>(1)?;
        let (pass, done) = (Arc::clone(&own), arrived.clone());
        let handler = job.handler(move |_, args, payload| {
            let job = here.upgrade().expect("the job goes on");
            let (left, start) = (args[0], Rank(args[1] as u32));
            assert_eq!(payload.len(), args[0] as usize % 50);
            if left == 0 {
                (done.signal(start, 0, Signal::Add(1))).expect("a word of own memory changes");
                return;
            }
            let payload = vec![7; (left as usize - 1) % 50];
            let pass = *pass.get().expect("it was registered");
            (job.request_medium(job.right(), pass, &[left - 1, args[1]], &payload))
                .expect("it is sent");
        })?;
        own.set(handler).expect("it is set once");
        job.barrier()?;
        // The tokens of a rank end at that rank.
        let hops = 4 * 30;
        for _ in 0..10 {
            job.request_medium(
                job.right(),
                handler,
                &[hops - 1, job.rank().0.into()],
                &[7; 19],
            )?;
        }
        job.wait_until(&arrived, 0, |count| count == 10)?;
        job.barrier()
    });
}

/// Handlers send more than the rings hold to every rank. Everything arrives, and no handler waits.
#[test_on(every)]
fn handlers_flood_each_other() {
    let count = Arc::new(AtomicU64::new(0));
    let (ranks, levels, each) = (3, 2, 12_u64);
    local(ranks, |job| {
        let here = job.downgrade();
        let own = Arc::new(OnceLock::<Handler>::new());
        let (again, handled) = (Arc::clone(&own), Arc::clone(&count));
        let most = job.limits().max_medium;
        let flood = job.handler(move |_, args, payload| {
            assert!(payload.iter().all(|byte| *byte == 9));
            handled.fetch_add(1, SeqCst);
            if args[0] > 0 {
                let job = here.upgrade().expect("the job goes on");
                let again = *again.get().expect("it was registered");
                for n in 0..each {
                    let payload = vec![9; most / (1 + n as usize)];
                    for rank in job.ranks() {
                        (job.request_medium(rank, again, &[args[0] - 1], &payload))
                            .expect("it is kept or sent");
                    }
                }
            }
        })?;
        own.set(flood).expect("it is set once");
        job.barrier()?;
        job.request_short(job.right(), flood, &[levels])?;
        let fan = each * u64::from(ranks);
        let all = u64::from(ranks) * (0..=levels as u32).map(|level| fan.pow(level)).sum::<u64>();
        while count.load(SeqCst) < all {
            job.am_quiet()?;
            job.poll();
        }
        job.barrier()?;
        assert_eq!(count.load(SeqCst), all);
        job.barrier()
    });
}

/// Sums the ranks from one rank on. Each rank calls the next.
fn chain(job: &Job) -> Result<Function<u32, u64>> {
    let own = Arc::new(OnceLock::<Function<u32, u64>>::new());
    let (here, next) = (job.downgrade(), Arc::clone(&own));
    let sum = job.async_function(move |_, left: u32| {
        let job = here.upgrade();
        let next = next.get().copied();
        async move {
            let job = job.expect("the job goes on");
            let own = u64::from(job.rank().0);
            match left {
                0 => own,
                _ => {
                    let next = next.expect("it was registered");
                    let rest = job.call_nb(job.right(), &next, &(left - 1));
                    own + rest.expect("it is called").await.expect("it answers")
                }
            }
        }
    })?;
    own.set(sum).expect("it is set once");
    job.barrier()?;
    Ok(sum)
}

#[test_on(every)]
fn calls_go_onward_and_back() {
    local(4, |job| {
        let sum = chain(job)?;
        let steps = [0, 1, 3, 40];
        for steps in steps {
            let first = job.right().0;
            let serial: u32 = (0..=steps).map(|n| (first + n) % 4).sum();
            assert_eq!(job.call(job.right(), &sum, &steps)?, u64::from(serial));
        }
        // Many chains cross each other, and their callers wait in different ways.
        let calls = |n: u32| job.call_nb(Rank(n % 4), &sum, &(n % 9));
        let calls = (0..60).map(calls).collect::<Result<Vec<_>>>()?;
        let sums = match job.rank().0 % 2 {
            0 => job.wait_for(when_all(calls))?,
            _ => calls.into_iter().map(|call| call.wait()).collect(),
        };
        for (n, sum) in (0..60_u32).zip(sums) {
            let serial: u32 = (0..=n % 9).map(|step| (n + step) % 4).sum();
            assert_eq!(sum?, u64::from(serial));
        }
        job.barrier()
    });
}

/// A rank that only sleeps is served, and so are its tasks.
#[test_on(every)]
fn tasks_of_a_computing_rank_run() {
    local(3, |job| {
        let sum = chain(job)?;
        if job.settings().conduit.is_virtual() {
            return job.barrier();
        }
        if job.rank() == Rank(0) {
            for _ in 0..5 {
                assert_eq!(block_on(job.call_nb(Rank(1), &sum, &2)?)?, 3);
            }
            job.barrier()
        } else {
            thread::sleep(Duration::from_millis(50));
            job.barrier()
        }
    });
}

#[test_on(every)]
fn handlers_begin_operations_and_leave_them() {
    local(3, |job| {
        let memory = job.alloc::<u64>(300)?;
        let (here, field) = (job.downgrade(), memory.clone());
        let share = job.async_function(move |caller: Rank, value: u64| {
            let (job, field) = (here.upgrade(), field.clone());
            async move {
                let job = job.expect("the job goes on");
                let place = 100 * job.rank().index();
                let put = field.put_nb(caller, place, vec![value; 100]);
                let data = put.expect("it is begun").await.expect("it is put");
                let back = field.get_nb_into(caller, place, data);
                back.expect("it is begun").await.expect("it is got")
            }
        })?;
        let left = memory.clone();
        let leave = job.function(move |caller: Rank, value: u64| {
            left.put_nb(caller, 299, vec![value]).map(drop).is_ok()
        })?;
        job.barrier()?;
        let calls = job.call_each(job.ranks(), &share, &(7 + u64::from(job.rank().0)))?;
        for got in job.wait_for(when_all(calls))? {
            assert_eq!(got?, [7 + u64::from(job.rank().0); 100]);
        }
        let own = memory.local()?.to_vec();
        assert_eq!(own, [7 + u64::from(job.rank().0); 300]);
        job.barrier()?;
        assert!(job.call(job.right(), &leave, &1)?);
        job.barrier()?;
        job.quiet()?;
        job.barrier()?;
        assert_eq!(memory.local()?.load(299)?, 1);
        job.barrier()
    });
}

#[test_on(every)]
fn a_failure_in_a_task_is_reported_to_the_caller() {
    local(2, |job| {
        let picky = job.async_function(|_, n: u64| {
            assert!(n != 1, "not one");
            async move {
                assert!(n != 2, "not two");
                vec![0_u8; n as usize]
            }
        })?;
        for (n, said) in [(1_u64, "not one"), (2, "not two")] {
            let refused = job.call(job.right(), &picky, &n);
            let Err(Error::HandlerPanicked { rank, message, .. }) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!((rank, message.as_str()), (job.right(), said));
            // No caller hears of the failure, and the job goes on.
            job.call_one_way(job.right(), &picky, &n)?;
            let quiet = job.am_quiet();
            assert_eq!(quiet.is_err(), n == 1, "{quiet:?}");
        }
        assert_eq!(job.call(job.right(), &picky, &3)?.len(), 3);
        job.barrier()
    });
}

/// Functions wait for another thread. Functions that never end are dropped with the job.
#[test_on(every)]
fn tasks_wait_for_threads_and_are_dropped_with_the_job() {
    struct Dropped(Arc<AtomicU64>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let dropped = Arc::new(AtomicU64::new(0));
    local(2, |job| {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (queue, count) = (Arc::clone(&asked), Arc::clone(&dropped));
        let later = job.async_function(move |_, n: u64| {
            let (answer, answered) = tokio::sync::oneshot::channel();
            queue.lock().push((n, answer));
            let held = Dropped(Arc::clone(&count));
            async move {
                let result: u64 = answered.await.unwrap_or(0);
                drop(held);
                result
            }
        })?;
        let calls = [1_u64, 2, 3].map(|n| job.call_nb(job.right(), &later, &n));
        let [first, second, third] = calls;
        let (asked_here, clock) = (Arc::clone(&asked), job.clone());
        let answer = move || {
            while asked_here.lock().len() < 3 {
                clock.poll();
            }
            for (n, answer) in asked_here.lock().drain(..2) {
                answer.send(10 * n).expect("it is awaited");
            }
        };
        if job.settings().conduit.is_virtual() {
            answer();
        } else {
            drop(thread::spawn(answer));
        }
        assert_eq!((first?.wait()?, second?.wait()?), (10, 20));
        drop(third?);
        job.barrier()
    });
    assert_eq!(dropped.load(SeqCst), 6);
}

#[test_on(every)]
fn a_mismatch_of_registered_functions_is_reported() {
    fn twice(_: Rank, n: u64) -> u64 {
        2 * n
    }
    fn thrice(_: Rank, n: u64) -> u64 {
        3 * n
    }
    fn narrow(_: Rank, n: u32) -> u32 {
        n
    }
    local(2, |job| {
        let first = job.rank() == Rank(0);
        let differ = [
            if first {
                job.function(twice).map(drop)
            } else {
                job.function(thrice).map(drop)
            },
            if first {
                job.function(twice).map(drop)
            } else {
                job.function(narrow).map(drop)
            },
            if first {
                job.function(twice).map(drop)
            } else {
                job.handler(|_, _, _| ()).map(drop)
            },
        ];
        for told in differ {
            let Err(error @ Error::CollectiveMismatch { .. }) = told else {
                panic!("{told:?}");
            };
            assert!(error.to_string().contains("twice: u64 -> u64"), "{error}");
        }
        let twice = job.function(twice)?;
        assert_eq!(job.call(job.right(), &twice, &4)?, 8);
        job.barrier()
    });
}

/// An endless chain of calls does not delay the end of the job.
#[test_on(every)]
fn an_endless_chain_of_calls_ends_with_the_job() {
    local(3, |job| {
        let own = Arc::new(OnceLock::<Function<u64, ()>>::new());
        let (here, next) = (job.downgrade(), Arc::clone(&own));
        let count = Arc::new(AtomicU64::new(0));
        let links = Arc::clone(&count);
        let forever = job.function(move |_, n: u64| {
            links.fetch_add(1, SeqCst);
            if let (Some(job), Some(next)) = (here.upgrade(), next.get()) {
                // The call fails when the job ends.
                let _ = job.call_one_way(job.right(), next, &(n + 1));
            }
        })?;
        own.set(forever).expect("it is set once");
        job.barrier()?;
        job.call_one_way(job.right(), &forever, &0)?;
        while count.load(SeqCst) < 20 {
            job.poll();
        }
        job.barrier()
    });
}

/// A handler that sends to a peer without end gets an error, and its earlier messages arrive.
#[test_on(every)]
fn a_handler_cannot_send_without_end() {
    let (handled, full) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let ends = builder().service(false).run_local(2, |job| {
        if job.settings().conduit.is_virtual() {
            return Ok(());
        }
        let (count, told) = (Arc::clone(&handled), Arc::clone(&full));
        let take = job.handler(move |_, _, _| _ = count.fetch_add(1, SeqCst))?;
        let here = job.downgrade();
        let most = job.limits().max_medium;
        let flood = job.handler(move |_, _, _| {
            let job = here.upgrade().expect("the job goes on");
            let payload = vec![1; most];
            let mut sent = 0;
            let refused = loop {
                match job.request_medium(Rank(1), take, &[], &payload) {
                    Ok(()) => sent += 1,
                    Err(refused) => break refused,
                }
            };
            assert!(matches!(refused, Error::OnwardFull { .. }), "{refused:?}");
            told.store(sent, SeqCst);
        })?;
        job.barrier()?;
        if job.rank() == Rank(0) {
            job.request_short(Rank(0), flood, &[])?;
            // The first call waits for the handler, and the second one for its messages.
            job.am_quiet()?;
            job.am_quiet()?;
            assert_eq!(handled.load(SeqCst), full.load(SeqCst));
        } else {
            // This rank does not poll meanwhile.
            while full.load(SeqCst) == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        job.barrier()
    });
    for end in ends {
        end.expect("the rank ends in good order");
    }
}
