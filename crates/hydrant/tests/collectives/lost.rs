//! A rank that ends while others sit in a collective.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::Duration,
};

use hydrant::{Blocks, Error, Job, Op, Rank, Result, Team, TeamRank};

use super::outcomes;
use crate::support::builder;

type Call = fn(&Team) -> Result<()>;

fn ok<T>(result: Result<T>) -> Result<()> {
    result.map(|_| ())
}

/// Each collective, over and over: short ones and long ones.
const CALLS: [(&str, Call); 20] = [
    ("barrier", |team| team.barrier()),
    ("notify and wait", |team| {
        team.notify(None)?;
        team.wait(None)
    }),
    ("broadcast", |team| team.broadcast(TeamRank(1), &mut [1_u8])),
    ("long broadcast", |team| {
        team.broadcast(TeamRank(1), &mut vec![1_u8; LONG])
    }),
    ("gather", |team| ok(team.gather(TeamRank(0), &[1_u8]))),
    ("long gather", |team| {
        ok(team.gather(TeamRank(0), &vec![1_u8; LONG]))
    }),
    ("all_gather", |team| ok(team.all_gather(&[1_u8]))),
    ("long all_gather", |team| {
        ok(team.all_gather(&vec![1_u8; LONG]))
    }),
    ("scatter", |team| {
        team.scatter(
            TeamRank(0),
            Some(&vec![1_u8; team.size() as usize]),
            &mut [0],
        )
    }),
    ("long scatter", |team| {
        let all = vec![1_u8; LONG * team.size() as usize];
        team.scatter(TeamRank(0), Some(&all), &mut vec![0; LONG])
    }),
    ("long all_to_all", |team| {
        ok(team.all_to_all(&vec![1_u8; LONG * team.size() as usize]))
    }),
    ("long all_to_all_v", |team| {
        ok(team.all_to_all_v(&vec![vec![1_u8; LONG]; team.size() as usize]))
    }),
    ("long all_to_all_v_into", |team| {
        let counts = vec![LONG; team.size() as usize];
        let (data, blocks) = (vec![1_u8; LONG * counts.len()], Blocks::packed(&counts));
        team.all_to_all_v_into(&data, blocks, &mut vec![0; data.len()], blocks)
    }),
    ("gather_v", |team| {
        let counts = vec![9; team.size() as usize];
        let mut into = vec![0; 9 * counts.len()];
        team.gather_v_into(
            TeamRank(0),
            &[1_u8; 9],
            Some((&mut into, Blocks::packed(&counts))),
        )
    }),
    ("long all_gather_in_place", |team| {
        team.all_gather_in_place(&mut vec![1_u8; LONG * team.size() as usize])
    }),
    ("long reduce_scatter", |team| {
        let data = vec![1_u8; LONG * team.size() as usize];
        team.reduce_scatter(&data, &mut vec![0; LONG], Op::Sum)
    }),
    ("long reduce", |team| {
        ok(team.reduce(TeamRank(0), &vec![1_u8; LONG], Op::Sum))
    }),
    ("long all_reduce", |team| {
        team.all_reduce(&mut vec![1_u8; LONG], Op::Sum)
    }),
    ("long scan", |team| {
        team.scan(&mut vec![1_u8; LONG], Op::Sum)
    }),
    ("split", |team| ok(team.split(Some(0), 0))),
];

const LONG: usize = 1_200_000;

/// Calls until it fails.
fn for_ever(team: &Team, call: Call) -> Result<()> {
    loop {
        call(team)?;
    }
}

/// The rank leaves after a few calls: the others sit in the next, all of them.
fn leaves(job: &Job, team: &Team, who: Rank, call: Call) -> Result<()> {
    if job.rank() != who {
        return for_ever(team, call);
    }
    for _ in 0..3 {
        call(team)?;
    }
    thread::sleep(Duration::from_millis(5));
    Err(Error::other("had enough"))
}

fn assert_all_lost(what: &str, who: Rank, ends: Vec<Result<()>>) {
    for (rank, end) in ends.into_iter().enumerate() {
        if rank == who.index() {
            assert!(matches!(end, Err(Error::Other(_))), "{what}: {end:?}");
        } else {
            // Whoever is lost first, or who ended because of that.
            assert!(
                matches!(end, Err(Error::PeerLost(_))),
                "{what} on rank {rank}: {end:?}"
            );
        }
    }
}

#[test_on(every)]
fn all_who_wait_are_told() {
    for n in [2, 3, 5, 8] {
        for (number, (what, call)) in CALLS.into_iter().enumerate() {
            let who = Rank(number as u32 % n);
            assert_all_lost(
                what,
                who,
                outcomes(n, |job| leaves(job, job.world(), who, call)),
            );
        }
    }
}

