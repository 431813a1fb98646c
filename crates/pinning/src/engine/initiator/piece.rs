//! Operations and their pieces.

use super::{
    super::{
        choice::{Choice, Class, Way},
        local::Requester,
        operation::Own,
    },
    Context, Initiator, Operation, Transfer,
    firehoses::RemoteSide,
};
use crate::engine::impossible::impossible;
use crate::{
    Action, Direction, Error, Message, Refusal, Region, Run, Violation,
    strategy::{After, Local as LocalPolicy, Remote},
    wire::{MAX_LIST, Need, Place},
};

/// The key of memory that a paging NIC reaches without registration.
const ANY: u64 = u64::MAX;

/// Bytes of a chunk of the pipeline protocol, at least and at most.
const CHUNK: (u64, u64) = (64 << 10, 1 << 20);

/// An operation under way.
#[derive(Debug)]
pub(super) struct Op {
    /// As it was begun; never changed.
    operation: Operation,
    /// Bytes cut into pieces so far.
    cut: u64,
    /// Pieces under way.
    live: usize,
    /// The first error of a piece, if one failed.
    result: Result<(), Error>,
}

impl Op {
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Whether one piece is under way and no more will be.
    pub(super) fn is_last_piece(&self) -> bool {
        self.live == 1 && self.cut == self.operation.len
    }
}

/// A piece of an operation, under way.
#[derive(Debug)]
pub(super) struct Piece {
    /// The operation, by the driver's name for it.
    pub(super) op: u64,
    /// With whom.
    pub(super) peer: u32,
    /// Whether it is a put.
    pub(super) direction: Direction,
    /// Its first own address.
    pub(super) local: u64,
    /// The memory of the peer's that is meant.
    pub(super) region: Region,
    /// Its first address at the peer.
    pub(super) remote: u64,
    /// Bytes.
    pub(super) len: u64,
    /// How the own memory stands.
    own: Own,
    /// Whether it is copied through messages, whatever is registered.
    copied: bool,
    /// How far the own memory is registered for it.
    pub(super) local_side: LocalSide,
    /// What it holds of the peer's memory, and waits for.
    pub(super) remote_side: RemoteSide,
    /// Transfers under way.
    pub(super) transfers: u32,
    /// How it went, by `auto`.
    pub(super) tried: Option<Tried>,
    /// How far it is copied, if it is.
    pub(super) copy: super::copy::Copy,
    /// Why it failed, if it did.
    pub(super) failed: Option<Error>,
}

/// Which way `auto` sent a piece, to find out what that takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tried {
    pub(super) class: Class,
    /// None as long as it is not known, or if it went several.
    pub(super) way: Option<Way>,
    /// When it began, if it is timed.
    begun: Option<u64>,
    /// How many of its class it stands for: what is copied is not cut.
    parts: u64,
    /// How busy moves had kept the peer by then.
    began: u32,
}

/// How a piece stands with its own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LocalSide {
    /// Nothing is needed, or not yet.
    Unasked,
    Requested(u64),
    Ready(u64),
    /// It goes along with the operation.
    Inline,
}

impl Initiator {
    pub(in crate::engine) fn begin(&mut self, operation: Operation, cx: &mut Context<'_>) {
        let op = Op {
            operation,
            cut: 0,
            live: 0,
            result: Ok(()),
        };
        self.ops.insert(operation.id, op);
        for _ in 0..cx.policy().pieces {
            if !self.next_piece(operation.id, cx) {
                break;
            }
        }
        self.end_op(operation.id, cx);
    }

    /// Cuts the next piece off and starts it.
    fn next_piece(&mut self, id: u64, cx: &mut Context<'_>) -> bool {
        let Some(op) = self.ops.get(&id) else {
            impossible("a piece is cut off an operation that is over");
            return false;
        };
        let Operation {
            peer,
            direction,
            local,
            region,
            remote,
            len,
            own,
            copied,
            ..
        } = op.operation;
        let cut = op.cut;
        if cut == len || op.result.is_err() {
            return false;
        }
        let most = most(cx, direction, local + cut, remote + cut);
        let piece = Piece {
            op: id,
            peer,
            direction,
            local: local + cut,
            region,
            remote: remote + cut,
            len: most.min(len - cut),
            own,
            copied,
            local_side: LocalSide::Unasked,
            remote_side: RemoteSide::default(),
            transfers: 0,
            tried: self.try_piece(peer, direction, most.min(len - cut), own),
            copy: super::copy::Copy::default(),
            failed: None,
        };
        if cut == 0 && piece.len < len {
            self.stats.splits += 1;
        }
        if let Some(op) = self.ops.get_mut(&id) {
            op.cut += piece.len;
            op.live += 1;
        }
        self.stats.pieces += 1;
        let name = cx.name();
        self.pieces.insert(name, piece);
        self.start_piece(name, cx);
        true
    }

