//! The messages of an agreement: what a member sends in a round, and reads of what arrived.

use std::sync::atomic::Ordering::Relaxed;

use hydrant_conduit::Window;

use super::{
    comparison::{BESIDE, HeaderComparison, MISFIT},
    piggyback::PiggybackData,
};
use crate::{
    Result,
    collective::{
        stores::FlagStore,
        team::{Team, outside, peer::RoundTarget},
    },
};

impl Team {
    /// The number of messages that depend on no message of another member.
    pub(super) fn messages_sent_at_start(&self) -> usize {
        if self.layout.is_flat() {
            self.rounds.len()
        } else {
            self.rounds.len().min(1)
        }
    }

    /// Sends the messages that depend on no other member, and returns.
    pub(super) fn send_first_messages(
        &self,
        sequence: u64,
        comparison: &HeaderComparison,
    ) -> Result<()> {
        (0..self.messages_sent_at_start()).try_for_each(|number| {
            self.send_message(number, sequence, comparison, &PiggybackData::Nothing)
        })
    }

    /// In a flat team, writes the piggybacked data that is the same for all readers.
    #[inline]
    pub(super) fn show_piggyback(
        &self,
        sequence: u64,
        comparison: &HeaderComparison,
        piggyback: &PiggybackData<'_>,
    ) -> Result<()> {
        if !self.layout.is_flat() || comparison.found_misfit() {
            return Ok(());
        }
        match piggyback.shown_to_all(self.me, self.members.len()) {
            few if few.len() <= BESIDE => Ok(()),
            many => self.rounds[0].show(sequence, many),
        }
    }

    /// Reads piggybacked data of another member of a flat team, after the agreement ended here and before
    /// this member sends in the next. The data is a part for this member alone or shown to all.
    #[inline]
    pub(super) fn read_piggyback(
        &self,
        sequence: u64,
        in_parts: bool,
        from: usize,
        into: &mut [u8],
    ) -> Result<()> {
        let (size, parity) = (self.members.len(), (sequence & 1) as usize);
        // Round r of a flat team connects members at distance r + 1.
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

    /// Sends the message of round `number`.
    #[inline]
    pub(super) fn send_message(
        &self,
        number: usize,
        sequence: u64,
        comparison: &HeaderComparison,
        piggyback: &PiggybackData<'_>,
    ) -> Result<()> {
        let (round, parity) = (&self.rounds[number], (sequence & 1) as usize);
        let outgoing = if comparison.found_misfit() {
            &[]
        } else if self.layout.is_flat() {
            piggyback.for_member(self.me, round.to)
        } else {
            piggyback.outgoing(self.me, 1 << number, self.members.len())
        };
        match &round.out[parity] {
            RoundTarget::Mapped {
                line,
                piggyback: window,
            } => {
                let (beside, in_window) = if !self.layout.is_flat() {
                    (&[][..], outgoing)
                } else if outgoing.len() <= BESIDE {
                    (outgoing, &[][..])
                } else if piggyback.has_parts() {
                    (&[][..], outgoing)
                } else {
                    // `show_piggyback` wrote it for all readers.
                    (&[][..], &[][..])
                };
                if !in_window.is_empty() {
                    window.write(0, in_window).map_err(outside)?;
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
pub(super) fn take(from: &Window, into: &mut [u8]) -> Result<()> {
    match into {
        [] => Ok(()),
        into => from.read(0, into).map_err(outside),
    }
}
