//! Ranks' changes of their own memory, and the loss of a rank.

use hydrant_pinning::{Error, Run, Strategy};

use super::{EngineWorld, Revoking, Then, WorldEvent, model::KnownOperation};

impl EngineWorld {
    /// Keeps as much memory registered from the start as a rank does that copies.
    pub(crate) fn keep(&mut self, rank: usize) {
        let limits = *self.ranks[rank].engine.limits();
        let count = (limits.victims / 4).min(limits.max_extent);
        if self.plan.follows || count == 0 {
            return;
        }
        let memory = &self.ranks[rank].memory;
        let first = (memory.base() + (1 << 29)) / self.plan.bucket();
        let run = Run { first, count };
        self.ranks[rank].kept = Some(run);
        let id = self.name();
        self.ranks[rank].pinning.insert(id, run);
        let mut out = hydrant_pinning::Decisions::default();
        self.ranks[rank].engine.keep(id, run, &mut out);
        // It is done before anything else begins.
        while !out.is_empty() {
            self.perform(rank, std::mem::take(&mut out), &[]);
            let Some(event) = self.events.pop() else {
                break;
            };
            self.happen(event);
        }
        assert!(self.ranks[rank].pinning.is_empty(), "it was registered");
    }

    pub(super) fn pin(&mut self, rank: u16, bucket: u16, buckets: u16) {
        let rank = usize::from(rank) % self.ranks.len();
        if self.ranks[rank].lost
            || Some(rank) == self.hostile
            || !self.ranks[rank].revoking.is_empty()
        {
            return;
        }
        let first = u64::from(bucket) % self.plan.memory;
        let count = (1 + u64::from(buckets) % 3).min(self.plan.memory - first);
        let run = Run {
            first: self.ranks[rank].memory.base() / self.plan.bucket() + first,
            count,
        };
        if !self.ranks[rank].memory.lasts_everywhere(run) {
            return;
        }
        let id = self.name();
        self.ranks[rank].pinning.insert(id, run);
        let mut out = hydrant_pinning::Decisions::default();
        self.ranks[rank].engine.pin(id, run, &mut out);
        self.perform(rank, out, &[]);
    }

    pub(super) fn pinned(
        &mut self,
        rank: usize,
        id: u64,
        result: Result<Vec<hydrant_pinning::wire::Grant>, Error>,
    ) {
        let run = self.ranks[rank]
            .pinning
            .remove(&id)
            .expect("it was asked for");
        match result {
            Ok(grants) => {
                let count: u64 = grants.iter().map(|grant| grant.run.count).sum();
                assert!(count >= run.count, "{grants:?} for {run:?}");
                if self.ranks[rank].kept == Some(run) {
                    return;
                }
                if matches!(
                    self.plan.strategy,
                    Strategy::PinEverything | Strategy::Firehose | Strategy::Auto
                ) {
                    for other in (0..self.ranks.len()).filter(|other| *other != rank) {
                        let added =
                            self.ranks[other]
                                .engine
                                .add_static(rank as u32, &grants, run.count);
                        assert!(added.is_ok() || self.ranks[rank].lost || self.ranks[other].lost);
                    }
                }
            }
            Err(cause) => assert!(
                matches!(cause, Error::PastLimit { .. } | Error::Unreachable { .. }),
                "{cause}"
            ),
        }
    }

    pub(super) fn revoke(&mut self, rank: u16, page: u16, pages: u16, unmap: bool) {
        let rank = usize::from(rank) % self.ranks.len();
        let own = &self.ranks[rank];
        if own.lost || Some(rank) == self.hostile {
            return;
        }
        let (addr, len) = own.memory.range(page, pages);
        let then = if unmap { Then::Unmap } else { Then::Stay };
        self.take_back(rank, addr, len, then);
    }

    /// Changes pages of a rank that hears of it. Their registrations end, and peers are asked to forget them.
    pub(super) fn change(&mut self, rank: u16, page: u16, pages: u16, gone: bool) {
        let rank = usize::from(rank) % self.ranks.len();
        let own = &self.ranks[rank];
        if !self.plan.follows || own.lost || Some(rank) == self.hostile {
            return;
        }
        let (addr, len) = own.memory.range(page, pages);
        let run = (own.engine.limits().geometry).span(addr, len);
        let run = run.expect("it is in memory");
        let id = self.name();
        self.note(&("changed", rank, id, run, gone));
        self.changed += 1;
        self.book.note_changed(rank, addr, len, gone);
        let own = &mut self.ranks[rank];
        own.engine.hot().change_begins();
        own.memory.change(addr, len, gone);
        own.changing.push((addr, len, gone));
        let mut out = hydrant_pinning::Decisions::default();
        own.engine.changed(&[(id, run)], 1, &mut out);
        self.perform(rank, out, &[]);
    }

    /// Notes the ranks whose peers all know the changes.
    pub(super) fn settle(&mut self) {
        for own in &mut self.ranks {
            if !own.engine.hot().is_unsettled() {
                own.changing.clear();
            }
        }
    }

    pub(super) fn lend(&mut self, rank: u16, page: u16, pages: u16) {
        let rank = usize::from(rank) % self.ranks.len();
        let own = &self.ranks[rank];
        if own.lost || Some(rank) == self.hostile {
            return;
        }
        let Some((addr, len)) = own.memory.unlent(page, pages) else {
            return;
        };
        let goes = |it: &Revoking| super::model::overlap(it.addr, it.len, addr, len);
        if own.revoking.values().any(goes) {
            return;
        }
        self.take_back(rank, addr, len, Then::Lend);
    }

    /// Takes pages back, unless the rank uses them itself.
    pub(super) fn take_back(&mut self, rank: usize, addr: u64, len: u64, then: Then) {
        use super::model::overlap;
        let own = &self.ranks[rank];
        let geometry = own.engine.limits().geometry;
        let run = geometry.span(addr, len).expect("it is in memory");
        let used_here = |known: &KnownOperation| {
            known.rank == rank && overlap(known.local, known.len, addr, len)
        };
        if self.book.known.values().any(used_here)
            || own.pinning.values().any(|pinning| pinning.overlaps(run))
            || own.revoking.len() > 3
        {
            return;
        }
        for known in self.book.known.values_mut() {
            known.may_fail |= known.peer == rank && overlap(known.remote, known.len, addr, len);
        }
        let id = self.name();
        self.note(&("revoke", rank, id, run, then));
        let own = &mut self.ranks[rank];
        let revoking = Revoking {
            run,
            addr,
            len,
            then,
        };
        own.revoking.insert(id, revoking);
        if then != Then::Lend {
            own.memory.lend(addr, len, false);
        }
        let mut out = hydrant_pinning::Decisions::default();
        own.engine.revoke(id, run, &mut out);
        self.perform(rank, out, &[]);
    }

    pub(super) fn lose(&mut self, rank: usize) {
        let alive = self.ranks.iter().filter(|rank| !rank.lost).count();
        if self.ranks[rank].lost || alive < 3 || Some(rank) == self.hostile {
            return;
        }
        self.note(&("lost", rank));
        self.ranks[rank].lost = true;
        let late = self.draw(2) == 0;
        self.channels
            .retain(|(from, to), _| *to != rank && (late || *from != rank));
        for known in self.book.known.values_mut() {
            known.may_fail |= known.peer == rank;
            known.must_fail &= known.peer != rank;
        }
        for other in (0..self.ranks.len()).filter(|other| *other != rank) {
            self.events.push(WorldEvent::Lost {
                rank: other,
                who: rank as u32,
            });
        }
    }
}
