//! Blocks and buffers that do not fit: an error on every rank, nothing changed, and the team goes on.

use hydrant::{Blocks, Error, Job, Op, Rank, Result, TeamRank};

use super::run;

const BEFORE: u64 = 5;

/// Calls with a buffer of `len`, on every rank, of which rank 1 alone finds its arguments unfit: the
/// others are told that it did.
fn refused_by_one(
    job: &Job,
    len: usize,
    call: impl Fn(bool, &mut [u64]) -> Result<()>,
    fits: impl Fn(&Error) -> bool,
) -> Result<()> {
    let odd = job.rank() == Rank(1);
    let mut data = vec![BEFORE; len];
    let error = call(odd, &mut data).expect_err("rank 1's arguments are unfit");
    if odd {
        assert!(fits(&error), "{error}");
    } else {
        let Error::CollectiveMismatch { rank, theirs, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*rank, Rank(1));
        assert!(theirs.ends_with("refused itself"), "{theirs}");
    }
    assert_eq!(data, vec![BEFORE; len], "nothing may change");
    let ranks: Vec<_> = job.ranks().collect();
    assert_eq!(job.all_gather(&[job.rank()])?, ranks, "out of step");
    Ok(())
}

/// What is wrong with blocks, whatever they are for.
type Wrong = (&'static [usize], &'static [usize], fn(&Error) -> bool);

/// For three ranks and a buffer of six, of which each rank gets or gives two.
const WRONG: [Wrong; 7] = [
    (&[2, 2], &[0, 2], |error| {
        matches!(
            error,
            Error::LengthMismatch {
                what: "counts against members",
                left: 2,
                right: 3
            }
        )
    }),
    (&[2, 2, 2], &[0, 2], |error| {
        matches!(
            error,
            Error::LengthMismatch {
                what: "displacements against members",
                left: 2,
                right: 3
            }
        )
    }),
    (&[2, 2, 2], &[0, 2, 5], |error| {
        matches!(
            error,
            Error::BlockOutOfBounds {
                block: TeamRank(2),
                index: 5,
                count: 2,
                len: 6
            }
        )
    }),
    (&[2, 2, 2], &[0, usize::MAX, 4], |error| {
        matches!(
            error,
            Error::BlockOutOfBounds {
                block: TeamRank(1),
                index: usize::MAX,
                ..
            }
        )
    }),
    (&[2, usize::MAX, 2], &[0, 2, 4], |error| {
        matches!(
            error,
            Error::BlockOutOfBounds {
                block: TeamRank(1),
                count: usize::MAX,
                ..
            }
        )
    }),
    (&[2, 2, 2], &[3, 4, 0], |error| {
        matches!(
            error,
            Error::BlocksOverlap {
                one: TeamRank(0),
                other: TeamRank(1),
                index: 4
            }
        )
    }),
    (&[2, 2, 1], &[0, 2, 4], |error| {
        matches!(error, Error::CountMismatch { .. })
    }),
];

const COUNTS: [usize; 3] = [2; 3];

#[test_on(every)]
fn blocks_that_do_not_fit() {
    run(3, |job| {
        for (counts, displacements, fits) in WRONG {
            let blocks = |odd: bool| {
                if odd {
                    Blocks::at(counts, displacements)
                } else {
                    Blocks::packed(&COUNTS)
                }
            };
            let to_receive = |odd: bool, data: &mut [u64]| {
                job.all_to_all_v_into(&[1; 6], Blocks::packed(&COUNTS), data, blocks(odd))
            };
            refused_by_one(job, 6, to_receive, fits)?;
            let gathered =
                |odd: bool, data: &mut [u64]| job.all_gather_v_into(&[1; 2], data, blocks(odd));
            refused_by_one(job, 6, gathered, fits)?;
            let at_root = |odd: bool, data: &mut [u64]| {
                job.gather_v_into(Rank(1), &[1; 2], odd.then(|| (data, blocks(true))))
            };
            refused_by_one(job, 6, at_root, fits)?;
            // Blocks that are only read may overlap.
            let overlaps = displacements[0] == 3;
            if !overlaps {
                let from_root = |odd: bool, data: &mut [u64]| {
                    job.scatter_v(Rank(1), odd.then(|| (&[1; 6][..], blocks(true))), data)
                };
                refused_by_one(job, 2, from_root, fits)?;
            }
        }
        Ok(())
    });
}

#[test_on(every)]
fn blocks_that_are_read_may_overlap() {
    run(3, |job| {
        let (all, blocks) = ([1, 2, 3], Blocks::at(&COUNTS, &[0, 1, 0]));
        let mut mine = [0; 2];
        job.scatter_v(Rank(0), Some((&all, blocks)), &mut mine)?;
        assert_eq!(mine, [[1, 2], [2, 3], [1, 2]][job.rank().index()]);
        let mut into = [0; 6];
        job.all_to_all_v_into(&all, blocks, &mut into, Blocks::packed(&COUNTS))?;
        assert_eq!(into.to_vec(), mine.repeat(3));
        Ok(())
    });
}

