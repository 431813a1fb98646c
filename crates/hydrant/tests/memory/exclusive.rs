//! Memory that is each rank's own for a while: nobody else reaches it then, whatever they kept.

use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

use hydrant::{Error, GlobalPtr, Rank, Refused, Section, Signal};

use crate::support::{builder, good, local};

const CELLS: usize = 50;
const STEPS: usize = 30;

/// Cells on a ring of ranks, each with a halo cell at either side, against all cells on one.
#[test_on(every)]
fn a_stencil_needs_no_copy() {
    const RANKS: usize = 3;
    let weigh = |left: f64, own: f64, right: f64| 0.25 * left + 0.5 * own + 0.25 * right;
    let begin = |at: usize| ((at * 37) % 101) as f64;
    let mut all: Vec<f64> = (0..RANKS * CELLS).map(begin).collect();
    for _ in 0..STEPS {
        let n = all.len();
        let next = (0..n).map(|at| weigh(all[(at + n - 1) % n], all[at], all[(at + 1) % n]));
        all = next.collect();
    }
    local(RANKS as u32, |job| {
        let first = job.rank().index() * CELLS;
        let mut field = job.alloc::<f64>(CELLS + 2)?;
        for step in 0..=STEPS {
            let mut own = job.exclusive(field)?;
            if step == 0 {
                (0..CELLS).for_each(|at| own[at + 1] = begin(first + at));
            } else {
                let old = own.to_vec();
                (1..=CELLS).for_each(|at| own[at] = weigh(old[at - 1], old[at], old[at + 1]));
            }
            let edges = (own[1], own[CELLS]);
            field = job.share(own)?;
            field.put_value(job.left(), CELLS + 1, edges.0)?;
            field.put_value(job.right(), 0, edges.1)?;
        }
        let own = job.exclusive(field)?;
        assert_eq!(own[1..=CELLS], all[first..first + CELLS]);
        let field = job.share(own)?;
        job.free(field)
    });
}

#[test_on(every)]
fn another_handle_at_any_rank_keeps_it_shared() {
    local(3, |job| {
        let memory = job.alloc::<u64>(8)?;
        let kept = (job.rank() == Rank(1)).then(|| memory.clone());
        let Err(Refused { memory, cause }) = job.exclusive(memory) else {
            panic!("rank 1 has another handle");
        };
        assert!(
            matches!(cause, Error::HandleInUse { rank: Rank(1) }),
            "{cause}"
        );
        let memory = memory.expect("it is as good as before");
        memory.put_value(job.right(), 3, 7)?;
        job.barrier()?;
        assert_eq!(memory.local()?.load(3)?, 7);
        drop(kept);
        let own = job.exclusive(memory)?;
        assert_eq!(own[..], [0, 0, 0, 7, 0, 0, 0, 0]);
        job.share(own).map(drop)?;
        job.barrier()
    });
}

#[test_on(every)]
fn pointers_rest_meanwhile_and_count_again() {
    local(2, |job| {
        let memory = job.alloc::<u64>(8)?;
        let to: GlobalPtr<u64> = memory.pointer(job.right(), 2)?;
        let mut own = job.exclusive(memory)?;
        own.fill(5);
        let put = job.put_to(to, &[9]);
        assert!(matches!(put, Err(Error::Freed)), "{put:?}");
        let put = job.put_to_nb(to, vec![9]).map(drop).map_err(Error::from);
        assert!(matches!(put, Err(Error::Freed)), "{put:?}");
        let put = job.scope(|s| s.put_to(to, &[9]).map(drop));
        assert!(matches!(put, Err(Error::Freed)), "{put:?}");
        // Nobody reaches the other's until both are done.
        assert_eq!(own[..], [5; 8]);
        let memory = job.share(own)?;
        job.put_to(to, &[9])?;
        job.barrier()?;
        assert_eq!(memory.local()?.to_vec(), [5, 5, 9, 5, 5, 5, 5, 5]);
        job.barrier()
    });
}

