//! Waiting: spin, then yield, then sleep. In virtual time, sleep: nothing happens meanwhile
//! but what the conduit lets happen.

use std::{
    hint,
    sync::atomic::Ordering::Relaxed,
    thread,
    time::{Duration, Instant},
};

use hydrant_conduit::{Backoff, Conduit, Rest, Sleeper, Standing};

use super::{Backlog, Progress, arrivals::Arrivals};
use crate::{Error, Rank, Result, counters::Count};

/// Whose end ends the wait.
#[derive(Clone, Copy)]
pub(crate) enum On<'a> {
    /// One rank's.
    Rank(Rank),
    /// Any of these.
    Ranks(&'a [Rank]),
    /// Any of these ranks, or the reason that this function gives.
    RanksOr(&'a [Rank], &'a (dyn Fn() -> Option<Error> + Sync)),
    /// Any rank's.
    Anyone,
    /// Nobody's: what is waited for happens in any case.
    Nobody,
    /// Nobody's: the end of an operation is told in any case, but this rank may have to be woken to
    /// do its part.
    Served(Rank),
}

impl On<'_> {
    fn is_nobody(self) -> bool {
        matches!(self, On::Nobody | On::Served(_))
    }
}

/// What ends the wait otherwise.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// Something that a message brings.
    Message,
    /// A word of own memory that any rank may write by any means.
    Memory,
    /// A word of own memory whose writer rings for it.
    Flag,
    /// Requests being taken by a peer.
    Room,
}

/// How long who waits for memory sleeps at a time where nobody is told of a store.
const UNHEARD: Duration = Duration::from_millis(1);

/// Polls in a row, each with a look at what is waited for. No pause between them: a poll takes
/// long enough, and its time is the delay of a message.
const POLLS: u32 = 16;
/// The same in a crowd, where each delays the rank that is waited for.
const CROWDED_POLLS: u32 = 2;
/// Rounds of these between two looks at the clock.
const ROUNDS: u32 = 4;
/// Polls after one that left messages to go along with others, if there is nothing that they go along with: who
/// asked for one thing after the other has sent the next by then.
const ALONG: u32 = 32;
/// Yields before sleeping.
const YIELDS: u32 = 4;
const CROWDED_YIELDS: u32 = 16;

impl Progress {
    /// Delivers what has arrived; how much that was.
    #[inline]
    pub(crate) fn poll(&self) -> usize {
        self.poll_by(|conduit, arrivals| conduit.poll(arrivals))
    }

