//! The target's side of moves (Firehose §3.2, 3).

use super::{
    super::local::{LocalHold, Requester},
    AccessVerdict, Data, EngineMessage, StepContext, Target,
};
use crate::{
    Refusal, Run, Use, Violation,
    strategy::{AfterUse, RemotePolicy},
    wire::{Granted, MAX_LIST, Move, Need},
};

/// A move that waits for registrations.
#[derive(Debug)]
pub(super) struct ServedMove {
    /// The rank of the asker.
    from: u32,
    /// The move.
    wanted: Move,
    /// The number of buckets it asks for.
    count: u64,
    /// The count of registrations before the move: if it is the same at the end, the move needed
    /// none.
    registrations: u64,
    /// True if the piggybacked data is answered already: then only operations that need the same
    /// buckets may wait for the rest.
    piggyback_answered: bool,
}

impl ServedMove {
    pub(super) fn is_of(&self, peer: u32) -> bool {
        self.from == peer
    }
}

impl Target {
    /// Serves a peer's move.
    pub(in crate::engine) fn serve_move(
        &mut self,
        from: u32,
        wanted: Move,
        verdict: AccessVerdict,
        cx: &mut StepContext<'_>,
    ) -> Result<(), Violation> {
        let hold = match cx.policy().remote {
            RemotePolicy::Firehose => true,
            RemotePolicy::Handshake(after) => after != AfterUse::Keep,
            _ => return Err(Violation::NothingOnRequest),
        };
        if wanted.hold != hold || (!hold && !wanted.releases.is_empty()) {
            return Err(Violation::OtherStrategy);
        }
        if wanted.needs.is_empty() {
            return Err(Violation::NoNeeds);
        }
        // A bucket that is counted once must not be attached twice.
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
            self.recall_from_borrower(from, count, cx);
        }
        let why = if admitted {
            verdict.objection().or(self.refusal_while_going(&wanted))
        } else {
            Some(Refusal::Limit)
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
        let used = if wanted.write { Use::Write } else { Use::Read };
        let needs = wanted.needs.clone();
        let id = cx.name();
        self.holders.begin_move(from, count);
        let registrations = cx.local.stats().registrations;
        let request = cx.local.request(Requester::Move(id), needs, used, cx.out);
        let piggyback_answered = wanted.piggyback.is_some() && cx.local.is_pending(request);
        let served = ServedMove {
            from,
            wanted: if piggyback_answered {
                self.answer_piggyback(from, wanted, cx)
            } else {
                wanted
            },
            count,
            registrations,
            piggyback_answered,
        };
        self.served.insert(id, served);
        cx.local.settle(cx.out);
        Ok(())
    }

    /// Answers for the piggybacked data at once, because it needs no registration. So its asker
    /// waits for a round trip, and not for a registration.
    fn answer_piggyback(&self, to: u32, mut wanted: Move, cx: &mut StepContext<'_>) -> Move {
        let granted = Granted {
            id: wanted.id,
            ..Granted::default()
        };
        self.answer(to, &wanted, granted, None, cx);
        wanted.piggyback = None;
        wanted
    }

    /// Decides if a peer may have so many more buckets. A peer with firehoses knows how many it
    /// owns. Without firehoses, a request for more than could ever be registered is refused, and
    /// the peer copies.
    ///
    /// A peer may keep the firehoses that it was lent, whatever it is asked. So no peer gets more
    /// than the [sure](crate::BucketLimits::sure) ones unless enough is left for every other peer. For the rest
    /// it copies until firehoses come back.
    fn admits(&self, peer: u32, count: u64, cx: &StepContext<'_>) -> Result<bool, Violation> {
        let (has, most_lent) = self.holders.counts(peer);
        if cx.policy().remote != RemotePolicy::Firehose {
            return Ok(count <= cx.limits().total && has + count <= 4 * cx.limits().total);
        }
        if has + count > cx.limits().share + most_lent {
            return Err(Violation::TooManyFirehoses);
        }
        let peers = u64::from(cx.config().ranks - 1);
        Ok((self.holders).leaves_enough(has, count, peers, cx.limits().peers_total))
    }

    /// Refuses a move to memory that is being taken back; its neighbours may be copied.
    fn refusal_while_going(&self, wanted: &Move) -> Option<Refusal> {
        let goes = |need: &Need| self.is_going(need.preferred);
        wanted.needs.iter().any(goes).then_some(Refusal::Limit)
    }

