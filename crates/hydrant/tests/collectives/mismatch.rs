//! Ranks that disagree: an error on each of them, nothing changed, and the team goes on.

use hydrant::{Blocks, Error, Job, Op, Rank, Result};

use super::{outcomes, run};

/// Some collective, called by some rank in some way.
type Call = fn(&Job) -> Result<()>;

fn ok<T>(result: Result<T>) -> Result<()> {
    result.map(|_| ())
}

/// One way to call each collective, small, and large where that goes another way.
const CALLS: [(&str, Call); 26] = [
    ("barrier", |job| job.barrier_named(1)),
    ("barrier named otherwise", |job| job.barrier_named(2)),
    ("split phase", |job| {
        job.barrier_notify(Some(3))?;
        job.barrier_wait(Some(3))
    }),
    ("alloc", |job| ok(job.alloc::<u8>(10))),
    ("split", |job| ok(job.world().split(Some(1), 0))),
    ("broadcast", |job| {
        unchanged(job, 3, |job, data| job.broadcast(Rank(1), data))
    }),
    ("broadcast of more", |job| {
        unchanged(job, 4, |job, data| job.broadcast(Rank(1), data))
    }),
    ("broadcast from elsewhere", |job| {
        unchanged(job, 3, |job, data| job.broadcast(Rank(0), data))
    }),
    ("long broadcast", |job| {
        unchanged(job, 9000, |job, data| job.broadcast(Rank(1), data))
    }),
    ("gather", |job| ok(job.gather(Rank(0), &[1_u64; 3]))),
    ("gather of bytes", |job| ok(job.gather(Rank(0), &[1_u8; 3]))),
    ("all_gather", |job| ok(job.all_gather(&[1_u64; 3]))),
    ("long all_gather", |job| ok(job.all_gather(&[1_u64; 9000]))),
    ("scatter", |job| {
        let all = vec![5; 2 * job.size() as usize];
        unchanged(job, 2, |job, data| job.scatter(Rank(1), Some(&all), data))
    }),
    ("all_to_all", |job| {
        ok(job.all_to_all(&vec![1_u64; 2 * job.size() as usize]))
    }),
    ("all_to_all_v", |job| {
        ok(job.all_to_all_v(&vec![vec![job.rank().0]; job.size() as usize]))
    }),
    ("all_to_all_v_into of bytes", |job| {
        let counts = vec![1; job.size() as usize];
        let (data, mut into) = (vec![1_u8; counts.len()], vec![0; counts.len()]);
        let blocks = Blocks::packed(&counts);
        job.all_to_all_v_into(&data, blocks, &mut into, blocks)
    }),
    ("all_gather_v", |job| {
        let counts = vec![3; job.size() as usize];
        unchanged(job, 3 * counts.len(), |job, data| {
            job.all_gather_v_into(&[1; 3], data, Blocks::packed(&counts))
        })
    }),
    ("gather_v", |job| {
        let counts = vec![3; job.size() as usize];
        unchanged(job, 3 * counts.len(), |job, data| {
            job.gather_v_into(Rank(0), &[1; 3], Some((data, Blocks::packed(&counts))))
        })
    }),
    ("scatter_v", |job| {
        let counts = vec![3; job.size() as usize];
        let all = vec![5; 3 * counts.len()];
        unchanged(job, 3, |job, data| {
            job.scatter_v(Rank(1), Some((&all, Blocks::packed(&counts))), data)
        })
    }),
    ("reduce_scatter", |job| {
        let all = vec![5; 3 * job.size() as usize];
        unchanged(job, 3, |job, data| job.reduce_scatter(&all, data, Op::Sum))
    }),
    ("reduce", |job| {
        ok(job.reduce(Rank(1), &[1_i32, 2], Op::Sum))
    }),
    ("reduce by another", |job| {
        ok(job.reduce(Rank(1), &[1_i32, 2], Op::Max))
    }),
    ("reduce of floats", |job| {
        ok(job.reduce(Rank(1), &[1_f32, 2.0], Op::Sum))
    }),
    ("all_reduce", |job| {
        unchanged(job, 9000, |job, data| job.all_reduce(data, Op::Sum))
    }),
    ("scan", |job| {
        unchanged(job, 9000, |job, data| job.scan(data, Op::Sum))
    }),
];

/// Calls with a buffer that must stay as it was if the call fails.
fn unchanged(job: &Job, len: usize, call: impl Fn(&Job, &mut [u64]) -> Result<()>) -> Result<()> {
    let mut data = vec![7 + u64::from(job.rank().0); len];
    let before = data.clone();
    let result = call(job, &mut data);
    if result.is_err() {
        assert_eq!(data, before);
    }
    result
}

/// That the error names another rank, and tells the two apart.
fn assert_mismatch(job: &Job, what: &str, result: Result<()>) {
    match result {
        Err(Error::CollectiveMismatch {
            rank,
            theirs,
            own,
            ours,
            ..
        }) => {
            assert_ne!(theirs, ours, "{what}");
            assert_ne!(rank, own, "{what}: {theirs}");
            assert!(rank.0 < job.size() && own == job.rank(), "{what}");
        }
        other => panic!("{what} on rank {}: {other:?}", job.rank()),
    }
}

