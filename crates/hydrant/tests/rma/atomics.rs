//! Atomics: one answer whoever asks, the owner included.

use std::thread;

use hydrant::{Rank, Symmetric};

use crate::support::{builder, good, local};

const RANKS: u32 = 4;
const THREADS: usize = 3;
const EACH: u64 = 2_000;

#[test_on(every, native)]
fn many_threads_of_many_ranks_lose_nothing() {
    local(RANKS, |job| {
        let sums = job.alloc::<u64>(3)?;
        let signed = job.alloc::<i32>(1)?;
        let real = job.alloc::<f64>(1)?;
        let short = job.alloc::<f32>(1)?;
        let tickets = job.alloc::<u64>(1)?;
        let home = Rank(1);
        let drawn: Vec<u64> = thread::scope(|threads| {
            let work = || {
                let mut drawn = Vec::new();
                for number in 0..EACH {
                    sums.fetch_add(home, 0, number)?;
                    sums.add(home, 1, 1)?;
                    sums.xor(home, 2, number)?;
                    signed.add(home, 0, if number % 2 == 0 { -3 } else { 2 })?;
                    // Sums of small integers are exact in either type.
                    real.fetch_add(home, 0, 0.5)?;
                    short.add(home, 0, 1.0)?;
                    drawn.push(compare_and_draw(&tickets, home)?);
                }
                hydrant::Result::Ok(drawn)
            };
            let running: Vec<_> = (0..THREADS).map(|_| threads.spawn(work)).collect();
            (running.into_iter())
                .map(|thread| thread.join().expect("no thread panics"))
                .collect::<hydrant::Result<Vec<_>>>()
        })?
        .concat();
        job.barrier()?;
        let all = u64::from(RANKS) * THREADS as u64 * EACH;
        let workers = all / EACH;
        assert_eq!(sums.get_value(home, 0)?, workers * EACH * (EACH - 1) / 2);
        assert_eq!(sums.atomic_load(home, 1)?, all);
        assert_eq!(
            sums.get_value(home, 2)?,
            0,
            "every number came an even number of times"
        );
        assert_eq!(signed.atomic_load(home, 0)?, -(all as i32) / 2);
        assert_eq!(real.atomic_load(home, 0)?, all as f64 / 2.0);
        assert_eq!(short.get_value(home, 0)?, all as f32);
        assert_eq!(tickets.get_value(home, 0)?, all);
        // No number was drawn twice: the sums of all ranks and of their squares are right.
        let totals = job.alloc::<u64>(2)?;
        totals.add(Rank(0), 0, drawn.iter().sum())?;
        totals.add(Rank(0), 1, drawn.iter().map(|number| number * number).sum())?;
        job.barrier()?;
        assert_eq!(totals.get_value(Rank(0), 0)?, all * (all - 1) / 2);
        assert_eq!(
            totals.get_value(Rank(0), 1)?,
            (all - 1) * all * (2 * all - 1) / 6
        );
        job.barrier()
    });
}

/// Draws the next number by compare-and-swap.
fn compare_and_draw(tickets: &Symmetric<u64>, home: Rank) -> hydrant::Result<u64> {
    let mut expected = tickets.atomic_load(home, 0)?;
    loop {
        let seen = tickets.compare_swap(home, 0, expected, expected + 1)?;
        if seen == expected {
            return Ok(expected);
        }
        expected = seen;
    }
}

macro_rules! integers {
    ($($name:ident $type:ty,)+) => {$(
        #[test_on(every, native)]
        fn $name() {
            local(2, |job| {
                let m = job.alloc::<$type>(2)?;
                let to = job.right();
                assert_eq!(m.swap(to, 1, <$type>::MAX)?, 0);
                assert_eq!(m.fetch_add(to, 1, 1)?, <$type>::MAX);
                assert_eq!(m.atomic_load(to, 1)?, <$type>::MIN, "integers wrap");
                assert_eq!(m.compare_swap(to, 1, 5, 6)?, <$type>::MIN);
                assert_eq!(m.compare_swap(to, 1, <$type>::MIN, 0b1100)?, <$type>::MIN);
                assert_eq!(m.fetch_and(to, 1, 0b1010)?, 0b1100);
                assert_eq!(m.fetch_or(to, 1, 0b0001)?, 0b1000);
                assert_eq!(m.fetch_xor(to, 1, 0b1111)?, 0b1001);
                assert_eq!(m.atomic_load(to, 1)?, 0b0110);
                m.and(to, 1, 0b0011)?;
                m.or(to, 1, 0b1000)?;
                m.xor(to, 1, 0b0001)?;
                job.barrier()?;
                assert_eq!(m.local()?.to_vec(), [0, 0b1011], "the neighbour is untouched");
                job.barrier()
            });
        }
    )+};
}

integers! {
    of_unsigned_words u32,
    of_signed_words i32,
    of_unsigned_double_words u64,
    of_signed_double_words i64,
}

#[test_on(every, native)]
fn of_floats() {
    local(2, |job| {
        let m = job.alloc::<f64>(1)?;
        let to = job.right();
        m.atomic_store(to, 0, -0.0)?;
        // Compared to the bit: not the zero of the other sign.
        assert!(m.compare_swap(to, 0, 0.0, 1.0)?.is_sign_negative());
        assert_eq!(m.compare_swap(to, 0, -0.0, 1.5)?, 0.0);
        assert_eq!(m.fetch_add(to, 0, 0.25)?, 1.5);
        assert_eq!(m.swap(to, 0, f64::NAN)?, 1.75);
        assert!(m.fetch_add(to, 0, 1.0)?.is_nan());
        job.barrier()?;
        assert!(m.local()?.load(0)?.is_nan());
        job.barrier()
    });
}

/// On somewhat more pages than may be registered: where NICs change words, extents that were made wider
/// than what was asked for are given up for the part that is.
#[test_on(every, native)]
fn words_on_more_pages_than_may_be_registered_are_changed_in_turn() {
    const PAGES: usize = 300;
    const APART: usize = 512;
    good(builder().m(1 << 20).run_local(2, |job| {
        let words = job.alloc::<u64>(PAGES * APART)?;
        for _ in 0..3 {
            for page in 0..PAGES {
                words.fetch_add(job.right(), page * APART, 1)?;
            }
        }
        job.barrier()?;
        for page in 0..PAGES {
            assert_eq!(words.local()?.load(page * APART)?, 3);
        }
        job.barrier()
    }));
}
