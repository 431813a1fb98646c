//! Runs of a peer's memory that are put, got or added to while the program computes. They are
//! packed into messages, like those of [one call](super::packed). The messages copy the source, so
//! it is free at once.
//!
//! If the memory is mapped here, all is done within the call.

use std::{collections::VecDeque, sync::Arc};

use hydrant_conduit::{Message, memory::Factor};

use super::packed::{ADD, GET, LONGEST, MANY, PUT, RunWords, WORD, words_of};
use crate::{
    BackgroundHandle, Error, Rank, Result,
    counters::Count,
    memory::{Block, Symmetric, check_range},
    message::CallFuture,
    progress::{Progress, kind},
};

impl Symmetric<u8> {
    /// Begins to put runs into the part of `rank`. Each item has the offset and the bytes of a run.
    /// The bytes are free on return. The order is undefined: of two runs that share bytes, either
    /// may win.
    ///
    /// ```
    /// # fn main() -> hydrant::Result<()> {
    /// # hydrant::Job::builder()?.run_local(2, |job| {
    /// let bytes = job.alloc::<u8>(100)?;
    /// let put = bytes.put_runs_nb(job.right(), [(3, &b"abc"[..]), (90, b"defg")])?;
    /// // ... compute ...
    /// put.wait()?;
    /// assert_eq!(bytes.get_runs_nb(job.right(), [(90, 2), (4, 1)])?.wait()?, b"deb");
    /// # job.barrier()
    /// # }).into_iter().collect()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put). Nothing is put if a run lies outside the part. The handle reports
    /// errors found later.
    pub fn put_runs_nb<'a, I>(&self, rank: Rank, runs: I) -> Result<BackgroundHandle<()>>
    where
        I: IntoIterator<Item = (usize, &'a [u8])>,
        I::IntoIter: Clone,
    {
        let runs = runs.into_iter();
        let sums = self.check_all(runs.clone().map(|(at, run)| (at, run.len())), 1)?;
        let calls = [(Count::Puts, sums[0]), (Count::PutBytes, sums[1])];
        if self.completes_in_call(rank)? {
            for (at, run) in runs {
                self.put(rank, at, run)?;
            }
            return Ok(BackgroundHandle::done(
                &self.block().transfer()?.progress,
                (),
            ));
        }
        self.begin_runs(rank, (PUT, None), runs, calls)
    }

    /// Begins to get runs of the part of `rank`. Each item has the offset of a run and its number
    /// of bytes. The handle gives the bytes of all runs, one after the other.
    ///
    /// # Errors
    /// As [`get`](Self::get). The handle reports errors found later.
    pub fn get_runs_nb<I>(&self, rank: Rank, runs: I) -> Result<BackgroundHandle<Vec<u8>>>
    where
        I: IntoIterator<Item = (usize, usize)>,
        I::IntoIter: Clone,
    {
        let runs = runs.into_iter();
        let [count, bytes] = self.check_all(runs.clone(), 1)?;
        let block = self.shared_block();
        let progress = Arc::clone(&block.transfer()?.progress);
        let mut into = Vec::with_capacity(bytes as usize);
        if self.completes_in_call(rank)? {
            for (at, len) in runs {
                let start = into.len();
                into.resize(start + len, 0);
                self.get(rank, at, &mut into[start..])?;
            }
            return Ok(BackgroundHandle::done(&progress, into));
        }
        (progress.tally).add_each([(Count::Gets, count), (Count::GetBytes, bytes)]);
        let limit = progress.conduit().caps().max_payload;
        let mut packer = RunPacker::new(limit, 1);
        for (at, len) in runs {
            packer.ask(at, len);
        }
        let mut sending = RunSender::new(&progress, block, rank, (GET, None), packer.end());
        sending.fill()?;
        Ok(progress.begin(async move {
            while let Some((message, answer)) = sending.next().await {
                let answer = answer?;
                if answer.len() != message.answers {
                    let what = "an answer of another length than was asked for";
                    sending.progress.malformed(rank, what);
                    return Err(Error::PeerLost(rank));
                }
                into.extend_from_slice(&answer);
            }
            Ok(into)
        }))
    }

    /// Begins to add a factor's multiples of runs of elements to those of `rank`, as
    /// [`accumulate_bytes`](Self::accumulate_bytes) does. The runs are free on return.
    ///
    /// # Errors
    /// As [`accumulate_bytes`](Self::accumulate_bytes). The handle reports errors found later.
    pub fn accumulate_runs_nb<'a, I>(
        &self,
        rank: Rank,
        factor: &Factor,
        runs: I,
    ) -> Result<BackgroundHandle<()>>
    where
        I: IntoIterator<Item = (usize, &'a [u8])>,
        I::IntoIter: Clone,
    {
        let runs = runs.into_iter();
        let size = factor.number().size();
        let sums = self.check_all(runs.clone().map(|(at, run)| (at, run.len())), size)?;
        let calls = [
            (Count::Accumulates, sums[0]),
            (Count::AccumulatedBytes, sums[1]),
        ];
        let progress = Arc::clone(&self.block().transfer()?.progress);
        if rank == progress.rank || self.block().part(rank)?.mapped.is_some() {
            for (at, run) in runs {
                self.accumulate_bytes(rank, at, factor, run)?;
            }
            return Ok(BackgroundHandle::done(&progress, ()));
        }
        // Only the owner adds, even if it answers seldom. So the runs go in as few messages as
        // possible.
        let tag = ADD | (factor.number() as u16) << 8;
        self.begin_runs(rank, (tag, Some(words_of(factor))), runs, calls)
    }

    /// Checks that the runs lie in the memory and have whole elements. Returns the number of runs
    /// and of bytes.
    fn check_all(
        &self,
        runs: impl Iterator<Item = (usize, usize)>,
        element: usize,
    ) -> Result<[u64; 2]> {
        let mut sums = [0; 2];
        for (at, len) in runs {
            check_range(at, len, self.len())?;
            if len % element != 0 {
                return Err(Error::LengthMismatch {
                    what: "bytes in a run against bytes of an element, of which a run has whole ones",
                    left: len,
                    right: element,
                });
            }
            sums = [sums[0] + 1, sums[1] + len as u64];
        }
        Ok(sums)
    }

    /// Returns whether the call does all itself: the memory is mapped here, or peers may answer
    /// only now and then.
    fn completes_in_call(&self, rank: Rank) -> Result<bool> {
        let is_mapped = self.block().part(rank)?.mapped.is_some();
        let progress = &self.block().transfer()?.progress;
        Ok(is_mapped || rank == progress.rank || !progress.peers_answer())
    }

    fn begin_runs<'a>(
        &self,
        rank: Rank,
        what: (u16, Option<[u64; 2]>),
        runs: impl Iterator<Item = (usize, &'a [u8])>,
        calls: [(Count, u64); 2],
    ) -> Result<BackgroundHandle<()>> {
        let block = self.shared_block();
        let progress = Arc::clone(&block.transfer()?.progress);
        progress.tally.add_each(calls);
        let limit = progress.conduit().caps().max_payload;
        // For the largest element, so that any element stays whole.
        let mut packer = RunPacker::new(limit, 16);
        for (at, run) in runs {
            packer.send(at, run);
        }
        let mut sending = RunSender::new(&progress, block, rank, what, packer.end());
        sending.fill()?;
        Ok(progress.begin(async move {
            while let Some((_, answer)) = sending.next().await {
                answer?;
            }
            Ok(())
        }))
    }
}

/// One message: the bytes to put, then the words that name the runs.
#[derive(Default)]
struct RunMessage {
    payload: Vec<u8>,
    words: RunWords,
    /// The bytes of the expected answer.
    answers: usize,
}

/// Packs runs into messages.
struct RunPacker {
    /// The most bytes of a message, and of a part of a run.
    limit: usize,
    most: usize,
    full: VecDeque<RunMessage>,
    last: RunMessage,
}

impl RunPacker {
    fn new(limit: usize, element: usize) -> Self {
        let most = limit.saturating_sub(WORD).clamp(element, LONGEST);
        Self {
            limit,
            most: most / element * element,
            full: VecDeque::new(),
            last: RunMessage::default(),
        }
    }

