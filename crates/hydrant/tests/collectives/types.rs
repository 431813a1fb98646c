//! What elements can be reduced, and that the order in which they are does not change.

use std::{thread, time::Duration};

use hydrant::{
    Error, Job, Located, Op, Rank, Reducible, Result,
    half::{bf16, f16},
    num_complex::Complex,
};

use super::{SIZES, run};

const LENGTHS: [usize; 4] = [1, 60, 2000, 20_000];

/// A float that is no whole number, and different at every rank and index.
fn float(rank: usize, index: usize) -> f64 {
    let mixed = (rank as u64 * 7919 + index as u64 + 1).wrapping_mul(0x2545_f491_4f6c_dd1d);
    (mixed >> 40) as f64 / 3.0 * 10_f64.powi((mixed % 9) as i32 - 4)
}

/// Compares with a serial fold, on every rank, all of what a reduction is done by.
fn reduces<T: Reducible + PartialEq + std::fmt::Debug>(
    job: &Job,
    of: fn(usize, usize) -> T,
    op: Op,
    combine: fn(T, T) -> T,
) -> Result<()> {
    for len in LENGTHS {
        let elements = |rank| (0..len).map(|index| of(rank, index)).collect::<Vec<_>>();
        let fold = |ranks: std::ops::Range<usize>| -> Vec<T> {
            let all: Vec<_> = ranks.map(elements).collect();
            let at = |index: usize| all.iter().map(|of: &Vec<T>| of[index]).reduce(combine);
            (0..len).filter_map(at).collect()
        };
        let (n, me) = (job.size() as usize, job.rank().index());
        let mut data = elements(me);
        job.all_reduce(&mut data, op)?;
        assert_eq!(data, fold(0..n), "all_reduce of {len} by {op:?}");
        let mut data = elements(me);
        job.scan(&mut data, op)?;
        assert_eq!(data, fold(0..me + 1), "scan of {len} by {op:?}");
        // The first rank's is what changes nothing.
        let mut data = elements(me);
        job.exclusive_scan(&mut data, op)?;
        let changed: Vec<T> = (data.into_iter().zip(elements(me)))
            .map(|(before, own)| combine(before, own))
            .collect();
        assert_eq!(
            changed,
            fold(0..me + 1),
            "exclusive_scan of {len} by {op:?}"
        );
    }
    Ok(())
}

#[test_on(every)]
fn half_precision_reduces_step_by_step_in_single() {
    fn through_f32<T>(
        to: fn(T) -> f32,
        from: fn(f32) -> T,
        combine: fn(f32, f32) -> f32,
    ) -> impl Fn(T, T) -> T {
        move |a, b| from(combine(to(a), to(b)))
    }
    for n in SIZES {
        run(n, |job| {
            let small = |rank, index| f16::from_f64(float(rank, index) % 7.0);
            let sum = |a, b| through_f32(f16::to_f32, f16::from_f32, |a, b| a + b)(a, b);
            reduces(job, small, Op::Sum, sum)?;
            let product = |a, b| through_f32(f16::to_f32, f16::from_f32, |a, b| a * b)(a, b);
            reduces(
                job,
                |rank, _| f16::from_f64(1.0 + rank as f64 / 8.0),
                Op::Product,
                product,
            )?;
            reduces(job, small, Op::Min, f16::min)?;
            reduces(job, small, Op::Max, f16::max)?;
            let brain = |rank, index| bf16::from_f64(float(rank, index));
            let sum = |a, b| through_f32(bf16::to_f32, bf16::from_f32, |a, b| a + b)(a, b);
            reduces(job, brain, Op::Sum, sum)?;
            reduces(job, brain, Op::Max, bf16::max)
        });
    }
}

#[test_on(every)]
fn complex_numbers_reduce() {
    for n in SIZES {
        run(n, |job| {
            let of = |rank, index| Complex::new(float(rank, index), -float(index, rank));
            reduces(job, of, Op::Sum, |a, b| a + b)?;
            let turn = |rank, index| Complex::new(0.5 + rank as f32 / 8.0, index as f32 / 3e4);
            reduces(job, turn, Op::Product, |a, b| a * b)
        });
    }
}

#[test_on(every)]
fn arrays_reduce_element_by_element() {
    for n in SIZES {
        run(n, |job| {
            // A length that is no power of two, and arrays of arrays.
            let of = |rank, index| [0.5, 1.5, 7.0, 0.0, 3.5].map(|by| by * float(rank, index));
            reduces(job, of, Op::Sum, |a, b| {
                std::array::from_fn(|i| a[i] + b[i])
            })?;
            let of = |rank: usize, index: usize| [[rank as u16, 3], [9, (rank ^ index) as u16]];
            reduces(job, of, Op::Max, |a, b| {
                std::array::from_fn(|i| std::array::from_fn(|j| a[i][j].max(b[i][j])))
            })?;
            let of = |rank, index| [Complex::new(float(rank, index) as f32, 1.0); 3];
            reduces(job, of, Op::Sum, |a, b| {
                std::array::from_fn(|i| a[i] + b[i])
            })
        });
    }
}

