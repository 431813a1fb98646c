//! Handles and pointers to memory that was freed, taken back, or went with its job.

use hydrant::{Error, Foreign, GlobalPtr, Job, Rank, Result, Section, Signal, Stride, Symmetric};

use crate::{
    errors::fixture::Fixture,
    support::{builder, good, local},
};

const RUNS: Stride = Stride {
    start: 0,
    run: 1,
    stride: 2,
    count: 2,
};

fn pair() -> Section {
    Section::run(0, 2).expect("it is small")
}

/// Every use of memory, with what became of it.
fn uses(memory: &Symmetric<u64>, rank: Rank) -> Vec<(&'static str, Result<()>)> {
    let m = memory;
    let mut data = [7; 2];
    vec![
        ("put", m.put(rank, 0, &[1])),
        ("put_value", m.put_value(rank, 0, 1)),
        (
            "put_nb",
            m.put_nb(rank, 0, vec![1]).map(drop).map_err(Error::from),
        ),
        ("get", m.get(rank, 0, &mut data)),
        ("get_value", m.get_value(rank, 0).map(drop)),
        ("get_nb", m.get_nb(rank, 0, 1).map(drop)),
        ("fill", m.fill(rank, 0..2, 1)),
        ("put_strided", m.put_strided(rank, RUNS, &[1, 2])),
        ("get_strided", m.get_strided(rank, RUNS, &mut data)),
        (
            "put_section",
            m.put_section(rank, &pair(), &[1, 2], &pair()),
        ),
        (
            "get_section",
            m.get_section(rank, &pair(), &mut data, &pair()),
        ),
        ("put_indexed", m.put_indexed(rank, &[0, 1], &[1, 2])),
        ("get_indexed", m.get_indexed(rank, &[0, 1], &mut data)),
        (
            "put_signal",
            m.put_signal(rank, 0, &[1], m, 1, Signal::Add(1)),
        ),
        ("signal", m.signal(rank, 0, Signal::Set(1))),
        ("fetch_add", m.fetch_add(rank, 0, 1).map(drop)),
        ("add", m.add(rank, 0, 1)),
        ("swap", m.swap(rank, 0, 1).map(drop)),
        ("compare_swap", m.compare_swap(rank, 0, 0, 1).map(drop)),
        ("atomic_load", m.atomic_load(rank, 0).map(drop)),
        ("atomic_store", m.atomic_store(rank, 0, 1)),
        ("local", m.local().map(drop)),
        ("on", m.on(rank).map(drop)),
        ("pointer", m.pointer(rank, 0).map(drop)),
    ]
}

fn uses_in(job: &Job, memory: &Symmetric<u64>) -> Vec<(&'static str, Result<()>)> {
    let rank = job.right();
    let mut data = [7];
    vec![
        (
            "scope put",
            job.scope(|s| s.put(memory, rank, 0, &[1]).map(drop)),
        ),
        (
            "scope get",
            job.scope(|s| s.get(memory, rank, 0, &mut data).map(drop)),
        ),
        ("wait_until", job.wait_until(memory, 0, |_| true).map(drop)),
    ]
}