    fn send(&mut self, at: usize, run: &[u8]) {
        let mut at = at;
        for part in run.chunks(self.most) {
            let words = self.last.words.bytes_with_next();
            self.make_room(self.last.payload.len() + words + part.len());
            self.last.payload.extend_from_slice(part);
            self.last.words.push(at as u64, part.len());
            at += part.len();
        }
    }

    fn ask(&mut self, at: usize, len: usize) {
        let (mut at, mut left) = (at, len);
        while left > 0 {
            let part = left.min(self.most);
            let words = self.last.words.bytes_with_next();
            self.make_room(words.max(self.last.answers + part));
            self.last.answers += part;
            self.last.words.push(at as u64, part);
            at += part;
            left -= part;
        }
    }

    fn make_room(&mut self, would_have: usize) {
        if would_have > self.limit {
            self.next();
        }
    }

    fn next(&mut self) {
        let mut full = std::mem::take(&mut self.last);
        if !full.words.is_empty() {
            full.words.put(&mut full.payload);
            self.full.push_back(full);
        }
    }

    fn end(mut self) -> VecDeque<RunMessage> {
        self.next();
        self.full
    }
}

/// The messages of a call, of which some were sent.
struct RunSender {
    progress: Arc<Progress>,
    block: Arc<Block>,
    rank: Rank,
    tag: u16,
    factor: Option<[u64; 2]>,
    waiting: VecDeque<RunMessage>,
    open: VecDeque<(RunMessage, CallFuture)>,
}

impl RunSender {
    fn new(
        progress: &Arc<Progress>,
        block: &Arc<Block>,
        rank: Rank,
        (tag, factor): (u16, Option<[u64; 2]>),
        waiting: VecDeque<RunMessage>,
    ) -> Self {
        Self {
            progress: Arc::clone(progress),
            block: Arc::clone(block),
            rank,
            tag,
            factor,
            waiting,
            open: VecDeque::with_capacity(MANY),
        }
    }

