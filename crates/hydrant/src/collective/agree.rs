//! The agreement: who is here, and whether all called the same.
//!
//! In round r a member tells the one 2^r before it (around the ring) and hears the one 2^r
//! after it. What it tells is its header and, once it has heard of any, a header that
//! does not fit. Each member so hears from every other over a chain of members: if two
//! headers differ, some link of the two chains to a member differs, whoever is first to
//! see it passes it on, and all know at the end.
//!
//! A message is one cache line, the sequence number last. Lines alternate by the parity of
//! the sequence number: the one written two agreements ago has been read, for its reader has
//! since entered the next.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use hydrant_conduit::Line;

use super::{
    header::Header,
    layout::{AGREED, SMALL},
    peer::Outlet,
    stores::Flag,
    team::{Team, outside},
};
use crate::{
    Error, Rank, Result,
    counters::Count,
    progress::{For, On},
};

/// What rides on the agreement.
pub(super) enum Piggyback<'a> {
    Nothing,
    /// A block of `each` bytes from every member. Mine is first; at the end that of the
    /// member p places after me is at place p.
    Blocks {
        all: &'a mut [u8],
        each: usize,
    },
    /// One member's bytes, to all. It is `distance` places after me.
    Spread {
        data: &'a mut [u8],
        distance: usize,
    },
}

impl Piggyback<'_> {
    /// Whether a block from each of `members` can ride.
    pub(super) fn fits(members: usize, each: usize) -> bool {
        // No message carries more than half of the blocks.
        each.checked_mul(members)
            .is_some_and(|bytes| bytes <= 2 * SMALL)
    }

    /// What goes out in the round of this distance, among `members`.
    #[inline]
    fn outgoing(&self, reach: usize, members: usize) -> &[u8] {
        match self {
            Piggyback::Nothing => &[],
            Piggyback::Blocks { all, each } => &all[..reach.min(members - reach) * each],
            Piggyback::Spread { data, distance } => {
                if *distance < reach && distance + reach < members {
                    data
                } else {
                    &[]
                }
            }
        }
    }

    /// Where what comes in goes.
    #[inline]
    fn incoming(&mut self, reach: usize, members: usize) -> &mut [u8] {
        match self {
            Piggyback::Nothing => &mut [],
            Piggyback::Blocks { all, each } => {
                &mut all[reach * *each..][..reach.min(members - reach) * *each]
            }
            Piggyback::Spread { data, distance } => {
                if (reach..2 * reach).contains(distance) {
                    data
                } else {
                    &mut []
                }
            }
        }
    }
}

/// What this member says, and what it heard that does not fit.
pub(super) struct Verdict {
    said: Header,
    /// May have taken on a barrier's name.
    known: Header,
    odd: Option<(Rank, Header)>,
}

impl Verdict {
    #[inline]
    pub(super) fn new(said: Header) -> Self {
        Self {
            said,
            known: said,
            odd: None,
        }
    }

    #[inline]
    fn tell(&self, line: &Line, sequence: u64) {
        let [a, b, c] = self.known.0;
        line[1].store(a, Relaxed);
        line[2].store(b, Relaxed);
        line[3].store(c, Relaxed);
        match self.odd {
            None => line[4].store(0, Relaxed),
            Some((rank, header)) => {
                line[4].store(u64::from(rank.0) + 1, Relaxed);
                for (word, said) in line[5..].iter().zip(header.0) {
                    word.store(said, Relaxed);
                }
            }
        }
        line[0].store(sequence, Release);
    }

    /// What follows the sequence number in a line; how many words of it say anything.
    fn words(&self) -> ([u64; 7], usize) {
        let [a, b, c] = self.known.0;
        match self.odd {
            None => ([a, b, c, 0, 0, 0, 0], 4),
            Some((rank, Header([x, y, z]))) => ([a, b, c, u64::from(rank.0) + 1, x, y, z], 7),
        }
    }

    /// Takes in what `from` sent. Whether all is well so far.
    #[inline]
    fn hear(&mut self, line: &Line, from: Rank) -> bool {
        let words = |at: usize| Header([at, at + 1, at + 2].map(|at| line[at].load(Relaxed)));
        let theirs = words(1);
        let odd = line[4].load(Relaxed);
        if odd == 0 && self.odd.is_none() && self.known.agrees(theirs) {
            return true;
        }
        if self.odd.is_none() {
            // Of two headers that differ, one differs from mine.
            self.odd = Some(if odd == 0 || !self.known.agrees(theirs) {
                (theirs.origin().unwrap_or(from), theirs)
            } else {
                (Rank((odd - 1) as u32), words(5))
            });
        }
        false
    }

    #[inline]
    fn result(&self, own: Rank) -> Result<()> {
        match self.odd {
            None => Ok(()),
            Some((rank, theirs)) => Err(self.mismatch(rank, theirs, own)),
        }
    }

