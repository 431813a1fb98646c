//! Contexts: puts that are completed apart from others.

use std::thread;

use hydrant::{Error, Rank};

use crate::support::local;

/// Each thread has its own, and waits for its own alone; more than are kept unseen are under way.
#[test]
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

#[test]
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

#[test]
fn what_cannot_be_put_is_refused() {
    local(2, |job| {
        let field = job.alloc::<u64>(8)?;
        let context = job.context()?;
        let refused = context.put(&field, Rank(1), 7, vec![1; 2]);
        assert!(
            matches!(refused, Err(Error::OutOfBounds { .. })),
            "{refused:?}"
        );
        let refused = context.put(&field, Rank(2), 0, vec![1]);
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
