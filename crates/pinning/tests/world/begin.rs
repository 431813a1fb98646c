//! Begins operations: by a hit if possible, else through the engine.

use hydrant_pinning::{
    Advice, Decisions, Direction, EngineOperation, OwnMemory, RegionNumber, Strategy,
};

use super::{EngineWorld, Revoking, WorldEvent, model::KnownOperation};

impl EngineWorld {
    pub(super) fn begin(
        &mut self,
        rank: u16,
        peer: u16,
        direction: Direction,
        local: u32,
        remote: u32,
        len: u32,
    ) {
        let all = self.ranks.len();
        let rank = usize::from(rank) % all;
        let peer = (rank + 1 + usize::from(peer) % (all - 1)) % all;
        if self.ranks[rank].lost || Some(rank) == self.hostile {
            return;
        }
        let bucket = self.plan.bucket() as u32;
        let len = u64::from(match len % 8 {
            0..4 => 1 + (len >> 3) % 64,
            4 | 5 => 1 + (len >> 3) % bucket,
            6 => 1 + (len >> 3) % (6 * bucket),
            _ => [
                0,
                self.plan.piggyback as u32,
                self.plan.piggyback as u32 + 1,
                bucket,
                4 * bucket,
            ][(len >> 3) as usize % 5],
        });
        // Some addresses are busier than others.
        let place = |memory: &super::memory::ModelMemory, at: u32| {
            let room = memory.len().saturating_sub(len) + 1;
            let at = u64::from(at >> 2)
                % if at.is_multiple_of(4) {
                    room
                } else {
                    room / 4 + 1
                };
            memory.base() + if at.is_multiple_of(3) { at & !4095 } else { at }
        };
        if len > self.ranks[rank].memory.len() {
            return;
        }
        let (local, remote) = (
            place(&self.ranks[rank].memory, local),
            place(&self.ranks[peer].memory, remote),
        );
        // Some operations go on where the last one ended.
        let after = self.after.get(&(rank, peer, direction)).copied();
        let (local, remote) = match after.filter(|_| len.is_multiple_of(3)) {
            Some((local, remote))
                if self.ranks[rank].memory.is_inside(local, len)
                    && self.ranks[peer].memory.is_inside(remote, len) =>
            {
                (local, remote)
            }
            _ => (local, remote),
        };
        self.after
            .insert((rank, peer, direction), (local + len, remote + len));
        self.start(rank, peer, direction, local, remote, len);
    }

    /// Begins an operation, unless another one uses its memory.
    pub(crate) fn start(
        &mut self,
        rank: usize,
        peer: usize,
        direction: Direction,
        local: u64,
        remote: u64,
        len: u64,
    ) {
        let own = &self.ranks[rank];
        let goes = |it: &Revoking| super::model::overlap(it.addr, it.len, local, len.max(1));
        let busy = own.revoking.values().any(goes);
        if busy || own.memory.may(local, len, direction.local()).is_err() {
            return;
        }
        let theirs = &self.ranks[peer];
        let may = theirs.memory.may(remote, len, direction.remote()).is_ok();
        let lent = theirs
            .memory
            .may_peer(remote, len, direction.remote())
            .is_ok();
        let unsure = theirs.lost || Some(peer) == self.hostile;
        let mut known = KnownOperation {
            rank,
            peer,
            direction,
            local,
            remote,
            len,
            data: Vec::new(),
            before: Vec::new(),
            may_fail: !lent || unsure,
            must_fail: !may && !unsure && len > 0,
            changes: false,
        };
        // Until all peers have answered, they may reach the old pages.
        for (addr, changed, gone) in &theirs.changing {
            if super::model::overlap(*addr, *changed, remote, len) {
                known.changes = true;
                known.may_fail |= gone;
                known.must_fail = false;
            }
        }
        if !self.book.is_free(&known) {
            return;
        }
        let bytes = |(rank, addr): (usize, u64)| self.ranks[rank].memory.bytes(addr, len).to_vec();
        known.data = bytes(known.source());
        known.before = bytes(known.target());
        let op = self.name();
        self.note(&(op, rank, peer, direction, local, remote, len));
        let hot = self.ranks[rank].engine.hot().clone();
        let moves = direction == Direction::Put || self.plan.reads;
        let own = self.stands(rank, direction, local, len);
        // Some pages of a bucket may be gone though others last.
        let copied = self.plan.pages > 1 && !self.ranks[peer].memory.lasts(remote, len);
        let hit = match own {
            OwnMemory::Persistent if moves && !copied => {
                hot.hit(peer as u32, remote, local, len, direction)
            }
            OwnMemory::Inline if !copied => hot.hit_remote(peer as u32, remote, len),
            _ => None,
        };
        let ask = match hit {
            None if moves && !copied => hot.ask(direction, len),
            _ => Advice::Engine,
        };
        let hit = match (ask, own) {
            (Advice::Hit | Advice::Time, OwnMemory::Persistent) => {
                hot.hit_unless_crowded(peer as u32, remote, local, len, direction)
            }
            (Advice::Hit | Advice::Time, OwnMemory::Inline | OwnMemory::Unregistered) => {
                hot.hit_remote_unless_crowded(peer as u32, remote, len)
            }
            _ => hit,
        };
        let hit = match hit {
            Some(hit) if ask == Advice::Time => {
                let nanos = self.draw(4000);
                let engine = &mut self.ranks[rank].engine;
                let timed = engine.time_hit(peer as u32, direction, len);
                if let Some(timed) = timed {
                    engine.record_hit_time(timed, nanos);
                } else if hot.release(&hit) {
                    let mut out = Decisions::default();
                    engine.released(&hit.keep(), &mut out);
                    self.perform(rank, out, &[]);
                }
                timed.map(|_| hit)
            }
            hit => hit,
        };
        match own {
            OwnMemory::Persistent | OwnMemory::Unregistered => {}
            OwnMemory::Transient => self.transient += 1,
            OwnMemory::Inline => self.inline += 1,
        }
        if let Some(hit) = hit.map(|hit| hit.keep()) {
            self.book.known.insert(op, known);
            self.hits += 1;
            self.ranks[rank].hits.push(hit);
            let taken = (own == OwnMemory::Inline).then(|| self.taken(rank, local, len));
            self.events.push(WorldEvent::HitMoves {
                rank,
                op,
                hit,
                taken,
            });
            return;
        }
        let operation = EngineOperation {
            id: op,
            peer: peer as u32,
            direction,
            local,
            region: RegionNumber(op),
            remote,
            len,
            own,
            copied: copied || ask == Advice::Copy,
        };
        let mut out = Decisions::default();
        let begun = self.ranks[rank].engine.begin(operation, &mut out);
        begun.unwrap_or_else(|cause| panic!("{operation:?}: {cause}"));
        self.book.known.insert(op, known);
        self.perform(rank, out, &[]);
    }

    /// The lifetime of an operation's own memory.
    pub(super) fn stands(
        &self,
        rank: usize,
        direction: Direction,
        local: u64,
        len: u64,
    ) -> OwnMemory {
        if direction == Direction::Put
            && len <= self.plan.inline
            && self.plan.strategy != Strategy::Paging
        {
            OwnMemory::Inline
        } else if self.ranks[rank].memory.lasts(local, len) {
            OwnMemory::Persistent
        } else {
            OwnMemory::Transient
        }
    }

    /// The data that the NIC takes inline.
    pub(super) fn taken(&self, rank: usize, local: u64, len: u64) -> Vec<u8> {
        assert!(len <= self.plan.inline, "{len} bytes are too many");
        self.ranks[rank].memory.bytes(local, len).to_vec()
    }
}