/// What was begun is over before anybody has a slice, whoever let go of it.
#[test_on(every)]
fn what_is_under_way_ends_before() {
    const LONG: usize = 100_000;
    local(2, |job| {
        let mut memory = job.alloc::<u64>(LONG)?;
        for round in 1..10 {
            drop(memory.put_nb(job.right(), 0, vec![round; LONG])?);
            let own = job.exclusive(memory)?;
            assert!(own.iter().all(|element| *element == round), "round {round}");
            memory = job.share(own)?;
        }
        job.barrier()
    });
}

/// A rank that is there first still serves the others: what they do by messages needs its answers.
#[test_on(every)]
fn slower_ranks_still_reach_the_memory() {
    const ROWS: usize = 12;
    local(3, |job| {
        let shape = [ROWS, 4];
        let column = Section::of(&shape, &[0..ROWS, 1..2])?;
        let (first, slow) = (Rank(0), Rank(2));
        let mut memory = job.alloc::<u64>(ROWS * 4)?;
        for round in 1..20 {
            if job.rank() == slow {
                job.compute(200_000);
                memory.put_section(first, &column, &[round; ROWS * 4], &column)?;
                let mut got = [0; ROWS * 4];
                memory.get_section(first, &column, &mut got, &column)?;
                assert!((0..ROWS).all(|row| got[4 * row + 1] == round), "{got:?}");
                memory.fetch_add(first, 0, 1)?;
            }
            let own = job.exclusive(memory)?;
            if job.rank() == first {
                assert!((0..ROWS).all(|row| own[4 * row + 1] == round), "{own:?}");
                assert_eq!(own[0], round);
            }
            memory = job.share(own)?;
        }
        job.free(memory)
    });
}

/// What was begun on it, by hand or by a task of the job's, keeps nobody from it once it is over.
#[test_on(every)]
fn what_nobody_waits_for_is_no_handle() {
    local(2, |job| {
        let mut memory = job.alloc::<u64>(10)?;
        for round in 1..50 {
            drop(memory.put_signal_nb(
                job.right(),
                0,
                vec![round; 4],
                &memory,
                8,
                Signal::Add(1),
            )?);
            drop(memory.fetch_add_nb(job.right(), 9, 1)?);
            let own = job.exclusive(memory)?;
            assert_eq!(
                own[..],
                [round, round, round, round, 0, 0, 0, 0, round, round]
            );
            memory = job.share(own)?;
        }
        job.free(memory)
    });
}

#[test_on(every)]
fn different_memory_is_given_back() {
    local(2, |job| {
        let (one, other) = (job.alloc::<u64>(4)?, job.alloc::<u64>(4)?);
        let (mine, rest) = match job.rank() {
            Rank(0) => (one, other),
            _ => (other, one),
        };
        let refused = job.exclusive(mine).map(drop).unwrap_err();
        let mismatch = matches!(refused.cause, Error::CollectiveMismatch { .. });
        assert!(mismatch, "{}", refused.cause);
        let mine = refused.memory.expect("it is as good as before");
        mine.put_value(job.right(), 0, 3)?;
        rest.put_value(job.right(), 0, 4)?;
        job.barrier()?;
        // To share what others do not is refused, too.
        let (first, second) = match job.rank() {
            Rank(0) => (mine, rest),
            _ => (rest, mine),
        };
        let (first, second) = (job.exclusive(first)?, job.exclusive(second)?);
        let (mine, rest) = match job.rank() {
            Rank(0) => (first, second),
            _ => (second, first),
        };
        let refused = job.share(mine).map(drop).unwrap_err();
        let mismatch = matches!(refused.cause, Error::CollectiveMismatch { .. });
        assert!(mismatch, "{}", refused.cause);
        let mut mine = refused.memory.expect("it is as good as before");
        mine[1] = 1;
        assert_eq!((mine[0], rest[0]), (4, 3));
        job.barrier()
    });
}

#[test_on(every)]
fn memory_that_is_gone_is_refused() {
    local(1, |job| {
        let memory = job.alloc::<u64>(4)?;
        let stale = memory.clone();
        job.free(memory)?;
        let refused = job.exclusive(stale).map(drop).unwrap_err();
        assert!(matches!(refused.cause, Error::Freed), "{}", refused.cause);
        Ok(())
    });
}

