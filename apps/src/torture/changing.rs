//! Memory that is unmapped, emptied, moved and mapped anew between its uses: a thread's own source and destination, and
//! a part of each rank that the thread has changed by a call. Each use must reach the pages that are there then.

#![allow(unsafe_code)] // maps memory, and names it by its address

use std::{
    ptr, slice,
    sync::{Arc, Mutex},
};

use hydrant::{Function, Job, Rank, Result};
use hydrant_base::Random;
use rustix::mm::{
    Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap_fixed, munmap,
};

use super::{
    hand::{Crew, Hand, is_simulated},
    watch::locked,
};

const PAGE: usize = 4096;
/// The pages of a mapping.
const PAGES: usize = 24;
const BYTES: usize = PAGES * PAGE;
/// Uses between two changes, at most.
const USES: usize = 4;

/// A mapping whose pages come and go.
struct Mapping {
    start: *mut u8,
    /// True if a part was mapped apart. The kernel moves no such mapping as a whole.
    is_pieced: bool,
}

// SAFETY: the pages are this value's alone.
unsafe impl Send for Mapping {}

fn map(at: *mut u8, bytes: usize, flags: MapFlags) -> *mut u8 {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping where the kernel chooses, or over pages of a mapping that nobody has borrowed.
    let mapped = unsafe { mmap_anonymous(at.cast(), bytes, rights, MapFlags::PRIVATE | flags) };
    mapped.expect("memory for a small mapping").cast()
}

fn unmap(at: *mut u8, bytes: usize) {
    // SAFETY: pages of an own mapping, which nobody has borrowed.
    let unmapped = unsafe { munmap(at.cast(), bytes) };
    unmapped.expect("pages of an own mapping");
}

impl Mapping {
    fn new() -> Self {
        let start = map(ptr::null_mut(), BYTES, MapFlags::empty());
        start.expose_provenance();
        Self {
            start,
            is_pieced: false,
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped as long as this is, and borrowed through this alone.
        unsafe { slice::from_raw_parts_mut(self.start, BYTES) }
    }

    /// Changes some or all pages, in one of the ways in which memory changes. Returns these pages, whose content is not
    /// what it was.
    fn change(&mut self, dice: &mut Random) -> &mut [u8] {
        let first = dice.below(PAGES);
        let count = 1 + dice.below(PAGES - first);
        let (mut from, mut len) = (first * PAGE, count * PAGE);
        let at = self.start.wrapping_add(from);
        match dice.below(6) {
            0 => {
                map(at, len, MapFlags::FIXED);
                self.is_pieced = true;
            }
            1 => {
                // SAFETY: private pages of an own mapping, which nobody has borrowed.
                let emptied = unsafe { madvise(at.cast(), len, Advice::LinuxDontNeed) };
                emptied.expect("private pages");
            }
            2 => {
                let other = map(ptr::null_mut(), len, MapFlags::empty());
                // SAFETY: both are pages of own mappings, which nobody has borrowed.
                let moved = unsafe {
                    mremap_fixed(other.cast(), len, len, MremapFlags::MAYMOVE, at.cast())
                };
                moved.expect("room at an own mapping");
                self.is_pieced = true;
            }
            3 if !self.is_pieced => {
                // The same pages at another address, and new ones at the old.
                let other = map(ptr::null_mut(), BYTES, MapFlags::empty());
                // SAFETY: both are own mappings, which nobody has borrowed.
                let moved = unsafe {
                    mremap_fixed(
                        self.start.cast(),
                        BYTES,
                        BYTES,
                        MremapFlags::MAYMOVE,
                        other.cast(),
                    )
                };
                self.start = moved.expect("room at an own mapping").cast();
                self.start.expose_provenance();
            }
            _ => {
                unmap(self.start, BYTES);
                // Often the same address.
                *self = Self::new();
                (from, len) = (0, BYTES);
            }
        }
        &mut self.bytes()[from..][..len]
    }
}

/// The functions by which threads have their part of each rank changed.
#[derive(Clone)]
pub(crate) struct ChangingParts {
    /// Changes the part of a thread with this seed, and fills what changed. Returns the address, and the first and the
    /// last changed byte.
    change: Function<(u64, u64), (u64, u64, u64)>,
}

/// The value with which changed pages are filled.
fn filling(seed: u64) -> u8 {
    seed as u8
}

impl ChangingParts {
    /// Registers the function. Collective.
    pub(crate) fn new(job: &Job, crew: Crew) -> Result<Self> {
        let parts: Arc<[Mutex<Option<Mapping>>]> =
            (0..crew.workers()).map(|_| Mutex::new(None)).collect();
        let change = job.function(move |_: Rank, (worker, seed): (u64, u64)| {
            let Some(part) = parts.get(worker as usize) else {
                return (0, 0, 0);
            };
            let mut part = locked(part);
            let mapping = part.get_or_insert_with(Mapping::new);
            let changed = mapping.change(&mut Random::new(seed));
            changed.fill(filling(seed));
            let range = changed.as_ptr_range();
            let start = mapping.start.addr();
            let (first, end) = (range.start.addr() - start, range.end.addr() - start);
            (start as u64, first as u64, end as u64)
        })?;
        Ok(Self { change })
    }
}

/// A thread's own mapping, and the expected content of its part of each rank.
pub(crate) struct Changing {
    parts: ChangingParts,
    own: Mapping,
    /// The address and the content of the part at each rank; none before the first change.
    model: Vec<Option<(u64, Vec<u8>)>>,
}

impl Changing {
    pub(crate) fn new(parts: &ChangingParts, crew: Crew) -> Self {
        Self {
            parts: parts.clone(),
            own: Mapping::new(),
            model: vec![None; crew.ranks],
        }
    }

