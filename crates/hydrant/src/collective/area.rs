//! Allocation of scratch memory for the teams of a job, at one rank.
//!
//! Every member of a team may access this rank's piece, even after this rank has dropped the team: to read
//! its last data or store a last credit. So a piece is reused only when every member has dropped the team.
//! Each member counts itself off in every member's piece and does not touch it afterwards. Nobody waits for
//! the count: [`ScratchArea::take`] frees the pieces that all members have dropped.

use std::{mem, sync::atomic::Ordering::Acquire};

use hydrant_conduit::Line;
use parking_lot::{Mutex, MutexGuard};

use super::{layout::DROPPED, stores};
use crate::{Error, Rank, Result, memory::SymmetricHeap, progress::Progress, segment::SCRATCH};

/// The system area of this rank's segment.
pub(super) struct ScratchArea {
    state: Mutex<AreaState>,
}

struct AreaState {
    heap: SymmetricHeap,
    retired: Vec<RetiredPiece>,
    /// Members at which this rank has yet to count itself off, with the offset of the word that counts.
    uncounted: Vec<(Rank, usize)>,
    /// Members at which this rank counted itself off by a message that they may not have handled yet.
    counted: Vec<Rank>,
}

/// A piece of the area.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScratchPiece {
    /// Bytes from the segment's start.
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// A piece that this rank has dropped.
struct RetiredPiece {
    piece: ScratchPiece,
    ledger: Line,
    members: u64,
}

/// A lost member is reported by the collective, not here.
fn unless_lost(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Error::PeerLost(_)) => Ok(()),
        other => other,
    }
}

impl ScratchArea {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(AreaState {
                heap: SymmetricHeap::new(SCRATCH),
                retired: Vec::new(),
                uncounted: Vec::new(),
                counted: Vec::new(),
            }),
        }
    }

    /// Takes a piece of `len` bytes. If there is no room, returns the length of the largest gap.
    pub(super) fn take(&self, len: usize) -> Result<ScratchPiece, usize> {
        let mut state = self.state();
        let AreaState { heap, retired, .. } = &mut *state;
        retired.retain(
            |RetiredPiece {
                 piece,
                 ledger,
                 members,
             }| {
                let in_use = ledger[DROPPED].load(Acquire) < *members;
                if !in_use {
                    heap.give(piece.offset, piece.len);
                }
                in_use
            },
        );
        let taken = SymmetricHeap::footprint(len.max(1), 1).and_then(|len| {
            Some(ScratchPiece {
                offset: heap.take(len, 1)?,
                len,
            })
        });
        taken.ok_or_else(|| heap.largest_gap())
    }

    /// Gives back a piece that no other member knows.
    pub(super) fn give(&self, piece: ScratchPiece) {
        self.state().heap.give(piece.offset, piece.len);
    }

    /// Gives back a piece once all `members` have counted themselves off in its ledger.
    pub(super) fn retire(&self, piece: ScratchPiece, ledger: Line, members: u64) {
        self.state().retired.push(RetiredPiece {
            piece,
            ledger,
            members,
        });
    }

    /// Counts this rank off at a member whose ledger is not mapped. If there is no room for the message,
    /// the next split sends it.
    pub(super) fn count_off(&self, progress: &Progress, rank: Rank, at: usize) {
        let mut state = self.state();
        if stores::try_count(progress, rank, at) {
            state.counted.push(rank);
        } else {
            state.uncounted.push((rank, at));
        }
    }

    /// Returns when each of `members` knows of all teams that this rank has dropped.
    pub(super) fn settle(&self, progress: &Progress, members: &[Rank]) -> Result<()> {
        let uncounted = mem::take(&mut self.state().uncounted);
        for (rank, at) in uncounted {
            unless_lost(stores::count(progress, rank, at))?;
            self.state().counted.push(rank);
        }
        let mut counted: Vec<Rank> = {
            let counted = &mut self.state().counted;
            counted
                .extract_if(.., |rank| members.contains(rank))
                .collect()
        };
        counted.sort_unstable();
        counted.dedup();
        (counted.into_iter()).try_for_each(|rank| unless_lost(progress.wait_handled(rank)))
    }

    fn state(&self) -> MutexGuard<'_, AreaState> {
        self.state.lock()
    }
}
