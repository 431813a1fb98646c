//! The messages of a call that were sent, and the wait for their answers.

use std::{collections::VecDeque, thread};

use hydrant_conduit::Message;

use super::{EXPOSED, LENGTH_BITS, MANY, WORD};
use crate::{
    Error, Result,
    counters::Count,
    progress::kind,
    rma::unmapped::{Name, Run, Unmapped},
};

/// A message to be.
#[derive(Default)]
pub(super) struct Packed {
    /// What is put.
    pub(super) bytes: Vec<u8>,
    pub(super) runs: Vec<Run>,
}

/// Messages of a call that were sent.
pub(super) struct Asked<'a> {
    unmapped: &'a Unmapped<'a>,
    tag: u16,
    /// The words of a factor, for those that add.
    pub(super) factor: Option<[u64; 2]>,
    open: VecDeque<Question>,
}

struct Question {
    id: u64,
    /// It is sent again if the peer does not know its memory yet.
    payload: Vec<u8>,
    runs: Vec<Run>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(unmapped: &'a Unmapped<'a>, tag: u16) -> Self {
        let tag = match unmapped.name {
            Name::Allocation(_) => tag,
            Name::Exposed(_) => tag | EXPOSED,
        };
        Self {
            unmapped,
            tag,
            factor: None,
            open: VecDeque::with_capacity(MANY),
        }
    }

    /// Sends a message, and begins another. `unpack` takes the answer to an earlier one, unless that
    /// is not what was asked for.
    pub(super) fn send(
        &mut self,
        message: &mut Packed,
        unpack: impl FnMut(&[Run], &[u8]) -> Result<(), ()>,
    ) -> Result<()> {
        let Packed { bytes, runs } = std::mem::take(message);
        if runs.is_empty() {
            return Ok(());
        }
        let start = match self.unmapped.name {
            Name::Allocation(_) => 0,
            Name::Exposed(_) => self.unmapped.at.offset,
        };
        let mut payload = bytes;
        payload.reserve_exact(runs.len() * WORD);
        for run in &runs {
            let word = (start + run.there as u64) << LENGTH_BITS | run.len as u64;
            payload.extend_from_slice(&word.to_le_bytes());
        }
        if self.open.len() == MANY {
            self.end_first(unpack)?;
        }
        let id = self.ask(&payload, runs.len())?;
        self.open.push_back(Question { id, payload, runs });
        Ok(())
    }

    fn ask(&self, payload: &[u8], runs: usize) -> Result<u64> {
        let Unmapped { rank, .. } = *self.unmapped;
        let progress = &self.unmapped.transfer.progress;
        progress.tally.add_each([(Count::Packed, runs as u64)]);
        let name = match self.unmapped.name {
            Name::Allocation(block) => block.number,
            Name::Exposed(key) => key,
        };
        self.unmapped.calls.begin(rank, None, |id| {
            let [low, high] = self.factor.unwrap_or_default();
            let args = [id, name, runs as u64, low, high];
            let message = Message {
                kind: kind::PACKED,
                tag: self.tag,
                args: if self.factor.is_some() {
                    &args
                } else {
                    &args[..3]
                },
                payload,
            };
            progress.send(rank, &message)
        })
    }

    /// Waits for all answers.
    pub(super) fn end(
        mut self,
        mut unpack: impl FnMut(&[Run], &[u8]) -> Result<(), ()>,
    ) -> Result<()> {
        while !self.open.is_empty() {
            self.end_first(&mut unpack)?;
        }
        Ok(())
    }

    fn end_first(&mut self, mut unpack: impl FnMut(&[Run], &[u8]) -> Result<(), ()>) -> Result<()> {
        let Unmapped { rank, calls, .. } = *self.unmapped;
        let progress = &self.unmapped.transfer.progress;
        let Some(mut first) = self.open.pop_front() else {
            return Ok(());
        };
        loop {
            match calls.wait(progress, rank, first.id) {
                Ok(answer) => {
                    let unpacked = unpack(&first.runs, &answer);
                    return unpacked.map_err(|()| {
                        progress.malformed(rank, "an answer of another length than was asked for");
                        Error::PeerLost(rank)
                    });
                }
                // It lives here: it is not known there yet, or about to be freed here too.
                Err(Error::Freed) => {
                    if let Name::Allocation(block) = self.unmapped.name {
                        block.check()?;
                    }
                    thread::yield_now();
                    first.id = self.ask(&first.payload, first.runs.len())?;
                }
                Err(cause) => return Err(cause),
            }
        }
    }
}

impl Drop for Asked<'_> {
    /// What was asked in vain is nobody's any more.
    fn drop(&mut self) {
        let Unmapped { calls, rank, .. } = *self.unmapped;
        for question in &self.open {
            // No task waits for it.
            drop(calls.stop_waiting(&self.unmapped.transfer.progress, rank, question.id));
        }
    }
}
