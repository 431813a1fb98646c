//! Carries the engines' decisions out, and checks that they are allowed.

use hydrant_pinning::{Action, Decisions, Direction, Error, Strategy};

use super::{EngineWorld, Then, WorldEvent, WorldTransfer};

/// The key of memory that is reached without registration.
const ANY: u64 = u64::MAX;

impl EngineWorld {
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
                    let at_once = self.plan.follows && self.draw(2) == 0;
                    let memory = &self.ranks[rank].memory;
                    let mapped = at_once.then(|| memory.mapped_of(preferred));
                    self.events.push(WorldEvent::Registered {
                        rank,
                        id,
                        need,
                        preferred,
                        mapped,
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
                mapped,
            } => {
                let result = self.register(rank, need, preferred, mapped);
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
                    wrong.is_none() || known.changes || hostile || self.ranks[known.peer].lost,
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
                    hostile || known.changes || !pairs.into_iter().any(torn),
                    "{cause} tore {known:?}"
                );
                self.book.failed += 1;
            }
        }
    }
}
