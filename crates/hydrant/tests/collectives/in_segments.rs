//! Collectives on memory of the segment, which others read where it lies, and on memory of both kinds.

use hydrant::{Error, Job, Op, Rank, Result, TeamRank};

use super::{SIZES, outcomes, run};

/// Short and long ones: on the agreement, in one slot, in several.
const LENGTHS: [usize; 5] = [1, 512, 513, 5000, 60_000];

fn value(rank: usize, index: usize) -> u64 {
    (rank as u64 + 1) * 1_000_003 + index as u64
}

/// Elements in the segment or elsewhere, each with its own value, given to `act`.
fn with_memory<R>(
    job: &Job,
    len: usize,
    in_segment: bool,
    act: impl FnOnce(&mut [u64]) -> Result<R>,
) -> Result<R> {
    // Collective, whoever uses it.
    let mut own = job.exclusive(job.alloc::<u64>(len)?)?;
    let mut elsewhere = vec![0; len];
    let data = if in_segment {
        &mut own[..]
    } else {
        &mut elsewhere[..]
    };
    (data.iter_mut().enumerate()).for_each(|(index, at)| *at = value(job.rank().index(), index));
    let result = act(data)?;
    let shared = job.share(own)?;
    job.free(shared)?;
    Ok(result)
}

/// Whose memory is in the segment: nobody's but of ranks whose bit is set.
fn kinds(ranks: u32) -> [u32; 4] {
    [0, u32::MAX, 1, 0b1010 % (1 << ranks)]
}

#[test_on(every)]
fn results_are_the_same_wherever_memory_lies() {
    for ranks in SIZES {
        run(ranks, |job| {
            let (n, me, world) = (ranks as usize, job.rank().index(), job.world());
            for (len, kinds) in LENGTHS
                .into_iter()
                .flat_map(|len| kinds(ranks).map(|kind| (len, kind)))
            {
                let here = kinds >> me & 1 == 1;
                for root in job.ranks() {
                    with_memory(job, len, here, |data| {
                        job.broadcast(root, data)?;
                        let expected = (0..len).map(|index| value(root.index(), index));
                        assert!(
                            data.iter().copied().eq(expected),
                            "broadcast of {len} from {root}"
                        );
                        Ok(())
                    })?;
                    with_memory(job, len, here, |data| {
                        job.reduce_in_place(root, data, Op::Sum)?;
                        let reduced = job.rank() == root;
                        for (index, at) in data.iter().enumerate() {
                            let all: u64 = (0..n).map(|rank| value(rank, index)).sum();
                            assert_eq!(*at, if reduced { all } else { value(me, index) });
                        }
                        Ok(())
                    })?;
                }
                with_memory(job, len, here, |data| {
                    // Not commutative: bytes of the right one behind those of the left one.
                    world.all_reduce_with(data, |left, right| left.wrapping_mul(31) ^ right)?;
                    for (index, at) in data.iter().enumerate() {
                        let all = (1..n).fold(value(0, index), |so_far, rank| {
                            so_far.wrapping_mul(31) ^ value(rank, index)
                        });
                        assert_eq!(*at, all, "all_reduce of {len}");
                    }
                    Ok(())
                })?;
                with_memory(job, len * n, here, |data| {
                    let mut into = vec![0; len * n];
                    world.all_to_all_into(data, &mut into)?;
                    let expected = (0..n)
                        .flat_map(|rank| (0..len).map(move |index| value(rank, me * len + index)));
                    assert!(into.iter().copied().eq(expected), "all_to_all of {len}");
                    // And back, from elsewhere into here.
                    data.fill(0);
                    world.all_to_all_into(&into, data)?;
                    let expected = (0..len * n).map(|index| value(me, index));
                    assert!(
                        data.iter().copied().eq(expected),
                        "all_to_all back of {len}"
                    );
                    Ok(())
                })?;
                with_memory(job, len, here, |data| {
                    let mut into = vec![0; len * n];
                    world.all_gather_into(data, &mut into)?;
                    let expected =
                        (0..n).flat_map(|rank| (0..len).map(move |index| value(rank, index)));
                    assert!(into.iter().copied().eq(expected), "all_gather of {len}");
                    Ok(())
                })?;
            }
            Ok(())
        });
    }
}

