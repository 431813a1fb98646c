//! Many runs and what is under way, beside loans that end, ranks that leave and jobs that are over.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

use hydrant::{BackgroundHandle, Error, IoVector, Job, Rank, Result, Section, Signal};

use crate::support::{builder, local};

const RUNS: usize = 60;
const LEN: usize = RUNS * 8;

/// Runs of three words, eight apart.
fn places() -> [Vec<usize>; 2] {
    [
        (0..RUNS).rev().map(|run| run * 8).collect(),
        (0..RUNS).map(|run| run * 3).collect(),
    ]
}

/// A peer that took its buffer back finds in it what was put before, whole runs, and nothing comes after.
#[test_on(every)]
fn loans_end_beside_many_runs() {
    local(2, |job| {
        let threads = if job.settings().conduit.is_virtual() {
            1
        } else {
            3
        };
        let [there, here] = places();
        for round in 0..15_u64 {
            let exposed = job.expose(vec![0_u64; LEN])?;
            let theirs = job.all_gather(&[exposed.pointer(0)?])?[job.right().index()];
            let work = |thread: u64| -> Result<()> {
                let vector = IoVector {
                    remote: &there,
                    local: &here,
                    run: 3,
                };
                let column = Section::of(&[RUNS, 8], &[0..RUNS, 5..6])?;
                let packed = Section::run(0, RUNS)?;
                let mut data = vec![round * 10 + thread + 1; RUNS * 3];
                let ended = |ended: Result<()>| match ended {
                    Ok(()) => Ok(false),
                    Err(Error::Revoked { .. }) => Ok(true),
                    Err(other) => Err(other),
                };
                loop {
                    let mut over = ended(job.put_vector_to(theirs, &[vector], &data))?;
                    over |= ended(job.put_section_to(theirs, &column, &data, &packed))?;
                    let add = job.atomic(theirs.offset(7))?.fetch_add_nb(1);
                    over |= ended(add.and_then(BackgroundHandle::wait).map(drop))?;
                    over |= ended(job.get_vector_from(theirs, &[vector], &mut data))?;
                    data.fill(round * 10 + thread + 1);
                    if over {
                        return Ok(());
                    }
                }
            };
            let back = thread::scope(|scope| {
                let others: Vec<_> = (1..threads)
                    .map(|thread| scope.spawn(move || work(thread)))
                    .collect();
                let own = thread_that_takes_back(job, exposed, || work(0));
                let ends = others
                    .into_iter()
                    .map(|other| other.join().expect("no panic"));
                ends.collect::<Result<Vec<_>>>()?;
                own
            })?;
            let copy = back.clone();
            job.barrier()?;
            assert_eq!(back, copy, "nothing comes after the end");
            let known =
                |word: u64| word == 0 || word / 10 == round && (1..=3).contains(&(word % 10));
            for run in back.chunks(8) {
                assert!(
                    run[..3].iter().chain(&run[5..6]).copied().all(known),
                    "{run:?}"
                );
                assert_eq!(run[3..5], [0; 2]);
            }
        }
        job.barrier()
    });
}

/// Works, and takes the buffer back in the midst of what the peer does; in virtual time after it.
fn thread_that_takes_back(
    job: &Job,
    exposed: hydrant::Exposed<'static, u64>,
    work: impl FnOnce() -> Result<()> + Send,
) -> Result<Box<[u64]>> {
    if job.settings().conduit.is_virtual() {
        job.barrier()?;
        return Ok(exposed.take_back());
    }
    thread::scope(|scope| {
        let worker = scope.spawn(work);
        thread::sleep(std::time::Duration::from_millis(2));
        let back = exposed.take_back();
        worker.join().expect("no panic")?;
        Ok(back)
    })
}

