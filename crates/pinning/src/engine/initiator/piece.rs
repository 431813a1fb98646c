//! Operations in flight and their pieces.

use super::{
    super::operation::OwnMemory, EngineOperation, Initiator, StepContext, TransferKind,
    firehoses::RemoteSide, sides::LocalSide, trial::RouteTrial,
};
use crate::engine::choice::PieceRoute;
use crate::{
    Action, Direction, Error, Refusal, RegionNumber,
    strategy::{LocalPolicy, RemotePolicy},
    wire::MAX_LIST,
};

/// The key of memory that a paging NIC reaches without registration.
pub(super) const ANY: u64 = u64::MAX;

/// The bytes of a chunk of the pipeline protocol, at least and at most.
const CHUNK: (u64, u64) = (64 << 10, 1 << 20);

/// An operation in flight.
#[derive(Debug)]
pub(super) struct InFlightOperation {
    /// The operation as it began; never changed.
    operation: EngineOperation,
    /// The bytes cut into pieces so far.
    cut: u64,
    /// The number of pieces in flight.
    live: usize,
    /// The first error of a piece, if one failed.
    result: Result<(), Error>,
}

impl InFlightOperation {
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Counts a further piece, beside those that were cut off.
    pub(super) fn count_piece(&mut self) {
        self.live += 1;
    }

    /// Returns true if the last piece is in flight.
    pub(super) fn is_last_piece(&self) -> bool {
        self.live == 1 && self.cut == self.operation.len
    }
}

/// A piece of an operation in flight.
#[derive(Debug)]
pub(super) struct Piece {
    /// The operation, by the driver's name.
    pub(super) op: u64,
    /// The rank of the peer.
    pub(super) peer: u32,
    /// The direction of the data.
    pub(super) direction: Direction,
    /// The first own address.
    pub(super) local: u64,
    /// The peer's region that is meant.
    pub(super) region: RegionNumber,
    /// The first address at the peer.
    pub(super) remote: u64,
    /// The length in bytes.
    pub(super) len: u64,
    /// The lifetime of the own memory.
    pub(super) own: OwnMemory,
    /// True if the piece must be copied through messages, whatever is registered.
    copied: bool,
    /// The first bytes that are another piece, its [head](super::head).
    pub(super) head: u64,
    /// True if the piece is the head of another.
    is_head: bool,
    /// The state of the own memory's registration.
    pub(super) local_side: LocalSide,
    /// The holds on the peer's memory, and the moves that it waits for.
    pub(super) remote_side: RemoteSide,
    /// The number of transfers in flight.
    pub(super) transfers: u32,
    /// The trial of a route, under `auto`.
    pub(super) trial: Option<RouteTrial>,
    /// The progress of the copy, if the piece is copied.
    pub(super) copy: super::copy::CopyProgress,
    /// The reason of its failure, if it failed.
    pub(super) failed: Option<Error>,
}

impl Piece {
    /// Notes the route of the piece.
    pub(super) fn set_route(&mut self, route: PieceRoute) {
        if let Some(trial) = &mut self.trial {
            trial.route = Some(route);
        }
    }

    /// Splits the first `head` bytes off as a piece that is copied.
    pub(super) fn split_head(&mut self, head: u64) -> Piece {
        self.head = head;
        Piece {
            len: head,
            copied: true,
            head: 0,
            is_head: true,
            local_side: LocalSide::Unasked,
            remote_side: RemoteSide::default(),
            transfers: 0,
            trial: None,
            copy: super::copy::CopyProgress::default(),
            failed: None,
            ..*self
        }
    }
}

