//! Words that are changed atomically. All threads add to some of them, and the sums must be right.
//! Others belong to one thread, which knows their content.

use hydrant::{BackgroundHandle, Job, Op, Rank, Result, Symmetric};
use hydrant_base::block_on;

use super::hand::{Crew, Hand};

/// The words that all threads add to, and the words of each thread, at each rank.
const SHARED: usize = 4;
const OWN: usize = 3;

/// The memory, which all threads of a rank share.
#[derive(Clone)]
pub(crate) struct SharedWords {
    wide: Symmetric<u64>,
    narrow: Symmetric<u32>,
    float: Symmetric<f64>,
    own: Symmetric<u64>,
}

impl SharedWords {
    /// Allocates the memory. Collective.
    pub(crate) fn new(job: &Job, crew: Crew) -> Result<Self> {
        Ok(Self {
            wide: job.alloc(SHARED)?,
            narrow: job.alloc(SHARED)?,
            float: job.alloc(SHARED)?,
            own: job.alloc(crew.workers() * OWN)?,
        })
    }
}

/// The sums that a thread added, and the expected content of its own words.
pub(crate) struct Words {
    memory: SharedWords,
    /// By kind, rank and word.
    pub(crate) added: Vec<u64>,
    own: Vec<u64>,
}

/// The kinds of shared words.
const KINDS: usize = 3;

impl Words {
    pub(crate) fn new(memory: &SharedWords, crew: Crew) -> Self {
        Self {
            memory: memory.clone(),
            added: vec![0; KINDS * crew.ranks * SHARED],
            own: vec![0; crew.ranks * OWN],
        }
    }

    pub(crate) fn step(&mut self, hand: &mut Hand) -> Result<()> {
        let target = hand.draw_rank();
        match hand.dice.below(4) {
            0 => self.add(hand, target),
            1 => self.begin(hand, target),
            _ => self.change(hand, target),
        }
    }

    fn add(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let (kind, at) = (hand.dice.below(KINDS), hand.dice.below(SHARED));
        let (value, fetches) = (hand.dice.below(1000), hand.dice.one_in(2));
        let what = format!("add of {value} to word {at} of kind {kind} of rank {target}");
        let SharedWords {
            wide,
            narrow,
            float,
            ..
        } = &self.memory;
        let added = hand.must(&what, |_| match (kind, fetches) {
            (0, true) => wide.fetch_add(target, at, value as u64).map(drop),
            (0, false) => wide.add(target, at, value as u64),
            (1, true) => narrow.fetch_add(target, at, value as u32).map(drop),
            (1, false) => narrow.add(target, at, value as u32),
            (_, true) => float.fetch_add(target, at, value as f64).map(drop),
            (_, false) => float.add(target, at, value as f64),
        })?;
        if added.is_some() {
            let ranks = hand.crew.ranks;
            self.added[(kind * ranks + target.index()) * SHARED + at] += value as u64;
        }
        Ok(())
    }

    fn change(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let at = hand.dice.below(OWN);
        let index = hand.worker * OWN + at;
        let (expected, value) = (self.own[target.index() * OWN + at], hand.dice.word());
        let (own, kind) = (&self.memory.own, hand.dice.below(9));
        let what = format!("atomic {kind} on own word {index} of rank {target}");
        // The value that it must find, and the value that it leaves.
        let (found, left) = match kind {
            0 => (hand.must(&what, |_| own.swap(target, index, value))?, value),
            1 => {
                let swap = |_: &_| own.compare_swap(target, index, expected, value);
                (hand.must(&what, swap)?, value)
            }
            2 => {
                let other = expected ^ (value | 1);
                let swap = |_: &_| own.compare_swap(target, index, other, value);
                (hand.must(&what, swap)?, expected)
            }
            3 => {
                let and = |_: &_| own.fetch_and(target, index, value);
                (hand.must(&what, and)?, expected & value)
            }
            4 => {
                let or = |_: &_| own.fetch_or(target, index, value);
                (hand.must(&what, or)?, expected | value)
            }
            5 => {
                let xor = |_: &_| own.fetch_xor(target, index, value);
                (hand.must(&what, xor)?, expected ^ value)
            }
            6 => {
                let store = |_: &_| own.atomic_store(target, index, value);
                (hand.must(&what, store)?.map(|()| expected), value)
            }
            7 => {
                let load = |_: &_| own.atomic_load(target, index);
                (hand.must(&what, load)?, expected)
            }
            _ => {
                let pointed = |job: &Job| {
                    let word = job.atomic(own.pointer(target, index)?)?;
                    let found = word.compare_swap(expected, !value)?;
                    match word.swap(value)? {
                        between if between == !value => Ok(found),
                        between => Ok(between),
                    }
                };
                (hand.must(&what, pointed)?, value)
            }
        };
        if let Some(found) = found {
            hand.check(found == expected, || {
                format!("{what}: it was {found:#x} instead of {expected:#x}")
            });
            self.own[target.index() * OWN + at] = left;
        }
        Ok(())
    }