/// All of it on own memory, by handle and by pointer; and in a job of one rank.
#[test_on(every)]
fn own_memory_is_a_target_like_any() {
    for ranks in [1, 2] {
        local(ranks, |job| {
            let own = job.rank();
            let [there, here] = places();
            let vector = IoVector {
                remote: &there,
                local: &here,
                run: 3,
            };
            let symmetric = job.alloc::<u64>(LEN)?;
            let exposed = job.expose(vec![0_u64; LEN])?;
            let data: Vec<u64> = (1..=3 * RUNS as u64).collect();
            for mine in [symmetric.pointer(own, 0)?, exposed.pointer(0)?] {
                for _ in 0..8 {
                    job.put_vector_to(mine, &[vector], &data)?;
                    let mut back = vec![0; data.len()];
                    job.get_vector_from(mine, &[vector], &mut back)?;
                    assert_eq!(back, data);
                }
                let word = job.atomic(mine.offset(4))?;
                assert_eq!(word.fetch_add_nb(5)?.wait()?, 0);
                let at = mine.offset(6);
                let put = job.put_signal_to_nb(mine.offset(1), vec![7; 2], at, Signal::Add(3))?;
                assert_eq!(put.wait()?, [7; 2]);
                assert_eq!([word.load()?, job.atomic(at)?.load()?], [5, 3]);
                assert_eq!(job.unpack(job.pack(mine)?)?, mine);
            }
            symmetric.put_vector(own, &[vector], &data)?;
            job.barrier()
        });
    }
}

/// Ranks leave in the midst of each other's many runs; who stays is told.
#[test_on(every)]
fn a_rank_leaves_amid_many_runs() {
    for service in [true, false] {
        let [there, here] = places();
        let ends: Vec<Result<()>> = builder().service(service).run_local(3, |job| {
            let memory = job.alloc::<u64>(LEN)?;
            let vector = IoVector {
                remote: &there,
                local: &here,
                run: 3,
            };
            job.barrier()?;
            let mut data = vec![1_u64; RUNS * 3];
            let next = job.right();
            for round in 0.. {
                if job.rank() == Rank(1) && round == 20 {
                    return Err(Error::other("had enough"));
                }
                memory.put_vector(next, &[vector], &data)?;
                memory.get_vector(next, &[vector], &mut data)?;
                drop(memory.fetch_add_nb(next, 7, 1)?);
                drop(memory.put_signal_nb(next, 0, vec![1; 3], &memory, 6, Signal::Add(1))?);
                // Memory that is mapped says nothing of its rank.
                job.quiet()?;
            }
            Ok(())
        });
        for (rank, end) in ends.into_iter().enumerate() {
            match end {
                Err(Error::Other(_)) if rank == 1 => {}
                Err(Error::PeerLost(_)) if rank != 1 => {}
                other => panic!("rank {rank}, service {service}: {other:?}"),
            }
        }
    }
}

/// Handles are waited for by other threads while the job ends, in good order or not.
#[test_on(every)]
fn handles_wait_while_the_job_ends() {
    for orderly in [true, false] {
        let kept = Mutex::new(Vec::new());
        let begun = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                while !begun.load(SeqCst) {
                    thread::yield_now();
                }
                let mut ends = Vec::new();
                loop {
                    let handle: Option<BackgroundHandle<u64>> = kept.lock().unwrap().pop();
                    match handle {
                        Some(handle) => ends.push(handle.wait()),
                        None => return ends,
                    }
                }
            });
            let ends: Vec<Result<()>> = builder().run_local(2, |job| {
                let words = job.alloc::<u64>(1)?;
                let exposed = job.expose(vec![0_u64])?;
                let theirs = job.all_gather(&[exposed.pointer(0)?])?[job.right().index()];
                for _ in 0..50 {
                    let adds = [
                        words.fetch_add_nb(job.right(), 0, 1)?,
                        job.atomic(theirs)?.fetch_add_nb(1)?,
                    ];
                    // In virtual time a rank is one thread.
                    if !job.settings().conduit.is_virtual() {
                        kept.lock().unwrap().extend(adds);
                    }
                }
                begun.store(true, SeqCst);
                if !orderly {
                    return Err(Error::other("had enough"));
                }
                job.finalize()?;
                let late = words.fetch_add_nb(job.right(), 0, 1);
                assert!(matches!(late, Err(Error::JobOver)), "{late:?}");
                Ok(())
            });
            begun.store(true, SeqCst);
            assert!(ends.iter().all(|end| end.is_ok() == orderly));
            for end in waiter.join().expect("no panic") {
                match end {
                    Ok(_) => {}
                    Err(Error::PeerLost(_) | Error::JobOver | Error::Revoked { .. })
                        if !orderly => {}
                    Err(other) => panic!("orderly {orderly}: {other}"),
                }
            }
        });
    }
}
