//! Where time is virtual it passes in every call, and what is waited for comes to its end.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
    thread,
    time::Duration,
};

use hydrant::{
    ConduitKind, Error, Exposed, GlobalPtr, Job, Rank, Result, Strategy, Symmetric, Team,
};

const MACHINES: [&str; 3] = ["ideal", "myrinet-gm", "connectx"];

/// Jobs of so many ranks on each machine: what their ranks return.
fn on_each<R: Send>(ranks: u32, body: impl Fn(&Job) -> Result<R> + Sync) -> Vec<Vec<R>> {
    let run = |machine: &str| {
        let builder = Job::builder().unwrap().heap(16 << 20);
        let ends = (builder.conduit(ConduitKind::Sim(machine.to_owned()))).run_local(ranks, &body);
        ends.into_iter().map(|end| end.unwrap()).collect()
    };
    MACHINES.map(run).into()
}

/// Rank 1 writes a page, and rank 0 looks until it sees that: whether its NIC takes it alone, or
/// the rank is asked for something first.
fn a_write_is_seen(look: impl Fn(&Job, &Symmetric<u64>) -> Result<u64> + Sync) {
    for asked in [false, true] {
        on_each(2, |job| {
            let words = job.alloc::<u64>(512)?;
            // Registered on both sides: from now on rank 0 has nothing to do for a put.
            if job.rank() == Rank(1) && !asked {
                words.put(Rank(0), 0, &[1; 512])?;
            }
            job.barrier()?;
            if job.rank() == Rank(1) {
                job.compute(100_000);
                words.put(Rank(0), 0, &[7; 512])?;
            } else {
                while look(job, &words)? != 7 {}
            }
            job.barrier()
        });
    }
}

