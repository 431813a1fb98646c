//! Atomic operations on words that are not mapped here: the owner's processor does them.
//!
//! ```text
//! request  tag verb | kind << 8   args number, allocation, byte offset in it, value, expected
//!              EXPOSED beside it  the same of an exposed buffer, by its key
//! reply    tag DONE               args number, what the word was
//!          tag UNKNOWN            args number: no such allocation lives there
//!          tag REVOKED            args number: no such buffer is exposed
//!          tag OUTSIDE            args number, bytes of the buffer: the word is beyond them
//!          tag MISALIGNED         args number: no processor changes that at once
//! ```

use std::{
    sync::{Arc, atomic::AtomicU64},
    thread,
};

use bytemuck::Pod;
use hydrant_base::words::only;
use hydrant_conduit::{Delivery, Message, Remote, ReplyPort, Window};

use super::{
    AtomicsExecutor,
    sealed::{BitOperations, Sealed},
};
use crate::{
    Error, Rank, Result,
    counters::Count,
    memory::{Registry, Symmetric},
    message::Calls,
    progress::{self, Progress, Route, kind},
    transfer::Transfer,
};

/// The operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Load,
    Store,
    Swap,
    CompareSwap,
    Add,
    And,
    Or,
    Xor,
}

/// The type of the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WordKind {
    Word32,
    Word64,
    Float32,
    Float64,
}

impl WordKind {
    fn is_wide(self) -> bool {
        matches!(self, WordKind::Word64 | WordKind::Float64)
    }
}

const VERBS: [Verb; 8] = [
    Verb::Load,
    Verb::Store,
    Verb::Swap,
    Verb::CompareSwap,
    Verb::Add,
    Verb::And,
    Verb::Or,
    Verb::Xor,
];
const KINDS: [WordKind; 4] = [
    WordKind::Word32,
    WordKind::Word64,
    WordKind::Float32,
    WordKind::Float64,
];

/// Flag beside the kind: the word lies in an exposed buffer, not in an allocation.
const EXPOSED: u16 = 0x8000;

const DONE: u16 = 0;
const UNKNOWN: u16 = 1;
/// The exposed buffer is no longer exposed.
const REVOKED: u16 = 2;
/// The word is beyond the end of the buffer.
const OUTSIDE: u16 = 3;
/// The offset is not aligned, so that no processor changes the word in one step.
const MISALIGNED: u16 = 4;

impl<T: Pod + Sealed> Symmetric<T> {
    /// Has the owner operate on the word. The operation is done there on return.
    #[cold]
    pub(super) fn ask(&self, rank: Rank, offset: usize, what: (Verb, [T; 2])) -> Result<T> {
        let block = self.block();
        let transfer = block.transfer()?;
        if T::WIDE && block.by_nics {
            return self.by_nic(&transfer, rank, offset, what);
        }
        let progress = &transfer.progress;
        progress::may_wait("an atomic operation that goes through the network")?;
        let question = AtomicRequest::of_allocation(block.number, offset, what);
        loop {
            match question.ask(progress, &block.calls, rank) {
                // The allocation exists here: its owner does not know it yet, or this rank is about to free
                // it, too.
                Err(Error::Freed) => {
                    block.check()?;
                    thread::yield_now();
                }
                answer => return answer.map(T::of_bits),
            }
        }
    }
}

/// A request to the owner of a word.
#[derive(Clone, Copy)]
pub(super) struct AtomicRequest {
    tag: u16,
    /// All arguments except the number of the request.
    args: [u64; 4],
}

impl AtomicRequest {
    pub(super) fn of_allocation<T: Sealed>(
        number: u64,
        offset: usize,
        (verb, operands): (Verb, [T; 2]),
    ) -> Self {
        let [value, expected] = operands.map(T::to_bits);
        Self {
            tag: verb as u16 | (T::KIND as u16) << 8,
            args: [number, offset as u64, value, expected],
        }
    }

    pub(super) fn of_exposed<T: Sealed>(place: Remote, (verb, operands): (Verb, [T; 2])) -> Self {
        let [value, expected] = operands.map(T::to_bits);
        Self {
            tag: verb as u16 | (T::KIND as u16) << 8 | EXPOSED,
            args: [place.key.0, place.offset, value, expected],
        }
    }

