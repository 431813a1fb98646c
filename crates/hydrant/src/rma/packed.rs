//! Runs packed into messages, which the owner of the memory unpacks, adds to it, or packs for a get.
//!
//! ```text
//! request  tag PUT      args number, allocation, runs   payload bytes of the runs, a word for each
//!          tag GET      args number, allocation, runs   payload a word for each run
//!          tag ADD | what elements are << 8, args besides: two words of a factor; payload as PUT
//!              EXPOSED beside it                        of an exposed buffer, by its key
//! reply    tag DONE     args number                     payload of a get: bytes of the runs
//!          tag UNKNOWN  args number: no such allocation lives there
//!          tag REVOKED  args number: no such buffer is exposed
//!          tag BROKEN   args number, rank: that one ended while it added, too
//! word     offset in the memory × 65536 + bytes of the run
//! ```

use std::{collections::VecDeque, sync::Arc, thread};

use hydrant_conduit::{
    Delivery, Message, ReplyPort, Window,
    memory::{Factor, Number},
};

use super::far::{Far, Name, Run};
use crate::{
    Error, Rank, Result,
    counters::Count,
    memory::{Mapped, Registry},
    message::Calls,
    progress::{Progress, Route, kind},
};

pub(super) const PUT: u16 = 0;
pub(super) const GET: u16 = 1;
pub(super) const ADD: u16 = 2;
/// Beside these: the memory is an exposed buffer, and not an allocation.
const EXPOSED: u16 = 0x8000;

const DONE: u16 = 0;
const UNKNOWN: u16 = 1;
const REVOKED: u16 = 2;
const BROKEN: u16 = 3;

/// Messages of a call that are not answered, at most.
pub(super) const MANY: usize = 8;
pub(super) const WORD: usize = size_of::<u64>();
/// A word has so much room for a length, and the rest for an offset.
pub(super) const LENGTH_BITS: u32 = 16;
pub(super) const LONGEST: usize = (1 << LENGTH_BITS) - 1;

/// Puts runs of `data`.
///
/// # Errors
/// As [`Far::put`].
pub(super) fn put(far: &Far<'_>, data: &[u8], runs: impl Iterator<Item = Run>) -> Result<()> {
    send(far, data, runs, Asked::new(far, PUT), 1)
}

/// Adds multiples of the elements of runs of `data`.
///
/// # Errors
/// As [`Far::put`].
pub(super) fn add(
    far: &Far<'_>,
    data: &[u8],
    runs: impl Iterator<Item = Run>,
    factor: &Factor,
) -> Result<()> {
    let mut asked = Asked::new(far, ADD | (factor.number() as u16) << 8);
    asked.factor = Some(words_of(factor));
    send(far, data, runs, asked, factor.number().size())
}

/// A factor, for a message.
pub(super) fn words_of(factor: &Factor) -> [u64; 2] {
    let mut words = [0; 2 * WORD];
    words[..factor.bytes().len()].copy_from_slice(factor.bytes());
    let (low, high) = words.split_at(WORD);
    [low, high].map(|word| word.try_into().map_or(0, u64::from_le_bytes))
}

/// Sends runs of `data`, of elements of so many bytes.
fn send(
    far: &Far<'_>,
    data: &[u8],
    runs: impl Iterator<Item = Run>,
    mut asked: Asked<'_>,
    element: usize,
) -> Result<()> {
    let limit = far.transfer.progress.conduit().caps().max_payload;
    let mut message = Packed::default();
    for run in runs.flat_map(split(limit, element)) {
        if message.bytes.len() + (message.runs.len() + 1) * WORD + run.len > limit {
            asked.send(&mut message, |_, _| Ok(()))?;
        }
        message
            .bytes
            .extend_from_slice(&data[run.here..][..run.len]);
        message.runs.push(run);
    }
    asked.send(&mut message, |_, _| Ok(()))?;
    asked.end(|_, _| Ok(()))
}

/// Gets runs into `data`.
///
/// # Errors
/// As [`Far::get`].
pub(super) fn get(far: &Far<'_>, data: &mut [u8], runs: impl Iterator<Item = Run>) -> Result<()> {
    let limit = far.transfer.progress.conduit().caps().max_payload;
    let mut unpack = |runs: &[Run], mut answer: &[u8]| {
        for run in runs {
            let (piece, rest) = answer.split_at_checked(run.len).ok_or(())?;
            data[run.here..][..run.len].copy_from_slice(piece);
            answer = rest;
        }
        if answer.is_empty() { Ok(()) } else { Err(()) }
    };
    let mut asked = Asked::new(far, GET);
    let mut message = Packed::default();
    let mut answer = 0;
    for run in runs.flat_map(split(limit, 1)) {
        if (message.runs.len() + 1) * WORD > limit || answer + run.len > limit {
            asked.send(&mut message, &mut unpack)?;
            answer = 0;
        }
        answer += run.len;
        message.runs.push(run);
    }
    asked.send(&mut message, &mut unpack)?;
    asked.end(unpack)
}

