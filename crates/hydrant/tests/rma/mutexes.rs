//! Mutexes: what they guard is never touched by two, and who must not have one is told so.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use hydrant::{Error, Rank, Result};

use crate::support::local;

#[test_on(every, native)]
fn one_at_a_time() {
    local(3, |job| {
        let mutexes = job.mutexes(1 + job.rank().index())?;
        let guarded = job.alloc::<u64>(3)?;
        const TIMES: u64 = 30;
        for turn in 0..TIMES {
            // One of each rank's mutexes, for the word that it guards.
            let rank = Rank((turn % 3) as u32);
            let held = mutexes.lock(rank, rank.index())?;
            let word = guarded.get_value(rank, 0)?;
            guarded.put_value(rank, 0, word + 1)?;
            held.unlock()?;
        }
        job.barrier()?;
        assert_eq!(guarded.local()?.load(0)?, TIMES);
        job.free_mutexes(&mutexes)
    });
}

#[test_on(every, native)]
fn several_are_held_at_once() {
    local(2, |job| {
        let mutexes = job.mutexes(2)?;
        let word = job.alloc::<u64>(1)?;
        for _ in 0..20 {
            // In one order at all ranks, so that nobody waits for ever.
            let _outer = mutexes.lock(Rank(1), 1)?;
            let _inner = mutexes.lock(Rank(0), 0)?;
            let now = word.get_value(Rank(0), 0)?;
            word.put_value(Rank(0), 0, now + 1)?;
        }
        job.barrier()?;
        assert_eq!(word.get_value(Rank(0), 0)?, 40);
        job.free_mutexes(&mutexes)
    });
}

#[test_on(every, native)]
fn threads_of_a_rank_take_turns() {
    local(2, |job| {
        let mutexes = job.mutexes(1)?;
        let word = job.alloc::<u64>(1)?;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| -> Result<()> {
                        for _ in 0..20 {
                            let _held = mutexes.lock(Rank(0), 0)?;
                            let now = word.get_value(Rank(0), 0)?;
                            word.put_value(Rank(0), 0, now + 1)?;
                        }
                        Ok(())
                    })
                })
                .collect();
            (threads.into_iter()).try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        job.barrier()?;
        assert_eq!(word.get_value(Rank(0), 0)?, 80);
        job.free_mutexes(&mutexes)
    });
}

#[test_on(every, native)]
fn who_has_not_got_it_does_not_give_it() {
    local(2, |job| {
        let mutexes = job.mutexes(2)?;
        let refused = mutexes.unlock(Rank(0), 0);
        assert!(matches!(refused, Err(Error::MutexNotHeld { .. })));
        if job.rank() == Rank(1) {
            // A guard that is forgotten holds on.
            std::mem::forget(mutexes.lock(Rank(0), 0)?);
            let again = mutexes.lock(Rank(0), 0).map(drop);
            assert!(matches!(again, Err(Error::MutexHeld { mutex: 0, .. })));
        }
        job.barrier()?;
        if job.rank() == Rank(0) {
            let refused = mutexes.unlock(Rank(0), 0);
            assert!(matches!(refused, Err(Error::MutexNotHeld { .. })));
        }
        // All are told.
        let refused = job.free_mutexes(&mutexes);
        assert!(matches!(
            refused,
            Err(Error::MutexHeld {
                rank: Rank(0),
                mutex: 0
            })
        ));
        for refused in [mutexes.lock(Rank(2), 0), mutexes.lock(Rank(0), 2)] {
            assert!(matches!(
                refused.map(drop),
                Err(Error::RankOutOfRange { .. } | Error::OutOfBounds { .. })
            ));
        }
        job.barrier()?;
        if job.rank() == Rank(1) {
            mutexes.unlock(Rank(0), 0)?;
        }
        job.free_mutexes(&mutexes)?;
        let refused = mutexes.lock(Rank(0), 0).map(drop);
        assert!(matches!(refused, Err(Error::Freed)));
        Ok(())
    });
}

/// A thread that ended with a mutex is not the one that comes after it, though that has its stack.
#[test_on(every, native)]
fn a_mutex_outlives_its_thread() {
    local(2, |job| {
        let mutexes = job.mutexes(1)?;
        let own = job.rank();
        let spawn_and_join = |act: &(dyn Fn() -> Result<()> + Sync)| {
            std::thread::scope(|scope| scope.spawn(act).join().expect("no panic"))
        };
        for _ in 0..5 {
            spawn_and_join(&|| mutexes.lock(own, 0).map(std::mem::forget))?;
            let got = AtomicBool::new(false);
            std::thread::scope(|scope| -> Result<()> {
                let next = scope.spawn(|| {
                    let held = mutexes.lock(own, 0)?;
                    got.store(true, SeqCst);
                    held.unlock()
                });
                std::thread::sleep(Duration::from_millis(20));
                assert!(!got.load(SeqCst), "two have it");
                mutexes.unlock(own, 0)?;
                next.join().expect("no panic")
            })?;
        }
        job.barrier()?;
        job.free_mutexes(&mutexes)
    });
}

/// Threads lock them until they are gone. Who has one has it until it is unlocked.
#[test_on(every, native)]
fn none_is_done_away_with_that_a_thread_is_about_to_have() {
    local(2, |job| {
        for _ in 0..40 {
            let mutexes = job.mutexes(2)?;
            std::thread::scope(|scope| -> Result<()> {
                let threads: Vec<_> = (0..2)
                    .map(|mutex| {
                        let (mutexes, other) = (&mutexes, job.right());
                        scope.spawn(move || {
                            for turn in 0_u64.. {
                                match mutexes.lock(other, mutex) {
                                    Ok(held) => {
                                        held.unlock().expect("it is there as long as it is held")
                                    }
                                    Err(Error::Freed) => break,
                                    Err(cause) => panic!("a lock: {cause}"),
                                }
                                // Some of the time nobody has any.
                                for _ in 0..turn % 1000 {
                                    std::hint::spin_loop();
                                }
                            }
                        })
                    })
                    .collect();
                loop {
                    match job.free_mutexes(&mutexes) {
                        Ok(()) => break,
                        Err(Error::MutexHeld { .. }) => {}
                        Err(cause) => return Err(cause),
                    }
                }
                threads
                    .into_iter()
                    .for_each(|it| it.join().expect("no panic"));
                Ok(())
            })?;
        }
        Ok(())
    });
}

#[test_on(every, native)]
fn a_rank_may_have_none() {
    local(2, |job| {
        let count = job.rank().index();
        let mutexes = job.mutexes(count)?;
        assert_eq!((mutexes.count(Rank(0))?, mutexes.count(Rank(1))?), (0, 1));
        mutexes.lock(Rank(1), 0)?.unlock()?;
        job.free_mutexes(&mutexes)?;
        let none = job.mutexes(0)?;
        assert!(none.lock(Rank(1), 0).is_err());
        job.free_mutexes(&none)
    });
}
