//! The remote side of a piece: attached firehoses, moves for the missing ones, and the grants of
//! moves (Firehose §3.2).

use super::{
    Data, Initiator, StepContext,
    firehoses::{MoveChoice, PendingMove, RemoteHold, RemoteSide},
    sides::LocalSide,
};
use crate::engine::pattern::Sequence;
use crate::{
    Action, Direction, EngineMessage, Refusal, Run, Strategy, Violation,
    strategy::{AfterUse, RemotePolicy},
    wire::{Granted, MAX_LIST, Move, Need, Piggyback},
};

impl Initiator {
    /// Holds the firehoses of a piece and moves the missing ones. If too many are in use, the piece
    /// holds nothing and waits for its turn.
    pub(super) fn hold_firehoses(&mut self, id: u64, cx: &mut StepContext<'_>) {
        let Some(piece) = self.pieces.get(&id) else {
            return self
                .impossible
                .note("firehoses are wanted for a piece that is over");
        };
        let peer = piece.peer;
        if self.choice.is_some() {
            return self.choose(id, cx);
        }
        if !self.table_of(peer).queue.is_empty() {
            self.wait_for_firehoses(id, peer);
            return;
        }
        if !self.try_hold_firehoses(id, cx) {
            self.wait_for_firehoses(id, peer);
        }
    }

    fn wait_for_firehoses(&mut self, id: u64, peer: u32) {
        self.stats.stalls += 1;
        self.waiting += 1;
        self.table_of(peer).queue.push_back(id);
    }

    pub(super) fn forget_queue(&mut self, peer: u32) {
        if let Some(table) = self.tables.get_mut(&peer) {
            self.waiting -= table.queue.len();
            table.queue.clear();
        }
    }

    fn try_hold_firehoses(&mut self, id: u64, cx: &mut StepContext<'_>) -> bool {
        let Some(piece) = self.pieces.get(&id) else {
            self.impossible
                .note("a piece that is over waits for firehoses");
            return true;
        };
        let (peer, len, remote) = (piece.peer, piece.len, piece.remote);
        let used = piece.direction.remote();
        let Ok(run) = cx.limits().geometry.span(remote, len) else {
            self.impossible
                .note("an operation was begun that leaves the address space");
            return true;
        };
        let bytes = Sequence { addr: remote, len };
        let table = self.table_of(peer);
        let mut look = table.acquire_run(run, used);
        if look.read_only {
            table.drop_holds(&look.holds);
            // One read-only page makes the whole extent read-only, so a copy may still succeed.
            self.start_copy(id, cx);
            return true;
        }
        let mut needs = table.set_aside(&look.gaps, bytes, cx.limits());
        if needs.is_none() {
            // An extent that the piece uses in part may be in its way, so the count has all its
            // buckets.
            table.drop_holds(&look.holds);
            if !table.make_room(run.count) {
                return false;
            }
            look = table.acquire_run(run, used);
            needs = table.set_aside(&look.gaps, bytes, cx.limits());
        }
        let Some(needs) = needs else {
            table.drop_holds(&look.holds);
            return false;
        };
        for (join, part) in &look.joins {
            if let Some(asked) = table.asked.get_mut(join) {
                asked.waiters.push((id, *part));
            }
        }
        let reach = RemoteSide {
            holds: look.holds,
            refused: None,
            pending: (needs.len() + look.joins.len()) as u32,
        };
        self.stats.remote_hits += u64::from(reach.pending == 0);
        self.with_piece(id, |piece| piece.remote_side = reach);
        let piggybacks =
            needs.len() == 1 && look.joins.is_empty() && len <= cx.config().piggyback as u64;
        for needs in needs.chunks(MAX_LIST) {
            self.send_move(id, peer, needs.to_vec(), (true, None), piggybacks, cx);
        }
        if !piggybacks {
            self.request_local(id, cx);
        }
        true
    }

