//! What peers do with own memory: the target's side of moves (Firehose §3.2, 3).

use super::{
    super::local::{Hold, Requester},
    Context, Data, Message, Target, Verdict,
};
use crate::{
    Refusal, Run, Use, Violation,
    strategy::{After, Remote},
    wire::{Granted, MAX_LIST, Move, Need},
};

/// A move being answered.
#[derive(Debug)]
pub(super) struct Served {
    /// Who asks.
    from: u32,
    /// What it asks for.
    wanted: Move,
    /// Buckets it asks for.
    count: u64,
    /// Registrations asked for before it: if there were none since, it needed none.
    registrations: u64,
    /// What was piggybacked on it is answered: only operations that need the same buckets may wait for the rest.
    told: bool,
}

impl Served {
    pub(super) fn is_of(&self, peer: u32) -> bool {
        self.from == peer
    }
}

impl Target {
    /// A peer asks for own memory.
    pub(in crate::engine) fn serve_move(
        &mut self,
        from: u32,
        wanted: Move,
        verdict: Verdict,
        cx: &mut Context<'_>,
    ) -> Result<(), Violation> {
        let hold = match cx.policy().remote {
            Remote::Firehose => true,
            Remote::Handshake(after) => after != After::Keep,
            _ => return Err(Violation::NothingOnRequest),
        };
        if wanted.hold != hold || (!hold && !wanted.releases.is_empty()) {
            return Err(Violation::OtherStrategy);
        }
        if wanted.needs.is_empty() {
            return Err(Violation::NoNeeds);
        }
        // What is counted here once is not to be attached twice.
        let apart = |pair: &[Need]| pair[0].preferred.end() <= pair[1].preferred.first;
        if !wanted.needs.windows(2).all(apart) {
            return Err(Violation::NeedsOutOfOrder);
        }
        if let Some(piggyback) = wanted.piggyback
            && (wanted.needs.len() != 1 || piggyback.len as usize > cx.config().piggyback)
        {
            return Err(Violation::Piggyback);
        }
        self.take_back(from, &wanted.releases, false, cx)?;
        let count = wanted.needs.iter().map(|need| need.preferred.count).sum();
        let admitted = self.admits(from, count, cx)?;
        if !admitted {
            self.call_back(from, count, cx);
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
            self.answer(from, &wanted, granted, verdict.refusal(), cx);
            cx.local.settle(cx.out);
            return Ok(());
        }
        let used = match wanted.write {
            true => Use::Write,
            false => Use::Read,
        };
        let needs = wanted.needs.clone();
        let id = cx.name();
        self.holders.begin_move(from, count);
        let registrations = cx.local.stats().registrations;
        let request = cx.local.request(Requester::Move(id), needs, used, cx.out);
        let told = wanted.piggyback.is_some() && cx.local.is_pending(request);
        let served = Served {
            from,
            wanted: match told {
                true => self.answer_piggyback(from, wanted, cx),
                false => wanted,
            },
            count,
            registrations,
            told,
        };
        self.served.insert(id, served);
        cx.local.settle(cx.out);
        Ok(())
    }

    /// What was piggybacked on a move needs nothing of what it waits for: its asker is told at once, and
    /// waits for a message there and back instead of a registration.
    fn answer_piggyback(&self, to: u32, mut wanted: Move, cx: &mut Context<'_>) -> Move {
        let granted = Granted {
            id: wanted.id,
            ..Granted::default()
        };
        self.answer(to, &wanted, granted, None, cx);
        wanted.piggyback = None;
        wanted
    }

    /// Whether a peer may have so many buckets more. Of firehoses it knows how many it owns;
    /// without them, more than could ever be registered are refused, and it copies.
    ///
    /// What a peer was lent it may keep, whatever it is asked. So nobody gets more than is
    /// [sure](Limits::sure) unless so much is left for each of the others: they find it
    /// there, and for what is more they copy until it is given back.
    fn admits(&self, peer: u32, count: u64, cx: &Context<'_>) -> Result<bool, Violation> {
        let (has, most_lent) = self.holders.counts(peer);
        if cx.policy().remote != Remote::Firehose {
            return Ok(count <= cx.limits().total && has + count <= 4 * cx.limits().total);
        }
        if has + count > cx.limits().share + most_lent {
            return Err(Violation::TooManyFirehoses);
        }
        let peers = u64::from(cx.config().ranks - 1);
        Ok((self.holders).leaves_enough(has, count, peers, cx.limits().peers_total))
    }

    /// Memory that is being taken back is attached to nobody; what lies beside it may be copied.
    fn holds_back(&self, wanted: &Move) -> Option<Refusal> {
        let goes = |need: &Need| self.is_going(need.preferred);
        wanted.needs.iter().any(goes).then_some(Refusal::Limit)
    }

