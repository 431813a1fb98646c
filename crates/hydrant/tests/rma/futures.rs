//! Operations that are awaited, on executors and without one.

use std::{
    future::poll_fn,
    panic::{self, AssertUnwindSafe},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use hydrant::{Error, Exposed, Foreign, GlobalPtr, Job, Op, Rank, Result, when_all, when_any};

use hydrant_base::block_on;

use crate::support::{builder, good, local};

/// More bytes than a ring holds, so that a transfer by messages stays under way.
const LONG: usize = 50_000;
const PARTS: usize = 8;

/// Lends a buffer to the rank on the left; what the rank on the right lends.
fn lend(job: &Job, len: usize) -> Result<(Exposed<'static, u64>, GlobalPtr<u64>)> {
    let pointers = job.alloc::<GlobalPtr<u64>>(1)?;
    let exposed = job.expose(vec![u64::from(job.rank().0); len])?;
    pointers.put(job.left(), 0, &[exposed.pointer(0)?])?;
    job.barrier()?;
    let theirs = pointers.local()?.load(0)?;
    Ok((exposed, theirs))
}

/// Puts in parts, gets in parts, and what came back is what went.
async fn there_and_back(job: &Job, theirs: GlobalPtr<u64>, base: u64) -> Result<()> {
    let part = LONG / PARTS;
    let at = |number: usize| theirs.offset((number * part) as isize);
    let data = |number: usize| vec![base + number as u64; part];
    let puts = (0..PARTS).map(|number| job.put_to_nb(at(number), data(number)));
    for back in when_all(puts.collect::<Result<Vec<_>, _>>()?).await {
        assert_eq!(back?.len(), part);
    }
    let mut buffer = vec![0; part];
    for number in 0..PARTS {
        buffer = job.get_from_nb(at(number), buffer)?.await?;
        assert_eq!(buffer, data(number));
    }
    Ok(())
}

#[test_on(every)]
fn on_an_executor_that_sleeps() {
    for way in [Foreign::ProcessVm, Foreign::Messages] {
        good(builder().smp_foreign(way).run_local(3, |job| {
            let (exposed, theirs) = lend(job, LONG)?;
            for round in 0..5 {
                block_on(there_and_back(job, theirs, 100 * round))?;
            }
            job.barrier()?;
            assert_eq!(exposed.take_back()[LONG - 1], 400 + PARTS as u64 - 1);
            Ok(())
        }));
    }
}

#[test_on(every)]
fn on_a_thread_that_waits() {
    for way in [Foreign::ProcessVm, Foreign::Messages] {
        good(builder().smp_foreign(way).run_local(3, |job| {
            let (_exposed, theirs) = lend(job, LONG)?;
            for round in 0..5 {
                job.wait_for(there_and_back(job, theirs, 100 * round))??;
            }
            job.barrier()
        }));
    }
}

/// Nobody looks after messages but who asks: the task asks again and again.
#[test_on(every)]
fn without_a_service_thread() {
    let builder = builder().service(false).smp_foreign(Foreign::Messages);
    good(builder.run_local(2, |job| {
        let (_exposed, theirs) = lend(job, LONG)?;
        if job.rank() == Rank(0) {
            block_on(there_and_back(job, theirs, 100))?;
        }
        job.barrier()
    }));
}

/// Waits for a future; how often that was polled.
fn polls<F: Future>(job: &Job, future: F) -> Result<(F::Output, u32)> {
    let (mut future, mut polls) = (pin!(future), 0);
    let output = job.wait_for(poll_fn(|context| {
        polls += 1;
        future.as_mut().poll(context)
    }))?;
    Ok((output, polls))
}

/// Who waits sleeps, also where nobody else looks after messages: a task is polled when it was woken, and not again
/// and again.
#[test_on(every)]
fn who_waits_for_a_task_does_not_spin() {
    const FEW: u32 = 50;
    let builder = builder().service(false).smp_foreign(Foreign::Messages);
    good(builder.run_local(2, |job| {
        let (_exposed, theirs) = lend(job, LONG)?;
        let more = job.function(|_, number: u64| number + 1)?;
        job.barrier()?;
        let mine = job.rank() == Rank(0);
        let late = || thread::sleep(Duration::from_millis(30));
        if mine {
            let (got, asked) = polls(job, job.get_from_nb(theirs, vec![0; LONG])?)?;
            assert_eq!(got?, [1; LONG]);
            assert!(asked < FEW, "{asked} polls of a get");
            let (answer, called) = polls(job, job.call_nb(Rank(1), &more, &41)?)?;
            assert_eq!(answer?, 42);
            assert!(called < FEW, "{called} polls of a call");
            let (received, asked) = polls(job, job.receive_nb(Rank(1), 5, vec![0_u64; 9])?)?;
            assert_eq!(received?.0, [7; 9]);
            assert!(asked < FEW, "{asked} polls of a receive");
        } else {
            late();
            // Answers until rank 0 waits for more.
            let answered = Instant::now();
            while answered.elapsed() < Duration::from_millis(100) {
                job.poll();
            }
            job.send(Rank(0), 5, &[7_u64; 9])?;
            late();
        }
        let begun = job.all_reduce_nb(vec![1_u64; 9_000], Op::Sum)?;
        let (sums, asked) = polls(job, begun)?;
        assert_eq!(sums?, [2; 9_000]);
        assert!(asked < FEW, "{asked} polls of a collective");
        job.barrier()
    }));
}

#[test_on(every)]
fn the_first_that_ends_comes_alone() {
    local(2, |job| {
        let (_exposed, theirs) = lend(job, LONG)?;
        let gets = (0..3).map(|at| job.get_from_nb(theirs.offset(at), vec![0; LONG / 2]));
        let mut gets: Vec<_> = gets.collect::<Result<_, _>>()?;
        while !gets.is_empty() {
            let left = gets.len();
            let (which, got, others) = job.wait_for(when_any(gets))?;
            assert!(which < left && others.len() == left - 1);
            assert_eq!(got?[0], u64::from(job.right().0));
            gets = others;
        }
        job.barrier()
    });
}

/// Of a batch, those that fail say so, each for itself; the scope has nothing to say any more.
#[test_on(every)]
fn each_operation_of_a_scope_has_its_own_result() {
    good(
        builder()
            .smp_foreign(Foreign::Messages)
            .run_local(2, |job| {
                let (gone, stale) = lend(job, 64)?;
                job.barrier()?;
                drop(gone);
                job.barrier()?;
                let (_exposed, theirs) = lend(job, LONG)?;
                let data = vec![5; 64];
                let long = vec![6; LONG];
                let outcomes = job.scope(|s| {
                    let mut outcomes = Vec::new();
                    for to in [theirs, stale, theirs.offset(64)] {
                        // Some networks find it at once.
                        outcomes.push(
                            s.put_to(to, &data)
                                .and_then(|mut operation| operation.wait()),
                        );
                    }
                    let mut operation = s.put_to(theirs, &long)?;
                    while !operation.test()? {}
                    assert!(operation.test()?, "it stays complete");
                    operation.wait()?;
                    let again = operation.wait();
                    assert!(matches!(again, Err(Error::OutOfTurn { .. })), "{again:?}");
                    Ok(outcomes)
                })?;
                assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
                assert!(
                    matches!(outcomes[1], Err(Error::Revoked { .. })),
                    "{outcomes:?}"
                );
                job.barrier()
            }),
    );
}

/// A result is given once, whether it is awaited, waited for or tested.
#[test_on(every)]
fn results_are_given_once() {
    local(2, |job| {
        let (_exposed, theirs) = lend(job, LONG)?;
        let mut get = job.get_from_nb(theirs, vec![0; LONG])?;
        let data = job.wait_for(&mut get)??;
        assert_eq!(data.len(), LONG);
        let again = job.wait_for(&mut get)?;
        assert!(matches!(again, Err(Error::OutOfTurn { .. })), "{again:?}");
        assert!(get.test()?, "it is complete");
        assert!(matches!(get.wait(), Err(Error::OutOfTurn { .. })));
        // What was tested is still to be given.
        let mut get = job.get_from_nb(theirs, vec![0; LONG])?;
        while !get.test()? {}
        assert_eq!(get.wait()?, data);
        job.barrier()
    });
}

/// Tasks that are given up at any time: what they began goes on, and its memory lasts as long.
#[test_on(every)]
fn tasks_may_be_dropped_at_any_time() {
    good(
        builder()
            .smp_foreign(Foreign::Messages)
            .run_local(2, |job| {
                let (exposed, theirs) = lend(job, LONG)?;
                for round in 0..40 {
                    let mut task = Box::pin(there_and_back(job, theirs, 100));
                    for _ in 0..round {
                        let poll = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                        if poll.is_ready() {
                            break;
                        }
                    }
                    drop(task);
                }
                // Operations whose futures were dropped go on until then.
                job.quiet()?;
                job.put_to(theirs, &[7; LONG])?;
                job.barrier()?;
                assert!(exposed.take_back().iter().all(|element| *element == 7));
                Ok(())
            }),
    );
}

/// As a runtime's own yield does. Nobody else looks after the messages that it waits for.
#[test_on(every)]
fn who_wakes_itself_hears_of_others() {
    let builder = builder().service(false).smp_foreign(Foreign::Messages);
    good(builder.run_local(2, |job| {
        let words = job.alloc::<u64>(1)?;
        job.barrier()?;
        if job.rank() == Rank(0) {
            words.put_value(Rank(1), 0, 7)?;
        } else {
            let here = words.local()?;
            job.wait_for(poll_fn(|context| {
                context.waker().wake_by_ref();
                match here.load(0) {
                    Ok(0) => Poll::Pending,
                    word => Poll::Ready(word),
                }
            }))??;
        }
        job.barrier()
    }));
}

/// The waker of the last poll counts, on whatever thread that was.
#[test_on(every)]
fn tasks_may_change_threads() {
    struct Count(AtomicU32);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    good(
        builder()
            .smp_foreign(Foreign::Messages)
            .run_local(2, |job| {
                let (_exposed, theirs) = lend(job, LONG)?;
                for _ in 0..20 {
                    let mut get = job.get_from_nb(theirs, vec![0; LONG])?;
                    let first = Arc::new(Count(AtomicU32::new(0)));
                    let waker = Waker::from(first.clone());
                    let polled = Pin::new(&mut get).poll(&mut Context::from_waker(&waker));
                    let Poll::Pending = polled else { continue };
                    let data = thread::scope(|threads| {
                        threads.spawn(|| block_on(get)).join().expect("no panic")
                    })?;
                    assert_eq!(data.len(), LONG);
                    assert!(first.0.load(SeqCst) <= 1, "a waker was woken twice");
                }
                job.barrier()
            }),
    );
}

/// Wakers are the program's: what they do hurts nobody else.
#[test_on(every)]
fn wakers_may_panic_and_look() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker's own panic");
        }
    }
    struct Looks(Mutex<Option<hydrant::GetHandle<u64>>>);
    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            // It drops what it finds to be complete, and a handle that is under way.
            let held = self.0.lock().unwrap().take();
            drop(held.map(|mut held| held.test()));
        }
    }
    good(
        builder()
            .smp_foreign(Foreign::Messages)
            .run_local(2, |job| {
                let (_exposed, theirs) = lend(job, LONG)?;
                for _ in 0..10 {
                    let looks = Arc::new(Looks(Mutex::new(None)));
                    *looks.0.lock().unwrap() = Some(job.get_from_nb(theirs, vec![0; LONG])?);
                    for waker in [Waker::from(Arc::new(Panics)), Waker::from(looks)] {
                        let mut get = job.get_from_nb(theirs, vec![0; LONG])?;
                        // Without a service thread the poll itself wakes.
                        let polled = panic::catch_unwind(AssertUnwindSafe(|| {
                            Pin::new(&mut get).poll(&mut Context::from_waker(&waker))
                        }));
                        let data = match polled {
                            Ok(Poll::Ready(data)) => data,
                            Ok(Poll::Pending) | Err(_) => get.wait(),
                        };
                        assert_eq!(data?.len(), LONG);
                    }
                }
                job.barrier()
            }),
    );
}

/// Handles that outlive a job that failed: what they began ends, whoever asks for it.
#[test_on(every)]
fn handles_outlive_a_job_that_failed() {
    let kept = Mutex::new(Vec::new());
    let builder = builder().service(false).smp_foreign(Foreign::Messages);
    let ends: Vec<Result<()>> = builder.run_local(2, |job| {
        let (_exposed, theirs) = lend(job, LONG)?;
        let gets = (0..4).map(|_| job.get_from_nb(theirs, vec![0; LONG]));
        // To begin them may need the other rank, which the lock would keep.
        let gets = gets.collect::<Result<Vec<_>, _>>();
        kept.lock().unwrap().extend(gets.unwrap_or_default());
        Err(Error::other("enough"))
    });
    assert!(ends.iter().all(Result::is_err));
    for (number, mut handle) in kept.into_inner().unwrap().into_iter().enumerate() {
        // Some have gone well before.
        let _ = match number % 4 {
            0 => handle.wait().map(drop),
            1 => block_on(handle).map(drop),
            2 => loop {
                match handle.test() {
                    Ok(false) => {}
                    ended => break ended.map(drop),
                }
            },
            _ => Ok(()),
        };
    }
}
