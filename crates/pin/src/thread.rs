//! The thread that plays a rank's NIC.
//!
//! It does what peers ask of the rank's memory, and goes on with what the rank asked of peers
//! where that is more than went at once. It looks for a while when there is nothing to do, then
//! sleeps on its wake word.

use std::{
    os::fd::OwnedFd,
    sync::atomic::{
        Ordering::{Relaxed, SeqCst},
        fence,
    },
};

use hydrant_conduit::{Backoff, Key, Rank, Standing};
use hydrant_smp::upon::{Mapped, Way, sleep};
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

/// Looks in vain before it sleeps, where there are cores to spare.
const LOOKS: u32 = 1999;
/// Looks, with the core given away after each, where there are none.
const CROWDED_LOOKS: u32 = 7;
/// Pieces done for one peer before the next one's turn.
const TURN: usize = 8;

/// How often a NIC looks whether a peer takes calls again.
const CALL_TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// What one peer asks.
struct ServedPeer {
    /// Which peer.
    from: Rank,
    /// What it asks.
    queue: Mapped<AccessQueue>,
    /// `None` if this process had no descriptors left for them.
    pipes: Option<[OwnedFd; PIPES]>,
    /// The number of the next piece.
    next: u64,
    /// What is in the pipes is in doubt: every answer is no.
    broken: bool,
}

/// Plays the NIC until the core is stopped.
pub(crate) fn run(core: &PinCore) {
    let mut peers: Vec<ServedPeer> = Vec::new();
    let mut changes = core.changes();
    let mut backoff = match core.is_crowded() {
        true => Backoff::new(0, CROWDED_LOOKS),
        false => Backoff::new(LOOKS, 0),
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
            // A peer whose listener is full tells nobody when it has room.
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
        let odd = from.index() >= core.ranks() || known.iter().any(|peer| peer.from == from);
        if odd {
            tracing::warn!(%from, "a rank called that is known, or none");
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

    /// Whether it still takes part, or has something waiting.
    fn is_still_served(&self, core: &PinCore) -> bool {
        core.standing(self.from) == Standing::Present || self.has_request()
    }

    fn has_request(&self) -> bool {
        self.queue.is_requested(self.next)
    }

    /// Does some of what is asked; whether there was anything.
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
            // The caller would wait for ever for pieces that nobody can fetch.
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
            // What the peer writes is read out of its pipe, and the other way round.
            Way::Out => core.table.pull(key, span, out),
            Way::In => core.table.push(key, span, back),
        };
        let Err(refusal) = done else {
            return PieceAnswer::Done;
        };
        if piece.way == Way::Out {
            pipe::discard(out, piece.bytes);
        }
        refusal.answer()
    }
}
