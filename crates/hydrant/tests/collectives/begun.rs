//! Collectives that are begun and not waited for: every one against the serial answer, several at once,
//! and among everything else that a rank does.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use hydrant::{BackgroundHandle, Blocks, Error, Job, Op, Rank, Result, Team, when_all, when_any};
use hydrant_base::block_on;

use super::{outcomes, run};
use crate::support::{self, local};

/// Data piggybacked on the agreement, and data that is not; with several members more than a chunk.
const LENGTHS: [usize; 2] = [3, 5000];
const LONG: usize = 50_000;

/// What a rank has at an index.
fn value(rank: usize, index: usize) -> u64 {
    (rank as u64 * 7919 + index as u64 + 1).wrapping_mul(0x2545_f491_4f6c_dd1d)
}

fn values(rank: usize, len: usize) -> Vec<u64> {
    (0..len).map(|index| value(rank, index)).collect()
}

fn sum(ranks: std::ops::Range<usize>, len: usize) -> Vec<u64> {
    let at = |index| (ranks.clone()).fold(0, |sum: u64, rank| sum.wrapping_add(value(rank, index)));
    (0..len).map(at).collect()
}

/// One collective's answer, and what it should be.
fn same<R: PartialEq + std::fmt::Debug>(
    what: &str,
    begun: BackgroundHandle<R>,
    expected: R,
) -> Result<()> {
    let found = begun.wait()?;
    assert!(found == expected, "{what}");
    Ok(())
}

/// All that bring elements are begun before the first is waited for.
fn moves(job: &Job, len: usize) -> Result<()> {
    let (n, me) = (job.size() as usize, job.rank().index());
    let root = Rank((len % n) as u32);
    let at_root = root == job.rank();
    let mine = values(me, len);
    let all: Vec<u64> = (0..n).flat_map(|rank| values(rank, len)).collect();
    let across: Vec<u64> = (0..n).flat_map(|to| values(me * n + to, len)).collect();
    let crossed: Vec<u64> = (0..n).flat_map(|from| values(from * n + me, len)).collect();
    // Of any length, from the last member's to the first's, one element apart.
    let counts: Vec<usize> = (0..n).map(|rank| len * ((rank + 1) % 3)).collect();
    let at: Vec<usize> = (0..n)
        .map(|rank| counts[rank + 1..].iter().sum::<usize>() + n - rank)
        .collect();
    let room = counts.iter().sum::<usize>() + n + 1;
    let mut spread = vec![9; room];
    for rank in 0..n {
        spread[at[rank]..][..counts[rank]].copy_from_slice(&values(rank, counts[rank]));
    }
    let blocks = Blocks::at(&counts, &at);
    let part = values(me, counts[me]);
    let mut own_only = vec![9; room];
    own_only[at[me]..][..counts[me]].copy_from_slice(&part);
    let mut in_place = vec![0; n * len];
    in_place[me * len..][..len].copy_from_slice(&mine);

    let barrier = job.barrier_nb()?;
    let named = job.barrier_named_nb(len as u64)?;
    let broadcast = job.broadcast_nb(root, mine.clone())?;
    let gather = job.gather_nb(root, mine.clone())?;
    let into = at_root.then(|| (vec![9; room], blocks));
    let gather_v = job.gather_v_into_nb(root, part.clone(), into)?;
    let all_gather = job.all_gather_nb(mine.clone())?;
    let all_gather_in_place = job.all_gather_in_place_nb(in_place)?;
    let all_gather_v = job.all_gather_v_into_nb(part.clone(), vec![9; room], blocks)?;
    let all_gather_v_in_place = job.all_gather_v_in_place_nb(own_only.clone(), blocks)?;
    let scatter = job.scatter_nb(root, at_root.then(|| all.clone()), vec![0; len])?;
    let given = at_root.then(|| (spread.clone(), blocks));
    let scatter_v = job.scatter_v_nb(root, given, vec![0; counts[me]])?;
    let all_to_all = job.all_to_all_nb(across.clone())?;
    let parts: Vec<_> = (0..n).map(|to| values(me * n + to, len + to)).collect();
    let all_to_all_v = job.all_to_all_v_nb(parts)?;
    let even = vec![len; n];
    let (even, into) = (Blocks::packed(&even), vec![0; n * len]);
    let all_to_all_v_into = job.all_to_all_v_into_nb(across, even, into, even)?;

    // The last first.
    same("all_to_all_v_into", all_to_all_v_into, crossed.clone())?;
    let expected = (0..n).map(|from| values(from * n + me, len + me)).collect();
    same("all_to_all_v", all_to_all_v, expected)?;
    same("all_to_all", all_to_all, crossed)?;
    same("scatter_v", scatter_v, part)?;
    same("scatter", scatter, mine)?;
    same(
        "all_gather_v_in_place",
        all_gather_v_in_place,
        spread.clone(),
    )?;
    same("all_gather_v", all_gather_v, spread.clone())?;
    same("all_gather_in_place", all_gather_in_place, all.clone())?;
    same("all_gather", all_gather, all.clone())?;
    same("gather_v", gather_v, at_root.then_some(spread))?;
    same("gather", gather, at_root.then_some(all))?;
    same("broadcast", broadcast, values(root.index(), len))?;
    same("barrier_named", named, ())?;
    same("barrier", barrier, ())?;
    job.all_gather_v_in_place(&mut own_only, blocks)
}

