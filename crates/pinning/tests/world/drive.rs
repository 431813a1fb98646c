//! Carries the engines' decisions out in any order, and checks that they are allowed.

use hydrant_pinning::{
    Action, Advice, Attached, Decisions, Detached, Direction, EngineOperation, Error, OwnMemory,
    RegionNumber, Run, Strategy,
};

use super::{
    EngineWorld, Revoking, Then, WorldEvent, WorldTransfer, model::KnownOperation, plan::WorldStep,
};

/// The region of memory that is foreseen to be needed.
pub(super) const AHEAD: RegionNumber = RegionNumber(u64::MAX - 1);

/// The key of memory that is reached without registration.
const ANY: u64 = u64::MAX;

impl EngineWorld {
    pub(crate) fn step(&mut self, step: &WorldStep) {
        self.steps += 1;
        self.tell_time();
        self.help();
        match *step {
            WorldStep::Begin {
                rank,
                peer,
                direction,
                local,
                remote,
                len,
            } => self.begin(rank, peer, direction, local, remote, len),
            WorldStep::Advance(which) => self.advance(usize::from(which)),
            WorldStep::Flush(seed) => {
                for _ in 0..seed % 64 {
                    let which = self.draw(1 << 16) as usize;
                    self.advance(which);
                }
            }
            WorldStep::Drain => self.drain(),
            WorldStep::Revoke {
                rank,
                page,
                pages,
                unmap,
            } => self.revoke(rank, page, pages, unmap),
            WorldStep::Lend { rank, page, pages } => self.lend(rank, page, pages),
            WorldStep::Restore(rank) => {
                let rank = usize::from(rank) % self.ranks.len();
                if self.ranks[rank].revoking.is_empty() {
                    let own = &mut self.ranks[rank];
                    let (addr, len) = (own.memory.base(), own.memory.len());
                    self.book.note_mapped(rank, addr, len);
                    own.memory.restore(addr, len, |run| own.nic.touches(run));
                }
            }
            WorldStep::Pin {
                rank,
                bucket,
                buckets,
            } => self.pin(rank, bucket, buckets),
            WorldStep::Foresee {
                rank,
                peer,
                direction,
                bucket,
                buckets,
                soon,
            } => self.foresee((rank, peer), direction, (bucket, buckets), soon),
            WorldStep::FailRegistrations(often) => {
                self.fail_registrations = match often {
                    0..180 => 0,
                    180..250 => 2 + u32::from(often) % 6,
                    _ => 1,
                }
            }
            WorldStep::FailTransfers(fail) => self.fail_transfers = fail,
            WorldStep::Lose(rank) => self.lose(usize::from(rank) % self.ranks.len()),
        }
        self.remap();
        self.check();
    }

    /// Advances the time that `auto` chooses by; every step takes the same time.
    fn tell_time(&mut self) {
        for own in &mut self.ranks {
            if own.engine.wants_time() {
                own.engine.tell_time(self.steps * 700);
            }
        }
    }

    /// Steps until nothing is in flight.
    pub(crate) fn drain(&mut self) {
        self.fail_transfers = false;
        let mut helps = 200;
        for _ in 0..300_000 {
            if self.things() == 0 {
                // While the hostile rank answers nobody, some ranks may wait for it, and others for
                // those.
                if self.hostile.is_none_or(|rank| self.ranks[rank].lost) {
                    self.check_end();
                }
                return;
            }
            let which = self.draw(1 << 32) as usize;
            self.advance(which);
            if helps > 0 {
                helps -= 1;
                self.help();
            }
            self.remap();
            self.steps += 1;
            self.tell_time();
            if self.steps.is_multiple_of(8) {
                self.check();
            }
        }
        panic!(
            "it never ends: {:?} {:#?}",
            self.events, self.ranks[0].engine
        );
    }

    pub(super) fn things(&self) -> usize {
        self.events.len() + self.channels.values().filter(|it| !it.is_empty()).count()
    }

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

