//! Accumulates of all ranks at once, against sums worked out one by one.

use hydrant::{Accumulate, Error, Factor, IoVector, Level, Number, Rank, Result, Section};

use crate::support::local;

/// Every rank adds to every rank, by runs, sections and vectors that share elements.
fn all_add<T: Accumulate + PartialEq + std::fmt::Debug + Sync>(
    element: impl Fn(usize) -> T + Sync,
    factor: T,
    sum: impl Fn(T, T, T) -> T + Sync,
) {
    // Long enough for several locks and several messages.
    const LEN: usize = 9000;
    local(3, |job| {
        let memory = job.alloc::<T>(LEN)?;
        let data: Vec<T> = (0..LEN).map(&element).collect();
        let rows = Section::new(
            1,
            7,
            &[Level {
                count: 100,
                stride: 11,
            }],
        )?;
        let packed = Section::run(3, 700)?;
        let (there, here) = ([5, 4000, 5, 8990], [0, 10, 20, 30]);
        let vector = [IoVector {
            remote: &there,
            local: &here,
            run: 10,
        }];
        memory.local()?.fill(0..LEN, element(1))?;
        job.barrier()?;
        for rank in job.ranks() {
            memory.accumulate(rank, 0, factor, &data)?;
            memory.accumulate(rank, 13, factor, &data[..1])?;
            memory.accumulate_section(rank, &rows, factor, &data, &packed)?;
            memory.accumulate_vector(rank, &vector, factor, &data)?;
            memory.accumulate(rank, LEN, factor, &[])?;
        }
        job.barrier()?;
        let mut right = vec![element(1); LEN];
        for _ in job.ranks() {
            let mut add = |at: usize, from: usize| right[at] = sum(right[at], factor, data[from]);
            (0..LEN).for_each(|at| add(at, at));
            add(13, 0);
            (0..700).for_each(|at| add(1 + at / 7 * 11 + at % 7, 3 + at));
            for (there, here) in there.into_iter().zip(here) {
                (0..10).for_each(|at| add(there + at, here + at));
            }
        }
        assert_eq!(memory.local()?.to_vec(), right);
        job.barrier()
    });
}

#[test_on(every, native)]
fn integers() {
    let plus = |a: i32, b: i32, c: i32| a.wrapping_add(b.wrapping_mul(c));
    all_add(|at| (at as i32).wrapping_mul(0x3123_4567), -3, plus);
    let plus = |a: u64, b: u64, c: u64| a.wrapping_add(b.wrapping_mul(c));
    let factor = u64::MAX / 5;
    all_add(|at| (at as u64).wrapping_mul(factor), factor, plus);
}

#[test_on(every, native)]
fn floats() {
    // Small whole numbers: sums come out the same in any order.
    all_add(|at| (at % 1000) as f64, 0.5, |a, b, c| a + b * c);
    all_add(|at| (at % 1000) as f32, 2.0, |a, b, c| a + b * c);
}

#[test_on(every, native)]
fn complex_numbers() {
    type C = hydrant::num_complex::Complex<f64>;
    let element = |at: usize| C::new((at % 100) as f64, (at % 7) as f64);
    all_add(element, C::new(2.0, -1.0), |a, b, c| a + b * c);
    type S = hydrant::num_complex::Complex<f32>;
    let element = |at: usize| S::new((at % 100) as f32, (at % 7) as f32);
    all_add(element, S::new(0.0, 1.0), |a, b, c| a + b * c);
}

/// Memory of mixed types, elements at odd places.
#[test_on(every, native)]
fn bytes_with_a_factor() {
    local(2, |job| {
        let memory = job.alloc::<u8>(5000)?;
        let factor = Factor::from_bytes(Number::F64, &1.5_f64.to_ne_bytes()).expect("8 bytes");
        let data: Vec<u8> = (0..64).flat_map(|at| f64::from(at).to_ne_bytes()).collect();
        job.barrier()?;
        for _ in 0..3 {
            memory.accumulate_bytes(job.right(), 4090, &factor, &data)?;
        }
        let every = Section::new(
            3,
            8,
            &[Level {
                count: 64,
                stride: 9,
            }],
        )?;
        let all = Section::run(0, 512)?;
        memory.accumulate_bytes_section(job.right(), &every, &factor, &data, &all)?;
        let uneven = [
            memory.accumulate_bytes(job.right(), 0, &factor, &data[..12]),
            memory.accumulate_bytes_section(
                job.right(),
                &Section::run(0, 12)?,
                &factor,
                &data,
                &Section::run(0, 12)?,
            ),
        ];
        for refused in uneven {
            assert!(matches!(refused, Err(Error::LengthMismatch { .. })));
        }
        job.barrier()?;
        let own = memory.local()?.to_vec();
        let number = |at: usize| f64::from_ne_bytes(own[at..at + 8].try_into().expect("8 bytes"));
        for at in 0..64 {
            assert_eq!(number(4090 + 8 * at), 4.5 * at as f64);
            assert_eq!(number(3 + 9 * at), 1.5 * at as f64);
        }
        job.barrier()
    });
}

#[test_on(every, native)]
fn what_cannot_be_changes_nothing() {
    local(2, |job| {
        let memory = job.alloc::<i64>(10)?;
        let data = [1; 4];
        let section = Section::run(8, 4)?;
        let from = Section::run(0, 4)?;
        for (what, refused) in [
            memory.accumulate(job.right(), 7, 1, &data),
            memory.accumulate(job.right(), usize::MAX, 1, &data),
            memory.accumulate_section(job.right(), &section, 1, &data, &from),
        ]
        .into_iter()
        .enumerate()
        {
            assert!(matches!(refused, Err(Error::OutOfBounds { .. })), "{what}");
        }
        let refused = memory.accumulate(Rank(2), 0, 1, &data);
        assert!(matches!(refused, Err(Error::RankOutOfRange { .. })));
        let section = Section::run(0, 5)?;
        let refused = memory.accumulate_section(job.right(), &section, 1, &data, &from);
        assert!(matches!(refused, Err(Error::LengthMismatch { .. })));
        job.barrier()?;
        assert_eq!(memory.local()?.to_vec(), [0; 10]);
        job.barrier()
    });
}

/// Threads of all ranks add to the same elements: none of it is lost.
#[test_on(every, native)]
fn many_threads_add_to_one_place() {
    local(2, |job| {
        let memory = job.alloc::<f64>(3000)?;
        let ones = vec![1.0; 3000];
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| -> Result<()> {
                        for _ in 0..20 {
                            memory.accumulate(Rank(0), 0, 1.0, &ones)?;
                            memory.accumulate(Rank(0), 17, 1.0, &ones[..1])?;
                        }
                        Ok(())
                    })
                })
                .collect();
            (threads.into_iter()).try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        job.barrier()?;
        if job.rank() == Rank(0) {
            let mut right = vec![80.0; 3000];
            right[17] += 80.0;
            assert_eq!(memory.local()?.to_vec(), right);
        }
        job.barrier()
    });
}