    /// Begins to time a piece, if it is to be timed.
    fn try_piece(&mut self, peer: u32, direction: Direction, len: u64, own: Own) -> Option<Tried> {
        let choice = self.choice.as_mut()?;
        let class = Choice::class(direction, len, own == Own::Transient);
        let tables = &self.tables;
        // A peer that registers memory answers late.
        let table = tables.get(&peer);
        let is_free = || table.is_none_or(|table| table.asked.is_empty() && table.calm.is_free());
        Some(Tried {
            class,
            way: None,
            begun: choice.begin(class, is_free),
            parts: 1,
            began: table.map_or(0, |table| table.calm.now()),
        })
    }

    /// A piece that is to be copied takes what was not cut off yet along. What is registered has to be
    /// cut; messages take all of it, and the copying is begun only once.
    pub(super) fn take_rest(&mut self, id: u64) {
        let Some(piece) = self.pieces.get_mut(&id) else {
            return impossible("a piece that is over takes more along");
        };
        let Some(op) = self.ops.get_mut(&piece.op) else {
            return impossible("a piece is of no operation");
        };
        let end = piece.remote - op.operation.remote + piece.len;
        let left = op.operation.len - op.cut;
        if left == 0 || end != op.cut {
            return;
        }
        op.cut = op.operation.len;
        if let Some(tried) = &mut piece.tried {
            tried.parts = 1 + left.div_ceil(piece.len.max(1));
        }
        piece.len += left;
    }

    /// Notes which way a piece goes.
    pub(super) fn goes(&mut self, id: u64, way: Way) {
        self.with_piece(id, |piece| {
            if let Some(tried) = &mut piece.tried {
                tried.way = Some(way);
            }
        });
    }

    /// The peer had to register what it was thought to have registered: that is no hit.
    fn was_far(&mut self, id: u64, cx: &Context<'_>) {
        let Some(piece) = self.pieces.get_mut(&id) else {
            return;
        };
        if let Some(tried) = &mut piece.tried
            && tried.way == Some(Way::Hit)
        {
            tried.way = None;
            let run = cx.limits().geometry.span(piece.remote, piece.len).ok();
            if let Some((run, table)) = run.zip(self.tables.get_mut(&piece.peer)) {
                let kept = table.kept(cx.limits().total, cx.config().ranks);
                table.pulled.missed(run.first, run.count, kept);
            }
        }
    }

    /// A piece is over, or went another way than was tried.
    pub(super) fn tried(&mut self, id: u64, is_fine: bool) {
        let (Some(choice), Some(piece)) = (&mut self.choice, self.pieces.get_mut(&id)) else {
            return;
        };
        let Some(tried) = piece.tried.take() else {
            return;
        };
        let took = choice.stop(tried.begun);
        let table = self.tables.get_mut(&piece.peer);
        let is_undisturbed = table.is_none_or(|table| table.calm.settles(tried.began));
        let Some(way) = tried.way.filter(|_| is_fine) else {
            return;
        };
        // What a move is part of takes what the move takes.
        if !is_undisturbed && way != Way::Far {
            return;
        }
        if let Some(nanos) = took {
            // Zero is what was not tried.
            choice.took(tried.class, way, (nanos / tried.parts).max(1));
        }
    }

