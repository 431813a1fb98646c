//! A user's own buffer, lent and taken back.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::Duration,
};

use hydrant::{Error, Foreign, GlobalPtr, Job, Rank, Result, Symmetric};

use crate::support::{builder, good};

const WAYS: [Foreign; 2] = [Foreign::ProcessVm, Foreign::Messages];

/// Writes to what `board` names until its owner says to stop; how often it was refused.
fn hammer(job: &Job, board: &Symmetric<GlobalPtr<u64>>, stop: &Symmetric<u64>) -> Result<u64> {
    let mut refused = 0;
    let data = vec![u64::MAX; 5000];
    let mut back = vec![0; 5000];
    while stop.local()?.load(0)? == 0 {
        let pointer = board.local()?.load(0)?;
        for outcome in [job.put_to(pointer, &data), job.get_from(pointer, &mut back)] {
            match outcome {
                Ok(()) => {}
                Err(Error::Revoked { rank: Rank(0) }) => refused += 1,
                Err(other) => return Err(other),
            }
        }
    }
    Ok(refused)
}

/// Rank 0 lends and takes back while the others never stop writing: nothing lands after.
#[test_on(real)]
fn nothing_lands_in_what_was_taken_back() {
    for way in WAYS {
        let refused = good(builder().smp_foreign(way).run_local(3, |job| {
            let board = job.alloc::<GlobalPtr<u64>>(1)?;
            let stop = job.alloc::<u64>(1)?;
            let tell = |pointer| (1..3).try_for_each(|r| board.put_value(Rank(r), 0, pointer));
            let first = job.expose(vec![0_u64; 5000])?;
            if job.rank() == Rank(0) {
                tell(first.pointer(0)?)?;
            }
            job.barrier()?;
            let mut refused = 0;
            if job.rank() == Rank(0) {
                drop(first);
                for _ in 0..150 {
                    let lent = job.expose(vec![0_u64; 5000])?;
                    tell(lent.pointer(0)?)?;
                    thread::sleep(Duration::from_micros(300));
                    let mut back = lent.take_back();
                    back.fill(3);
                    thread::sleep(Duration::from_micros(200));
                    let now = std::hint::black_box(&back);
                    assert!(
                        now.iter().all(|element| *element == 3),
                        "{way:?}: a late write"
                    );
                }
                (1..3).try_for_each(|rank| stop.put_value(Rank(rank), 0, 1))?;
            } else {
                refused = hammer(job, &board, &stop)?;
            }
            job.barrier()?;
            Ok(refused)
        }));
        println!("{way:?}: refused {refused:?} times");
        assert!(
            refused[1] + refused[2] > 0,
            "the buffers were never found taken back"
        );
    }
}

/// A borrowed buffer is the borrower's for the scope, guard or no guard.
#[test_on(real)]
fn a_scope_takes_back_what_was_leaked_in_it() {
    for way in WAYS {
        good(builder().smp_foreign(way).run_local(2, |job| {
            let board = job.alloc::<GlobalPtr<u64>>(1)?;
            let mut buffer = vec![1_u64; 3000];
            job.scope(|s| {
                let lent = s.expose(&mut buffer)?;
                board.put_value(job.right(), 0, lent.pointer(0)?)?;
                std::mem::forget(lent);
                job.barrier()?;
                let theirs = board.local()?.load(0)?;
                job.put_to(theirs, &[u64::from(job.rank().0) + 5; 3000])?;
                job.barrier()
            })?;
            assert_eq!(buffer, vec![u64::from(job.left().0) + 5; 3000]);
            buffer.fill(2);
            job.barrier()?;
            let theirs = board.local()?.load(0)?;
            assert!(matches!(
                job.put_to(theirs, &[9; 3000]),
                Err(Error::Revoked { .. })
            ));
            job.barrier()?;
            assert_eq!(buffer, vec![2; 3000]);
            Ok(())
        }));
    }
}

#[test_on(real)]
fn a_scope_takes_back_what_it_lent_before_a_panic() {
    good(builder().run_local(2, |job| {
        let board = job.alloc::<GlobalPtr<u64>>(1)?;
        let mut buffer = vec![1_u64; 8];
        let end = panic::catch_unwind(AssertUnwindSafe(|| {
            job.scope(|s| -> Result<()> {
                let lent = s.expose(&mut buffer)?;
                board.put_value(job.right(), 0, lent.pointer(0)?)?;
                std::mem::forget(lent);
                panic!("with the buffer lent");
            })
        }));
        assert!(end.is_err());
        job.barrier()?;
        let theirs = board.local()?.load(0)?;
        assert!(matches!(
            job.put_to(theirs, &[9]),
            Err(Error::Revoked { .. })
        ));
        job.barrier()?;
        assert_eq!(buffer, [1; 8]);
        Ok(())
    }));
}

/// A guard dropped early ends the loan, not the scope.
#[test_on(real)]
fn a_guard_in_a_scope_may_go_early() {
    good(builder().run_local(1, |job| {
        let mut buffer = [1_u64; 8];
        job.scope(|s| {
            let lent = s.expose(&mut buffer)?;
            let pointer = lent.pointer(2)?;
            job.put_to(pointer, &[7])?;
            lent.view().store(0, 6)?;
            drop(lent);
            assert!(matches!(
                job.put_to(pointer, &[8]),
                Err(Error::Revoked { .. })
            ));
            Ok(())
        })?;
        assert_eq!(buffer, [6, 1, 7, 1, 1, 1, 1, 1]);
        Ok(())
    }));
}

/// A guard that is leaked leaves peers a buffer that nobody else has.
#[test_on(real)]
fn a_leaked_guard_is_safe() {
    let leaked = AtomicBool::new(false);
    good(builder().run_local(2, |job| {
        let board = job.alloc::<GlobalPtr<u64>>(1)?;
        let lent = job.expose(vec![1_u64; 8])?;
        board.put_value(job.right(), 0, lent.pointer(0)?)?;
        std::mem::forget(lent);
        leaked.store(true, SeqCst);
        job.barrier()?;
        let theirs = board.local()?.load(0)?;
        job.put_to(theirs, &[4; 8])?;
        let mut back = [0; 8];
        job.get_from(theirs, &mut back)?;
        assert_eq!(back, [4; 8]);
        job.barrier()
    }));
    assert!(leaked.into_inner());
}

#[test_on(real)]
fn empty_buffers_and_many_of_them() {
    good(builder().extents(300).run_local(2, |job| {
        let lent = (0..300).map(|len| job.expose(vec![len as u32; len]));
        let lent = lent.collect::<Result<Vec<_>>>()?;
        assert!(lent[0].is_empty());
        assert_eq!(job.put_to(lent[0].pointer(0)?, &[]).ok(), Some(()));
        for (len, exposed) in lent.iter().enumerate().skip(1) {
            assert_eq!(exposed.len(), len);
            let mut last = [0];
            job.get_from(exposed.pointer(len - 1)?, &mut last)?;
            assert_eq!(last, [len as u32]);
        }
        Ok(())
    }));
}
