//! Everything that virtual time changes.

use std::collections::VecDeque;

use hydrant_conduit::{Caps, Rank, Standing, Standings};
use rustc_hash::FxHashMap;

use crate::{
    Profile,
    event::{Event, Queue},
    memory::Segment,
    options::Statistics,
    paging::PageTable,
    pair::{Item, Pair},
    registry::Registry,
    rng::{Random, mix},
    time::Time,
    transfer::{Nic, Transfer},
    turns::{ActorId, News, Turns},
};

/// What does not change, or may be looked at by anybody at any time.
pub(crate) struct Fixed {
    pub(crate) profile: Profile,
    pub(crate) caps: Caps,
    pub(crate) segments: Vec<Segment>,
    /// Packets lost, of 2^32.
    pub(crate) loss: u64,
    /// Packets are late by less than this.
    pub(crate) delay: Time,
    /// The least that anything takes from one NIC to another.
    pub(crate) moment: Time,
    /// Changed by [`State::end`] alone.
    pub(crate) standings: Standings,
}

impl Fixed {
    pub(crate) fn present(&self, rank: usize) -> bool {
        self.standings.of(State::rank_of(rank)) == Standing::Present
    }
}

/// A rank's part of the machine.
pub(crate) struct RankState {
    pub(crate) nic: Nic,
    /// Messages it may still send before one has left.
    pub(crate) tokens: u64,
    /// What it has to do with each peer; empty before it spoke to any.
    pairs: Box<[Pair]>,
    pub(crate) inbox: VecDeque<Item>,
    /// A thread delivers from the inbox.
    pub(crate) polling: bool,
    pub(crate) registry: Registry,
    pub(crate) pages: PageTable,
    pub(crate) statistics: Statistics,
    pub(crate) registering: Time,
    pub(crate) computing: Time,
    /// The clock of the thread that was farthest when it called last.
    pub(crate) clock: Time,
    /// It died by a fault.
    pub(crate) dead: bool,
    /// Its part is over, in good order or not, though others may not know yet.
    pub(crate) over: Option<bool>,
    /// When it attends to nothing.
    pub(crate) busy: Vec<(Time, Time)>,
    /// Conduits that stand for it.
    pub(crate) handles: usize,
}

impl RankState {
    fn new(rank: usize, profile: &Profile) -> Self {
        Self {
            nic: Nic::default(),
            tokens: profile.nic().send_tokens,
            pairs: Box::default(),
            inbox: VecDeque::new(),
            polling: false,
            registry: Registry::new(rank),
            pages: PageTable::default(),
            statistics: Statistics::default(),
            registering: 0,
            computing: 0,
            clock: 0,
            dead: false,
            over: None,
            busy: Vec::new(),
            handles: 0,
        }
    }

    /// When the rank attends to what happens at a time.
    pub(crate) fn attends(&self, time: Time) -> Time {
        (self.busy.iter())
            .find(|(from, until)| (*from..*until).contains(&time))
            .map_or(time, |(_, until)| *until)
    }
}

/// Everything that virtual time changes.
pub(crate) struct State {
    /// The time of what happened last.
    pub(crate) now: Time,
    pub(crate) events: Queue,
    pub(crate) turns: Turns,
    pub(crate) ranks: Vec<RankState>,
    pub(crate) transfers: FxHashMap<u64, Transfer>,
    /// Ranks that ended, of which others do not know yet.
    ending: Vec<usize>,
    pub(crate) next_transfer: u64,
    pub(crate) random: Random,
    pub(crate) digest: u64,
}

impl State {
    pub(crate) fn new(ranks: usize, profile: &Profile, seed: u64) -> Self {
        Self {
            now: 0,
            events: Queue::default(),
            turns: Turns::new(ranks),
            ranks: (0..ranks)
                .map(|rank| RankState::new(rank, profile))
                .collect(),
            transfers: FxHashMap::default(),
            ending: Vec::new(),
            next_transfer: 1,
            random: Random::new(seed),
            digest: 0,
        }
    }

    /// What `rank` has to do with `peer`.
    pub(crate) fn pair(&mut self, rank: usize, peer: usize) -> &mut Pair {
        let all = self.ranks.len();
        let pairs = &mut self.ranks[rank].pairs;
        if pairs.is_empty() {
            *pairs = (0..all).map(|_| Pair::default()).collect();
        }
        &mut pairs[peer]
    }

    /// Peers that a rank has unfinished business with: requests to them that they did not handle,
    /// replies to them that wait for room, requests of theirs that wait for these.
    pub(crate) fn open_business(
        &self,
        rank: usize,
    ) -> impl Iterator<Item = (usize, u64, usize, usize)> {
        (self.ranks[rank].pairs.iter().enumerate())
            .map(|(peer, pair)| {
                let (kept, held) = pair.kept_back();
                (peer, pair.sent - pair.handled, kept, held)
            })
            .filter(|(_, unhandled, kept, held)| (*unhandled, *kept, *held) != (0, 0, 0))
    }

