//! What the caller's threads and the NIC's share.

use std::sync::{
    Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{
        AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    },
};

use hydrant_conduit::{Error, Membership, Rank, Sink, Standing, Ticket};

use super::{
    asker::{Asker, Operation},
    card,
    door::{Caller, Invitation},
    table::Table,
};
use crate::{Smp, bell, latch::Latch, mapping::MappedQueue};

/// What the caller's threads and the NIC's share.
pub(super) struct Core {
    pub(super) smp: Smp,
    pub(super) table: Table,
    askers: Vec<OnceLock<Box<Asker>>>,
    /// Peers with whom operations are under way, and with whom there are some that wait for
    /// room.
    pub(super) busy: Ranks,
    pub(super) eager: Ranks,
    /// What is to be handed up, and who is handing up.
    events: Mutex<Vec<Event>>,
    handing: Latch<()>,
    /// Operations whose end was not handed up yet.
    open: AtomicUsize,
    tickets: AtomicU64,
    callers: Mutex<Vec<Caller>>,
    called: AtomicBool,
    stopped: AtomicBool,
}

/// What happened to an operation.
pub(super) enum Event {
    Local(Ticket),
    Complete(Ticket, Result<(), Error>),
}

/// A set of ranks.
pub(super) struct Ranks(Vec<AtomicU64>);

