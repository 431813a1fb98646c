//! Every collective against the serial answer.

use hydrant::{Job, Op, Pod, Rank, Reducible, Result};

use super::{SIZES, run};

/// Those of 8 and 9 are around what is told in the agreement itself, in elements of three bytes.
const LENGTHS: [usize; 8] = [0, 1, 7, 8, 9, 1000, 5000, 100_000];

/// What rank r has at index i: different everywhere, small enough for any type.
fn value(rank: usize, index: usize) -> u64 {
    (rank * 31 + index * 7) as u64 % 101
}

fn elements<T: Pod>(rank: usize, len: usize, of: fn(u64) -> T) -> Vec<T> {
    (0..len).map(|index| of(value(rank, index))).collect()
}

/// A type that no word holds.
#[derive(Clone, Copy, PartialEq, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Odd([u8; 3]);

fn odd(value: u64) -> Odd {
    Odd([value as u8, value as u8 ^ 0x55, 7])
}

fn moves_data<T: Pod + PartialEq + std::fmt::Debug>(
    job: &Job,
    len: usize,
    of: fn(u64) -> T,
) -> Result<()> {
    let (n, me) = (job.size() as usize, job.rank().index());
    let mine = elements(me, len, of);
    let all: Vec<T> = (0..n).flat_map(|rank| elements(rank, len, of)).collect();
    for root in job.ranks() {
        let mut data = mine.clone();
        job.broadcast(root, &mut data)?;
        assert_eq!(
            data,
            elements(root.index(), len, of),
            "broadcast of {len} from {root}"
        );
        let gathered = job.gather(root, &mine)?;
        assert_eq!(
            gathered,
            (job.rank() == root).then(|| all.clone()),
            "gather of {len}"
        );
        let mut part = vec![T::zeroed(); len];
        let given = (job.rank() == root).then_some(all.as_slice());
        job.scatter(root, given, &mut part)?;
        assert_eq!(part, mine, "scatter of {len} from {root}");
    }
    assert_eq!(job.all_gather(&mine)?, all, "all_gather of {len}");
    // Rank a gives rank b what rank a * n + b has.
    let parts: Vec<T> = (0..n)
        .flat_map(|to| elements(me * n + to, len, of))
        .collect();
    let expected: Vec<T> = (0..n)
        .flat_map(|from| elements(from * n + me, len, of))
        .collect();
    assert_eq!(job.all_to_all(&parts)?, expected, "all_to_all of {len}");
    // Uneven: more to the next, nothing to some.
    let uneven = |from: usize, to: usize| len * ((from + 2 * to) % 3) / 2;
    let parts: Vec<_> = (0..n)
        .map(|to| elements(me * n + to, uneven(me, to), of))
        .collect();
    let expected: Vec<_> = (0..n)
        .map(|from| elements(from * n + me, uneven(from, me), of))
        .collect();
    assert_eq!(job.all_to_all_v(&parts)?, expected, "all_to_all_v of {len}");
    Ok(())
}

type Combine<T> = fn(T, T) -> T;

fn reduces<T: Reducible + PartialEq + std::fmt::Debug>(
    job: &Job,
    len: usize,
    of: fn(u64) -> T,
    ops: &[(Op, Combine<T>, T)],
) -> Result<()> {
    let (n, me) = (job.size() as usize, job.rank().index());
    let mine = elements(me, len, of);
    for (op, combine, identity) in ops {
        let fold = |ranks: std::ops::Range<usize>| -> Vec<T> {
            (0..len)
                .map(|index| {
                    ranks
                        .clone()
                        .map(|rank| of(value(rank, index)))
                        .reduce(combine)
                        .unwrap_or(*identity)
                })
                .collect()
        };
        let root = Rank((len % n) as u32);
        let reduced = job.reduce(root, &mine, *op)?;
        assert_eq!(
            reduced,
            (job.rank() == root).then(|| fold(0..n)),
            "reduce of {len} by {op:?}"
        );
        let mut data = mine.clone();
        job.all_reduce(&mut data, *op)?;
        assert_eq!(data, fold(0..n), "all_reduce of {len} by {op:?}");
        let mut data = mine.clone();
        job.scan(&mut data, *op)?;
        assert_eq!(data, fold(0..me + 1), "scan of {len} by {op:?}");
        let mut data = mine.clone();
        job.exclusive_scan(&mut data, *op)?;
        assert_eq!(data, fold(0..me), "exclusive_scan of {len} by {op:?}");
    }
    Ok(())
}

