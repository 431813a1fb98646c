//! Runs and elements that are listed one by one, against a serial loop.

use hydrant::{Error, GlobalPtr, IoVector, Job, Rank, Result};
use hydrant_base::Random;

use crate::support::local;

/// Calls of each kind: enough that every way of many runs is tried.
const CALLS: u64 = 12;
const LEN: usize = 500;

/// Two vectors of runs: where they begin on each side. `apart`: no two share elements on either side.
struct Lists {
    run: usize,
    places: [[Vec<usize>; 2]; 2],
}

impl Lists {
    fn new(dice: &mut Random, apart: bool) -> Self {
        let run = [1, 1, 3, 7][dice.below(4)];
        let count = 1 + dice.below(30);
        let mut side = || {
            let mut slots: Vec<usize> = (0..LEN / run).map(|slot| slot * run).collect();
            let mut list = || {
                let pick = |_| match apart {
                    true => slots.swap_remove(dice.below(slots.len())),
                    false => dice.below(LEN - run + 1),
                };
                (0..count).map(pick).collect::<Vec<_>>()
            };
            [list(), list()]
        };
        let ([a, b], [c, d]) = (side(), side());
        Self {
            run,
            places: [[a, c], [b, d]],
        }
    }

    fn vectors(&self) -> [IoVector<'_>; 2] {
        (self.places.each_ref()).map(|[remote, local]| IoVector {
            remote,
            local,
            run: self.run,
        })
    }

    /// Every element: where it is on each side, in order.
    fn elements(&self) -> impl Iterator<Item = (usize, usize)> {
        let runs = self
            .places
            .iter()
            .flat_map(|[there, here]| there.iter().zip(here));
        runs.flat_map(|(there, here)| (0..self.run).map(move |at| (there + at, here + at)))
    }
}

