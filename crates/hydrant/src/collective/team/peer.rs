//! The other members and their scratch. Mapped scratch is stored to directly, other scratch by
//! [messages](crate::collective::stores).

use std::sync::atomic::{
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    compiler_fence,
};

use hydrant_conduit::{Line, WakeWord, Window, Word32, memory::Fault};

use super::{Team, outside};
use crate::{
    Error, Rank, Result,
    collective::{
        area::ScratchArea,
        layout::{AGREED, DROPPED, LEDGER, Layout, SMALL},
        stores::{self, FlagStore},
    },
    progress::Progress,
};

/// A member as seen from this one.
pub(in crate::collective) struct TeamPeer {
    pub(in crate::collective) rank: Rank,
    scratch: PeerScratch,
}

/// A member's scratch.
enum PeerScratch {
    Mapped {
        window: Window,
        wake_bits: Word32,
    },
    /// Its offset in the member's segment.
    Unmapped(usize),
}

/// A round of the agreement, with the memory of both sides looked up once. Pairs are by parity.
pub(in crate::collective) struct AgreementRound {
    /// The member that this one sends to.
    pub(in crate::collective) to: usize,
    /// The member from which this one receives.
    pub(in crate::collective) from: usize,
    pub(in crate::collective) out: [RoundTarget; 2],
    pub(in crate::collective) hear: [Line; 2],
    pub(in crate::collective) piggyback_in: [Window; 2],
    /// In a flat team: where that member writes data for all.
    pub(in crate::collective) shown: [Window; 2],
}

/// Where the message of a round goes.
pub(in crate::collective) enum RoundTarget {
    Mapped {
        line: Line,
        /// In a flat team, a part of this member's own scratch.
        piggyback: Window,
    },
    /// Offsets in the member's segment.
    Unmapped { line: usize, piggyback: usize },
}

/// Returns whether this rank maps the segment and the wake word of `rank`.
pub(in crate::collective) fn is_mapped(progress: &Progress, rank: Rank) -> bool {
    let conduit = progress.conduit();
    conduit.window(rank).is_some() && conduit.wake_word(rank).is_some()
}

impl TeamPeer {
    /// Its scratch, if it is mapped here.
    pub(in crate::collective) fn mapped(&self) -> Option<&Window> {
        match &self.scratch {
            PeerScratch::Mapped { window, .. } => Some(window),
            PeerScratch::Unmapped(_) => None,
        }
    }

    pub(in crate::collective) fn new(
        progress: &Progress,
        rank: Rank,
        offset: usize,
        len: usize,
    ) -> Result<Self> {
        let scratch = match (
            progress.conduit().window(rank),
            progress.conduit().wake_word(rank),
        ) {
            (Some(window), Some(wake_word)) => PeerScratch::Mapped {
                window: (window.part(offset, len)).ok_or_else(|| outside(Fault::OutOfBounds))?,
                wake_bits: wake_word.bits.clone(),
            },
            _ => PeerScratch::Unmapped(offset),
        };
        Ok(Self { rank, scratch })
    }

    /// Tells the member that this one has dropped the team, as soon as there is room for that.
    pub(in crate::collective) fn count_off(&self, progress: &Progress, area: &ScratchArea) {
        match &self.scratch {
            PeerScratch::Mapped { window, .. } => {
                if let Ok(ledger) = window.line(LEDGER) {
                    ledger[DROPPED].fetch_add(1, AcqRel);
                }
            }
            PeerScratch::Unmapped(offset) if !progress.is_stopped() => {
                area.count_off(
                    progress,
                    self.rank,
                    offset + LEDGER + DROPPED * size_of::<u64>(),
                );
            }
            PeerScratch::Unmapped(_) => {}
        }
    }
}

impl AgreementRound {
    pub(in crate::collective) fn new(
        layout: &Layout,
        round: usize,
        peers: &[TeamPeer],
        own: &Window,
        me: usize,
    ) -> Result<Self, Fault> {
        let (size, distance) = (peers.len(), layout.distance(round));
        let (to, from) = ((me + size - distance) % size, (me + distance) % size);
        let piggyback_of = |window: &Window, parity, round| {
            let part = window.part(layout.piggyback(parity, round), SMALL);
            part.ok_or(Fault::OutOfBounds)
        };
        // In a flat team the sender writes in its own scratch, at the same round number.
        let theirs = match peers[from].mapped() {
            Some(window) if layout.is_flat() => window,
            _ => own,
        };
        let out = |parity| {
            let at = layout.line(parity, round);
            Ok(match &peers[to].scratch {
                PeerScratch::Mapped { window, .. } => RoundTarget::Mapped {
                    line: window.line(at)?,
                    piggyback: if layout.is_flat() {
                        piggyback_of(own, parity, round)?
                    } else {
                        piggyback_of(window, parity, round)?
                    },
                },
                PeerScratch::Unmapped(offset) => RoundTarget::Unmapped {
                    line: offset + at,
                    piggyback: offset + layout.piggyback(parity, round),
                },
            })
        };
        let hear = |parity| own.line(layout.line(parity, round));
        Ok(Self {
            to,
            from,
            out: [out(0)?, out(1)?],
            hear: [hear(0)?, hear(1)?],
            piggyback_in: [
                piggyback_of(theirs, 0, round)?,
                piggyback_of(theirs, 1, round)?,
            ],
            shown: [piggyback_of(theirs, 0, 0)?, piggyback_of(theirs, 1, 0)?],
        })
    }
}