    /// Asks for the remote side of one operation (rendezvous and its kin).
    pub(super) fn handshake(&mut self, id: u64, cx: &mut StepContext<'_>) {
        let Some(piece) = self.pieces.get(&id) else {
            return self.impossible.note("a piece that is over asks its peer");
        };
        let peer = piece.peer;
        let Ok(run) = cx.limits().geometry.span(piece.remote, piece.len) else {
            return self
                .impossible
                .note("an operation was begun that leaves the address space");
        };
        self.with_piece(id, |piece| piece.remote_side.pending = 1);
        let need = Need {
            run,
            preferred: run,
        };
        self.send_move(id, peer, vec![need], (false, None), false, cx);
        self.request_local(id, cx);
    }

    /// Holds memory that was registered from the start; other memory is copied.
    pub(super) fn hold_static(&mut self, id: u64, cx: &mut StepContext<'_>) {
        let Some(piece) = self.pieces.get(&id) else {
            return self
                .impossible
                .note("memory is looked up for a piece that is over");
        };
        let (peer, used) = (piece.peer, piece.direction.remote());
        let Ok(run) = cx.limits().geometry.span(piece.remote, piece.len) else {
            return self
                .impossible
                .note("an operation was begun that leaves the address space");
        };
        let look = self.table_of(peer).acquire_run(run, used);
        if look.gaps.is_empty() && !look.read_only {
            self.stats.remote_hits += 1;
            self.with_piece(id, |piece| piece.remote_side.holds = look.holds);
            self.request_local(id, cx);
        } else {
            self.table_of(peer).drop_holds(&look.holds);
            self.start_copy(id, cx);
        }
    }

    pub(super) fn send_move(
        &mut self,
        id: u64,
        peer: u32,
        needs: Vec<Need>,
        (cached, chosen): (bool, Option<MoveChoice>),
        piggybacks: bool,
        cx: &mut StepContext<'_>,
    ) {
        let name = cx.name();
        let Some(piece) = self.pieces.get(&id) else {
            return self
                .impossible
                .note("a move starts for a piece that is over");
        };
        let (put, region) = (piece.direction == Direction::Put, piece.region);
        let (local, remote, len) = (piece.local, piece.remote, piece.len as u32);
        let hold = cx.policy().remote != RemotePolicy::Handshake(AfterUse::Keep);
        let borrowing = cx.config().borrowing && cached;
        let share = cx.limits().share;
        let most = cx.limits().peers_total;
        let table = self.table_of(peer);
        // A rank that gives buckets back to get others could use more.
        let borrow = if borrowing && !table.owed.is_empty() {
            (share / 2).max(needs.iter().map(|need| need.preferred.count).sum())
        } else {
            0
        };
        // One peer has no use for more firehoses than M has.
        let borrow = match chosen {
            Some(_) => borrow.min(most.saturating_sub(table.credit())),
            None => borrow,
        };
        let waiters = needs.iter().map(|need| (id, need.run)).collect();
        let mut asked = PendingMove::new(needs.clone(), cached, waiters);
        asked.piggybacked = piggybacks.then_some(id);
        asked.borrow = borrow;
        asked.chosen = chosen;
        table.record_move(name, asked);
        let releases = table.take_owed(MAX_LIST);
        self.stats.moves += 1;
        self.stats.released += releases.len() as u64;
        self.give_back(peer, cx);
        let wanted = Move {
            id: name,
            region,
            write: put,
            hold,
            borrow,
            releases,
            needs,
            piggyback: piggybacks.then_some(Piggyback { addr: remote, len }),
        };
        let data = if piggybacks && put {
            Data::Own { addr: local, len }
        } else {
            Data::None
        };
        cx.send_with(peer, EngineMessage::Move(wanted), data);
    }

    /// Gives firehoses back to a peer, without a move that carries them.
    pub(super) fn give_back(&mut self, peer: u32, cx: &mut StepContext<'_>) {
        let Some(table) = self.tables.get_mut(&peer) else {
            return self
                .impossible
                .note("firehoses are given back to a peer that has no table");
        };
        let owed = std::mem::take(&mut table.owed);
        for runs in owed.chunks(MAX_LIST) {
            self.stats.released += runs.len() as u64;
            let runs = runs.to_vec();
            cx.send(peer, EngineMessage::Release { runs, unpin: false });
        }
    }