/// Parts of a run that fit a message, of whole elements of so many bytes.
fn split(limit: usize, element: usize) -> impl Fn(Run) -> Parts {
    let most = (limit.saturating_sub(WORD)).clamp(1, LONGEST);
    let most = (most / element * element).max(element);
    move |rest| Parts { rest, most }
}

/// Parts of a run, one after the other.
struct Parts {
    rest: Run,
    most: usize,
}

impl Iterator for Parts {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let len = self.rest.len.min(self.most);
        let part = Run { len, ..self.rest };
        self.rest = Run {
            there: part.there + len,
            here: part.here + len,
            len: self.rest.len - len,
        };
        (len > 0).then_some(part)
    }
}

/// A message to be.
#[derive(Default)]
struct Packed {
    /// What is put.
    bytes: Vec<u8>,
    runs: Vec<Run>,
}

/// Messages of a call that were sent.
struct Asked<'a> {
    far: &'a Far<'a>,
    tag: u16,
    /// The words of a factor, for those that add.
    factor: Option<[u64; 2]>,
    open: VecDeque<Question>,
}

struct Question {
    id: u64,
    /// It is sent again if the peer does not know its memory yet.
    payload: Vec<u8>,
    runs: Vec<Run>,
}

impl<'a> Asked<'a> {
    fn new(far: &'a Far<'a>, tag: u16) -> Self {
        let tag = match far.name {
            Name::Allocation(_) => tag,
            Name::Exposed(_) => tag | EXPOSED,
        };
        Self {
            far,
            tag,
            factor: None,
            open: VecDeque::with_capacity(MANY),
        }
    }