    fn start_piece(&mut self, id: u64, cx: &mut Context<'_>) {
        let Some(piece) = self.pieces.get(&id) else {
            return impossible("a piece starts after its end");
        };
        let pulls = cx.config().pulls(piece.direction);
        let small = piece.len <= cx.config().piggyback as u64;
        match cx.policy().remote {
            Remote::Copy => self.start_copy(id, cx),
            _ if piece.copied => {
                self.take_rest(id);
                self.start_copy(id, cx);
            }
            Remote::Paged if !pulls => {
                let (local, remote, len) = (piece.local, piece.remote, piece.len);
                self.transfer(id, (local, ANY), (remote, ANY), len, cx);
            }
            // The peer answers with the data, or writes it here.
            _ if pulls && small => self.start_copy(id, cx),
            _ if pulls && self.choice.is_some() => self.choose_pull(id, cx),
            _ if pulls => self.request_both(id, cx),
            Remote::Firehose => self.reach_for(id, cx),
            Remote::Handshake(_) => self.shake_hands(id, cx),
            Remote::Static => self.reach_static(id, cx),
            Remote::Paged => self.start_copy(id, cx),
        }
    }

    /// Wants the own memory of a pull registered, and has the peer register its own meanwhile.
    pub(super) fn request_both(&mut self, id: u64, cx: &mut Context<'_>) {
        self.request_local(id, cx);
        let Some(piece) = self.pieces.get(&id) else {
            return;
        };
        // The pull itself goes at once where nothing need be registered here.
        if let LocalSide::Requested(request) = piece.local_side
            && cx.local.is_open(request)
        {
            let message = Message::Ahead {
                region: piece.region,
                from: piece.remote,
                len: piece.len,
            };
            cx.send(piece.peer, message);
        }
    }

    /// Wants the own memory of a piece registered, or has it so already.
    pub(super) fn request_local(&mut self, id: u64, cx: &mut Context<'_>) {
        let Some(piece) = self.pieces.get(&id) else {
            return impossible("own memory is wanted for a piece that is over");
        };
        let Ok(run) = cx.limits().geometry.span(piece.local, piece.len) else {
            return impossible("an operation was begun that leaves the address space");
        };
        let used = piece.direction.local();
        let (requester, need) = match (piece.own, cx.policy().local) {
            (Own::Inline, _) => {
                self.with_piece(id, |piece| piece.local_side = LocalSide::Inline);
                self.both_sides(id, cx);
                return;
            }
            // More than is needed would only be deregistered again.
            (Own::Transient, _) => (
                Requester::Transient(id),
                Need {
                    run,
                    preferred: run,
                },
            ),
            (_, LocalPolicy::PerOperation) => (
                Requester::Piece(id),
                Need {
                    run,
                    preferred: run,
                },
            ),
            _ => (Requester::Piece(id), cx.local.need_for(run)),
        };
        let request = cx.local.request(requester, vec![need], used, cx.out);
        let waits = cx.local.is_pending(request);
        if let Some(piece) = self.pieces.get_mut(&id) {
            // A hit that has to register own memory first is none.
            if let Some(tried) = &mut piece.tried
                && waits
                && !tried.class.transient
                && tried.way == Some(Way::Hit)
            {
                tried.way = None;
            }
            piece.local_side = LocalSide::Requested(request);
        }
    }

    /// The own memory of a piece is registered, or was refused.
    pub(in crate::engine) fn local_side_done(&mut self, id: u64, cx: &mut Context<'_>) {
        if let Some(piece) = self.pieces.get_mut(&id)
            && let LocalSide::Requested(request) = piece.local_side
        {
            piece.local_side = LocalSide::Ready(request);
            self.both_sides(id, cx);
        }
    }

    /// Transfers, if both sides are there.
    pub(super) fn both_sides(&mut self, id: u64, cx: &mut Context<'_>) {
        let Some(piece) = self.pieces.get(&id) else {
            return impossible("both sides of a piece are there after its end");
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
            // Buckets are refused that are not mapped, or not writable, in a page that nobody
            // asked for: whether the bytes themselves can be reached, copying finds out.
            Some(_) => self.copy_instead(id, cx),
            None if local_refused => self.copy_instead(id, cx),
            None => match request {
                Some(request) if cx.config().pulls(piece.direction) => self.pull(id, request, cx),
                request => self.transfer_all(id, request, cx),
            },
        }
    }

