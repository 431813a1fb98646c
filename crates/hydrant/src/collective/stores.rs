//! Stores into scratch that is not mapped here, by messages.
//!
//! A store writes bytes and then a flag, as in mapped scratch. The receiving rank does both when the
//! message arrives. Messages from one rank to another arrive in order, so all earlier stores are done by
//! then. Stores have no reply.
//!
//! ```text
//! tag SET   args at                  payload bytes, stored at `at`
//!           args at flag value words payload as above; words, stored behind the flag; then the flag
//! tag ADD   args flag value          added to the flag
//! ```
//!
//! If a message has too few arguments for the words, an earlier message carries them as bytes.

use std::sync::atomic::{
    Ordering::{AcqRel, Release, SeqCst},
    compiler_fence,
};

use hydrant_conduit::{Delivery, Message, ReplyPort, Sent, WakeWord, Window};
use smallvec::SmallVec;

use super::layout::FRONT;
use crate::{
    Rank, Result,
    progress::{self, Progress, Route, kind},
    segment::SCRATCH,
};

/// Stores, and sets the flag.
const SET: u16 = 0;
/// Adds to the flag.
const ADD: u16 = 1;

/// Words that follow a flag in its line.
const BESIDE: usize = 7;
/// Arguments of a message that sets a flag, before those words.
const FLAGGED: usize = 3;

/// A flag that is set after the bytes are stored. Offsets count from the start of the segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlagStore<'a> {
    pub(super) at: usize,
    pub(super) value: u64,
    /// Words behind the flag, stored before it: [`BESIDE`] at most.
    pub(super) beside: &'a [u64],
}

/// Stores `data` into the scratch of `rank`, then sets the flag. Waits only for room for the messages.
///
/// # Errors
/// [`Error::PeerLost`](crate::Error::PeerLost).
pub(super) fn store(
    progress: &Progress,
    rank: Rank,
    mut at: usize,
    mut data: &[u8],
    flag: FlagStore<'_>,
) -> Result<()> {
    let caps = progress.conduit().caps();
    let mut beside = flag.beside;
    if FLAGGED + beside.len() > caps.max_args {
        let behind = (flag.at + size_of::<u64>()) as u64;
        push(progress, rank, SET, &[behind], bytemuck::cast_slice(beside))?;
        beside = &[];
    }
    while data.len() > caps.max_payload {
        // Arguments precede the payload in a packet: a payload of the full length would take two packets.
        let (piece, rest) = data.split_at(caps.max_payload - FRONT);
        push(progress, rank, SET, &[at as u64], piece)?;
        (at, data) = (at + piece.len(), rest);
    }
    let mut args = SmallVec::<[u64; FLAGGED + BESIDE]>::new();
    args.extend([at as u64, flag.at as u64, flag.value]);
    args.extend_from_slice(beside);
    push(progress, rank, SET, &args, data)
}

fn push(progress: &Progress, rank: Rank, tag: u16, args: &[u64], payload: &[u8]) -> Result<()> {
    progress.send(rank, &message(tag, args, payload))
}

fn message<'a>(tag: u16, args: &'a [u64], payload: &'a [u8]) -> Message<'a> {
    Message {
        kind: kind::STORE,
        tag,
        args,
        payload,
    }
}

/// Adds one to a word of `rank` if there is room for the message. Returns whether nothing is left to do.
pub(super) fn try_count(progress: &Progress, rank: Rank, at: usize) -> bool {
    if progress::may_wait("a message").is_err() {
        return false;
    }
    let sent = progress
        .conduit()
        .send(rank, &message(ADD, &[at as u64, 1], &[]));
    // A lost rank needs no count.
    !matches!(sent, Ok(Sent::Full))
}

/// Adds one to a word of `rank`.
///
/// # Errors
/// [`Error::PeerLost`](crate::Error::PeerLost).
pub(super) fn count(progress: &Progress, rank: Rank, at: usize) -> Result<()> {
    push(progress, rank, ADD, &[at as u64, 1], &[])
}

/// The route of the messages that store into this rank's scratch.
pub(crate) struct Stores;

