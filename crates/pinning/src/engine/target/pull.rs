//! Pulls of peers: where the NIC does not read, the target writes own memory to the peer's
//! (Firehose §7).

use super::{super::local::Requester, AccessVerdict, EngineMessage, StepContext, Target};
use crate::{
    Action, Direction, Refusal, Use, Violation,
    strategy::LocalPolicy,
    wire::{Need, PullDestination},
};

/// The most pulls of one peer in progress at once. Further ones are refused, and the peer copies.
const MAX_PULLS: usize = 1 << 10;

/// The most announced pulls whose memory is being registered at once. Memory for further ones is
/// registered when the pulls come.
const MOST_AHEAD: u32 = 64;

/// A pull in progress.
#[derive(Debug)]
pub(super) struct Pull {
    /// The rank of the puller.
    from: u32,
    /// The puller's name for it.
    id: u64,
    /// The first own address.
    addr: u64,
    /// The destinations, in order.
    to: Vec<PullDestination>,
    /// The request for own memory, once it is done.
    request: u64,
    /// True if something had to be registered for the pull.
    registers: bool,
    /// The number of transfers in flight, plus one while they are being started.
    transfers: u32,
    /// True if a transfer failed, or own memory was refused.
    failed: bool,
}

impl Target {
    /// Registers own memory that a peer will pull soon. Nobody holds it until the pull comes, so
    /// that it may be evicted.
    pub(in crate::engine) fn on_ahead(
        &mut self,
        addr: u64,
        len: u64,
        verdict: AccessVerdict,
        cx: &mut StepContext<'_>,
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

    /// Ends the request for an announced pull: it is done or refused.
    pub(in crate::engine) fn end_announced(&mut self, request: u64, cx: &mut StepContext<'_>) {
        self.preparing -= 1;
        cx.local.end(request, false, cx.out);
    }

    /// Serves a peer's pull.
    pub(in crate::engine) fn serve_pull(
        &mut self,
        from: u32,
        id: u64,
        addr: u64,
        to: Vec<PullDestination>,
        verdict: AccessVerdict,
        cx: &mut StepContext<'_>,
    ) -> Result<(), Violation> {
        let geometry = cx.limits().geometry;
        let end = |len: u64, place: &PullDestination| {
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
            let answer = EngineMessage::Pulled {
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

    /// Starts the transfers of a pull whose own memory is registered, or refuses the pull.
    pub(in crate::engine) fn pull_data(
        &mut self,
        name: u64,
        request: u64,
        cx: &mut StepContext<'_>,
    ) {
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

    /// Handles the end of a transfer, if it belongs to a pull.
    pub(in crate::engine) fn transferred(&mut self, id: u64, fine: bool, cx: &mut StepContext<'_>) {
        if let Some(pull) = self.writes.remove(&id) {
            self.pull_done(pull, fine, cx);
        }
    }

    fn pull_done(&mut self, name: u64, fine: bool, cx: &mut StepContext<'_>) {
        let Some(pull) = self.pulls.get_mut(&name) else {
            return self.impossible.note("a transfer outlives its pull");
        };
        pull.failed |= !fine;
        pull.transfers -= 1;
        if pull.transfers > 0 {
            return;
        }
        if let Some(pull) = self.pulls.remove(&name) {
            let unpin = cx.policy().local == LocalPolicy::PerOperation;
            cx.local.end(pull.request, unpin, cx.out);
            let refused = pull.failed.then_some(Refusal::Limit);
            cx.send(
                pull.from,
                EngineMessage::Pulled {
                    id: pull.id,
                    refused,
                    registered: pull.registers,
                },
            );
        }
    }

    /// Forgets the pulls of a lost peer. Transfers in flight to it end by themselves.
    pub(super) fn forget_pulls(&mut self, peer: u32) {
        self.pulls
            .retain(|_, pull| pull.from != peer || pull.transfers > 0);
    }
}