/// All that reduce are begun before the first is waited for.
fn reductions(job: &Job, len: usize) -> Result<()> {
    let (n, me) = (job.size() as usize, job.rank().index());
    let root = Rank((len % n) as u32);
    let at_root = root == job.rank();
    let mine = || values(me, len);
    let add = u64::wrapping_add;
    let counts: Vec<usize> = (0..n).map(|rank| len * ((rank + 1) % 3)).collect();
    let before: usize = counts[..me].iter().sum();
    let total = counts.iter().sum();
    let reduced = at_root.then(|| sum(0..n, len));
    let here = if at_root { sum(0..n, len) } else { mine() };
    let part = sum(0..n, n * len)[me * len..][..len].to_vec();
    let block = sum(0..n, total)[before..][..counts[me]].to_vec();
    let (data, room) = (values(me, n * len), vec![0; len]);
    let (uneven, uneven_room) = (values(me, total), vec![0; counts[me]]);

    let reduce = [
        job.reduce_nb(root, mine(), Op::Sum)?,
        job.reduce_with_nb(root, mine(), add)?,
    ];
    let in_place = [
        job.reduce_in_place_nb(root, mine(), Op::Sum)?,
        job.reduce_in_place_with_nb(root, mine(), add)?,
    ];
    let everywhere = [
        job.all_reduce_nb(mine(), Op::Sum)?,
        job.all_reduce_with_nb(mine(), add)?,
    ];
    let scattered = [
        job.reduce_scatter_nb(data.clone(), room.clone(), Op::Sum)?,
        job.reduce_scatter_with_nb(data, room, add)?,
    ];
    let blocks = [
        job.reduce_scatter_v_nb(uneven.clone(), counts.clone(), uneven_room.clone(), Op::Sum)?,
        job.reduce_scatter_v_with_nb(uneven, counts, uneven_room, add)?,
    ];
    let scans = [
        job.scan_nb(mine(), Op::Sum)?,
        job.scan_with_nb(mine(), add)?,
    ];
    let before = [
        job.exclusive_scan_nb(mine(), Op::Sum)?,
        job.exclusive_scan_with_nb(mine(), 0, add)?,
    ];
    for (what, handles, expected) in [
        ("reduce_in_place", in_place, here),
        ("all_reduce", everywhere, sum(0..n, len)),
        ("reduce_scatter", scattered, part),
        ("reduce_scatter_v", blocks, block),
        ("scan", scans, sum(0..me + 1, len)),
        ("exclusive_scan", before, sum(0..me, len)),
    ] {
        for begun in handles {
            same(what, begun, expected.clone())?;
        }
    }
    for begun in reduce {
        same("reduce", begun, reduced.clone())?;
    }
    Ok(())
}

#[test_on(every)]
fn every_collective_gives_the_serial_answer() {
    for n in [1, 2, 3, 5, 8] {
        run(n, |job| {
            for len in LENGTHS {
                moves(job, len)?;
                reductions(job, len)?;
            }
            Ok(())
        });
    }
}

/// Rows and columns of a grid, begun in another order on every rank, with all else in between.
#[test_on(every)]
fn teams_go_on_apart_from_each_other() {
    run(6, |job| {
        let me = job.rank().0;
        let team = |color| job.world().split(Some(color), 0);
        let (Some(row), Some(column)) = (team(me / 3)?, team(me % 3)?) else {
            panic!("every rank is of a row and of a column");
        };
        let field = job.alloc::<u64>(1)?;
        for round in 0..20 {
            let data = vec![u64::from(me) + round; 2000];
            let begin = |team: &Team| team.all_reduce_nb(data.clone(), Op::Sum);
            let (of_row, of_column) = match me % 2 {
                0 => (begin(&row)?, begin(&column)?),
                _ => {
                    let of_column = begin(&column)?;
                    (begin(&row)?, of_column)
                }
            };
            let of_world = job.all_gather_nb(vec![me; 100])?;
            field.put(job.right(), 0, &[round])?;
            // It comes after those of its team, which others may still go on with.
            row.barrier()?;
            let of_row_again = begin(&row)?;
            job.barrier()?;
            assert_eq!(field.local()?.load(0)?, round);
            let sum = |members: &[Rank]| -> u64 {
                members.iter().map(|rank| u64::from(rank.0) + round).sum()
            };
            assert_eq!(of_column.wait()?[1999], sum(column.members()));
            assert_eq!(of_world.wait()?[599], 5);
            assert_eq!(of_row_again.wait()?[0], sum(row.members()));
            assert_eq!(of_row.wait()?[0], sum(row.members()));
            job.barrier()?;
        }
        Ok(())
    });
}

