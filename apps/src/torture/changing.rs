//! Memory that is unmapped, emptied, moved and mapped anew between its uses: a thread's own source and destination, and
//! a part of each rank that the thread has changed by a call. Each use must reach the pages that are there then. The
//! memory is a mapping, or a vector of the allocator's that grows, shrinks and moves. Children are forked in between,
//! which change their copies.

#![allow(unsafe_code)] // maps memory, names it by its address, and forks

use std::{
    ptr, slice,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
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
/// The most bytes of a vector. Allocators map blocks of this size by themselves.
const MOST: usize = 300 << 10;
/// One step in so many forks a child.
const FORK: usize = 64;
/// The life of a child that changes its copy of the memory.
const LIFE: Duration = Duration::from_millis(5);

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

    /// Changes some or all pages, in one of the ways in which memory changes. Returns the bytes whose content is not what
    /// it was: the first of them and their number.
    fn change(&mut self, dice: &mut Random) -> (usize, usize) {
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
        (from, len)
    }
}

/// Memory whose pages come and go.
enum ChangingMemory {
    Mapped(Mapping),
    /// A part of the heap.
    Allocated(Vec<u8>),
}

impl ChangingMemory {
    fn new(dice: &mut Random) -> Self {
        if dice.one_in(2) {
            Self::Mapped(Mapping::new())
        } else {
            let bytes = vec![0; 1 + dice.below(MOST)];
            bytes.as_ptr().expose_provenance();
            Self::Allocated(bytes)
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Mapped(mapping) => mapping.bytes(),
            Self::Allocated(bytes) => bytes,
        }
    }

    /// Changes the memory. Returns the changed bytes: the first of them and their number.
    fn change(&mut self, dice: &mut Random) -> (usize, usize) {
        match self {
            Self::Mapped(mapping) => mapping.change(dice),
            Self::Allocated(bytes) => {
                let (len, before) = (1 + dice.below(MOST), bytes.len());
                let from = if dice.one_in(3) {
                    // Memory of the same size is often at the same address.
                    drop(std::mem::take(bytes));
                    *bytes = vec![0; if dice.one_in(2) { len } else { before }];
                    0
                } else {
                    bytes.resize(len, 0);
                    bytes.shrink_to_fit();
                    before.min(len)
                };
                bytes.as_ptr().expose_provenance();
                (from, bytes.len() - from)
            }
        }
    }

    /// Forks a child that changes its copy and ends a little later. Returns its number, to wait for it.
    fn change_in_a_child(&mut self) -> Option<libc::pid_t> {
        let bytes = self.bytes();
        // SAFETY: the child of a process with several threads calls only functions that are allowed there.
        let child = unsafe { libc::fork() };
        if child == 0 {
            bytes.fill(0xee);
            thread::sleep(LIFE);
            if let Self::Mapped(mapping) = self {
                unmap(mapping.start, BYTES);
            }
            // SAFETY: the call ends the process.
            unsafe { libc::_exit(0) }
        }
        (child > 0).then_some(child)
    }
}

/// Waits for a child if `options` allow that. Returns whether it has ended.
fn has_ended(child: libc::pid_t, options: i32) -> bool {
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(child, ptr::null_mut(), options) != 0 }
}

/// The functions by which threads have their part of each rank changed.
#[derive(Clone)]
pub(crate) struct ChangingParts {
    /// Changes the part of a thread with this seed, and fills what changed. Returns the address and the bytes of the part,
    /// the first changed byte, and the number of changed bytes.
    change: Function<(u64, u64), (u64, u64, u64, u64)>,
}

/// The value with which changed pages are filled.
fn filling(seed: u64) -> u8 {
    seed as u8
}

impl ChangingParts {
    /// Registers the function. Collective.
    pub(crate) fn new(job: &Job, crew: Crew) -> Result<Self> {
        let parts: Arc<[Mutex<Option<ChangingMemory>>]> =
            (0..crew.workers()).map(|_| Mutex::new(None)).collect();
        let change = job.function(move |_: Rank, (worker, seed): (u64, u64)| {
            let Some(part) = parts.get(worker as usize) else {
                return (0, 0, 0, 0);
            };
            let (mut part, mut dice) = (locked(part), Random::new(seed));
            let memory = part.get_or_insert_with(|| ChangingMemory::new(&mut dice));
            let (first, count) = memory.change(&mut dice);
            let bytes = memory.bytes();
            bytes[first..][..count].fill(filling(seed));
            (
                bytes.as_ptr().addr() as u64,
                bytes.len() as u64,
                first as u64,
                count as u64,
            )
        })?;
        Ok(Self { change })
    }
}

/// A thread's own mapping, and the expected content of its part of each rank.
pub(crate) struct Changing {
    parts: ChangingParts,
    own: ChangingMemory,
    /// The children that were not waited for.
    children: Vec<libc::pid_t>,
    /// The address and the content of the part at each rank; none before the first change.
    model: Vec<Option<(u64, Vec<u8>)>>,
}

impl Changing {
    pub(crate) fn new(parts: &ChangingParts, hand: &mut Hand) -> Self {
        Self {
            parts: parts.clone(),
            own: ChangingMemory::new(&mut hand.dice),
            children: Vec::new(),
            model: vec![None; hand.crew.ranks],
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
            if hand.dice.one_in(8) {
                self.own = ChangingMemory::new(&mut hand.dice);
            }
            let (value, (first, count)) = (hand.dice.word() as u8, self.own.change(&mut hand.dice));
            self.own.bytes()[first..][..count].fill(value);
        }
        self.children
            .retain(|child| !has_ended(*child, libc::WNOHANG));
        if hand.dice.one_in(FORK) {
            self.children.extend(self.own.change_in_a_child());
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
        if let Some((address, bytes, first, count)) = changed {
            let model = &mut self.model[target.index()];
            let (at, content) = model.get_or_insert_with(|| (address, Vec::new()));
            *at = address;
            content.resize(bytes as usize, 0);
            content[first as usize..][..count as usize].fill(filling(seed));
        }
        Ok(())
    }

    fn use_once(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let Some((address, content)) = &mut self.model[target.index()] else {
            return Ok(());
        };
        let own = self.own.bytes();
        let most = own.len().min(content.len());
        let bits = hand.dice.below(most.ilog2() as usize + 1);
        let len = 1 + hand.dice.below(1 << bits);
        let at = hand.dice.below(content.len() - len + 1);
        let begin = hand.dice.below(own.len() - len + 1);
        let own = &mut own[begin..][..len];
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

impl Drop for Changing {
    fn drop(&mut self) {
        for child in self.children.drain(..) {
            has_ended(child, 0);
        }
    }
}