#[test_on(shared, veiled, pinned)]
fn freed() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let memory = job.alloc::<u64>(16)?;
        let (again, pointer) = (memory.clone(), memory.pointer(job.right(), 0)?);
        job.free(memory)?;
        for (what, outcome) in uses(&again, job.right())
            .into_iter()
            .chain(uses_in(job, &again))
        {
            assert!(matches!(outcome, Err(Error::Freed)), "{what}: {outcome:?}");
        }
        refused!(job.put_to(pointer, &[1]), Error::Freed, "was freed");
        refused!(job.get_from(pointer, &mut [1]), Error::Freed, "was freed");
        // The place is used anew: the stale handle does not reach the new owner.
        let fresh = job.alloc::<u64>(16)?;
        refused!(again.put(job.right(), 0, &[1]), Error::Freed, "was freed");
        refused!(job.put_to(pointer, &[1]), Error::Freed, "was freed");
        job.barrier()?;
        assert_eq!(fresh.local()?.to_vec(), [0; 16]);
        refused!(job.free(again), Error::Freed, "was freed");
        job.free(fresh)?;
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn of_a_job_that_is_over() {
    let left = local(2, |job| {
        let f = Fixture::new(job)?;
        let handler = job.handler(|_, _, _| {})?;
        let function = job.function(|_, (): ()| ())?;
        let exposed = job.expose(vec![4_u64; 3])?;
        Ok((f.memory, handler, function, exposed))
    });
    for (memory, ..) in &left {
        for (what, outcome) in uses(memory, Rank(0)) {
            assert!(
                matches!(outcome, Err(Error::JobOver)),
                "{what}: {outcome:?}"
            );
        }
    }
    local(2, |job| {
        let f = Fixture::new(job)?;
        let live = job.handler(|_, _, _| {})?;
        let (memory, handler, function, _) = &left[job.rank().index()];
        let to = job.right();
        refused!(
            job.free(memory.clone()),
            Error::ForeignHandle { what: "memory" },
            "another job"
        );
        refused!(
            job.wait_until(memory, 0, |_| true),
            Error::ForeignHandle { .. },
            "memory"
        );
        refused!(
            job.request_short(to, *handler, &[]),
            Error::ForeignHandle { what: "handler" },
            "handler"
        );
        refused!(
            job.request_medium(to, *handler, &[], &[1]),
            Error::ForeignHandle { .. },
            "handler"
        );
        // Neither half of a long message happens if the other cannot.
        refused!(
            job.request_long(to, *handler, &[], &f.memory, 0, &[1]),
            Error::ForeignHandle { what: "handler" },
            "another job"
        );
        refused!(
            job.request_long(to, live, &[], memory, 0, &[1]),
            Error::ForeignHandle { what: "memory" },
            "another job"
        );
        refused!(
            f.memory.put_signal(to, 0, &[1], memory, 0, Signal::Add(1)),
            Error::ForeignHandle { what: "memory" },
            "another job"
        );
        refused!(
            job.call(to, function, &()),
            Error::ForeignHandle { what: "function" },
            "function"
        );
        f.check(job)
    });
    // A guard that outlived its job still owns its buffer.
    for (.., exposed) in left {
        exposed.view().store(0, 5).unwrap();
        assert_eq!(exposed.take_back()[..], [5, 4, 4]);
    }
}

#[test_on(shared, veiled, pinned)]
fn taken_back() {
    for way in [Foreign::ProcessVm, Foreign::Messages] {
        good(builder().smp_foreign(way).run_local(2, |job| {
            let f = Fixture::new(job)?;
            let pointers = job.alloc::<GlobalPtr<u64>>(1)?;
            let exposed = job.expose(vec![4_u64; 1000])?;
            pointers.put(job.right(), 0, &[exposed.pointer(0)?])?;
            job.barrier()?;
            let theirs = pointers.local()?.load(0)?;
            job.put_to(theirs, &[5])?;
            job.barrier()?;
            let buffer = exposed.take_back();
            // Its place in the table is taken again, which the old pointer must not reach.
            let next = job.expose(vec![6_u64; 1000])?;
            job.barrier()?;
            let to = job.right();
            refused!(
                job.put_to(theirs, &[1; 1000]),
                Error::Revoked { rank } if rank == to, format!("rank {to}")
            );
            let mut into = [7];
            refused!(
                job.get_from(theirs, &mut into),
                Error::Revoked { .. },
                format!("rank {to}")
            );
            refused!(
                job.scope(|s| s.put_to(theirs, &[1]).map(drop)),
                Error::Revoked { .. },
                "took"
            );
            job.barrier()?;
            assert_eq!((into, buffer[..3].to_vec()), ([7], vec![5, 4, 4]));
            assert_eq!(next.take_back()[..], [6; 1000]);
            f.check(job)
        }));
    }
}

/// A scope belongs to a job, and so does memory: of two jobs that go on at once, too.
#[test_on(shared, veiled, pinned)]
fn in_a_scope_of_another_job() {
    local(2, |outer| {
        let f = Fixture::new(outer)?;
        if outer.rank() == Rank(0) {
            // With a rank more than the other has.
            good(builder().run_local(3, |inner| {
                let theirs = Fixture::new(inner)?;
                if inner.rank() == Rank(0) {
                    for rank in inner.ranks() {
                        let mut into = [7; 2];
                        refused!(
                            outer.scope(|s| s.put(&theirs.memory, rank, 0, &[1, 2]).map(drop)),
                            Error::ForeignHandle { what: "memory" },
                            "another job"
                        );
                        refused!(
                            outer.scope(|s| s.get(&theirs.memory, rank, 0, &mut into).map(drop)),
                            Error::ForeignHandle { what: "memory" },
                            "another job"
                        );
                        let pointer = theirs.memory.pointer(rank, 0)?;
                        refused!(
                            outer.scope(|s| s.put_to(pointer, &[1, 2]).map(drop)),
                            Error::ForeignHandle { .. },
                            "another job"
                        );
                        assert_eq!(into, [7; 2]);
                    }
                }
                theirs.check(inner)
            }));
        }
        f.check(outer)
    });
}