#[test_on(every)]
fn a_sender_that_gives_otherwise_is_named_where_it_is_received() {
    run(3, |job| {
        // Rank 1 sends 3 elements to rank 2, which has room for 2.
        let sent = [[2, 2, 2], [2, 2, 3], [2, 2, 2]][job.rank().index()];
        let mut into = [BEFORE; 6];
        let end = job.all_to_all_v_into(
            &[1; 7],
            Blocks::packed(&sent),
            &mut into,
            Blocks::packed(&COUNTS),
        );
        match end.expect_err("ranks 1 and 2 disagree") {
            Error::CountMismatch {
                from,
                to,
                sent,
                wanted,
            } => {
                assert_eq!(job.rank(), Rank(2));
                assert_eq!((from, to, sent, wanted), (Rank(1), Rank(2), 3, 2));
            }
            Error::CollectiveMismatch { rank, .. } => {
                assert_ne!(job.rank(), Rank(2));
                assert_eq!(rank, Rank(2));
            }
            other => panic!("{other}"),
        }
        assert_eq!(into, [BEFORE; 6]);
        job.barrier()
    });
}

#[test_on(every)]
fn buffers_that_are_too_short_or_too_long() {
    run(3, |job| {
        let too_long = |error: &Error| matches!(error, Error::LengthMismatch { .. });
        for len in [2, 20_000] {
            let mine = vec![1; len];
            let longer = |odd: bool| 3 * len + usize::from(odd);
            let gathered =
                |odd: bool, data: &mut [u64]| job.all_gather_into(&mine, &mut data[..longer(odd)]);
            refused_by_one(job, 3 * len + 1, gathered, too_long)?;
            let in_place =
                |odd: bool, data: &mut [u64]| job.all_gather_in_place(&mut data[..longer(odd)]);
            refused_by_one(job, 3 * len + 1, in_place, too_long)?;
            let at_root = |odd: bool, data: &mut [u64]| {
                job.gather_into(Rank(1), &mine, Some(&mut data[..longer(odd)]))
            };
            refused_by_one(job, 3 * len + 1, at_root, too_long)?;
            let parts = mine.repeat(3);
            let exchanged =
                |odd: bool, data: &mut [u64]| job.all_to_all_into(&parts, &mut data[..longer(odd)]);
            refused_by_one(job, 3 * len + 1, exchanged, too_long)?;
            let reduced = |odd: bool, data: &mut [u64]| {
                job.reduce_scatter(&parts, &mut data[..len + usize::from(odd)], Op::Sum)
            };
            refused_by_one(job, len + 1, reduced, too_long)?;
            let counts = [len; 3];
            let by_counts = |odd: bool, data: &mut [u64]| {
                let part = &mut data[..len + usize::from(odd)];
                job.reduce_scatter_v(&parts, &counts, part, Op::Sum)
            };
            refused_by_one(job, len + 1, by_counts, too_long)?;
        }
        // All alike: each finds out itself.
        let uneven = job.all_to_all_in_place(&mut [0_u8; 7]);
        assert!(matches!(
            uneven,
            Err(Error::LengthMismatch {
                left: 7,
                right: 9,
                ..
            })
        ));
        let nothing = job.all_gather_into(&[[0_u8; 0]; 2], &mut [[0_u8; 0]; 6]);
        assert!(matches!(nothing, Err(Error::ZeroSized { .. })));
        let mut part = [1.0_f32];
        let bits = job.reduce_scatter(&[1.0; 3], &mut part, Op::And);
        assert!(matches!(bits, Err(Error::UnsuitableOp { what: "f32", .. })));
        let counts = [usize::MAX, 2, 0];
        let sum = job.reduce_scatter_v(&[1_u8; 3], &counts, &mut [0; 1], Op::Sum);
        assert!(matches!(sum, Err(Error::BlockOutOfBounds { .. })));
        let few = job.reduce_scatter_v(&[1_u8; 3], &[3, 0], &mut [0; 3], Op::Sum);
        assert!(matches!(few, Err(Error::LengthMismatch { .. })));
        Ok(())
    });
}

#[test_on(every)]
fn counts_of_a_reduction_that_differ() {
    run(3, |job| {
        // The sums are alike; rank 1 counts otherwise.
        let counts = [[1, 2, 3], [2, 1, 3], [1, 2, 3]][job.rank().index()];
        let mut part = vec![BEFORE; counts[job.rank().index()]];
        let end = job.reduce_scatter_v(&[1; 6], &counts, &mut part, Op::Sum);
        match (end, job.rank()) {
            (
                Err(Error::CountMismatch {
                    from,
                    to,
                    sent: 2,
                    wanted: 1,
                }),
                Rank(0),
            ) => {
                assert_eq!((from, to), (Rank(1), Rank(0)));
            }
            (
                Err(Error::CountMismatch {
                    from,
                    to,
                    sent: 2,
                    wanted: 1,
                }),
                Rank(1),
            ) => {
                assert_eq!((from, to), (Rank(0), Rank(1)));
            }
            (Err(Error::CollectiveMismatch { .. }), Rank(2)) => {}
            (other, rank) => panic!("rank {rank}: {other:?}"),
        }
        assert!(part.iter().all(|element| *element == BEFORE));
        job.barrier()
    });
}
