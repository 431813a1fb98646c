//! Atomic operations through pointers, to symmetric memory and to exposed buffers.

use std::thread;

use hydrant::{Error, GlobalPtr, Job, Rank, Result, Signal};

use crate::support::local;

/// A pointer into what each rank gave, by rank.
fn everybodys<T: hydrant::Pod>(job: &Job, mine: GlobalPtr<T>) -> Result<Vec<GlobalPtr<T>>> {
    let all = job.all_gather(&[mine])?;
    Ok(all)
}

/// Every rank and thread adds to every rank's words, by each kind of pointer, and swaps a token.
#[test_on(every)]
fn all_ranks_count_together() {
    local(3, |job| {
        let threads = if job.settings().conduit.is_virtual() {
            1
        } else {
            2
        };
        let symmetric = job.alloc::<u64>(4)?;
        let exposed = job.expose(vec![0_u64; 4])?;
        let own = job.rank();
        for theirs in [
            everybodys(job, symmetric.pointer(own, 1)?)?,
            everybodys(job, exposed.pointer(1)?)?,
        ] {
            let count = || -> Result<()> {
                for round in 0..60 {
                    for rank in job.ranks() {
                        let word = job.atomic(theirs[rank.index()])?;
                        assert_eq!(word.rank(), rank);
                        word.fetch_add(1)?;
                        let bits = job.atomic(theirs[rank.index()].offset(1))?;
                        bits.fetch_or(1 << round)?;
                        bits.fetch_xor(1 << 63)?;
                        // Whoever finds it free takes it, and gives it back.
                        let lock = job.atomic(theirs[rank.index()].offset(2))?;
                        while lock.compare_swap(0, 7)? != 0 {
                            thread::yield_now();
                        }
                        assert_eq!(lock.swap(0)?, 7);
                    }
                }
                Ok(())
            };
            thread::scope(|scope| {
                let others: Vec<_> = (1..threads).map(|_| scope.spawn(count)).collect();
                count()?;
                others
                    .into_iter()
                    .try_for_each(|other| other.join().expect("it does not panic"))
            })?;
            job.barrier()?;
            for pointer in &theirs {
                let all = 60 * 3 * threads as u64;
                assert_eq!(job.atomic(*pointer)?.load()?, all);
                assert_eq!(job.atomic(pointer.offset(1))?.load()?, (1 << 60) - 1);
            }
            job.barrier()?;
        }
        job.barrier()
    });
}

#[test_on(every)]
fn every_type_and_operation() {
    local(2, |job| {
        let narrow = job.expose(vec![0_i32; 3])?;
        let float = job.expose(vec![1.5_f64; 3])?;
        let (narrow, float) = (
            everybodys(job, narrow.pointer(2)?)?[job.right().index()],
            everybodys(job, float.pointer(0)?)?[job.right().index()],
        );
        let word = job.atomic(narrow)?;
        word.store(-5)?;
        assert_eq!(word.fetch_add(i32::MAX)?, -5);
        assert_eq!(word.swap(12)?, i32::MAX - 5);
        assert_eq!(word.fetch_and(6)?, 12);
        assert_eq!(word.compare_swap(5, 1)?, 4);
        assert_eq!(word.load()?, 4);
        let number = job.atomic(float)?;
        assert_eq!(number.fetch_add(0.25)?, 1.5);
        assert_eq!(number.compare_swap(1.75, -1.0)?, 1.75);
        assert_eq!(number.load()?, -1.0);
        job.barrier()
    });
}