/// Each of the two takes one agreement of all ranks.
#[test_on(every)]
fn a_phase_costs_two_agreements() {
    local(3, |job| {
        let memory = job.alloc::<u64>(4)?;
        let before = job.counters().collectives;
        let own = job.exclusive(memory)?;
        assert_eq!(job.counters().collectives - before, 1);
        let memory = job.share(own)?;
        assert_eq!(job.counters().collectives - before, 2);
        job.free(memory)
    });
}

/// Results of the others are not lost with a rank that never came.
#[test_on(every)]
fn a_rank_that_is_lost_ends_the_phase() {
    let ends: Vec<hydrant::Result<()>> = builder().run_local(3, |job| {
        let memory = job.alloc::<u64>(4)?;
        let mut own = job.exclusive(memory)?;
        own.fill(u64::from(job.rank().0) + 1);
        if job.rank() == Rank(1) {
            return Err(Error::other("enough"));
        }
        let Refused { memory, cause } = job.share(own).map(drop).unwrap_err();
        assert!(matches!(cause, Error::PeerLost(_)), "{cause}");
        let own = memory.expect("nobody has a handle");
        assert_eq!(own[..], [u64::from(job.rank().0) + 1; 4]);
        Err(cause)
    });
    assert!(ends.iter().all(Result::is_err));
}

/// The same for memory that is to become exclusive.
#[test_on(every)]
fn a_rank_that_is_lost_leaves_the_handles() {
    let ends: Vec<hydrant::Result<()>> = builder().run_local(3, |job| {
        let memory = job.alloc::<u64>(4)?;
        if job.rank() == Rank(1) {
            return Err(Error::other("enough"));
        }
        let Refused { memory, cause } = job.exclusive(memory).unwrap_err();
        assert!(matches!(cause, Error::PeerLost(_)), "{cause}");
        let memory = memory.expect("nobody has a slice");
        memory.put_value(job.rank(), 2, 7)?;
        assert_eq!(memory.local()?.load(2)?, 7);
        Err(cause)
    });
    assert!(ends.iter().all(Result::is_err));
}

/// A rank may be lost when some have heard of it and others have not: nobody has a slice while another
/// has a handle.
#[test_on(every)]
fn a_rank_that_is_lost_midway_leaves_no_doubt() {
    let both = AtomicU64::new(0);
    for round in 0..10 {
        let (handles, slices) = (AtomicU64::new(0), AtomicU64::new(0));
        // Counts what a rank has, and whether another has the other meanwhile.
        let hold = |mine: &AtomicU64, others: &AtomicU64| {
            mine.fetch_add(1, SeqCst);
            for _ in 0..5 {
                both.fetch_add(others.load(SeqCst), SeqCst);
                thread::sleep(Duration::from_micros(400));
            }
            mine.fetch_sub(1, SeqCst);
        };
        builder().run_local(5, |job| {
            let memory = job.alloc::<u64>(4)?;
            let own = job.exclusive(memory)?;
            if job.rank() != Rank(2) && round % 2 == 1 {
                job.compute(20_000 * u64::from(job.rank().0));
            }
            let shared = job.share(own);
            if job.rank() == Rank(2) {
                return shared.map_err(Error::from).and(Err(Error::other("enough")));
            }
            match &shared {
                Ok(_) => hold(&handles, &slices),
                Err(Refused {
                    memory: Some(_), ..
                }) => hold(&slices, &handles),
                Err(_) => {}
            }
            shared.map(drop).map_err(Error::from)
        });
    }
    assert_eq!(both.into_inner(), 0, "slices while others have handles");
}

/// A slice goes to the threads that compute with it, as that of a vector does.
#[test_on(every)]
fn threads_share_the_slice() {
    good(builder().run_local(2, |job| {
        let mut own = job.exclusive(job.alloc::<u64>(1000)?)?;
        thread::scope(|threads| {
            for (number, part) in own.chunks_mut(250).enumerate() {
                threads.spawn(move || part.fill(number as u64));
            }
        });
        assert_eq!(own.iter().sum::<u64>(), 250 * (1 + 2 + 3));
        let memory = job.share(own)?;
        job.free(memory)
    }));
}