#[test_on(every)]
fn the_place_of_the_least_and_the_largest_is_found() {
    for n in SIZES {
        run(n, |job| {
            // Many are equal; the rank is the index, in either direction.
            let of = |rank: usize, index: usize| {
                Located::new(((rank * 5 + index) % 3) as u8, (rank ^ 1) as u64)
            };
            reduces(job, of, Op::Min, |a, b| {
                if (b.value(), b.index()) < (a.value(), a.index()) {
                    b
                } else {
                    a
                }
            })?;
            reduces(job, of, Op::Max, |a, b| {
                let (better, equal) = (b.value() > a.value(), b.value() == a.value());
                if better || equal && b.index() < a.index() {
                    b
                } else {
                    a
                }
            })?;
            // What is not a number loses, and among such the smallest index wins.
            let me = job.rank().0;
            let number = if me == n - 1 { 4.0 } else { f64::NAN };
            let mut data = [
                Located::new(number, u64::from(me)),
                Located::new(f64::NAN, u64::from(9 - me)),
            ];
            let given = data;
            for op in [Op::Min, Op::Max] {
                data = given;
                job.all_reduce(&mut data, op)?;
                assert_eq!((data[0].value(), data[0].index()), (4.0, u64::from(n - 1)));
                assert!(data[1].value().is_nan());
                assert_eq!(data[1].index(), u64::from(10 - n));
            }
            Ok(())
        });
    }
}

#[test_on(every)]
fn operations_that_types_do_not_have() {
    fn refused<T: Reducible + PartialEq>(job: &Job, element: T, ops: &[Op]) {
        for op in ops {
            let mut data = [element];
            let end = job.all_reduce(&mut data, *op);
            assert!(
                matches!(end, Err(Error::UnsuitableOp { .. })),
                "{op:?}: {end:?}"
            );
            assert!(data == [element]);
        }
    }
    run(2, |job| {
        let bits = [Op::And, Op::Or, Op::Xor];
        refused(job, f16::ONE, &bits);
        refused(job, bf16::ONE, &bits);
        refused(job, [1.0_f32; 7], &bits);
        refused(job, Complex::new(1.0_f32, 0.0), &bits);
        refused(job, Complex::new(1.0_f64, 0.0), &[Op::Min, Op::Max]);
        refused(job, [Complex::new(1.0_f64, 0.0); 2], &[Op::Min, Op::Max]);
        refused(job, Located::new(1_u32, 1), &[Op::Sum, Op::Product]);
        refused(job, Located::new(1_u32, 1), &bits);
        job.barrier()
    });
}

#[test_on(every)]
fn types_that_differ_are_told_apart() {
    run(2, |job| {
        let other = job.rank() == Rank(1);
        let ends = [
            if other {
                job.all_reduce(&mut [1_u16], Op::Max)
            } else {
                job.all_reduce(&mut [f16::ONE], Op::Max)
            },
            if other {
                job.all_reduce(&mut [bf16::ONE], Op::Max)
            } else {
                job.all_reduce(&mut [f16::ONE], Op::Max)
            },
            if other {
                job.all_reduce(&mut [1.0_f64], Op::Sum)
            } else {
                job.all_reduce(&mut [Complex::new(1.0_f32, 0.0)], Op::Sum)
            },
            if other {
                job.all_reduce(&mut [[1.0_f32; 2]], Op::Sum)
            } else {
                job.all_reduce(&mut [Complex::new(1.0_f32, 0.0)], Op::Sum)
            },
            if other {
                job.all_reduce(&mut [[1.0_f32; 2]; 2], Op::Sum)
            } else {
                job.all_reduce(&mut [[1.0_f32; 4]], Op::Sum)
            },
            if other {
                job.all_reduce(&mut [Located::new(1.0_f64, 0)], Op::Min)
            } else {
                job.all_reduce(&mut [Located::new(1_u64, 0)], Op::Min)
            },
        ];
        for end in ends {
            assert!(
                matches!(end, Err(Error::CollectiveMismatch { .. })),
                "{end:?}"
            );
        }
        job.barrier()
    });
}

