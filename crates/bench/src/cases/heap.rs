//! Sources, destinations and targets in memory from the allocator, beside symmetric memory.
//!
//! Rank 0 works on the memory of rank 1, which waits in a barrier. The same operation uses symmetric memory on both
//! sides, then memory of the heap on one or on both. Both kinds are used again and again, so that whatever stays
//! registered is registered.

#![allow(unsafe_code)] // names memory by its address

use std::cell::RefCell;

use hydrant::{Rank, Symmetric};

use crate::ensemble::Ensemble;
use crate::measure::Side;
use crate::network::PARTNER;
use crate::row::{Goal, Row};

/// Bytes of an operation.
const SIZES: [usize; 6] = [8, 64, 1 << 10, 8 << 10, 64 << 10, 1 << 20];
const QUICK_SIZES: [usize; 2] = [8, 64 << 10];
const MOST: usize = 1 << 20;

/// The most that memory of the heap may cost beyond symmetric memory.
const GOAL: Goal = Goal::AtMostTimes(1.02);

/// Measures operations of rank 0. Collective.
pub(crate) fn run(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let target = e.job.alloc::<u8>(MOST)?;
    let own = e.job.alloc::<u8>(MOST)?;
    let addresses = e.job.alloc::<u64>(1)?;
    let mut heap = vec![1_u8; MOST];
    (addresses.local()?).store(0, heap.as_mut_ptr().expose_provenance() as u64)?;
    e.job.barrier()?;
    let cases = HeapCases {
        e,
        target: &target,
        their_heap: addresses.get_value(PARTNER, 0)?,
        heap: RefCell::new(heap),
    };
    // SAFETY: only rank 0 works here, on its own part, of which there is no other reference. It is freed after this.
    let own_bytes = RefCell::new(unsafe { own.local_slice_mut() }?);
    for bytes in if e.quick { &QUICK_SIZES[..] } else { &SIZES } {
        cases.sized(*bytes, &own_bytes)?;
    }
    e.job.free(addresses)?;
    e.job.free(own)?;
    e.job.free(target)
}

struct HeapCases<'a> {
    e: &'a Ensemble<'a>,
    /// Symmetric memory, of which rank 1's part is put to.
    target: &'a Symmetric<u8>,
    /// The address of rank 1's memory of the heap.
    their_heap: u64,
    /// The own memory of the heap.
    heap: RefCell<Vec<u8>>,
}

impl HeapCases<'_> {
    fn sized(&self, bytes: usize, own: &RefCell<&mut [u8]>) -> hydrant::Result<()> {
        let (e, target, heap, theirs) = (self.e, self.target, &self.heap, self.their_heap);
        let (job, peer): (_, Rank) = (e.job, PARTNER);
        let put = |from: &[u8]| target.put(peer, 0, &from[..bytes]);
        let get = |into: &mut [u8]| target.get(peer, 0, &mut into[..bytes]);
        // SAFETY: rank 1 keeps its memory until all cases are over, and does not touch it.
        let put_there = |from: &[u8]| unsafe { job.put_anywhere(peer, theirs, &from[..bytes]) };
        // SAFETY: as above.
        let get_there =
            |into: &mut [u8]| unsafe { job.get_anywhere(peer, theirs, &mut into[..bytes]) };
        self.compare(
            ["put", "from the heap", "to the heap", "heap to heap"],
            bytes,
            [
                &mut |count| e.timed(count, |_| put(&own.borrow())),
                &mut |count| e.timed(count, |_| put(&heap.borrow())),
                &mut |count| e.timed(count, |_| put_there(&own.borrow())),
                &mut |count| e.timed(count, |_| put_there(&heap.borrow())),
            ],
        )?;
        self.compare(
            ["get", "into the heap", "from the heap", "heap to heap"],
            bytes,
            [
                &mut |count| e.timed(count, |_| get(&mut own.borrow_mut())),
                &mut |count| e.timed(count, |_| get(&mut heap.borrow_mut())),
                &mut |count| e.timed(count, |_| get_there(&mut own.borrow_mut())),
                &mut |count| e.timed(count, |_| get_there(&mut heap.borrow_mut())),
            ],
        )
    }

    /// Compares an operation on symmetric memory, the first side, with the same on memory of the heap.
    fn compare(
        &self,
        [what, cases @ ..]: [&str; 4],
        bytes: usize,
        sides: [Side<'_>; 4],
    ) -> hydrant::Result<()> {
        let e = self.e;
        let medians = e.solo(&format!("{what}, {bytes} bytes"), sides)?;
        let Some([symmetric, others @ ..]) = medians else {
            return Ok(());
        };
        e.row(Row::new("heap", what, "ns", symmetric).bytes(bytes as u64))?;
        for (case, ours) in cases.into_iter().zip(others) {
            let row = Row::new("heap", format!("{what}, {case}"), "ns", ours).bytes(bytes as u64);
            e.row(row.against(symmetric).goal_if(e.uncrowded(GOAL)))?;
        }
        Ok(())
    }
}
