//! The agreement: who is here, and whether all called the same.
//!
//! In round r a member tells the one 2^r before it (around the ring) and hears the one 2^r
//! after it. What it tells is its header and, once it has heard of any, a header that
//! does not fit. Each member so hears from every other over a chain of members: if two
//! headers differ, some link of the two chains to a member differs, whoever is first to
//! see it passes it on, and all know at the end.
//!
//! Where each member maps the scratch of each, and they are few, there is one round, in which a member
//! tells all others and hears all: what that saves is the time in which a member waits for its
//! core, once for each round, where there are more ranks than cores. What rides lies in the scratch of who gives
//! it, once for all who need it or in parts, one for each; or, if it is short, in the lines themselves. It is
//! [read](super::piggybacked_blocks) when the agreement has ended.
//!
//! A message is one cache line, the sequence number last. Lines alternate by the parity of
//! the sequence number: the one written two agreements ago has been read, for its reader has
//! since entered the next. That is so if the next has come to its end here. One that has not, for
//! want of a lost member, is the last in which this member tells anything, and so is one whose data it gave up
//! ([`Team::check_last_agreed`]).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use hydrant_conduit::{Line, Window};

use super::{
    awaited::Awaited,
    header::CallHeader,
    layout::AGREED,
    peer::{RoundTarget, is_mapped},
    piggyback::PiggybackData,
    stores::FlagStore,
    team::{QUEUED, Team, outside, poll_once},
};
use crate::{
    Error, Rank, Result,
    counters::Count,
    progress::{For, On},
};

/// Where in a line the header is that does not fit. If all is well, what rides may be there.
const MISFIT: usize = 5;
/// Bytes for which there is room in its place.
const BESIDE: usize = 3 * size_of::<u64>();

/// What this member says, and what it heard that does not fit.
pub(super) struct HeaderComparison {
    said: CallHeader,
    /// May have taken on a barrier's name.
    known: CallHeader,
    misfit: Option<(Rank, CallHeader)>,
}

impl HeaderComparison {
    #[inline]
    pub(super) fn new(said: CallHeader) -> Self {
        Self {
            said,
            known: said,
            misfit: None,
        }
    }

    /// With so few bytes that they go [beside](BESIDE) a comparison that all is well.
    #[inline]
    fn write_line(&self, line: &Line, sequence: u64, beside: &[u8]) {
        let [a, b, c] = self.known.0;
        line[1].store(a, Relaxed);
        line[2].store(b, Relaxed);
        line[3].store(c, Relaxed);
        match self.misfit {
            None => {
                line[4].store(0, Relaxed);
                for (word, bytes) in line[MISFIT..].iter().zip(beside.chunks(size_of::<u64>())) {
                    let mut said = [0; size_of::<u64>()];
                    said[..bytes.len()].copy_from_slice(bytes);
                    word.store(u64::from_ne_bytes(said), Relaxed);
                }
            }
            Some((rank, header)) => {
                line[4].store(u64::from(rank.0) + 1, Relaxed);
                for (word, said) in line[MISFIT..].iter().zip(header.0) {
                    word.store(said, Relaxed);
                }
            }
        }
        line[0].store(sequence, Release);
    }

    /// What follows the sequence number in a line; how many words of it say anything.
    fn message_words(&self) -> ([u64; 7], usize) {
        let [a, b, c] = self.known.0;
        match self.misfit {
            None => ([a, b, c, 0, 0, 0, 0], 4),
            Some((rank, CallHeader([x, y, z]))) => ([a, b, c, u64::from(rank.0) + 1, x, y, z], 7),
        }
    }

    /// Takes in what `from` sent. Whether all is well so far.
    #[inline]
    fn compare(&mut self, line: &Line, from: Rank) -> bool {
        let words = |at: usize| CallHeader([at, at + 1, at + 2].map(|at| line[at].load(Relaxed)));
        let theirs = words(1);
        let misfit = line[4].load(Relaxed);
        if misfit == 0 && self.misfit.is_none() && self.known.agrees(theirs) {
            return true;
        }
        if self.misfit.is_none() {
            // Of two headers that differ, one differs from mine.
            self.misfit = Some(if misfit == 0 || !self.known.agrees(theirs) {
                (theirs.origin().unwrap_or(from), theirs)
            } else {
                (Rank((misfit - 1) as u32), words(MISFIT))
            });
        }
        false
    }

    #[inline]
    fn result(&self, own: Rank) -> Result<()> {
        match self.misfit {
            None => Ok(()),
            Some((rank, theirs)) => Err(self.mismatch(rank, theirs, own)),
        }
    }

