//! What peers do with own memory: the target's side of moves (Firehose §3.2, 3).

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::{Claimant, Engine, Remote, Verdict, audit::agree, local::Hold};
use crate::{
    Action, Data, Message, Refusal, Run,
    strategy::After,
    wire::{Granted, MAX_LIST, Move, Need},
};

/// The peers that hold firehoses here, and sums over them, so that nobody is counted anew for
/// each move.
#[derive(Debug, Default)]
pub(super) struct Guests {
    peers: FxHashMap<u32, Guest>,
    /// What they attached or were lent, whichever is more.
    used: u64,
    /// Buckets that each peer is sure to find, whatever others were lent and keep.
    sure: u64,
    /// Buckets beyond those that peers attached, or are about to.
    above: u64,
    /// Who was lent how many.
    borrowers: BTreeSet<(u64, u32)>,
}

impl Guests {
    pub(super) fn new(sure: u64) -> Self {
        Self {
            sure,
            ..Self::default()
        }
    }

    fn get(&self, peer: u32) -> Option<&Guest> {
        self.peers.get(&peer)
    }

    fn change<T>(&mut self, peer: u32, change: impl FnOnce(&mut Guest) -> T) -> T {
        let guest = self.peers.entry(peer).or_default();
        let sure = self.sure;
        let before = (guest.used(), guest.lent, guest.above(sure));
        let outcome = change(guest);
        let after = (guest.used(), guest.lent, guest.above(sure));
        self.used = self.used - before.0 + after.0;
        self.above = self.above - before.2 + after.2;
        if before.1 != after.1 {
            self.borrowers.remove(&(before.1, peer));
            if after.1 > 0 {
                self.borrowers.insert((after.1, peer));
            }
        }
        outcome
    }

    pub(super) fn attached_by(&self, peer: u32) -> u64 {
        self.get(peer).map_or(0, |guest| guest.buckets)
    }

    /// References by record.
    pub(super) fn audit(&self) -> Result<FxHashMap<u32, u32>, String> {
        let mut slots = FxHashMap::default();
        for slot in self.peers.values().flat_map(Guest::slots) {
            *slots.entry(slot).or_default() += 1;
        }
        for (peer, guest) in &self.peers {
            let attached = guest.attached.iter();
            let buckets = attached
                .map(|(run, it)| run.count * u64::from(it.times))
                .sum();
            agree(&format!("buckets of rank {peer}"), guest.buckets, buckets)?;
        }
        let used = self.peers.values().map(Guest::used).sum();
        agree("buckets used or lent", self.used, used)?;
        let above = self
            .peers
            .values()
            .map(|guest| guest.above(self.sure))
            .sum();
        agree("buckets beyond what is sure", self.above, above)?;
        let borrowers = self.peers.values().filter(|guest| guest.lent > 0);
        agree("borrowers", self.borrowers.len(), borrowers.count())?;
        Ok(slots)
    }

    pub(super) fn entries(&self) -> usize {
        (self.peers.values())
            .map(|guest| 1 + guest.attached.len())
            .sum()
    }

    fn remove(&mut self, peer: u32) -> Option<Guest> {
        let guest = self.peers.remove(&peer)?;
        self.used -= guest.used();
        self.above -= guest.above(self.sure);
        self.borrowers.remove(&(guest.lent, peer));
        Some(guest)
    }
}

/// A peer that holds firehoses here.
#[derive(Debug, Default)]
struct Guest {
    /// The record of each grant, by run.
    attached: FxHashMap<Run, Attached>,
    /// Buckets attached in all.
    buckets: u64,
    /// Buckets of moves being answered.
    asked: u64,
    /// Firehoses lent to it beyond its share.
    lent: u64,
    /// At most. Of those asked back it may not know yet.
    most_lent: u64,
}

/// A grant that a peer holds. Firehoses are attached once; operations without them may hold
/// one run several times at once.
#[derive(Clone, Copy, Debug)]
struct Attached {
    slot: u32,
    times: u32,
}

impl Guest {
    fn used(&self) -> u64 {
        self.buckets.max(self.lent)
    }

    fn above(&self, sure: u64) -> u64 {
        (self.buckets + self.asked).saturating_sub(sure)
    }

