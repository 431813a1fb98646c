//! Pages shared by adjacent buffers. If such a page is registered by itself and stays so, neither buffer keeps the
//! other registered, and neither is torn when the other is deregistered.

use std::collections::BTreeSet;

use super::regions::FoundRegion;
use super::{Plan, RegionId};
use crate::communication::{Communication, PageRun};
use crate::time::Time;

/// The most regions checked for pages shared with a new one.
const MAX_BESIDE: usize = 64;

/// A page is kept apart only if registering each of its buffers costs this many times the page's registration.
const WORTH_IT: u64 = 5;

/// A shared page, and its new state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedPage {
    /// Its first byte.
    pub page: u64,
    /// Its new state.
    pub change: Change,
}

/// The new state of a shared page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The page is registered by itself from now on.
    Apart,
    /// The page is registered with its neighbours.
    Joined,
    /// The page stays apart, and is deregistered now, because no buffer on it is expected to be used.
    Idle,
}

/// The pages that are kept apart.
#[derive(Debug, Default)]
pub(super) struct SharedPages {
    apart: BTreeSet<u64>,
    /// Changes since the last call of `take_shared`.
    changes: Vec<SharedPage>,
}

impl SharedPages {
    /// The pages that are apart in this memory.
    fn within(&self, memory: PageRun) -> Vec<u64> {
        let pages = self.apart.range(memory.addr..memory.end().max(memory.addr));
        pages.copied().collect()
    }

    /// Joins the pages inside a region that is used as a whole: it would take several registrations.
    fn join(&mut self, inside: PageRun) {
        for page in self.within(inside) {
            self.apart.remove(&page);
            self.note(page, Change::Joined);
        }
    }

    fn keep_apart(&mut self, page: u64, most: usize) {
        if self.apart.len() < most && self.apart.insert(page) {
            self.note(page, Change::Apart);
        }
    }

    fn note(&mut self, page: u64, change: Change) {
        self.changes.push(SharedPage { page, change });
    }
}

impl Plan {
    /// Returns the changes of shared pages since the last call.
    pub fn take_shared(&mut self) -> Vec<SharedPage> {
        std::mem::take(&mut self.shared.changes)
    }

    /// The region that a communication used. For a new region, its shared pages are noted.
    pub(super) fn find_or_add(&mut self, communication: &Communication, now: Time) -> RegionId {
        let FoundRegion { id, is_new, gone } = self.regions.find_or_add(communication, now);
        for gone in gone {
            // The region may never be used again.
            self.worth.refund(gone.charged_ns);
            self.forget_shared(gone.memory);
        }
        if is_new {
            self.note_shared(id);
        }
        id
    }

    /// Notes that a region is idle; pages kept apart in it may be idle, too.
    pub(super) fn note_idle_pages(&mut self, id: RegionId) {
        let memory = self.regions.at(id).memory;
        for page in self.shared.within(memory) {
            if self.regions.are_idle(self.whole(page)) {
                self.shared.note(page, Change::Idle);
            }
        }
    }

    /// Notes that a region was forgotten: pages that at most one region has now are shared no more.
    fn forget_shared(&mut self, memory: PageRun) {
        for page in self.shared.within(memory) {
            if !self.regions.are_shared(self.whole(page)) {
                self.shared.apart.remove(&page);
                self.shared.note(page, Change::Joined);
            }
        }
    }

    fn whole(&self, page: u64) -> PageRun {
        PageRun {
            addr: page,
            bytes: self.config.page_bytes,
        }
    }

    /// True if one registration more is little beside the region's own.
    pub(super) fn is_worth_parting(&self, memory: PageRun) -> bool {
        let register = self.config.costs.register;
        register.of(self.page_count(memory.bytes)) >= WORTH_IT * register.of(1)
    }

    fn note_shared(&mut self, id: RegionId) {
        let page_bytes = self.config.page_bytes;
        let memory = self.regions.at(id).memory;
        let inside = |it: PageRun| PageRun {
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
            let is_within = |it: &PageRun| (inside(*it).addr..inside(*it).end()).contains(&from);
            if shares_one && self.is_worth_parting(*other) && !sharing.iter().any(is_within) {
                self.shared.keep_apart(from, self.config.pages_apart);
            }
        }
    }
}
