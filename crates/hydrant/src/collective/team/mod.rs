//! Teams: the state that some of the ranks of a job share for their collectives.

pub(super) mod awaited;
pub(super) mod peer;
mod queue;

use std::{
    ops::Deref,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicU8, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    task::{Context, Poll, Waker},
};

use hydrant_conduit::{Line, Window, memory::Fault};

use super::{
    area::{ScratchArea, ScratchPiece},
    layout::{BOARD, BOARD_OF_TWO, LEDGER, Layout},
    streams::Board,
};
use crate::{
    Error, Rank, Result, TeamRank,
    progress::Progress,
    progress::{self, For, On},
    transfer::Transfer,
};
use peer::{AgreementRound, TeamPeer, is_mapped};
use queue::CollectiveQueue;

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
/// - A root is a rank of the team, a [`TeamRank`]. One that does not exist is
///   [`Error::TeamRankOutOfRange`], in the team of all [`Error::RankOutOfRange`].
/// - Elements have a size above zero ([`Error::ZeroSized`]).
/// - Not in handlers ([`Error::InHandler`]), and not after the job ([`Error::JobOver`]).
/// - A member that ends is [`Error::PeerLost`] for those that still need it.
///   It ends when its process does. A finished rank waits at the end of the job for the others. In the team of all
///   ranks that is a mismatch; in another team, members that wait for it get [`Error::PeerEnded`].
///
/// # Collectives in the background
///
/// A call whose name ends in `_nb` begins the collective and returns a [`BackgroundHandle`](crate::BackgroundHandle), which
/// is a future of the result. It owns its buffers and gives back the one with the result; what the
/// blocking call would return as an error is the handle's. The call itself fails in a handler, after
/// the job, and out of turn: while another thread is in a blocking collective of the team, and
/// between notify and wait.
///
/// ```
/// use hydrant::Op;
///
/// # hydrant::Job::builder()?.run_local(4, |job| {
/// let residual = job.all_reduce_nb(vec![f64::from(job.rank().0)], Op::Max)?;
/// let counts = job.all_gather_nb(vec![job.rank().0])?;
/// // ... compute what needs neither ...
/// assert_eq!(residual.wait()?, [3.0]);
/// assert_eq!(job.wait_for(counts)??, [0, 1, 2, 3]);
/// # Ok(()) }).into_iter().collect::<hydrant::Result<()>>()?;
/// # Ok::<(), hydrant::Error>(())
/// ```
///
/// - Those of one team are done one after the other, in the order in which they were begun, and a
///   blocking collective waits until they are over. They pair with blocking ones of the other members.
/// - Those of different teams do not wait for each other.
/// - A function that reduces runs, and is dropped, in whatever thread goes on with them: what waits is
///   [`Error::InHandler`](crate::Error::InHandler) in it, as in a handler.
/// - They go on whenever a thread of the rank waits or looks after messages, and in the service
///   thread while the program computes. Without that thread, and in virtual time, they go on in
///   calls alone.
/// - Functions that reduce run in whatever thread goes on with the collective. If one panics, so
///   does who asks for the result.
/// - A handle that is dropped gives up the result and no more: the others rely on the collective.
///   The end of the job waits for those that are under way. If a member never begins one of them, the
///   others wait for ever, as in a blocking one.
///
/// # Dropping
///
/// Dropping a team is local. Its scratch memory is used anew when every member has dropped
/// it; a split finds what all its callers dropped before they called. Drop no team between
/// [`notify`](Self::notify) and [`wait`](Self::wait): the others would wait for ever. A team
/// keeps the memory of its job mapped, so one kept in a handler keeps it until the process ends. A
/// team whose collectives are under way goes with the last of them.
pub struct Team {
    shared: Arc<TeamShared>,
}

/// The state of a team, shared by its handle and its collectives in the background. The last owner counts
/// the team off.
#[doc(hidden)]
pub struct TeamShared {
    pub(in crate::collective) progress: Arc<Progress>,
    /// Writes long data to members whose memory is not mapped. Owned by the job.
    pub(in crate::collective) transfer: Weak<Transfer>,
    pub(in crate::collective) area: Arc<ScratchArea>,
    /// Ranks of the job, by member.
    pub(in crate::collective) members: Vec<Rank>,
    pub(in crate::collective) me: usize,
    pub(in crate::collective) layout: Layout,
    /// This member's scratch, into which the members store.
    pub(in crate::collective) scratch: Window,
    pub(in crate::collective) peers: Vec<TeamPeer>,
    pub(in crate::collective) rounds: Vec<AgreementRound>,
    /// `Some` if the team is flat.
    pub(in crate::collective) board: Option<Board>,
    /// This member's ledger, which other members read.
    pub(in crate::collective) ledger: Line,
    pub(in crate::collective) turn: AtomicU8,
    /// Agreements so far; the same at every member.
    pub(in crate::collective) sequence: AtomicU64,
    /// The name of the notified barrier.
    pub(in crate::collective) notified: AtomicU64,
    /// Set if a collective [was abandoned](Self::abandon) here before all of its data arrived.
    pub(in crate::collective) is_abandoned: AtomicBool,
    /// Uses of channels so far; the same at every member.
    epoch: AtomicU64,
    /// Given back at the end; `None` in the team of all ranks.
    piece: Option<ScratchPiece>,
    /// Collectives in the background.
    pub(in crate::collective) queue: CollectiveQueue,
}