    /// Handles the answer to a move, or a part of it.
    pub(in crate::engine) fn on_granted(
        &mut self,
        from: u32,
        granted: Granted,
        cx: &mut StepContext<'_>,
    ) -> Result<(), Violation> {
        let table = self
            .tables
            .get_mut(&from)
            .ok_or(Violation::AnswerToNoMove)?;
        let asked = table
            .asked
            .get_mut(&granted.id)
            .ok_or(Violation::AnswerToNoMove)?;
        let fits = |run: &Run| asked.needs.iter().any(|need| need.preferred.contains(*run));
        let runs = granted.grants.iter().map(|grant| &grant.run);
        if !runs
            .chain(granted.refused.iter().map(|(run, _)| run))
            .all(fits)
        {
            return Err(Violation::AnswerUnasked);
        }
        if (asked.grants.iter().chain(&granted.grants))
            .map(|grant| grant.run.count)
            .sum::<u64>()
            > asked.needs.iter().map(|need| need.preferred.count).sum()
        {
            return Err(Violation::GrantedTwice);
        }
        if (asked.refused.iter().chain(&granted.refused))
            .map(|(run, _)| run.count)
            .sum::<u64>()
            > asked.needs.iter().map(|need| need.preferred.count).sum()
        {
            return Err(Violation::RefusedTwice);
        }
        if granted.piggyback.is_some() && asked.piggybacked.is_none() {
            return Err(Violation::DataUnasked);
        }
        if granted.lent > asked.borrow {
            return Err(Violation::LentTooMuch);
        }
        asked.grants.extend(&granted.grants);
        asked.refused.extend(&granted.refused);
        if !granted.last {
            if granted.piggyback.is_some()
                && let Some(piggybacked) = asked.piggybacked.take()
            {
                asked.waiters.retain(|(id, _)| *id != piggybacked);
                self.piggyback_done(piggybacked, granted.piggyback, cx);
            }
            return Ok(());
        }
        let cached = asked.cached;
        table.lend(granted.lent);
        if cached {
            self.land(from, granted, cx);
        } else if let Some(asked) = table.end_move(granted.id, 0) {
            self.stats.refused += asked.refused.len() as u64;
            for (id, run) in &asked.waiters {
                let holds = (asked.grants.iter())
                    .filter(|grant| grant.run.overlaps(*run))
                    .map(|grant| RemoteHold {
                        slot: None,
                        run: grant.run,
                        key: grant.key,
                    })
                    .collect();
                self.add_remote_holds(*id, holds, asked.refused.first().map(|(_, why)| *why), cx);
            }
        }
        Ok(())
    }

