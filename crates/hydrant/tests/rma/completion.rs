//! When an operation is done, here and there; and the order of what is seen.

use std::panic::{self, AssertUnwindSafe};

use hydrant::{Error, Exposed, Foreign, GlobalPtr, Job, Rank, Result, Signal};

use crate::support::{builder, good, local};

/// More bytes than a ring holds, so that a transfer by messages stays under way.
const LONG: usize = 100_000;

/// Lends a buffer to the rank on the left; what the rank on the right lends.
fn lend(job: &Job) -> Result<(Exposed<'static, u64>, GlobalPtr<u64>)> {
    let pointers = job.alloc::<GlobalPtr<u64>>(1)?;
    let exposed = job.expose(vec![0_u64; LONG])?;
    pointers.put(job.left(), 0, &[exposed.pointer(0)?])?;
    job.barrier()?;
    let theirs = pointers.local()?.load(0)?;
    Ok((exposed, theirs))
}

#[test_on(shared, veiled, pinned, native)]
fn a_scope_completes_what_it_began() {
    for way in [Foreign::ProcessVm, Foreign::Messages] {
        good(builder().smp_foreign(way).run_local(3, |job| {
            let (exposed, theirs) = lend(job)?;
            let data = vec![1 + u64::from(job.rank().0); LONG];
            let operation = job.scope(|s| {
                let operation = s.put_to(theirs, &data)?;
                // By messages it cannot be done: the ring is shorter. A NIC is asked for it.
                let at_once = way == Foreign::ProcessVm && job.conduit().registration.is_none();
                assert_eq!(operation.is_immediate(), at_once);
                operation.wait_local()?;
                Ok(operation.is_immediate() == at_once)
            })?;
            assert!(operation, "it was done at once in the end");
            let mut back = vec![0; LONG];
            job.scope(|s| s.get_from(theirs, &mut back).map(drop))?;
            assert_eq!(back, data);
            job.barrier()?;
            let from = 1 + u64::from(job.left().0);
            assert!(exposed.take_back().iter().all(|element| *element == from));
            Ok(())
        }));
    }
}

/// The buffer is the caller's again after the panic: nothing may still be reading it.
#[test_on(shared, veiled, pinned, native)]
fn a_scope_completes_what_it_began_before_a_panic() {
    good(
        builder()
            .smp_foreign(Foreign::Messages)
            .run_local(2, |job| {
                let (exposed, theirs) = lend(job)?;
                let mut data = vec![5; LONG];
                let end = panic::catch_unwind(AssertUnwindSafe(|| {
                    job.scope(|s| {
                        s.put_to(theirs, &data)?;
                        if true {
                            panic!("in the middle of a put");
                        }
                        Ok(())
                    })
                }));
                assert!(end.is_err());
                data.fill(6);
                job.barrier()?;
                assert!(exposed.take_back().iter().all(|element| *element == 5));
                // And an error does not keep it from completing, either.
                let (exposed, theirs) = lend(job)?;
                let end = job.scope(|s| -> Result<()> {
                    s.put_to(theirs, &data)?;
                    Err(Error::other("changed my mind"))
                });
                assert_eq!(end.unwrap_err().to_string(), "changed my mind");
                data.fill(7);
                job.barrier()?;
                assert!(exposed.take_back().iter().all(|element| *element == 6));
                Ok(())
            }),
    );
}

/// Leaked handles leak memory and nothing else.
#[test_on(shared, veiled, pinned, native)]
fn leaked_handles_are_safe() {
    local(2, |job| {
        let memory = job.alloc::<u64>(LONG)?;
        std::mem::forget(memory.put_nb(job.right(), 0, vec![3; LONG])?);
        std::mem::forget(memory.get_nb(job.right(), 0, LONG)?);
        job.quiet()?;
        job.barrier()?;
        assert!(memory.local()?.to_vec().iter().all(|element| *element == 3));
        job.barrier()
    });
}

#[test_on(shared, veiled, pinned, native)]
fn what_dropped_handles_began_goes_on() {
    local(2, |job| {
        let memory = job.alloc::<u64>(LONG)?;
        drop(memory.put_nb(job.right(), 0, vec![3; LONG])?);
        drop(memory.get_nb(job.right(), 0, LONG)?);
        job.quiet()?;
        job.barrier()?;
        assert_eq!(memory.local()?.load(LONG - 1)?, 3);
        job.barrier()
    });
}

/// A failed operation is the scope's failure; the others of the scope are done.
#[test_on(shared, veiled, pinned, native)]
fn the_first_failure_is_the_scopes() {
    good(
        builder()
            .smp_foreign(Foreign::Messages)
            .run_local(2, |job| {
                let (exposed, theirs) = lend(job)?;
                let data = vec![5; LONG];
                job.barrier()?;
                drop(exposed);
                job.barrier()?;
                let (alive, there) = lend(job)?;
                let end = job.scope(|s| {
                    s.put_to(there, &data)?;
                    s.put_to(theirs, &data)?;
                    Ok(())
                });
                assert!(matches!(end, Err(Error::Revoked { .. })), "{end:?}");
                job.barrier()?;
                assert!(alive.take_back().iter().all(|element| *element == 5));
                Ok(())
            }),
    );
}

/// Who sees the signal sees the data, each time, round and round.
#[test_on(shared, veiled, pinned, native)]
fn signals_come_after_their_data() {
    const ROUNDS: u64 = 2_000;
    const ROW: usize = 33;
    local(4, |job| {
        let rows = job.alloc::<u64>(ROW)?;
        let signals = job.alloc::<u64>(2)?;
        for round in 1..=ROUNDS {
            let row = [round ^ u64::from(job.rank().0) << 32; ROW];
            let signal = if round % 2 == 0 {
                Signal::Set(round)
            } else {
                Signal::Add(1)
            };
            rows.put_signal(job.right(), 0, &row, &signals, 0, signal)?;
            assert_eq!(job.wait_until(&signals, 0, |count| count >= round)?, round);
            let mut got = [0; ROW];
            rows.local()?.read(0, &mut got)?;
            assert_eq!(got, [round ^ u64::from(job.left().0) << 32; ROW]);
            // The row may be written again.
            signals.signal(job.left(), 1, Signal::Add(1))?;
            job.wait_until(&signals, 1, |count| count >= round)?;
        }
        Ok(())
    });
}

/// Without a service thread, ranks that poll serve each other.
#[test_on(shared, veiled, pinned, native)]
fn without_a_service_thread() {
    good(
        builder()
            .service(false)
            .smp_foreign(Foreign::Messages)
            .run_local(3, |job| {
                let done = job.alloc::<u64>(1)?;
                let (exposed, theirs) = lend(job)?;
                let next = job.function(|_, number: u64| number + 1)?;
                if job.rank() == Rank(2) {
                    // Computes, and looks after messages now and then.
                    while done.local()?.load(0)? < 2 {
                        job.poll();
                        std::thread::yield_now();
                    }
                } else {
                    for number in 0..50 {
                        assert_eq!(job.call(Rank(2), &next, &number)?, number + 1);
                    }
                    done.add(Rank(2), 0, 1)?;
                }
                job.put_to(theirs, &vec![9; LONG])?;
                job.barrier()?;
                assert!(exposed.take_back().iter().all(|element| *element == 9));
                Ok(())
            }),
    );
}
