//! Barriers, blocking and split-phase.

use std::{
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    thread,
    time::Duration,
};

use hydrant::{Error, Rank};

use super::{SIZES, run};

#[test_on(every)]
fn nobody_passes_before_all_have_come() {
    for n in SIZES {
        let here = AtomicU32::new(0);
        run(n, |job| {
            for round in 1..=300 {
                here.fetch_add(1, SeqCst);
                job.barrier()?;
                assert!(here.load(SeqCst) >= round * n, "{n} ranks, round {round}");
                job.barrier_named(u64::from(round))?;
            }
            Ok(())
        });
        assert_eq!(here.load(SeqCst), 300 * n);
    }
}

#[test_on(every)]
fn puts_before_a_barrier_are_seen_after_it() {
    run(4, |job| {
        let cells = job.alloc::<u64>(4)?;
        for round in 0..500 {
            for rank in job.ranks() {
                cells.put_value(rank, job.rank().index(), round)?;
            }
            job.barrier()?;
            assert_eq!(cells.local()?.to_vec(), [round; 4]);
            job.barrier()?;
        }
        job.free(cells)
    });
}

#[test_on(every)]
fn work_fits_between_notify_and_wait() {
    for n in SIZES {
        let here = AtomicU32::new(0);
        run(n, |job| {
            let world = job.world();
            for round in 1..=100 {
                here.fetch_add(1, SeqCst);
                let name = (round % 3 > 0).then_some(u64::from(round));
                world.notify(name)?;
                if job.rank() == Rank(round % n) {
                    thread::sleep(Duration::from_micros(200));
                }
                world.wait(name)?;
                assert!(here.load(SeqCst) >= round * n, "{n} ranks, round {round}");
            }
            Ok(())
        });
    }
}

#[test_on(every)]
fn names_may_be_left_out() {
    for n in SIZES {
        run(n, |job| {
            let world = job.world();
            for round in 0..50 {
                // All name it, or this one rank alone, or all but this one.
                let speaks = match round % 3 {
                    0 => true,
                    1 => job.rank().0 == round % n,
                    _ => job.rank().0 != round % n,
                };
                world.notify(speaks.then_some(7))?;
                world.wait(None)?;
                if speaks {
                    job.barrier_named(9)?;
                } else {
                    job.barrier()?;
                }
            }
            Ok(())
        });
    }
}

#[test_on(every)]
fn phases_out_of_turn_are_errors() {
    run(3, |job| {
        let out_of_turn = |result| matches!(result, Err(Error::OutOfTurn { .. }));
        assert!(out_of_turn(job.barrier_wait(None)), "wait without notify");
        job.barrier_notify(Some(3))?;
        assert!(out_of_turn(job.barrier_notify(Some(3))), "notify twice");
        assert!(out_of_turn(job.barrier()), "a barrier within another");
        assert!(out_of_turn(job.broadcast(Rank(0), &mut [0_u8])));
        job.barrier_wait(Some(3))?;
        assert!(out_of_turn(job.barrier_wait(Some(3))), "wait twice");
        job.barrier_notify(Some(1))?;
        match job.barrier_wait(Some(2)) {
            Err(Error::CollectiveMismatch { own, .. }) => assert_eq!(own, job.rank()),
            other => panic!("{other:?}"),
        }
        job.barrier()
    });
}

#[test_on(every)]
fn a_second_thread_is_told() {
    run(2, |job| {
        let others = job.world().split(Some(0), 0)?;
        let team = others.as_ref().unwrap_or(job.world());
        if job.rank() == Rank(0) {
            let began = AtomicU32::new(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    began.store(1, SeqCst);
                    team.barrier()
                });
                while began.load(SeqCst) == 0 {
                    thread::yield_now();
                }
                // Rank 1 has not come, so whichever thread is second is told.
                thread::sleep(Duration::from_millis(20));
                let told = team.all_gather(&[1_u8]);
                assert!(matches!(told, Err(Error::OutOfTurn { .. })), "{told:?}");
                job.barrier()
            })?;
        } else {
            job.barrier()?;
            team.barrier()?;
        }
        job.barrier()
    });
}
