//! The requests of a call that were sent, and the wait for their answers.

use std::{collections::VecDeque, thread};

use hydrant_conduit::Message;

use super::{EXPOSED, MANY, words::RunWords};
use crate::{
    Error, Result,
    counters::Count,
    progress::kind,
    rma::unmapped::{ByteRun, MemoryName, Unmapped},
};

/// The content of a request.
#[derive(Default)]
pub(super) struct PackedRuns {
    /// The bytes to put.
    pub(super) bytes: Vec<u8>,
    pub(super) words: RunWords,
    /// The runs to get.
    pub(super) asked: Vec<ByteRun>,
}

/// The requests of a call that were sent.
pub(super) struct SentRequests<'a> {
    unmapped: &'a Unmapped<'a>,
    tag: u16,
    /// The words of the factor of an accumulate.
    pub(super) factor: Option<[u64; 2]>,
    open: VecDeque<OpenRequest>,
}

struct OpenRequest {
    id: u64,
    /// Kept because the request is sent again if the peer does not know its memory yet.
    payload: Vec<u8>,
    words: RunWords,
    asked: Vec<ByteRun>,
}

impl<'a> SentRequests<'a> {
    pub(super) fn new(unmapped: &'a Unmapped<'a>, tag: u16) -> Self {
        let tag = match unmapped.name {
            MemoryName::Allocation(_) => tag,
            MemoryName::Exposed(_) => tag | EXPOSED,
        };
        Self {
            unmapped,
            tag,
            factor: None,
            open: VecDeque::with_capacity(MANY),
        }
    }

    /// Sends a request, and clears `message` for the next. `unpack` takes the answer to an earlier
    /// request, and fails if the length of the answer is wrong.
    pub(super) fn send(
        &mut self,
        message: &mut PackedRuns,
        unpack: impl FnMut(&[ByteRun], &[u8]) -> Result<(), ()>,
    ) -> Result<()> {
        let PackedRuns {
            bytes,
            words,
            asked,
        } = std::mem::take(message);
        if words.is_empty() {
            return Ok(());
        }
        let mut payload = bytes;
        words.put(&mut payload);
        if self.open.len() == MANY {
            self.end_first(unpack)?;
        }
        let id = self.ask(&payload, &words)?;
        self.open.push_back(OpenRequest {
            id,
            payload,
            words,
            asked,
        });
        Ok(())
    }

    /// Returns the offset of a run in the memory, as the peer counts it.
    pub(super) fn place(&self, run: &ByteRun) -> u64 {
        let start = match self.unmapped.name {
            MemoryName::Allocation(_) => 0,
            MemoryName::Exposed(_) => self.unmapped.at.offset,
        };
        start + run.there as u64
    }

    fn ask(&self, payload: &[u8], words: &RunWords) -> Result<u64> {
        let Unmapped { rank, .. } = *self.unmapped;
        let progress = &self.unmapped.transfer.progress;
        progress
            .tally
            .add_each([(Count::Packed, words.runs() as u64)]);
        let name = match self.unmapped.name {
            MemoryName::Allocation(block) => block.number,
            MemoryName::Exposed(key) => key,
        };
        self.unmapped.calls.begin(rank, None, |id| {
            let [low, high] = self.factor.unwrap_or_default();
            let args = [id, name, words.len() as u64, low, high];
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
        mut unpack: impl FnMut(&[ByteRun], &[u8]) -> Result<(), ()>,
    ) -> Result<()> {
        while !self.open.is_empty() {
            self.end_first(&mut unpack)?;
        }
        Ok(())
    }

    fn end_first(
        &mut self,
        mut unpack: impl FnMut(&[ByteRun], &[u8]) -> Result<(), ()>,
    ) -> Result<()> {
        let Unmapped { rank, calls, .. } = *self.unmapped;
        let progress = &self.unmapped.transfer.progress;
        let Some(mut first) = self.open.pop_front() else {
            return Ok(());
        };
        loop {
            match calls.wait(progress, rank, first.id) {
                Ok(answer) => {
                    let unpacked = unpack(&first.asked, &answer);
                    return unpacked.map_err(|()| {
                        progress.malformed(rank, "an answer of another length than was asked for");
                        Error::PeerLost(rank)
                    });
                }
                // The allocation exists here. The peer does not know it yet, or it is about to be
                // freed here too.
                Err(Error::Freed) => {
                    if let MemoryName::Allocation(block) = self.unmapped.name {
                        block.check()?;
                    }
                    thread::yield_now();
                    first.id = self.ask(&first.payload, &first.words)?;
                }
                Err(cause) => return Err(cause),
            }
        }
    }
}

impl Drop for SentRequests<'_> {
    /// Drops the waiters for requests without an answer.
    fn drop(&mut self) {
        let Unmapped { calls, rank, .. } = *self.unmapped;
        for question in &self.open {
            // No task waits for it.
            drop(calls.stop_waiting(&self.unmapped.transfer.progress, rank, question.id));
        }
    }
}
