//! Takes the steps of a plan, and lets the world advance in any order.

use super::{EngineWorld, model::KnownOperation, plan::WorldStep};
use hydrant_pinning::Strategy;

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
            WorldStep::Change {
                rank,
                page,
                pages,
                gone,
            } => self.change(rank, page, pages, gone),
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
        self.settle();
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
            self.settle();
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
        self.go_on(which);
        self.look_at_foreseen();
    }

    fn go_on(&mut self, which: usize) {
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
}
