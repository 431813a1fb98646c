//! Two hosts with two ranks each, which are pretended: what host mates do by themselves and what
//! the others have done for them meets in the same words.

use crate::support::{builder, good, local};
use hydrant::{Op, Rank, Signal};

#[test_on(mixed)]
fn a_word_is_one_word_for_mates_and_strangers() {
    const EACH: u64 = 500;
    local(4, |job| {
        let counters = job.alloc::<u64>(2)?;
        job.barrier()?;
        for n in 0..EACH {
            let owner = Rank(n as u32 % 4);
            counters.fetch_add(owner, 0, 1)?;
            // One that is taken by many at once, and given back.
            while counters.compare_swap(owner, 1, 0, 1 + u64::from(job.rank().0))? != 0 {
                std::thread::yield_now();
            }
            let taken = counters.swap(owner, 1, 0)?;
            assert_eq!(
                taken,
                1 + u64::from(job.rank().0),
                "somebody else took it, too"
            );
        }
        job.barrier()?;
        let mut sum = [counters.local()?.load(0)?];
        job.all_reduce(&mut sum, Op::Sum)?;
        assert_eq!(sum, [4 * EACH]);
        Ok(())
    });
}

#[test_on(mixed)]
fn signals_follow_what_they_announce() {
    const ROUNDS: u64 = 200;
    const LONG: usize = 3000;
    local(4, |job| {
        let memory = job.alloc::<u64>(4 * LONG)?;
        let flags = job.alloc::<u64>(4)?;
        let me = job.rank().index();
        job.barrier()?;
        for round in 1..=ROUNDS {
            let data = vec![round * 10 + me as u64; LONG];
            for peer in job.ranks().filter(|peer| *peer != job.rank()) {
                memory.put_signal(peer, me * LONG, &data, &flags, me, Signal::Set(round))?;
            }
            for from in (0..4).filter(|from| *from != me) {
                job.wait_until(&flags, from, |word| word >= round)?;
                let mut got = vec![0; LONG];
                memory.get(job.rank(), from * LONG, &mut got)?;
                let expected = round * 10 + from as u64;
                assert!(got.iter().all(|word| *word == expected), "of rank {from}");
            }
            job.barrier()?;
        }
        Ok(())
    });
}

#[test_on(mixed)]
fn every_rank_calls_every_rank_asleep_in_between() {
    local(4, |job| {
        let add = job.function(|caller: Rank, number: u64| number + u64::from(caller.0))?;
        for round in 0..50 {
            for peer in job.ranks() {
                assert_eq!(
                    job.call(peer, &add, &round)?,
                    round + u64::from(job.rank().0)
                );
            }
            if round % 10 == u64::from(job.rank().0) {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
        job.barrier()
    });
}

#[test_on(mixed)]
fn hosts_decide_the_conduit() {
    for (hosts, ranks, expected) in [
        (2, 4, "smp/smp+pin"),
        (2, 3, "smp/smp+pin"),
        // One host, and hosts with a rank each.
        (1, 4, "smp"),
        (2, 2, "smp+pin"),
    ] {
        let (tell, told) = std::sync::mpsc::channel();
        let job = builder().pretend_hosts(hosts).through(move |conduit| {
            let _ = tell.send(conduit.caps().name);
            conduit
        });
        good(job.run_local(ranks, |job| job.barrier()));
        let names: Vec<_> = told.iter().collect();
        assert_eq!(names, vec![expected; ranks as usize]);
    }
}
