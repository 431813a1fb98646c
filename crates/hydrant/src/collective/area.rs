//! Scratch memory for the teams of a job, at one rank.
//!
//! A team's piece may be read and written to by every member, at the end even after this rank is
//! done with the team (what it gave last, and the last credits). So a piece is reused only when every member has
//! dropped the team: each counts itself off in every member's piece and touches none of them
//! afterwards. Nobody waits for that; the pieces are looked through when one is needed.

use std::{mem, sync::atomic::Ordering::Acquire};

use hydrant_conduit::Line;
use parking_lot::{Mutex, MutexGuard};

use super::{layout::DROPPED, stores};
use crate::{Error, Rank, Result, memory::Heap, progress::Progress, segment::SCRATCH};

/// The system area of this rank's segment.
pub(super) struct ScratchArea {
    state: Mutex<AreaState>,
}

struct AreaState {
    heap: Heap,
    retired: Vec<RetiredPiece>,
    /// Members, by rank, at which this one has yet to count itself off, and the word to count in.
    uncounted: Vec<(Rank, usize)>,
    /// Members at which it lately counted itself off, by messages that they may not have handled.
    counted: Vec<Rank>,
}

/// A piece of the area.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScratchPiece {
    /// From the segment's start.
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// A piece that this rank has dropped.
struct RetiredPiece {
    piece: ScratchPiece,
    ledger: Line,
    members: u64,
}

/// That a member is lost is for the collective to say.
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
                heap: Heap::new(SCRATCH),
                retired: Vec::new(),
                uncounted: Vec::new(),
                counted: Vec::new(),
            }),
        }
    }

    /// A piece of `len` bytes, or how many bytes the largest would have.
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
        let taken = Heap::footprint(len.max(1), 1).and_then(|len| {
            Some(ScratchPiece {
                offset: heap.take(len, 1)?,
                len,
            })
        });
        taken.ok_or_else(|| heap.largest_gap())
    }

    /// Gives back a piece that nobody else knows.
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

    /// Counts this rank off at a member whose ledger is not mapped: now or, if there is no
    /// room for the message, before the next split.
    pub(super) fn count_off(&self, progress: &Progress, rank: Rank, at: usize) {
        let mut state = self.state();
        if stores::try_count(progress, rank, at) {
            state.counted.push(rank);
        } else {
            state.uncounted.push((rank, at));
        }
    }

    /// Whatever this rank has dropped, each of `members` knows when this returns.
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
