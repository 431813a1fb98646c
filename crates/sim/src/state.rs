//! Everything that virtual time changes.

use std::collections::VecDeque;

use hydrant_base::{Random, mix};
use hydrant_conduit::{Caps, Rank, Standing, Standings};
use rustc_hash::FxHashMap;

use crate::{
    Profile,
    event::{EventQueue, SimEvent},
    memory::Segment,
    options::Statistics,
    paging::PageTable,
    pair::{InboxItem, PeerState},
    registry::ExtentRegistry,
    time::VirtualTime,
    transfer::{NicStages, NicTransfer},
    turns::{ActorId, News, Turns},
};

/// The parts that never change, or that any thread may read at any time.
pub(crate) struct SimShared {
    pub(crate) profile: Profile,
    pub(crate) caps: Caps,
    pub(crate) segments: Vec<Segment>,
    /// The probability of losing a packet, in 2^-32.
    pub(crate) loss: u64,
    /// The upper bound of a packet's random delay.
    pub(crate) delay: VirtualTime,
    /// The least time that anything takes from one NIC to another.
    pub(crate) moment: VirtualTime,
    /// Changed by [`SimState::end`] alone.
    pub(crate) standings: Standings,
}

impl SimShared {
    pub(crate) fn present(&self, rank: usize) -> bool {
        self.standings.of(SimState::rank_of(rank)) == Standing::Present
    }
}

/// A rank's part of the machine.
pub(crate) struct RankState {
    pub(crate) nic: NicStages,
    /// Messages that the rank may send before an earlier message has left.
    pub(crate) tokens: u64,
    /// State for each peer; empty before the rank has spoken to any.
    pairs: Box<[PeerState]>,
    pub(crate) inbox: VecDeque<InboxItem>,
    /// True while a thread delivers from the inbox.
    pub(crate) polling: bool,
    pub(crate) registry: ExtentRegistry,
    pub(crate) pages: PageTable,
    pub(crate) statistics: Statistics,
    pub(crate) registering: VirtualTime,
    pub(crate) computing: VirtualTime,
    /// The latest clock of the rank's threads, as of their last calls.
    pub(crate) clock: VirtualTime,
    /// True once a fault killed the rank.
    pub(crate) dead: bool,
    /// Set when the rank is over, to whether it left in good order. Others may not know yet.
    pub(crate) over: Option<bool>,
    /// Spans in which the rank attends to nothing.
    pub(crate) busy: Vec<(VirtualTime, VirtualTime)>,
    /// Conduits of the rank.
    pub(crate) handles: usize,
}

