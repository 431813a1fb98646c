//! The agreement: every member learns that all members are here and that all made the same call.
//!
//! In round r a member sends a message to the member 2^r before it (around the ring) and receives one from
//! the member 2^r after it. The message holds the member's header and, once it has found one, a header that
//! does not fit. So each member hears from every other member through a chain of members. If two headers
//! differ, some link of the chains between them connects two different headers. The member at that link
//! finds the difference and passes it on, so that all members know it at the end.
//!
//! A flat team has 16 members at most, and each maps the scratch of all others. Its agreement has one step,
//! in which a member sends to all others and hears all others. This saves waiting for a core once per round
//! where there are more ranks than cores. Piggybacked data lies in the scratch of its sender: once for all
//! readers, or in parts, one for each reader. Short data lies in the lines themselves. Members
//! [read](super::blocks) the data after the agreement has ended.
//!
//! A message is one cache line, and its last word to be written is the sequence number. Lines alternate by
//! the parity of the sequence number. A member may overwrite the line of two agreements ago, because its
//! reader has since entered the next agreement. This holds only if the previous agreement ended here. After
//! an agreement that did not end for want of a lost member, or whose data this member abandoned, this
//! member sends nothing more ([`Team::check_last_agreed`]).

use std::{
    pin::Pin,
    sync::atomic::Ordering::{Acquire, Relaxed, Release},
    task::{Context, Poll, ready},
};

use super::{
    comparison::HeaderComparison, header::CallHeader, messages::take, piggyback::PiggybackData,
};
use crate::{
    Error, Rank, Result,
    collective::{
        layout::AGREED,
        team::{QUEUED, Team, awaited::Awaited, peer::is_mapped},
    },
    counters::Count,
    progress::{For, On},
};

/// A future: an agreement in flight. It is made where it is polled, because a short call would take longer
/// by an eighth if it were moved.
pub(in crate::collective) struct Agreement<'t, 'd, R> {
    pub(super) team: &'t Team,
    pub(super) sequence: u64,
    comparison: HeaderComparison,
    pub(super) piggyback: PiggybackData<'d>,
    /// The first round whose message is still to be sent.
    next_to_send: usize,
    /// The first round whose message has not been taken.
    round: usize,
    /// The members that are still needed, once one was lost.
    needed: Option<Vec<Rank>>,
    /// The outcome of checking this member's own arguments.
    checked: Option<Result<R>>,
}

impl<'t, 'd, R> Agreement<'t, 'd, R> {
    /// Agreement `sequence` of the team, on the call of `header`. `checked` is the outcome of checking this
    /// member's own arguments.
    #[inline(always)]
    pub(super) fn new(
        team: &'t Team,
        sequence: u64,
        header: CallHeader,
        checked: Result<R>,
        piggyback: PiggybackData<'d>,
    ) -> Self {
        let mut agreement = Self {
            team,
            sequence,
            comparison: HeaderComparison::new(header),
            piggyback,
            next_to_send: 0,
            round: 0,
            needed: None,
            checked: Some(checked),
        };
        if let Some(Err(_)) = agreement.checked {
            // Taking part keeps the members in step.
            agreement.comparison = HeaderComparison::new(header.refused());
            agreement.piggyback = PiggybackData::Nothing;
        }
        agreement
    }

    /// Runs the rounds. A blocking collective waits inside.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`], [`Error::PeerLost`], [`Error::PeerEnded`].
    #[inline]
    fn poll_rounds(&mut self) -> Poll<Result<()>> {
        let team = self.team;
        team.check_last_agreed(self.sequence)?;
        while self.round < team.rounds.len() {
            if !self.send(team, self.round)? {
                ready!(self.poll_line())?;
            }
            self.take_message(team, self.round)?;
            self.round += 1;
        }
        Poll::Ready(self.end(team))
    }

    /// Sends the messages up to that of round `number`. Returns whether the message of that round has
    /// arrived.
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

    /// Waits for the line of this round.
    #[inline]
    fn poll_line(&mut self) -> Poll<Result<()>> {
        let (team, sequence, number) = (self.team, self.sequence, self.round);
        if team.state() == QUEUED {
            return self.poll_survivors(None);
        }
        let line = &team.rounds[number].hear[(sequence & 1) as usize];
        let missing_member = || team.missing_member(sequence, number);
        let on = On::RanksOr(&team.members, &missing_member);
        match (team.progress).wait(on, For::Flag, || line[0].load(Acquire) == sequence) {
            Err(Error::PeerLost(lost)) => self.poll_survivors(Some(lost)),
            other => Poll::Ready(other),
        }
    }

