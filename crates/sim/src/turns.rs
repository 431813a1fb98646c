//! Turns: of the threads of all ranks, the thread earliest in virtual time runs.
//!
//! An *actor* is a thread as one rank knows it. One actor has the turn: it runs, inside the conduit
//! or outside, until it looks at the work of others. First, everything earlier happens then:
//! events, and the turns of actors with earlier clocks.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    thread::{self, Thread},
};

use hydrant_conduit::{Sleeper, WakeWord};

use crate::time::VirtualTime;

pub(crate) type ActorId = usize;

/// Where a thread waits for its turn.
pub(crate) struct Seat {
    thread: Thread,
    granted: AtomicBool,
    /// The thread's id in the system, to see whether it sleeps.
    pub(crate) tid: i32,
}

impl Seat {
    pub(crate) fn here() -> Arc<Self> {
        Arc::new(Self {
            thread: thread::current(),
            granted: AtomicBool::new(false),
            tid: rustix::thread::gettid().as_raw_nonzero().get(),
        })
    }

    pub(crate) fn grant(&self) {
        self.granted.store(true, Release);
        self.thread.unpark();
    }

    pub(crate) fn wait(&self) {
        while !self.granted.swap(false, Acquire) {
            thread::park();
        }
    }
}

/// The state of an actor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ActorPhase {
    /// Has the turn.
    Running,
    /// Runs as soon as its clock is the earliest.
    Ready,
    /// Runs again after some event.
    Waiting,
    /// Runs outside the conduit, after the watchdog took its turn away.
    Away,
    /// Its thread ended.
    Ended,
}

/// The reason why an actor waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ActorWait {
    /// In [`wait`](hydrant_conduit::Sleep::wait).
    Sleep(Sleeper),
    /// For another thread of the rank to be done with polling.
    Polling,
    /// For the end of a computation, or something that may interrupt it.
    Computing,
    /// As [`Computing`](Self::Computing), or for room for messages that are to be sent meanwhile.
    ComputingForRoom,
}

/// An event that may end a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// A message.
    Message,
    /// An operation is locally or remotely complete.
    Complete,
    /// Own memory was written to.
    Memory,
    /// There may be room for a message.
    Room,
    /// A peer notified the rank.
    Ring,
    /// A peer woke the rank, or a rank's standing changed.
    Wake,
    /// A thread of the rank has finished polling.
    Polled,
}

impl ActorWait {
    /// A text for the deadlock report.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            ActorWait::Polling => "it waits until another of its threads has handled what came",
            ActorWait::Computing | ActorWait::ComputingForRoom => "it computes",
            ActorWait::Sleep(Sleeper::Memory) => {
                "it waits for a word of its memory to change, as wait_until and the lock of a mutex do"
            }
            ActorWait::Sleep(Sleeper::Room) => {
                "it waits for room at a peer, as am_quiet does until all is handled"
            }
            ActorWait::Sleep(Sleeper::Application) => {
                "it waits for a message, an answer or a collective, as receive, call and barrier do"
            }
            ActorWait::Sleep(Sleeper::Service | Sleeper::Nap) => "it looks after messages",
        }
    }
}

impl News {
    fn ends(self, wait: ActorWait) -> bool {
        use Sleeper::{Application, Memory, Nap, Room, Service};
        match (wait, self) {
            (ActorWait::Polling, news) => news == News::Polled,
            (ActorWait::Computing, news) => matches!(news, News::Message | News::Complete),
            (ActorWait::ComputingForRoom, news) => {
                matches!(news, News::Message | News::Complete | News::Room)
            }
            (ActorWait::Sleep(_), News::Wake) => true,
            (ActorWait::Sleep(Nap), _) | (_, News::Polled) => false,
            (ActorWait::Sleep(_), News::Message | News::Complete) => true,
            (ActorWait::Sleep(sleeper), News::Memory) => sleeper == Memory,
            (ActorWait::Sleep(sleeper), News::Room) => sleeper == Room,
            (ActorWait::Sleep(Application | Memory | Room), News::Ring) => true,
            (ActorWait::Sleep(Service), News::Ring) => false,
        }
    }
}