/// The bits of a sum depend on the order of its steps. Whoever comes late, and on whatever network
/// this runs, they are those of the serial sum from the first rank to the last.
#[test_on(every)]
fn the_order_of_a_sum_depends_on_no_time() {
    for n in [3, 5, 8] {
        run(n, |job| {
            for len in [10, 20_000] {
                let sum_at = |index| {
                    let all = (0..n as usize).map(|rank| float(rank, index));
                    all.reduce(|a, b| a + b).unwrap().to_bits()
                };
                let expected: Vec<u64> = (0..len).map(sum_at).collect();
                for round in 0..2 * n {
                    if job.rank().0 == round % n {
                        thread::sleep(Duration::from_millis(2));
                    }
                    let me = job.rank().index();
                    let mut data: Vec<f64> = (0..len).map(|index| float(me, index)).collect();
                    let reduced = job.reduce(Rank(round % n), &data, Op::Sum)?;
                    job.all_reduce(&mut data, Op::Sum)?;
                    for sums in reduced.iter().chain([&data]) {
                        let bits: Vec<u64> = sums.iter().map(|sum| sum.to_bits()).collect();
                        assert_eq!(bits, expected, "round {round} of {len}");
                    }
                }
            }
            Ok(())
        });
    }
}

/// Aligned to more than any word.
#[derive(Clone, Copy, PartialEq, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Wide([u64; 8]);

#[test_on(every)]
fn elements_aligned_to_more_than_a_word() {
    let wide = |rank: u32, index: usize| Wide([u64::from(rank) * 31 + index as u64; 8]);
    let add = |a: Wide, b: Wide| Wide(std::array::from_fn(|at| a.0[at].wrapping_add(b.0[at])));
    for n in SIZES {
        run(n, |job| {
            for len in [0, 1, 3, 70] {
                let elements = |rank: u32| (0..len).map(move |index| wide(rank, index));
                let up_to = |rank: u32| -> Vec<Wide> {
                    let more = (1..=rank).map(|rank| elements(rank).collect::<Vec<_>>());
                    more.fold(elements(0).collect(), |sum, more| {
                        sum.into_iter().zip(more).map(|(a, b)| add(a, b)).collect()
                    })
                };
                let mine: Vec<Wide> = elements(job.rank().0).collect();
                let mut data = mine.clone();
                job.all_reduce_with(&mut data, add)?;
                assert_eq!(data, up_to(n - 1), "all_reduce of {len}");
                let mut data = mine.clone();
                job.scan_with(&mut data, add)?;
                assert_eq!(data, up_to(job.rank().0), "scan of {len}");
                let mut data = mine.clone();
                job.exclusive_scan_with(&mut data, wide(7, 7), add)?;
                let before = (job.rank().0.checked_sub(1)).map_or(vec![wide(7, 7); len], up_to);
                assert_eq!(data, before, "exclusive scan of {len}");
                let reduced = job.reduce_with(Rank(0), &mine, add)?;
                let expected = (job.rank() == Rank(0)).then(|| up_to(n - 1));
                assert_eq!(reduced, expected, "reduce of {len}");
                let parts = mine.repeat(n as usize);
                let mut part = vec![wide(7, 7); len];
                job.reduce_scatter_with(&parts, &mut part, add)?;
                assert_eq!(part, up_to(n - 1), "reduce_scatter of {len}");
            }
            Ok(())
        });
    }
}

/// Longer than what a board shows at once, and than a chunk.
type Long = [u64; 5000];

fn long(rank: u32, turn: u64) -> Long {
    std::array::from_fn(|index| u64::from(rank) * 7919 + turn * 31 + index as u64)
}

/// The order matters.
fn joined(left: Long, right: Long) -> Long {
    std::array::from_fn(|index| left[index].wrapping_mul(3).wrapping_add(right[index]))
}

/// Where no board shows such elements; what comes next begins at once where it does.
#[test_on(every)]
fn elements_longer_than_a_slot() {
    for n in [2, 3] {
        run(n, |job| {
            let up_to = |rank: u32, turn| {
                let all = (0..=rank).map(|rank| long(rank, turn));
                all.reduce(joined).expect("one at least")
            };
            let (me, last) = (job.rank().0, Rank(n - 1));
            for turn in 0..10 {
                let mine = long(me, turn);
                let mut data = [mine; 2];
                job.scan_with(&mut data, joined)?;
                assert_eq!(data, [up_to(me, turn); 2], "scan {turn}");
                let mut words = vec![turn; 9000];
                job.broadcast(Rank(0), &mut words)?;
                let mut data = [mine];
                job.exclusive_scan_with(&mut data, [5; 5000], joined)?;
                let before = me
                    .checked_sub(1)
                    .map_or([5; 5000], |rank| up_to(rank, turn));
                assert_eq!(data, [before], "exclusive scan {turn}");
                job.all_reduce(&mut words, Op::Sum)?;
                assert_eq!(words, vec![u64::from(n) * turn; 9000]);
                for root in [Rank(0), last] {
                    let reduced = job.reduce_with(root, &[mine], joined)?;
                    assert_eq!(reduced.is_some(), root == job.rank());
                    assert!(reduced.is_none_or(|it| it == [up_to(last.0, turn)]));
                    job.broadcast(Rank(0), &mut words)?;
                }
            }
            Ok(())
        });
    }
}
