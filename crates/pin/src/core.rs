//! The state that the NIC thread and the application's threads share.

use std::sync::{
    OnceLock,
    atomic::{
        AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    },
};

use hydrant_conduit::{Conduit, Error, Membership, Rank, Sink, Standing, Ticket};
use hydrant_smp::{
    Smp,
    upon::{self, Latch, MappedValue},
};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    listener::{NicCaller, NicInvitation},
    queue::AccessQueue,
    table::PinnedTable,
};

mod initiator;

use initiator::PipeInitiator;
pub(crate) use initiator::{LocalMemory, PinOperation};

/// The state that the NIC thread and the application's threads share.
pub(crate) struct PinCore {
    /// The conduit below, for messages, standings and sleep.
    pub(crate) smp: Smp,
    /// The registered extents of this rank.
    pub(crate) table: PinnedTable,
    /// The operations of this rank on each peer, by rank, made on first use.
    initiators: Vec<OnceLock<Box<PipeInitiator>>>,
    /// Peers with operations in flight. An operation sets the bit when it begins; the last one
    /// clears it.
    pub(crate) busy: RankSet,
    /// Those peers with an operation that waits for room; the NIC thread continues it.
    pub(crate) held_up: RankSet,
    /// Events of operations, until a poll delivers them.
    events: Mutex<Vec<OperationEvent>>,
    /// Held by the thread that delivers, so that events are delivered in order.
    delivering: Latch<()>,
    /// The number of operations whose end was not delivered yet. The thread that begins one counts
    /// it.
    open: AtomicUsize,
    /// The next ticket.
    tickets: AtomicU64,
    /// Callers since the NIC thread last took them.
    callers: Mutex<Vec<NicCaller>>,
    /// True if `callers` has entries.
    called: AtomicBool,
    /// True if the NIC thread is to end. Set once, when the conduit is dropped.
    stopped: AtomicBool,
}

/// An event of an operation.
pub(crate) enum OperationEvent {
    Local(Ticket),
    Complete(Ticket, Result<(), Error>),
}

/// A set of ranks.
pub(crate) struct RankSet(Vec<AtomicU64>);