pub(crate) struct Actor {
    pub(crate) rank: usize,
    pub(crate) seat: Arc<Seat>,
    pub(crate) clock: VirtualTime,
    pub(crate) phase: ActorPhase,
    /// Nested waits, and whether news has ended each.
    pub(crate) waits: Vec<(ActorWait, bool)>,
    /// Counts the actor's waits, so that timers of earlier waits are stale.
    pub(crate) number: u64,
    /// True if nothing will ever end the actor's wait.
    pub(crate) stranded: bool,
    /// The time up to which the actor has seen the work of others.
    pub(crate) looked: VirtualTime,
    /// True once the actor's thread knows that it has the turn.
    pub(crate) seated: bool,
}

/// All actors.
pub(crate) struct Turns {
    pub(crate) actors: Vec<Actor>,
    of_rank: Vec<Vec<ActorId>>,
    free: Vec<ActorId>,
    ready: BTreeSet<(VirtualTime, usize, ActorId)>,
    waiting: usize,
    pub(crate) running: Option<ActorId>,
    /// True once the job has begun: every rank has wanted a turn or ended, or the watchdog found
    /// that no missing rank is about to come.
    pub(crate) open: bool,
    /// True for each rank that has wanted a turn, or ended.
    arrived: Vec<bool>,
    /// Counts all calls, for the watchdog.
    pub(crate) calls: u64,
}

impl Turns {
    pub(crate) fn new(ranks: usize) -> Self {
        Self {
            actors: Vec::new(),
            of_rank: vec![Vec::new(); ranks],
            free: Vec::new(),
            ready: BTreeSet::new(),
            waiting: 0,
            running: None,
            open: false,
            arrived: vec![false; ranks],
            calls: 0,
        }
    }

    /// Adds a thread that calls for a rank for the first time.
    pub(crate) fn join(&mut self, rank: usize, seat: Arc<Seat>, clock: VirtualTime) -> ActorId {
        let mut actor = Actor {
            rank,
            seat,
            clock,
            phase: ActorPhase::Away,
            waits: Vec::new(),
            number: 0,
            stranded: false,
            looked: 0,
            seated: false,
        };
        let id = match self.free.pop() {
            Some(id) => {
                actor.number = self.actors[id].number + 1;
                self.actors[id] = actor;
                id
            }
            None => {
                self.actors.push(actor);
                self.actors.len() - 1
            }
        };
        self.of_rank[rank].push(id);
        self.calls += 1;
        id
    }

    /// Notes that a rank wants a turn or has ended, so the job's begin need not wait for it.
    pub(crate) fn note_arrival(&mut self, rank: usize) {
        self.arrived[rank] = true;
        self.open |= self.arrived.iter().all(|arrived| *arrived);
    }

    /// The ranks that have neither wanted a turn nor ended.
    pub(crate) fn missing(&self) -> impl Iterator<Item = usize> {
        (self.arrived.iter().enumerate())
            .filter(|(_, arrived)| !**arrived)
            .map(|(rank, _)| rank)
    }

    /// Ends an actor whose thread has ended. Its rank stays arrived.
    pub(crate) fn retire(&mut self, id: ActorId) {
        self.drop_turn(id, ActorPhase::Ended);
        let rank = self.actors[id].rank;
        self.of_rank[rank].retain(|other| *other != id);
        self.actors[id].waits.clear();
        self.free.push(id);
    }

    /// Takes the turn, or the slot in the queue for the turn, from an actor.
    pub(crate) fn drop_turn(&mut self, id: ActorId, phase: ActorPhase) {
        let actor = &mut self.actors[id];
        match actor.phase {
            ActorPhase::Running => self.running = None,
            ActorPhase::Ready => {
                self.ready.remove(&(actor.clock, actor.rank, id));
            }
            ActorPhase::Waiting => self.waiting -= 1,
            ActorPhase::Away | ActorPhase::Ended => {}
        }
        actor.phase = phase;
        self.waiting += usize::from(phase == ActorPhase::Waiting);
    }

    /// Queues the actor for the turn at this time.
    pub(crate) fn make_ready(&mut self, id: ActorId, clock: VirtualTime) {
        self.drop_turn(id, ActorPhase::Ready);
        let actor = &mut self.actors[id];
        actor.clock = clock;
        let rank = actor.rank;
        self.ready.insert((clock, rank, id));
        if !self.open {
            // The first turn belongs to the earliest of all ranks, so a rank counts only once it is
            // in the queue, not when it joins.
            self.note_arrival(rank);
        }
    }