#[test_on(every)]
fn every_pair_of_collectives_disagrees_everywhere() {
    for n in [2, 3, 5, 8] {
        run(n, |job| {
            for (number, (what, call)) in CALLS.iter().enumerate() {
                for (other_number, (other_what, other_call)) in CALLS.iter().enumerate() {
                    if number == other_number {
                        continue;
                    }
                    // One rank alone differs, a different one each time.
                    let odd = job.rank().0 as usize == (number + other_number) % n as usize;
                    let result = if odd { other_call(job) } else { call(job) };
                    assert_mismatch(job, &format!("{what} against {other_what}"), result);
                }
                // In step all the while.
                assert_eq!(
                    job.all_gather(&[job.rank()])?,
                    job.ranks().collect::<Vec<_>>()
                );
            }
            Ok(())
        });
    }
}

#[test_on(every)]
fn half_and_half_disagree_everywhere() {
    for n in [4, 7] {
        run(n, |job| {
            for split in 1..n {
                let result = if job.rank().0 < split {
                    ok(job.all_gather(&[1_u8; 4]))
                } else {
                    ok(job.all_gather(&[1_u8; 5]))
                };
                assert_mismatch(job, "all_gather", result);
            }
            job.barrier()
        });
    }
}

#[test_on(every)]
fn names_that_reach_each_other_over_nameless_ranks_disagree() {
    for n in [3, 5, 8] {
        run(n, |job| {
            for one in 0..n {
                for other in (0..n).filter(|other| *other != one) {
                    let name = match job.rank().0 {
                        me if me == one => Some(1),
                        me if me == other => Some(2),
                        _ => None,
                    };
                    job.barrier_notify(name)?;
                    match job.barrier_wait(None) {
                        Err(Error::CollectiveMismatch {
                            rank,
                            theirs,
                            own,
                            ours,
                            ..
                        }) => {
                            // Whatever way they went, names are told with who gave them.
                            for (rank, said) in [(rank, theirs), (own, ours)] {
                                let name = if rank.0 == one { 1 } else { 2 };
                                assert!(rank.0 == one || rank.0 == other, "rank {rank} {said}");
                                assert_eq!(said, format!("called barrier named {name}"));
                            }
                            assert_ne!(rank, own);
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            job.barrier()
        });
    }
}

#[test_on(every)]
fn a_rank_that_ends_its_body_early_disagrees() {
    let plain: (&str, Call) = ("plain barrier", |job| job.barrier());
    for (what, call) in CALLS.into_iter().chain([plain]) {
        let ends = outcomes(3, |job| {
            if job.rank() == Rank(2) {
                Ok(())
            } else {
                call(job)
            }
        });
        for (rank, end) in ends.into_iter().enumerate() {
            let Err(Error::CollectiveMismatch { theirs, ours, .. }) = end else {
                panic!("{what} on rank {rank}: {end:?}");
            };
            let end = [theirs, ours]
                .iter()
                .position(|said| said == "came to the end of the job");
            assert_eq!(end, Some(usize::from(rank == 2)), "{what} on rank {rank}");
        }
    }
}

#[test_on(every)]
fn unfit_arguments_are_told_and_leave_the_team_in_step() {
    run(3, |job| {
        let n = job.size();
        // All alike: each gets the same error.
        let nowhere = job.broadcast(Rank(3), &mut [1_u8]);
        assert!(matches!(
            nowhere,
            Err(Error::RankOutOfRange {
                rank: Rank(3),
                size: 3
            })
        ));
        let nowhere = job.gather(Rank(u32::MAX), &[1_u64; 9000]);
        assert!(matches!(nowhere, Err(Error::RankOutOfRange { .. })));
        let zero = job.all_gather(&[[0_u8; 0]; 5]);
        assert!(matches!(zero, Err(Error::ZeroSized { .. })));
        let mut floats = [1.0_f64; 4];
        for op in [Op::And, Op::Or, Op::Xor] {
            let bits = job.all_reduce(&mut floats, op);
            assert!(
                matches!(bits, Err(Error::UnsuitableOp { what: "f64", .. })),
                "{bits:?}"
            );
        }
        assert_eq!(floats, [1.0; 4]);
        let uneven = job.all_to_all(&[0_u8; 7]);
        assert!(matches!(
            uneven,
            Err(Error::LengthMismatch {
                left: 7,
                right: 9,
                ..
            })
        ));
        let missing = job.all_to_all_v(&vec![vec![0_u8]; 2]);
        assert!(matches!(
            missing,
            Err(Error::LengthMismatch {
                left: 2,
                right: 3,
                ..
            })
        ));
        // One rank alone: it is told why, the others that it differs.
        for len in [2, 20_000] {
            let all = vec![1_u64; len * n as usize - 1];
            let mut part = vec![0_u64; len];
            let short = job.scatter(Rank(1), Some(&all), &mut part);
            if job.rank() == Rank(1) {
                assert!(
                    matches!(short, Err(Error::LengthMismatch { .. })),
                    "{short:?}"
                );
            } else {
                assert_mismatch(job, "scatter", short);
            }
            assert_eq!(part, vec![0; len]);
            let none = job.scatter(Rank(0), None, &mut part);
            assert!(none.is_err(), "{none:?}");
        }
        let root = if job.rank() == Rank(2) {
            Rank(9)
        } else {
            Rank(0)
        };
        let alone = job.reduce(root, &[1_u8], Op::Sum);
        if job.rank() == Rank(2) {
            assert!(
                matches!(alone, Err(Error::RankOutOfRange { .. })),
                "{alone:?}"
            );
        } else {
            assert_mismatch(job, "reduce", ok(alone));
        }
        assert_eq!(job.all_gather(&[job.rank().0])?, [0, 1, 2]);
        Ok(())
    });
}