impl Core {
    pub(super) fn new(smp: Smp, table: Table) -> Self {
        let ranks = smp.shared.shape.ranks();
        Self {
            smp,
            table,
            askers: (0..ranks).map(|_| OnceLock::new()).collect(),
            busy: Ranks::new(ranks),
            eager: Ranks::new(ranks),
            events: Mutex::new(Vec::new()),
            handing: Latch::new(()),
            open: AtomicUsize::new(0),
            tickets: AtomicU64::new(0),
            callers: Mutex::new(Vec::new()),
            called: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    pub(super) fn rank(&self) -> Rank {
        self.smp.shared.rank
    }

    pub(super) fn ranks(&self) -> usize {
        self.smp.shared.shape.ranks()
    }

    pub(super) fn alive(&self, peer: Rank) -> Result<(), Error> {
        self.smp.shared.alive(peer)
    }

    /// # Errors
    /// [`Error::PeerLost`] unless the peer and this rank take part.
    pub(super) fn both_alive(&self, peer: Rank) -> Result<(), Error> {
        self.smp.shared.both_alive(peer)
    }

    pub(super) fn standing(&self, peer: Rank) -> Standing {
        self.smp.shared.standing(peer)
    }

    pub(super) fn changes(&self) -> u64 {
        self.smp.changes()
    }

    /// Where `from` asks the NIC of `to`.
    pub(super) fn queue(&self, to: Rank, from: Rank) -> MappedQueue {
        let shared = &self.smp.shared;
        (shared.mapping).queue(shared.shape.queue(to.index(), from.index()))
    }

    /// The bell of a rank's threads.
    pub(super) fn door(&self, rank: Rank) -> &AtomicU32 {
        &self.smp.shared.doors[rank.index()].bits
    }

    /// The bell of the own NIC.
    pub(super) fn bell(&self) -> &AtomicU32 {
        &self.smp.shared.nics[self.rank().index()]
    }

    pub(super) fn wake_nic(&self, rank: Rank) {
        self.smp.shared.wake_nic(rank);
    }

    /// Whether NICs and ranks have fewer cores than would keep them all running.
    pub(super) fn is_crowded(&self) -> bool {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        2 * self.ranks() > cores
    }

    pub(super) fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Relaxed))
    }

    /// An operation with this peer begins.
    pub(super) fn begun(&self, peer: Rank) {
        self.open.fetch_add(1, Relaxed);
        self.busy.set(peer, true);
    }

    /// Begins an operation with a peer, and does what can be done now.
    pub(super) fn post(&self, peer: Rank, operation: Operation) -> Result<(), Error> {
        let asker = self.askers[peer.index()].get_or_init(|| {
            let shared = &self.smp.shared;
            let invitation = Invitation::read(&card(shared, peer));
            let queue = self.queue(peer, self.rank());
            Box::new(Asker::new(peer, queue, invitation))
        });
        asker.begin(self, operation)?;
        asker.advance(self);
        Ok(())
    }

    /// Keeps what happened until it is handed up.
    pub(super) fn keep(&self, events: Vec<Event>) {
        if !events.is_empty() {
            self.events().extend(events);
            // It may be another thread's operation, and that one asleep.
            bell::ring(self.door(self.rank()));
        }
    }

    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asker(&self, rank: usize) -> Option<&Asker> {
        self.askers.get(rank)?.get().map(|asker| &**asker)
    }

    /// Whether an operation is open.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Relaxed) != 0
    }

    /// Hands up what happened: how many operations ended. `patient`: also if another thread is
    /// handing up.
    pub(super) fn hand_up(&self, sink: &mut dyn Sink, patient: bool) -> usize {
        // One at a time, so that what happened is told in order.
        let _turn = if patient {
            self.handing.lock()
        } else {
            match self.handing.try_lock() {
                Some(turn) => turn,
                None => return 0,
            }
        };
        for asker in self.busy.iter().filter_map(|rank| self.asker(rank)) {
            asker.advance(self);
        }
        let events = std::mem::take(&mut *self.events());
        let mut ended = 0;
        for event in events {
            match event {
                Event::Local(ticket) => sink.local(ticket),
                Event::Complete(ticket, result) => {
                    ended += 1;
                    self.open.fetch_sub(1, Relaxed);
                    sink.complete(ticket, result);
                }
            }
        }
        ended
    }

    /// Whether there is something to hand up. What another thread was handing up has been told
    /// when this returns.
    pub(super) fn has_news(&self) -> bool {
        let _turn = self.handing.lock();
        self.is_open()
            && (!self.events().is_empty()
                || (self.busy.iter())
                    .filter_map(|rank| self.asker(rank))
                    .any(|asker| asker.has_news(self)))
    }

    /// Goes on with what there was no room for; whether there was anything to do.
    pub(super) fn go_on(&self) -> bool {
        let mut moved = false;
        for asker in self.eager.iter().filter_map(|rank| self.asker(rank)) {
            moved |= asker.advance(self);
        }
        moved
    }

    /// Whether [`go_on`](Self::go_on) would find something.
    pub(super) fn can_go_on(&self) -> bool {
        (self.eager.iter())
            .filter_map(|rank| self.asker(rank))
            .any(|asker| asker.has_news(self))
    }

    /// Ends what waits for peers that ended, and closes the pipes to them: to all, if this rank
    /// has ended itself.
    pub(super) fn forget_the_lost(&self) {
        for rank in (0..self.ranks() as u32).map(Rank) {
            if self.both_alive(rank).is_err()
                && let Some(asker) = self.asker(rank.index())
            {
                asker.advance(self);
            }
        }
    }

    /// Somebody wants to reach memory here.
    pub(super) fn call(&self, caller: Caller) {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        callers.push(caller);
        self.called.store(true, Release);
        drop(callers);
        self.wake_nic(self.rank());
    }

    pub(super) fn has_callers(&self) -> bool {
        self.called.load(Acquire)
    }

    pub(super) fn callers(&self) -> Vec<Caller> {
        if !self.has_callers() {
            return Vec::new();
        }
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        self.called.store(false, Release);
        std::mem::take(&mut callers)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    /// Ends the NIC's thread.
    pub(super) fn stop(&self) {
        self.stopped.store(true, SeqCst);
        self.wake_nic(self.rank());
    }
}

impl Ranks {
    fn new(ranks: usize) -> Self {
        Self((0..ranks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn set(&self, rank: Rank, present: bool) {
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

    pub(super) fn any(&self) -> bool {
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
    fn sets_of_ranks_hold_what_was_put_in() {
        let ranks = Ranks::new(200);
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