/// Memory of the right neighbour by handle, by pointer, and in an exposed buffer.
fn each_way(
    body: impl Fn(
        &Job,
        usize,
        &dyn Fn(&[IoVector<'_>], &[u32]) -> Result<()>,
        &dyn Fn(&[IoVector<'_>], &mut [u32]) -> Result<()>,
    ) -> Result<()>
    + Sync,
) {
    local(3, |job| {
        let (own, right) = (job.rank(), job.right());
        let symmetric = job.alloc::<u32>(LEN + 10)?;
        let exposed = job.expose(vec![0_u32; LEN + 10])?;
        let theirs = |mine| Ok::<_, Error>(job.all_gather(&[mine])?[right.index()]);
        let handle = symmetric.pointer(own, 0)?;
        body(
            job,
            0,
            &|vectors, data| symmetric.put_vector(right, vectors, data),
            &|vectors, data| symmetric.get_vector(right, vectors, data),
        )?;
        let pointers: [GlobalPtr<u32>; 2] =
            [theirs(handle.offset(10))?, theirs(exposed.pointer(10)?)?];
        for to in pointers {
            job.barrier()?;
            body(
                job,
                10,
                &|vectors, data| job.put_vector_to(to, vectors, data),
                &|vectors, data| job.get_vector_from(to, vectors, data),
            )?;
        }
        job.barrier()
    });
}

#[test_on(every)]
fn lists_name_the_elements_in_order() {
    each_way(|job, _, put, get| {
        let whole = IoVector {
            remote: &[0],
            local: &[0],
            run: LEN,
        };
        put(&[whole], &[0; LEN])?;
        let mut model = vec![0; LEN];
        let mut dice = Random::new(job.rank().0.into());
        for call in 0..CALLS * 3 {
            let lists = Lists::new(&mut dice, call % 3 > 0);
            let data: Vec<u32> = (0..LEN as u32).map(|at| call as u32 * 1000 + at).collect();
            put(&lists.vectors(), &data)?;
            for (there, here) in lists.elements() {
                model[there] = data[here];
            }
            let mut back = vec![7; LEN];
            get(&[whole], &mut back)?;
            assert_eq!(back, model, "put {call}");

            let lists = Lists::new(&mut dice, call % 3 > 0);
            let mut got = data.clone();
            get(&lists.vectors(), &mut got)?;
            let mut expected = data;
            for (there, here) in lists.elements() {
                expected[here] = model[there];
            }
            assert_eq!(got, expected, "get {call}");
        }
        Ok(())
    });
}

#[test_on(every)]
fn what_does_not_fit_changes_nothing() {
    each_way(|_, skipped, put, get| {
        let len = LEN + 10 - skipped;
        let outside = |remote: &[usize], local: &[usize], run| {
            let good = IoVector {
                remote: &[1, 2, 3],
                local: &[1, 2, 3],
                run: 1,
            };
            let vectors = [good, IoVector { remote, local, run }];
            let put = put(&vectors, &[9; LEN]).unwrap_err();
            let got = get(&vectors, &mut [9; LEN]).unwrap_err();
            assert_eq!(put.to_string(), got.to_string());
            put
        };
        for (remote, run) in [
            (&[0, len][..], 1),
            (&[len - 1, 0], 2),
            (&[usize::MAX, 3], 1),
            (&[0, 0], len + 1),
        ] {
            let error = outside(remote, &[0, 0], run);
            assert!(
                matches!(
                    error,
                    Error::OutOfBounds { .. } | Error::OutsideBuffer { .. }
                ),
                "{error:?}"
            );
        }
        let error = outside(&[0, 0], &[LEN, 0], 1);
        assert!(matches!(error, Error::OutsideBuffer { .. }), "{error:?}");
        let error = outside(&[0, 0], &[usize::MAX, 0], 2);
        assert!(matches!(error, Error::OutsideBuffer { .. }), "{error:?}");
        let error = outside(&[0, 0], &[0], 1);
        assert!(matches!(error, Error::LengthMismatch { .. }), "{error:?}");
        let mut back = [7; 4];
        let first = IoVector {
            remote: &[0],
            local: &[0],
            run: 4,
        };
        get(&[first], &mut back)?;
        assert_eq!(back, [0; 4]);
        // Nothing at all is fine.
        put(&[], &[])?;
        let none = IoVector {
            remote: &[],
            local: &[],
            run: 3,
        };
        let empty = IoVector {
            remote: &[5],
            local: &[5],
            run: 0,
        };
        put(&[none, empty], &[0; LEN])?;
        get(&[none, empty], &mut [0; LEN])
    });
}

/// Runs longer than a message takes, and more of them than messages may be under way.
#[test_on(every)]
fn many_and_long_runs() {
    const ROWS: usize = 3000;
    local(2, |job| {
        let memory = job.alloc::<u64>(ROWS * 8 + 40_000)?;
        let remote: Vec<usize> = (0..ROWS).map(|row| (ROWS - 1 - row) * 8 + 1).collect();
        let locals: Vec<usize> = (0..ROWS).map(|row| row * 5).collect();
        let rows = IoVector {
            remote: &remote,
            local: &locals,
            run: 5,
        };
        let long = IoVector {
            remote: &[ROWS * 8 + 3],
            local: &[0],
            run: 15_000,
        };
        for call in 1..8 {
            let data: Vec<u64> = (0..ROWS as u64 * 5).map(|at| at * call).collect();
            memory.put_vector(job.right(), &[rows, long], &data)?;
            job.barrier()?;
            for row in [0, 1, ROWS / 2, ROWS - 1] {
                let mut mine = [0; 5];
                memory.get(job.rank(), remote[row], &mut mine)?;
                assert_eq!(mine, data[row * 5..][..5]);
            }
            let mut back = vec![0; data.len()];
            memory.get_vector(job.right(), &[long], &mut back)?;
            assert_eq!(back, data);
            back.fill(0);
            memory.get_vector(job.right(), &[rows], &mut back)?;
            assert_eq!(back, data);
            job.barrier()?;
        }
        // Elsewhere than on memory that is mapped some of it went packed.
        let is_mapped = memory.on(job.right())?.is_some();
        assert_eq!(job.counters().packed == 0, is_mapped);
        assert!(matches!(
            memory.put_vector(Rank(2), &[rows], &[0; 5]),
            Err(Error::OutsideBuffer { .. } | Error::RankOutOfRange { .. })
        ));
        job.barrier()
    });
}
