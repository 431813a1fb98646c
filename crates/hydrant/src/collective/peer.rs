//! The other members, and the two ways into their scratch: stores where it is mapped here,
//! [messages](far) where it is not.

use std::sync::atomic::{
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    compiler_fence,
};

use hydrant_conduit::{Line, WakeWord, Window, Word32, memory::Fault};

use super::{
    area::Area,
    far::{self, Flag},
    layout::{AGREED, DROPPED, LEDGER, Layout, SMALL},
    team::{Team, outside},
};
use crate::{Error, Rank, Result, progress::Progress};

/// A member as seen from this one.
pub(super) struct Peer {
    pub(super) rank: Rank,
    scratch: Scratch,
}

/// A member's scratch.
enum Scratch {
    Mapped {
        window: Window,
        bell: Word32,
    },
    /// It begins at this byte of the member's segment.
    Far(usize),
}

/// A round of the agreement: memory of both sides, looked up once. Pairs are by parity.
pub(super) struct Round {
    /// The member told.
    pub(super) to: usize,
    /// The member heard.
    pub(super) from: usize,
    pub(super) out: [Outlet; 2],
    pub(super) hear: [Line; 2],
    pub(super) cargo_in: [Window; 2],
}

/// Where a round's message goes.
pub(super) enum Outlet {
    Mapped {
        line: Line,
        cargo: Window,
    },
    /// At these bytes of the member's segment.
    Far {
        line: usize,
        cargo: usize,
    },
}

impl Peer {
    pub(super) fn new(progress: &Progress, rank: Rank, offset: usize, len: usize) -> Result<Self> {
        let scratch = match (
            progress.conduit().window(rank),
            progress.conduit().wake_word(rank),
        ) {
            (Some(window), Some(door)) => Scratch::Mapped {
                window: (window.part(offset, len)).ok_or_else(|| outside(Fault::OutOfBounds))?,
                bell: door.bits.clone(),
            },
            _ => Scratch::Far(offset),
        };
        Ok(Self { rank, scratch })
    }

    /// Tells the member that this one is done with the team, once there is room for that.
    pub(super) fn count_off(&self, progress: &Progress, area: &Area) {
        match &self.scratch {
            Scratch::Mapped { window, .. } => {
                if let Ok(ledger) = window.line(LEDGER) {
                    ledger[DROPPED].fetch_add(1, AcqRel);
                }
            }
            Scratch::Far(offset) if !progress.is_stopped() => {
                area.count_off(
                    progress,
                    self.rank,
                    offset + LEDGER + DROPPED * size_of::<u64>(),
                );
            }
            Scratch::Far(_) => {}
        }
    }
}

impl Round {
    pub(super) fn new(
        layout: &Layout,
        round: usize,
        peers: &[Peer],
        own: &Window,
        me: usize,
    ) -> Result<Self, Fault> {
        let (size, distance) = (peers.len(), 1 << round);
        let (to, from) = ((me + size - distance) % size, (me + distance) % size);
        let cargo_of = |window: &Window, parity| {
            let part = window.part(layout.cargo(parity, round), SMALL);
            part.ok_or(Fault::OutOfBounds)
        };
        let out = |parity| {
            let at = layout.line(parity, round);
            Ok(match &peers[to].scratch {
                Scratch::Mapped { window, .. } => Outlet::Mapped {
                    line: window.line(at)?,
                    cargo: cargo_of(window, parity)?,
                },
                Scratch::Far(offset) => Outlet::Far {
                    line: offset + at,
                    cargo: offset + layout.cargo(parity, round),
                },
            })
        };
        let hear = |parity| own.line(layout.line(parity, round));
        Ok(Self {
            to,
            from,
            out: [out(0)?, out(1)?],
            hear: [hear(0)?, hear(1)?],
            cargo_in: [cargo_of(own, 0)?, cargo_of(own, 1)?],
        })
    }
}

impl Team {
    /// Stores `data` at byte `at` of the scratch of `member`, then sets the flag there.
    pub(super) fn store(
        &self,
        member: usize,
        at: usize,
        data: &[u8],
        flag: usize,
        value: u64,
    ) -> Result<()> {
        match &self.peers[member].scratch {
            Scratch::Mapped { window, .. } => {
                window.write(at, data).map_err(outside)?;
                let flag = window.atomic_u64(flag).map_err(outside)?;
                flag.store(value, Release);
                self.touched(member);
                Ok(())
            }
            Scratch::Far(offset) => {
                let flag = Flag {
                    at: offset + flag,
                    value,
                    beside: &[],
                };
                self.store_far(member, offset + at, data, flag)
            }
        }
    }

    /// The same in scratch that is not mapped, by places from the start of the segment.
    pub(super) fn store_far(
        &self,
        member: usize,
        at: usize,
        data: &[u8],
        flag: Flag<'_>,
    ) -> Result<()> {
        let stored = far::store(&self.progress, self.peers[member].rank, at, data, flag);
        stored.map_err(|error| match error {
            // It may only have given up for the sake of the one lost first.
            Error::PeerLost(rank) => {
                let first = self.progress.conduit().first_lost();
                Error::PeerLost(first.filter(|f| self.members.contains(f)).unwrap_or(rank))
            }
            other => other,
        })
    }

    /// The last agreement that a member is known to have brought to its end.
    pub(super) fn agreed(&self, member: usize) -> Option<u64> {
        match &self.peers[member].scratch {
            Scratch::Mapped { window, .. } => Some(window.line(LEDGER).ok()?[AGREED].load(Acquire)),
            Scratch::Far(_) => {
                let word = self.scratch.atomic_u64(self.layout.odds(member)).ok()?;
                Some(word.load(Acquire))
            }
        }
    }

    /// Tells the members who cannot see it that this one ended an agreement that found them at
    /// odds: it may end for that, but has told all it had to tell.
    #[cold]
    pub(super) fn tell_of_odds(&self, sequence: u64) {
        let told = self.peers.iter().filter(|peer| {
            let Scratch::Far(offset) = peer.scratch else {
                return false;
            };
            let flag = Flag {
                at: offset + self.layout.odds(self.me),
                value: sequence,
                beside: &[],
            };
            // Who is lost need not know.
            far::store(&self.progress, peer.rank, offset, &[], flag).is_ok()
        });
        let told: Vec<Rank> = told.map(|peer| peer.rank).collect();
        // The news of an end may travel faster than messages.
        for rank in told {
            let _ = self.progress.wait_handled(rank);
        }
    }

    /// Called after a store to mapped scratch of `member`: wakes who waits for that.
    #[inline]
    pub(super) fn touched(&self, member: usize) {
        let peer = &self.peers[member];
        let Scratch::Mapped { bell, .. } = &peer.scratch else {
            return;
        };
        // The sleeper's side has the fence.
        compiler_fence(SeqCst);
        if bell.load(Relaxed) & WakeWord::APPLICATION != 0 {
            self.progress.conduit().notify(peer.rank);
        }
    }
}