    /// Additions to all own words of a rank, in flight at once, and one to a shared word that
    /// nobody waits for before `quiet`.
    fn begin(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let SharedWords { wide, own, .. } = &self.memory;
        let (value, at) = (1 + hand.dice.below(1000) as u64, hand.dice.below(SHARED));
        let first = hand.worker * OWN;
        let what = format!("fetch_add_nb of {value} to own words of rank {target}");
        let begin = |job: &Job| -> Result<Vec<BackgroundHandle<u64>>> {
            let by_handle = (1..OWN).map(|word| own.fetch_add_nb(target, first + word, value));
            let pointer = own.pointer(target, first)?;
            let by_pointer = job.atomic(pointer)?.fetch_add_nb(value);
            std::iter::once(by_pointer).chain(by_handle).collect()
        };
        let Some(begun) = hand.must(&what, begin)? else {
            return Ok(());
        };
        if hand
            .must(&what, |_| wide.fetch_add_nb(target, at, value).map(drop))?
            .is_some()
        {
            // The addition is complete by the time of `quiet`, which comes before the check of the
            // sums.
            self.added[target.index() * SHARED + at] += value;
        }
        for (word, mut add) in begun.into_iter().enumerate() {
            let found = match hand.dice.below(5) {
                0 if hand.crew.leaks => {
                    std::mem::forget(add);
                    None
                }
                0 => hand.must(&what, |job| job.wait_for(add)?)?,
                1 => hand.must(&what, |_| block_on(add))?,
                2 => hand.must(&what, |_| {
                    for _ in 0..20 {
                        if add.test()? {
                            break;
                        }
                    }
                    add.wait()
                })?,
                _ => hand.must(&what, |_| add.wait())?,
            };
            let own = &mut self.own[target.index() * OWN + word];
            let (expected, sum) = (*own, own.wrapping_add(value));
            *own = sum;
            let Some(found) = found else { continue };
            hand.check(found == expected, || {
                format!("{what}: it was {found:#x} instead of {expected:#x}")
            });
        }
        hand.must("quiet", Job::quiet).map(drop)
    }

    /// Checks the thread's own words.
    pub(crate) fn check_own(&self, hand: &mut Hand) -> Result<()> {
        for target in hand.job.ranks() {
            for at in 0..OWN {
                let index = hand.worker * OWN + at;
                let load = |_: &_| self.memory.own.atomic_load(target, index);
                let expected = self.own[target.index() * OWN + at];
                if let Some(found) = hand.must("check of an own word", load)? {
                    hand.check(found == expected, || {
                        format!("word {index} of rank {target} is {found:#x}, not {expected:#x}")
                    });
                }
            }
        }
        Ok(())
    }
}

/// Checks the sums of all ranks, after all additions. Collective.
pub(crate) fn check_sums(hand: &mut Hand, memory: &SharedWords, mut added: Vec<u64>) -> Result<()> {
    hand.attempt("all_reduce of what was added", |job| {
        job.all_reduce(&mut added, Op::Sum)
    })?;
    let (ranks, own) = (hand.crew.ranks, hand.job.rank());
    for (kind, sums) in added.chunks(ranks * SHARED).enumerate() {
        for at in 0..SHARED {
            let sum = sums[own.index() * SHARED + at];
            let found = hand.attempt("sum", |_| match kind {
                0 => memory.wide.atomic_load(own, at),
                1 => memory.narrow.atomic_load(own, at).map(u64::from),
                _ => memory.float.atomic_load(own, at).map(|sum| sum as u64),
            })?;
            // Words of 32 bits wrap.
            let sum = if kind == 1 { sum & 0xffff_ffff } else { sum };
            hand.check(found == sum, || {
                format!("all added {sum} to word {at} of kind {kind}, which is {found}")
            });
        }
    }
    Ok(())
}
