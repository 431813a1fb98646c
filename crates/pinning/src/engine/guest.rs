//! What peers do with own memory: the target's side of moves and pulls (Firehose §3.2, 3).

use rustc_hash::FxHashMap;

use super::{Claimant, Engine, Leg, local::Hold};
use crate::{
    Action, Data, Message, Refusal, Run,
    wire::{Granted, MAX_LIST, Move, Need, Place},
};

/// A peer that holds firehoses here.
#[derive(Debug, Default)]
pub(super) struct Guest {
    /// The record of each grant, by run.
    attached: FxHashMap<Run, Attached>,
    /// Buckets attached in all.
    buckets: u64,
    /// Firehoses lent to it beyond its share.
    lent: u64,
}

/// A grant that a peer holds. Firehoses are attached once; operations without them may hold
/// one run several times at once.
#[derive(Clone, Copy, Debug)]
struct Attached {
    slot: u32,
    times: u32,
}

impl Guest {
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

    fn slots(&self) -> impl Iterator<Item = u32> {
        (self.attached.values()).flat_map(|attached| (0..attached.times).map(|_| attached.slot))
    }
}

/// A move being answered.
#[derive(Debug)]
pub(super) struct Served {
    from: u32,
    wanted: Move,
    registrations: u64,
}

/// A pull being answered.
#[derive(Debug)]
pub(super) struct Pull {
    from: u32,
    /// The puller's name for it.
    id: u64,
    addr: u64,
    to: Vec<Place>,
    claim: u64,
    legs: u32,
    failed: bool,
}