impl AgreementRound {
    /// In a flat team, writes piggybacked data for all to this member's own scratch.
    #[inline]
    pub(in crate::collective) fn show(&self, sequence: u64, data: &[u8]) -> Result<()> {
        match &self.out[(sequence & 1) as usize] {
            RoundTarget::Mapped { piggyback, .. } => piggyback.write(0, data).map_err(outside),
            RoundTarget::Unmapped { .. } => Err(outside(Fault::OutOfBounds)),
        }
    }
}

impl Team {
    /// Stores `data` at offset `at` of the scratch of `member`, then the words behind the flag, then the
    /// flag. The first of `words` is the value of the flag.
    pub(in crate::collective) fn store(
        &self,
        member: usize,
        at: usize,
        data: &[u8],
        (flag, words): (usize, &[u64]),
    ) -> Result<()> {
        let Some((value, beside)) = words.split_first() else {
            return Ok(());
        };
        match &self.peers[member].scratch {
            PeerScratch::Mapped { window, .. } => {
                window.write(at, data).map_err(outside)?;
                let behind = flag + size_of::<u64>();
                (window.write(behind, bytemuck::cast_slice(beside))).map_err(outside)?;
                let flag = window.atomic_u64(flag).map_err(outside)?;
                flag.store(*value, Release);
                self.notify_after_store(member);
                Ok(())
            }
            PeerScratch::Unmapped(offset) => {
                let flag = FlagStore {
                    at: offset + flag,
                    value: *value,
                    beside,
                };
                self.store_by_message(member, offset + at, data, flag)
            }
        }
    }

    /// As [`store`](Self::store), into scratch that is not mapped; offsets count from the segment's start.
    pub(in crate::collective) fn store_by_message(
        &self,
        member: usize,
        at: usize,
        data: &[u8],
        flag: FlagStore<'_>,
    ) -> Result<()> {
        let stored = stores::store(&self.progress, self.peers[member].rank, at, data, flag);
        stored.map_err(|error| self.blame_first_lost(error))
    }

    /// Blames the member that was lost first: another one may have ended because of it.
    pub(in crate::collective) fn blame_first_lost(&self, error: Error) -> Error {
        match error {
            Error::PeerLost(rank) => {
                let first = self.progress.conduit().first_lost();
                Error::PeerLost(first.filter(|f| self.members.contains(f)).unwrap_or(rank))
            }
            other => other,
        }
    }

    /// The last agreement that is known to have ended at a member.
    pub(in crate::collective) fn agreed(&self, member: usize) -> Option<u64> {
        match &self.peers[member].scratch {
            PeerScratch::Mapped { window, .. } => {
                Some(window.line(LEDGER).ok()?[AGREED].load(Acquire))
            }
            PeerScratch::Unmapped(_) => {
                let word = self.scratch.atomic_u64(self.layout.mismatch(member)).ok()?;
                Some(word.load(Acquire))
            }
        }
    }

    /// Tells the members that do not map this member's ledger that an agreement with a mismatch ended here.
    /// This member may end because of it, but has sent all its messages.
    #[cold]
    pub(in crate::collective) fn report_mismatch(&self, sequence: u64) {
        let reached = self.peers.iter().filter(|peer| {
            let PeerScratch::Unmapped(offset) = peer.scratch else {
                return false;
            };
            let flag = FlagStore {
                at: offset + self.layout.mismatch(self.me),
                value: sequence,
                beside: &[],
            };
            // A lost member need not know.
            stores::store(&self.progress, peer.rank, offset, &[], flag).is_ok()
        });
        let reached: Vec<Rank> = reached.map(|peer| peer.rank).collect();
        // The news of an end may overtake messages.
        for rank in reached {
            let _ = self.progress.wait_handled(rank);
        }
    }

    /// Wakes `member` if it sleeps, after a store to its mapped scratch.
    #[inline]
    pub(in crate::collective) fn notify_after_store(&self, member: usize) {
        let peer = &self.peers[member];
        let PeerScratch::Mapped { wake_bits, .. } = &peer.scratch else {
            return;
        };
        // The sleeper's side has the fence.
        compiler_fence(SeqCst);
        if wake_bits.load(Relaxed) & WakeWord::APPLICATION != 0 {
            self.progress.conduit().notify(peer.rank);
        }
    }
}
