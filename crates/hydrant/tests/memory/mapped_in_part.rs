//! Buckets of several pages of which some are mapped later, where registrations follow the mapping.

#![allow(unsafe_code)] // maps and opens pages

use std::{ptr, slice};

use hydrant::Strategy;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use crate::{network::simulated::on, support::good};

const PAGE: usize = 4096;
const BUCKET: usize = 16 * PAGE;

/// Pages of which some may be used, from the first byte of a bucket on.
struct Pages {
    mapping: *mut u8,
    bucket: *mut u8,
}

impl Pages {
    fn new() -> Self {
        let private = MapFlags::PRIVATE;
        // SAFETY: a mapping of its own, at an address of the kernel's choice.
        let mapping =
            unsafe { mmap_anonymous(ptr::null_mut(), 2 * BUCKET, ProtFlags::empty(), private) };
        let mapping: *mut u8 = mapping.expect("memory").cast();
        let bucket = mapping.wrapping_add(mapping.align_offset(BUCKET));
        Self { mapping, bucket }
    }

    /// Opens pages that were not open: bytes of a value.
    fn open(&mut self, first: usize, count: usize, value: u8) -> Vec<u8> {
        let start = self.bucket.wrapping_add(first * PAGE);
        // SAFETY: pages of the own mapping.
        unsafe {
            mprotect(
                start.cast(),
                count * PAGE,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        }
        .expect("they are there");
        // SAFETY: opened just now, and borrowed by nobody else.
        unsafe { slice::from_raw_parts_mut(start, count * PAGE) }.fill(value);
        vec![value; count * PAGE]
    }

    fn bytes(&self, first: usize, count: usize) -> &[u8] {
        // SAFETY: pages that are open, which nobody changes.
        unsafe { slice::from_raw_parts(self.bucket.wrapping_add(first * PAGE), count * PAGE) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the own mapping, which nobody has borrowed.
        let _ = unsafe { munmap(self.mapping.cast(), 2 * BUCKET) };
    }
}

#[test_on(simulated)]
fn what_is_mapped_later_is_registered_later() {
    for strategy in [Strategy::Auto, Strategy::Firehose, Strategy::PinEverything] {
        let builder = (on("connectx").registration(strategy).bucket(BUCKET))
            .m(1 << 20)
            .maxvictim(1 << 20);
        good(builder.run_local(2, |job| {
            let field = job.alloc::<u8>(1 << 18)?;
            let mut pages = Pages::new();
            for (first, value) in [(0, 1), (4, 2)] {
                let expected = pages.open(first, 4, value);
                for _ in 0..40 {
                    field.put(job.right(), 5000, pages.bytes(first, 4))?;
                }
                job.barrier()?;
                let mut back = vec![0; 4 * PAGE];
                field.get(job.rank(), 5000, &mut back)?;
                assert_eq!(back, expected, "{strategy}");
                job.barrier()?;
            }
            Ok(())
        }));
    }
}