impl Route for Stores {
    fn request(&self, progress: &Progress, delivery: &Delivery<'_>, _: &mut dyn ReplyPort) {
        let done =
            (progress.conduit().window(progress.rank)).and_then(|window| apply(window, delivery));
        if done.is_none() {
            return progress.malformed(
                delivery.from,
                "a store that does not fit the team's scratch",
            );
        }
        // A message wakes no thread that sleeps while this one polls. The sleeper's side has the fence.
        compiler_fence(SeqCst);
        if let Some(wake_word) = progress.conduit().wake_word(progress.rank)
            && wake_word.bits.load(std::sync::atomic::Ordering::Relaxed) & WakeWord::APPLICATION
                != 0
        {
            progress.conduit().notify(progress.rank);
        }
    }
}

/// Applies a store. Returns `None` if it leaves the system area.
fn apply(window: &Window, delivery: &Delivery<'_>) -> Option<()> {
    let payload = delivery.payload;
    let write = |at: usize, data: &[u8]| window.write(at, data).ok();
    match (delivery.tag, delivery.args) {
        (SET, &[at]) => write(inside(at, payload.len())?, payload),
        (SET, &[at, flag, value, ref beside @ ..]) => {
            let at = inside(at, payload.len())?;
            let flag = inside(flag, size_of::<u64>() + size_of_val(beside))?;
            let word = window.atomic_u64(flag).ok()?;
            write(flag + size_of::<u64>(), bytemuck::cast_slice(beside))?;
            write(at, payload)?;
            word.store(value, Release);
            Some(())
        }
        (ADD, &[flag, value]) if payload.is_empty() => {
            let word = window.atomic_u64(inside(flag, size_of::<u64>())?).ok()?;
            word.fetch_add(value, AcqRel);
            Some(())
        }
        _ => None,
    }
}

/// Returns the offset if `len` bytes at it lie in the scratch of teams.
fn inside(at: u64, len: usize) -> Option<usize> {
    let at = usize::try_from(at).ok()?;
    (at.checked_add(len)? <= SCRATCH).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(window: &Window, tag: u16, args: &[u64], payload: &[u8]) -> bool {
        let delivery = Delivery {
            from: Rank(1),
            kind: kind::STORE,
            tag,
            args,
            payload,
        };
        apply(window, &delivery).is_some()
    }

    fn words(window: &Window, at: usize) -> [u64; 4] {
        window.load(at).unwrap()
    }

    #[test]
    fn a_store_is_bytes_and_a_flag_with_what_is_beside_it() {
        let window = Window::private(SCRATCH + 4096);
        assert!(applied(&window, SET, &[64], &7_u64.to_le_bytes()));
        let args = [72, 128, 9, 1, 2];
        let payload = [3_u64, 4];
        assert!(applied(&window, SET, &args, bytemuck::cast_slice(&payload)));
        assert_eq!(words(&window, 64), [7, 3, 4, 0]);
        assert_eq!(words(&window, 128), [9, 1, 2, 0]);
        assert!(applied(&window, ADD, &[128, 3], &[]));
        assert_eq!(words(&window, 128), [12, 1, 2, 0]);
    }

    #[test]
    fn nothing_outside_the_system_area_is_touched() {
        let window = Window::private(SCRATCH + 4096);
        let end = SCRATCH as u64;
        let byte = &[1];
        for (tag, args, payload) in [
            (SET, &[end][..], &byte[..]),
            (SET, &[u64::MAX], byte),
            (SET, &[end - 1], &[1, 1]),
            (SET, &[0, end, 1], byte),
            (SET, &[0, end - 7, 1], byte),
            (SET, &[0, end - 8, 1, 1], byte),
            (SET, &[0, u64::MAX, 1], byte),
            (SET, &[end, 8, 1], byte),
            (SET, &[0, 12, 1], byte),
            (SET, &[], byte),
            (SET, &[0, 8], byte),
            (ADD, &[end, 1], &[]),
            (ADD, &[4, 1], &[]),
            (ADD, &[8, 1], byte),
            (ADD, &[8], &[]),
            (2, &[0], byte),
        ] {
            assert!(!applied(&window, tag, args, payload), "{tag} {args:?}");
        }
        let mut all = vec![0; SCRATCH + 4096];
        window.read(0, &mut all).unwrap();
        assert!(all.iter().all(|byte| *byte == 0));
    }
}
