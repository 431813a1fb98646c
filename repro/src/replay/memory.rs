//! The memory of a rank of a trace: blocks with the page layout of the traced program.

#![allow(unsafe_code)] // lends parts of blocks to messages under way, which borrows cannot follow; see each block

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    collections::HashMap,
    ptr::NonNull,
};

use super::step::{MessageEnd, MessagePlace, ReplayStep};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// A range of the traced program's memory.
struct TracedBlock {
    /// The traced start address, at a page boundary.
    start: u64,
    /// Its bytes, from the start of a page.
    bytes: NonNull<u8>,
    layout: Layout,
}

/// The memory that a rank's steps name, with the loans to messages in flight.
pub(super) struct ReplayMemory {
    /// In order of address, with a gap of at least a page between.
    blocks: Vec<TracedBlock>,
    scratch: TracedBlock,
    /// By the number of the loan: the start, the end, and whether it is written to.
    lent: Vec<(u64, u64, u64, bool)>,
    next: u64,
}

/// Checks that there is room for the memory of a rank, and that its messages use it as MPI allows:
/// nothing is received where another message in flight is.
///
/// Returns the messages of which fewer than [`STAMP`] bytes are distinguishable, with the number of
/// those bytes. Short messages have their length. A message has none if it is sent from bytes of
/// another message in flight, or from scratch memory.
pub(super) fn check(steps: &[ReplayStep]) -> Result<HashMap<u64, usize>, MemoryError> {
    let mut memory = ReplayMemory::of(steps)?;
    let (mut requests, mut short) = (HashMap::new(), HashMap::new());
    for step in steps {
        let (sends, receives) = match step {
            ReplayStep::Send(end) | ReplayStep::BeginSend(_, end) => (Some(end), None),
            ReplayStep::Receive(end) | ReplayStep::BeginReceive(_, end) => (None, Some(end)),
            ReplayStep::SendReceive(to, from) => (Some(to), Some(from)),
            ReplayStep::Complete(request) => {
                if let Some(loan) = requests.remove(request) {
                    memory.end(loan);
                }
                continue;
            }
            ReplayStep::Call { .. } | ReplayStep::Copy { .. } => continue,
        };
        let mut loans = Vec::new();
        if let Some(end) = sends {
            // Tokens carry no data.
            if matches!(end.place, MessagePlace::Scratch { .. }) || !memory.is_free(end.place) {
                short.insert(end.tag, 0);
            } else if end.place.bytes() < STAMP as u64 {
                short.insert(end.tag, end.place.bytes() as usize);
            }
            loans.push(memory.take(end.place, false)?.2);
        }
        if let Some(end) = receives {
            loans.push(memory.take(end.place, true)?.2);
        }
        match step {
            ReplayStep::BeginSend(request, _) | ReplayStep::BeginReceive(request, _) => {
                requests.extend(loans.pop().map(|loan| (*request, loan)));
            }
            _ => loans.into_iter().for_each(|loan| memory.end(loan)),
        }
    }
    Ok(short)
}

/// The bytes of a message that identify it.
pub(super) const STAMP: usize = 8;

/// The reason why the messages of a rank have no memory.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MemoryError {
    /// Two messages in flight use the same bytes, and one of them is received there.
    #[error(
        "{bytes} bytes at {addr:#x} are used by a message while another is received there: no correct program \
         does that"
    )]
    InUse { addr: u64, bytes: u64 },
    /// The machine has less memory.
    #[error("its messages use {bytes} bytes in one piece, for which there is no room here")]
    NoRoom { bytes: u64 },
}

