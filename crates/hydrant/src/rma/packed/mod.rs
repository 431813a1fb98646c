//! Runs packed into messages. The owner of the memory unpacks them, adds them to the memory, or
//! packs the answer to a get.
//!
//! ```text
//! request  tag PUT      args number, allocation, words  payload bytes of the runs, then the words
//!          tag GET      args number, allocation, words  payload the words
//!          tag ADD | type of number << 8                args also: two words of a factor; payload as PUT
//!              EXPOSED beside it                        for an exposed buffer, by its key
//! reply    tag DONE     args number                     payload of a get: bytes of the runs
//!          tag UNKNOWN  args number: the allocation does not exist there
//!          tag REVOKED  args number: the buffer is not exposed
//!          tag BROKEN   args number, rank: that rank ended while it added to the same memory
//! word     a run: offset in the memory × 65536 + bytes of the run, which are not 0
//!          or repetitions of the last run so far: their number × 65536
//!          and behind that a word: bytes from the start of one to the start of the next
//! ```

mod parts;
mod requests;
mod unpacker;
mod words;

use hydrant_base::words::only;
use hydrant_conduit::memory::Factor;

use super::unmapped::{ByteRun, Unmapped};
use crate::Result;
use parts::split;
use requests::{PackedRuns, SentRequests};

pub(crate) use unpacker::Unpacker;
pub(super) use words::RunWords;

pub(super) const PUT: u16 = 0;
pub(super) const GET: u16 = 1;
pub(super) const ADD: u16 = 2;
/// Flag beside these: the memory is an exposed buffer and not an allocation.
const EXPOSED: u16 = 0x8000;

const DONE: u16 = 0;
const UNKNOWN: u16 = 1;
const REVOKED: u16 = 2;
const BROKEN: u16 = 3;

/// The most requests of a call without an answer.
pub(super) const MANY: usize = 8;
pub(super) const WORD: usize = size_of::<u64>();
/// The bits of a word that hold a length; the others hold an offset.
pub(super) const LENGTH_BITS: u32 = 16;
pub(super) const LONGEST: usize = (1 << LENGTH_BITS) - 1;

/// Puts runs. `data` returns the bytes of each.
///
/// # Errors
/// As [`Unmapped::put`].
pub(super) fn put<'d>(
    unmapped: &Unmapped<'_>,
    data: impl Fn(&ByteRun) -> &'d [u8],
    runs: impl Iterator<Item = ByteRun>,
) -> Result<()> {
    send(unmapped, data, runs, SentRequests::new(unmapped, PUT), 1)
}

/// Adds multiples of the elements of runs. `data` returns the elements of each.
///
/// # Errors
/// As [`Unmapped::put`].
pub(super) fn add<'d>(
    unmapped: &Unmapped<'_>,
    data: impl Fn(&ByteRun) -> &'d [u8],
    runs: impl Iterator<Item = ByteRun>,
    factor: &Factor,
) -> Result<()> {
    let mut requests = SentRequests::new(unmapped, ADD | (factor.number() as u16) << 8);
    requests.factor = Some(words_of(factor));
    send(unmapped, data, runs, requests, factor.number().size())
}

/// Encodes a factor for a message.
pub(super) fn words_of(factor: &Factor) -> [u64; 2] {
    let mut words = [0; 2 * WORD];
    words[..factor.bytes().len()].copy_from_slice(factor.bytes());
    only(&words).expect("as many bytes as two words")
}

/// Sends runs of elements of `element` bytes. `data` returns the bytes of each.
fn send<'d>(
    unmapped: &Unmapped<'_>,
    data: impl Fn(&ByteRun) -> &'d [u8],
    runs: impl Iterator<Item = ByteRun>,
    mut requests: SentRequests<'_>,
    element: usize,
) -> Result<()> {
    let limit = unmapped.transfer.progress.conduit().caps().max_payload;
    let mut message = PackedRuns::default();
    for run in runs.flat_map(split(limit, element)) {
        if message.bytes.len() + message.words.bytes_with_next() + run.len > limit {
            requests.send(&mut message, |_, _| Ok(()))?;
        }
        message.bytes.extend_from_slice(data(&run));
        message.words.push(requests.place(&run), run.len);
    }
    requests.send(&mut message, |_, _| Ok(()))?;
    requests.end(|_, _| Ok(()))
}

/// Gets runs. `keep` takes the bytes of each.
///
/// # Errors
/// As [`Unmapped::get`].
pub(super) fn get(
    unmapped: &Unmapped<'_>,
    runs: impl Iterator<Item = ByteRun>,
    mut keep: impl FnMut(&ByteRun, &[u8]),
) -> Result<()> {
    let limit = unmapped.transfer.progress.conduit().caps().max_payload;
    let mut unpack = |runs: &[ByteRun], mut answer: &[u8]| {
        for run in runs {
            let (piece, rest) = answer.split_at_checked(run.len).ok_or(())?;
            keep(run, piece);
            answer = rest;
        }
        if answer.is_empty() { Ok(()) } else { Err(()) }
    };
    let mut requests = SentRequests::new(unmapped, GET);
    let mut message = PackedRuns::default();
    let mut answer = 0;
    for run in runs.flat_map(split(limit, 1)) {
        if message.words.bytes_with_next() > limit || answer + run.len > limit {
            requests.send(&mut message, &mut unpack)?;
            answer = 0;
        }
        answer += run.len;
        message.words.push(requests.place(&run), run.len);
        message.asked.push(run);
    }
    requests.send(&mut message, &mut unpack)?;
    requests.end(unpack)
}