/// No collective is in progress.
pub(in crate::collective) const IDLE: u8 = 0;
/// A blocking collective is in progress.
const BUSY: u8 = 1;
/// Between notify and wait of a barrier without a name.
pub(in crate::collective) const NOTIFIED: u8 = 2;
/// Between notify and wait of one with a name.
pub(in crate::collective) const NOTIFIED_BY_NAME: u8 = 3;
/// Collectives in the background are in progress.
pub(in crate::collective) const QUEUED: u8 = 4;

impl Team {
    /// The team of all ranks. This needs no communication: every rank knows the offset of its scratch.
    pub(crate) fn world(transfer: &Arc<Transfer>) -> Result<Self> {
        let progress = &transfer.progress;
        let area = Arc::new(ScratchArea::new());
        let members: Vec<Rank> = (0..progress.size).map(Rank).collect();
        let layout = Layout::new(
            members.len(),
            members.iter().all(|rank| is_mapped(progress, *rank)),
            match members.len() {
                2 => BOARD_OF_TWO,
                _ => BOARD,
            },
        );
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
            (progress, Arc::downgrade(transfer)),
            area,
            members,
            progress.rank.index(),
            (layout, &offsets),
            None,
        )
    }

    /// A team whose members' scratch lies at `offsets`.
    pub(in crate::collective) fn new(
        (progress, transfer): (&Arc<Progress>, Weak<Transfer>),
        area: Arc<ScratchArea>,
        members: Vec<Rank>,
        me: usize,
        (layout, offsets): (Layout, &[usize]),
        piece: Option<ScratchPiece>,
    ) -> Result<Self> {
        let peers = (members.iter().zip(offsets))
            .map(|(rank, offset)| TeamPeer::new(progress, *rank, *offset, layout.total()))
            .collect::<Result<Vec<_>>>()?;
        let scratch = (progress.conduit().window(progress.rank))
            .and_then(|window| window.part(offsets[me], layout.total()))
            .ok_or_else(|| outside(Fault::OutOfBounds))?;
        let rounds = (0..layout.rounds)
            .map(|round| AgreementRound::new(&layout, round, &peers, &scratch, me).map_err(outside))
            .collect::<Result<Vec<_>>>()?;
        let board = Board::new(progress, &layout, &peers, &scratch, me).map_err(outside)?;
        let shared = TeamShared {
            ledger: scratch.line(LEDGER).map_err(outside)?,
            scratch,
            progress: Arc::clone(progress),
            transfer,
            area,
            members,
            me,
            layout,
            peers,
            rounds,
            board,
            turn: AtomicU8::new(IDLE),
            sequence: AtomicU64::new(0),
            notified: AtomicU64::new(0),
            is_abandoned: AtomicBool::new(false),
            epoch: AtomicU64::new(1),
            piece,
            queue: CollectiveQueue::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// This process's rank in the team.
    #[inline]
    pub fn rank(&self) -> TeamRank {
        TeamRank(self.me as u32)
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

    /// The rank in the job of a member.
    ///
    /// # Errors
    /// [`Error::TeamRankOutOfRange`], or [`Error::RankOutOfRange`] of the team of all.
    #[inline]
    pub fn job_rank(&self, rank: TeamRank) -> Result<Rank> {
        match self.members.get(rank.index()) {
            Some(member) => Ok(*member),
            None => Err(self.no_member(rank)),
        }
    }

    /// The team rank of a rank of the job, if it is a member. The call searches the members, unless `rank`
    /// has the same number in both, as in the team of all ranks.
    pub fn team_rank(&self, rank: Rank) -> Option<TeamRank> {
        if self.members.get(rank.index()) == Some(&rank) {
            return Some(TeamRank(rank.0));
        }
        let member = self.members.iter().position(|member| *member == rank)?;
        Some(TeamRank(member as u32))
    }

    /// A handle of the same team, for a collective in the background.
    pub(in crate::collective) fn clone_handle(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }

    pub(in crate::collective) fn shared(&self) -> &Arc<TeamShared> {
        &self.shared
    }

    /// Takes the team's turn and runs a collective while the caller waits.
    #[inline]
    pub(in crate::collective) fn run_blocking<R, F>(
        &self,
        what: &'static str,
        collective: impl FnOnce() -> F,
    ) -> Result<R>
    where
        F: Future<Output = Result<R>>,
    {
        let _turn = self.enter(what, IDLE)?;
        poll_once(collective)
    }

    /// Takes the team's turn if the team is in state `from`. Waits until all collectives in the background
    /// have ended.
    #[inline]
    pub(in crate::collective) fn enter(
        &self,
        what: &'static str,
        from: u8,
    ) -> Result<TeamTurn<'_>> {
        progress::may_wait(what)?;
        self.progress.check_running()?;
        // Members on this host hear by stores, and may tell others.
        self.progress.settle_if_needed();
        let found = match self.turn.compare_exchange(from, BUSY, Acquire, Relaxed) {
            Err(QUEUED) if from == IDLE => self.enter_after_queue()?,
            Ok(found) | Err(found) => found,
        };
        if found != from {
            return Err(out_of_turn(what, found));
        }
        Ok(TeamTurn {
            shared: &self.shared,
            after: IDLE,
        })
    }

    /// Takes the turn after the collectives in the background. Returns the state that was found then.
    #[cold]
    fn enter_after_queue(&self) -> Result<u8> {
        let mut found = QUEUED;
        // The queued collectives end even if members are lost.
        self.progress.wait(On::Nobody, For::Message, || {
            found = (self.turn.compare_exchange(IDLE, BUSY, Acquire, Relaxed))
                .unwrap_or_else(|found| found);
            found != QUEUED
        })?;
        Ok(found)
    }

    /// Takes `count` new uses of channels, and returns the first.
    pub(in crate::collective) fn epochs(&self, count: usize) -> u64 {
        self.epoch.fetch_add(count as u64, Relaxed)
    }

    /// # Errors
    /// As [`job_rank`](Self::job_rank).
    pub(in crate::collective) fn check_member(&self, rank: TeamRank) -> Result<usize> {
        self.job_rank(rank).map(|_| rank.index())
    }

    /// Returns whether it is the team of all ranks.
    pub(in crate::collective) fn is_of_all(&self) -> bool {
        self.piece.is_none()
    }

    /// In the team of all ranks the error names a rank of the job, as callers of [`Job`](crate::Job)
    /// expect.
    #[cold]
    fn no_member(&self, rank: TeamRank) -> Error {
        let size = self.size();
        match self.piece {
            Some(_) => Error::TeamRankOutOfRange { rank, size },
            None => Error::RankOutOfRange {
                rank: Rank(rank.0),
                size,
            },
        }
    }
}

impl Deref for Team {
    type Target = TeamShared;

    #[inline]
    fn deref(&self) -> &TeamShared {
        &self.shared
    }
}

impl TeamShared {
    /// The state of the team, for calls that accept several states.
    #[inline]
    pub(in crate::collective) fn state(&self) -> u8 {
        self.turn.load(Relaxed)
    }

    /// Marks that a collective ended here before all of its data arrived. This is final, because a member
    /// is lost: this member shows nothing [early](Team::may_show_early) any more, and takes part in no
    /// agreement.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Relaxed);
    }

    /// The number of the last agreement.
    pub(in crate::collective) fn last_agreement(&self) -> u64 {
        self.sequence.load(Relaxed)
    }
}