    /// Changes memory, and uses it some times.
    pub(crate) fn step(&mut self, hand: &mut Hand) -> Result<()> {
        if is_simulated(hand.job) {
            return Ok(());
        }
        let target = hand.draw_rank();
        if self.model[target.index()].is_none() || hand.dice.one_in(2) {
            self.change(hand, target)?;
        } else {
            let value = hand.dice.word() as u8;
            self.own.change(&mut hand.dice).fill(value);
        }
        for _ in 0..=hand.dice.below(USES) {
            self.use_once(hand, target)?;
        }
        Ok(())
    }

    fn change(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let (worker, seed) = (hand.worker as u64, hand.dice.word());
        let what = format!("change of memory at rank {target}");
        let change = &self.parts.change;
        let changed = hand.must(&what, |job| job.call(target, change, &(worker, seed)))?;
        if let Some((address, first, end)) = changed {
            let model = &mut self.model[target.index()];
            let (at, content) = model.get_or_insert_with(|| (address, vec![0; BYTES]));
            *at = address;
            content[first as usize..end as usize].fill(filling(seed));
        }
        Ok(())
    }

    fn use_once(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let Some((address, content)) = &mut self.model[target.index()] else {
            return Ok(());
        };
        let bits = 1 + hand.dice.below(BYTES.ilog2() as usize);
        let len = 1 + hand.dice.below(1 << bits);
        let at = hand.dice.below(BYTES - len + 1);
        let own = &mut self.own.bytes()[hand.dice.below(BYTES - len + 1)..][..len];
        let there = *address + at as u64;
        let content = &mut content[at..at + len];
        if hand.dice.one_in(2) {
            own[0] = hand.dice.word() as u8;
            let what = format!("put_changing of {len} bytes at {at} of rank {target}");
            // SAFETY: only this thread uses that memory, which changes in its calls alone.
            let put = hand.must(&what, |job| unsafe { job.put_anywhere(target, there, own) })?;
            if put.is_some() {
                content.copy_from_slice(own);
            }
        } else {
            let what = format!("get_changing of {len} bytes at {at} of rank {target}");
            // SAFETY: as above.
            let got = hand.must(&what, |job| unsafe { job.get_anywhere(target, there, own) })?;
            if got.is_some() {
                let wrong = own.iter().zip(&*content).position(|(is, was)| is != was);
                hand.check(wrong.is_none(), || {
                    format!("{what}: byte {} is wrong", wrong.unwrap_or(0))
                });
                content.copy_from_slice(own);
            }
        }
        Ok(())
    }
}
