//! Waits: spins, then yields, then sleeps. In virtual time a waiter sleeps at once, because nothing
//! happens until the conduit lets time pass.

use std::{
    hint,
    sync::atomic::Ordering::Relaxed,
    thread,
    time::{Duration, Instant},
};

use hydrant_conduit::{Backoff, Conduit, Rest, Sleeper, Standing};

use super::{Backlog, Progress, arrivals::Arrivals};
use crate::{Error, Rank, Result, counters::Count};

/// The ranks whose end ends the wait.
#[derive(Clone, Copy)]
pub(crate) enum On<'a> {
    /// One rank.
    Rank(Rank),
    /// Any of these ranks.
    Ranks(&'a [Rank]),
    /// Any of these ranks, or the error that this function returns.
    RanksOr(&'a [Rank], &'a (dyn Fn() -> Option<Error> + Sync)),
    /// Any rank.
    Anyone,
    /// No rank: the awaited event happens in any case.
    Nobody,
    /// No rank: the completion arrives in any case. But this rank may have to be woken to do its
    /// part.
    Served(Rank),
}

impl On<'_> {
    fn is_nobody(self) -> bool {
        matches!(self, On::Nobody | On::Served(_))
    }
}

/// The kind of event that ends the wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// A message that arrives here.
    Message,
    /// A change of a word of own memory that any rank may write by any means.
    Memory,
    /// A change of a word of own memory whose writer notifies this rank.
    Flag,
    /// Room at a peer, which has taken requests.
    Room,
}

/// How long a waiter for memory sleeps at a time where stores notify nobody.
const UNHEARD: Duration = Duration::from_millis(1);

/// Polls in a row, each followed by a check of the condition. There is no pause between them: a
/// poll takes long enough, and its time delays a message.
const POLLS: u32 = 16;
/// The same with more ranks than cores, where each poll delays the awaited rank.
const CROWDED_POLLS: u32 = 2;
/// Rounds of such polls between two reads of the clock.
const ROUNDS: u32 = 4;
/// Further polls while messages wait to be sent along with others. A peer with one request after
/// the other sends the next within these polls.
const ALONG: u32 = 32;
/// Yields before sleeping.
const YIELDS: u32 = 4;
const CROWDED_YIELDS: u32 = 16;

impl Progress {
    /// Delivers what has arrived. Returns how many messages and completions that was.
    #[inline]
    pub(crate) fn poll(&self) -> usize {
        self.poll_by(|conduit, arrivals| conduit.poll(arrivals))
    }