impl Engine {
    pub(super) fn serve_move(
        &mut self,
        from: u32,
        wanted: Move,
        verdict: Option<Refusal>,
        out: &mut Vec<Action>,
    ) -> Result<(), &'static str> {
        if wanted.needs.is_empty() {
            return Err("a move that needs nothing");
        }
        if wanted.ride.is_some() && wanted.needs.len() != 1 {
            return Err("a ride on a move of several needs");
        }
        self.take_back(from, &wanted.releases, false, out)?;
        self.stats.served += 1;
        if let Some(why) = verdict {
            let granted = Granted {
                id: wanted.id,
                last: true,
                refused: wanted.needs.iter().map(|need| (need.run, why)).collect(),
                ride: wanted.ride.map(|_| Err(why)),
                ..Granted::default()
            };
            self.send(from, Message::Granted(granted), out);
            self.local.settle(out);
            return Ok(());
        }
        let (needs, write) = (wanted.needs.clone(), wanted.write);
        let id = self.name();
        self.served.insert(
            id,
            Served {
                from,
                wanted,
                registrations: self.local.stats.registrations,
            },
        );
        self.local.claim(Claimant::Move(id), needs, write, out);
        self.local.settle(out);
        Ok(())
    }

    /// What a move asked for is registered, as far as it can be.
    pub(super) fn answer_move(&mut self, id: u64, claim: u64, out: &mut Vec<Action>) {
        let Some(Served {
            from,
            wanted,
            registrations,
        }) = self.served.remove(&id)
        else {
            self.local.end(claim, false, out);
            return;
        };
        let refused = self
            .local
            .get(claim)
            .map_or(Vec::new(), |claim| claim.refused.clone());
        if registrations == self.local.stats.registrations {
            self.stats.served_from_cache += 1;
        }
        self.stats.refused += refused.len() as u64;
        let holds = if wanted.hold {
            let holds = self.local.attach(claim);
            let guest = self.guests.entry(from).or_default();
            for hold in &holds {
                guest.arrive(hold.run, hold.slot);
            }
            holds
        } else {
            self.local.keep(claim, out)
        };
        let lent = self.lend(from, wanted.borrow);
        if refused.iter().any(|(_, why)| *why == Refusal::Limit) {
            self.call_back(
                from,
                wanted.needs.iter().map(|need| need.run.count).sum(),
                out,
            );
        }
        let (ride, data) = match wanted.ride {
            Some(_) if wanted.write => (Some(Ok(0)), Data::None),
            Some(ride) => (
                Some(Ok(ride.len)),
                Data::Asked {
                    addr: ride.addr,
                    len: ride.len,
                },
            ),
            None => (None, Data::None),
        };
        let parts = holds.len().max(refused.len()).div_ceil(MAX_LIST).max(1);
        for part in 0..parts {
            let last = part + 1 == parts;
            let granted = Granted {
                id: wanted.id,
                last,
                lent: if last { lent } else { 0 },
                grants: slice(&holds, part).iter().map(Hold::grant).collect(),
                refused: slice(&refused, part).to_vec(),
                ride: ride.filter(|_| last),
            };
            out.push(Action::Send {
                to: from,
                message: Message::Granted(granted),
                data: if last { data } else { Data::None },
            });
        }
        self.local.settle(out);
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
            let slot = (self.guests.get_mut(&from))
                .and_then(|guest| guest.leave(*run))
                .ok_or("a release of what is not held")?;
            self.local.detach(slot, unpin, out);
        }
        Ok(())
    }

    /// Lends what other peers leave unused, but for an eighth of M that stays for newcomers.
    fn lend(&mut self, to: u32, wish: u64) -> u64 {
        if wish == 0 || !self.config.borrowing {
            return 0;
        }
        let m = self.limits.peers_total;
        let used: u64 = (self.guests.values())
            .map(|guest| guest.buckets.max(guest.lent))
            .sum();
        let lent = wish.min(m.saturating_sub(m / 8 + used) / 2);
        self.guests.entry(to).or_default().lent += lent;
        self.stats.lent += lent;
        lent
    }

    /// Asks for lent firehoses back, from whom most were lent to.
    fn call_back(&mut self, newcomer: u32, count: u64, out: &mut Vec<Action>) {
        let borrower = (self.guests.iter_mut())
            .filter(|(peer, guest)| **peer != newcomer && guest.lent > 0)
            .max_by_key(|(peer, guest)| (guest.lent, **peer));
        if let Some((peer, guest)) = borrower {
            let count = guest.lent.min(count.max(guest.lent.div_ceil(2)));
            guest.lent -= count;
            self.stats.recalled += count;
            let peer = *peer;
            self.send(peer, Message::Recall { count }, out);
        }
    }

    /// A peer is gone with all it held.
    pub(super) fn guest_left(&mut self, peer: u32, out: &mut Vec<Action>) {
        self.served.retain(|_, served| served.from != peer);
        if let Some(guest) = self.guests.remove(&peer) {
            for slot in guest.slots() {
                self.local.detach(slot, false, out);
            }
            self.local.settle(out);
        }
    }

    /// What a peer holds within a run.
    pub(super) fn held_by(&self, peer: u32, run: Run) -> bool {
        self.guests
            .get(&peer)
            .is_some_and(|guest| guest.attached.keys().any(|held| held.overlaps(run)))
    }

    pub(super) fn guests_with(&self, run: Run) -> Vec<u32> {
        let mut peers: Vec<u32> = (self.guests.keys().copied())
            .filter(|peer| self.held_by(*peer, run))
            .collect();
        peers.sort_unstable();
        peers
    }

    /// A peer wants own memory written to its own.
    pub(super) fn serve_pull(
        &mut self,
        from: u32,
        id: u64,
        addr: u64,
        to: Vec<Place>,
        verdict: Option<Refusal>,
        out: &mut Vec<Action>,
    ) -> Result<(), &'static str> {
        let len = to
            .iter()
            .try_fold(0_u64, |sum, place| sum.checked_add(place.len));
        let run = len
            .and_then(|len| self.limits.geometry.span(addr, len).ok())
            .filter(|run| run.count > 0)
            .ok_or("a pull of no memory")?;
        if verdict.is_some() {
            self.send(
                from,
                Message::Pulled {
                    id,
                    refused: verdict,
                },
                out,
            );
            return Ok(());
        }
        let name = self.name();
        let pull = Pull {
            from,
            id,
            addr,
            to,
            claim: 0,
            legs: 0,
            failed: false,
        };
        self.pulls.insert(name, pull);
        let need = Need { run, welcome: run };
        self.local
            .claim(Claimant::Pull(name), vec![need], false, out);
        Ok(())
    }

    /// The source of a pull is registered, or was refused.
    pub(super) fn pull_data(&mut self, name: u64, claim: u64, out: &mut Vec<Action>) {
        let Some(pull) = self.pulls.get_mut(&name) else {
            self.local.end(claim, false, out);
            return;
        };
        pull.claim = claim;
        pull.legs = 1;
        let Some(claim) = self
            .local
            .get(claim)
            .filter(|claim| claim.refused.is_empty())
        else {
            pull.failed = true;
            self.pull_done(name, false, out);
            return;
        };
        let geometry = self.limits.geometry;
        let mut near = (claim.holds.iter())
            .map(|hold| (geometry.address_of(hold.run.end()), hold.key))
            .peekable();
        let (peer, mut addr) = (pull.from, pull.addr);
        let mut transfers = Vec::new();
        for place in pull.to.clone() {
            let mut done = 0;
            while done < place.len
                && let Some((end, key)) = near.peek().copied()
            {
                let len = (end - addr).min(place.len - done);
                if len > 0 {
                    transfers.push((addr, key, place.addr + done, place.key, len));
                }
                addr += len;
                done += len;
                if addr == end {
                    near.next();
                }
            }
        }
        pull.legs += transfers.len() as u32;
        for (local, local_key, remote, remote_key, len) in transfers {
            let id = self.name();
            self.legs.insert(id, Leg::Pull(name));
            out.push(Action::Transfer {
                id,
                peer,
                put: true,
                local,
                local_key,
                remote,
                remote_key,
                len,
            });
        }
        self.pull_done(name, true, out);
    }

    pub(super) fn pull_done(&mut self, name: u64, fine: bool, out: &mut Vec<Action>) {
        let Some(pull) = self.pulls.get_mut(&name) else {
            return;
        };
        pull.failed |= !fine;
        pull.legs -= 1;
        if pull.legs > 0 {
            return;
        }
        if let Some(pull) = self.pulls.remove(&name) {
            let unpin = self.policy.local == super::LocalPolicy::PerOperation;
            self.local.end(pull.claim, unpin, out);
            let refused = pull.failed.then_some(Refusal::Limit);
            self.send(
                pull.from,
                Message::Pulled {
                    id: pull.id,
                    refused,
                },
                out,
            );
        }
    }
}

fn slice<T>(list: &[T], part: usize) -> &[T] {
    list.chunks(MAX_LIST).nth(part).unwrap_or_default()
}
