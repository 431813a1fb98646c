//! The steps that all ranks take together, drawn the same on each, while their threads go on.

use std::time::Duration;

use hydrant::{Error, Job, Op, Rank, Result, Signal, Symmetric};
use hydrant_base::mix;

use super::{background::Background, hand::Hand};
use crate::seed::Seed;

/// Separates the common draws of all ranks from the draws of each.
const COMMON: u64 = 0x0061_6c6c;
/// Words of the ring's mailbox.
const MAIL: usize = 600;

/// The state for a rank's collectives.
pub(crate) struct Collectives {
    mail: Symmetric<u64>,
    signals: Symmetric<u64>,
    rounds: u64,
    signalled: u64,
    seed: u64,
    background: Background,
}

impl Collectives {
    /// Allocates the memory and makes the team. Collective.
    pub(crate) fn new(job: &Job, seed: u64) -> Result<Self> {
        Ok(Self {
            mail: job.alloc(MAIL)?,
            signals: job.alloc(1)?,
            rounds: 0,
            signalled: 0,
            seed,
            background: Background::new(job)?,
        })
    }

    /// The next common step of all ranks.
    pub(crate) fn step(&mut self, hand: &mut Hand) -> Result<()> {
        self.rounds += 1;
        // The same on every rank.
        let mut dice = Seed::new(self.seed ^ COMMON, self.rounds).random();
        let most = 1 << dice.below(10);
        let round = Round {
            number: self.rounds,
            root: Rank(dice.below(hand.crew.ranks) as u32),
            len: 1 + dice.below(most),
        };
        match dice.below(19) {
            0 => hand.attempt("barrier", Job::barrier),
            1 => notify_and_wait(hand),
            2 => round.broadcast(hand),
            3 => round.reduce(hand),
            4 => round.all_reduce(hand),
            5 => round.gather(hand),
            6 => round.all_gather(hand),
            7 => round.scatter(hand),
            8 => round.all_to_all(hand),
            9 => round.all_to_all_v(hand),
            10 => round.scan(hand),
            11 | 12 => round.split(hand),
            13 => round.alloc_and_free(hand),
            14..17 => self.background.step(hand, &round),
            _ => self.ring(hand, &round),
        }
    }

    /// Ends the collectives in flight.
    pub(crate) fn finish(&mut self, hand: &mut Hand) -> Result<()> {
        self.background.finish(hand)
    }

    /// A block to the right with a signal, and one from the left.
    fn ring(&mut self, hand: &mut Hand, round: &Round) -> Result<()> {
        let len = round.len.min(MAIL);
        let words: Vec<u64> = (0..len).map(|at| round.word(hand.job.rank(), at)).collect();
        let right = hand.job.right();
        // Some ranks come late, so that the others fall asleep.
        if hand.dice.one_in(3) {
            hand.compute();
        }
        hand.attempt("put_signal", |_| {
            let by = Signal::Add(1);
            (self.mail).put_signal(right, 0, &words, &self.signals, 0, by)
        })?;
        self.signalled += 1;
        let enough = self.signalled;
        let signals = &self.signals;
        match hand.dice.below(3) {
            0 => hand.attempt("wait_until", |job| {
                job.wait_until(signals, 0, |count| count >= enough)
            })?,
            1 => hand.attempt("wait_until_any", |job| {
                let (_, count) = job.wait_until_any(signals, &[0], |count| count >= enough)?;
                Ok(count)
            })?,
            _ => loop {
                let time = Duration::from_micros(50);
                let count = hand.attempt("wait_until_within", |job| {
                    job.wait_until_within(signals, 0, time, |count| count >= enough)
                })?;
                if let Some(count) = count {
                    break count;
                }
            },
        };
        let (left, mut got) = (hand.job.left(), vec![0; len]);
        self.mail.local()?.read(0, &mut got)?;
        let right = (0..len).all(|at| got[at] == round.word(left, at));
        hand.check(right, || {
            format!("{len} words with a signal from rank {left} are wrong")
        });
        // The mailbox must be read before the next put.
        hand.attempt("barrier", Job::barrier)
    }
}

fn notify_and_wait(hand: &mut Hand) -> Result<()> {
    hand.attempt("barrier_notify", |job| job.barrier_notify(Some(7)))?;
    if hand.dice.one_in(2) {
        hand.compute();
    }
    hand.attempt("barrier_wait", |job| job.barrier_wait(Some(7)))
}

