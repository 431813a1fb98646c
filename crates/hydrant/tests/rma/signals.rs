//! Waiting for one signal, for any and for all of several, for a time, and not at all.

use std::{
    panic::{self, AssertUnwindSafe},
    time::Duration,
};

use hydrant::{Error, Rank, Signal};

use crate::support::local;

const WORDS: usize = 6;
const SOON: Duration = Duration::from_millis(20);

#[test_on(every)]
fn any_comes_with_its_place_and_all_come() {
    local(3, |job| {
        let words = job.alloc::<u64>(WORDS)?;
        let all: Vec<usize> = (0..WORDS).rev().collect();
        for round in 1..=20 {
            // From the left, one word after the other, in another order each time.
            for step in 0..WORDS {
                let at = (step * 5 + round) % WORDS;
                words.signal(job.right(), at, Signal::Set(round as u64))?;
            }
            let mut open = all.clone();
            while !open.is_empty() {
                let is_new = |word| word == round as u64;
                let (place, word) = job.wait_until_any(&words, &open, is_new)?;
                assert_eq!(word, round as u64);
                open.remove(place);
            }
            let found = job.wait_until_all(&words, &all, |word| word >= round as u64)?;
            assert_eq!(found, [round as u64; WORDS]);
            job.barrier()?;
        }
        Ok(())
    });
}

#[test_on(every)]
fn all_may_be_so_one_after_the_other() {
    local(2, |job| {
        let words = job.alloc::<u64>(2)?;
        if job.rank() == Rank(0) {
            // The first is taken back before the second is given.
            words.signal(Rank(1), 0, Signal::Set(1))?;
            job.wait_until(&words, 0, |seen| seen == 1)?;
            words.signal(Rank(1), 0, Signal::Set(0))?;
            words.signal(Rank(1), 1, Signal::Set(1))?;
        } else {
            let mut told = false;
            let found = job.wait_until_all(&words, &[0, 1], |word| {
                if word == 1 && !told {
                    told = true;
                    words.signal(Rank(0), 0, Signal::Set(1)).unwrap();
                }
                word == 1
            })?;
            assert_eq!(found, [1, 1]);
        }
        job.barrier()
    });
}

#[test_on(every)]
fn a_limit_of_time_ends_the_wait() {
    local(2, |job| {
        let words = job.alloc::<u64>(WORDS)?;
        let since = job.now();
        assert_eq!(
            job.wait_until_within(&words, 0, SOON, |word| word == 1)?,
            None
        );
        let any = job.wait_until_any_within(&words, &[1, 2], SOON, |word| word == 1)?;
        assert_eq!(any, None);
        assert!(job.now() - since >= 2 * SOON, "it came back early");
        job.barrier()?;
        words.signal(job.right(), 2, Signal::Set(1))?;
        let long = Duration::MAX;
        let found = job.wait_until_any_within(&words, &[1, 2], long, |word| word == 1)?;
        assert_eq!(found, Some((1, 1)));
        assert_eq!(
            job.wait_until_within(&words, 2, SOON, |word| word == 1)?,
            Some(1)
        );
        // What is so already is found however short the time is.
        let none = Duration::ZERO;
        assert_eq!(
            job.wait_until_within(&words, 2, none, |word| word == 1)?,
            Some(1)
        );
        job.barrier()
    });
}

#[test_on(every)]
fn a_look_does_not_wait() {
    local(2, |job| {
        let words = job.alloc::<u64>(WORDS)?;
        assert_eq!(job.test_until(&words, 3, |word| word == 1)?, None);
        assert_eq!(job.test_until_any(&words, &[0, 3], |word| word == 1)?, None);
        job.barrier()?;
        words.signal(job.right(), 3, Signal::Add(1))?;
        while job.test_until(&words, 3, |word| word == 1)?.is_none() {
            job.poll();
        }
        let found = job.test_until_any(&words, &[0, 3], |word| word == 1)?;
        assert_eq!(found, Some((1, 1)));
        job.barrier()
    });
}

#[test_on(every)]
fn what_cannot_be_waited_for_is_an_error() {
    local(1, |job| {
        let words = job.alloc::<u64>(WORDS)?;
        let none = job.wait_until_any(&words, &[], |_| true);
        assert!(matches!(none, Err(Error::NothingToWaitFor)), "{none:?}");
        let none = job.wait_until_all(&words, &[], |_| true);
        assert!(matches!(none, Err(Error::NothingToWaitFor)), "{none:?}");
        let none = job.test_until_any(&words, &[], |_| true);
        assert!(matches!(none, Err(Error::NothingToWaitFor)), "{none:?}");
        let beyond = job.wait_until_any(&words, &[0, WORDS], |_| true);
        assert!(
            matches!(beyond, Err(Error::OutOfBounds { .. })),
            "{beyond:?}"
        );
        let beyond = job.test_until(&words, usize::MAX, |_| true);
        assert!(
            matches!(beyond, Err(Error::OutOfBounds { .. })),
            "{beyond:?}"
        );
        let panicked = panic::catch_unwind(AssertUnwindSafe(|| {
            job.wait_until_any(&words, &[0], |_| panic!("in the look"))
        }));
        assert!(panicked.is_err());
        let gone = words.clone();
        job.free(words)?;
        let gone = job.wait_until_within(&gone, 0, SOON, |_| true);
        assert!(matches!(gone, Err(Error::Freed)), "{gone:?}");
        job.barrier()
    });
}