    #[cold]
    fn mismatch(&self, rank: Rank, theirs: CallHeader, own: Rank) -> Error {
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

/// An agreement under way: what is written once for those who wait and for those who do not.
pub(super) struct Agreement<'a> {
    sequence: u64,
    comparison: HeaderComparison,
    piggyback: PiggybackData<'a>,
    /// This member has sent its messages of the rounds before this one.
    next_to_send: usize,
}

impl<'a> Agreement<'a> {
    #[inline]
    pub(super) fn new(
        sequence: u64,
        comparison: HeaderComparison,
        piggyback: PiggybackData<'a>,
    ) -> Self {
        Self {
            sequence,
            comparison,
            piggyback,
            next_to_send: 0,
        }
    }

    /// The messages that [`Team::send_first_messages`] sends have been sent.
    pub(super) fn skip_first_messages(&mut self, team: &Team) {
        self.next_to_send = team.messages_sent_at_start();
    }

    /// Sends the messages up to that of a round. Whether the one to hear is there already.
    #[inline]
    fn send(&mut self, team: &Team, number: usize) -> Result<bool> {
        if self.next_to_send == 0 {
            team.show_piggyback(self.sequence, &self.comparison, &self.piggyback)?;
        }
        while self.next_to_send <= number
            || team.layout.is_flat() && self.next_to_send < team.rounds.len()
        {
            team.send_message(
                self.next_to_send,
                self.sequence,
                &self.comparison,
                &self.piggyback,
            )?;
            self.next_to_send += 1;
        }
        let line = &team.rounds[number].hear[(self.sequence & 1) as usize];
        Ok(line[0].load(Acquire) == self.sequence)
    }

    /// Takes in the message of a round, which is there.
    #[inline]
    fn take_message(&mut self, team: &Team, number: usize) -> Result<()> {
        let (round, parity) = (&team.rounds[number], (self.sequence & 1) as usize);
        let is_well = (self.comparison).compare(&round.hear[parity], team.members[round.from]);
        if is_well && !team.layout.is_flat() {
            let incoming = (self.piggyback).incoming(team.me, 1 << number, team.members.len());
            take(&round.piggyback_in[parity], incoming)?;
        }
        Ok(())
    }

    /// All rounds are over.
    #[inline]
    fn end(&self, team: &Team) -> Result<()> {
        team.ledger[AGREED].store(self.sequence, Release);
        if self.comparison.misfit.is_some() {
            team.report_mismatch(self.sequence);
        }
        self.comparison.result(team.progress.rank)
    }
}

impl Team {
    /// Agrees with the other members on a collective, with what rides on it. `checked` is what this
    /// member found about its own arguments; it is returned if all agree.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`] on every member if headers differ; [`Error::PeerLost`].
    pub(super) async fn agree<R>(
        &self,
        header: CallHeader,
        checked: Result<R>,
        piggyback: PiggybackData<'_>,
    ) -> Result<R> {
        if self.state() != QUEUED {
            return self.agree_blocking(header, checked, piggyback);
        }
        let mut agreement = self.new_agreement(header, &checked, piggyback);
        let outcome = self.run_rounds_queued(&mut agreement).await;
        // One's own error says more than that the others differ.
        let checked = checked?;
        outcome.map(|()| checked)
    }

    /// As [`agree`](Self::agree), while the caller waits.
    #[inline]
    pub(super) fn agree_blocking<R>(
        &self,
        header: CallHeader,
        checked: Result<R>,
        piggyback: PiggybackData<'_>,
    ) -> Result<R> {
        let mut agreement = self.new_agreement(header, &checked, piggyback);
        let outcome = self.run_rounds_blocking(&mut agreement);
        let checked = checked?;
        outcome.map(|()| checked)
    }