/// One common step.
pub(super) struct Round {
    number: u64,
    root: Rank,
    pub(super) len: usize,
}

impl Round {
    /// The input of a rank, word by word; small, so that sums are exact.
    fn word(&self, rank: Rank, at: usize) -> u64 {
        mix(mix(self.number ^ u64::from(rank.0) << 40) ^ at as u64) >> 16
    }

    /// A number that all ranks draw alike.
    pub(super) fn draw(&self, nth: u64) -> u64 {
        mix(mix(self.number ^ COMMON) ^ nth) >> 16
    }

    pub(super) fn words(&self, rank: Rank) -> Vec<u64> {
        (0..self.len).map(|at| self.word(rank, at)).collect()
    }

    pub(super) fn sum(&self, ranks: impl Iterator<Item = Rank>) -> Vec<u64> {
        let ranks: Vec<Rank> = ranks.collect();
        let sum = |at| ranks.iter().map(|rank| self.word(*rank, at)).sum();
        (0..self.len).map(sum).collect()
    }

    fn compare(&self, hand: &mut Hand, what: &str, got: &[u64], expected: &[u64]) {
        let (number, len) = (self.number, self.len);
        hand.check(got == expected, || {
            format!("{what} of {len} words in round {number}: the result is wrong")
        });
    }

    fn broadcast(&self, hand: &mut Hand) -> Result<()> {
        let (root, mut words) = (self.root, self.words(hand.job.rank()));
        hand.attempt("broadcast", |job| job.broadcast(root, &mut words))?;
        self.compare(hand, "broadcast", &words, &self.words(root));
        Ok(())
    }

    fn reduce(&self, hand: &mut Hand) -> Result<()> {
        let (root, words) = (self.root, self.words(hand.job.rank()));
        let got = hand.attempt("reduce", |job| job.reduce(root, &words, Op::Sum))?;
        let expected = (hand.job.rank() == root).then(|| self.sum(hand.job.ranks()));
        self.compare(
            hand,
            "reduce",
            &got.unwrap_or_default(),
            &expected.unwrap_or_default(),
        );
        Ok(())
    }

    fn all_reduce(&self, hand: &mut Hand) -> Result<()> {
        let mut words = self.words(hand.job.rank());
        hand.attempt("all_reduce", |job| job.all_reduce(&mut words, Op::Sum))?;
        self.compare(hand, "all_reduce", &words, &self.sum(hand.job.ranks()));
        Ok(())
    }

    fn all(&self, job: &Job) -> Vec<u64> {
        job.ranks().flat_map(|rank| self.words(rank)).collect()
    }

    fn gather(&self, hand: &mut Hand) -> Result<()> {
        let (root, words) = (self.root, self.words(hand.job.rank()));
        let got = hand.attempt("gather", |job| job.gather(root, &words))?;
        let expected = (hand.job.rank() == root).then(|| self.all(hand.job));
        self.compare(
            hand,
            "gather",
            &got.unwrap_or_default(),
            &expected.unwrap_or_default(),
        );
        Ok(())
    }

    fn all_gather(&self, hand: &mut Hand) -> Result<()> {
        let words = self.words(hand.job.rank());
        let got = hand.attempt("all_gather", |job| job.all_gather(&words))?;
        self.compare(hand, "all_gather", &got, &self.all(hand.job));
        Ok(())
    }

    fn scatter(&self, hand: &mut Hand) -> Result<()> {
        let (root, own) = (self.root, hand.job.rank());
        let all = (own == root).then(|| self.all(hand.job));
        let mut mine = vec![0; self.len];
        hand.attempt("scatter", |job| {
            job.scatter(root, all.as_deref(), &mut mine)
        })?;
        self.compare(hand, "scatter", &mine, &self.words(own));
        Ok(())
    }

    /// The part of a rank for another.
    pub(super) fn part(&self, from: Rank, to: Rank, len: usize) -> Vec<u64> {
        let word = |at| mix(self.word(from, at) ^ u64::from(to.0));
        (0..len).map(word).collect()
    }

    fn all_to_all(&self, hand: &mut Hand) -> Result<()> {
        let (own, len) = (hand.job.rank(), self.len);
        let ranks = || hand.job.ranks();
        let parts: Vec<u64> = ranks().flat_map(|to| self.part(own, to, len)).collect();
        let expected: Vec<u64> = ranks().flat_map(|from| self.part(from, own, len)).collect();
        let got = hand.attempt("all_to_all", |job| job.all_to_all(&parts))?;
        self.compare(hand, "all_to_all", &got, &expected);
        Ok(())
    }