impl ReplayMemory {
    /// Allocates the memory that the steps name.
    pub(super) fn of(steps: &[ReplayStep]) -> Result<Self, MemoryError> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut scratch = PAGE;
        let mut see = |end: &MessageEnd| match end.place {
            MessagePlace::Traced { addr, bytes } if bytes > 0 => {
                let last = addr.saturating_add(bytes - 1) / PAGE;
                ranges.push((addr / PAGE, last.saturating_add(1)));
            }
            MessagePlace::Traced { .. } => {}
            MessagePlace::Scratch { bytes } => scratch = scratch.max(bytes),
        };
        for step in steps {
            match step {
                ReplayStep::Send(end)
                | ReplayStep::Receive(end)
                | ReplayStep::BeginSend(_, end)
                | ReplayStep::BeginReceive(_, end) => see(end),
                ReplayStep::SendReceive(to, from) => {
                    see(to);
                    see(from);
                }
                ReplayStep::Call { .. } | ReplayStep::Complete(_) | ReplayStep::Copy { .. } => {}
            }
        }
        ranges.sort_unstable();
        let mut blocks: Vec<(u64, u64)> = Vec::new();
        for (first, end) in ranges {
            match blocks.last_mut() {
                Some(last) if first <= last.1 => last.1 = last.1.max(end),
                _ => blocks.push((first, end)),
            }
        }
        let block = |(first, end): (u64, u64)| {
            // The length of a whole address space does not fit in 64 bits.
            TracedBlock::new(first * PAGE, (end - first).saturating_mul(PAGE))
        };
        Ok(Self {
            blocks: blocks.into_iter().map(block).collect::<Result<_, _>>()?,
            scratch: TracedBlock::new(0, scratch.saturating_mul(2))?,
            lent: Vec::new(),
            next: 0,
        })
    }

    /// The bytes of all blocks.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.blocks.iter().map(TracedBlock::len).sum()
    }

    /// Lends the bytes of a message that is sent, with the number of the loan, until the loan
    /// [ends](Self::end).
    ///
    /// # Safety
    /// As long as the slice is used:
    /// 1. The memory lives.
    /// 2. The loan does not end.
    pub(super) unsafe fn lend<'a>(
        &mut self,
        place: MessagePlace,
    ) -> Result<(&'a [u8], u64), MemoryError> {
        let (at, len, loan) = self.take(place, false)?;
        // SAFETY: `take` found the bytes in a block, which lives as long (the caller's condition
        // 1). Nobody writes to them before the loan ends (2).
        Ok((unsafe { std::slice::from_raw_parts(at, len) }, loan))
    }

    /// Like [`lend`](Self::lend), for a message that is received.
    ///
    /// # Safety
    /// The conditions of [`lend`](Self::lend).
    pub(super) unsafe fn lend_mut<'a>(
        &mut self,
        place: MessagePlace,
    ) -> Result<(&'a mut [u8], u64), MemoryError> {
        let (at, len, loan) = self.take(place, true)?;
        // SAFETY: as in `lend`; no other loan has a part of these bytes before this loan ends.
        Ok((unsafe { std::slice::from_raw_parts_mut(at, len) }, loan))
    }

    /// Ends a loan: the message does not use its bytes any more.
    pub(super) fn end(&mut self, loan: u64) {
        self.lent.retain(|it| it.0 != loan);
    }

    /// True if no message in flight uses the bytes there.
    pub(super) fn is_free(&mut self, place: MessagePlace) -> bool {
        let taken = self.take(place, true);
        taken.map(|(.., loan)| self.end(loan)).is_ok()
    }

    fn take(
        &mut self,
        place: MessagePlace,
        writes: bool,
    ) -> Result<(*mut u8, usize, u64), MemoryError> {
        let bytes = place.bytes();
        let at = match place {
            _ if bytes == 0 => NonNull::dangling().as_ptr(),
            MessagePlace::Traced { addr, .. } => self.find(addr, bytes),
            // Received data goes into the second half, which is not checked.
            MessagePlace::Scratch { .. } if writes => {
                let half = self.scratch.layout.size() / 2;
                self.scratch.bytes.as_ptr().wrapping_add(half)
            }
            MessagePlace::Scratch { .. } => self.scratch.bytes.as_ptr(),
        };
        let start = at.addr() as u64;
        let end = start + bytes;
        let overlaps = |it: &&(u64, u64, u64, bool)| it.1 < end && start < it.2 && (it.3 || writes);
        if bytes > 0 && self.lent.iter().any(|it| overlaps(&it)) {
            let addr = match place {
                MessagePlace::Traced { addr, .. } => addr,
                MessagePlace::Scratch { .. } => 0,
            };
            return Err(MemoryError::InUse { addr, bytes });
        }
        self.next += 1;
        self.lent.push((self.next, start, end, writes));
        Ok((at, bytes as usize, self.next))
    }

    fn find(&self, addr: u64, bytes: u64) -> *mut u8 {
        let after = self.blocks.partition_point(|it| it.start <= addr);
        let block = &self.blocks[after - 1];
        let offset = addr - block.start;
        assert!(
            offset + bytes <= block.len(),
            "the blocks hold all that the steps name"
        );
        block.bytes.as_ptr().wrapping_add(offset as usize)
    }
}