    /// Sends a message, and begins another. `unpack` takes the answer to an earlier one, unless that
    /// is not what was asked for.
    fn send(
        &mut self,
        message: &mut Packed,
        unpack: impl FnMut(&[Run], &[u8]) -> Result<(), ()>,
    ) -> Result<()> {
        let Packed { bytes, runs } = std::mem::take(message);
        if runs.is_empty() {
            return Ok(());
        }
        let start = match self.far.name {
            Name::Allocation(_) => 0,
            Name::Exposed(_) => self.far.at.offset,
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
        let Far { rank, .. } = *self.far;
        let progress = &self.far.transfer.progress;
        progress.tally.add_each([(Count::Packed, runs as u64)]);
        let name = match self.far.name {
            Name::Allocation(block) => block.number,
            Name::Exposed(key) => key,
        };
        self.far.calls.begin(rank, None, |id| {
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
    fn end(mut self, mut unpack: impl FnMut(&[Run], &[u8]) -> Result<(), ()>) -> Result<()> {
        while !self.open.is_empty() {
            self.end_first(&mut unpack)?;
        }
        Ok(())
    }

    fn end_first(&mut self, mut unpack: impl FnMut(&[Run], &[u8]) -> Result<(), ()>) -> Result<()> {
        let Far { rank, calls, .. } = *self.far;
        let progress = &self.far.transfer.progress;
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
                    if let Name::Allocation(block) = self.far.name {
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
        let Far { calls, rank, .. } = *self.far;
        for question in &self.open {
            // No task waits for it.
            drop(calls.let_be(&self.far.transfer.progress, rank, question.id));
        }
    }
}

/// Who unpacks for peers, and hears what they unpacked.
pub(crate) struct Unpacker {
    /// Where memory is looked up.
    memory: Arc<Registry>,
    /// Who waits for answers.
    calls: Arc<Calls>,
}

impl Unpacker {
    pub(crate) fn new(memory: &Arc<Registry>, calls: &Arc<Calls>) -> Self {
        Self {
            memory: Arc::clone(memory),
            calls: Arc::clone(calls),
        }
    }

    /// Does what a request says to memory of this rank: how that went, or nothing if the request
    /// follows no rule.
    fn act(&self, progress: &Progress, delivery: &Delivery<'_>) -> Option<Acted> {
        let (&[_, name, runs], factor) = delivery.args.split_first_chunk()?;
        let factor = match (delivery.tag & !EXPOSED).to_le_bytes() {
            [verb, number] if u16::from(verb) == ADD => {
                let &[low, high] = factor else { return None };
                let number = *Number::ALL.get(usize::from(number))?;
                let words = [low.to_le_bytes(), high.to_le_bytes()].concat();
                Some(Factor::from_bytes(number, &words[..number.size()])?)
            }
            _ if factor.is_empty() => None,
            _ => return None,
        };
        let gets = match delivery.tag & !EXPOSED {
            GET => true,
            PUT => false,
            _ if factor.is_some() => false,
            _ => return None,
        };
        let words = usize::try_from(runs).ok()?.checked_mul(WORD)?;
        let bytes = delivery.payload.len().checked_sub(words)?;
        let (bytes, words) = delivery.payload.split_at(bytes);
        let most = progress.conduit().caps().max_payload;
        let unpack = |window: &Window| match (gets, &factor) {
            (false, None) => unpack(window, words, bytes).map(|()| Acted::Done(Vec::new())),
            (false, Some(factor)) => self.add(progress, window, words, bytes, factor),
            (true, _) if bytes.is_empty() => pack(window, words, most).map(Acted::Done),
            (true, _) => None,
        };
        if delivery.tag & EXPOSED != 0 {
            let done = self.memory.on_exposed(name, unpack);
            // If another thread sleeps while this one polls, no message wakes it.
            progress.conduit().notify(progress.rank);
            return done.unwrap_or(Some(Acted::Not(REVOKED)));
        }
        let own_part = |own: &Mapped| (unpack(&own.window), own.is_watched());
        let Some((done, is_watched)) = self.memory.on_own_part(name, own_part) else {
            return Some(Acted::Not(UNKNOWN));
        };
        if is_watched {
            progress.conduit().notify(progress.rank);
        }
        done
    }

    /// Adds multiples of bytes where words say. Nothing is added if a run lies outside, or is not of
    /// whole elements.
    fn add(
        &self,
        progress: &Progress,
        window: &Window,
        words: &[u8],
        mut bytes: &[u8],
        factor: &Factor,
    ) -> Option<Acted> {
        let size = factor.number().size();
        let runs = named_exactly(window, words, bytes)?;
        if runs.iter().any(|(_, len)| len % size != 0) {
            return None;
        }
        let mut adder = self.memory.locks().adder(progress.rank, window).ok()?;
        for (at, len) in runs {
            let (run, rest) = bytes.split_at(len);
            match adder.add(at, run, factor) {
                Ok(()) => bytes = rest,
                Err(Error::PeerLost(rank)) => return Some(Acted::Broken(rank)),
                Err(_) => return Some(Acted::Not(UNKNOWN)),
            }
        }
        Some(Acted::Done(Vec::new()))
    }
}

/// What became of a request.
enum Acted {
    /// And what was got.
    Done(Vec<u8>),
    /// Nothing was done, for a reason that is a status.
    Not(u16),
    /// That rank ended while it added to the same memory.
    Broken(Rank),
}

impl Route for Unpacker {
    fn request(&self, progress: &Progress, delivery: &Delivery<'_>, port: &mut dyn ReplyPort) {
        let (Some(acted), Some(id)) = (self.act(progress, delivery), delivery.args.first()) else {
            return progress.malformed(delivery.from, "packed runs that do not fit the memory");
        };
        let (status, payload) = match &acted {
            Acted::Done(bytes) => (DONE, bytes.as_slice()),
            Acted::Not(status) => (*status, &[][..]),
            Acted::Broken(_) => (BROKEN, &[][..]),
        };
        let args = match acted {
            Acted::Broken(rank) => &[*id, u64::from(rank.0)][..],
            _ => &[*id],
        };
        let message = Message {
            kind: kind::PACKED,
            tag: status,
            args,
            payload,
        };
        if let Err(cause) = port.reply(&message) {
            tracing::warn!(%cause, to = %delivery.from, "packed runs could not be answered");
        }
    }

    fn reply(&self, progress: &Progress, delivery: &Delivery<'_>) {
        let answer = match delivery.tag {
            DONE => Ok(delivery.payload.to_vec()),
            UNKNOWN => Err(Error::Freed),
            BROKEN => {
                let holder = delivery
                    .args
                    .get(1)
                    .map_or(delivery.from, |it| Rank(*it as u32));
                Err(Error::PeerLost(holder))
            }
            _ => Err(Error::Revoked {
                rank: delivery.from,
            }),
        };
        let asked = match delivery.args {
            &[id] | &[id, _] => self.calls.end(progress, delivery.from, id, answer),
            _ => false,
        };
        if !asked {
            let what = "an answer to packed runs that nobody asked for";
            progress.malformed(delivery.from, what);
        }
    }
}

/// The runs that words name, if they lie in the window and have so many bytes at most.
fn named(window: &Window, words: &[u8], most: usize) -> Option<Vec<(usize, usize)>> {
    let mut bytes = 0;
    let runs = words.chunks_exact(WORD).map(|word| {
        let word = u64::from_le_bytes(word.try_into().ok()?);
        let (at, len) = ((word >> LENGTH_BITS) as usize, word as usize & LONGEST);
        bytes += len;
        (at + len <= window.len() && bytes <= most).then_some((at, len))
    });
    runs.collect()
}

/// The runs that words name, if they lie in the window and have these bytes.
fn named_exactly(window: &Window, words: &[u8], bytes: &[u8]) -> Option<Vec<(usize, usize)>> {
    let runs = named(window, words, bytes.len())?;
    let all = runs.iter().map(|(_, len)| len).sum::<usize>();
    (all == bytes.len()).then_some(runs)
}

/// Puts the bytes of runs where words say. Nothing is put if one lies outside.
fn unpack(window: &Window, words: &[u8], mut bytes: &[u8]) -> Option<()> {
    let runs = named_exactly(window, words, bytes)?;
    for (at, len) in runs {
        let (run, rest) = bytes.split_at(len);
        window.write(at, run).ok()?;
        bytes = rest;
    }
    Some(())
}

/// The bytes of the runs that words name.
fn pack(window: &Window, words: &[u8], most: usize) -> Option<Vec<u8>> {
    let runs = named(window, words, most)?;
    let mut bytes = vec![0; runs.iter().map(|(_, len)| len).sum()];
    let mut rest = bytes.as_mut_slice();
    for (at, len) in runs {
        let (run, others) = rest.split_at_mut(len);
        window.read(at, run).ok()?;
        rest = others;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(runs: &[(u64, u64)]) -> Vec<u8> {
        let words = runs.iter().map(|(at, len)| at << LENGTH_BITS | len);
        words.flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn runs_come_back_as_they_were_put() {
        let window = Window::private(64);
        let runs = words(&[(60, 4), (0, 1), (8, 0), (10, 3)]);
        assert_eq!(unpack(&window, &runs, b"abcdefgh"), Some(()));
        assert_eq!(pack(&window, &runs, 8).unwrap(), b"abcdefgh");
        let mut all = [0; 64];
        window.read(0, &mut all).unwrap();
        assert_eq!(&all[60..], b"abcd");
        assert_eq!((all[0], &all[10..13]), (b'e', &b"fgh"[..]));
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let window = Window::private(64);
        for (runs, bytes) in [
            (&[(0, 4), (61, 4)][..], 8),
            (&[(64, 1)], 1),
            (&[((1 << 48) - 1, 65535)], 65535),
            (&[(0, 4)], 3),
            (&[(0, 4)], 5),
            (&[], 1),
        ] {
            assert_eq!(unpack(&window, &words(runs), &vec![7; bytes]), None);
        }
        let mut all = [0; 64];
        window.read(0, &mut all).unwrap();
        assert_eq!(all, [0; 64]);
        // Nor is room made for more than a message takes.
        assert_eq!(pack(&window, &words(&[(0, 40); 3]), 100), None);
        assert_eq!(pack(&window, &words(&[(30, 40)]), 100), None);
    }

    #[test]
    fn long_runs_are_split() {
        let run = Run {
            there: 100,
            here: 5,
            len: 25,
        };
        let parts: Vec<Run> = split(10 + WORD, 1)(run).collect();
        let parts: Vec<_> = parts.iter().map(|it| (it.there, it.here, it.len)).collect();
        assert_eq!(parts, [(100, 5, 10), (110, 15, 10), (120, 25, 5)]);
        assert_eq!(split(100, 1)(run).count(), 1);
        // A message of less than a word would hold nothing: no endless loop at least.
        assert_eq!(split(1, 1)(run).count(), 25);
        // Elements stay whole.
        let parts: Vec<usize> = split(10 + WORD, 4)(run).map(|it| it.len).collect();
        assert_eq!(parts, [8, 8, 8, 1]);
    }
}