    /// Records the grants of a move in the table and serves all waiters.
    fn land(&mut self, from: u32, granted: Granted, cx: &mut StepContext<'_>) {
        let Some(table) = self.tables.get_mut(&from) else {
            return self.impossible.note("a move lands that was not in flight");
        };
        let Some(asked) = table.asked.get_mut(&granted.id) else {
            return self.impossible.note("a move lands that was not in flight");
        };
        let grants = std::mem::take(&mut asked.grants);
        let landed: Vec<_> = (grants.iter().filter(|grant| table.land(grant)).copied()).collect();
        let attached = landed.iter().map(|grant| grant.run.count).sum();
        let Some(asked) = table.end_move(granted.id, attached) else {
            return self.impossible.note("a move lands that was not in flight");
        };
        let strays = match cx.config().strategy {
            Strategy::Foresight => table.assign_arrivals(&landed),
            _ => Vec::new(),
        };
        self.stats.refused += asked.refused.len() as u64;
        // With several pages a bucket, the operation's own may be writable. The copy tells.
        let for_read_only = match cx.limits().geometry.pages() {
            1 => Refusal::ReadOnly,
            _ => Refusal::Limit,
        };
        for (id, run) in &asked.waiters {
            let Some(piece) = self.pieces.get(id) else {
                continue;
            };
            let used = piece.direction.remote();
            if asked.piggybacked == Some(*id) {
                self.piggyback_done(*id, granted.piggyback, cx);
                continue;
            }
            let look = self.table_of(from).acquire_run(*run, used);
            let why = (asked.refused.iter())
                .find(|(refused, _)| refused.overlaps(*run))
                .map(|(_, why)| *why)
                .or(look.read_only.then_some(for_read_only))
                .or((!look.gaps.is_empty() || !look.joins.is_empty()).then_some(Refusal::Limit));
            self.add_remote_holds(*id, look.holds, why, cx);
        }
        let table = self.table_of(from);
        landed.iter().for_each(|grant| table.settle(grant));
        if let Some(chosen) = asked.chosen {
            let is_refused = !asked.refused.is_empty();
            let count = asked.needs.iter().map(|need| need.preferred.count).sum();
            self.record_move_outcome(from, &landed, &chosen, is_refused.then_some(count));
        }
        let table = self.table_of(from);
        table.shrink();
        self.settle_ahead(from, &strays, cx);
        self.answer_revocations(from, cx);
        self.serve_waiting(from, cx);
    }

    /// Ends a piece whose data was piggybacked on its move or on the answer.
    fn piggyback_done(
        &mut self,
        id: u64,
        piggyback: Option<Result<u32, Refusal>>,
        cx: &mut StepContext<'_>,
    ) {
        let Some(piece) = self.pieces.get_mut(&id) else {
            return self.impossible.note("data comes for a piece that is over");
        };
        piece.remote_side.pending -= 1;
        match piggyback {
            Some(Ok(len)) if piece.direction == Direction::Put || u64::from(len) == piece.len => {
                if piece.direction == Direction::Get {
                    cx.out.actions.push(Action::Land {
                        to: piece.local,
                        len,
                    });
                }
                self.stats.piggybacked += 1;
                self.end_piece(id, cx);
            }
            Some(Err(why)) => self.fail_piece(id, why, cx),
            _ => self.copy_instead(id, cx),
        }
    }

    /// Adds arrived holds to the remote side of a piece.
    fn add_remote_holds(
        &mut self,
        id: u64,
        holds: Vec<RemoteHold>,
        refused: Option<Refusal>,
        cx: &mut StepContext<'_>,
    ) {
        let Some(piece) = self.pieces.get_mut(&id) else {
            // Another of its moves was answered wrongly, and the piece failed for that.
            return;
        };
        let reach = &mut piece.remote_side;
        reach.holds.extend(holds);
        reach.refused = reach.refused.or(refused);
        reach.pending -= 1;
        if reach.pending == 0 {
            reach.holds.sort_unstable_by_key(|hold| hold.run.first);
            if piece.local_side != LocalSide::Unasked {
                self.transfer_when_ready(id, cx);
            }
        }
    }

    /// Serves the pieces that wait for firehoses at a peer, in order, because some may be free.
    pub(super) fn serve_waiting(&mut self, peer: u32, cx: &mut StepContext<'_>) {
        let Some(table) = self.tables.get_mut(&peer) else {
            return self
                .impossible
                .note("firehoses are free at a peer that has no table");
        };
        if table.used > table.credit {
            table.shrink();
            if table.queue.is_empty() {
                self.give_back(peer, cx);
            }
        }
        self.answer_revocations(peer, cx);
        while let Some(table) = self.tables.get_mut(&peer)
            && let Some(id) = table.queue.pop_front()
        {
            self.waiting -= 1;
            if !self.try_hold_firehoses(id, cx) {
                self.waiting += 1;
                self.table_of(peer).queue.push_front(id);
                return;
            }
        }
    }

    pub(in crate::engine) fn on_recall(&mut self, from: u32, count: u64, cx: &mut StepContext<'_>) {
        if let Some(table) = self.tables.get_mut(&from) {
            table.recall(count);
            self.give_back(from, cx);
        }
    }
}