/// Some wait where others go on: it is the same collective.
#[test_on(every)]
fn forms_may_be_mixed() {
    run(4, |job| {
        for len in LENGTHS {
            let mut data = values(job.rank().index(), len);
            if job.rank().0.is_multiple_of(2) {
                data = job.all_reduce_nb(data, Op::Sum)?.wait()?;
            } else {
                job.all_reduce(&mut data, Op::Sum)?;
            }
            assert_eq!(data, sum(0..4, len));
        }
        Ok(())
    });
}

/// Awaited, on an executor that only sleeps and on a thread that looks after messages.
async fn sums(job: &Job) -> Result<()> {
    let n = job.size() as usize;
    for _ in 0..3 {
        let data = || values(job.rank().index(), LONG);
        let begun = (0..4).map(|_| job.all_reduce_nb(data(), Op::Sum));
        for found in when_all(begun.collect::<Result<Vec<_>>>()?).await {
            assert!(found? == sum(0..n, LONG));
        }
        job.barrier_nb()?.await?;
        let two = [
            job.broadcast_nb(Rank(0), data())?,
            job.scan_nb(data(), Op::Sum)?,
        ];
        let (_, found, others) = when_any(two).await;
        found?;
        for other in others {
            other.await?;
        }
    }
    Ok(())
}

#[test_on(every)]
fn they_are_futures() {
    run(3, |job| block_on(sums(job)));
    run(3, |job| job.wait_for(sums(job))?);
    support::good(
        support::builder()
            .service(false)
            .run_local(2, |job| block_on(sums(job))),
    );
}

#[test_on(every)]
fn results_are_given_once() {
    run(3, |job| {
        let mut begun = job.all_reduce_nb(vec![1_u8], Op::Sum)?;
        while !begun.test()? {}
        assert!(begun.test()?, "it stays over");
        assert_eq!(job.wait_for(&mut begun)??, [3]);
        assert!(begun.test()?, "it is over");
        let again = job.wait_for(&mut begun)?;
        assert!(matches!(again, Err(Error::OutOfTurn { .. })), "{again:?}");
        assert!(matches!(begun.wait(), Err(Error::OutOfTurn { .. })));
        Ok(())
    });
}

/// The others rely on it, and so does the end of the job.
#[test_on(every)]
fn what_was_dropped_goes_on() {
    run(4, |job| {
        let team = job.world().split(Some(0), 0)?.expect("all are members");
        let all = (0..10)
            .map(|_| {
                let begun = team.all_reduce_nb(vec![1_u32; LONG], Op::Sum)?;
                Ok((job.rank() != Rank(1)).then_some(begun))
            })
            .collect::<Result<Vec<_>>>()?;
        drop(team);
        for begun in all.into_iter().flatten() {
            assert_eq!(begun.wait()?[LONG - 1], 4);
        }
        // Nobody waits for this one but the end of the job.
        drop(job.all_gather_nb(vec![job.rank().0; LONG])?);
        Ok(())
    });
}

#[test_on(every)]
fn disagreement_is_told_to_all_and_the_queue_goes_on() {
    run(4, |job| {
        for len in LENGTHS {
            let first = job.all_reduce_nb(vec![1_u64; len], Op::Sum)?;
            let odd = match job.rank() {
                Rank(2) => job.scan_nb(vec![1_u64; len], Op::Sum)?,
                _ => job.all_reduce_nb(vec![1_u64; len], Op::Sum)?,
            };
            let unfit = job.broadcast_nb(Rank(job.rank().0 / 3 * 9), vec![1_u64; len])?;
            let last = job.all_reduce_nb(vec![1_u64; len], Op::Sum)?;
            assert_eq!(last.wait()?, vec![4; len]);
            let odd = odd.wait();
            assert!(
                matches!(odd, Err(Error::CollectiveMismatch { .. })),
                "{odd:?}"
            );
            match (job.rank(), unfit.wait()) {
                (Rank(3), Err(Error::RankOutOfRange { .. })) => {}
                (Rank(3), other) => panic!("{other:?}"),
                (_, other) => assert!(
                    matches!(other, Err(Error::CollectiveMismatch { .. })),
                    "{other:?}"
                ),
            }
            assert_eq!(first.wait()?, vec![4; len]);
        }
        Ok(())
    });
}