/// A loan that ends meanwhile: each addition was made, or refused.
#[test_on(every)]
fn words_that_go_meanwhile() {
    local(3, |job| {
        let places = job.alloc::<GlobalPtr<u64>>(1)?;
        let added = job.alloc::<u64>(1)?;
        for _ in 0..10 {
            if job.rank() == Rank(0) {
                let exposed = job.expose(vec![0_u64; 2])?;
                for rank in [1, 2] {
                    places.put(Rank(rank), 0, &[exposed.pointer(1)?])?;
                }
                job.barrier()?;
                while exposed.view().load(1)? < 20 {
                    job.poll();
                }
                let sum = exposed.take_back()[1];
                job.barrier()?;
                assert_eq!(sum, added.swap(Rank(0), 0, 0)?);
            } else {
                job.barrier()?;
                let word = job.atomic(places.local()?.load(0)?)?;
                let ended = loop {
                    match word.fetch_add(1) {
                        Ok(_) => added.add(Rank(0), 0, 1)?,
                        Err(ended) => break ended,
                    }
                };
                assert!(
                    matches!(ended, Error::Revoked { rank: Rank(0) }),
                    "{ended:?}"
                );
                job.barrier()?;
            }
            job.barrier()?;
        }
        Ok(())
    });
}

#[test_on(every)]
fn what_is_no_word_is_refused() {
    local(2, |job| {
        let exposed = job.expose(vec![3_u64; 4])?;
        let bytes = job.expose(vec![0_u8; 16])?;
        let symmetric = job.alloc::<u64>(2)?;
        let theirs = everybodys(job, exposed.pointer(0)?)?;
        let odd: GlobalPtr<u8> = everybodys(job, bytes.pointer(0)?)?[job.right().index()];
        for theirs in theirs {
            let len = |at: isize| job.atomic(theirs.offset(at))?.fetch_add(1);
            for at in [4, 5, isize::MAX / 16] {
                let refused = len(at);
                assert!(
                    matches!(refused, Err(Error::OutOfBounds { len: 4, .. })),
                    "{refused:?}"
                );
            }
            assert!(len(-1).is_err());
            assert!((3..5).contains(&len(3)?));
            job.barrier()?;
            job.atomic(theirs.offset(3))?.store(3)?;
            job.barrier()?;
        }
        // Made into one of words, it may lie anywhere: what no processor changes at once is refused.
        for at in 0..3 {
            let off: GlobalPtr<u32> = bytemuck::cast(odd.offset(at));
            match job.atomic(off) {
                Ok(word) => _ = word.load(),
                Err(error) => assert!(matches!(error, Error::Misaligned { .. }), "{error:?}"),
            }
        }
        let gone = job.alloc::<u64>(1)?;
        let freed = gone.pointer(job.right(), 0)?;
        job.free(gone)?;
        let refused = job.atomic(freed).map(drop);
        assert!(matches!(refused, Err(Error::Freed)), "{refused:?}");
        let refused = job.put_signal_to(
            symmetric.pointer(Rank(0), 0)?,
            &[1],
            symmetric.pointer(Rank(1), 1)?,
            Signal::Set(1),
        );
        assert!(
            matches!(refused, Err(Error::RankMismatch { .. })),
            "{refused:?}"
        );
        job.barrier()
    });
}

/// Data and signal by pointers: to exposed and symmetric memory in either role.
#[test_on(every)]
fn who_sees_the_signal_sees_the_data() {
    local(2, |job| {
        let exposed = job.expose(vec![0_u64; 100])?;
        let symmetric = job.alloc::<u64>(100)?;
        let flags = job.alloc::<u64>(2)?;
        let counts = job.expose(vec![0_u64; 2])?;
        let to = job.right();
        let theirs = everybodys(job, exposed.pointer(0)?)?[to.index()];
        let counter = everybodys(job, counts.pointer(1)?)?[to.index()];
        for round in 1..20_u64 {
            let data = [round; 100];
            job.put_signal_to(theirs, &data, flags.pointer(to, 0)?, Signal::Set(round))?;
            job.wait_until(&flags, 0, |flag| flag >= round)?;
            assert_eq!(exposed.view().to_vec(), [round; 100]);
            job.put_signal_to(symmetric.pointer(to, 0)?, &data, counter, Signal::Add(1))?;
            while job.atomic(counts.pointer(1)?)?.load()? < round {
                job.poll();
            }
            assert_eq!(symmetric.local()?.to_vec(), [round; 100]);
            job.barrier()?;
        }
        job.barrier()
    });
}