    /// Acts as a helper on its own rank's memory, at any time.
    fn help(&mut self) {
        if self.plan.strategy != Strategy::Foresight || self.draw(3) > 0 {
            return;
        }
        let rank = self.draw(self.ranks.len() as u64) as usize;
        if self.ranks[rank].lost || Some(rank) == self.hostile {
            return;
        }
        let bucket = self.plan.bucket();
        // Half of the actions are on the same few buckets.
        let places = if self.draw(2) == 0 {
            8
        } else {
            self.plan.memory
        };
        let first = self.draw(places.min(self.plan.memory));
        let count = (1 + self.draw(6)).min(self.plan.memory - first);
        let run = Run {
            first: self.ranks[rank].memory.base() / bucket + first,
            count,
        };
        let (addr, len) = (run.first * bucket, run.count * bucket);
        let mut out = Decisions::default();
        match self.draw(7) {
            0 => {
                let most = [0, 0, 1, 2, 5, 12, u64::MAX / bucket][self.draw(7) as usize];
                self.ranks[rank].engine.keep_within(most * bucket);
            }
            1 => {
                let is_apart = self.draw(3) > 0;
                self.ranks[rank].engine.set_apart(addr, is_apart).unwrap();
            }
            2 => {
                let it = self.ranks[rank].engine.take_crowded_out();
                assert!(it.runs.len() <= 256);
                self.crowded += it.runs.len() as u64;
            }
            3 => {
                _ = self.ranks[rank]
                    .engine
                    .give_up(addr, len, &mut out)
                    .unwrap()
            }
            4 => {
                _ = (self.ranks[rank].engine)
                    .give_up_apart(addr, &mut out)
                    .unwrap()
            }
            _ => {
                let own = &self.ranks[rank];
                if !own.revoking.is_empty() || !own.memory.lasts_everywhere(run) {
                    return;
                }
                let id = self.name();
                self.ranks[rank].pinning.insert(id, run);
                self.ranks[rank]
                    .engine
                    .foresee(id, addr, len, &mut out)
                    .unwrap();
            }
        }
        self.perform(rank, out, &[]);
    }

    /// Moves firehoses of a rank ahead, or gives them back.
    fn foresee(
        &mut self,
        (rank, peer): (u16, u16),
        direction: Direction,
        (bucket, buckets): (u16, u16),
        soon: bool,
    ) {
        let all = self.ranks.len();
        let rank = usize::from(rank) % all;
        let peer = (rank + 1 + usize::from(peer) % (all - 1)) % all;
        if self.ranks[rank].lost || Some(rank) == self.hostile {
            return;
        }
        let memory = &self.ranks[peer].memory;
        let (len, bucket_bytes) = (memory.len(), self.plan.bucket());
        // Half of the actions are on the same few buckets.
        let places = match bucket % 2 {
            0 => (len / bucket_bytes).clamp(1, 4),
            _ => (len / bucket_bytes).max(1),
        };
        let start = memory.base() + u64::from(bucket >> 1) % places * bucket_bytes;
        let bytes = (1 + u64::from(buckets % 6)) * bucket_bytes;
        let bytes = bytes.min(memory.base() + len - start);
        // Now and then the memory was foreseen before, and may be attached by now.
        let mut again =
            (self.foreseen.keys()).filter(|(of, ..)| soon && bucket % 4 == 3 && *of == rank);
        let (peer, there) = match again.next_back() {
            Some(&(_, peer, there)) => (peer, there),
            None => (peer as u32, (start, bytes)),
        };
        let mut out = Decisions::default();
        let own = &mut self.ranks[rank];
        let before = own.engine.attached(peer, there, direction);
        if soon {
            let attached = own.engine.attach((peer, AHEAD), there, direction, &mut out);
            match attached {
                Ok(Attached::No) => {}
                Ok(attached) => {
                    let is_there = attached == Attached::All;
                    let it = self.foreseen.entry((rank, peer, there));
                    it.or_insert((direction, is_there)).1 |= is_there;
                    assert_eq!(own.engine.attached(peer, there, direction), attached);
                    self.ahead += u64::from(attached == Attached::Coming);
                    self.ahead_there += u64::from(before == Attached::All);
                }
                Err(cause) => assert_eq!(cause, Error::PeerLost(peer)),
            }
        } else {
            self.foreseen.remove(&(rank, peer, there));
            match own.engine.detach(peer, there, &mut out) {
                Ok(Detached::Now) => {
                    assert_eq!(own.engine.attached(peer, there, direction), Attached::No);
                    self.given_back += 1;
                }
                Ok(Detached::WhenUnused) => self.given_back_later += 1,
                _ => {}
            }
        }
        self.perform(rank, out, &[]);
    }

    /// Forgets foreseen memory that was refused, which nobody gives back.
    fn forget_refused(&mut self) {
        let Self {
            foreseen, ranks, ..
        } = self;
        foreseen.retain(|(rank, peer, there), (direction, is_there)| {
            if *is_there {
                return true;
            }
            let engine = &mut ranks[*rank].engine;
            let attached = engine.attached(*peer, *there, *direction);
            *is_there = attached == Attached::All;
            attached != Attached::No
        });
    }

