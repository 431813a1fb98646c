//! Calls whose arguments and results exceed a message.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use hydrant::{Error, Function, Job, Rank, Result, when_all};

use crate::support::{builder, good, local};

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (seed + at * at % 251) as u8)
        .collect()
}

/// The result of a call, for both kinds of functions.
fn reversed(caller: Rank, (bytes, copies): (Vec<u8>, usize)) -> Vec<u8> {
    let mut result = bytes.repeat(copies);
    result.reverse();
    result.push(caller.0 as u8);
    result
}

/// Calls with arguments and results of lengths around the limit of a message.
fn there_and_back(job: &Job, function: &Function<(Vec<u8>, usize), Vec<u8>>) -> Result<()> {
    let most = job.limits().max_medium;
    for len in [
        0,
        most - 20,
        most - 3,
        most - 2,
        most - 1,
        most,
        most + 1,
        3 * most + 7,
    ] {
        for copies in [0, 1, 2] {
            let argument = (pattern(len as u64, len), copies);
            let wanted = reversed(job.rank(), argument.clone());
            let to = Rank((len + copies) as u32 % job.size());
            assert!(job.call(to, function, &argument)? == wanted, "{len} bytes");
        }
    }
    Ok(())
}

#[test_on(every)]
fn arguments_and_results_of_any_length() {
    local(3, |job| {
        there_and_back(job, &job.function(reversed)?)?;
        let later =
            job.async_function(|caller, argument| async move { reversed(caller, argument) })?;
        there_and_back(job, &later)?;
        job.barrier()
    });
}

#[test_on(every)]
fn arguments_where_pages_share_a_bucket() {
    let builder = builder().bucket(16 << 10);
    good(builder.run_local(2, |job| {
        there_and_back(job, &job.function(reversed)?)?;
        job.barrier()
    }));
}

#[test_on(every)]
fn many_large_calls_at_once_and_to_each_rank() {
    local(3, |job| {
        let function = job.function(reversed)?;
        let argument = (pattern(3, 100_000), 2);
        let wanted = reversed(job.rank(), argument.clone());
        let calls = job.call_each(job.ranks().chain(job.ranks()), &function, &argument)?;
        let (awaited, left) = calls
            .into_iter()
            .enumerate()
            .partition::<Vec<_>, _>(|it| it.0 < 4);
        // These calls run, and their buffers are freed afterwards.
        drop(left);
        for result in job.wait_for(when_all(awaited.into_iter().map(|it| it.1)))? {
            assert!(result? == wanted);
        }
        job.barrier()
    });
}

/// Handlers call onward with arguments that exceed a message.
#[test_on(every)]
fn large_calls_go_onward_and_back() {
    local(3, |job| {
        let own = Arc::new(OnceLock::<Function<(Vec<u8>, u32), Vec<u8>>>::new());
        let (here, next) = (job.downgrade(), Arc::clone(&own));
        let around = job.async_function(move |_, (mut bytes, left): (Vec<u8>, u32)| {
            let job = here.upgrade().expect("the job goes on");
            bytes.push(job.rank().0 as u8);
            let onward = (left > 0).then(|| {
                let next = next.get().expect("it was registered");
                job.call_nb(job.right(), next, &(bytes.clone(), left - 1))
            });
            async move {
                match onward {
                    None => bytes,
                    Some(onward) => onward.expect("it is called").await.expect("it answers"),
                }
            }
        })?;
        own.set(around).expect("it is set once");
        job.barrier()?;
        let bytes = pattern(9, 2 * job.limits().max_medium);
        for steps in [0, 1, 5] {
            let first = job.right().0;
            let visited = (0..=steps).map(|step| ((first + step) % 3) as u8);
            let wanted: Vec<u8> = bytes.iter().copied().chain(visited).collect();
            let got = job.call(job.right(), &around, &(bytes.clone(), steps))?;
            assert!(got == wanted, "{steps} steps");
        }
        job.barrier()
    });
}

#[test_on(every)]
fn large_one_way_calls_and_their_failures() {
    let sum = Arc::new(AtomicU64::new(0));
    local(2, |job| {
        let total = Arc::clone(&sum);
        let add = job.function(move |_, bytes: Vec<u8>| {
            assert!(bytes[0] != 77, "not seventy-seven");
            total.fetch_add(bytes.len() as u64, SeqCst);
        })?;
        let len = 3 * job.limits().max_medium;
        job.call_one_way(job.right(), &add, &pattern(1, len))?;
        job.call_one_way(job.right(), &add, &pattern(77, len))?;
        let told = job.am_quiet();
        let Err(Error::HandlerPanicked { rank, message, .. }) = told else {
            panic!("{told:?}");
        };
        assert_eq!((rank, message.as_str()), (job.right(), "not seventy-seven"));
        job.barrier()?;
        assert_eq!(sum.load(SeqCst), 2 * len as u64);
        let panicked = job.call(job.right(), &add, &pattern(77, len));
        let Err(Error::HandlerPanicked { rank, message, .. }) = panicked else {
            panic!("{panicked:?}");
        };
        assert_eq!((rank, message.as_str()), (job.right(), "not seventy-seven"));
        // The function decodes another type than was encoded.
        let other: Function<Vec<u8>, ()> = add;
        job.call(job.right(), &other, &pattern(2, len))?;
        job.barrier()
    });
}

/// Buffers of calls in flight do not delay the end of a job, in any order of the ranks' ends.
#[test_on(every)]
fn ranks_end_during_large_calls() {
    let ends = builder().run_local(3, |job| {
        let function = job.function(reversed)?;
        job.barrier()?;
        if job.rank() == Rank(1) {
            return Err(Error::other("enough"));
        }
        let argument = (pattern(5, 50_000), 3);
        loop {
            let calls = job.call_each(job.ranks(), &function, &argument)?;
            for call in calls {
                call.wait()?;
            }
        }
    });
    assert!(ends.iter().all(|end: &Result<()>| end.is_err()));
}

/// A leaving rank revokes the results that callers are about to get. The callers hear that the rank
/// is lost, and nothing about the buffer.
#[test_on(every)]
fn a_result_of_a_rank_that_leaves_is_lost_with_the_rank() {
    for moment in 0..25 {
        let ended = builder().run_local(3, move |job| {
            let function = job.function(reversed)?;
            job.barrier()?;
            if job.rank() == Rank(0) {
                // One of these takes time: the first in virtual time, the second in real time.
                job.compute(40_000 * moment);
                thread::sleep(Duration::from_micros(100 * moment));
                return Err(Error::Freed);
            }
            loop {
                let argument = (pattern(moment, 40_000), 2);
                let wanted = reversed(job.rank(), argument.clone());
                match job.call(Rank(0), &function, &argument) {
                    Ok(result) => assert!(result == wanted),
                    Err(cause) => return Err::<(), _>(cause),
                }
            }
        });
        for (rank, ended) in ended.into_iter().enumerate().skip(1) {
            let lost = matches!(ended, Err(Error::PeerLost(_)));
            assert!(lost, "rank {rank}, moment {moment}: {ended:?}");
        }
    }
}
