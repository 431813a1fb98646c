//! The thread that plays a rank's NIC.
//!
//! The thread serves the requests of peers to the rank's memory. It also continues the rank's own
//! operations that did not fit at once. It polls for a while when there is nothing to do, then
//! sleeps on its wake word.

use std::{
    os::fd::OwnedFd,
    sync::atomic::{
        Ordering::{Relaxed, SeqCst},
        fence,
    },
};

use hydrant_conduit::{Backoff, Key, Rank, Standing};
use hydrant_smp::upon::{CopyDirection, MappedValue, sleep};
use rustix::{
    process::{Resource, getrlimit},
    thread::Timespec,
};

use crate::{
    core::PinCore,
    listener::{NicCaller, PIPES},
    pipe::{self, PIECE},
    queue::{AccessPiece, AccessQueue, PieceAnswer},
    table::Span,
};

/// Polls in vain before the thread sleeps, if there are idle cores.
const POLLS: u32 = 1999;
/// Polls in vain before the thread sleeps, each followed by a yield, if there are not.
const CROWDED_POLLS: u32 = 7;
/// Pieces served for one peer before the next peer.
const TURN: usize = 8;

/// How often a NIC tries whether a peer takes calls again.
const CALL_TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// A peer whose requests are served.
struct ServedPeer {
    from: Rank,
    /// The peer's requests.
    queue: MappedValue<AccessQueue>,
    /// The peer's pipes. `None` if this process had no descriptors left for them.
    pipes: Option<[OwnedFd; PIPES]>,
    /// The number of the next piece.
    next: u64,
    /// True if the data in the pipes is unknown. Every further request is refused then.
    broken: bool,
}

/// Plays the NIC until the core is stopped.
pub(crate) fn run(core: &PinCore) {
    let mut peers: Vec<ServedPeer> = Vec::new();
    let mut changes = core.changes();
    let mut backoff = if core.is_crowded() {
        Backoff::new(0, CROWDED_POLLS)
    } else {
        Backoff::new(POLLS, 0)
    };
    while !core.is_stopped() {
        for caller in core.take_callers() {
            peers.extend(ServedPeer::new(core, caller, &peers));
        }
        let mut busy = false;
        for peer in &mut peers {
            busy |= peer.serve(core);
        }
        busy |= core.advance_held_up();
        if busy {
            backoff.renew();
            continue;
        }
        if changes != core.changes() {
            changes = core.changes();
            peers.retain(|peer| peer.is_still_served(core));
            core.close_ended();
            continue;
        }
        if !backoff.pause() {
            backoff.renew();
            // A peer with a full listener does not report when it has room.
            let time = core.held_up.any().then_some(CALL_TICK);
            sleep(core.wake_word(), time, &mut || {
                core.is_stopped()
                    || core.has_callers()
                    || changes != core.changes()
                    || peers.iter().any(ServedPeer::has_request)
                    || core.can_advance_held_up()
            });
        }
    }
}

impl ServedPeer {
    fn new(core: &PinCore, caller: NicCaller, known: &[Self]) -> Option<Self> {
        let from = caller.from;
        let is_unexpected =
            from.index() >= core.ranks() || known.iter().any(|peer| peer.from == from);
        if is_unexpected {
            tracing::warn!(%from, "an unknown rank called, or a rank called twice");
            return None;
        }
        Some(Self {
            from,
            queue: core.queue(core.rank(), from),
            pipes: caller.pipes,
            next: 0,
            broken: false,
        })
    }

    /// Returns whether the peer is present, or has a request left.
    fn is_still_served(&self, core: &PinCore) -> bool {
        core.standing(self.from) == Standing::Present || self.has_request()
    }

    fn has_request(&self) -> bool {
        self.queue.is_requested(self.next)
    }

    /// Serves up to [`TURN`] requests. Returns whether there was any.
    fn serve(&mut self, core: &PinCore) -> bool {
        for count in 0..TURN {
            let Some(piece) = self.queue.read_request(self.next, PIECE) else {
                return count > 0;
            };
            let answer = match piece {
                Ok(piece) if !self.broken => self.answer(core, &piece),
                _ => PieceAnswer::Broken,
            };
            self.broken |= answer == PieceAnswer::Broken;
            let last = piece.is_ok_and(|piece| piece.last) || answer != PieceAnswer::Done;
            self.queue.answer(self.next, answer);
            self.next += 1;
            if last {
                core.notify(self.from);
            }
            fence(SeqCst);
            if self.queue.more.load(Relaxed) != 0 {
                core.wake_nic(self.from);
            }
        }
        true
    }

    fn answer(&self, core: &PinCore, piece: &AccessPiece) -> PieceAnswer {
        let Some([out, back]) = &self.pipes else {
            // Without an answer, the initiator would wait for ever.
            let limit = getrlimit(Resource::Nofile).current;
            return PieceAnswer::NoDescriptors(limit.unwrap_or(u64::MAX));
        };
        let span = Span {
            offset: piece.offset,
            len: piece.len,
            at: piece.at,
            bytes: piece.bytes,
        };
        let key = Key(piece.key);
        let done = match piece.way {
            // The data of a peer's write comes out of its pipe; the data of a read goes into it.
            CopyDirection::Out => core.table.pull(key, span, out),
            CopyDirection::In => core.table.push(key, span, back),
        };
        let Err(refusal) = done else {
            return PieceAnswer::Done;
        };
        if piece.way == CopyDirection::Out {
            pipe::discard(out, piece.bytes);
        }
        refusal.answer()
    }
}
