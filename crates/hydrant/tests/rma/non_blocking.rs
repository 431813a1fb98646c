//! Atomic operations and puts with signals that go on while the program computes.

use std::sync::{Arc, OnceLock};

use hydrant::{
    BackgroundHandle, Error, GlobalPtr, Job, Pod, Rank, Refused, Result, Section, Signal, when_all,
};
use hydrant_base::block_on;

use crate::support::{builder, good, local};

const ROUNDS: u64 = 40;

/// What everybody gave, by rank.
fn everybodys<T: Pod>(job: &Job, mine: GlobalPtr<T>) -> Result<Vec<GlobalPtr<T>>> {
    job.all_gather(&[mine])
}

/// Many additions under way at once are all made, each once, and give what was there.
#[test_on(every, native)]
fn additions_are_made_once_each() {
    local(3, |job| {
        let symmetric = job.alloc::<u64>(2)?;
        let exposed = job.expose(vec![0_u64; 2])?;
        let first = symmetric.pointer(job.rank(), 1)?;
        for theirs in [
            everybodys(job, first)?,
            everybodys(job, exposed.pointer(1)?)?,
        ] {
            let word = job.atomic(theirs[0])?;
            let begun = (0..ROUNDS).map(|_| word.fetch_add_nb(1));
            let begun = begun.collect::<Result<Vec<_>>>()?;
            let mut seen = Vec::new();
            for (number, mut add) in begun.into_iter().enumerate() {
                seen.push(match number % 3 {
                    0 => add.wait()?,
                    1 => block_on(add)?,
                    _ => {
                        while !add.test()? {}
                        add.wait()?
                    }
                });
            }
            // Each rank saw others than the rest did.
            let mut all = job.all_gather(&seen)?;
            all.sort_unstable();
            assert!(all.into_iter().eq(0..3 * ROUNDS));
            // Those whose handles are dropped are made, too.
            for _ in 0..ROUNDS {
                drop(word.fetch_add_nb(1)?);
            }
            job.quiet()?;
            job.barrier()?;
            assert_eq!(word.load_nb()?.wait()?, 6 * ROUNDS);
            job.barrier()?;
        }
        job.barrier()
    });
}

#[test_on(every, native)]
fn every_operation_gives_what_was_there() {
    local(2, |job| {
        let right = job.right();
        let words = job.alloc::<u64>(1)?;
        let halves = job.alloc::<i32>(1)?;
        let floats = job.alloc::<f64>(1)?;
        let exposed = job.expose(vec![0_i64])?;
        let theirs = everybodys(job, exposed.pointer(0)?)?[right.index()];

        assert_eq!(words.swap_nb(right, 0, 12)?.wait()?, 0);
        assert_eq!(words.compare_swap_nb(right, 0, 13, 1)?.wait()?, 12);
        assert_eq!(words.compare_swap_nb(right, 0, 12, 7)?.wait()?, 12);
        assert_eq!(words.fetch_and_nb(right, 0, 12)?.wait()?, 7);
        assert_eq!(words.fetch_or_nb(right, 0, 3)?.wait()?, 4);
        assert_eq!(words.fetch_xor_nb(right, 0, 2)?.wait()?, 7);
        assert_eq!(words.signal_nb(right, 0, Signal::Add(2))?.wait()?, 5);
        assert_eq!(words.signal_nb(right, 0, Signal::Set(9))?.wait()?, 7);
        assert_eq!(words.atomic_load_nb(right, 0)?.wait()?, 9);
        assert_eq!(halves.fetch_add_nb(right, 0, -5)?.wait()?, 0);
        assert_eq!(halves.fetch_xor_nb(right, 0, -1)?.wait()?, -5);
        assert_eq!(halves.atomic_load_nb(right, 0)?.wait()?, 4);
        assert_eq!(floats.fetch_add_nb(right, 0, 1.5)?.wait()?, 0.0);
        assert_eq!(floats.swap_nb(right, 0, -2.0)?.wait()?, 1.5);
        let word = job.atomic(theirs)?;
        assert_eq!(word.swap_nb(-3)?.wait()?, 0);
        assert_eq!(word.compare_swap_nb(-3, 6)?.wait()?, -3);
        assert_eq!(word.fetch_and_nb(3)?.wait()?, 6);
        assert_eq!(word.fetch_or_nb(5)?.wait()?, 2);
        assert_eq!(word.fetch_xor_nb(7)?.wait()?, 7);
        assert_eq!(word.load_nb()?.wait()?, 0);

        let past = words.fetch_add_nb(right, 1, 1);
        assert!(matches!(past, Err(Error::OutOfBounds { .. })));
        let nobody = words.fetch_add_nb(Rank(2), 0, 1);
        assert!(matches!(nobody, Err(Error::RankOutOfRange { .. })));
        // The owner of an exposed buffer finds out.
        let past = job.atomic(theirs.offset(1))?.fetch_add_nb(1);
        let past = past.and_then(BackgroundHandle::wait);
        assert!(matches!(past, Err(Error::OutOfBounds { .. })), "{past:?}");
        job.barrier()?;
        drop(exposed);
        job.barrier()?;
        let gone = word.fetch_add_nb(1).and_then(BackgroundHandle::wait);
        assert!(matches!(gone, Err(Error::Revoked { .. })), "{gone:?}");
        job.barrier()
    });
}