#[test_on(every)]
fn memory_may_change_as_soon_as_a_collective_returned() {
    run(3, |job| {
        let mut own = job.exclusive(job.alloc::<u64>(40_000)?)?;
        for round in 0..200 {
            let root = Rank(round % 3);
            // The root writes as soon as it may, while others may come late.
            own.fill(u64::from(round + job.rank().0));
            if round % 7 == 0 && job.rank() != root {
                std::thread::yield_now();
            }
            job.broadcast(root, &mut own)?;
            let expected = u64::from(round + root.0);
            assert!(own.iter().all(|at| *at == expected), "round {round}");
            own.fill(u64::MAX);
        }
        let shared = job.share(own)?;
        job.free(shared)
    });
}

#[test_on(every)]
fn elements_that_are_larger_than_a_slot_are_reduced() {
    const BYTES: usize = 40_000;
    run(4, |job| {
        let me = job.rank().0 as u8;
        let mut data = vec![[me; BYTES]; 3];
        job.world().all_reduce_with(&mut data, |left, right| {
            let mut sum = left;
            sum.iter_mut()
                .zip(right)
                .for_each(|(sum, right)| *sum += right);
            sum
        })?;
        assert!(data.as_flattened().iter().all(|byte| *byte == 6));
        Ok(())
    });
}

#[test_on(every)]
fn a_mismatch_leaves_memory_and_team_as_they_were() {
    run(3, |job| {
        let mut own = job.exclusive(job.alloc::<u64>(30_000)?)?;
        own.fill(u64::from(job.rank().0));
        for _ in 0..5 {
            let len = own.len() - job.rank().index();
            let refused = job.broadcast(Rank(0), &mut own[..len]);
            assert!(
                matches!(refused, Err(Error::CollectiveMismatch { .. })),
                "{refused:?}"
            );
            assert!(own.iter().all(|at| *at == u64::from(job.rank().0)));
            let mut sums = own.to_vec();
            job.all_reduce(&mut sums, Op::Sum)?;
            assert!(sums.iter().all(|sum| *sum == 3));
            job.all_reduce(&mut own[1..], Op::Sum)?;
            assert!(own[1..].iter().all(|sum| *sum == 3));
            own.fill(u64::from(job.rank().0));
        }
        let shared = job.share(own)?;
        job.free(shared)
    });
}

/// Whoever has a result has the right one, although others gave up and used their memory again.
#[test_on(every)]
fn a_lost_member_ends_collectives_on_memory_of_the_segment() {
    for (ranks, who) in [(2, 0), (3, 1), (5, 4)] {
        let ends = outcomes(ranks, |job| {
            let mut own = job.exclusive(job.alloc::<u64>(50_000)?)?;
            for round in 0.. {
                if job.rank().0 == who && round == 4 {
                    return Err(Error::other("had enough"));
                }
                own.fill(1 + round);
                let (root, sums) = (TeamRank(round as u32 % ranks), round % 2 == 0);
                let end = if sums {
                    job.world().all_reduce(&mut own, Op::Sum)
                } else {
                    job.world().broadcast(root, &mut own)
                };
                let expected = (1 + round) * if sums { u64::from(ranks) } else { 1 };
                let is_right = end.is_err() || own.iter().all(|at| *at == expected);
                own.fill(0);
                assert!(is_right, "round {round}");
                end?;
            }
            Ok(())
        });
        for (rank, end) in ends.into_iter().enumerate() {
            if rank as u32 == who {
                assert!(matches!(end, Err(Error::Other(_))), "{end:?}")
            } else {
                assert!(matches!(end, Err(Error::PeerLost(_))), "{end:?}")
            }
        }
    }
}