    /// As [`poll_line`](Self::poll_line), in the background, or after a member was lost.
    ///
    /// After that the wait goes on if the member had agreed. Then it has sent all its messages, and its
    /// scratch with piggybacked data stays mapped. Any other member that ended leaves a gap, for this member
    /// or for one that waits for it.
    #[cold]
    fn poll_survivors(&mut self, mut lost: Option<Rank>) -> Poll<Result<()>> {
        let (team, sequence, number) = (self.team, self.sequence, self.round);
        let arrived = Awaited::Word(team.layout.line((sequence & 1) as usize, number), sequence);
        let missing_member = || team.missing_member(sequence, number);
        loop {
            if let Some(lost) = lost {
                // Messages that were sent before the end still count.
                team.progress.drain();
                if team.has(arrived) {
                    return Poll::Ready(Ok(()));
                }
                let had_agreed = (team.members.iter().position(|rank| *rank == lost))
                    .and_then(|member| team.agreed(member))
                    .is_some_and(|agreed| agreed >= sequence);
                if !had_agreed {
                    return Poll::Ready(Err(Error::PeerLost(lost)));
                }
                (self.needed.get_or_insert_with(|| team.members.clone()))
                    .retain(|rank| *rank != lost);
            }
            let on = match &self.needed {
                None => On::RanksOr(&team.members, &missing_member),
                Some(needed) => On::Ranks(needed),
            };
            match ready!(team.poll_until(on, arrived)) {
                Err(Error::PeerLost(rank)) => lost = Some(rank),
                other => return Poll::Ready(other),
            }
        }
    }

    /// Takes the message of round `number`, which has arrived.
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

    /// Ends the agreement after its last round.
    #[inline]
    fn end(&self, team: &Team) -> Result<()> {
        team.ledger[AGREED].store(self.sequence, Release);
        if self.comparison.found_misfit() {
            team.report_mismatch(self.sequence);
        }
        self.comparison.result(team.progress.rank)
    }
}

impl<R> Unpin for Agreement<'_, '_, R> {}

impl<R> Future for Agreement<'_, '_, R> {
    type Output = Result<R>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.poll_rounds());
        let checked = self.checked.take().expect("it is polled until its end");
        // A member's own error says more than the mismatch that follows from it.
        let checked = checked?;
        Poll::Ready(outcome.map(|()| checked))
    }
}

impl Team {
    /// Agrees with the other members on a collective. `checked` is the outcome of checking this member's own
    /// arguments; it is returned if all agree.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`] on every member if headers differ; [`Error::PeerLost`].
    #[inline]
    pub(in crate::collective) fn agree<R>(
        &self,
        header: CallHeader,
        checked: Result<R>,
    ) -> Agreement<'_, 'static, R> {
        self.agree_with(header, checked, PiggybackData::Nothing)
    }

    /// As [`agree`](Self::agree), and exchanges piggybacked data.
    #[inline(always)]
    pub(super) fn agree_with<'t, 'd, R>(
        &'t self,
        header: CallHeader,
        checked: Result<R>,
        piggyback: PiggybackData<'d>,
    ) -> Agreement<'t, 'd, R> {
        Agreement::new(self, self.begin_agreement(), header, checked, piggyback)
    }

    /// Sends the messages of an agreement that depend on no other member, and returns.
    /// [`complete_agreement`](Self::complete_agreement) must follow.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    pub(in crate::collective) fn start_agreement(&self, header: CallHeader) -> Result<()> {
        let sequence = self.begin_agreement();
        self.check_last_agreed(sequence)?;
        self.send_first_messages(sequence, &HeaderComparison::new(header))
    }

    /// Completes an agreement that was [started](Self::start_agreement) with the same header.
    pub(in crate::collective) fn complete_agreement(
        &self,
        header: CallHeader,
    ) -> Agreement<'_, 'static, ()> {
        let sequence = self.last_agreement();
        let mut agreement = Agreement::new(self, sequence, header, Ok(()), PiggybackData::Nothing);
        agreement.next_to_send = self.messages_sent_at_start();
        agreement
    }

    /// Counts a new agreement and returns its number.
    #[inline]
    fn begin_agreement(&self) -> u64 {
        self.progress.tally.one(Count::Collectives);
        let sequence = self.sequence.load(Relaxed) + 1;
        self.sequence.store(sequence, Relaxed);
        sequence
    }

    /// Checks that this member may send in agreement `sequence`: the previous agreement ended here, and the
    /// data of all earlier ones arrived. Otherwise a member is lost, and a line of two agreements ago may
    /// still be unread.
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

    /// Returns whether agreement `sequence` was the last to end here.
    #[inline]
    pub(in crate::collective) fn has_agreed(&self, sequence: u64) -> bool {
        self.ledger[AGREED].load(Relaxed) == sequence
    }

    #[cold]
    fn not_agreed_error(&self) -> Error {
        (self.progress)
            .wait_failure(On::Ranks(&self.members), For::Flag)
            .unwrap_or_else(|| Error::other("an earlier collective of the team did not end"))
    }

    /// Returns why the line of round `number` never arrives, if that is so. The program of a member has
    /// ended without taking part in the agreement. Otherwise its line would be here, or mapped memory would
    /// show that it has agreed. The end of the job is itself an agreement of the team of all ranks, and
    /// reports this as a mismatch.
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
}