impl Drop for TeamShared {
    fn drop(&mut self) {
        let Some(piece) = self.piece else { return };
        if self.progress.is_forked() {
            return;
        }
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

/// The turn to run a collective; given back when dropped.
pub(in crate::collective) struct TeamTurn<'a> {
    shared: &'a TeamShared,
    /// The state that the team is left in.
    pub(in crate::collective) after: u8,
}

impl Drop for TeamTurn<'_> {
    #[inline]
    fn drop(&mut self) {
        self.shared.turn.store(self.after, Release);
    }
}

/// Begins a blocking collective and polls it once. The poll waits inside ([`Team::poll_until`]), so that the
/// result is there afterwards. A future that is made here is not moved, which takes long.
#[inline]
pub(in crate::collective) fn poll_once<F: Future>(collective: impl FnOnce() -> F) -> F::Output {
    match pin!(collective()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("a collective that blocks has waited for what it needs"),
    }
}

/// The error of an access outside the scratch, which the layout rules out.
#[cold]
pub(in crate::collective) fn outside(fault: Fault) -> Error {
    Error::other(format!("a team's scratch is not as laid out: {fault:?}"))
}

#[cold]
pub(in crate::collective) fn out_of_turn(what: &'static str, found: u8) -> Error {
    let why = match found {
        BUSY => "another thread of this rank is in a collective of the same team",
        IDLE | QUEUED => "the barrier was not notified",
        _ => "a barrier of the team was notified and not waited for yet",
    };
    Error::OutOfTurn { what, why }
}