    /// Lets everything happen that is earlier than the next turn: whose that is.
    pub(crate) fn advance(&mut self, fixed: &Fixed) -> Option<ActorId> {
        if !self.turns.open {
            return None;
        }
        loop {
            let due = match (self.events.next_time(), self.turns.next_time()) {
                (Some(event), Some(turn)) => event <= turn,
                (Some(_), None) => self.turns.anyone_waits(),
                (None, _) => false,
            };
            if due {
                self.happen(fixed);
                continue;
            }
            let id = self.turns.take_first()?;
            self.now = self.now.max(self.turns.actors[id].clock);
            return Some(id);
        }
    }

    /// Lets the next event happen.
    pub(crate) fn happen(&mut self, fixed: &Fixed) {
        let Some((time, event)) = self.events.pop() else {
            return;
        };
        if let Event::Timer(actor, number) = event {
            let actor_state = &self.turns.actors[actor];
            if actor_state.number != number {
                return; // that wait was over before: no time passes for it
            }
            self.now = self.now.max(time);
            let rank = &self.ranks[actor_state.rank];
            let clock = rank.attends(actor_state.clock.max(time));
            self.turns.make_ready(actor, clock);
            return;
        }
        self.now = self.now.max(time);
        let [kind, name] = event.words();
        self.digest = mix(self.digest ^ mix(time ^ kind << 56) ^ name);
        match event {
            Event::Start(transfer) => self.launch(fixed, transfer),
            Event::Send(rank) => self.send_packet(fixed, rank as usize),
            Event::Packet(packet) => self.arrive(fixed, packet),
            Event::Landed(transfer) => {
                self.land(fixed, transfer);
                self.tell_ends(fixed);
            }
            Event::Local(transfer) => self.left_source(transfer),
            Event::Acked(transfer) => {
                self.acked(transfer);
                self.tell_ends(fixed);
            }
            Event::Token(rank) => self.token_back(rank as usize),
            Event::Handled(rank, peer) => self.request_handled(rank as usize, peer as usize),
            Event::Taken(rank, peer) => self.reply_taken(fixed, rank as usize, peer as usize),
            Event::Death(rank) => {
                self.ranks[rank as usize].dead = true;
                self.end(fixed, rank as usize, false);
            }
            Event::Timer(..) => {}
        }
    }

    /// Tells a rank's threads.
    pub(crate) fn notify(&mut self, rank: usize, news: News) {
        let time = self.ranks[rank].attends(self.now);
        self.turns.notify(rank, news, time);
    }

    /// A rank's part in the job is over. Nobody reaches its memory any more, and its NIC answers
    /// nothing. What it had sent goes on, and the news of its end does not overtake that: it is
    /// [known](Self::tell_ends) when the last of it has arrived.
    pub(crate) fn end(&mut self, fixed: &Fixed, rank: usize, orderly: bool) {
        if self.ranks[rank].over.is_some() {
            return;
        }
        self.ranks[rank].over = Some(orderly);
        self.turns.came(rank);
        self.ranks[rank].registry.clear();
        self.ranks[rank].statistics.registered = 0;
        self.ending.push(rank);
        self.tell_ends(fixed);
    }

    /// Notes that a rank's program has come to its end, or goes on after all. Ranks whose own program has not are
    /// woken.
    pub(crate) fn come_to_end(&mut self, fixed: &Fixed, rank: usize, come: bool) {
        if fixed
            .standings
            .announce_end(Self::rank_of(rank), come)
            .is_none()
        {
            return;
        }
        for peer in 0..self.ranks.len() {
            if !fixed.standings.has_come_to_end(Self::rank_of(peer)) {
                self.notify(peer, News::Wake);
            }
        }
    }

    /// Tells of the ranks that ended and of which nothing is under way any more.
    pub(crate) fn tell_ends(&mut self, fixed: &Fixed) {
        while let Some(at) = self.ending.iter().position(|rank| !self.speaks(*rank)) {
            let rank = self.ending.remove(at);
            self.tell_end(fixed, rank);
        }
    }

    /// All learn that a rank has ended.
    fn tell_end(&mut self, fixed: &Fixed, rank: usize) {
        let orderly = self.ranks[rank].over == Some(true);
        fixed.standings.end(Self::rank_of(rank), orderly);
        self.end_transfers(rank);
        for peer in 0..self.ranks.len() {
            if !self.ranks[peer].pairs.is_empty() {
                self.forget_replies(peer, rank);
            }
        }
        for peer in 0..self.ranks.len() {
            self.notify(peer, News::Wake);
        }
    }

    pub(crate) fn rank_of(rank: usize) -> Rank {
        Rank(rank as u32)
    }
}
