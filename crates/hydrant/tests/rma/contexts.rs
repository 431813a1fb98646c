//! Contexts: puts that are completed apart from others.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

use hydrant::{Error, Rank};

use crate::support::local;

/// Each thread has its own, and waits for its own alone; more than are kept unseen are under way.
#[test_on(every)]
fn threads_complete_their_own_puts() {
    local(3, |job| {
        let (threads, each) = (
            if job.settings().conduit.is_virtual() {
                1
            } else {
                3
            },
            500,
        );
        let field = job.alloc::<u64>(threads * each)?;
        let flags = job.alloc::<u64>(1)?;
        let put = |first: usize| {
            let context = job.context()?;
            for round in 0..3 {
                for at in first..first + each {
                    context.put(&field, job.right(), at, vec![(at * (round + 1)) as u64])?;
                }
                context.quiet()?;
                // What was put is there, whatever others have under way.
                assert_eq!(
                    field.get_value(job.right(), first + each - 1)?,
                    ((first + each - 1) * (round + 1)) as u64
                );
            }
            context.fence()?;
            flags.fetch_add(job.right(), 0, 1).map(drop)
        };
        thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .map(|thread| scope.spawn(move || put(thread * each)))
                .collect();
            put(0)?;
            others
                .into_iter()
                .try_for_each(|other| other.join().expect("it does not panic"))
        })?;
        job.wait_until(&flags, 0, |count| count == threads as u64)?;
        let right: Vec<u64> = (0..(threads * each) as u64).map(|at| 3 * at).collect();
        assert_eq!(field.local()?.to_vec(), right);
        job.barrier()
    });
}

#[test_on(every)]
fn through_pointers_and_left_to_themselves() {
    local(2, |job| {
        let places = job.alloc::<hydrant::GlobalPtr<u32>>(1)?;
        let exposed = job.expose(vec![0_u32; 200])?;
        places.put(job.right(), 0, &[exposed.pointer(0)?])?;
        job.barrier()?;
        let theirs = places.local()?.load(0)?;
        let context = job.context()?;
        for at in 0..100 {
            context.put_to(theirs.offset(at), vec![at as u32 + 7])?;
        }
        context.quiet()?;
        for at in 100..200 {
            context.put_to(theirs.offset(at), vec![at as u32 + 7])?;
        }
        drop(context);
        job.quiet()?;
        job.barrier()?;
        assert_eq!(exposed.view().to_vec(), (7..207).collect::<Vec<_>>());
        job.barrier()
    });
}

#[test_on(every)]
fn what_cannot_be_put_is_refused() {
    local(2, |job| {
        let field = job.alloc::<u64>(8)?;
        let context = job.context()?;
        let refused = context
            .put(&field, Rank(1), 7, vec![1; 2])
            .map_err(Error::from);
        assert!(
            matches!(refused, Err(Error::OutOfBounds { .. })),
            "{refused:?}"
        );
        let refused = context
            .put(&field, Rank(2), 0, vec![1])
            .map_err(Error::from);
        assert!(
            matches!(refused, Err(Error::RankOutOfRange { .. })),
            "{refused:?}"
        );
        context.quiet()?;
        job.barrier()?;
        assert_eq!(field.local()?.to_vec(), [0; 8]);
        job.barrier()
    });
}

/// Threads that share a context wait for each other's puts, taken out by whichever of them.
#[test_on(every)]
fn threads_that_share_one_wait_for_all_its_puts() {
    const LONG: usize = 100_000;
    let early = AtomicU64::new(0);
    local(2, |job| {
        if job.settings().conduit.is_virtual() {
            return Ok(());
        }
        let field = job.alloc::<u64>(2 * LONG)?;
        let (context, stop) = (job.context()?, AtomicBool::new(false));
        job.barrier()?;
        if job.rank() == Rank(0) {
            thread::scope(|scope| {
                let other = scope.spawn(|| -> hydrant::Result<()> {
                    while !stop.load(SeqCst) {
                        for _ in 0..100 {
                            context.put(&field, job.right(), 0, vec![1; 10])?;
                        }
                        context.quiet()?;
                    }
                    Ok(())
                });
                let put = |round: u64| -> hydrant::Result<()> {
                    context.put(&field, job.right(), LONG, vec![round; LONG])?;
                    // The other thread takes it out, most likely.
                    thread::sleep(Duration::from_micros(50));
                    context.quiet()?;
                    // A get is no slower than a put, so it may only see what is there.
                    let last = field.get_value(job.right(), 2 * LONG - 1)?;
                    early.fetch_add(u64::from(last != round), SeqCst);
                    job.quiet()
                };
                let end = (1..60).try_for_each(put);
                stop.store(true, SeqCst);
                other.join().expect("no panic").and(end)
            })?;
        }
        job.barrier()
    });
    assert_eq!(
        early.into_inner(),
        0,
        "puts that were not complete after quiet"
    );
}
