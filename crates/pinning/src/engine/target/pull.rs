//! Pulls of peers: where the NIC does not read, own memory is written to theirs (Firehose §7).

use super::{super::local::Requester, Context, Message, Target, Verdict};
use crate::{
    Action, Direction, Refusal, Use, Violation,
    strategy::Local,
    wire::{Need, Place},
};

/// Pulls of one peer being answered at once; what is more it copies.
const MAX_PULLS: usize = 1 << 10;

/// Pulls to come that memory is being registered for at once; for what is more it is registered when they
/// have come.
const MOST_AHEAD: u32 = 64;

/// A pull being answered.
#[derive(Debug)]
pub(super) struct Pull {
    /// Who asks.
    from: u32,
    /// The puller's name for it.
    id: u64,
    /// The first own address.
    addr: u64,
    /// Where it goes, in order.
    to: Vec<Place>,
    /// The request for own memory, once that is there.
    request: u64,
    /// Whether something had to be registered for it.
    registers: bool,
    /// Transfers under way, and one more while they are being started.
    transfers: u32,
    /// Whether one of them failed, or own memory was refused.
    failed: bool,
}

impl Target {
    /// A peer is about to want own memory written to its own: it is registered, and used by nobody until
    /// that comes, so that it goes if there is no room for it.
    pub(in crate::engine) fn prepare(
        &mut self,
        addr: u64,
        len: u64,
        verdict: Verdict,
        cx: &mut Context<'_>,
    ) {
        let run = cx.limits().geometry.span(addr, len).ok();
        let Some(run) = run.filter(|run| run.count > 0 && run.count <= cx.limits().victims) else {
            return;
        };
        if verdict.objection().is_some() || self.is_going(run) || self.preparing >= MOST_AHEAD {
            return;
        }
        self.preparing += 1;
        let need = Need {
            run,
            preferred: run,
        };
        (cx.local).request(Requester::Ahead, vec![need], Use::Read, cx.out);
    }

    /// What a pull to come needs is registered, or was refused.
    pub(in crate::engine) fn prepared(&mut self, request: u64, cx: &mut Context<'_>) {
        self.preparing -= 1;
        cx.local.end(request, false, cx.out);
    }

    /// A peer wants own memory written to its own.
    pub(in crate::engine) fn serve_pull(
        &mut self,
        from: u32,
        id: u64,
        addr: u64,
        to: Vec<Place>,
        verdict: Verdict,
        cx: &mut Context<'_>,
    ) -> Result<(), Violation> {
        let geometry = cx.limits().geometry;
        let end = |len: u64, place: &Place| {
            geometry.span(place.addr, place.len).ok()?;
            len.checked_add(place.len)
        };
        let run = (to.iter().try_fold(0, end))
            .and_then(|len| geometry.span(addr, len).ok())
            .filter(|run| run.count > 0)
            .ok_or(Violation::PullOfNothing)?;
        let theirs = self.pulls.values().filter(|pull| pull.from == from);
        let cannot =
            run.count > cx.limits().total || self.is_going(run) || theirs.count() >= MAX_PULLS;
        let refused = verdict.objection().or(cannot.then_some(Refusal::Limit));
        if refused.is_some() {
            let registered = false;
            let answer = Message::Pulled {
                id,
                refused,
                registered,
            };
            cx.send(from, answer);
            return Ok(());
        }
        let name = cx.name();
        let pull = Pull {
            from,
            id,
            addr,
            to,
            request: 0,
            registers: false,
            transfers: 0,
            failed: false,
        };
        self.pulls.insert(name, pull);
        let need = Need {
            run,
            preferred: run,
        };
        let request = (cx.local).request(Requester::Pull(name), vec![need], Use::Read, cx.out);
        if let Some(pull) = self.pulls.get_mut(&name) {
            pull.registers = cx.local.is_pending(request);
        }
        Ok(())
    }

    /// The source of a pull is registered, or was refused.
    pub(in crate::engine) fn pull_data(&mut self, name: u64, request: u64, cx: &mut Context<'_>) {
        let Some(pull) = self.pulls.get_mut(&name) else {
            cx.local.end(request, false, cx.out);
            return;
        };
        pull.request = request;
        pull.transfers = 1;
        let Some(request) = cx
            .local
            .get(request)
            .filter(|request| request.refused.is_empty())
        else {
            pull.failed = true;
            self.pull_done(name, false, cx);
            return;
        };
        let geometry = cx.limits().geometry;
        let mut parts = (request.holds.iter())
            .map(|hold| (geometry.address_of(hold.run.end()), hold.key))
            .peekable();
        let (peer, mut addr) = (pull.from, pull.addr);
        let mut transfers = Vec::new();
        for place in pull.to.clone() {
            let mut done = 0;
            while done < place.len
                && let Some((end, key)) = parts.peek().copied()
            {
                let len = (end - addr).min(place.len - done);
                if len > 0 {
                    transfers.push((addr, key, place.addr + done, place.key, len));
                }
                addr += len;
                done += len;
                if addr == end {
                    parts.next();
                }
            }
        }
        pull.transfers += transfers.len() as u32;
        for (local, local_key, remote, remote_key, len) in transfers {
            let id = cx.name();
            self.writes.insert(id, name);
            cx.out.actions.push(Action::Transfer {
                id,
                peer,
                direction: Direction::Put,
                local,
                local_key,
                remote,
                remote_key,
                len,
                last_of: None,
            });
        }
        self.pull_done(name, true, cx);
    }

    /// A transfer was done, or failed; one that belongs to no pull is none of this room's.
    pub(in crate::engine) fn transferred(&mut self, id: u64, fine: bool, cx: &mut Context<'_>) {
        if let Some(pull) = self.writes.remove(&id) {
            self.pull_done(pull, fine, cx);
        }
    }

    fn pull_done(&mut self, name: u64, fine: bool, cx: &mut Context<'_>) {
        let Some(pull) = self.pulls.get_mut(&name) else {
            return self.impossible.note("a transfer outlives its pull");
        };
        pull.failed |= !fine;
        pull.transfers -= 1;
        if pull.transfers > 0 {
            return;
        }
        if let Some(pull) = self.pulls.remove(&name) {
            let unpin = cx.policy().local == Local::PerOperation;
            cx.local.end(pull.request, unpin, cx.out);
            let refused = pull.failed.then_some(Refusal::Limit);
            cx.send(
                pull.from,
                Message::Pulled {
                    id: pull.id,
                    refused,
                    registered: pull.registers,
                },
            );
        }
    }

    /// The pulls of a peer that is gone; what is being written to it ends by itself.
    pub(super) fn forget_pulls(&mut self, peer: u32) {
        self.pulls
            .retain(|_, pull| pull.from != peer || pull.transfers > 0);
    }
}
