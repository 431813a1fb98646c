//! The steps that all ranks take together, drawn the same on each, while their threads go on.

use std::time::Duration;

use hydrant::{Job, Rank, Result, Signal, Symmetric};

use super::{
    background::Background,
    hand::Hand,
    round::{COMMON, Round},
};
use crate::seed::Seed;

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