    #[inline]
    fn new_agreement<'a, R>(
        &self,
        header: CallHeader,
        checked: &Result<R>,
        piggyback: PiggybackData<'a>,
    ) -> Agreement<'a> {
        let (header, piggyback) = match checked {
            Ok(_) => (header, piggyback),
            // Taking part keeps the members in step.
            Err(_) => (header.refused(), PiggybackData::Nothing),
        };
        Agreement::new(
            self.begin_agreement(),
            HeaderComparison::new(header),
            piggyback,
        )
    }

    /// The number of a new agreement.
    #[inline]
    pub(super) fn begin_agreement(&self) -> u64 {
        self.progress.tally.one(Count::Collectives);
        let sequence = self.sequence.load(Relaxed) + 1;
        self.sequence.store(sequence, Relaxed);
        sequence
    }

    /// Does the rounds of an agreement while the caller waits.
    #[inline]
    pub(super) fn run_rounds_blocking(&self, agreement: &mut Agreement<'_>) -> Result<()> {
        self.check_last_agreed(agreement.sequence)?;
        for number in 0..self.rounds.len() {
            if !agreement.send(self, number)? {
                self.wait_for_line_blocking(agreement.sequence, number)?;
            }
            agreement.take_message(self, number)?;
        }
        agreement.end(self)
    }

    /// As [`run_rounds_blocking`](Self::run_rounds_blocking), of a collective that goes on while the program computes.
    pub(super) async fn run_rounds_queued(&self, agreement: &mut Agreement<'_>) -> Result<()> {
        self.check_last_agreed(agreement.sequence)?;
        for number in 0..self.rounds.len() {
            if !agreement.send(self, number)? {
                self.until_line_queued(agreement.sequence, number).await?;
            }
            agreement.take_message(self, number)?;
        }
        agreement.end(self)
    }

    /// Before this member tells anything in agreement `sequence`: whether the one before it has come
    /// to its end, and the data of all before. If not, a member is lost, and what this member told two
    /// agreements ago may not have been read.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    #[inline]
    pub(super) fn check_last_agreed(&self, sequence: u64) -> Result<()> {
        if self.has_agreed(sequence - 1) && !self.is_abandoned.load(Relaxed) {
            Ok(())
        } else {
            Err(self.not_agreed_error())
        }
    }

    /// Whether an agreement has come to its end here.
    #[inline]
    pub(super) fn has_agreed(&self, sequence: u64) -> bool {
        self.ledger[AGREED].load(Relaxed) == sequence
    }

    #[cold]
    fn not_agreed_error(&self) -> Error {
        (self.progress)
            .in_vain(On::Ranks(&self.members), For::Flag)
            .unwrap_or_else(|| Error::other("an earlier collective of the team did not end"))
    }

    /// Waits for the line of round `number`, in the agreement of this number.
    #[inline]
    fn wait_for_line_blocking(&self, sequence: u64, number: usize) -> Result<()> {
        let line = &self.rounds[number].hear[(sequence & 1) as usize];
        let arrived = || line[0].load(Acquire) == sequence;
        let missing_member = || self.missing_member(sequence, number);
        match (self.progress).wait(
            On::RanksOr(&self.members, &missing_member),
            For::Flag,
            arrived,
        ) {
            Err(Error::PeerLost(rank)) => {
                poll_once(self.until_survivors_send(rank, sequence, number))
            }
            other => other,
        }
    }

    /// As [`wait_for_line_blocking`](Self::wait_for_line_blocking), of a collective that goes on while the program
    /// computes.
    async fn until_line_queued(&self, sequence: u64, number: usize) -> Result<()> {
        let arrived = self.line_of(sequence, number);
        let missing_member = || self.missing_member(sequence, number);
        let on = On::RanksOr(&self.members, &missing_member);
        match self.until_with(on, arrived).await {
            Err(Error::PeerLost(rank)) => self.until_survivors_send(rank, sequence, number).await,
            other => other,
        }
    }

    /// The reason why an agreement never ends, while its line of that round is waited for. A member's program has
    /// come to its end, and did not take part. Otherwise its lines would be here; mapped memory would show that it
    /// has agreed. The end of the job is itself an agreement of the team of all ranks, and reports this as a
    /// mismatch.
    #[cold]
    fn missing_member(&self, sequence: u64, number: usize) -> Option<Error> {
        if self.is_of_all() || !self.progress.any_has_come_to_end() {
            return None;
        }
        let has_come = |rank: Rank| self.progress.conduit().has_come_to_end(rank);
        let is_absent = |member: usize| {
            let rank = self.members[member];
            let is_mapped = is_mapped(&self.progress, rank);
            let agreed = || self.agreed(member).is_some_and(|agreed| agreed >= sequence);
            has_come(rank) && (self.rounds[number].from == member || is_mapped && !agreed())
        };
        // Read before this rank's own end.
        let missing_member = (0..self.members.len())
            .filter(|member| *member != self.me)
            .find(|it| is_absent(*it))?;
        Some(Error::PeerEnded {
            rank: self.members[missing_member],
            why: "it takes part in no collective of the team any more",
        })
    }

    fn line_of(&self, sequence: u64, number: usize) -> Awaited {
        let parity = (sequence & 1) as usize;
        Awaited::Word(self.layout.line(parity, number), sequence)
    }

    /// Goes on waiting for a line when a member was lost.
    ///
    /// A member that has agreed and ended since, in good order or not, has sent all it had
    /// to send. What rides is read from its scratch, which stays mapped. Any other that ended is missing, to this member
    /// or to one that waits for it.
    async fn until_survivors_send(
        &self,
        mut lost: Rank,
        sequence: u64,
        number: usize,
    ) -> Result<()> {
        let arrived = self.line_of(sequence, number);
        let mut needed = self.members.clone();
        loop {
            self.progress.drain();
            if self.has(arrived) {
                return Ok(());
            }
            let agreed = (self.members.iter().position(|rank| *rank == lost))
                .and_then(|member| self.agreed(member))
                .is_some_and(|agreed| agreed >= sequence);
            if !agreed {
                return Err(Error::PeerLost(lost));
            }
            needed.retain(|rank| *rank != lost);
            match self.until(&needed, arrived).await {
                Err(Error::PeerLost(rank)) => lost = rank,
                other => return other,
            }
        }
    }

    /// The number of messages that wait for none of another member.
    pub(super) fn messages_sent_at_start(&self) -> usize {
        if self.layout.is_flat() {
            self.rounds.len()
        } else {
            self.rounds.len().min(1)
        }
    }

    /// Tells what needs nothing of another member, and returns.
    pub(super) fn send_first_messages(
        &self,
        sequence: u64,
        comparison: &HeaderComparison,
    ) -> Result<()> {
        (0..self.messages_sent_at_start()).try_for_each(|number| {
            self.send_message(number, sequence, comparison, &PiggybackData::Nothing)
        })
    }

    /// Shows all other members of a flat team what is the same for those who need it.
    #[inline]
    fn show_piggyback(
        &self,
        sequence: u64,
        comparison: &HeaderComparison,
        piggyback: &PiggybackData<'_>,
    ) -> Result<()> {
        if !self.layout.is_flat() || comparison.misfit.is_some() {
            return Ok(());
        }
        match piggyback.shown_to_all(self.me, self.members.len()) {
            few if few.len() <= BESIDE => Ok(()),
            many => self.rounds[0].show(sequence, many),
        }
    }

    /// Takes what another member of a flat team gave in an agreement that ended here, before this one tells anything
    /// in the next: a part of its own, or what is shown to all.
    #[inline]
    pub(super) fn read_piggyback(
        &self,
        sequence: u64,
        in_parts: bool,
        from: usize,
        into: &mut [u8],
    ) -> Result<()> {
        let (size, parity) = (self.members.len(), (sequence & 1) as usize);
        // The one at this distance before it is told in the round before that of its number.
        let round = &self.rounds[(from + size - self.me) % size - 1];
        if into.len() > BESIDE {
            let window = if in_parts {
                &round.piggyback_in
            } else {
                &round.shown
            };
            return take(&window[parity], into);
        }
        let words = &round.hear[parity][MISFIT..];
        for (word, bytes) in words.iter().zip(into.chunks_mut(size_of::<u64>())) {
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[..bytes.len()]);
        }
        Ok(())
    }

    /// Tells the member of a round.
    #[inline]
    pub(super) fn send_message(
        &self,
        number: usize,
        sequence: u64,
        comparison: &HeaderComparison,
        piggyback: &PiggybackData<'_>,
    ) -> Result<()> {
        let (round, parity) = (&self.rounds[number], (sequence & 1) as usize);
        let outgoing = match comparison.misfit {
            None if self.layout.is_flat() => piggyback.for_member(self.me, round.to),
            None => piggyback.outgoing(self.me, 1 << number, self.members.len()),
            Some(_) => &[],
        };
        match &round.out[parity] {
            RoundTarget::Mapped {
                line,
                piggyback: place,
            } => {
                let (beside, in_parts) = match self.layout.is_flat() {
                    true if outgoing.len() <= BESIDE => (outgoing, &[][..]),
                    // It was shown to all.
                    true if !piggyback.has_parts() => (&[][..], &[][..]),
                    _ => (&[][..], outgoing),
                };
                if !in_parts.is_empty() {
                    place.write(0, in_parts).map_err(outside)?;
                }
                comparison.write_line(line, sequence, beside);
                self.notify_after_store(round.to);
                Ok(())
            }
            RoundTarget::Unmapped { line, piggyback } => {
                let (words, said) = comparison.message_words();
                let flag = FlagStore {
                    at: *line,
                    value: sequence,
                    beside: &words[..said],
                };
                self.store_by_message(round.to, *piggyback, outgoing, flag)
            }
        }
    }
}

#[inline]
fn take(from: &Window, into: &mut [u8]) -> Result<()> {
    match into {
        [] => Ok(()),
        into => from.read(0, into).map_err(outside),
    }
}