    /// The time of the earliest actor that could run.
    pub(crate) fn next_time(&self) -> Option<VirtualTime> {
        self.ready.first().map(|(time, ..)| *time)
    }

    /// True if an actor that could run comes before this one at its time.
    pub(crate) fn before(&self, id: ActorId) -> bool {
        let actor = &self.actors[id];
        (self.ready.first()).is_some_and(|first| *first < (actor.clock, actor.rank, id))
    }

    /// Gives the turn to the earliest actor.
    pub(crate) fn take_first(&mut self) -> Option<ActorId> {
        let (.., id) = self.ready.pop_first()?;
        let actor = &mut self.actors[id];
        actor.phase = ActorPhase::Running;
        actor.seated = false;
        self.running = Some(id);
        Some(id)
    }

    pub(crate) fn anyone_waits(&self) -> bool {
        self.waiting > 0
    }

    pub(crate) fn anyone_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// True if a thread outside the conduit might still call. A thread that waits as another rank
    /// cannot. This happens to the handles of several ranks in one thread, once their job is over.
    pub(crate) fn anyone_away(&self) -> bool {
        let actors = || (self.of_rank.iter().flatten()).map(|id| &self.actors[*id]);
        let waits = |seat: &Arc<Seat>| {
            actors()
                .any(|actor| actor.phase == ActorPhase::Waiting && Arc::ptr_eq(&actor.seat, seat))
        };
        actors().any(|actor| actor.phase == ActorPhase::Away && !waits(&actor.seat))
    }

    /// The bits of a rank's wake word: the kinds of sleepers, present or about to sleep.
    pub(crate) fn sleepers(&self, rank: usize) -> u32 {
        let waits = (self.of_rank[rank].iter()).flat_map(|id| &self.actors[*id].waits);
        waits.fold(0, |bits, (wait, _)| {
            bits | match wait {
                ActorWait::Sleep(Sleeper::Memory) => WakeWord::APPLICATION | WakeWord::MEMORY,
                ActorWait::Sleep(Sleeper::Application | Sleeper::Room) => WakeWord::APPLICATION,
                _ => 0,
            }
        })
    }

    /// Nothing will ever end a wait, so all waiting actors get the turn and report the deadlock.
    pub(crate) fn wake_stranded(&mut self) {
        let all: Vec<ActorId> = (self.of_rank.iter().flatten().copied())
            .filter(|id| self.actors[*id].phase == ActorPhase::Waiting)
            .collect();
        for id in all {
            self.actors[id].stranded = true;
            let clock = self.actors[id].clock;
            self.make_ready(id, clock);
        }
    }

    /// Sends news to the actors of a rank; actors whose waits end are ready from `time` on.
    pub(crate) fn notify(&mut self, rank: usize, news: News, time: VirtualTime) {
        for n in 0..self.of_rank[rank].len() {
            let id = self.of_rank[rank][n];
            let actor = &mut self.actors[id];
            let mut ends = false;
            for (wait, ended) in &mut actor.waits {
                ends = news.ends(*wait);
                *ended |= ends;
            }
            if ends && actor.phase == ActorPhase::Waiting {
                let clock = actor.clock.max(time);
                self.make_ready(id, clock);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_turn_is_given_when_every_rank_is_in_the_queue_for_it() {
        let mut turns = Turns::new(2);
        let [first, second] = [0, 1].map(|rank| turns.join(rank, Seat::here(), 0));
        // The thread of the first lost its core on the way from joining to the queue.
        turns.make_ready(second, 0);
        assert!(
            !turns.open,
            "the second would begin, though the first is as early"
        );
        turns.make_ready(first, 0);
        assert!(turns.open);
        assert_eq!(turns.take_first(), Some(first));
    }

    #[test]
    fn nobody_waits_for_a_rank_that_ended_before_it_wanted_a_turn() {
        let mut turns = Turns::new(2);
        let second = turns.join(1, Seat::here(), 0);
        turns.make_ready(second, 0);
        turns.note_arrival(0);
        assert!(turns.open);
    }
}