    #[inline]
    fn poll_by(&self, poll: impl Fn(&dyn Conduit, &mut Arrivals<'_>) -> usize) -> usize {
        let _scope = self.begin_poll();
        let mut delivered = poll(&**self.conduit, &mut self.arrivals());
        if self.has_backlog_of(Backlog::Along) {
            delivered += self.poll_on(poll);
        }
        if delivered > 0 {
            self.wake_condition_waiters();
        }
        delivered
    }

    /// Delivers what arrived while the last deliveries were handled. Answers to it carry along
    /// messages that nobody waits for. Those leave at the end of the poll in any case.
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

    /// Delivers all that has arrived, and waits for another thread that is delivering.
    pub(crate) fn drain(&self) {
        let _scope = self.begin_poll();
        self.conduit.drain(&mut self.arrivals());
        self.wake_condition_waiters();
    }

    /// As [`poll`](Self::poll), by an application thread that does not wait. The thread counts as
    /// inside a call: if it loses its core meanwhile, the service thread does not take over.
    #[inline]
    pub(crate) fn make_progress(&self) -> usize {
        self.make_progress_by(|conduit, arrivals| conduit.poll(arrivals))
    }

    /// As [`make_progress`](Self::make_progress), but skips requests of one kind, from one peer or from
    /// all. This thread takes these itself.
    pub(super) fn make_progress_past(&self, kind: u8, of: Option<Rank>) -> usize {
        self.make_progress_by(|conduit, arrivals| conduit.poll_past(kind, of, arrivals))
    }

    #[inline]
    fn make_progress_by(&self, poll: impl Fn(&dyn Conduit, &mut Arrivals<'_>) -> usize) -> usize {
        let _inside = self.attention().attend_inside();
        let delivered = self.poll_by(poll);
        self.notice_ended();
        self.advance_errands();
        delivered
    }

    /// If standings have changed since the last call, ends the operations that a lost peer would
    /// leave open, and wakes tasks.
    #[inline]
    pub(super) fn notice_ended(&self) {
        let changes = self.conduit.changes();
        if self.handled_changes.load(Relaxed) != changes {
            // Fresh news is checked again until it counts.
            let settles = self.settle_news();
            let again = self.has_fresh_news();
            self.handled_changes
                .store(if again { u64::MAX } else { changes }, Relaxed);
            if self.reported_changes.swap(changes, Relaxed) == changes && !settles {
                return;
            }
            self.tell_operations(|operations| operations.handle_ended_peers(changes));
            let routes = self.routes.iter().filter_map(|route| route.get());
            routes.for_each(|route| route.peers_ended());
            self.wake_watchers();
            self.wake_condition_waiters();
        }
    }

    /// Called before own memory or the clock is read. In virtual time, this lets a moment pass in
    /// which others may change the memory. It also handles messages, because no service thread
    /// does. In a handler it only lets time pass.
    pub(crate) fn poll_memory(&self) {
        if self.virtual_time {
            match super::may_wait("a look") {
                Ok(()) => _ = self.make_progress(),
                Err(_) => self.conduit.poll_memory(),
            }
        }
    }

    /// Returns the time since the job started. If virtual time has not passed since the last call,
    /// this [lets it pass](Self::poll_memory).
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

    /// Waits until `done` returns true, and handles messages meanwhile. `done` may have effects:
    /// once it has returned true, it is not called again. It must not panic, because conduits call
    /// it within their sleep.
    ///
    /// # Errors
    /// - [`Error::PeerLost`] if a rank that is waited [`On`] ends first.
    /// - [`Error::JobOver`] if this rank leaves.
    /// - [`Error::Forked`] in a child, for any `on`: the network does not use a child's memory.
    #[inline]
    pub(crate) fn wait(&self, on: On<'_>, what: For, mut done: impl FnMut() -> bool) -> Result<()> {
        if done() {
            return Ok(());
        }
        self.wait_long(on, what, None, &mut done).map(drop)
    }

    /// As [`wait`](Self::wait), for at most `time` on the job's clock. Returns whether `done`
    /// returned true.
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
        // A time beyond the clock's range means no limit.
        let until = self.conduit.now().checked_add(time);
        self.wait_long(on, what, until, &mut done)
    }

    /// Returns whether `done` returned true. It did, unless the time `until` passed first.
    fn wait_long<F: FnMut() -> bool>(
        &self,
        on: On<'_>,
        what: For,
        until: Option<Duration>,
        done: &mut F,
    ) -> Result<bool> {
        let mut rests = RestPolicy::new(self);
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
            for _ in 0..rests.polls() {
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
                if let Some(cause) = self.wait_failure(on, what) {
                    // An event before the end still counts, even if another thread is just handling
                    // it.
                    self.drain();
                    return if done() { Ok(true) } else { Err(cause) };
                }
            }
            if delivered > 0 {
                rests.renew();
                continue;
            }
            if what == For::Memory
                && let Some(cause) = self.why_nothing_changes()
            {
                self.drain();
                return if done() { Ok(true) } else { Err(cause) };
            }
            match rests.next() {
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
                        For::Memory => self.pause_before_survey(),
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
                    // A waiter that only checks for stores goes back to sleep.
                    if !deaf {
                        rests.renew();
                    }
                }
            }
        }
    }

    /// Wakes the awaited rank. It polled lately, so the message did not notify it, but it may
    /// compute by now.
    fn nudge(&self, on: On<'_>) {
        if let On::Rank(rank) | On::Served(rank) = on
            && rank != self.rank
            && !self.virtual_time
        {
            self.conduit.wake(rank);
        }
    }

    /// Returns whether another thread made this rank leave, so that peers do nothing more for it.
    fn is_over(&self, on: On<'_>) -> bool {
        !on.is_nobody() && self.is_stopped()
    }

    /// Returns the reason why the awaited event will not happen, if there is one.
    pub(crate) fn wait_failure(&self, on: On<'_>, what: For) -> Option<Error> {
        if on.is_nobody() {
            return None;
        }
        if self.is_stopped() {
            return Some(self.ended());
        }
        // Peers do nothing more for a rank that counts as lost.
        if self.is_lost_itself() {
            return Some(Error::Expelled(self.rank));
        }
        let lost = self.lost(on, what).map(|rank| self.why_gone(rank));
        match (lost, on) {
            (None, On::RanksOr(_, why)) => why(),
            (lost, _) => lost,
        }
    }

    /// Returns the error of a thread that polls and never waits, if no poll can succeed any more. The caller has made
    /// progress before. Costs a load or two as long as no rank is lost.
    pub(crate) fn poll_failure(&self, on: On<'_>, what: For) -> Option<Error> {
        self.conduit.first_lost()?;
        let cause = self.wait_failure(on, what)?;
        // Work from before the end still counts, also if another thread is just handling it.
        self.drain();
        Some(cause)
    }

    /// Returns the error of a thread that polls its memory, if nothing can change that memory any more. The search for
    /// that error needs this thread, so the call makes progress. None in a handler. Costs a few loads as long as no
    /// rank is at its end or lost.
    pub(crate) fn memory_poll_failure(&self) -> Option<Error> {
        let conduit = self.conduit();
        let may_be = conduit.endings() != 0 || conduit.first_lost().is_some();
        if !may_be || super::may_wait("a look").is_err() {
            return None;
        }
        // In virtual time the poll of the memory has made progress already.
        if !self.virtual_time {
            self.make_progress();
        }
        if let Some(cause) = self.poll_failure(On::Anyone, For::Memory) {
            return Some(cause);
        }
        let cause = self.why_nothing_changes()?;
        self.drain();
        Some(cause)
    }

    /// Returns whether this rank counts as lost at the others, though it goes on.
    pub(crate) fn is_lost_itself(&self) -> bool {
        self.conduit.standing(self.rank) == Standing::Lost
    }

    /// Returns an awaited rank that will not bring about the awaited event.
    ///
    /// A rank leaves in good order only once every rank is in the job's last barrier. By then it
    /// has stored all that others wait for in their memory, but it answers no messages.
    fn lost(&self, on: On<'_>, what: For) -> Option<Rank> {
        let lost = |rank: &Rank| match self.conduit.standing(*rank) {
            _ if *rank == self.rank => false,
            Standing::Present => false,
            Standing::Left => !matches!(what, For::Memory | For::Flag),
            Standing::Lost => true,
        };
        // Of several, the rank lost first is the cause: the others may have ended because of it.
        let first = || self.conduit.first_lost().filter(lost);
        match on {
            On::Rank(rank) => Some(rank).filter(lost),
            On::Ranks(ranks) | On::RanksOr(ranks, _) => first()
                .filter(|rank| ranks.contains(rank))
                .or_else(|| ranks.iter().copied().find(lost)),
            // A rank that has left does nothing more, but the others may. Once all have left, the
            // job is over.
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

/// Decides how a waiter rests between polls.
struct RestPolicy {
    /// The rests after the spins; with more ranks than cores, all rests.
    backoff: Backoff,
    crowded: bool,
    /// True if the waiter yields instead of spinning, so that a thread that must answer can run.
    shares_cores: bool,
    virtual_time: bool,
    /// How long to spin if the ranks have enough cores.
    spin: Duration,
    /// Rounds since the last arrival, and the time of the first read of the clock after it.
    rounds: u32,
    since: Option<Instant>,
}

impl RestPolicy {
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

    /// Returns the number of polls in a row.
    fn polls(&self) -> u32 {
        let yields = self.shares_cores && self.since.is_some();
        match (self.virtual_time || yields, self.crowded) {
            (true, _) => 1,
            (false, true) => CROWDED_POLLS,
            (false, false) => POLLS,
        }
    }

    /// Starts over, because something arrived or the thread was woken.
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