#[test_on(every)]
fn data_goes_where_it_should() {
    for n in SIZES {
        run(n, |job| {
            for len in LENGTHS {
                moves_data(job, len, |value| value)?;
                moves_data(job, len, |value| value as u8)?;
                moves_data(job, len, odd)?;
            }
            Ok(())
        });
    }
}

#[test_on(every)]
fn integers_reduce_as_in_a_serial_program() {
    for n in SIZES {
        run(n, |job| {
            for len in LENGTHS {
                reduces(
                    job,
                    len,
                    |value| value as u8 + 1,
                    &[
                        (Op::Sum, u8::wrapping_add, 0),
                        (Op::Product, u8::wrapping_mul, 1),
                        (Op::Xor, |a, b| a ^ b, 0),
                    ],
                )?;
                reduces(
                    job,
                    len,
                    |value| value as i64 - 50,
                    &[
                        (Op::Min, i64::min, i64::MAX),
                        (Op::Max, i64::max, i64::MIN),
                        (Op::And, |a, b| a & b, -1),
                        (Op::Or, |a, b| a | b, 0),
                    ],
                )?;
            }
            Ok(())
        });
    }
}

/// Sums of these depend on the order: equality means the serial order.
#[test_on(every)]
fn floats_reduce_bit_for_bit_as_in_a_serial_program() {
    for n in SIZES {
        run(n, |job| {
            for len in LENGTHS {
                reduces(
                    job,
                    len,
                    |value| 10_f64.powi(value as i32 % 30) / 3.0,
                    &[
                        (Op::Sum, |a, b| a + b, 0.0),
                        (Op::Product, |a, b| a * b, 1.0),
                    ],
                )?;
                reduces(
                    job,
                    len,
                    |value| value as f32 - 50.5,
                    &[
                        (Op::Min, f32::min, f32::INFINITY),
                        (Op::Max, f32::max, f32::NEG_INFINITY),
                    ],
                )?;
            }
            Ok(())
        });
    }
}

/// Affine maps x -> a x + b (modulo 2^32) compose in order only.
#[test_on(every)]
fn functions_need_not_commute() {
    fn then(first: [u32; 2], second: [u32; 2]) -> [u32; 2] {
        let [a, b] = first;
        let [c, d] = second;
        [c.wrapping_mul(a), c.wrapping_mul(b).wrapping_add(d)]
    }
    let of = |rank: usize, index: usize| {
        let value = value(rank, index) as u32;
        [value | 1, value + rank as u32]
    };
    for n in SIZES {
        run(n, |job| {
            for len in LENGTHS {
                let me = job.rank().index();
                let mine: Vec<_> = (0..len).map(|index| of(me, index)).collect();
                let fold = |ranks: std::ops::Range<usize>| -> Vec<[u32; 2]> {
                    (0..len)
                        .map(|index| {
                            ranks
                                .clone()
                                .map(|rank| of(rank, index))
                                .reduce(then)
                                .unwrap_or([1, 0])
                        })
                        .collect()
                };
                let mut data = mine.clone();
                job.all_reduce_with(&mut data, then)?;
                assert_eq!(data, fold(0..job.size() as usize));
                let reduced = job.reduce_with(Rank(0), &mine, then)?;
                assert_eq!(reduced, (me == 0).then(|| fold(0..job.size() as usize)));
                let mut data = mine.clone();
                job.scan_with(&mut data, then)?;
                assert_eq!(data, fold(0..me + 1));
                let mut data = mine.clone();
                job.exclusive_scan_with(&mut data, [1, 0], then)?;
                assert_eq!(data, fold(0..me));
            }
            Ok(())
        });
    }
}