#[test_on(every)]
fn a_lost_member_ends_all_that_were_begun() {
    for len in [3, LONG] {
        let ends = outcomes(4, |job| {
            job.barrier()?;
            if job.rank() == Rank(2) {
                return Err(Error::other("had enough"));
            }
            let begin = || job.all_reduce_nb(vec![1_u64; len], Op::Sum);
            let mut begun = (0..3).map(|_| begin()).collect::<Result<Vec<_>>>()?;
            let tested = begun.pop().map(|mut begun| {
                loop {
                    match begun.test() {
                        Ok(false) => {}
                        ended => return ended,
                    }
                }
            });
            assert!(
                matches!(tested, Some(Err(Error::PeerLost(_)))),
                "{tested:?}"
            );
            let awaited = begun.pop().map(block_on);
            assert!(
                matches!(awaited, Some(Err(Error::PeerLost(_)))),
                "{awaited:?}"
            );
            assert!(matches!(job.barrier(), Err(Error::PeerLost(_))));
            begun.pop().expect("three were begun").wait().map(drop)
        });
        for (rank, end) in ends.into_iter().enumerate() {
            match end {
                Err(Error::Other(_)) if rank == 2 => {}
                Err(Error::PeerLost(_)) if rank != 2 => {}
                other => panic!("rank {rank}: {other:?}"),
            }
        }
    }
}

/// A handle may be asked by any thread, while others poll; after the job it says so.
#[test_on(every)]
fn handles_change_threads() {
    let kept = run(3, |job| {
        for _ in 0..10 {
            let begun = job.all_reduce_nb(vec![1_u64; LONG], Op::Sum)?;
            let other = job.all_gather_nb(vec![1_u8; 9])?;
            // In virtual time a rank is one thread.
            let sum = if format!("{:?}", job.settings().conduit).contains("Sim") {
                begun.wait()
            } else {
                thread::scope(|threads| threads.spawn(|| begun.wait()).join().expect("no panic"))
            };
            assert_eq!(sum?[7], 3);
            assert_eq!(other.wait()?.len(), 27);
        }
        job.barrier_nb()
    });
    for mut begun in kept {
        assert!(begun.test().unwrap(), "the end of the job waited for it");
        begun.wait().unwrap();
    }
}

/// It panics where the result is asked for, and nowhere else.
#[test_on(every)]
fn a_function_that_panics_does_so_at_the_handle() {
    run(3, |job| {
        let begun = job.all_reduce_with_nb(vec![1_u8], |_, _| panic!("as asked"))?;
        let next = job.all_reduce_nb(vec![1_u8], Op::Sum)?;
        assert_eq!(next.wait()?, [3]);
        let cause = catch_unwind(AssertUnwindSafe(|| begun.wait())).expect_err("it panicked");
        assert_eq!(cause.downcast_ref::<&str>(), Some(&"as asked"));
        Ok(())
    });
}

/// Not between the two calls of a barrier, and those that block come after.
#[test_on(every)]
fn turns_are_kept() {
    run(3, |job| {
        job.barrier_notify(None)?;
        let early = job.barrier_nb();
        assert!(matches!(early, Err(Error::OutOfTurn { .. })));
        job.barrier_wait(None)?;
        let begun = job.all_reduce_nb(vec![1_u64; LONG], Op::Sum)?;
        let unasked = job.barrier_wait(None);
        assert!(
            matches!(unasked, Err(Error::OutOfTurn { .. })),
            "{unasked:?}"
        );
        job.barrier_notify(None)?;
        job.barrier_wait(None)?;
        assert_eq!(begun.wait()?[0], 3);
        Ok(())
    });
}

/// A function that reduces runs in whatever thread goes on with the collective, as handlers do.
#[test_on(every)]
fn functions_in_the_background_may_not_wait() {
    local(2, |job| {
        let here = job.downgrade();
        let begun = job.world().all_reduce_with_nb(vec![1_u64], move |a, b| {
            let job = here.upgrade().expect("the job goes on");
            let waited = job.barrier();
            assert!(matches!(waited, Err(Error::InHandler { .. })), "{waited:?}");
            a + b
        })?;
        assert_eq!(begun.wait()?, [2]);
        job.barrier()
    });
}