    /// Starts a transfer for each stretch that lies in one extent on both sides; on the remote one
    /// alone where there is no request on the local one.
    fn transfer_all(&mut self, id: u64, request: Option<u64>, cx: &mut Context<'_>) {
        let geometry = cx.limits().geometry;
        let Some(piece) = self.pieces.get(&id) else {
            return impossible("transfers start for a piece that is over");
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
        let mut at = 0;
        // One more, so that none of them ends the piece before all have begun.
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
            // What was held did not cover it: never so, but never silently so either.
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

    fn transfer(
        &mut self,
        id: u64,
        (local, local_key): (u64, u64),
        (remote, remote_key): (u64, u64),
        len: u64,
        cx: &mut Context<'_>,
    ) {
        let transfer = cx.name();
        let is_last = |piece: &Piece| {
            let end = piece.local + piece.len;
            matches!(piece.local_side, LocalSide::Inline)
                && local + len == end
                && (self.ops.get(&piece.op)).is_some_and(Op::is_last_piece)
        };
        let last_of = (self.pieces.get(&id)).and_then(|it| is_last(it).then_some(it.op));
        let Some(piece) = self.pieces.get_mut(&id) else {
            return impossible("a transfer starts for a piece that is over");
        };
        piece.transfers += 1;
        self.transfers.insert(transfer, Transfer::OneSided(id));
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
    fn pull(&mut self, id: u64, request: u64, cx: &mut Context<'_>) {
        let geometry = cx.limits().geometry;
        let transfer = cx.name();
        let (Some(piece), Some(request)) = (self.pieces.get_mut(&id), cx.local.get(request)) else {
            return impossible("a pull starts for a piece that is over, or holds no own memory");
        };
        let mut at = piece.local;
        let places = (request.holds.iter())
            .map(|hold| {
                let end = geometry
                    .address_of(hold.run.end())
                    .min(piece.local + piece.len);
                let place = Place {
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
        self.transfers.insert(transfer, Transfer::Pull(id));
        let message = Message::Pull {
            id: transfer,
            region,
            from: remote,
            to: places,
        };
        cx.send(peer, message);
    }

    pub(in crate::engine) fn pulled(
        &mut self,
        from: u32,
        transfer: u64,
        refused: Option<Refusal>,
        registered: bool,
        cx: &mut Context<'_>,
    ) -> Result<(), Violation> {
        let id = match self.transfer_of(from, transfer) {
            Some(Transfer::Pull(id)) => id,
            _ => return Err(Violation::PulledUnasked),
        };
        self.transfers.remove(&transfer);
        if registered {
            self.was_far(id, cx);
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

    /// The transfer that a peer's message names, if it is of a piece with that peer.
    pub(super) fn transfer_of(&self, from: u32, transfer: u64) -> Option<Transfer> {
        let transfer = *self.transfers.get(&transfer)?;
        let piece = self.pieces.get(&transfer.piece())?;
        (piece.peer == from).then_some(transfer)
    }

    pub(in crate::engine) fn transfer_done(
        &mut self,
        id: u64,
        result: Result<(), Error>,
        cx: &mut Context<'_>,
    ) {
        let Some(piece) = self.pieces.get_mut(&id) else {
            return impossible("a transfer outlives its piece");
        };
        piece.transfers -= 1;
        if let Err(error) = result {
            piece.failed.get_or_insert(error);
        }
        if piece.transfers == 0 {
            self.end_piece(id, cx);
        }
    }

    /// Gives back what a piece holds on both sides.
    pub(super) fn let_go(&mut self, id: u64, cx: &mut Context<'_>) {
        let Some(piece) = self.pieces.get_mut(&id) else {
            return impossible("a piece that is over gives something back");
        };
        let (peer, local_side) = (piece.peer, piece.local_side);
        let holds = std::mem::take(&mut piece.remote_side.holds);
        piece.local_side = LocalSide::Unasked;
        if let LocalSide::Requested(request) | LocalSide::Ready(request) = local_side {
            let unpin = cx.policy().local == LocalPolicy::PerOperation;
            cx.local.end(request, unpin, cx.out);
        }
        if holds.is_empty() {
            return;
        }
        match cx.policy().remote {
            Remote::Handshake(after) => {
                for holds in holds.chunks(MAX_LIST).filter(|_| after != After::Keep) {
                    let runs = holds.iter().map(|hold| hold.run).collect();
                    let unpin = after == After::Unpin;
                    cx.send(peer, Message::Release { runs, unpin });
                }
                self.answer_revocations(peer, cx);
            }
            _ => {
                self.table_of(peer).drop_holds(&holds);
                self.firehoses_free(peer, cx);
            }
        }
    }

    pub(super) fn end_piece(&mut self, id: u64, cx: &mut Context<'_>) {
        let is_fine = (self.pieces.get(&id)).is_some_and(|piece| piece.failed.is_none());
        self.tried(id, is_fine);
        self.let_go(id, cx);
        let Some(piece) = self.pieces.remove(&id) else {
            return impossible("a piece ends twice");
        };
        let Some(op) = self.ops.get_mut(&piece.op) else {
            return impossible("a piece outlives its operation");
        };
        op.live -= 1;
        if let Some(error) = piece.failed
            && op.result.is_ok()
        {
            op.result = Err(error);
        }
        self.next_piece(piece.op, cx);
        self.end_op(piece.op, cx);
    }

    fn end_op(&mut self, id: u64, cx: &mut Context<'_>) {
        let over = |op: &Op| op.live == 0 && (op.cut == op.operation.len || op.result.is_err());
        if self.ops.get(&id).is_some_and(over)
            && let Some(op) = self.ops.remove(&id)
        {
            cx.out.actions.push(Action::Done {
                op: id,
                result: op.result,
            });
        }
    }

    pub(super) fn fail_piece(&mut self, id: u64, why: Refusal, cx: &mut Context<'_>) {
        self.with_piece(id, |piece| {
            piece.failed = Some(Error::Unreachable {
                rank: piece.peer,
                addr: piece.remote,
                len: piece.len,
                why,
            });
        });
        self.end_piece(id, cx);
    }

    /// All pieces with a peer that is gone fail, but for transfers under way: the network ends
    /// those.
    pub(super) fn fail_pieces(&mut self, peer: u32, cx: &mut Context<'_>) {
        let mut theirs: Vec<u64> = (self.pieces.iter())
            .filter(|(_, piece)| piece.peer == peer)
            .map(|(id, _)| *id)
            .collect();
        theirs.sort_unstable();
        self.forget_queue(peer);
        // Whoever waits for an answer waits no more.
        let Self {
            transfers, pieces, ..
        } = self;
        transfers.retain(|_, transfer| match *transfer {
            Transfer::Pull(id) | Transfer::Chunk { piece: id, .. } => {
                let piece = pieces.get_mut(&id).filter(|piece| piece.peer == peer);
                piece.map(|piece| piece.transfers -= 1).is_none()
            }
            Transfer::OneSided(_) => true,
        });
        for id in &theirs {
            self.with_piece(*id, |piece| piece.failed = Some(Error::PeerLost(peer)));
            let op = self.pieces.get(id).map(|piece| piece.op);
            if let Some(op) = op.and_then(|op| self.ops.get_mut(&op)) {
                op.result = Err(Error::PeerLost(peer));
            }
        }
        for id in theirs {
            if self
                .pieces
                .get(&id)
                .is_some_and(|piece| piece.transfers == 0)
            {
                self.end_piece(id, cx);
            }
        }
    }

    pub(super) fn with_piece(&mut self, id: u64, change: impl FnOnce(&mut Piece)) {
        if let Some(piece) = self.pieces.get_mut(&id) {
            change(piece);
        }
    }
}

/// Most bytes of a piece from there on: half of what the limits hold on either side, so that
/// two may be under way.
fn most(cx: &Context<'_>, direction: Direction, local: u64, remote: u64) -> u64 {
    let geometry = cx.limits().geometry;
    let up_to = |addr: u64, buckets: u64| {
        geometry.address_of(geometry.bucket_of(addr).saturating_add(buckets)) - addr
    };
    let half = |buckets: u64| (buckets / 2).clamp(1, 1 << 30);
    let pulls = cx.config().pulls(direction);
    let remote_most = match cx.policy().remote {
        Remote::Firehose | Remote::Handshake(_) => {
            up_to(remote, half(cx.limits().share.min(cx.limits().total)))
        }
        Remote::Static | Remote::Copy | Remote::Paged => u64::MAX,
    };
    let local_most = match (cx.policy().remote, cx.policy().local) {
        (Remote::Copy | Remote::Paged, _) | (_, LocalPolicy::Copied) => u64::MAX,
        // The places of a pull go in one message.
        _ if pulls => up_to(local, half(cx.limits().victims).min(MAX_LIST as u64)),
        _ => up_to(local, half(cx.limits().victims)),
    };
    let chunk = if cx.policy().chunked {
        (cx.limits().amortised * geometry.bucket()).clamp(CHUNK.0, CHUNK.1)
    } else {
        u64::MAX
    };
    remote_most.min(local_most).min(chunk)
}