    /// Answers a move whose memory is registered, as far as possible.
    pub(in crate::engine) fn answer_move(
        &mut self,
        id: u64,
        request: u64,
        cx: &mut StepContext<'_>,
    ) {
        let Some(ServedMove {
            from,
            wanted,
            count,
            registrations,
            piggyback_answered,
        }) = self.served.remove(&id)
        else {
            cx.local.end(request, false, cx.out);
            return;
        };
        self.holders.end_move(from, count);
        let (mut refused, extents) = (cx.local.get(request)).map_or_else(Default::default, |it| {
            (it.refused.clone(), cx.local.extents(it))
        });
        if cx.limits().geometry.pages() > 1 {
            // A bucket's other pages may be unmapped or read-only. The copy tells whether the operation's own are.
            (refused.iter_mut()).for_each(|(_, why)| *why = Refusal::Limit);
        }
        if registrations == cx.local.stats().registrations {
            self.stats.served_from_cache += 1;
        }
        let holds = if extents.iter().any(|extent| self.is_going(*extent)) {
            // The revocation began while the memory was being registered.
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
            self.attach_until_revoked(from, request, cx)
        };
        self.stats.refused += refused.len() as u64;
        // Nothing is lent where room is short. The target may have to recall firehoses from the
        // same peer, which must not hear of that before the loan.
        let is_short = refused.iter().any(|(_, why)| *why == Refusal::Limit);
        let lent = if is_short {
            0
        } else {
            self.lend(from, wanted.borrow, cx)
        };
        if is_short {
            self.recall_from_borrower(from, count, cx);
        }
        let parts = holds.len().max(refused.len()).div_ceil(MAX_LIST).max(1);
        for part in 0..parts {
            let last = part + 1 == parts;
            let granted = Granted {
                id: wanted.id,
                last,
                lent: if last { lent } else { 0 },
                grants: slice(&holds, part).iter().map(LocalHold::grant).collect(),
                refused: slice(&refused, part).to_vec(),
                piggyback: None,
            };
            match (last, piggyback_answered) {
                (_, true) => cx.send_leisurely(from, EngineMessage::Granted(granted)),
                (true, false) => self.answer(from, &wanted, granted, None, cx),
                (false, false) => cx.send(from, EngineMessage::Granted(granted)),
            }
        }
        cx.local.settle(cx.out);
    }

    /// Hands a request's holds to a peer that gives nothing back by itself. The peer has one
    /// reference on each extent, until the memory goes and the peer says that it uses none of it,
    /// or the peer is lost. Without that reference, a revocation would take the extent from under
    /// transfers to its neighbours.
    fn attach_until_revoked(
        &mut self,
        peer: u32,
        request: u64,
        cx: &mut StepContext<'_>,
    ) -> Vec<LocalHold> {
        let holds = cx.local.attach(request);
        for hold in &holds {
            let extent = cx.local.extent(hold.slot);
            if !self.holders.attach_once(peer, extent, hold.slot) {
                cx.local.detach(hold.slot, false, cx.out);
            }
        }
        holds
    }

    /// Ends a peer's holds in a run, after the peer said that it uses none of it.
    pub(super) fn forget_kept(&mut self, peer: u32, run: Run, cx: &mut StepContext<'_>) {
        for extent in self.holders.attached_in(peer, run) {
            if let Some(slot) = self.holders.detach(peer, extent) {
                cx.local.detach(slot, false, cx.out);
            }
        }
    }

    /// Answers a move, or only the part about its piggybacked data.
    fn answer(
        &self,
        to: u32,
        wanted: &Move,
        mut granted: Granted,
        verdict: Option<Refusal>,
        cx: &mut StepContext<'_>,
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
        cx.send_with(to, EngineMessage::Granted(granted), data);
    }

    pub(in crate::engine) fn on_release(
        &mut self,
        from: u32,
        runs: &[Run],
        unpin: bool,
        cx: &mut StepContext<'_>,
    ) -> Result<(), Violation> {
        let outcome = self.take_back(from, runs, unpin, cx);
        cx.local.settle(cx.out);
        outcome
    }

    /// Takes back grants that a peer returns.
    pub(super) fn take_back(
        &mut self,
        from: u32,
        runs: &[Run],
        unpin: bool,
        cx: &mut StepContext<'_>,
    ) -> Result<(), Violation> {
        for run in runs {
            if !self.holders.has_asked(from) {
                return Err(Violation::ReleaseByNoHolder);
            }
            let slot = (self.holders.detach(from, *run)).ok_or(Violation::ReleaseOfNothing)?;
            cx.local.detach(slot, unpin, cx.out);
        }
        Ok(())
    }

    /// Lends firehoses that other peers leave unused, but for an eighth of M that stays for
    /// newcomers. A loan is no promise that there is room when it is used.
    fn lend(&mut self, to: u32, wish: u64, cx: &StepContext<'_>) -> u64 {
        if wish == 0 || !cx.config().borrowing {
            return 0;
        }
        let m = cx.limits().peers_total;
        let lent = wish.min(m.saturating_sub(m / 8 + self.holders.used()) / 2);
        self.holders.lend(to, lent);
        self.stats.lent += lent;
        lent
    }

    /// Asks for lent firehoses back, from the peer with the most. If no other peer has any, it asks
    /// the newcomer itself, which owns more than it can be given and would ask for that again and
    /// again.
    fn recall_from_borrower(&mut self, newcomer: u32, count: u64, cx: &mut StepContext<'_>) {
        let borrower = (self.holders.largest_borrower(Some(newcomer)))
            .or_else(|| self.holders.largest_borrower(None));
        let Some((lent, peer)) = borrower else {
            return;
        };
        let count = lent.min(count.max(lent.div_ceil(2)));
        self.holders.recall(peer, count);
        self.stats.recalled += count;
        cx.send(peer, EngineMessage::Recall { count });
    }
}

fn slice<T>(list: &[T], part: usize) -> &[T] {
    list.chunks(MAX_LIST).nth(part).unwrap_or_default()
}
