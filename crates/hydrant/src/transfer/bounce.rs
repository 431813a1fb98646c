//! Bounce memory: registered slots for the data of operations whose buffers cost less to copy
//! than to register (Firehose §3.3, ARMCI §3).
//!
//! The memory is allocated once, and registered as one extent beside M. So every slot is a hit on
//! the own side. Slots have two sizes: a page, and the largest buffer worth copying.

#![allow(unsafe_code)] // copies between the slots and the buffers of operations

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    num::NonZeroUsize,
    ptr::NonNull,
    sync::Arc,
};

use hydrant_pinning::{BucketLimits, Direction, Run, Strategy};
use parking_lot::Mutex;

use super::Transfer;
use crate::registration::Registration;

/// The limit of copied bytes. A longer buffer is registered, so that the slots' memory does not
/// grow with the program's buffers.
const MAX_COPIED_BYTES: usize = 64 << 10;
/// The numbers of slots, enough for the operations that one core has in flight. Small slots are
/// more frequent.
const SMALL: usize = 64;
const LARGE: usize = 12;

/// The bounce memory and its free slots.
pub(super) struct BounceMemory {
    memory: NonNull<u8>,
    layout: Layout,
    classes: [SlotClass; 2],
}

// SAFETY: The memory is owned, and each slot is used only by the taker that took it off a free
// list.
unsafe impl Send for BounceMemory {}
// SAFETY: As above.
unsafe impl Sync for BounceMemory {}

/// Slots of one size.
struct SlotClass {
    /// The offset of the first slot.
    start: usize,
    /// The bytes of a slot.
    bytes: usize,
    /// The offsets of free slots. The slot used last is on top.
    free: Mutex<Vec<u32>>,
}

/// A slot in use.
#[derive(Clone, Copy)]
pub(super) struct BounceSlot {
    offset: u32,
    len: u32,
    /// The destination of the data of a get; `None` for a put.
    to: Option<NonZeroUsize>,
}

/// The division of the memory into slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Division {
    page: usize,
    small: usize,
    large_bytes: usize,
    large: usize,
}

/// Returns the most bytes, in whole pages, whose copy costs less than registering and deregistering
/// them.
fn worth_copying(registration: &hydrant_conduit::RegistrationCaps) -> usize {
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

/// Divides `room` bytes into slots. Returns `None` if the room is too small to be of use.
fn divide(most: usize, page: usize, room: usize) -> Option<Division> {
    if most == 0 {
        return None;
    }
    let small = SMALL.min(room / 2 / page);
    let rest = room - small * page;
    // With little room there are fewer large slots, and smaller ones.
    let large_bytes = most.min(rest / 2 / page * page);
    let large = if large_bytes > page {
        LARGE.min(rest / large_bytes)
    } else {
        0
    };
    (small > 0).then_some(Division {
        page,
        small,
        large_bytes,
        large,
    })
}

impl BounceMemory {
    fn new(division: Division, align: usize) -> Option<Self> {
        let Division {
            page,
            small,
            large_bytes,
            large,
        } = division;
        let bytes = small * page + large * large_bytes;
        // The memory consists of whole buckets, so no other memory is registered with it.
        let layout = Layout::from_size_align(bytes.next_multiple_of(align), align).ok()?;
        // SAFETY: The layout has at least one slot, of at least a page.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let class = |start: usize, bytes: usize, count: usize| SlotClass {
            start,
            bytes,
            // The list takes at most some hundred KiB.
            free: Mutex::new(
                (0..count)
                    .rev()
                    .map(|slot| (start + slot * bytes) as u32)
                    .collect(),
            ),
        };
        let classes = [
            class(0, page, small),
            class(small * page, large_bytes, large),
        ];
        Some(Self {
            memory,
            layout,
            classes,
        })
    }

    /// Takes a slot for `len` bytes. For a put, copies the bytes at `local` into the slot. For a
    /// get, their destination is `local`. Returns the address of the slot, too.
    ///
    /// # Safety
    /// 1. For a put, `local` is readable for `len` bytes.
    /// 2. For a get, `local` is writable for `len` bytes, and nobody else uses them, until the slot
    ///    is given back.
    pub(super) unsafe fn take(
        &self,
        local: *mut u8,
        len: usize,
        direction: Direction,
    ) -> Option<(*mut u8, BounceSlot)> {
        let fits = self.classes.iter().filter(|class| len <= class.bytes);
        let offset = fits.filter_map(|class| class.free.lock().pop()).next()?;
        // SAFETY: The offset of a slot lies in the memory.
        let slot = unsafe { self.memory.as_ptr().add(offset as usize) };
        slot.expose_provenance();
        let to = match direction {
            Direction::Put => {
                // SAFETY: `local` is readable (1). The slot has room, and belongs to this call.
                unsafe { slot.copy_from_nonoverlapping(local, len) };
                None
            }
            Direction::Get => NonZeroUsize::new(local.expose_provenance()),
        };
        let bounced = BounceSlot {
            offset,
            len: len as u32,
            to,
        };
        Some((slot, bounced))
    }

    /// Takes back the slot of an operation that is over. If the get `succeeded`, copies its data to
    /// the destination. Returns the bytes copied.
    pub(super) fn give_back(&self, bounced: BounceSlot, succeeded: bool) -> usize {
        let BounceSlot { offset, len, to } = bounced;
        let (at, len) = (offset as usize, len as usize);
        let landed = to.filter(|_| succeeded);
        if let Some(to) = landed {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(to.get());
            let slot = self.memory.as_ptr().wrapping_add(at);
            // SAFETY: The destination is writable (2. of `take`), because the end of the operation
            // is not known yet. The slot has `len` bytes and belongs to this operation.
            unsafe { to.copy_from_nonoverlapping(slot, len) };
        }
        let class = usize::from(at >= self.classes[1].start);
        self.classes[class].free.lock().push(offset);
        landed.map_or(0, |_| len)
    }
}