impl PinCore {
    pub(crate) fn new(smp: Smp, table: PinnedTable) -> Self {
        let ranks = smp.size() as usize;
        Self {
            smp,
            table,
            initiators: (0..ranks).map(|_| OnceLock::new()).collect(),
            busy: RankSet::new(ranks),
            held_up: RankSet::new(ranks),
            events: Mutex::new(Vec::new()),
            delivering: Latch::new(()),
            open: AtomicUsize::new(0),
            tickets: AtomicU64::new(0),
            callers: Mutex::new(Vec::new()),
            called: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    pub(crate) fn rank(&self) -> Rank {
        self.smp.rank()
    }

    pub(crate) fn ranks(&self) -> usize {
        self.smp.size() as usize
    }

    pub(crate) fn check_alive(&self, peer: Rank) -> Result<(), Error> {
        self.smp.alive(peer)
    }

    /// # Errors
    /// [`Error::PeerLost`] unless both the peer and this rank are present.
    pub(crate) fn check_both_alive(&self, peer: Rank) -> Result<(), Error> {
        self.smp.both_alive(peer)
    }

    pub(crate) fn standing(&self, peer: Rank) -> Standing {
        self.smp.standing(peer)
    }

    pub(crate) fn changes(&self) -> u64 {
        self.smp.changes()
    }

    /// The queue of requests from rank `from` to the NIC of rank `to`.
    pub(crate) fn queue(&self, to: Rank, from: Rank) -> MappedValue<AccessQueue> {
        self.smp.areas().of_pair(to, from)
    }

    /// Wakes the threads that sleep in a rank's `wait`.
    pub(crate) fn notify(&self, rank: Rank) {
        self.smp.notify_message(rank);
    }

    /// The word that the local NIC thread sleeps on.
    pub(crate) fn wake_word(&self) -> &AtomicU32 {
        self.smp.area_wake_word(self.rank())
    }

    /// Wakes a NIC thread if it sleeps. Call this after storing what it must see.
    pub(crate) fn wake_nic(&self, rank: Rank) {
        upon::wake(self.smp.area_wake_word(rank));
    }

    /// Returns whether there are too few cores to run all ranks and NIC threads at once.
    pub(crate) fn is_crowded(&self) -> bool {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        2 * self.ranks() > cores
    }

    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Relaxed))
    }

    /// Counts an operation on a peer that begins.
    pub(crate) fn note_begun(&self, peer: Rank) {
        self.open.fetch_add(1, Relaxed);
        self.busy.set(peer, true);
    }

    /// Begins an operation on a peer, and does what can be done now.
    pub(crate) fn post(&self, peer: Rank, operation: PinOperation) -> Result<(), Error> {
        let initiator = self.initiators[peer.index()].get_or_init(|| {
            let invitation = NicInvitation::read(&self.smp.areas().of_rank(peer));
            let queue = self.queue(peer, self.rank());
            Box::new(PipeInitiator::new(peer, queue, invitation))
        });
        initiator.begin(self, operation)?;
        initiator.advance(self);
        Ok(())
    }

    /// Stores events until a poll delivers them.
    pub(crate) fn keep_events(&self, events: Vec<OperationEvent>) {
        if !events.is_empty() {
            self.events().extend(events);
            // The operation may belong to another thread, which may be asleep.
            self.notify(self.rank());
        }
    }

    fn events(&self) -> MutexGuard<'_, Vec<OperationEvent>> {
        self.events.lock()
    }

    fn initiator(&self, rank: usize) -> Option<&PipeInitiator> {
        self.initiators
            .get(rank)?
            .get()
            .map(|initiator| &**initiator)
    }

    /// Returns whether the end of any operation is still to be delivered.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Relaxed) != 0
    }

    /// Delivers events. Returns how many operations ended. `patient`: if another thread delivers,
    /// waits for it.
    pub(crate) fn deliver(&self, sink: &mut dyn Sink, patient: bool) -> usize {
        // One thread at a time, so that events are delivered in order.
        let _turn = if patient {
            self.delivering.lock()
        } else {
            match self.delivering.try_lock() {
                Some(turn) => turn,
                None => return 0,
            }
        };
        for initiator in self.busy.iter().filter_map(|rank| self.initiator(rank)) {
            initiator.advance(self);
        }
        let events = std::mem::take(&mut *self.events());
        let mut ended = 0;
        for event in events {
            match event {
                OperationEvent::Local(ticket) => sink.local(ticket),
                OperationEvent::Complete(ticket, result) => {
                    ended += 1;
                    self.open.fetch_sub(1, Relaxed);
                    sink.complete(ticket, result);
                }
            }
        }
        ended
    }

    /// Returns whether there is an event to deliver. Waits for a delivery by another thread to
    /// finish.
    pub(crate) fn has_events(&self) -> bool {
        let _turn = self.delivering.lock();
        self.is_open()
            && (!self.events().is_empty()
                || (self.busy.iter())
                    .filter_map(|rank| self.initiator(rank))
                    .any(|initiator| initiator.can_advance(self)))
    }

    /// Continues operations that waited for room. Returns whether any progressed.
    pub(crate) fn advance_held_up(&self) -> bool {
        let mut moved = false;
        for initiator in self.held_up.iter().filter_map(|rank| self.initiator(rank)) {
            moved |= initiator.advance(self);
        }
        moved
    }

    /// Returns whether [`advance_held_up`](Self::advance_held_up) would make progress.
    pub(crate) fn can_advance_held_up(&self) -> bool {
        (self.held_up.iter())
            .filter_map(|rank| self.initiator(rank))
            .any(|initiator| initiator.can_advance(self))
    }

    /// Ends operations on peers that ended, and closes the pipes to them: to all peers, if this
    /// rank has ended.
    pub(crate) fn close_ended(&self) {
        for rank in (0..self.ranks() as u32).map(Rank) {
            if self.check_both_alive(rank).is_err()
                && let Some(initiator) = self.initiator(rank.index())
            {
                initiator.advance(self);
            }
        }
    }

    /// Adds a caller that wants to access memory of this rank.
    pub(crate) fn add_caller(&self, caller: NicCaller) {
        let mut callers = self.callers.lock();
        callers.push(caller);
        self.called.store(true, Release);
        drop(callers);
        self.wake_nic(self.rank());
    }

    pub(crate) fn has_callers(&self) -> bool {
        self.called.load(Acquire)
    }

    pub(crate) fn take_callers(&self) -> Vec<NicCaller> {
        if !self.has_callers() {
            return Vec::new();
        }
        let mut callers = self.callers.lock();
        self.called.store(false, Release);
        std::mem::take(&mut callers)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    /// Ends the NIC thread.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, SeqCst);
        self.wake_nic(self.rank());
    }
}

impl RankSet {
    fn new(ranks: usize) -> Self {
        Self((0..ranks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn set(&self, rank: Rank, present: bool) {
        let (word, bit) = (&self.0[rank.index() / 64], 1 << (rank.index() % 64));
        if (word.load(Relaxed) & bit != 0) == present {
            return;
        }
        if present {
            word.fetch_or(bit, AcqRel);
        } else {
            word.fetch_and(!bit, AcqRel);
        }
    }

    pub(crate) fn any(&self) -> bool {
        self.0.iter().any(|word| word.load(Acquire) != 0)
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        (self.0.iter().enumerate()).flat_map(|(number, word)| {
            let mut left = word.load(Acquire);
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.checked_sub(1)?;
                Some(number * 64 + bit as usize)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_ranks_contain_the_ranks_that_were_set() {
        let ranks = RankSet::new(200);
        assert!(!ranks.any());
        for rank in [0, 63, 64, 199] {
            ranks.set(Rank(rank), true);
            ranks.set(Rank(rank), true);
        }
        assert_eq!(ranks.iter().collect::<Vec<_>>(), [0, 63, 64, 199]);
        ranks.set(Rank(63), false);
        ranks.set(Rank(5), false);
        assert_eq!(ranks.iter().collect::<Vec<_>>(), [0, 64, 199]);
    }
}
