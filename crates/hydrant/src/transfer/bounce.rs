//! Bounce memory: where registering a buffer for one operation costs more than copying it, the
//! data goes through a slot of memory that is registered for good (Firehose §3.3, ARMCI §3).
//!
//! It is allocated once and registered as one extent, as a part of what may be registered beside
//! M, so that a slot is a hit on the own side whichever it is. There are slots of a page and slots
//! of the largest buffer that is worth copying.

#![allow(unsafe_code)] // hands borrowed memory to the conduit and keeps it until that is done

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    num::NonZeroUsize,
    ptr::NonNull,
    sync::Arc,
};

use hydrant_pinning::{Direction, Limits, Run, Strategy};
use parking_lot::Mutex;

use super::Transfer;
use crate::registration::Registration;

/// Most bytes that are copied: a longer buffer is registered, so that no memory is taken that
/// grows with what a program does.
const MAX_COPIED_BYTES: usize = 64 << 10;
/// Slots of each kind: a core's worth of operations under way, of the small ones more.
const SMALL: usize = 64;
const LARGE: usize = 12;

/// The slots and who has none.
pub(super) struct Bounce {
    memory: NonNull<u8>,
    layout: Layout,
    kinds: [Kind; 2],
}

// SAFETY: the memory is owned, and each slot is used by whoever took it off a free list.
unsafe impl Send for Bounce {}
// SAFETY: as above.
unsafe impl Sync for Bounce {}

/// Slots of one size.
struct Kind {
    /// Where they begin.
    start: usize,
    /// Bytes of each.
    bytes: usize,
    /// Offsets of those that are free, the one used last on top.
    free: Mutex<Vec<u32>>,
}

/// A slot in use.
#[derive(Clone, Copy)]
pub(super) struct Bounced {
    offset: u32,
    len: u32,
    /// Where data that is read goes; nowhere for a put.
    to: Option<NonZeroUsize>,
}

/// How the memory is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Division {
    page: usize,
    small: usize,
    large_bytes: usize,
    large: usize,
}

/// Most bytes whose copy costs less than registering and deregistering them; whole pages.
fn worth_copying(registration: &hydrant_conduit::Registration) -> usize {
    let page = registration.page;
    let pays = |pages: usize| {
        let copy = registration.copy_ns_per_byte * (pages * page) as f64;
        copy < registration.register.of(pages) + registration.deregister.of(pages)
    };
    let pages = (1..=MAX_COPIED_BYTES / page)
        .take_while(|pages| pays(*pages))
        .last();
    pages.unwrap_or(0) * page
}

/// Slots within `room` bytes; none if that is too little to be of use.
fn divide(most: usize, page: usize, room: usize) -> Option<Division> {
    if most == 0 {
        return None;
    }
    let small = SMALL.min(room / 2 / page);
    let rest = room - small * page;
    // Fewer, and smaller if even that is too much.
    let large_bytes = most.min(rest / 2 / page * page);
    let large = match large_bytes > page {
        true => LARGE.min(rest / large_bytes),
        false => 0,
    };
    (small > 0).then_some(Division {
        page,
        small,
        large_bytes,
        large,
    })
}

impl Bounce {
    fn new(division: Division, align: usize) -> Option<Self> {
        let Division {
            page,
            small,
            large_bytes,
            large,
        } = division;
        let bytes = small * page + large * large_bytes;
        // Of a bucket that it has a part of it has all: nothing else is registered with it.
        let layout = Layout::from_size_align(bytes.next_multiple_of(align), align).ok()?;
        // SAFETY: there is at least one slot, of at least a page.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let kind = |start: usize, bytes: usize, count: usize| Kind {
            start,
            bytes,
            // At most some hundred KiB.
            free: Mutex::new(
                (0..count)
                    .rev()
                    .map(|slot| (start + slot * bytes) as u32)
                    .collect(),
            ),
        };
        let kinds = [kind(0, page, small), kind(small * page, large_bytes, large)];
        Some(Self {
            memory,
            layout,
            kinds,
        })
    }

    /// A slot for `len` bytes: for those at `from`, which are copied there, or to read into what
    /// belongs at `to`. With its address.
    ///
    /// # Safety
    /// 1. `local` is readable for `len` bytes for a put.
    /// 2. For a get it is writable for as many, by nobody else, until the slot is given back.
    pub(super) unsafe fn take(
        &self,
        local: *mut u8,
        len: usize,
        direction: Direction,
    ) -> Option<(*mut u8, Bounced)> {
        let fits = self.kinds.iter().filter(|kind| len <= kind.bytes);
        let offset = fits.filter_map(|kind| kind.free.lock().pop()).next()?;
        // SAFETY: the offset of a slot, which lies in the memory.
        let slot = unsafe { self.memory.as_ptr().add(offset as usize) };
        slot.expose_provenance();
        let to = match direction {
            Direction::Put => {
                // SAFETY: 1., and the slot, which is another's until it is given back, has room.
                unsafe { slot.copy_from_nonoverlapping(local, len) };
                None
            }
            Direction::Get => NonZeroUsize::new(local.expose_provenance()),
        };
        let bounced = Bounced {
            offset,
            len: len as u32,
            to,
        };
        Some((slot, bounced))
    }

    /// Takes a slot back whose operation is over, and copies what it read to where it belongs, if
    /// it went well. How many bytes that were.
    pub(super) fn give_back(&self, bounced: Bounced, fine: bool) -> usize {
        let Bounced { offset, len, to } = bounced;
        let (at, len) = (offset as usize, len as usize);
        let landed = to.filter(|_| fine);
        if let Some(to) = landed {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(to.get());
            // SAFETY: 2. of `take`: the operation is not told to be over yet; the slot has `len`
            //         bytes and is nobody else's.
            unsafe { to.copy_from_nonoverlapping(self.memory.as_ptr().add(at), len) };
        }
        let kind = usize::from(at >= self.kinds[1].start);
        self.kinds[kind].free.lock().push(offset);
        landed.map_or(0, |_| len)
    }
}