    fn arrive(&mut self, run: Run, slot: u32) {
        let attached = self
            .attached
            .entry(run)
            .or_insert(Attached { slot, times: 0 });
        attached.times += 1;
        self.buckets += run.count;
    }

    /// The record whose reference is given back.
    fn leave(&mut self, run: Run) -> Option<u32> {
        let attached = self.attached.get_mut(&run)?;
        let slot = attached.slot;
        attached.times -= 1;
        if attached.times == 0 {
            self.attached.remove(&run);
        }
        self.buckets -= run.count;
        Some(slot)
    }

    /// The records of its grants, as often as it holds them; in an order that does not follow from
    /// where memory lies.
    fn slots(&self) -> Vec<u32> {
        let attached = self.attached.values();
        let mut slots: Vec<u32> = attached
            .flat_map(|attached| (0..attached.times).map(|_| attached.slot))
            .collect();
        slots.sort_unstable();
        slots
    }
}

/// A move being answered.
#[derive(Debug)]
pub(super) struct Served {
    from: u32,
    wanted: Move,
    /// Buckets it asks for.
    count: u64,
    registrations: u64,
}

impl Engine {
    pub(super) fn serve_move(
        &mut self,
        from: u32,
        wanted: Move,
        verdict: Verdict,
        out: &mut Vec<Action>,
    ) -> Result<(), &'static str> {
        let hold = match self.policy.remote {
            Remote::Firehose => true,
            Remote::Handshake(after) => after != After::Keep,
            _ => return Err("a move, where nothing is registered on request"),
        };
        if wanted.hold != hold || (!hold && !wanted.releases.is_empty()) {
            return Err("a move of another strategy");
        }
        if wanted.needs.is_empty() {
            return Err("a move that needs nothing");
        }
        // What is counted here once is not to be attached twice.
        let apart = |pair: &[Need]| pair[0].welcome.end() <= pair[1].welcome.first;
        if !wanted.needs.windows(2).all(apart) {
            return Err("a move whose needs overlap, or are not in order");
        }
        if let Some(ride) = wanted.ride
            && (wanted.needs.len() != 1 || ride.len as usize > self.config.ride)
        {
            return Err("a ride that is too long, or on a move of several needs");
        }
        self.take_back(from, &wanted.releases, false, out)?;
        let count = wanted.needs.iter().map(|need| need.welcome.count).sum();
        let admitted = self.admits(from, count)?;
        if !admitted {
            self.call_back(from, count, out);
        }
        let why = match admitted {
            true => verdict.objection().or(self.holds_back(&wanted)),
            false => Some(Refusal::Limit),
        };
        self.stats.served += 1;
        if let Some(why) = why {
            let granted = Granted {
                id: wanted.id,
                last: true,
                refused: wanted.needs.iter().map(|need| (need.run, why)).collect(),
                ..Granted::default()
            };
            self.answer(from, &wanted, granted, verdict.refusal(), out);
            self.local.settle(out);
            return Ok(());
        }
        let (needs, write) = (wanted.needs.clone(), wanted.write);
        let id = self.name();
        self.guests.change(from, |guest| guest.asked += count);
        let registrations = self.local.stats.registrations;
        let claim = self.local.claim(Claimant::Move(id), needs, write, out);
        let served = Served {
            from,
            wanted: match self.local.is_pending(claim) {
                true => self.answer_ride(from, wanted, out),
                false => wanted,
            },
            count,
            registrations,
        };
        self.served.insert(id, served);
        self.local.settle(out);
        Ok(())
    }

    /// What rode on a move needs nothing of what it waits for: its asker is told at once, and
    /// waits for a message there and back instead of a registration.
    fn answer_ride(&self, to: u32, mut wanted: Move, out: &mut Vec<Action>) -> Move {
        if wanted.ride.is_some() {
            let granted = Granted {
                id: wanted.id,
                ..Granted::default()
            };
            self.answer(to, &wanted, granted, None, out);
            wanted.ride = None;
        }
        wanted
    }

    /// Whether a peer may have so many buckets more. Of firehoses it knows how many it owns;
    /// without them, more than could ever be registered are refused, and it copies.
    ///
    /// What a peer was lent it may keep, whatever it is asked. So nobody gets more than is
    /// [sure](Limits::sure) unless so much is left for each of the others: they find it
    /// there, and for what is more they copy until it is given back.
    fn admits(&self, peer: u32, count: u64) -> Result<bool, &'static str> {
        let (has, most_lent) = (self.guests.get(peer)).map_or((0, 0), |guest| {
            (guest.buckets + guest.asked, guest.most_lent)
        });
        if self.policy.remote != Remote::Firehose {
            return Ok(count <= self.limits.total && has + count <= 4 * self.limits.total);
        }
        if has + count > self.limits.share + most_lent {
            return Err("a move for more firehoses than the peer owns");
        }
        let Guests { sure, above, .. } = self.guests;
        let more = (has + count).saturating_sub(sure) - has.saturating_sub(sure);
        let peers = u64::from(self.config.ranks - 1);
        Ok(more == 0 || peers * sure + above + more <= self.limits.peers_total)
    }

    /// Memory that is being taken back is attached to nobody; what is near it may be copied.
    fn holds_back(&self, wanted: &Move) -> Option<Refusal> {
        let goes = |need: &Need| self.is_going(need.welcome);
        wanted.needs.iter().any(goes).then_some(Refusal::Limit)
    }

    /// What a move asked for is registered, as far as it can be.
    pub(super) fn answer_move(&mut self, id: u64, claim: u64, out: &mut Vec<Action>) {
        let Some(Served {
            from,
            wanted,
            count,
            registrations,
        }) = self.served.remove(&id)
        else {
            self.local.end(claim, false, out);
            return;
        };
        self.guests.change(from, |guest| guest.asked -= count);
        let (mut refused, extents) = (self.local.get(claim)).map_or_else(Default::default, |it| {
            (it.refused.clone(), self.local.extents(it))
        });
        if registrations == self.local.stats.registrations {
            self.stats.served_from_cache += 1;
        }
        let holds = if extents.iter().any(|extent| self.is_going(*extent)) {
            // It began to go meanwhile.
            self.local.end(claim, false, out);
            refused = (wanted.needs.iter())
                .map(|need| (need.run, Refusal::Limit))
                .collect();
            Vec::new()
        } else if wanted.hold {
            let holds = self.local.attach(claim);
            self.guests.change(from, |guest| {
                for hold in &holds {
                    guest.arrive(hold.run, hold.slot);
                }
            });
            holds
        } else {
            self.keep_for(from, claim, out)
        };
        self.stats.refused += refused.len() as u64;
        let lent = self.lend(from, wanted.borrow);
        if refused.iter().any(|(_, why)| *why == Refusal::Limit) {
            self.call_back(from, count, out);
        }
        let parts = holds.len().max(refused.len()).div_ceil(MAX_LIST).max(1);
        for part in 0..parts {
            let last = part + 1 == parts;
            let granted = Granted {
                id: wanted.id,
                last,
                lent: if last { lent } else { 0 },
                grants: slice(&holds, part).iter().map(Hold::grant).collect(),
                refused: slice(&refused, part).to_vec(),
                ride: None,
            };
            match last {
                true => self.answer(from, &wanted, granted, None, out),
                false => self.send(from, Message::Granted(granted), out),
            }
        }
        self.local.settle(out);
    }

    /// Hands what a claim holds to a peer that never gives anything back by itself: it has one
    /// reference on each extent, until the memory goes and it says that it uses none of it, or it
    /// is gone. Without that, one's memory going would take the extent from under transfers to
    /// its neighbours.
    fn keep_for(&mut self, peer: u32, claim: u64, out: &mut Vec<Action>) -> Vec<Hold> {
        let holds = self.local.attach(claim);
        for hold in &holds {
            let extent = self.local.extent(hold.slot);
            let new = (self.guests).change(peer, |guest| {
                let new = !guest.attached.contains_key(&extent);
                if new {
                    guest.arrive(extent, hold.slot);
                }
                new
            });
            if !new {
                self.local.detach(hold.slot, false, out);
            }
        }
        holds
    }

    /// A peer uses nothing any more of what it was let keep of a run.
    pub(super) fn forget_kept(&mut self, peer: u32, run: Run, out: &mut Vec<Action>) {
        let Some(guest) = self.guests.get(peer) else {
            return;
        };
        let attached = guest.attached.keys().filter(|kept| kept.overlaps(run));
        let mut kept: Vec<Run> = attached.copied().collect();
        kept.sort_unstable();
        for extent in kept {
            if let Some(slot) = self.guests.change(peer, |guest| guest.leave(extent)) {
                self.local.detach(slot, false, out);
            }
        }
    }

    /// Answers a move, or the part of it that tells how its ride went.
    fn answer(
        &self,
        to: u32,
        wanted: &Move,
        mut granted: Granted,
        verdict: Option<Refusal>,
        out: &mut Vec<Action>,
    ) {
        let mut data = Data::None;
        if let Some(ride) = wanted.ride {
            granted.ride = Some(match verdict {
                Some(why) => Err(why),
                None if wanted.write => Ok(0),
                None => {
                    data = Data::Asked {
                        region: wanted.region,
                        addr: ride.addr,
                        len: ride.len,
                    };
                    Ok(ride.len)
                }
            });
        }
        self.send_with(to, Message::Granted(granted), data, out);
    }

    pub(super) fn given_back(
        &mut self,
        from: u32,
        runs: &[Run],
        unpin: bool,
        out: &mut Vec<Action>,
    ) -> Result<(), &'static str> {
        let outcome = self.take_back(from, runs, unpin, out);
        self.local.settle(out);
        outcome
    }

    /// A peer gives back what it was granted.
    pub(super) fn take_back(
        &mut self,
        from: u32,
        runs: &[Run],
        unpin: bool,
        out: &mut Vec<Action>,
    ) -> Result<(), &'static str> {
        for run in runs {
            if self.guests.get(from).is_none() {
                return Err("a release by a peer that holds nothing");
            }
            let slot = (self.guests)
                .change(from, |guest| guest.leave(*run))
                .ok_or("a release of what is not held")?;
            self.local.detach(slot, unpin, out);
        }
        Ok(())
    }

    /// Lends what other peers leave unused, but for an eighth of M that stays for newcomers; what
    /// is lent is no promise that there is room when it is used.
    fn lend(&mut self, to: u32, wish: u64) -> u64 {
        if wish == 0 || !self.config.borrowing {
            return 0;
        }
        let m = self.limits.peers_total;
        let lent = wish.min(m.saturating_sub(m / 8 + self.guests.used) / 2);
        self.guests.change(to, |guest| {
            guest.lent += lent;
            guest.most_lent = guest.most_lent.max(guest.lent);
        });
        self.stats.lent += lent;
        lent
    }

    /// Asks for lent firehoses back, from whom most were lent to.
    fn call_back(&mut self, newcomer: u32, count: u64, out: &mut Vec<Action>) {
        let borrowers = self.guests.borrowers.iter().rev();
        let Some((lent, peer)) = borrowers.copied().find(|(_, peer)| *peer != newcomer) else {
            return;
        };
        let count = lent.min(count.max(lent.div_ceil(2)));
        self.guests.change(peer, |guest| guest.lent -= count);
        self.stats.recalled += count;
        self.send(peer, Message::Recall { count }, out);
    }

    /// A peer is gone with all it held.
    pub(super) fn guest_left(&mut self, peer: u32, out: &mut Vec<Action>) {
        self.served.retain(|_, served| served.from != peer);
        self.forget_pulls(peer);
        if let Some(guest) = self.guests.remove(peer) {
            for slot in guest.slots() {
                self.local.detach(slot, false, out);
            }
            self.local.settle(out);
        }
    }

    /// The peers that hold some of the extents of a run.
    pub(super) fn guests_with(&self, run: Run) -> Vec<u32> {
        let holds = |guest: &Guest| guest.attached.keys().any(|held| held.overlaps(run));
        let mut peers: Vec<u32> = (self.guests.peers.iter())
            .filter(|(_, guest)| holds(guest))
            .map(|(peer, _)| *peer)
            .collect();
        peers.sort_unstable();
        peers
    }
}

fn slice<T>(list: &[T], part: usize) -> &[T] {
    list.chunks(MAX_LIST).nth(part).unwrap_or_default()
}
