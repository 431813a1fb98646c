//! Makes shared memory a private copy in a forked child.
//!
//! The child takes no part in the job, but it has every address by which its parent reaches memory
//! of the ranks. Slices and views point there. So does the fast path of a put, which checks only
//! the mapped word. Before `fork` returns in the child, each mapping is therefore replaced by a
//! private mapping of the shared file. The child's stores are then invisible to other processes.
//! Pages to which the child has not stored show the ranks' stores.

#![allow(unsafe_code)] // maps files over mappings

use std::{
    os::fd::RawFd,
    ptr,
    sync::atomic::{
        AtomicI32, AtomicPtr, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use hydrant_conduit::fork;

/// A slot for one mapping of a shared file. Slots are never freed, because a child walks them when
/// it cannot take a lock.
struct MappingSlot {
    /// The address of the mapping. [`FREE`] or [`TAKEN`] if there is none.
    base: AtomicUsize,
    len: AtomicUsize,
    file: AtomicI32,
    next: *const MappingSlot,
}

// SAFETY: the fields are atomics and a pointer that never changes. The pointer leads to memory that
// is never freed.
unsafe impl Sync for MappingSlot {}

const FREE: usize = 0;
/// A thread is filling in the slot. No mapping begins at this address.
const TAKEN: usize = 1;

static PLACES: AtomicPtr<MappingSlot> = AtomicPtr::new(ptr::null_mut());

/// Keeps a mapping listed as shared until this is dropped.
pub(crate) struct Listed(&'static MappingSlot);

impl Listed {
    /// Lists a mapping of a file.
    ///
    /// # Safety
    /// Until this is dropped:
    /// 1. `len` bytes at `base`, whole pages, map `file` from its start.
    /// 2. `file` is open.
    pub(crate) unsafe fn new(base: usize, len: usize, file: RawFd) -> Self {
        fork::in_child(make_private);
        let free = places().find(|place| {
            let taken = (place.base).compare_exchange(FREE, TAKEN, AcqRel, Relaxed);
            taken.is_ok()
        });
        let place = free.unwrap_or_else(another);
        place.len.store(len, Relaxed);
        place.file.store(file, Relaxed);
        place.base.store(base, Release);
        Self(place)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.0.base.store(FREE, Release);
    }
}

fn places() -> impl Iterator<Item = &'static MappingSlot> {
    let mut next = PLACES.load(Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: the pointer is null or leads to a slot. No slot is ever freed or borrowed
        // mutably.
        let place = unsafe { next.as_ref() }?;
        next = place.next;
        Some(place)
    })
}

/// Adds a slot, already taken for the caller.
fn another() -> &'static MappingSlot {
    let mut first = PLACES.load(Acquire);
    loop {
        let place = Box::leak(Box::new(MappingSlot {
            base: AtomicUsize::new(TAKEN),
            len: AtomicUsize::new(0),
            file: AtomicI32::new(-1),
            next: first,
        }));
        match PLACES.compare_exchange(first, ptr::from_mut(place), AcqRel, Acquire) {
            Ok(_) => return place,
            Err(other) => first = other,
        }
    }
}

/// Runs in the child, before `fork` returns there.
fn make_private() {
    for place in places() {
        let base = place.base.load(Acquire);
        if base == FREE || base == TAKEN {
            continue;
        }
        // SAFETY: the address is of a listed mapping of that file. The range stays mapped, readable
        // and writable. A view of it finds the same bytes, and expects them to change at any time.
        // If the system refuses, the old mapping stays or the range is unmapped. In the latter case
        // an access ends the child, and does no harm.
        unsafe {
            libc::mmap(
                ptr::with_exposed_provenance_mut(base),
                place.len.load(Relaxed),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE,
                place.file.load(Relaxed),
                0,
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::{
        fs,
        mm::{self, MapFlags, ProtFlags},
    };

    use super::*;

    #[test]
    fn stores_of_a_child_are_its_own() {
        const LEN: usize = 1 << 16;
        let file = fs::memfd_create("forked", fs::MemfdFlags::CLOEXEC).expect("memory");
        fs::ftruncate(&file, LEN as u64).expect("a length");
        let flags = MapFlags::SHARED;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the call makes a new mapping.
        let base = unsafe { mm::mmap(ptr::null_mut(), LEN, access, flags, &file, 0) };
        let base = base.expect("room");
        // SAFETY: the page was just mapped, and begins with a word.
        let word = unsafe { &*base.cast::<AtomicUsize>() };
        word.store(7, Relaxed);
        // SAFETY: 1. and 2. `listed` is dropped before the mapping and the file.
        let listed = unsafe { Listed::new(base.expose_provenance(), LEN, file.as_raw_fd()) };
        // SAFETY: the child only loads, stores and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let seen = word.swap(8, Relaxed);
            // SAFETY: the call ends the child.
            unsafe { libc::_exit(i32::from(seen != 7 || word.load(Relaxed) != 8)) };
        }
        let mut status = -1;
        // SAFETY: the status is a local variable.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!((status, word.load(Relaxed)), (0, 7));
        drop(listed);
        // SAFETY: nothing uses the mapping any more.
        unsafe { mm::munmap(base, LEN) }.expect("it was mapped");
    }
}