    /// Sends messages until the most that may be unanswered are in flight.
    fn fill(&mut self) -> Result<()> {
        while self.open.len() < MANY
            && let Some(message) = self.waiting.pop_front()
        {
            let call = self.ask(&message)?;
            self.open.push_back((message, call));
        }
        Ok(())
    }

    /// Waits for the answer to the first message in flight. Returns `None` if all were answered.
    async fn next(&mut self) -> Option<(RunMessage, Result<Vec<u8>>)> {
        let (message, mut call) = self.open.pop_front()?;
        loop {
            let answer = (&mut call).await;
            let again = match answer {
                // The allocation exists here. The peer does not know it yet, or it is about to be
                // freed here too.
                Err(Error::Freed) => self.block.check().and_then(|()| self.ask(&message)),
                Ok(answer) => {
                    return Some((message, self.fill().map(|()| answer)));
                }
                Err(cause) => Err(cause),
            };
            match again {
                Ok(asked) => call = asked,
                Err(cause) => return Some((message, Err(cause))),
            }
        }
    }

    fn ask(&self, message: &RunMessage) -> Result<CallFuture> {
        let (progress, calls) = (&self.progress, &self.block.calls);
        let words = message.words.len() as u64;
        (progress.tally).add_each([(Count::Packed, message.words.runs() as u64)]);
        let id = calls.begin(self.rank, None, |id| {
            let [low, high] = self.factor.unwrap_or_default();
            let args = [id, self.block.number, words, low, high];
            let message = Message {
                kind: kind::PACKED,
                tag: self.tag,
                args: match self.factor {
                    Some(_) => &args,
                    None => &args[..3],
                },
                payload: &message.payload,
            };
            progress.send(self.rank, &message)
        })?;
        Ok(CallFuture::new(progress, calls, self.rank, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_fill_messages_and_are_split_where_they_are_long() {
        let mut packer = RunPacker::new(40, 4);
        let run: Vec<u8> = (0..70).collect();
        packer.send(100, &run);
        packer.send(7, &[9; 2]);
        let all = packer.end();
        let words: Vec<Vec<u8>> = (all.iter())
            .map(|it| it.payload[it.payload.len() - it.words.len() * WORD..].to_vec())
            .collect();
        let named = |runs: &[(u64, usize)]| {
            let (mut words, mut bytes) = (RunWords::default(), Vec::new());
            runs.iter().for_each(|(at, len)| words.push(*at, *len));
            words.put(&mut bytes);
            bytes
        };
        let right = [
            named(&[(100, 32)]),
            named(&[(132, 32)]),
            named(&[(164, 6), (7, 2)]),
        ];
        assert_eq!(words, right);
        assert!(all.iter().all(|it| it.payload.len() <= 40));
        assert_eq!(all[2].payload[..8], [64, 65, 66, 67, 68, 69, 9, 9]);
        assert!(RunPacker::new(40, 4).end().is_empty());
        let mut asked = RunPacker::new(40, 1);
        asked.ask(0, 50);
        asked.ask(60, 0);
        let answers: Vec<_> = asked.end().iter().map(|it| it.answers).collect();
        assert_eq!(answers, [32, 18]);
    }
}