/// Handlers begin what they may not wait for.
#[test_on(every, native)]
fn handlers_change_words_of_other_ranks() {
    local(3, |job| {
        let here = job.downgrade();
        let counts = job.expose(vec![0_u64; 1])?;
        let flags = job.alloc::<u64>(1)?;
        let theirs = everybodys(job, counts.pointer(0)?)?;
        let (words, known) = (flags.clone(), theirs.clone());
        let handler = job.handler(move |_, args, _| {
            let job = here.upgrade().expect("the job goes on");
            let next = Rank((args[0] as u32 + 1) % 3);
            let word = job.atomic(known[next.index()]).expect("it is a word");
            drop(word.fetch_add_nb(1).expect("it is begun"));
            drop((words.signal_nb(next, 0, Signal::Add(1))).expect("it is begun"));
        })?;
        job.barrier()?;
        for _ in 0..ROUNDS {
            for rank in job.ranks() {
                job.request_short(rank, handler, &[u64::from(rank.0)])?;
            }
        }
        job.wait_until(&flags, 0, |word| word == 3 * ROUNDS)?;
        let own = job.atomic(theirs[job.rank().index()])?;
        while own.load()? < 3 * ROUNDS {
            job.poll();
        }
        job.barrier()?;
        assert_eq!(own.load()?, 3 * ROUNDS);
        job.barrier()
    });
}

/// Who sees the signal sees the data, of each of many puts under way.
#[test_on(every, native)]
fn signals_come_behind_their_data() {
    const LEN: usize = 700;
    local(2, |job| {
        let (own, right) = (job.rank(), job.right());
        let rounds = ROUNDS as usize;
        let (data, flags) = (job.alloc::<u64>(rounds * LEN)?, job.alloc::<u64>(rounds)?);
        let exposed = job.expose(vec![0_u64; rounds * LEN])?;
        let words = job.expose(vec![0_u64; rounds])?;
        let pairs = [
            (data.pointer(own, 0)?, flags.pointer(own, 0)?),
            (exposed.pointer(0)?, flags.pointer(own, 0)?),
            (data.pointer(own, 0)?, words.pointer(0)?),
            (exposed.pointer(0)?, words.pointer(0)?),
        ];
        for (way, pair) in (0_u64..).zip([None].into_iter().chain(pairs.map(Some))) {
            let value = |round: usize| way * 1000 + round as u64 + 1;
            let theirs = match pair {
                None => None,
                Some((to, at)) => {
                    let (to, at) = (everybodys(job, to)?, everybodys(job, at)?);
                    Some((to[right.index()], at[right.index()]))
                }
            };
            job.barrier()?;
            let mut puts = Vec::new();
            for round in 0..rounds {
                let (buffer, signal) = (vec![value(round); LEN], Signal::Set(value(round)));
                puts.push(match theirs {
                    None => {
                        data.put_signal_nb(right, round * LEN, buffer, &flags, round, signal)?
                    }
                    Some((to, at)) => {
                        let (to, at) =
                            (to.offset((round * LEN) as isize), at.offset(round as isize));
                        job.put_signal_to_nb(to, buffer, at, signal)?
                    }
                });
            }
            for round in (0..rounds).rev() {
                let (from, at) = match pair {
                    None => pairs[0],
                    Some(pair) => pair,
                };
                let word = job.atomic(at.offset(round as isize))?;
                while word.load()? != value(round) {
                    job.poll();
                }
                let mut seen = vec![0; LEN];
                job.get_from(from.offset((round * LEN) as isize), &mut seen)?;
                assert!(
                    seen.iter().all(|seen| *seen == value(round)),
                    "{way} {round}"
                );
            }
            match way % 3 {
                0 => {
                    for put in block_on(when_all(puts)) {
                        assert_eq!(put?.len(), LEN);
                    }
                }
                1 => {
                    for put in puts {
                        put.wait()?;
                    }
                }
                _ => {
                    drop(puts);
                    job.quiet()?;
                }
            }
            job.barrier()?;
        }
        job.barrier()
    });
}

