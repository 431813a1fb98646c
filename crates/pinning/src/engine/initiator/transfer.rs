//! Transfers of pieces whose sides are ready: by the network, or by the peer's NIC on request.

use super::{
    Initiator, StepContext, TransferKind,
    piece::{ANY, InFlightOperation, Piece},
    sides::LocalSide,
};
use crate::{
    Action, EngineMessage, Error, OwnMemory, Refusal, Run, Violation, wire::PullDestination,
};

impl Initiator {
    /// Transfers a piece, if both sides are ready.
    pub(super) fn transfer_when_ready(&mut self, id: u64, cx: &mut StepContext<'_>) {
        let Some(piece) = self.pieces.get(&id) else {
            return self
                .impossible
                .note("both sides of a piece are there after its end");
        };
        let request = match piece.local_side {
            LocalSide::Ready(request) => Some(request),
            LocalSide::Inline => None,
            LocalSide::Unasked | LocalSide::Requested(_) => return,
        };
        if piece.remote_side.pending > 0 {
            return;
        }
        let is_refused = |request| {
            let request = cx.local.get(request);
            request.is_none_or(|request| !request.refused.is_empty())
        };
        let local_refused = request.is_some_and(is_refused);
        match piece.remote_side.refused {
            // The refused buckets may be unmapped or read-only in a page that nobody asked for. A
            // copy finds out if the bytes themselves can be reached.
            Some(_) => self.copy_instead(id, cx),
            None if local_refused => self.copy_instead(id, cx),
            None => match request {
                Some(request) if cx.config().pulls(piece.direction) => self.pull(id, request, cx),
                request => self.transfer_all(id, request, cx),
            },
        }
    }

    /// Starts a transfer for each stretch that lies in one extent on both sides. Without a request
    /// for the local side, only the remote side counts.
    fn transfer_all(&mut self, id: u64, request: Option<u64>, cx: &mut StepContext<'_>) {
        let geometry = cx.limits().geometry;
        let Some(piece) = self.pieces.get(&id) else {
            return self
                .impossible
                .note("transfers start for a piece that is over");
        };
        let (local, remote, len) = (piece.local, piece.remote, piece.len);
        let seam = |run: Run, start: u64| geometry.address_of(run.end()) - start;
        let local_parts: Vec<_> = match request {
            None => vec![(len, ANY)],
            Some(request) => (cx.local.get(request).into_iter())
                .flat_map(|request| &request.holds)
                .map(|hold| (seam(hold.run, local), hold.key))
                .collect(),
        };
        let remote_parts: Vec<_> = (piece.remote_side.holds.iter())
            .map(|hold| (seam(hold.run, remote), hold.key))
            .collect();
        let (mut local_parts, mut remote_parts) = (
            local_parts.into_iter().peekable(),
            remote_parts.into_iter().peekable(),
        );
        let mut at = piece.head;
        // The extra count keeps the piece alive until all transfers have begun.
        self.with_piece(id, |piece| piece.transfers += 1);
        while at < len
            && let (Some((local_end, local_key)), Some((remote_end, remote_key))) =
                (local_parts.peek().copied(), remote_parts.peek().copied())
        {
            let end = local_end.min(remote_end).min(len);
            if end > at {
                self.transfer(
                    id,
                    (local + at, local_key),
                    (remote + at, remote_key),
                    end - at,
                    cx,
                );
                at = end;
            }
            if local_end <= end {
                local_parts.next();
            }
            if remote_end <= end {
                remote_parts.next();
            }
        }
        if at < len {
            // The holds did not cover the piece. That never happens, but it must not pass unseen.
            self.with_piece(id, |piece| {
                piece.failed = Some(Error::Unreachable {
                    rank: piece.peer,
                    addr: remote + at,
                    len: len - at,
                    why: Refusal::NotMapped,
                });
            });
        }
        self.transfer_done(id, Ok(()), cx);
    }