#[test_on(every)]
fn members_of_a_team_are_told() {
    for (what, call) in CALLS {
        // Team members 0..3 are ranks 4, 3, 2; ranks 0 and 1 wait for the end of the job.
        let ends = outcomes(5, |job| {
            let team = job
                .world()
                .split((job.rank().0 > 1).then_some(1), 9 - job.rank().0)?;
            team.map_or(Ok(()), |team| leaves(job, &team, Rank(3), call))
        });
        assert_all_lost(what, Rank(3), ends);
    }
}

/// Nobody who sees the loss ends for that: the others must find out by themselves.
#[test_on(every)]
fn the_loss_is_named_to_all_who_stay() {
    for n in [3, 5, 8] {
        for (what, call) in CALLS {
            let ends = outcomes(n, |job| {
                let end = leaves(job, job.world(), Rank(1), call);
                if job.rank() != Rank(1) {
                    match &end {
                        Err(Error::PeerLost(rank)) => assert_eq!(*rank, Rank(1), "{what}"),
                        other => panic!("{what}: {other:?}"),
                    }
                    // Again and again, and all the while present.
                    assert!(
                        matches!(job.barrier(), Err(Error::PeerLost(Rank(1)))),
                        "{what}"
                    );
                    assert!(
                        matches!(call(job.world()), Err(Error::PeerLost(Rank(1)))),
                        "{what}"
                    );
                    thread::sleep(Duration::from_millis(20));
                }
                end
            });
            assert_all_lost(what, Rank(1), ends);
        }
    }
}

#[test_on(every)]
fn others_go_on_without_the_team_of_the_lost() {
    let ends = outcomes(5, |job| {
        let team = job.world().split(Some(job.rank().0 % 2), 0)?;
        let Some(team) = team else { return Ok(0) };
        if job.rank() == Rank(3) {
            return Err(Error::other("had enough"));
        }
        let mut sum = 0;
        if job.rank().0.is_multiple_of(2) {
            thread::sleep(Duration::from_millis(20));
            for _ in 0..100 {
                let mut data = vec![1_u32; 10_000];
                team.all_reduce(&mut data, Op::Sum)?;
                sum += data[9_999];
            }
            assert_eq!(sum, 300);
        }
        Ok(sum)
    });
    for (rank, end) in ends.into_iter().enumerate() {
        // The job as a whole has lost a rank.
        match end {
            Err(Error::PeerLost(_)) if rank != 3 => {}
            Err(Error::Other(_)) if rank == 3 => {}
            other => panic!("rank {rank}: {other:?}"),
        }
    }
}

#[test_on(every)]
fn a_function_that_panics_ends_its_rank() {
    for len in [10, 100_000] {
        let ends = catch_unwind(AssertUnwindSafe(|| {
            outcomes(3, |job| {
                let mut data = vec![job.rank().0; len];
                job.world().all_reduce_with(&mut data, |a, b| {
                    assert!(job.rank() != Rank(1), "as asked");
                    a + b
                })?;
                job.barrier()
            })
        }));
        let cause = ends.expect_err("rank 1 panicked");
        assert_eq!(cause.downcast_ref::<&str>(), Some(&"as asked"));
    }
}

/// Who is told of a loss and calls again all the same tells nothing that those need who are still
/// in the collective before.
#[test_on(every)]
fn who_calls_again_after_a_loss_disturbs_nobody() {
    let calls = [
        ("notify and wait", CALLS[1].1),
        ("barrier", CALLS[0].1),
        ("all_gather", CALLS[6].1),
    ];
    for number in 0..60 {
        let (who, (what, call)) = (Rank(number % 4), calls[number as usize % 3]);
        let ends = outcomes(4, |job| {
            call(job.world())?;
            if job.rank() == who {
                return Err(Error::other("had enough"));
            }
            for _ in 0..4 {
                let end = call(job.world());
                assert!(matches!(end, Err(Error::PeerLost(_))), "{what}: {end:?}");
            }
            call(job.world())
        });
        assert_all_lost(what, who, ends);
    }
}

/// A job that ends well ends well for all, however late some are in its last barrier.
#[test_on(every)]
fn a_good_end_is_no_loss() {
    for _ in 0..100 {
        for end in outcomes(5, |job| job.barrier()) {
            end.unwrap();
        }
    }
}

/// Both come to a barrier, and one of them fails behind it: the other has met it all the same. Not so
/// in virtual time, where the news of an end outruns the messages in flight.
#[test_on(every)]
fn who_fails_behind_a_barrier_has_come_to_it() {
    if builder().settings().conduit.is_virtual() {
        return;
    }
    for round in 0..40 {
        let met = parking_lot::Mutex::new(None);
        let ends = builder().run_local(2, |job| {
            if job.rank() == Rank(0) {
                job.compute(20_000 * round);
                job.barrier()?;
                return Err(Error::other("rank 0 fails"));
            }
            *met.lock() = Some(job.barrier());
            Ok(())
        });
        assert!(ends[0].is_err());
        let met = met.into_inner().expect("rank 1 came to the barrier");
        met.unwrap_or_else(|cause| panic!("round {round}: {cause}"));
    }
}