impl Bounced {
    /// Whether it is of a get.
    pub(super) fn is_read(&self) -> bool {
        self.to.is_some()
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        // SAFETY: allocated so. The conduit, which had it registered, was dropped before.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

impl Transfer {
    /// Sets the bounce memory up, if it is of use here: before anything else is registered.
    pub(super) fn set_up_bounce(&self, registration: &Registration) {
        let Some(costs) = self.progress.conduit().caps().registration else {
            return;
        };
        let copies = matches!(registration.strategy(), Strategy::Bounce | Strategy::Paging);
        if costs.follows_mapping || copies {
            return;
        }
        let Limits {
            victims,
            max_extent,
            geometry,
            ..
        } = *registration.limits();
        let bucket = geometry.bucket() as usize;
        // Most of what is beside M is left to victims and other operations.
        let room = (victims / 4).min(max_extent) as usize * bucket;
        let Some(bounce) = divide(worth_copying(&costs), costs.page, room)
            .and_then(|division| Bounce::new(division, bucket))
        else {
            return;
        };
        let first = geometry.bucket_of(bounce.memory.as_ptr().expose_provenance() as u64);
        let count = (bounce.layout.size() / bucket) as u64;
        match registration.keep(Run { first, count }) {
            Ok(()) => {
                let bounce = Arc::new(bounce);
                // The conduit knows of it until it is gone itself.
                self.progress.keep(bounce.clone());
                let _ = self.bounce.set(bounce);
            }
            Err(Some(cause)) => tracing::warn!(%cause, "there is no bounce memory"),
            Err(None) => {
                tracing::warn!("there is no bounce memory: it was not registered at once");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hydrant_conduit::{Cost, Registration};

    use super::*;

    fn costs(register: (f64, f64), copy_ns_per_byte: f64) -> Registration {
        let cost = |(per_op_ns, per_page_ns)| Cost {
            per_op_ns,
            per_page_ns,
        };
        Registration {
            page: 4096,
            register: cost(register),
            deregister: cost((0.0, 0.0)),
            copy_ns_per_byte,
            max_extent: 1 << 30,
            max_bytes: 1 << 30,
            follows_mapping: false,
            inline: 0,
        }
    }

    #[test]
    fn what_costs_less_to_copy_is_copied() {
        // A call costs as much as copying 10,000 bytes.
        assert_eq!(worth_copying(&costs((1000.0, 0.0), 0.1)), 2 * 4096);
        // A page costs more than its copy.
        assert_eq!(worth_copying(&costs((0.0, 500.0), 0.1)), MAX_COPIED_BYTES);
        assert_eq!(worth_copying(&costs((10.0, 0.0), 1.0)), 0);
    }

    #[test]
    fn slots_stay_within_their_room() {
        for room in [0, 1 << 12, 1 << 13, 1 << 15, 1 << 17, 1 << 20, 1 << 26] {
            for most in [4096, 20 << 10, 64 << 10] {
                let Some(it) = divide(most, 4096, room) else {
                    assert!(room < 2 * 4096);
                    continue;
                };
                assert!(
                    it.small * 4096 + it.large * it.large_bytes <= room,
                    "{it:?}"
                );
            }
        }
        assert_eq!(divide(0, 4096, 1 << 20), None);
    }

    #[test]
    fn a_slot_is_somebody_s_until_it_is_given_back() {
        let division = divide(8 << 10, 4096, 20 << 12).expect("room");
        let bounce = Bounce::new(division, 4096).expect("memory");
        let mut data = vec![7_u8; 5000];
        let mut taken = Vec::new();
        // SAFETY: the buffer lives longer than the slots are in use.
        let mut put = || unsafe { bounce.take(data.as_mut_ptr(), 5000, Direction::Put) };
        while let Some((slot, bounced)) = put() {
            assert!(taken.iter().all(|(other, _)| *other != slot));
            taken.push((slot, bounced));
        }
        assert_eq!(taken.len(), division.large);
        assert!(!taken.is_empty());
        for (_, bounced) in taken {
            assert_eq!(bounce.give_back(bounced, true), 0);
        }
        // SAFETY: as above.
        let (slot, bounced) =
            unsafe { bounce.take(data.as_mut_ptr(), 5000, Direction::Get) }.expect("free");
        // SAFETY: a slot of 5000 bytes, which is this test's.
        unsafe { slot.write_bytes(9, 5000) };
        assert_eq!(bounce.give_back(bounced, false), 0);
        assert_eq!(data[4999], 7);
        // SAFETY: as above.
        let (_, bounced) =
            unsafe { bounce.take(data.as_mut_ptr(), 5000, Direction::Get) }.expect("free");
        assert_eq!(bounce.give_back(bounced, true), 5000);
        assert_eq!(data, [9; 5000]);
    }
}