    /// Ends all expectations, so that nobody holds memory of another rank.
    pub(crate) fn foresee_nothing(&mut self) {
        for (rank, peer, there) in std::mem::take(&mut self.foreseen).into_keys() {
            let mut out = Decisions::default();
            let outcome = self.ranks[rank].engine.detach(peer, there, &mut out);
            assert!(matches!(outcome, Ok(_) | Err(Error::PeerLost(_))));
            self.perform(rank, out, &[]);
        }
        self.drain();
        for (rank, own) in self.ranks.iter().enumerate() {
            for peer in 0..self.ranks.len() {
                if peer != rank && !own.lost && !self.ranks[peer].lost {
                    let held = own.engine.attached_at(peer as u32);
                    assert_eq!(held, 0, "what {rank} holds at {peer}");
                }
            }
        }
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
        };
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
        let own = self.own_memory(rank, direction, local, len);
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
            (Advice::Hit | Advice::Time, OwnMemory::Inline) => {
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
            OwnMemory::Persistent => {}
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
    pub(super) fn own_memory(
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

    /// Maps all transient memory anew, except memory that operations of its own rank use.
    pub(super) fn remap(&mut self) {
        let Self { ranks, book, .. } = self;
        for (rank, own) in ranks.iter_mut().enumerate() {
            own.memory.remap(|addr, len| {
                let uses = |known: &KnownOperation| {
                    known.rank == rank && super::model::overlap(known.local, known.len, addr, len)
                };
                book.known.values().any(uses)
            });
        }
    }

    /// Returns true if no peer tells which registrations are unused.
    pub(super) fn keeps(&self) -> bool {
        self.plan.strategy == Strategy::Rendezvous { unpin: false }
    }

    pub(super) fn advance(&mut self, which: usize) {
        self.happen_next(which);
        self.forget_refused();
    }

    fn happen_next(&mut self, which: usize) {
        let things = self.things();
        if things == 0 {
            return;
        }
        let which = which % things;
        if which < self.events.len() {
            let event = self.events.remove(which);
            self.happen(event);
        } else {
            let mut ready = self.channels.iter().filter(|(_, queue)| !queue.is_empty());
            let (&(from, to), _) = ready.nth(which - self.events.len()).expect("counted");
            let queue = self.channels.get_mut(&(from, to)).expect("it is there");
            let bytes = queue.pop_front().expect("it is not empty");
            if self.ranks[to].lost {
                return;
            }
            if Some(to) == self.hostile {
                self.misanswer(from, &bytes)
            } else {
                self.deliver(from, to, &bytes)
            }
        }
    }

    pub(crate) fn perform(&mut self, rank: usize, decided: Decisions, data: &[u8]) {
        for sent in decided.messages {
            self.note(&(rank, &sent));
            self.send(rank, sent.to as usize, sent.message, sent.data);
        }
        let mut landed = 0;
        for action in decided.actions {
            self.note(&(rank, &action));
            match action {
                Action::Register {
                    id,
                    need,
                    preferred,
                } => {
                    assert!(preferred.contains(need) && need.count > 0);
                    let limits = *self.ranks[rank].engine.limits();
                    assert!(preferred.count <= limits.max_extent, "{preferred:?}");
                    let nic = &mut self.ranks[rank].nic;
                    assert!(!nic.touches(preferred), "registered twice: {preferred:?}");
                    self.wide += u64::from(preferred != need);
                    nic.buckets += preferred.count;
                    assert!(nic.buckets <= limits.total, "{} of {limits:?}", nic.buckets);
                    self.events.push(WorldEvent::Registered {
                        rank,
                        id,
                        need,
                        preferred,
                    });
                }
                Action::Deregister { id, key, run } => {
                    let gone = self.ranks[rank].nic.keys.remove(&key);
                    assert_eq!(gone.map(|it| it.run), Some(run), "deregistered twice");
                    self.events.push(WorldEvent::Deregistered { rank, id, run });
                }
                Action::Transfer {
                    id,
                    peer,
                    direction,
                    local,
                    local_key,
                    remote,
                    remote_key,
                    len,
                    last_of,
                } => {
                    let inline = local_key == ANY && self.plan.strategy != Strategy::Paging;
                    assert!(!inline || direction == Direction::Put);
                    assert!(last_of.is_none() || inline, "it reads the buffer");
                    let taken = inline.then(|| self.taken(rank, local, len));
                    self.events.push(WorldEvent::Transfer(WorldTransfer {
                        taken,
                        rank,
                        id,
                        peer,
                        direction,
                        local,
                        local_key,
                        remote,
                        remote_key,
                        len,
                    }));
                }
                Action::Land { to, len } => {
                    let part = &data[landed..landed + len as usize];
                    let wanted = self.book.known.values().any(|known| {
                        known.direction == Direction::Get
                            && known.rank == rank
                            && known.local <= to
                            && to + u64::from(len) <= known.local + known.len
                    });
                    assert!(wanted, "{len} bytes land at {to:#x} for nobody");
                    self.ranks[rank].memory.store(to, part);
                    landed += len as usize;
                }
                Action::Done { op, result } => self.done(rank, op, result),
                Action::Pinned { id, result } => self.pinned(rank, id, result),
                Action::Revoked { id } => {
                    self.revocations += 1;
                    let it = self.ranks[rank]
                        .revoking
                        .remove(&id)
                        .expect("it was asked for");
                    let own = &mut self.ranks[rank];
                    assert!(!own.nic.touches(it.run), "{:?} is registered still", it.run);
                    match it.then {
                        Then::Lend => {
                            own.memory.anew(it.addr, it.len);
                            own.memory.lend(it.addr, it.len, true);
                            self.book.note_mapped(rank, it.addr, it.len);
                        }
                        Then::Unmap => own.memory.unmap(it.addr, it.len),
                        Then::Stay => {}
                    }
                    let lasts = self.plan.follows || it.then == Then::Lend;
                    own.memory.make_last(it.addr, it.len, lasts);
                }
            }
        }
    }

    pub(super) fn happen(&mut self, event: WorldEvent) {
        let of = match &event {
            WorldEvent::Transfer(transfer) => transfer.rank,
            WorldEvent::Registered { rank, .. }
            | WorldEvent::Deregistered { rank, .. }
            | WorldEvent::Transferred { rank, .. }
            | WorldEvent::HitMoves { rank, .. }
            | WorldEvent::HitEnds { rank, .. }
            | WorldEvent::Lost { rank, .. } => *rank,
        };
        if self.ranks[of].lost {
            return;
        }
        self.note(&event);
        let mut out = Decisions::default();
        match event {
            WorldEvent::Registered {
                rank,
                id,
                need,
                preferred,
            } => {
                let result = self.register(rank, need, preferred);
                let kept = result.map_or(0, |got| got.run.count);
                self.ranks[rank].nic.buckets -= preferred.count - kept;
                self.ranks[rank].engine.registered(id, result, &mut out);
            }
            WorldEvent::Deregistered { rank, id, run } => {
                self.ranks[rank].nic.buckets -= run.count;
                self.ranks[rank].engine.deregistered(id, &mut out);
            }
            WorldEvent::Transfer(it) => {
                let result = self.transfer(&it);
                self.events.push(WorldEvent::Transferred {
                    rank: it.rank,
                    id: it.id,
                    result,
                });
            }
            WorldEvent::Transferred { rank, id, result } => {
                self.ranks[rank].engine.transferred(id, result, &mut out);
            }
            WorldEvent::HitMoves {
                rank,
                op,
                hit,
                taken,
            } => {
                let known = self.book.known[&op].clone();
                let result = self.transfer(&WorldTransfer {
                    rank,
                    id: 0,
                    peer: known.peer as u32,
                    direction: known.direction,
                    local: known.local,
                    local_key: hit.local_key,
                    remote: known.remote,
                    remote_key: hit.remote_key,
                    len: known.len,
                    taken,
                });
                self.events.push(WorldEvent::HitEnds {
                    rank,
                    op,
                    hit,
                    result,
                });
            }
            WorldEvent::HitEnds {
                rank,
                op,
                hit,
                result,
            } => {
                let own = &mut self.ranks[rank];
                let at = own.hits.iter().position(|held| *held == hit);
                let _ = own.hits.swap_remove(at.expect("it is held"));
                if own.engine.hot().clone().release_kept(&hit) {
                    own.engine.released(&hit, &mut out);
                }
                self.done(rank, op, result);
            }
            WorldEvent::Lost { rank, who } => {
                self.ranks[rank].knows_lost.insert(who);
                self.ranks[rank].engine.peer_lost(who, &mut out);
            }
        }
        self.perform(of, out, &[]);
    }

    pub(super) fn done(&mut self, rank: usize, op: u64, result: Result<(), Error>) {
        let known = self
            .book
            .known
            .remove(&op)
            .expect("it ends once, and was begun");
        assert_eq!(known.rank, rank);
        let (target, addr) = known.target();
        let there = self.ranks[target].memory.bytes(addr, known.len);
        match result {
            Ok(()) => {
                assert!(!known.must_fail, "{known:?} went well");
                let wrong = there.iter().zip(&known.data).position(|(a, b)| a != b);
                let hostile = Some(known.peer) == self.hostile;
                assert!(
                    wrong.is_none() || hostile || self.ranks[known.peer].lost,
                    "byte {wrong:?} of {} is wrong: {known:?}",
                    known.len
                );
                self.book.served += 1;
            }
            Err(cause) => {
                assert!(known.may_fail || known.must_fail, "{cause} of {known:?}");
                let hostile = Some(known.peer) == self.hostile;
                let torn = |((a, b), c): ((&u8, &u8), &u8)| a != b && a != c;
                let pairs = there.iter().zip(&known.data).zip(&known.before);
                assert!(
                    hostile || !pairs.into_iter().any(torn),
                    "{cause} tore {known:?}"
                );
                self.book.failed += 1;
            }
        }
    }
}