impl RankState {
    fn new(rank: usize, profile: &Profile) -> Self {
        Self {
            nic: NicStages::default(),
            tokens: profile.nic().send_tokens,
            pairs: Box::default(),
            inbox: VecDeque::new(),
            polling: false,
            registry: ExtentRegistry::new(rank),
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

    /// The earliest time from `time` on at which the rank attends to events.
    pub(crate) fn attends_from(&self, time: VirtualTime) -> VirtualTime {
        (self.busy.iter())
            .find(|(from, until)| (*from..*until).contains(&time))
            .map_or(time, |(_, until)| *until)
    }
}

/// Everything that virtual time changes.
pub(crate) struct SimState {
    /// The time of the last event.
    pub(crate) now: VirtualTime,
    pub(crate) events: EventQueue,
    pub(crate) turns: Turns,
    pub(crate) ranks: Vec<RankState>,
    pub(crate) transfers: FxHashMap<u64, NicTransfer>,
    /// Ranks that have ended without others knowing yet.
    ending: Vec<usize>,
    pub(crate) next_transfer: u64,
    pub(crate) random: Random,
    pub(crate) digest: u64,
}

impl SimState {
    pub(crate) fn new(ranks: usize, profile: &Profile, seed: u64) -> Self {
        Self {
            now: 0,
            events: EventQueue::default(),
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

    /// The state that `rank` keeps for `peer`.
    pub(crate) fn pair(&mut self, rank: usize, peer: usize) -> &mut PeerState {
        let all = self.ranks.len();
        let pairs = &mut self.ranks[rank].pairs;
        if pairs.is_empty() {
            *pairs = (0..all).map(|_| PeerState::default()).collect();
        }
        &mut pairs[peer]
    }

    /// Peers that a rank has unfinished business with. Each item counts the requests that the peer
    /// did not handle, the replies to it that wait for room, and its requests that wait for these.
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

    /// Lets everything happen that is earlier than the next turn. Returns the actor whose turn it
    /// is.
    pub(crate) fn advance(&mut self, fixed: &SimShared) -> Option<ActorId> {
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
                self.process_event(fixed);
                continue;
            }
            let id = self.turns.take_first()?;
            self.now = self.now.max(self.turns.actors[id].clock);
            return Some(id);
        }
    }

    /// Lets the next event happen.
    pub(crate) fn process_event(&mut self, fixed: &SimShared) {
        let Some((time, event)) = self.events.pop() else {
            return;
        };
        if let SimEvent::Timer(actor, number) = event {
            let actor_state = &self.turns.actors[actor];
            if actor_state.number != number {
                return; // stale: that wait is over
            }
            self.now = self.now.max(time);
            let rank = &self.ranks[actor_state.rank];
            let clock = rank.attends_from(actor_state.clock.max(time));
            self.turns.make_ready(actor, clock);
            return;
        }
        self.now = self.now.max(time);
        let [kind, name] = event.words();
        self.digest = mix(self.digest ^ mix(time ^ kind << 56) ^ name);
        match event {
            SimEvent::Start(transfer) => self.launch(fixed, transfer),
            SimEvent::Send(rank) => self.send_packet(fixed, rank as usize),
            SimEvent::Packet(packet) => self.arrive(fixed, packet),
            SimEvent::Landed(transfer) => {
                self.land(fixed, transfer);
                self.announce_ends(fixed);
            }
            SimEvent::Local(transfer) => self.complete_locally(transfer),
            SimEvent::Acked(transfer) => {
                self.acked(transfer);
                self.announce_ends(fixed);
            }
            SimEvent::Token(rank) => self.return_token(rank as usize),
            SimEvent::Handled(rank, peer) => self.request_handled(rank as usize, peer as usize),
            SimEvent::Taken(rank, peer) => self.reply_taken(fixed, rank as usize, peer as usize),
            SimEvent::Death(rank) => {
                self.ranks[rank as usize].dead = true;
                self.end(fixed, rank as usize, false);
            }
            SimEvent::Timer(..) => {}
        }
    }

    /// Sends news to a rank's threads.
    pub(crate) fn notify(&mut self, rank: usize, news: News) {
        let time = self.ranks[rank].attends_from(self.now);
        self.turns.notify(rank, news, time);
    }

    /// Ends a rank's part in the job. Its memory is out of reach and its NIC answers nothing.
    /// Transfers that it sent go on, and the news of its end does not overtake them: peers [learn
    /// of it](Self::announce_ends) when the last has arrived.
    pub(crate) fn end(&mut self, fixed: &SimShared, rank: usize, orderly: bool) {
        if self.ranks[rank].over.is_some() {
            return;
        }
        self.ranks[rank].over = Some(orderly);
        self.turns.note_arrival(rank);
        self.ranks[rank].registry.clear();
        self.ranks[rank].statistics.registered = 0;
        self.ending.push(rank);
        self.announce_ends(fixed);
    }

    /// Notes that a rank's program has come to its end, or goes on after all. Wakes the ranks whose
    /// programs have not come to theirs.
    pub(crate) fn come_to_end(&mut self, fixed: &SimShared, rank: usize, come: bool) {
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

    /// Announces the ended ranks that have no more transfers in flight.
    pub(crate) fn announce_ends(&mut self, fixed: &SimShared) {
        while let Some(at) = self
            .ending
            .iter()
            .position(|rank| !self.has_in_flight(*rank))
        {
            let rank = self.ending.remove(at);
            self.announce_end(fixed, rank);
        }
    }

    /// Announces a rank's end to all.
    fn announce_end(&mut self, fixed: &SimShared, rank: usize) {
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