/// Takes longer to put than to free and to allocate.
const LONG: usize = 1 << 20;

/// Another thread puts by a pointer, in a scope: what it has begun is over before anybody has a slice,
/// or keeps the memory shared.
#[test_on(every)]
fn a_put_in_a_scope_by_pointer_is_over_before() {
    let changed = AtomicU64::new(0);
    local(2, |job| {
        if job.settings().conduit.is_virtual() {
            return Ok(());
        }
        let mut memory = job.alloc::<u64>(LONG)?;
        let to = memory.pointer(job.right(), 0)?;
        let (data, stop) = (vec![9; LONG], AtomicBool::new(false));
        thread::scope(|threads| {
            threads.spawn(|| {
                while !stop.load(SeqCst) {
                    match job.scope(|s| s.put_to(to, &data).map(drop)) {
                        Ok(()) => {}
                        Err(Error::Freed) => thread::sleep(Duration::from_micros(50)),
                        Err(other) => panic!("{other}"),
                    }
                }
            });
            let mut end = Ok(());
            for round in 0..20 {
                thread::sleep(Duration::from_micros(500 + 130 * (round % 7)));
                match job.exclusive(memory) {
                    Ok(mut own) => {
                        own.fill(5);
                        thread::sleep(Duration::from_millis(1));
                        let others = black_box(&own).iter().filter(|word| **word != 5).count();
                        changed.fetch_add(u64::from(others > 0), SeqCst);
                        memory = job.share(own)?;
                    }
                    Err(Refused {
                        memory: Some(back),
                        cause: Error::HandleInUse { .. },
                    }) => memory = back,
                    Err(refused) => {
                        end = Err(refused.cause);
                        break;
                    }
                }
            }
            stop.store(true, SeqCst);
            end
        })?;
        job.barrier()
    });
    assert_eq!(changed.into_inner(), 0, "slices that a put changed");
}

/// A put goes on by a clone of what was freed, where the next allocation lies: that is nobody's own
/// meanwhile.
#[test_on(every)]
fn a_handle_to_freed_memory_keeps_its_place_shared() {
    let changed = AtomicU64::new(0);
    local(2, |job| {
        if job.settings().conduit.is_virtual() {
            return Ok(());
        }
        let data = vec![9_u64; LONG];
        for round in 0..15 {
            let memory = job.alloc::<u64>(LONG)?;
            let clone = memory.clone();
            job.barrier()?;
            thread::scope(|threads| {
                let data = &data;
                threads.spawn(move || clone.put(job.right(), 0, data));
                thread::sleep(Duration::from_micros(100 * round));
                job.free(memory)?;
                let own = match job.exclusive(job.alloc::<u64>(LONG)?) {
                    Ok(own) => own,
                    Err(Refused {
                        memory: Some(back),
                        cause: Error::HandleInUse { .. },
                    }) => return job.free(back),
                    Err(refused) => return Err(refused.cause),
                };
                let words = || black_box(&own).iter().filter(|word| **word != 0).count();
                let before = words();
                thread::sleep(Duration::from_millis(1));
                changed.fetch_add(u64::from(words() != before), SeqCst);
                job.free(job.share(own)?)
            })?;
        }
        // Nor does a clone that nobody uses, and it is gone with that.
        let memory = job.alloc::<u64>(8)?;
        let clone = memory.clone();
        job.free(memory)?;
        let refused = job.exclusive(job.alloc::<u64>(8)?).unwrap_err();
        assert!(
            matches!(refused.cause, Error::HandleInUse { rank: Rank(0) }),
            "{}",
            refused.cause
        );
        job.barrier()?;
        drop(clone);
        let own = job.exclusive(refused.memory.expect("it is as good as before"))?;
        job.free(job.share(own)?)
    });
    assert_eq!(changed.into_inner(), 0, "slices that a put changed");
}