#[test_on(every, native)]
fn a_section_comes_with_a_signal() {
    local(2, |job| {
        let (grid, flags) = (job.alloc::<u32>(64)?, job.alloc::<u64>(1)?);
        let column = Section::of(&[8, 8], &[0..8, 3..4])?;
        let data: Vec<u32> = (0..8).map(|at| at + job.rank().0 * 10).collect();
        let all = Section::run(0, 8)?;
        let signal = Signal::Add(4);
        grid.put_section_signal(job.right(), &column, &data, &all, &flags, 0, signal)?;
        job.wait_until(&flags, 0, |word| word == 4)?;
        for row in 0..8 {
            let expected = row as u32 + job.right().0 * 10;
            assert_eq!(grid.local()?.load(row * 8 + 3)?, expected);
        }
        job.barrier()?;
        let bad = grid.put_section_signal(job.right(), &column, &[9; 8], &all, &flags, 1, signal);
        assert!(matches!(bad, Err(Error::OutOfBounds { .. })));
        job.barrier()?;
        assert_ne!(grid.local()?.load(3)?, 9);
        job.barrier()
    });
}

/// Returns the cause; the buffer comes back.
fn given_back(refused: Refused<Vec<u8>>) -> Error {
    assert_eq!(refused.memory.as_deref(), Some(&[1; 5][..]));
    refused.into()
}

#[test_on(every, native)]
fn nothing_is_put_if_the_signal_cannot_be_given() {
    local(2, |job| {
        let (data, flags) = (job.alloc::<u8>(10)?, job.alloc::<u64>(2)?);
        let (own, right) = (job.rank(), job.right());
        let put = |index, at| {
            let put = data.put_signal_nb(right, index, vec![1; 5], &flags, at, Signal::Set(1));
            put.map_err(given_back)
        };
        assert!(matches!(put(0, 2), Err(Error::OutOfBounds { .. })));
        assert!(matches!(put(6, 1), Err(Error::OutOfBounds { .. })));
        let (to, at) = (data.pointer(right, 0)?, flags.pointer(right, 2)?);
        let put = |to, at| {
            let put = job.put_signal_to_nb(to, vec![1; 5], at, Signal::Set(1));
            put.map_err(given_back)
        };
        assert!(matches!(put(to, at), Err(Error::OutOfBounds { .. })));
        let elsewhere = flags.pointer(own, 0)?;
        assert!(matches!(
            put(to, elsewhere),
            Err(Error::RankMismatch { .. })
        ));
        assert!(
            put(to.offset(6), at.offset(-1))
                .and_then(BackgroundHandle::wait)
                .is_err()
        );
        job.barrier()?;
        assert_eq!(data.local()?.to_vec(), [0; 10]);
        assert_eq!(flags.local()?.to_vec(), [0; 2]);
        job.barrier()
    });
}

/// What is under way ends, whoever asks for it, when the other rank or the job does.
#[test_on(every, native)]
fn what_is_begun_ends_with_the_job() {
    let kept = OnceLock::new();
    let places = Arc::new(OnceLock::new());
    let ends: Vec<Result<()>> = builder().run_local(2, |job| {
        let exposed = job.expose(vec![0_u64; 4])?;
        let words = job.alloc::<u64>(4)?;
        if job.rank() == Rank(1) {
            places.set(exposed.pointer(0)?).expect("once");
            job.barrier()?;
            return Err(Error::other("had enough"));
        }
        job.barrier()?;
        let theirs = *places.get().expect("before the barrier");
        let mut begun = Vec::new();
        for _ in 0..2000 {
            let word = job.atomic(theirs)?;
            let both = [word.fetch_add_nb(1), words.fetch_add_nb(Rank(1), 0, 1)];
            begun.extend(both.into_iter().flatten());
            let at = words.pointer(Rank(1), 1)?;
            if let Ok(put) = job.put_signal_to_nb(theirs, vec![1; 2], at, Signal::Set(1)) {
                drop(put);
            }
        }
        let rest = begun.split_off(begun.len() / 2);
        for add in begun {
            match add.wait() {
                Ok(_) | Err(Error::PeerLost(_) | Error::Revoked { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        kept.set(rest).expect("once");
        Err(Error::other("enough"))
    });
    assert!(ends.iter().all(Result::is_err));
    for (rank, end) in ends.into_iter().enumerate() {
        assert!(
            matches!(end, Err(Error::Other(_) | Error::PeerLost(_))),
            "{rank}: {end:?}"
        );
    }
    for (number, add) in kept
        .into_inner()
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        _ = match number % 2 {
            0 => add.wait(),
            _ => block_on(add),
        };
    }
}

/// More at once than may be registered, where NICs change them: they take turns.
#[test_on(every, native)]
fn more_words_than_may_be_registered_are_changed_at_once() {
    const WORDS: usize = 48;
    const APART: usize = 512;
    good(
        builder()
            .m(128 << 10)
            .maxvictim(16 << 10)
            .run_local(2, |job| {
                let words = job.alloc::<u64>(WORDS * APART)?;
                for round in 0..3 {
                    let begun = (0..WORDS).map(|at| words.fetch_add_nb(job.right(), at * APART, 1));
                    for add in begun.collect::<Result<Vec<_>>>()? {
                        assert_eq!(add.wait()?, round);
                    }
                }
                job.barrier()?;
                for at in 0..WORDS {
                    assert_eq!(words.local()?.load(at * APART)?, 3);
                }
                job.barrier()
            }),
    );
}