    fn all_to_all_v(&self, hand: &mut Hand) -> Result<()> {
        let own = hand.job.rank();
        let len = |from: Rank, to: Rank| (self.len * (from.index() + 2 * to.index())) % 700;
        let ranks = || hand.job.ranks();
        let parts: Vec<_> = ranks().map(|to| self.part(own, to, len(own, to))).collect();
        let expected: Vec<_> = ranks()
            .map(|from| self.part(from, own, len(from, own)))
            .collect();
        let got = hand.attempt("all_to_all_v", |job| job.all_to_all_v(&parts))?;
        hand.check(got == expected, || {
            "all_to_all_v: the result is wrong".to_owned()
        });
        Ok(())
    }

    fn scan(&self, hand: &mut Hand) -> Result<()> {
        let own = hand.job.rank();
        let mut words = self.words(own);
        hand.attempt("scan", |job| job.scan(&mut words, Op::Sum))?;
        let expected = self.sum((0..=own.0).map(Rank));
        self.compare(hand, "scan", &words, &expected);
        let mut words = self.words(own);
        hand.attempt("exclusive_scan", |job| {
            job.exclusive_scan(&mut words, Op::Sum)
        })?;
        // The content at the first rank is not specified.
        if own != Rank(0) {
            let expected = self.sum((0..own.0).map(Rank));
            self.compare(hand, "exclusive_scan", &words, &expected);
        }
        Ok(())
    }

    /// Teams: each rank belongs to one of them, or to none.
    fn split(&self, hand: &mut Hand) -> Result<()> {
        let (number, own) = (self.number, hand.job.rank());
        let color = |rank: Rank| {
            let color = mix(number ^ u64::from(rank.0) << 8) % 3;
            (color < 2).then_some(color as u32)
        };
        let team = hand.attempt("split", |job| job.world().split(color(own), own.0))?;
        let Some(team) = team else {
            hand.check(color(own).is_none(), || "a rank got no team".to_owned());
            return Ok(());
        };
        let same = |rank: &Rank| color(*rank) == color(own);
        let members: Vec<Rank> = hand.job.ranks().filter(same).collect();
        let right = team.members() == members;
        hand.check(right, || {
            format!("a team is {:?}, not {members:?}", team.members())
        });
        let mut words = self.words(own);
        hand.attempt("all_reduce in a team", |_| {
            team.all_reduce(&mut words, Op::Sum)
        })?;
        let expected = self.sum(members.iter().copied());
        self.compare(hand, "all_reduce in a team", &words, &expected);
        hand.attempt("barrier of a team", |_| team.barrier())
    }

    /// Memory that is allocated and freed, and a pointer that outlives it.
    fn alloc_and_free(&self, hand: &mut Hand) -> Result<()> {
        let (own, right, left) = (hand.job.rank(), hand.job.right(), hand.job.left());
        let memory = hand.attempt("alloc", |job| job.alloc::<u64>(2 * self.len))?;
        let words = self.words(own);
        let what = format!("put of {} words into new memory", self.len);
        let put = hand.must(&what, |_| memory.put(right, 0, &words))?;
        hand.attempt("barrier", Job::barrier)?;
        // For a phase the memory belongs to this rank alone.
        let mut mine = hand.attempt("exclusive", |job| Ok(job.exclusive(memory)?))?;
        if put.is_some() {
            let got = &mine[..self.len];
            self.compare(hand, "put into new memory", got, &self.words(left));
        }
        mine.fill(own.0.into());
        let memory = hand.attempt("share", |job| Ok(job.share(mine)?))?;
        let mut got = vec![0; self.len];
        if (hand.must("get of what was shared", |_| memory.get(right, 0, &mut got))?).is_some() {
            self.compare(
                hand,
                "get of what was shared",
                &got,
                &vec![right.0.into(); self.len],
            );
        }
        let pointer = memory.pointer(right, 0)?;
        hand.attempt("barrier", Job::barrier)?;
        hand.attempt("free", |job| job.free(memory))?;
        // By now, others may have their next allocation there.
        let late = hand.attempt("late put_to", |job| job.put_to(pointer, &words));
        let refused = matches!(late, Err(Error::Freed | Error::Revoked { .. }));
        hand.check(refused, || {
            format!("a put to memory that was freed: {late:?}")
        });
        Ok(())
    }
}