    #[inline]
    fn poll_by(&self, poll: impl Fn(&dyn Conduit, &mut Arrivals<'_>) -> usize) -> usize {
        let _polls = self.polls();
        let mut delivered = poll(&**self.conduit, &mut self.arrivals());
        if self.has_backlog_of(Backlog::Along) {
            delivered += self.poll_on(poll);
        }
        if delivered > 0 {
            self.wake_hopeful();
        }
        delivered
    }

    /// Delivers what has arrived while what was delivered was looked after: what that is answered with takes along
    /// messages whose asker has what it waited for. They leave at the end of the poll in any case.
    #[cold]
    fn poll_on(&self, poll: impl Fn(&dyn Conduit, &mut Arrivals<'_>) -> usize) -> usize {
        let mut delivered = 0;
        for _ in 0..ALONG {
            if !self.has_backlog_of(Backlog::Along) {
                break;
            }
            delivered += poll(&**self.conduit, &mut self.arrivals());
        }
        delivered
    }

    /// Delivers all that has arrived, also if another thread is delivering.
    pub(crate) fn drain(&self) {
        let _polls = self.polls();
        self.conduit.drain(&mut self.arrivals());
        self.wake_hopeful();
    }

    /// As [`poll`](Self::poll), by an application thread that does not wait. It says that it is in
    /// there: should it lose its core meanwhile, the service thread has no use for that.
    #[inline]
    pub(crate) fn look_round(&self) -> usize {
        self.look_round_by(|conduit, arrivals| conduit.poll(arrivals))
    }

    /// As [`look_round`](Self::look_round), but past requests of one kind, of one peer or of all, which this thread
    /// takes itself.
    pub(super) fn look_round_past(&self, kind: u8, of: Option<Rank>) -> usize {
        self.look_round_by(|conduit, arrivals| conduit.poll_past(kind, of, arrivals))
    }

    #[inline]
    fn look_round_by(&self, poll: impl Fn(&dyn Conduit, &mut Arrivals<'_>) -> usize) -> usize {
        let _inside = self.attention().look_inside();
        let delivered = self.poll_by(poll);
        self.notice_ended();
        self.advance_errands();
        delivered
    }

    /// Has the operations ended that will not end otherwise, and tasks woken, if a peer has ended since
    /// that was seen to last.
    #[inline]
    pub(super) fn notice_ended(&self) {
        let changes = self.conduit.changes();
        if self.noticed.load(Relaxed) != changes {
            // Fresh news is looked at again until it counts.
            let settles = self.settle_news();
            let again = self.has_fresh_news();
            self.noticed
                .store(if again { u64::MAX } else { changes }, Relaxed);
            if self.told.swap(changes, Relaxed) == changes && !settles {
                return;
            }
            self.tell_operations(|operations| operations.look_for_ended(changes));
            let routes = self.routes.iter().filter_map(|route| route.get());
            routes.for_each(|route| route.peers_ended());
            self.wake_watchers();
            self.wake_hopeful();
        }
    }

    /// Called before own memory, or the clock, is looked at: in virtual time that takes a moment, in
    /// which others may change it, and messages are handled, for no service thread does that there.
    /// A handler only looks.
    pub(crate) fn poll_memory(&self) {
        if self.virtual_time {
            match super::may_wait("a look") {
                Ok(()) => _ = self.look_round(),
                Err(_) => self.conduit.poll_memory(),
            }
        }
    }

    /// Time since the job started. Who asks again while none has passed in virtual time waits for
    /// it, and [looks](Self::poll_memory) meanwhile.
    pub(crate) fn now(&self) -> Duration {
        let now = self.conduit.now();
        if !self.virtual_time {
            return now;
        }
        let shown = now.as_nanos() as u64;
        if self.shown.swap(shown, Relaxed) != shown {
            return now;
        }
        self.poll_memory();
        self.conduit.now()
    }

    /// Waits until `done`, looking after messages meanwhile. `done` may have effects: once it
    /// said yes it is not asked again. It does not panic: conduits ask it in the midst of their
    /// sleep.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a rank that is waited [`On`] ended first, [`Error::JobOver`] if this
    /// rank left; [`Error::Forked`] in a child, for any `on`: the network does not use a child's memory.
    #[inline]
    pub(crate) fn wait(&self, on: On<'_>, what: For, mut done: impl FnMut() -> bool) -> Result<()> {
        if done() {
            return Ok(());
        }
        self.wait_long(on, what, None, &mut done).map(drop)
    }

    /// As [`wait`](Self::wait), until so much time has passed, on the job's clock, at most: whether
    /// `done` said yes.
    pub(crate) fn wait_within(
        &self,
        on: On<'_>,
        what: For,
        time: Duration,
        mut done: impl FnMut() -> bool,
    ) -> Result<bool> {
        if done() {
            return Ok(true);
        }
        // As good as for ever if it is so long.
        let until = self.conduit.now().checked_add(time);
        self.wait_long(on, what, until, &mut done)
    }

    /// Whether `done` said yes, which it did unless it had to do so `until` then.
    fn wait_long<F: FnMut() -> bool>(
        &self,
        on: On<'_>,
        what: For,
        until: Option<Duration>,
        done: &mut F,
    ) -> Result<bool> {
        let mut patience = Patience::new(self);
        let mut changes = None;
        let deaf = what == For::Memory && !self.conduit.caps().stores_wake;
        let own = self.attention();
        let mut inside = own.enter();
        loop {
            // This check is also for a child that a handler forked while this thread ran it.
            self.check_origin()?;
            own.attend();
            self.advance_errands();
            let mut delivered = 0;
            for _ in 0..patience.polls() {
                delivered += self.poll();
                if done() {
                    return Ok(true);
                }
            }
            let left = until.map(|until| until.saturating_sub(self.conduit.now()));
            if left == Some(Duration::ZERO) {
                return Ok(false);
            }
            let now = self.conduit.changes();
            if changes != Some(now) || self.is_over(on) || self.has_fresh_news() {
                changes = Some(now);
                self.notice_ended();
                if let Some(cause) = self.in_vain(on, what) {
                    // What was done before the end still counts, also if another thread is just handling it.
                    self.drain();
                    return if done() { Ok(true) } else { Err(cause) };
                }
            }
            if delivered > 0 {
                patience.renew();
                continue;
            }
            if what == For::Memory
                && let Some(cause) = self.why_nothing_changes()
            {
                self.drain();
                return if done() { Ok(true) } else { Err(cause) };
            }
            match patience.next() {
                Rest::Spin => hint::spin_loop(),
                Rest::Yield => thread::yield_now(),
                Rest::Sleep => {
                    self.nudge(on);
                    self.tally.one(Count::Sleeps);
                    drop(inside);
                    let asleep = self.fall_asleep();
                    let sleeper = match what {
                        _ if self.has_backlog() => Sleeper::Room,
                        For::Room => Sleeper::Room,
                        For::Memory => Sleeper::Memory,
                        For::Message | For::Flag => Sleeper::Application,
                    };
                    let asks_again = match what {
                        For::Memory => self.asks_again_in(),
                        _ => None,
                    };
                    let unheard = deaf.then_some(UNHEARD).or(asks_again);
                    let unheard = unheard.or_else(|| self.news_counts_in());
                    let timeout = match (left, unheard) {
                        (Some(left), Some(unheard)) => Some(left.min(unheard)),
                        (left, unheard) => left.or(unheard),
                    };
                    let mut ended = false;
                    self.conduit.wait(sleeper, timeout, &mut || {
                        ended = ended || done();
                        ended
                            || changes != Some(self.conduit.changes())
                            || self.is_over(on)
                            || self.would_sleep_past_room(sleeper)
                            || self.has_ready_errand()
                    });
                    inside = own.enter();
                    drop(asleep);
                    if ended {
                        return Ok(true);
                    }
                    // Who only looks whether something was stored goes on sleeping.
                    if !deaf {
                        patience.renew();
                    }
                }
            }
        }
    }

    /// Wakes the rank that is waited on: it was attending lately, so the message rang no
    /// bell, but perhaps it computes by now.
    fn nudge(&self, on: On<'_>) {
        if let On::Rank(rank) | On::Served(rank) = on
            && rank != self.rank
            && !self.virtual_time
        {
            self.conduit.wake(rank);
        }
    }

    /// Whether this rank has left meanwhile, by another thread, and peers do nothing more for it.
    fn is_over(&self, on: On<'_>) -> bool {
        !on.is_nobody() && self.is_stopped()
    }

    /// Why what is waited for will not happen.
    pub(crate) fn in_vain(&self, on: On<'_>, what: For) -> Option<Error> {
        if on.is_nobody() {
            return None;
        }
        if self.is_stopped() {
            return Some(self.ended());
        }
        // Peers do nothing more for a rank that they count as lost.
        if self.is_lost_itself() {
            return Some(Error::Expelled(self.rank));
        }
        let lost = self.lost(on, what).map(|rank| self.gone(rank));
        match (lost, on) {
            (None, On::RanksOr(_, why)) => why(),
            (lost, _) => lost,
        }
    }

    /// Whether this rank is lost to the others, though it goes on.
    pub(crate) fn is_lost_itself(&self) -> bool {
        self.conduit.standing(self.rank) == Standing::Lost
    }

    /// A rank that is waited on and will not do what is waited for.
    ///
    /// A rank leaves in good order only once every rank is in the job's last barrier. It has
    /// stored all that others wait for in their memory, but it answers no messages.
    fn lost(&self, on: On<'_>, what: For) -> Option<Rank> {
        let lost = |rank: &Rank| match self.conduit.standing(*rank) {
            _ if *rank == self.rank => false,
            Standing::Present => false,
            Standing::Left => !matches!(what, For::Memory | For::Flag),
            Standing::Lost => true,
        };
        // Of many, the one lost first: the others may only have given up for its sake.
        let first = || self.conduit.first_lost().filter(lost);
        match on {
            On::Rank(rank) => Some(rank).filter(lost),
            On::Ranks(ranks) | On::RanksOr(ranks, _) => first()
                .filter(|rank| ranks.contains(rank))
                .or_else(|| ranks.iter().copied().find(lost)),
            // Who has left does nothing more, but the others may: until all have, and then the job is over.
            On::Anyone => {
                let is_lost = |rank: &Rank| {
                    *rank != self.rank && self.conduit.standing(*rank) == Standing::Lost
                };
                first().or_else(|| (0..self.size).map(Rank).find(is_lost))
            }
            On::Nobody | On::Served(_) => None,
        }
    }

    /// # Errors
    /// [`Error::PeerLost`] if any rank is lost.
    pub(crate) fn check_all_present(&self) -> Result<()> {
        self.conduit
            .first_lost()
            .map_or(Ok(()), |lost| Err(Error::PeerLost(lost)))
    }
}

/// Decides how to rest.
struct Patience {
    /// Rests once the spins are over; in a crowd, from the start.
    backoff: Backoff,
    crowded: bool,
    /// Between spins, lets those run that may have to answer.
    shares_cores: bool,
    virtual_time: bool,
    /// How long to spin where there is no crowd.
    spin: Duration,
    /// Rounds since something came, and since when there have been enough of them to look at the
    /// clock.
    rounds: u32,
    since: Option<Instant>,
}

impl Patience {
    fn new(progress: &Progress) -> Self {
        Self {
            backoff: if progress.crowded {
                Backoff::new(0, CROWDED_YIELDS)
            } else {
                Backoff::new(0, YIELDS)
            },
            crowded: progress.crowded,
            shares_cores: progress.shares_cores,
            virtual_time: progress.virtual_time,
            spin: progress.spin,
            rounds: 0,
            since: None,
        }
    }

    /// Polls before anything else is thought of.
    fn polls(&self) -> u32 {
        let yields = self.shares_cores && self.since.is_some();
        match (self.virtual_time || yields, self.crowded) {
            (true, _) => 1,
            (false, true) => CROWDED_POLLS,
            (false, false) => POLLS,
        }
    }

    /// Something came, or the thread was woken: begin anew.
    fn renew(&mut self) {
        self.backoff.renew();
        self.rounds = 0;
        self.since = None;
    }

    fn next(&mut self) -> Rest {
        if self.virtual_time {
            return Rest::Sleep;
        }
        if self.crowded {
            return self.backoff.rest();
        }
        self.rounds += 1;
        if !self.rounds.is_multiple_of(ROUNDS) {
            return Rest::Spin;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() < self.spin {
            return if self.shares_cores {
                Rest::Yield
            } else {
                Rest::Spin
            };
        }
        self.backoff.rest()
    }
}