    /// What a move asked for is registered, as far as it can be.
    pub(in crate::engine) fn answer_move(&mut self, id: u64, request: u64, cx: &mut Context<'_>) {
        let Some(Served {
            from,
            wanted,
            count,
            registrations,
            told,
        }) = self.served.remove(&id)
        else {
            cx.local.end(request, false, cx.out);
            return;
        };
        self.holders.end_move(from, count);
        let (mut refused, extents) = (cx.local.get(request)).map_or_else(Default::default, |it| {
            (it.refused.clone(), cx.local.extents(it))
        });
        if registrations == cx.local.stats().registrations {
            self.stats.served_from_cache += 1;
        }
        let holds = if extents.iter().any(|extent| self.is_going(*extent)) {
            // It began to go meanwhile.
            cx.local.end(request, false, cx.out);
            refused = (wanted.needs.iter())
                .map(|need| (need.run, Refusal::Limit))
                .collect();
            Vec::new()
        } else if wanted.hold {
            let holds = cx.local.attach(request);
            self.holders.attach(from, &holds);
            holds
        } else {
            self.keep_for(from, request, cx)
        };
        self.stats.refused += refused.len() as u64;
        // Nothing is lent where room is short: perhaps it is called back from the same peer, which must
        // not hear of that before it has what was lent.
        let is_short = refused.iter().any(|(_, why)| *why == Refusal::Limit);
        let lent = match is_short {
            true => 0,
            false => self.lend(from, wanted.borrow, cx),
        };
        if is_short {
            self.call_back(from, count, cx);
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
                piggyback: None,
            };
            match (last, told) {
                (_, true) => cx.send_leisurely(from, Message::Granted(granted)),
                (true, false) => self.answer(from, &wanted, granted, None, cx),
                (false, false) => cx.send(from, Message::Granted(granted)),
            }
        }
        cx.local.settle(cx.out);
    }

    /// Hands what a request holds to a peer that never gives anything back by itself: it has one
    /// reference on each extent, until the memory goes and it says that it uses none of it, or it
    /// is gone. Without that, one's memory going would take the extent from under transfers to
    /// its neighbours.
    fn keep_for(&mut self, peer: u32, request: u64, cx: &mut Context<'_>) -> Vec<Hold> {
        let holds = cx.local.attach(request);
        for hold in &holds {
            let extent = cx.local.extent(hold.slot);
            if !self.holders.attach_once(peer, extent, hold.slot) {
                cx.local.detach(hold.slot, false, cx.out);
            }
        }
        holds
    }

    /// A peer uses nothing any more of what it was let keep of a run.
    pub(super) fn forget_kept(&mut self, peer: u32, run: Run, cx: &mut Context<'_>) {
        for extent in self.holders.attached_in(peer, run) {
            if let Some(slot) = self.holders.detach(peer, extent) {
                cx.local.detach(slot, false, cx.out);
            }
        }
    }

    /// Answers a move, or the part of it that tells how its piggybacked data went.
    fn answer(
        &self,
        to: u32,
        wanted: &Move,
        mut granted: Granted,
        verdict: Option<Refusal>,
        cx: &mut Context<'_>,
    ) {
        let mut data = Data::None;
        if let Some(piggyback) = wanted.piggyback {
            granted.piggyback = Some(match verdict {
                Some(why) => Err(why),
                None if wanted.write => Ok(0),
                None => {
                    data = Data::Asked {
                        region: wanted.region,
                        addr: piggyback.addr,
                        len: piggyback.len,
                    };
                    Ok(piggyback.len)
                }
            });
        }
        cx.send_with(to, Message::Granted(granted), data);
    }

    pub(in crate::engine) fn given_back(
        &mut self,
        from: u32,
        runs: &[Run],
        unpin: bool,
        cx: &mut Context<'_>,
    ) -> Result<(), Violation> {
        let outcome = self.take_back(from, runs, unpin, cx);
        cx.local.settle(cx.out);
        outcome
    }

    /// A peer gives back what it was granted.
    pub(super) fn take_back(
        &mut self,
        from: u32,
        runs: &[Run],
        unpin: bool,
        cx: &mut Context<'_>,
    ) -> Result<(), Violation> {
        for run in runs {
            if !self.holders.knows(from) {
                return Err(Violation::ReleaseByNoHolder);
            }
            let slot = (self.holders.detach(from, *run)).ok_or(Violation::ReleaseOfNothing)?;
            cx.local.detach(slot, unpin, cx.out);
        }
        Ok(())
    }

    /// Lends what other peers leave unused, but for an eighth of M that stays for newcomers; what
    /// is lent is no promise that there is room when it is used.
    fn lend(&mut self, to: u32, wish: u64, cx: &Context<'_>) -> u64 {
        if wish == 0 || !cx.config().borrowing {
            return 0;
        }
        let m = cx.limits().peers_total;
        let lent = wish.min(m.saturating_sub(m / 8 + self.holders.used()) / 2);
        self.holders.lend(to, lent);
        self.stats.lent += lent;
        lent
    }

    /// Asks for lent firehoses back, from whom most were lent to. From the newcomer itself if nobody else
    /// has any: it owns more than it can be given, and would ask for that again and again.
    fn call_back(&mut self, newcomer: u32, count: u64, cx: &mut Context<'_>) {
        let borrower = (self.holders.largest_borrower(Some(newcomer)))
            .or_else(|| self.holders.largest_borrower(None));
        let Some((lent, peer)) = borrower else {
            return;
        };
        let count = lent.min(count.max(lent.div_ceil(2)));
        self.holders.recall(peer, count);
        self.stats.recalled += count;
        cx.send(peer, Message::Recall { count });
    }
}

fn slice<T>(list: &[T], part: usize) -> &[T] {
    list.chunks(MAX_LIST).nth(part).unwrap_or_default()
}
