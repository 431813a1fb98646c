//! Makes shared memory a private copy in a forked child.
//!
//! The child takes no part in the job, but has every address by which its parent reaches memory of the ranks. Slices
//! and views lead there, and so does the fast path of a put, which checks nothing but the mapped word. So before
//! `fork` returns in the child, each mapping is replaced by a private mapping of the shared file. The child's stores
//! are then visible to no other process. Pages that the child has not stored to show the ranks' stores.

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

/// A slot for one mapping of a shared file. Slots are never freed: a child walks them at a moment when it cannot take
/// a lock.
struct Place {
    /// The address of the mapping; [`FREE`] or [`TAKEN`] where there is none.
    base: AtomicUsize,
    len: AtomicUsize,
    file: AtomicI32,
    next: *const Place,
}

// SAFETY: atomics, and a pointer that does not change and leads to memory that is never freed.
unsafe impl Sync for Place {}

const FREE: usize = 0;
/// A thread is filling the slot in. No mapping begins at this address.
const TAKEN: usize = 1;

static PLACES: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());

/// Keeps a mapping listed as shared until this is dropped.
pub(crate) struct Listed(&'static Place);

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

fn places() -> impl Iterator<Item = &'static Place> {
    let mut next = PLACES.load(Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: null, or a slot; no slot is ever freed or borrowed mutably.
        let place = unsafe { next.as_ref() }?;
        next = place.next;
        Some(place)
    })
}

/// Adds one more slot, which the caller has taken.
fn another() -> &'static Place {
    let mut first = PLACES.load(Acquire);
    loop {
        let place = Box::leak(Box::new(Place {
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
        // SAFETY: a listed mapping, of that file. It stays mapped, readable and writable. A view of it finds the same
        // bytes, and expects them to change at any time. If the system refuses, the old mapping stays or the range is
        // unmapped. In the latter case an access ends the child, and does no harm.
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
    fn what_a_child_stores_is_its_own() {
        const LEN: usize = 1 << 16;
        let file = fs::memfd_create("forked", fs::MemfdFlags::CLOEXEC).expect("memory");
        fs::ftruncate(&file, LEN as u64).expect("a length");
        let flags = MapFlags::SHARED;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping.
        let base = unsafe { mm::mmap(ptr::null_mut(), LEN, access, flags, &file, 0) };
        let base = base.expect("room");
        // SAFETY: just mapped, and a word.
        let word = unsafe { &*base.cast::<AtomicUsize>() };
        word.store(7, Relaxed);
        // SAFETY: 1., 2. It is dropped before both.
        let listed = unsafe { Listed::new(base.expose_provenance(), LEN, file.as_raw_fd()) };
        // SAFETY: the child loads, stores and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let seen = word.swap(8, Relaxed);
            // SAFETY: it ends the child.
            unsafe { libc::_exit(i32::from(seen != 7 || word.load(Relaxed) != 8)) };
        }
        let mut status = -1;
        // SAFETY: the status is a local.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!((status, word.load(Relaxed)), (0, 7));
        drop(listed);
        // SAFETY: nothing uses it any more.
        unsafe { mm::munmap(base, LEN) }.expect("it was mapped");
    }
}