impl Initiator {
    pub(in crate::engine) fn begin(
        &mut self,
        operation: EngineOperation,
        cx: &mut StepContext<'_>,
    ) {
        let op = InFlightOperation {
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
    fn next_piece(&mut self, id: u64, cx: &mut StepContext<'_>) -> bool {
        let Some(op) = self.ops.get(&id) else {
            self.impossible
                .note("a piece is cut off an operation that is over");
            return false;
        };
        let EngineOperation {
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
            head: 0,
            is_head: false,
            local_side: LocalSide::Unasked,
            remote_side: RemoteSide::default(),
            transfers: 0,
            trial: self.start_trial(peer, direction, most.min(len - cut), own),
            copy: super::copy::CopyProgress::default(),
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

    /// Extends a piece that will be copied by the rest of its operation. Registration needs cuts,
    /// but messages do not, and so the copy starts only once.
    pub(super) fn take_rest(&mut self, id: u64) {
        let Some(piece) = self.pieces.get_mut(&id) else {
            return self
                .impossible
                .note("a piece that is over takes more along");
        };
        let Some(op) = self.ops.get_mut(&piece.op) else {
            return self.impossible.note("a piece is of no operation");
        };
        let end = piece.remote - op.operation.remote + piece.len;
        let left = op.operation.len - op.cut;
        if left == 0 || end != op.cut {
            return;
        }
        op.cut = op.operation.len;
        if let Some(trial) = &mut piece.trial {
            trial.parts = 1 + left.div_ceil(piece.len.max(1));
        }
        piece.len += left;
    }

    fn start_piece(&mut self, id: u64, cx: &mut StepContext<'_>) {
        let Some(piece) = self.pieces.get(&id) else {
            return self.impossible.note("a piece starts after its end");
        };
        let pulls = cx.config().pulls(piece.direction);
        let small = piece.len <= cx.config().piggyback as u64;
        match cx.policy().remote {
            RemotePolicy::Copy => self.start_copy(id, cx),
            _ if piece.copied => {
                self.take_rest(id);
                self.start_copy(id, cx);
            }
            RemotePolicy::Paged if !pulls => {
                let (local, remote, len) = (piece.local, piece.remote, piece.len);
                self.transfer(id, (local, ANY), (remote, ANY), len, cx);
            }
            // The peer answers with the data, or writes it here.
            _ if pulls && small => self.start_copy(id, cx),
            _ if pulls && self.choice.is_some() => self.choose_pull(id, cx),
            _ if pulls => self.request_both(id, cx),
            RemotePolicy::Firehose => self.hold_firehoses(id, cx),
            RemotePolicy::Handshake(_) if self.hold_attached(id, cx) => {}
            RemotePolicy::Handshake(_) => self.handshake(id, cx),
            RemotePolicy::Static => self.hold_static(id, cx),
            RemotePolicy::Paged => self.start_copy(id, cx),
        }
    }

    pub(super) fn end_piece(&mut self, id: u64, cx: &mut StepContext<'_>) {
        let is_fine = (self.pieces.get(&id)).is_some_and(|piece| piece.failed.is_none());
        self.end_trial(id, is_fine);
        self.release_sides(id, cx);
        let Some(piece) = self.pieces.remove(&id) else {
            return self.impossible.note("a piece ends twice");
        };
        let Some(op) = self.ops.get_mut(&piece.op) else {
            return self.impossible.note("a piece outlives its operation");
        };
        op.live -= 1;
        if let Some(error) = piece.failed
            && op.result.is_ok()
        {
            op.result = Err(error);
        }
        // A head is an extra piece, so it is not replaced by another.
        if !piece.is_head {
            self.next_piece(piece.op, cx);
        }
        self.end_op(piece.op, cx);
    }

    fn end_op(&mut self, id: u64, cx: &mut StepContext<'_>) {
        let over = |op: &InFlightOperation| {
            op.live == 0 && (op.cut == op.operation.len || op.result.is_err())
        };
        if self.ops.get(&id).is_some_and(over)
            && let Some(op) = self.ops.remove(&id)
        {
            cx.out.actions.push(Action::Done {
                op: id,
                result: op.result,
            });
        }
    }

    pub(super) fn fail_piece(&mut self, id: u64, why: Refusal, cx: &mut StepContext<'_>) {
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

    /// Fails all pieces of a lost peer, except those with transfers in flight: the network ends
    /// these.
    pub(super) fn fail_pieces(&mut self, peer: u32, cx: &mut StepContext<'_>) {
        let mut theirs: Vec<u64> = (self.pieces.iter())
            .filter(|(_, piece)| piece.peer == peer)
            .map(|(id, _)| *id)
            .collect();
        theirs.sort_unstable();
        self.forget_queue(peer);
        // No answer of a lost peer comes any more.
        let Self {
            transfers, pieces, ..
        } = self;
        transfers.retain(|_, transfer| match *transfer {
            TransferKind::Pull(id) | TransferKind::Chunk { piece: id, .. } => {
                let piece = pieces.get_mut(&id).filter(|piece| piece.peer == peer);
                piece.map(|piece| piece.transfers -= 1).is_none()
            }
            TransferKind::OneSided(_) => true,
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

/// The most bytes of a piece at these addresses: half of the limits of either side, so that two
/// pieces may be in flight.
fn most(cx: &StepContext<'_>, direction: Direction, local: u64, remote: u64) -> u64 {
    let geometry = cx.limits().geometry;
    let up_to = |addr: u64, buckets: u64| {
        geometry.address_of(geometry.bucket_of(addr).saturating_add(buckets)) - addr
    };
    let half = |buckets: u64| (buckets / 2).clamp(1, 1 << 30);
    let pulls = cx.config().pulls(direction);
    let remote_most = match cx.policy().remote {
        RemotePolicy::Firehose | RemotePolicy::Handshake(_) => {
            up_to(remote, half(cx.limits().share.min(cx.limits().total)))
        }
        RemotePolicy::Static | RemotePolicy::Copy | RemotePolicy::Paged => u64::MAX,
    };
    let local_most = match (cx.policy().remote, cx.policy().local) {
        (RemotePolicy::Copy | RemotePolicy::Paged, _) | (_, LocalPolicy::Copied) => u64::MAX,
        // The destinations of a pull go in one message.
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