    /// Sends the request and waits for the old value of the word.
    fn ask(&self, progress: &Progress, calls: &Calls, rank: Rank) -> Result<u64> {
        let answer = calls.ask(progress, rank, |id| {
            self.with_message(id, |message| progress.send(rank, message))
        });
        answer.map(word_of)
    }

    /// Sends the request and returns its number. Works in a handler, too.
    pub(super) fn begin(&self, progress: &Progress, calls: &Calls, rank: Rank) -> Result<u64> {
        calls.begin(rank, None, |id| {
            self.with_message(id, |message| match progress::may_wait("a message") {
                Ok(()) => progress.send(rank, message),
                Err(_) => progress.send_onward(rank, message),
            })
        })
    }

    fn with_message<R>(&self, id: u64, send: impl FnOnce(&Message<'_>) -> R) -> R {
        let [name, offset, value, expected] = self.args;
        send(&Message {
            kind: kind::ATOMIC,
            tag: self.tag,
            args: &[id, name, offset, value, expected],
            payload: &[],
        })
    }
}

/// The old value of the word in an answer.
pub(super) fn word_of(answer: Vec<u8>) -> u64 {
    only(&answer).unwrap_or(0)
}

/// Has the owner of an exposed buffer change a word of it. The operation is done there on return.
pub(super) fn ask_exposed<T: Pod + Sealed>(
    transfer: &Transfer,
    memory: &Registry,
    calls: &Calls,
    (rank, place): (Rank, Remote),
    what: (Verb, [T; 2]),
) -> Result<T> {
    let progress = &transfer.progress;
    progress.check_running()?;
    progress.tally.one(Count::Atomics);
    let answer = if rank == progress.rank {
        progress.poll_memory();
        on_own_exposed(memory, rank, place, what)
    } else {
        progress::may_wait("an atomic operation that goes through the network")?;
        AtomicRequest::of_exposed(place, what).ask(progress, calls, rank)
    };
    answer_of(place.offset, answer)
}

/// Changes a word of an exposed buffer of this rank. Returns the old value.
pub(super) fn on_own_exposed<T: Sealed>(
    memory: &Registry,
    own: Rank,
    place: Remote,
    (verb, operands): (Verb, [T; 2]),
) -> Result<u64> {
    let operands = operands.map(T::to_bits);
    let at = (place.key.0, place.offset);
    match on_exposed(memory, at, (T::KIND, verb, operands)) {
        (DONE, old) => Ok(old),
        (status, old) => Err(refused(own, status, old)),
    }
}

/// Converts the answer about the word at `offset` of an exposed buffer to the caller's terms.
pub(super) fn answer_of<T: Pod + Sealed>(offset: u64, answer: Result<u64>) -> Result<T> {
    let size = size_of::<T>();
    answer.map(T::of_bits).map_err(|cause| match cause {
        Error::OutOfBounds { len, .. } => Error::OutOfBounds {
            index: (offset / size as u64) as usize,
            count: 1,
            len: len / size,
        },
        Error::Misaligned { .. } => Error::Misaligned {
            offset,
            align: size,
            what: std::any::type_name::<T>(),
        },
        cause => cause,
    })
}

/// The error of a status that says that nothing was done. The caller adds the element.
fn refused(rank: Rank, status: u16, len: u64) -> Error {
    match status {
        REVOKED => Error::Revoked { rank },
        OUTSIDE => Error::OutOfBounds {
            index: 0,
            count: 1,
            len: len as usize,
        },
        MISALIGNED => Error::Misaligned {
            offset: 0,
            align: 0,
            what: "",
        },
        _ => Error::Freed,
    }
}

/// Does atomic operations for peers, and takes the answers of peers.
pub(crate) struct ByMessage {
    /// The memory of this rank in which words are looked up.
    memory: Arc<Registry>,
    /// The calls that wait for answers.
    calls: Arc<Calls>,
    executor: AtomicsExecutor,
}

impl ByMessage {
    pub(crate) fn new(
        memory: &Arc<Registry>,
        calls: &Arc<Calls>,
        executor: AtomicsExecutor,
    ) -> Self {
        Self {
            memory: Arc::clone(memory),
            calls: Arc::clone(calls),
            executor,
        }
    }
}

impl Route for ByMessage {
    /// Answers a peer's request for an operation on a word of this rank.
    fn request(&self, progress: &Progress, delivery: &Delivery<'_>, port: &mut dyn ReplyPort) {
        let &[id, block, offset, value, expected] = delivery.args else {
            return progress.malformed(delivery.from, "an atomic operation without its arguments");
        };
        let exposed = delivery.tag & EXPOSED != 0;
        let [verb, kind] = (delivery.tag & !EXPOSED).to_le_bytes().map(usize::from);
        let (Some(verb), Some(kind)) = (VERBS.get(verb), KINDS.get(kind)) else {
            return progress.malformed(delivery.from, "an atomic operation of unknown kind");
        };
        if exposed {
            let (status, old) = on_exposed(
                &self.memory,
                (block, offset),
                (*kind, *verb, [value, expected]),
            );
            return answer(port, delivery.from, id, status, old);
        }
        if kind.is_wide() && self.executor != AtomicsExecutor::Processors {
            let what = "an atomic operation by a processor on a word that NICs change";
            return progress.malformed(delivery.from, what);
        }
        let done = self.memory.on_own_part(block, |own| {
            let at = usize::try_from(offset).ok()?;
            let old = apply(&own.window, at, *kind, *verb, [value, expected])?;
            Some((old, own.is_watched()))
        });
        let (status, old) = match done {
            None => (UNKNOWN, 0),
            Some(Some((old, is_watched))) => {
                // A message wakes no thread that sleeps while this one polls.
                if is_watched {
                    progress.conduit().notify(progress.rank);
                }
                (DONE, old)
            }
            Some(None) => {
                let what = "an atomic operation that does not fit the allocation";
                return progress.malformed(delivery.from, what);
            }
        };
        answer(port, delivery.from, id, status, old);
    }

