//! Teams: some of the ranks of a job, and what they need to do collectives.

use std::sync::{
    Arc,
    atomic::{
        AtomicU8, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use hydrant_conduit::{Line, Window, memory::Fault};

use super::{
    area::{Area, Piece},
    layout::{LEDGER, Layout},
    peer::{Peer, Round},
};
use crate::{
    Error, Rank, Result,
    progress::Progress,
    progress::{self, For, On},
};

/// Some of the ranks of a job, numbered anew from zero, that compute together.
///
/// [`Job::world`](crate::Job::world) is the team of all; [`split`](Self::split) makes others.
/// What each collective takes and gives is said there; what holds for all of them:
///
/// - Every member calls the same collectives in the same order, with the same sizes, root and
///   operation. If not, every member gets [`Error::CollectiveMismatch`], nothing is changed,
///   and the team stays usable.
/// - Names say what is what: with `_into` the result goes to a buffer of the caller's, with
///   `_in_place` to where the elements are; with `_v` each member has as many elements as it likes; with
///   `_with` a function reduces.
/// - Reductions combine by rank, from the first member to the last, however long the data, whoever
///   comes late and whatever the network: the result is that of a serial loop, bit for bit.
/// - One thread of a rank at a time; another gets [`Error::OutOfTurn`].
/// - A root is a rank of the team. Elements have a size above zero ([`Error::ZeroSized`]).
/// - Not in handlers ([`Error::InHandler`]), and not after the job ([`Error::JobOver`]).
/// - A member that ends is [`Error::PeerLost`] for those that still need it.
///
/// Dropping a team is local. Its scratch memory is used anew when every member has dropped
/// it; a split finds what all its callers dropped before they called. Drop no team between
/// [`notify`](Self::notify) and [`wait`](Self::wait): the others would wait for ever. A team
/// keeps the memory of its job mapped, so one kept in a handler keeps it until the process ends.
pub struct Team {
    pub(super) progress: Arc<Progress>,
    pub(super) area: Arc<Area>,
    /// Ranks of the job, by member.
    pub(super) members: Vec<Rank>,
    pub(super) me: usize,
    pub(super) layout: Layout,
    /// What the members store into for this one.
    pub(super) scratch: Window,
    pub(super) peers: Vec<Peer>,
    pub(super) rounds: Vec<Round>,
    /// What this member tells of itself.
    pub(super) ledger: Line,
    turn: AtomicU8,
    /// Agreements so far; alike at every member.
    pub(super) sequence: AtomicU64,
    /// The name of the barrier notified.
    pub(super) notified: AtomicU64,
    /// Uses of channels so far; alike at every member.
    epoch: AtomicU64,
    /// To be given back; the world's is not.
    piece: Option<Piece>,
}

/// No collective is under way.
pub(super) const IDLE: u8 = 0;
/// One is.
const BUSY: u8 = 1;
/// Between notify and wait of a barrier without a name.
pub(super) const NOTIFIED: u8 = 2;
/// Between notify and wait of one with a name.
pub(super) const NOTIFIED_BY_NAME: u8 = 3;

impl Team {
    /// The team of all ranks. No communication: every rank knows where its scratch lies.
    pub(crate) fn world(progress: &Arc<Progress>) -> Result<Self> {
        let area = Arc::new(Area::new());
        let members: Vec<Rank> = (0..progress.size).map(Rank).collect();
        let layout = Layout::new(members.len());
        let piece = area
            .take(layout.total())
            .map_err(|available| Error::OutOfMemory {
                rank: progress.rank,
                wanted: layout.total() as u64,
                available: available as u64,
                remedy: "there are too many ranks for the system area",
            })?;
        let offsets = vec![piece.offset; members.len()];
        Self::new(
            progress,
            area,
            members,
            progress.rank.index(),
            &offsets,
            None,
        )
    }

    /// A team whose members' scratch lies at `offsets`.
    pub(super) fn new(
        progress: &Arc<Progress>,
        area: Arc<Area>,
        members: Vec<Rank>,
        me: usize,
        offsets: &[usize],
        piece: Option<Piece>,
    ) -> Result<Self> {
        let layout = Layout::new(members.len());
        let peers = (members.iter().zip(offsets))
            .map(|(rank, offset)| Peer::new(progress, *rank, *offset, layout.total()))
            .collect::<Result<Vec<_>>>()?;
        let scratch = (progress.conduit().window(progress.rank))
            .and_then(|window| window.part(offsets[me], layout.total()))
            .ok_or_else(|| outside(Fault::OutOfBounds))?;
        let rounds = (0..layout.rounds)
            .map(|round| Round::new(&layout, round, &peers, &scratch, me).map_err(outside))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            ledger: scratch.line(LEDGER).map_err(outside)?,
            scratch,
            progress: Arc::clone(progress),
            area,
            members,
            me,
            layout,
            peers,
            rounds,
            turn: AtomicU8::new(IDLE),
            sequence: AtomicU64::new(0),
            notified: AtomicU64::new(0),
            epoch: AtomicU64::new(1),
            piece,
        })
    }

    /// This process's rank in the team.
    #[inline]
    pub fn rank(&self) -> Rank {
        Rank(self.me as u32)
    }

    /// Members of the team.
    #[inline]
    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// The ranks in the job of the members, by their rank in the team.
    pub fn members(&self) -> &[Rank] {
        &self.members
    }

    /// Begins a collective that may begin when the team is in state `from`.
    #[inline]
    pub(super) fn enter(&self, what: &'static str, from: u8) -> Result<Turn<'_>> {
        progress::may_wait(what)?;
        if self.progress.is_stopped() {
            return Err(Error::JobOver);
        }
        match self.turn.compare_exchange(from, BUSY, Acquire, Relaxed) {
            Ok(_) => Ok(Turn {
                team: self,
                after: IDLE,
            }),
            Err(found) => Err(out_of_turn(what, found)),
        }
    }

    /// How the team stands, for a wait that fits several states.
    #[inline]
    pub(super) fn state(&self) -> u8 {
        self.turn.load(Relaxed)
    }

    /// The first of `count` new uses of channels.
    pub(super) fn epochs(&self, count: usize) -> u64 {
        self.epoch.fetch_add(count as u64, Relaxed)
    }

    /// # Errors
    /// [`Error::RankOutOfRange`].
    pub(super) fn check_member(&self, rank: Rank) -> Result<usize> {
        if rank.0 < self.size() {
            Ok(rank.index())
        } else {
            Err(Error::RankOutOfRange {
                rank,
                size: self.size(),
            })
        }
    }

    /// Waits until `done`, which needs every member.
    #[inline]
    pub(super) fn until(&self, done: impl FnMut() -> bool) -> Result<()> {
        self.progress
            .wait(On::Ranks(&self.members), For::Flag, done)
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        let Some(piece) = self.piece else { return };
        for peer in &self.peers {
            peer.count_off(&self.progress, &self.area);
        }
        (self.area).retire(piece, self.ledger.clone(), self.peers.len() as u64);
    }
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Team(rank {} of {:?})", self.me, self.members)
    }
}

/// The right to do a collective; given back when dropped.
pub(super) struct Turn<'a> {
    team: &'a Team,
    /// The state that the team is left in.
    pub(super) after: u8,
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        self.team.turn.store(self.after, Release);
    }
}

/// An access outside the scratch, which the layout rules out.
#[cold]
pub(super) fn outside(fault: Fault) -> Error {
    Error::other(format!("a team's scratch is not as laid out: {fault:?}"))
}

#[cold]
fn out_of_turn(what: &'static str, found: u8) -> Error {
    let why = match found {
        BUSY => "another thread of this rank is in a collective of the same team",
        IDLE => "the barrier was not notified",
        _ => "a barrier of the team was notified and not waited for yet",
    };
    Error::OutOfTurn { what, why }
}
