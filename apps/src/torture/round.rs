//! One common step: a collective with an input that all ranks know, and its expected result.

use hydrant::{Error, Job, Op, Rank, Result};
use hydrant_base::mix;

use super::hand::Hand;

/// Separates the common draws of all ranks from the draws of each.
pub(super) const COMMON: u64 = 0x0061_6c6c;

/// One common step.
pub(super) struct Round {
    pub(super) number: u64,
    pub(super) root: Rank,
    pub(super) len: usize,
}

impl Round {
    /// The input of a rank, word by word; small, so that sums are exact.
    pub(super) fn word(&self, rank: Rank, at: usize) -> u64 {
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

    pub(super) fn compare(&self, hand: &mut Hand, what: &str, got: &[u64], expected: &[u64]) {
        let (number, len) = (self.number, self.len);
        hand.check(got == expected, || {
            format!("{what} of {len} words in round {number}: the result is wrong")
        });
    }

    pub(super) fn broadcast(&self, hand: &mut Hand) -> Result<()> {
        let (root, mut words) = (self.root, self.words(hand.job.rank()));
        hand.attempt("broadcast", |job| job.broadcast(root, &mut words))?;
        self.compare(hand, "broadcast", &words, &self.words(root));
        Ok(())
    }

    pub(super) fn reduce(&self, hand: &mut Hand) -> Result<()> {
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

    pub(super) fn all_reduce(&self, hand: &mut Hand) -> Result<()> {
        let mut words = self.words(hand.job.rank());
        hand.attempt("all_reduce", |job| job.all_reduce(&mut words, Op::Sum))?;
        self.compare(hand, "all_reduce", &words, &self.sum(hand.job.ranks()));
        Ok(())
    }

    pub(super) fn all(&self, job: &Job) -> Vec<u64> {
        job.ranks().flat_map(|rank| self.words(rank)).collect()
    }

    pub(super) fn gather(&self, hand: &mut Hand) -> Result<()> {
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

    pub(super) fn all_gather(&self, hand: &mut Hand) -> Result<()> {
        let words = self.words(hand.job.rank());
        let got = hand.attempt("all_gather", |job| job.all_gather(&words))?;
        self.compare(hand, "all_gather", &got, &self.all(hand.job));
        Ok(())
    }

    pub(super) fn scatter(&self, hand: &mut Hand) -> Result<()> {
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

    pub(super) fn all_to_all(&self, hand: &mut Hand) -> Result<()> {
        let (own, len) = (hand.job.rank(), self.len);
        let ranks = || hand.job.ranks();
        let parts: Vec<u64> = ranks().flat_map(|to| self.part(own, to, len)).collect();
        let expected: Vec<u64> = ranks().flat_map(|from| self.part(from, own, len)).collect();
        let got = hand.attempt("all_to_all", |job| job.all_to_all(&parts))?;
        self.compare(hand, "all_to_all", &got, &expected);
        Ok(())
    }

    pub(super) fn all_to_all_v(&self, hand: &mut Hand) -> Result<()> {
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

    pub(super) fn scan(&self, hand: &mut Hand) -> Result<()> {
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
    pub(super) fn split(&self, hand: &mut Hand) -> Result<()> {
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
    pub(super) fn alloc_and_free(&self, hand: &mut Hand) -> Result<()> {
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