    /// Takes the answer of an owner.
    fn reply(&self, progress: &Progress, delivery: &Delivery<'_>) {
        let &[id, old] = delivery.args else {
            return progress.malformed(
                delivery.from,
                "the result of an atomic operation without it",
            );
        };
        let result = match delivery.tag {
            DONE => Ok(old.to_le_bytes().to_vec()),
            status => Err(refused(delivery.from, status, old)),
        };
        if !self.calls.end(progress, delivery.from, id, result) {
            progress.malformed(
                delivery.from,
                "the result of an atomic operation that nobody asked for",
            );
        }
    }
}

/// Answers with the status of an operation.
fn answer(port: &mut dyn ReplyPort, to: Rank, id: u64, status: u16, old: u64) {
    let message = Message {
        kind: kind::ATOMIC,
        tag: status,
        args: &[id, old],
        payload: &[],
    };
    if let Err(cause) = port.reply(&message) {
        tracing::warn!(%cause, %to, "an atomic operation could not be answered");
    }
}

/// Changes a word of an exposed buffer of this rank. Returns a status, and the old value or the length of
/// the buffer. A wrong offset is an ordinary error here, because the peer's program does not know the
/// buffer.
fn on_exposed(
    memory: &Registry,
    (key, offset): (u64, u64),
    (kind, verb, operands): (WordKind, Verb, [u64; 2]),
) -> (u16, u64) {
    let size: u64 = if kind.is_wide() { 8 } else { 4 };
    let changed = memory.on_exposed(key, |window| {
        let len = window.len() as u64;
        if offset > len || len - offset < size {
            return (OUTSIDE, len);
        }
        let old = apply(window, offset as usize, kind, verb, operands);
        old.map_or((MISALIGNED, 0), |old| (DONE, old))
    });
    changed.unwrap_or((REVOKED, 0))
}

/// Operates on a word and returns its old value; `None` if there is no such word or operation.
fn apply(
    window: &Window,
    offset: usize,
    kind: WordKind,
    verb: Verb,
    operands: [u64; 2],
) -> Option<u64> {
    match kind {
        WordKind::Word32 => {
            bits::<u32>(u32::word(window, offset)?, verb, operands.map(u32::of_bits)).map(u64::from)
        }
        WordKind::Word64 | WordKind::Float64 => {
            apply_wide(u64::word(window, offset)?, kind, verb, operands)
        }
        WordKind::Float32 => {
            let operands = operands.map(<f32 as Sealed>::of_bits);
            numbers::<f32>(f32::word(window, offset)?, verb, operands).map(Sealed::to_bits)
        }
    }
}

/// As [`apply`], on a word of 64 bits.
pub(super) fn apply_wide(
    word: &AtomicU64,
    kind: WordKind,
    verb: Verb,
    operands: [u64; 2],
) -> Option<u64> {
    if kind == WordKind::Float64 {
        let operands = operands.map(<f64 as Sealed>::of_bits);
        return numbers::<f64>(word, verb, operands).map(Sealed::to_bits);
    }
    bits::<u64>(word, verb, operands)
}

/// The operations of every type.
fn numbers<T: Sealed>(word: &T::Word, verb: Verb, [value, expected]: [T; 2]) -> Option<T> {
    Some(match verb {
        Verb::Load => T::load(word),
        Verb::Store | Verb::Swap => T::swap(word, value),
        Verb::CompareSwap => T::compare_swap(word, expected, value).unwrap_or_else(|old| old),
        Verb::Add => T::fetch_add(word, value),
        Verb::And | Verb::Or | Verb::Xor => return None,
    })
}

/// The operations of integers.
fn bits<T: BitOperations>(word: &T::Word, verb: Verb, operands: [T; 2]) -> Option<T> {
    Some(match verb {
        Verb::And => T::fetch_and(word, operands[0]),
        Verb::Or => T::fetch_or(word, operands[0]),
        Verb::Xor => T::fetch_xor(word, operands[0]),
        _ => return numbers(word, verb, operands),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_and_kinds_go_by_number() {
        for (number, verb) in VERBS.into_iter().enumerate() {
            assert_eq!(verb as usize, number);
        }
        for (number, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
    }

    #[test]
    fn words_that_are_not_there_are_left_alone() {
        let window = Window::private(16);
        for kind in KINDS {
            for verb in VERBS {
                for offset in [16, 17, 2, usize::MAX, usize::MAX - 7] {
                    assert_eq!(apply(&window, offset, kind, verb, [9, 9]), None);
                }
            }
        }
        for kind in [WordKind::Float32, WordKind::Float64] {
            for verb in [Verb::And, Verb::Or, Verb::Xor] {
                assert_eq!(apply(&window, 0, kind, verb, [9, 9]), None);
            }
        }
        assert_eq!(window.load::<[u64; 2]>(0), Ok([0, 0]));
    }

    #[test]
    fn every_operation_gives_what_the_word_was() {
        let window = Window::private(16);
        let at = |kind, verb, operands| apply(&window, 8, kind, verb, operands);
        for (verb, operands, old, now) in [
            (Verb::Store, [12, 0], 0, 12),
            (Verb::Add, [u64::MAX, 0], 12, 11),
            (Verb::Swap, [7, 0], 11, 7),
            (Verb::CompareSwap, [1, 8], 7, 7),
            (Verb::CompareSwap, [12, 7], 7, 12),
            (Verb::And, [6, 0], 12, 4),
            (Verb::Or, [3, 0], 4, 7),
            (Verb::Xor, [2, 0], 7, 5),
            (Verb::Load, [0, 0], 5, 5),
        ] {
            assert_eq!(at(WordKind::Word64, verb, operands), Some(old), "{verb:?}");
            assert_eq!(window.load::<u64>(8), Ok(now), "{verb:?}");
        }
        window.store(8, 1.5_f32).unwrap();
        let two = u64::from(2_f32.to_bits());
        let old = at(WordKind::Float32, Verb::Add, [two, 0]);
        assert_eq!(old, Some(u64::from(1.5_f32.to_bits())));
        assert_eq!(window.load::<f32>(8), Ok(3.5));
    }

    #[test]
    fn words_of_freed_memory_are_refused() {
        let builder = crate::Job::builder().expect("the settings are valid");
        let ends = builder.heap(1 << 20).run_local(2, |job| {
            let memory = job.alloc::<u64>(4)?;
            let number = memory.block().number;
            // A rank that is still in `alloc` would answer that it does not know the memory.
            job.barrier()?;
            let add = |number| {
                let calls = job.core().messages.calls();
                calls.ask(job.progress(), job.right(), |id| {
                    let message = Message {
                        kind: kind::ATOMIC,
                        tag: Verb::Add as u16 | (WordKind::Word64 as u16) << 8,
                        args: &[id, number, 8, 5, 0],
                        payload: &[],
                    };
                    job.progress().send(job.right(), &message)
                })
            };
            assert_eq!(add(number)?, [0; 8]);
            job.barrier()?;
            assert_eq!(memory.local()?.load(1)?, 5);
            assert!(matches!(add(number + 1), Err(Error::Freed)));
            job.barrier()?;
            job.free(memory)?;
            assert!(matches!(add(number), Err(Error::Freed)));
            job.barrier()
        });
        ends.into_iter().for_each(|end| end.unwrap());
    }
}