impl TracedBlock {
    fn new(start: u64, len: u64) -> Result<Self, MemoryError> {
        let no_room = MemoryError::NoRoom { bytes: len };
        let size = usize::try_from(len).unwrap_or(usize::MAX);
        let Ok(layout) = Layout::from_size_align(size, PAGE as usize) else {
            return Err(no_room);
        };
        // SAFETY: the layout has at least a page: ranges and the scratch memory do. Zeroed memory
        // is mapped only when it is touched.
        let bytes = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(no_room)?;
        Ok(Self {
            start,
            bytes,
            layout,
        })
    }

    fn len(&self) -> u64 {
        self.layout.size() as u64
    }
}

impl Drop for TracedBlock {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it with this layout, and the loans end before the memory does
        // (condition 1 of `lend`).
        unsafe { dealloc(self.bytes.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(addr: u64, bytes: u64) -> MessagePlace {
        MessagePlace::Traced { addr, bytes }
    }

    #[test]
    fn places_lie_as_they_lay() {
        let end = |addr, bytes| MessageEnd {
            peer: 1,
            tag: 0,
            place: traced(addr, bytes),
        };
        let steps = [
            ReplayStep::Send(end(0x7000_0ff8, 16)),
            ReplayStep::Receive(end(0x7000_2000, 4096)),
            ReplayStep::Send(end(0x9000_0000, 8)),
            ReplayStep::Send(end(0x9000_0004, 0)),
        ];
        let mut memory = ReplayMemory::of(&steps).unwrap();
        assert_eq!(memory.bytes(), 4 * 4096);
        // SAFETY: 1. the memory outlives both slices; 2. they are not used after their loans.
        let (first, one) = unsafe { memory.lend(traced(0x7000_0ff8, 16)) }.unwrap();
        // SAFETY: as above.
        let (second, two) = unsafe { memory.lend_mut(traced(0x7000_2000, 4096)) }.unwrap();
        assert_eq!(second.as_ptr().addr() - first.as_ptr().addr(), 0x1008);
        assert_eq!(second.as_ptr().addr() % 4096, 0);
        // SAFETY: as above.
        assert!(unsafe { memory.lend(traced(0x7000_2ff0, 16)) }.is_err());
        // SAFETY: as above.
        let again = unsafe { memory.lend(traced(0x7000_0ff8, 8)) };
        memory.end(again.unwrap().1);
        memory.end(one);
        memory.end(two);
        // SAFETY: as above.
        assert!(unsafe { memory.lend(traced(0x7000_2ff0, 16)) }.is_ok());
    }
    #[test]
    fn memory_that_no_machine_has_is_refused() {
        let end = |addr, bytes| MessageEnd {
            peer: 1,
            tag: 0,
            place: traced(addr, bytes),
        };
        for bytes in [1 << 50, (1 << 63) + 8, u64::MAX] {
            let steps = [ReplayStep::Send(end(0, bytes))];
            let refused = ReplayMemory::of(&steps).map(drop);
            assert!(
                matches!(refused, Err(MemoryError::NoRoom { .. })),
                "{refused:?}"
            );
            let scratch = MessageEnd {
                place: MessagePlace::Scratch { bytes },
                ..end(0, 0)
            };
            let refused = ReplayMemory::of(&[ReplayStep::Receive(scratch)]).map(drop);
            assert!(
                matches!(refused, Err(MemoryError::NoRoom { .. })),
                "{refused:?}"
            );
        }
        // The last bytes of the address space.
        let last = [ReplayStep::Send(end(u64::MAX - 8, 8))];
        assert_eq!(ReplayMemory::of(&last).unwrap().bytes(), PAGE);
    }
}
