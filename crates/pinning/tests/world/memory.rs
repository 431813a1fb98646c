//! The memory of a rank: bytes, and the access rights of each page.

use hydrant_pinning::{Refusal, Run, Use};

use super::plan::{PAGE, WorldPlan};

/// The state of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Page {
    ReadWrite,
    ReadOnly,
    Unmapped,
}

pub(crate) struct ModelMemory {
    base: u64,
    bucket: u64,
    bytes: Vec<u8>,
    pages: Vec<Page>,
    /// True if peers may use the page.
    lent: Vec<bool>,
    /// Pages at the start are read-only, and some others are unmapped.
    first: Vec<Page>,
    /// True if the page goes only after it was taken back.
    lasts: Vec<bool>,
    /// The pages that lasted at first.
    lasted: Vec<bool>,
    /// The number of times that each page was mapped: an older registration shows the old page.
    mapped: Vec<u64>,
}

impl ModelMemory {
    pub(crate) fn new(plan: &WorldPlan, rank: u32) -> Self {
        let bucket = plan.bucket();
        let pages = (plan.memory as usize) * plan.pages;
        let first: Vec<Page> = (0..pages)
            .map(|page| match (page * 7 + plan.seed as usize) % 41 {
                3 => Page::Unmapped,
                9 => Page::ReadOnly,
                _ => Page::ReadWrite,
            })
            .collect();
        let fill = |at: usize| (at as u64 * 31 + u64::from(rank) * 101 + (at as u64 >> 9)) as u8;
        // Persistent stretches, of lengths that do not fit buckets, lie beside transient ones.
        let lasts: Vec<bool> = (0..pages)
            .map(|page| plan.follows || (page / 7 + plan.seed as usize).is_multiple_of(2))
            .collect();
        Self {
            lasts: lasts.clone(),
            lasted: lasts,
            mapped: vec![0; pages],
            base: (1 << 30) * u64::from(rank + 1),
            bucket,
            bytes: (0..pages * PAGE).map(fill).collect(),
            lent: vec![true; pages],
            pages: first.clone(),
            first,
        }
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn is_inside(&self, addr: u64, len: u64) -> bool {
        let end = addr.checked_add(len);
        addr >= self.base && end.is_some_and(|end| end <= self.base + self.len())
    }

    pub(crate) fn bytes(&self, addr: u64, len: u64) -> &[u8] {
        let at = (addr - self.base) as usize;
        &self.bytes[at..at + len as usize]
    }

    pub(crate) fn store(&mut self, addr: u64, data: &[u8]) {
        let at = (addr - self.base) as usize;
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }

    fn pages_of(&self, addr: u64, len: u64) -> Option<std::ops::Range<usize>> {
        if !self.is_inside(addr, len) {
            return None;
        }
        let at = (addr - self.base) as usize;
        Some(at / PAGE..(at + len as usize).div_ceil(PAGE))
    }

    /// Returns true if the own rank may use the bytes.
    pub(crate) fn may(&self, addr: u64, len: u64, used: Use) -> Result<(), Refusal> {
        let pages = self.pages_of(addr, len).ok_or(Refusal::NotMapped)?;
        for page in &self.pages[pages] {
            match page {
                Page::Unmapped => return Err(Refusal::NotMapped),
                Page::ReadOnly if used == Use::Write => return Err(Refusal::ReadOnly),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns true if a peer may use the bytes.
    pub(crate) fn may_peer(&self, addr: u64, len: u64, used: Use) -> Result<(), Refusal> {
        let pages = self.pages_of(addr, len).ok_or(Refusal::NotMapped)?;
        if self.lent[pages].contains(&false) {
            return Err(Refusal::NotMapped);
        }
        self.may(addr, len, used)
    }

    pub(crate) fn span(&self, run: Run) -> (u64, u64) {
        (
            run.first * self.bucket,
            run.count.saturating_mul(self.bucket),
        )
    }

    /// Returns true if any page of the buckets is lent to peers.
    pub(crate) fn is_near(&self, run: Run) -> bool {
        let (addr, len) = self.span(run);
        let end = addr.saturating_add(len).min(self.base + self.len());
        let addr = addr.max(self.base);
        addr < end
            && self
                .pages_of(addr, end - addr)
                .is_some_and(|pages| self.lent[pages].contains(&true))
    }

    /// The mapped part of `preferred` around `need`, and true if it is writable.
    pub(crate) fn clip(&self, need: Run, preferred: Run) -> Result<(Run, bool), Refusal> {
        let mapped = |bucket: u64| {
            let (addr, len) = self.span(Run {
                first: bucket,
                count: 1,
            });
            self.may(addr, len, Use::Read).is_ok()
        };
        if !need.buckets().all(mapped) {
            return Err(Refusal::NotMapped);
        }
        let (mut first, mut end) = (need.first, need.end());
        while first > preferred.first && mapped(first - 1) {
            first -= 1;
        }
        while end < preferred.end() && mapped(end) {
            end += 1;
        }
        let run = Run {
            first,
            count: end - first,
        };
        let (addr, len) = self.span(run);
        Ok((run, self.may(addr, len, Use::Write).is_ok()))
    }

    /// The address range of pages, by number.
    pub(crate) fn range(&self, page: u16, pages: u16) -> (u64, u64) {
        let all = self.pages.len();
        let page = usize::from(page) % all;
        let count = (1 + usize::from(pages) % (all / 3 + 1)).min(all - page);
        (self.base + (page * PAGE) as u64, (count * PAGE) as u64)
    }

    pub(crate) fn lend(&mut self, addr: u64, len: u64, lent: bool) {
        if let Some(pages) = self.pages_of(addr, len) {
            self.lent[pages].fill(lent);
        }
    }

    /// The unlent pages from one on.
    pub(crate) fn unlent(&self, page: u16, pages: u16) -> Option<(u64, u64)> {
        let all = self.pages.len();
        let start = usize::from(page) % all;
        let first = (start..all).find(|page| !self.lent[*page])?;
        let end = (first..all).find(|page| self.lent[*page]).unwrap_or(all);
        let count = (1 + usize::from(pages) % (all / 3 + 1)).min(end - first);
        Some((self.base + (first * PAGE) as u64, (count * PAGE) as u64))
    }

    /// Returns true if all bytes last.
    pub(crate) fn lasts(&self, addr: u64, len: u64) -> bool {
        (self.pages_of(addr, len)).is_some_and(|pages| self.lasts[pages].iter().all(|it| *it))
    }

    /// Returns true if each bucket has a page that lasts.
    pub(crate) fn lasts_everywhere(&self, run: Run) -> bool {
        let page = PAGE as u64;
        let lasts = |at: u64| self.lasts(at, 1);
        let some = |at: u64| (0..self.bucket / page).any(|page| lasts(at + page * PAGE as u64));
        run.count <= self.len() / self.bucket
            && run.buckets().all(|bucket| some(bucket * self.bucket))
    }

    /// The part around `need` that may be registered: the lasting pages, as far as they go.
    pub(crate) fn lasting(&self, need: Run, preferred: Run) -> Run {
        let lasts = |first: u64| self.lasts_everywhere(Run { first, count: 1 });
        let end = (need.end()..preferred.end())
            .find(|bucket| !lasts(*bucket))
            .unwrap_or(preferred.end());
        Run {
            first: need.first,
            count: end - need.first,
        }
    }

    pub(crate) fn make_last(&mut self, addr: u64, len: u64, lasts: bool) {
        if let Some(pages) = self.pages_of(addr, len) {
            self.lasts[pages].fill(lasts);
        }
    }

    /// Maps transient unused pages anew, so that no registration shows them any more.
    pub(crate) fn remap(&mut self, is_used: impl Fn(u64, u64) -> bool) {
        for page in (0..self.pages.len()).filter(|page| !self.lasts[*page]) {
            if !is_used(self.base + (page * PAGE) as u64, PAGE as u64) {
                self.mapped[page] += 1;
            }
        }
    }

    /// The number of times that the pages of some bytes were mapped.
    pub(crate) fn mapped(&self, addr: u64, len: u64) -> &[u64] {
        self.pages_of(addr, len)
            .map_or(&[], |pages| &self.mapped[pages])
    }

    /// As [`mapped`](Self::mapped), for buckets that may lie outside.
    pub(crate) fn mapped_of(&self, run: Run) -> Vec<u64> {
        let pages = self.bucket / PAGE as u64;
        let of = |page: u64| {
            let addr = run.first * self.bucket + page * PAGE as u64;
            self.mapped(addr, 1).first().copied().unwrap_or(0)
        };
        (0..run.count * pages).map(of).collect()
    }

    /// Maps other pages in the place of some, with other bytes, or none if they are `gone`. No registration shows them.
    pub(crate) fn change(&mut self, addr: u64, len: u64, gone: bool) {
        let Some(pages) = self.pages_of(addr, len) else {
            return;
        };
        for page in pages {
            self.mapped[page] += 1;
            if gone {
                self.pages[page] = Page::Unmapped;
            }
            let version = self.mapped[page];
            for (at, byte) in self.bytes[page * PAGE..][..PAGE].iter_mut().enumerate() {
                *byte = (at as u64 * 17 + version * 113) as u8;
            }
        }
    }

    /// Maps pages as at first.
    pub(crate) fn anew(&mut self, addr: u64, len: u64) {
        if let Some(pages) = self.pages_of(addr, len) {
            self.pages[pages.clone()].copy_from_slice(&self.first[pages]);
        }
    }

    pub(crate) fn unmap(&mut self, addr: u64, len: u64) {
        if let Some(pages) = self.pages_of(addr, len) {
            self.pages[pages].fill(Page::Unmapped);
        }
    }

    /// Restores pages as they were at first, with their loans and lifetimes.
    ///
    /// In a bucket of several pages, earlier registrations are taken back before a page begins to
    /// last, because that page may be another by then. `stays` names the exceptions.
    pub(crate) fn restore(&mut self, addr: u64, len: u64, stays: impl Fn(Run) -> bool) {
        if let Some(pages) = self.pages_of(addr, len) {
            self.pages[pages.clone()].copy_from_slice(&self.first[pages.clone()]);
            self.lent[pages.clone()].fill(true);
            for page in pages {
                let first = (self.base + (page * PAGE) as u64) / self.bucket;
                if self.bucket == PAGE as u64 || !stays(Run { first, count: 1 }) {
                    // Pages lent since then go on lasting until they are taken back.
                    self.lasts[page] |= self.lasted[page];
                }
            }
        }
    }
}