    pub(super) fn transfer(
        &mut self,
        id: u64,
        (local, local_key): (u64, u64),
        (remote, remote_key): (u64, u64),
        len: u64,
        cx: &mut StepContext<'_>,
    ) {
        let transfer = cx.name();
        let is_last = |piece: &Piece| {
            let end = piece.local + piece.len;
            piece.own == OwnMemory::Inline
                && local + len == end
                && (self.ops.get(&piece.op)).is_some_and(InFlightOperation::is_last_piece)
        };
        let last_of = (self.pieces.get(&id)).and_then(|it| is_last(it).then_some(it.op));
        let Some(piece) = self.pieces.get_mut(&id) else {
            return self
                .impossible
                .note("a transfer starts for a piece that is over");
        };
        piece.transfers += 1;
        self.transfers.insert(transfer, TransferKind::OneSided(id));
        self.one_sided += 1;
        cx.out.actions.push(Action::Transfer {
            id: transfer,
            peer: piece.peer,
            direction: piece.direction,
            local,
            local_key,
            remote,
            remote_key,
            len,
            last_of,
        });
    }

    /// Asks the peer to write to the own memory.
    fn pull(&mut self, id: u64, request: u64, cx: &mut StepContext<'_>) {
        let geometry = cx.limits().geometry;
        let transfer = cx.name();
        let (Some(piece), Some(request)) = (self.pieces.get_mut(&id), cx.local.get(request)) else {
            return self
                .impossible
                .note("a pull starts for a piece that is over, or holds no own memory");
        };
        let mut at = piece.local;
        let places = (request.holds.iter())
            .map(|hold| {
                let end = geometry
                    .address_of(hold.run.end())
                    .min(piece.local + piece.len);
                let place = PullDestination {
                    key: hold.key,
                    addr: at,
                    len: end - at,
                };
                at = end;
                place
            })
            .collect();
        piece.transfers += 1;
        let (peer, region, remote) = (piece.peer, piece.region, piece.remote);
        self.transfers.insert(transfer, TransferKind::Pull(id));
        let message = EngineMessage::Pull {
            id: transfer,
            region,
            from: remote,
            to: places,
        };
        cx.send(peer, message);
    }

    pub(in crate::engine) fn on_pulled(
        &mut self,
        from: u32,
        transfer: u64,
        refused: Option<Refusal>,
        registered: bool,
        cx: &mut StepContext<'_>,
    ) -> Result<(), Violation> {
        let id = match self.transfer_of(from, transfer) {
            Some(TransferKind::Pull(id)) => id,
            _ => return Err(Violation::PulledUnasked),
        };
        self.transfers.remove(&transfer);
        if registered {
            self.note_peer_registered(id, cx);
        }
        match refused {
            None => self.transfer_done(id, Ok(()), cx),
            Some(why) if why.can_copy() => {
                self.with_piece(id, |piece| piece.transfers -= 1);
                self.copy_instead(id, cx);
            }
            Some(why) => self.fail_piece(id, why, cx),
        }
        Ok(())
    }

    /// The transfer that a peer's message names, if it belongs to a piece with that peer.
    pub(super) fn transfer_of(&self, from: u32, transfer: u64) -> Option<TransferKind> {
        let transfer = *self.transfers.get(&transfer)?;
        let piece = self.pieces.get(&transfer.piece())?;
        (piece.peer == from).then_some(transfer)
    }

    pub(in crate::engine) fn transfer_done(
        &mut self,
        id: u64,
        result: Result<(), Error>,
        cx: &mut StepContext<'_>,
    ) {
        let Some(piece) = self.pieces.get_mut(&id) else {
            return self.impossible.note("a transfer outlives its piece");
        };
        piece.transfers -= 1;
        if let Err(error) = result {
            piece.failed.get_or_insert(error);
        }
        if piece.transfers == 0 {
            self.end_piece(id, cx);
        }
    }
}