    #[cold]
    fn mismatch(&self, rank: Rank, theirs: Header, own: Rank) -> Error {
        // A name taken on is whose it was.
        let (own, ours) = match self.known.origin() {
            Some(origin) if self.said.origin().is_none() => (origin, self.known),
            _ => (own, self.said),
        };
        Error::CollectiveMismatch {
            operation: self.said.name(),
            rank,
            theirs: theirs.describe(),
            own,
            ours: ours.describe(),
        }
    }
}

impl Team {
    /// Agrees with the other members on a collective, with what rides on it. `checked` is what this
    /// member found about its own arguments; it is returned if all agree.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`] on every member if headers differ; [`Error::PeerLost`].
    pub(super) fn agree<R>(
        &self,
        header: Header,
        checked: Result<R>,
        piggyback: Piggyback<'_>,
    ) -> Result<R> {
        let (header, piggyback) = match &checked {
            Ok(_) => (header, piggyback),
            // Taking part keeps the members in step.
            Err(_) => (header.refused(), Piggyback::Nothing),
        };
        let sequence = self.begin();
        let outcome = self.rounds_from(0, sequence, Verdict::new(header), piggyback);
        // One's own error says more than that the others differ.
        let checked = checked?;
        outcome.map(|()| checked)
    }

    /// The number of a new agreement.
    #[inline]
    pub(super) fn begin(&self) -> u64 {
        self.progress.tally.one(Count::Collectives);
        let sequence = self.sequence.load(Relaxed) + 1;
        self.sequence.store(sequence, Relaxed);
        sequence
    }

    /// The rounds of an agreement; this member has sent its messages of those before `first`.
    #[inline]
    pub(super) fn rounds_from(
        &self,
        first: usize,
        sequence: u64,
        mut verdict: Verdict,
        mut piggyback: Piggyback<'_>,
    ) -> Result<()> {
        let (parity, members) = ((sequence & 1) as usize, self.members.len());
        for (number, round) in self.rounds.iter().enumerate() {
            if number >= first {
                self.tell(number, sequence, &verdict, &piggyback)?;
            }
            let line = &round.hear[parity];
            if line[0].load(Acquire) != sequence {
                self.until_arrived(sequence, || line[0].load(Acquire) == sequence)?;
            }
            if verdict.hear(line, self.members[round.from]) {
                let incoming = piggyback.incoming(1 << number, members);
                if !incoming.is_empty() {
                    round.piggyback_in[parity]
                        .read(0, incoming)
                        .map_err(outside)?;
                }
            }
        }
        self.ledger[AGREED].store(sequence, Release);
        if verdict.odd.is_some() {
            self.report_mismatch(sequence);
        }
        verdict.result(self.progress.rank)
    }

    /// Waits until `arrived`, in the agreement of this number.
    ///
    /// A member that has agreed and ended since, in good order or not, has sent all it had
    /// to send. Any other that ended is missing, to this member or to one that waits for it.
    #[inline]
    fn until_arrived(&self, sequence: u64, mut arrived: impl FnMut() -> bool) -> Result<()> {
        match self.until(&mut arrived) {
            Err(Error::PeerLost(rank)) => self.until_arrived_without(rank, sequence, arrived),
            other => other,
        }
    }

    #[cold]
    fn until_arrived_without(
        &self,
        mut lost: Rank,
        sequence: u64,
        mut arrived: impl FnMut() -> bool,
    ) -> Result<()> {
        let mut needed = self.members.clone();
        loop {
            self.progress.drain();
            let agreed = (self.members.iter().position(|rank| *rank == lost))
                .and_then(|member| self.agreed(member))
                .is_some_and(|agreed| agreed >= sequence);
            if !agreed {
                return Err(Error::PeerLost(lost));
            }
            needed.retain(|rank| *rank != lost);
            match self
                .progress
                .wait(On::Ranks(&needed), For::Flag, &mut arrived)
            {
                Err(Error::PeerLost(rank)) => lost = rank,
                other => return other,
            }
        }
    }

    /// Tells the member of a round.
    #[inline]
    pub(super) fn tell(
        &self,
        number: usize,
        sequence: u64,
        verdict: &Verdict,
        piggyback: &Piggyback<'_>,
    ) -> Result<()> {
        let (round, parity) = (&self.rounds[number], (sequence & 1) as usize);
        let outgoing = match verdict.odd {
            None => piggyback.outgoing(1 << number, self.members.len()),
            Some(_) => &[],
        };
        match &round.out[parity] {
            Outlet::Mapped { line, piggyback } => {
                if !outgoing.is_empty() {
                    piggyback.write(0, outgoing).map_err(outside)?;
                }
                verdict.tell(line, sequence);
                self.touched(round.to);
                Ok(())
            }
            Outlet::Unmapped { line, piggyback } => {
                let (words, said) = verdict.words();
                let flag = Flag {
                    at: *line,
                    value: sequence,
                    beside: &words[..said],
                };
                self.store_by_message(round.to, *piggyback, outgoing, flag)
            }
        }
    }
}