/// The same in an exposed buffer of rank 0.
fn a_write_to_a_buffer_is_seen(look: impl Fn(&Job, &Exposed<'_, u64>) -> Result<u64> + Sync) {
    on_each(2, |job| {
        let pointers = job.alloc::<GlobalPtr<u64>>(1)?;
        let lent = job.expose(vec![0_u64; 512])?;
        pointers.put_value(job.left(), 0, lent.pointer(0)?)?;
        job.barrier()?;
        if job.rank() == Rank(1) {
            job.compute(100_000);
            job.put_to(pointers.local()?.load(0)?, &[7; 512])?;
        } else {
            while look(job, &lent)? != 7 {}
        }
        job.barrier()
    });
}

#[test_on(simulated)]
fn a_loop_of_loads_ends() {
    a_write_is_seen(|_, words| words.local()?.load(0));
}

#[test_on(simulated)]
fn a_loop_of_waits_for_what_is_so_already_ends() {
    a_write_is_seen(|job, words| job.wait_until(words, 0, |_| true));
}

#[test_on(simulated)]
fn a_loop_of_reads_ends() {
    a_write_is_seen(|_, words| {
        let mut word = [0];
        words.local()?.read(0, &mut word)?;
        Ok(word[0])
    });
}

#[test_on(simulated)]
fn a_loop_of_gets_of_own_memory_ends() {
    a_write_is_seen(|_, words| words.get_value(Rank(0), 0));
    a_write_is_seen(|_, words| {
        let mut word = [0];
        words.get(Rank(0), 0, &mut word)?;
        Ok(word[0])
    });
}

#[test_on(simulated)]
fn a_loop_of_atomic_operations_on_own_memory_ends() {
    a_write_is_seen(|_, words| words.atomic_load(Rank(0), 0));
    a_write_is_seen(|_, words| words.fetch_or(Rank(0), 0, 0));
    a_write_is_seen(|_, words| words.compare_swap(Rank(0), 0, 7, 7));
}

#[test_on(simulated)]
fn a_loop_of_looks_at_an_exposed_buffer_ends() {
    a_write_to_a_buffer_is_seen(|_, lent| lent.view().load(0));
    a_write_to_a_buffer_is_seen(|_, lent| Ok(lent.view().to_vec()[0]));
    a_write_to_a_buffer_is_seen(|job, lent| {
        let mut word = [0];
        job.get_from(lent.pointer(0)?, &mut word)?;
        Ok(word[0])
    });
}

#[test_on(simulated)]
#[allow(unsafe_code)] // looks at memory as no call of the library does
fn a_loop_of_fences_ends() {
    a_write_is_seen(|job, words| {
        job.fence()?;
        let word = words.local()?.as_ptr();
        // SAFETY: an aligned word that lives while this runs, and that all change atomically.
        Ok(unsafe { AtomicU64::from_ptr(word) }.load(Acquire))
    });
}

#[test_on(simulated)]
fn a_loop_of_looks_at_the_clock_ends() {
    on_each(2, |job| {
        let until = job.now() + Duration::from_micros(500);
        while job.now() < until {}
        job.barrier()
    });
}

/// The news that a rank is lost does not overtake what it had sent.
#[test_on(simulated)]
fn what_a_rank_sent_before_it_failed_is_handled_first() {
    for machine in MACHINES {
        let heard = Arc::new(AtomicU64::new(0));
        let known = AtomicU64::new(0);
        let builder = Job::builder().unwrap().heap(16 << 20);
        let builder = builder.conduit(ConduitKind::Sim(machine.to_owned()));
        let ends = builder.run_local(2, |job| {
            let counts = Arc::clone(&heard);
            let noted = job.handler(move |_, _, _| _ = counts.fetch_add(1, AcqRel))?;
            job.barrier()?;
            if job.rank() == Rank(1) {
                for _ in 0..3 {
                    job.request_medium(Rank(0), noted, &[], &[7; 1000])?;
                }
                return Err(Error::Freed);
            }
            let end = job.barrier();
            assert!(matches!(end, Err(Error::PeerLost(Rank(1)))), "{end:?}");
            known.store(heard.load(Acquire), Release);
            end
        });
        assert!(ends.iter().all(Result::is_err), "{machine}: {ends:?}");
        assert_eq!(known.load(Acquire), 3, "{machine}: some were not handled");
    }
}

#[test_on(simulated)]
fn handles_that_outlive_their_job_come_to_an_end() {
    for len in [64, 5000, 300_000, 8 << 20] {
        let handles = on_each(3, |job| {
            let memory = job.alloc::<u8>(8 << 20)?;
            job.barrier()?;
            let put = memory.put_nb(job.right(), 0, vec![3; len])?;
            let get = memory.get_nb(job.right(), 0, len)?;
            Ok((put, get))
        });
        for (put, get) in handles.into_iter().flatten() {
            // Whole, or lost with the job, but over.
            if let Ok(sent) = put.wait() {
                assert_eq!(sent.len(), len);
            }
            if let Ok(got) = get.wait() {
                assert_eq!(got.len(), len);
            }
        }
    }
}

/// Who unlocks a mutex of another rank does not wait for its answer, and gets it again all the same.
#[test_on(simulated)]
fn an_unlock_asks_and_goes_on() {
    for times in on_each(2, |job| {
        let mutexes = job.mutexes(1)?;
        let mut times = [Duration::ZERO; 2];
        if job.rank() == Rank(0) {
            // The first is for what is set up once.
            for _ in 0..2 {
                let begun = job.now();
                let held = mutexes.lock(Rank(1), 0)?;
                let locked = job.now();
                held.unlock()?;
                times = [locked - begun, job.now() - locked];
                job.quiet()?;
            }
        }
        job.barrier()?;
        job.free_mutexes(&mutexes)?;
        Ok(times)
    }) {
        let [lock, unlock] = times[0];
        assert!(
            unlock < lock / 2,
            "locked in {lock:?}, unlocked in {unlock:?}"
        );
    }
}

/// A put that is copied into messages needs its source no longer when the last of them was sent, which
/// is before the peer has answered that.
#[test_on(simulated)]
fn a_copied_put_leaves_before_it_is_there() {
    for len in [64, 5000, 300_000] {
        let builder = Job::builder().unwrap().heap(16 << 20);
        let builder = builder.registration(Strategy::Bounce);
        let machine = ConduitKind::Sim("myrinet-gm".to_owned());
        let ends = builder.conduit(machine).run_local(2, |job| {
            let there = job.alloc::<u8>(len)?;
            if job.rank() == Rank(0) {
                let mut put = there.put_nb(Rank(1), 0, vec![5; len])?;
                put.wait_local()?;
                assert!(!put.test()?, "{len} bytes are there at once");
                assert_eq!(put.wait()?, vec![5; len]);
            }
            job.barrier()?;
            if job.rank() == Rank(1) {
                let mut found = vec![0; len];
                there.get(Rank(1), 0, &mut found)?;
                assert_eq!(found, vec![5; len]);
            }
            job.barrier()
        });
        ends.into_iter().for_each(|end| end.unwrap());
    }
}

/// Runs that are put, added to and got go on while the program computes, and come to their places.
#[test_on(simulated)]
fn packed_runs_are_under_way_until_they_are_waited_for() {
    use hydrant::{Factor, Number};
    let bytes: Vec<u8> = (0..40_000_u32).map(|at| at as u8).collect();
    on_each(2, |job| {
        let there = job.alloc::<u8>(100_000)?;
        if job.rank() == Rank(0) {
            let places = |run: usize| (run * 2500, &bytes[run * 1000..][..1000]);
            let mut put = there.put_runs_nb(Rank(1), (0..40).map(places))?;
            assert!(!put.test()?, "it is there at once");
            put.wait()?;
            let factor = Factor::from_bytes(Number::I32, &2_i32.to_le_bytes()).unwrap();
            let ones = [1_i32, -1].map(i32::to_le_bytes).concat();
            let runs = [(2400, &ones[..]), (2408, &ones), (2400, &ones[..4])];
            let mut added = there.accumulate_runs_nb(Rank(1), &factor, runs)?;
            assert!(!added.test()?, "it is added at once");
            added.wait()?;
            let runs = (0..40).map(|run| (run * 2500, 1000)).chain([(2400, 16)]);
            let mut got = there.get_runs_nb(Rank(1), runs)?;
            assert!(!got.test()?, "it comes at once");
            let got = got.wait()?;
            assert_eq!(got[..40_000], bytes);
            let sums: Vec<_> = (got[40_000..].chunks(4))
                .map(|it| i32::from_le_bytes(it.try_into().unwrap()))
                .collect();
            assert_eq!(sums, [4, -2, 2, -2]);
            let outside = there.put_runs_nb(Rank(1), [(0, &ones[..]), (99_995, &ones)]);
            assert!(outside.is_err());
            assert!(
                there
                    .accumulate_runs_nb(Rank(1), &factor, [(0, &ones[..3])])
                    .is_err()
            );
        }
        job.barrier()
    });
}

/// Each thread has a long collective of its own, and may wait for what the other registers or gives up.
#[test_on(simulated)]
fn threads_have_memory_registered_beside_each_other() {
    const LEN: usize = 300_000;
    for (machine, strategy) in [
        ("myrinet-gm", Strategy::Auto),
        ("myrinet-gm", Strategy::PinEverything),
        ("connectx", Strategy::Auto),
    ] {
        let builder = Job::builder()
            .unwrap()
            .heap(16 << 20)
            .registration(strategy);
        let builder = builder.conduit(ConduitKind::Sim(machine.to_owned()));
        let ends = builder.m(1 << 20).maxvictim(1 << 20).run_local(2, |job| {
            let me = job.rank().0;
            let team = || Ok::<_, Error>(job.world().split(Some(0), me)?.expect("a member"));
            let teams = [team()?, team()?];
            let place = job.alloc::<u8>(LEN)?;
            for _ in 0..20 {
                thread::scope(|threads| {
                    let all_gather = |team: &Team| {
                        let (mine, mut all) = (vec![me as u8; LEN], vec![9; 2 * LEN]);
                        team.all_gather_into(&mine, &mut all)?;
                        assert!(all[..LEN] == [0; LEN] && all[LEN..] == [1; LEN]);
                        Ok(())
                    };
                    let gathering = teams
                        .each_ref()
                        .map(|it| threads.spawn(move || all_gather(it)));
                    place.put(job.right(), 0, &vec![me as u8; LEN])?;
                    let ends = gathering.map(|it| it.join().expect("no panic"));
                    ends.into_iter().collect::<Result<()>>()
                })?;
            }
            job.barrier()
        });
        ends.into_iter().for_each(Result::unwrap);
    }
}

/// The helper of `foresight` is a thread of the rank, too.
#[test_on(simulated)]
fn a_helper_registers_beside_collectives() {
    const LEN: usize = 400_000;
    let builder = Job::builder().unwrap().heap(16 << 20);
    let builder = builder.conduit(ConduitKind::Sim("myrinet-gm".to_owned()));
    let builder = builder.registration(Strategy::Foresight);
    let ends = builder.m(64 << 20).maxvictim(64 << 20).run_local(2, |job| {
        let me = job.rank().0;
        let place = job.alloc::<u8>(LEN)?;
        let (mine, other) = (vec![me as u8; LEN], vec![7_u8; LEN]);
        let (mut all, mut got) = (vec![9_u8; 2 * LEN], vec![1_u8; LEN]);
        for turn in 0..60_u64 {
            place.put(job.right(), 0, &mine)?;
            job.compute((turn * 7919) % 40_000);
            place.put(job.right(), 0, &other)?;
            place.get(job.right(), 0, &mut got)?;
            job.compute((turn * 104_729) % 60_000);
            job.all_gather_into(&mine, &mut all)?;
            assert!(all[..LEN] == [0; LEN] && all[LEN..] == [1; LEN]);
            job.broadcast(Rank(turn as u32 % 2), &mut got)?;
            let (to, from) = (job.right(), job.left());
            job.send_receive((to, 3, &mine[..]), (from, 3, &mut got[..]))?;
        }
        Ok(())
    });
    ends.into_iter().for_each(Result::unwrap);
}
