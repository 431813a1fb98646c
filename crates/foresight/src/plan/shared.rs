//! Pages that buffers share which lie side by side: where they are registered by themselves, and stay so, neither buffer
//! keeps the other registered, and none is torn when the other is given up.

use std::collections::BTreeSet;

use super::regions::Found;
use super::{Plan, RegionId};
use crate::communication::{Communication, Region};
use crate::time::Time;

/// The most pages that are apart; more are registered with the buffers.
const MAX_APART: usize = 1024;

/// The most regions that are checked for pages that they share with a new one.
const MAX_BESIDE: usize = 64;

/// A page is to be by itself only where registering each of the buffers takes so many times what the page takes.
const WORTH_IT: u64 = 5;

/// A page that buffers share, and what is to become of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    /// Its first byte.
    pub page: u64,
    /// What is to become of it.
    pub change: Change,
}

/// What is to become of a page that buffers share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It is registered by itself from now on.
    Apart,
    /// It is registered with what lies beside it.
    Joined,
    /// It stays apart, and is given up now, because no buffer that has it is expected to be used.
    Idle,
}

/// The pages that are to be by themselves.
#[derive(Debug, Default)]
pub(super) struct SharedPages {
    apart: BTreeSet<u64>,
    /// What changed since this was last asked.
    changes: Vec<Shared>,
}

impl SharedPages {
    /// The pages that are apart in this memory.
    fn within(&self, memory: Region) -> Vec<u64> {
        let pages = self.apart.range(memory.addr..memory.end().max(memory.addr));
        pages.copied().collect()
    }

    /// A region that is used as a whole has these pages inside: it would take several registrations.
    fn join(&mut self, inside: Region) {
        for page in self.within(inside) {
            self.apart.remove(&page);
            self.note(page, Change::Joined);
        }
    }

    fn part(&mut self, page: u64) {
        if self.apart.len() < MAX_APART && self.apart.insert(page) {
            self.note(page, Change::Apart);
        }
    }

    fn note(&mut self, page: u64, change: Change) {
        self.changes.push(Shared { page, change });
    }
}

impl Plan {
    /// What became known of shared pages since this was last asked.
    pub fn take_shared(&mut self) -> Vec<Shared> {
        std::mem::take(&mut self.shared.changes)
    }

    /// The region that a communication used; of a new one, the pages that it shares with others are noted.
    pub(super) fn find_or_add(&mut self, communication: &Communication, now: Time) -> RegionId {
        let Found { id, is_new, gone } = self.regions.find_or_add(communication, now);
        for gone in gone {
            // It may never be used again.
            self.worth.refund(gone.charged_ns);
            self.forget_shared(gone.memory);
        }
        if is_new {
            self.note_shared(id);
        }
        id
    }

    /// A region is idle: so may be pages that are apart in it.
    pub(super) fn leave_shared(&mut self, id: RegionId) {
        let memory = self.regions.at(id).memory;
        for page in self.shared.within(memory) {
            if self.regions.are_idle(self.whole(page)) {
                self.shared.note(page, Change::Idle);
            }
        }
    }

    /// A region was forgotten: pages that it shared and that one region has now, or none, are shared no more.
    fn forget_shared(&mut self, memory: Region) {
        for page in self.shared.within(memory) {
            if !self.regions.are_shared(self.whole(page)) {
                self.shared.apart.remove(&page);
                self.shared.note(page, Change::Joined);
            }
        }
    }

    fn whole(&self, page: u64) -> Region {
        Region {
            addr: page,
            bytes: self.config.page_bytes,
        }
    }

    /// Whether registering a region takes so long that one registration more is little beside it.
    pub(super) fn is_worth_parting(&self, memory: Region) -> bool {
        let register = self.config.costs.register;
        register.of(self.page_count(memory.bytes)) >= WORTH_IT * register.of(1)
    }

    fn note_shared(&mut self, id: RegionId) {
        let page_bytes = self.config.page_bytes;
        let memory = self.regions.at(id).memory;
        let inside = |it: Region| Region {
            addr: it.addr.saturating_add(page_bytes),
            bytes: it.bytes.saturating_sub(2 * page_bytes),
        };
        self.shared.join(inside(memory));
        if !self.is_worth_parting(memory) {
            return;
        }
        let sharing = self.regions.sharing_with(id, MAX_BESIDE);
        for other in &sharing {
            let from = memory.addr.max(other.addr);
            let shares_one = memory.end().min(other.end()) - from == page_bytes;
            let is_within = |it: &Region| (inside(*it).addr..inside(*it).end()).contains(&from);
            if shares_one && self.is_worth_parting(*other) && !sharing.iter().any(is_within) {
                self.shared.part(from);
            }
        }
    }
}