impl BounceSlot {
    /// Returns whether the slot is that of a get.
    pub(super) fn is_read(&self) -> bool {
        self.to.is_some()
    }
}

impl Drop for BounceMemory {
    fn drop(&mut self) {
        // SAFETY: It was allocated with this layout. The conduit, which had it registered, was
        // dropped before.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

impl Transfer {
    /// Sets up the bounce memory, if it is of use here, before anything else is registered.
    pub(super) fn set_up_bounce(&self, registration: &Registration) {
        let Some(costs) = self.progress.conduit().caps().registration else {
            return;
        };
        let copies = matches!(registration.strategy(), Strategy::Bounce | Strategy::Paging);
        if costs.follows_mapping || copies {
            return;
        }
        let BucketLimits {
            victims,
            max_extent,
            geometry,
            ..
        } = *registration.limits();
        let bucket = geometry.bucket() as usize;
        // Most of the memory beside M is left to victims and other operations.
        let room = (victims / 4).min(max_extent) as usize * bucket;
        let Some(bounce) = divide(worth_copying(&costs), costs.page, room)
            .and_then(|division| BounceMemory::new(division, bucket))
        else {
            return;
        };
        let first = geometry.bucket_of(bounce.memory.as_ptr().expose_provenance() as u64);
        let count = (bounce.layout.size() / bucket) as u64;
        match registration.keep(Run { first, count }) {
            Ok(()) => {
                let bounce = Arc::new(bounce);
                // The conduit has the memory registered as long as it lives.
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
    use hydrant_conduit::{Cost, RegistrationCaps};

    use super::*;

    fn costs(register: (f64, f64), copy_ns_per_byte: f64) -> RegistrationCaps {
        let cost = |(per_op_ns, per_page_ns)| Cost {
            per_op_ns,
            per_page_ns,
        };
        RegistrationCaps {
            page: 4096,
            register: cost(register),
            deregister: cost((0.0, 0.0)),
            copy_ns_per_byte,
            max_extent: 1 << 30,
            max_bytes: 1 << 30,
            follows_mapping: false,
            pins_read_only: true,
            local: true,
            inline: 0,
        }
    }

    #[test]
    fn a_buffer_is_copied_if_that_costs_less() {
        // A registration costs as much as copying 10,000 bytes.
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
    fn a_taken_slot_is_not_taken_again_until_it_is_given_back() {
        let division = divide(8 << 10, 4096, 20 << 12).expect("room");
        let bounce = BounceMemory::new(division, 4096).expect("memory");
        let mut data = vec![7_u8; 5000];
        let mut taken = Vec::new();
        // SAFETY: 1. The buffer has 5000 bytes, and outlives the slots' use.
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
        // SAFETY: 2. The buffer outlives the slot's use, and nobody else uses it.
        let (slot, bounced) =
            unsafe { bounce.take(data.as_mut_ptr(), 5000, Direction::Get) }.expect("free");
        // SAFETY: The slot has at least 5000 bytes and is this test's.
        unsafe { slot.write_bytes(9, 5000) };
        assert_eq!(bounce.give_back(bounced, false), 0);
        assert_eq!(data[4999], 7);
        // SAFETY: 2. The buffer outlives the slot's use, and nobody else uses it.
        let (_, bounced) =
            unsafe { bounce.take(data.as_mut_ptr(), 5000, Direction::Get) }.expect("free");
        assert_eq!(bounce.give_back(bounced, true), 5000);
        assert_eq!(data, [9; 5000]);
    }
}
