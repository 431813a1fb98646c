//! Memory of each kind: of threads, of huge pages, readable alone, shared, and of System V.

use std::{cell::RefCell, sync::Mutex, thread};

use hydrant::{Rank, Result, Strategy, Symmetric};
use rustix::{
    fs::{MemfdFlags, ftruncate, memfd_create},
    mm::{MapFlags, ProtFlags, mmap},
};

use super::{
    alone, builder, good,
    place::{self, Place},
};

/// Puts memory and gets it back, some times, with the value that it has at that time.
fn use_again(field: &Symmetric<u8>, memory: &mut [u8], value: u8) -> Result<()> {
    for round in 0..3 {
        let value = value.wrapping_add(round);
        memory.fill(value);
        field.put(Rank(1), 0, memory)?;
        memory.fill(0);
        field.get(Rank(1), 0, memory)?;
        assert!(memory.iter().all(|byte| *byte == value), "{value}");
    }
    Ok(())
}

/// Stacks of threads that end, memory of threads, initialised statics, memory in huge pages, and pages that were
/// readable alone for a while.
#[test]
fn memory_of_each_kind_is_what_is_there_now() {
    let _alone = alone();
    const HUGE: usize = 2 << 20;
    thread_local! {
        static OWN: RefCell<[u8; 10_000]> = const { RefCell::new([1; 10_000]) };
    }
    static INITIALISED: Mutex<[u8; 10_000]> = Mutex::new([1; 10_000]);
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    good(builder.run_local(2, |job| {
        let field = job.alloc::<u8>(4 * HUGE)?;
        if job.rank() == Rank(0) {
            for round in 0..40_u8 {
                thread::scope(|scope| {
                    let ends = scope.spawn(|| {
                        let mut stack = [0; 30_000];
                        use_again(&field, &mut stack, round)?;
                        OWN.with_borrow_mut(|own| use_again(&field, own, round))
                    });
                    ends.join().expect("no panic")
                })?;
                use_again(&field, &mut *INITIALISED.lock().expect("no panic"), round)?;
            }
            let mut place = Place::new(3 * HUGE);
            let skipped = place.bytes().as_ptr().align_offset(HUGE);
            let pages = &mut place.bytes()[skipped..][..HUGE];
            let advise = |pages: &mut [u8], advice| {
                // SAFETY: the pages are borrowed, and keep their content.
                unsafe { libc::madvise(pages.as_mut_ptr().cast(), pages.len(), advice) }
            };
            for round in 0..8_u8 {
                let advice = [libc::MADV_HUGEPAGE, libc::MADV_NOHUGEPAGE];
                advise(pages, advice[usize::from(round) % 2]);
                use_again(&field, pages, round)?;
                advise(pages, libc::MADV_COLLAPSE);
                use_again(&field, &mut pages[4096 * 5..][..8192], round)?;
                place::empty(&mut pages[..4096 * 7]);
                use_again(&field, &mut pages[4096 * 6..][..HUGE / 2], round)?;
            }
            let mut place = Place::new(64 << 10);
            for round in 0..8_u8 {
                use_again(&field, place.bytes(), round)?;
                place.set_writable(false);
                for _ in 0..3 {
                    field.put(Rank(1), 0, place.bytes())?;
                }
                assert_eq!(field.get_value(Rank(1), 0)?, round + 2);
                place.set_writable(true);
            }
        }
        job.barrier()
    }));
}

/// Memory that could only be read when it was used first: it is written to later, or through another mapping, or it
/// shares a bucket with memory that is written to.
#[test]
fn memory_that_could_only_be_read_is_what_is_there_now() {
    let _alone = alone();
    const LEN: usize = 20_480;
    for bucket in [4096, 32 << 10] {
        let Some(builder) = builder(Strategy::Firehose) else {
            return;
        };
        good(builder.bucket(bucket).run_local(2, |job| {
            let field = job.alloc::<u8>(LEN)?;
            let (mut place, mut beside) = (Place::new(LEN), Place::new(LEN));
            let shared = SharedMapping::new(LEN);
            let addresses = job.all_gather(&[place.address()])?;
            let theirs = addresses[job.right().index()];
            let puts = |source: &[u8], value: u8| -> Result<()> {
                let mut back = vec![0; source.len()];
                for _ in 0..3 {
                    field.put(job.right(), 0, source)?;
                    field.get(job.right(), 0, &mut back)?;
                    assert!(back.iter().all(|byte| *byte == value), "{value}");
                }
                Ok(())
            };
            for value in 1..6 {
                place.bytes().fill(value);
                place.set_writable(false);
                puts(place.bytes(), value)?;
                job.barrier()?;
                let mut got = vec![0; LEN];
                for _ in 0..3 {
                    // SAFETY: the peer does not touch its memory before the next barrier.
                    unsafe { job.get_anywhere(job.right(), theirs, &mut got)? };
                    assert!(got.iter().all(|byte| *byte == value), "{value}");
                }
                job.barrier()?;
                place.set_writable(true);
                shared.fill(value);
                puts(shared.view(), value)?;
                beside.bytes().fill(value);
                place::set_writable(&mut beside.bytes()[8192..16_384], false);
                puts(beside.bytes(), value)?;
                beside.bytes()[..8192].fill(!value);
                puts(&beside.bytes()[..8192], !value)?;
                place::set_writable(&mut beside.bytes()[8192..16_384], true);
            }
            job.barrier()
        }));
    }
}

/// Segments of System V shared memory, of whose end the kernel tells nobody, one after the other at the same address.
#[test]
fn system_v_segments_are_what_is_there_now() {
    let _alone = alone();
    const LEN: usize = 20_480;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    good(builder.run_local(2, |job| {
        let field = job.alloc::<u8>(LEN)?;
        if job.rank() == Rank(0) {
            let mut at = std::ptr::null_mut();
            for value in 1..6 {
                let mut segment = SystemVSegment::new(at, LEN);
                at = segment.0;
                use_again(&field, segment.bytes(LEN), value)?;
            }
        }
        job.barrier()
    }));
}

/// A segment of System V shared memory, until it is dropped.
struct SystemVSegment(*mut u8);

impl SystemVSegment {
    /// Attaches a new segment, at an address if it is not null.
    fn new(at: *mut u8, len: usize) -> Self {
        // SAFETY: a new segment, of which nobody else knows.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, len, libc::IPC_CREAT | 0o600) };
        assert!(id >= 0, "a segment");
        // SAFETY: without `SHM_REMAP`, no other mapping is replaced.
        let start = unsafe { libc::shmat(id, at.cast_const().cast(), 0) };
        // SAFETY: the segment is the test's, and goes once it is detached.
        unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
        assert_ne!(start.addr(), usize::MAX, "addresses");
        Self(start.cast())
    }

    fn bytes(&mut self, len: usize) -> &mut [u8] {
        // SAFETY: the segment has as many bytes, and is borrowed through this alone.
        unsafe { std::slice::from_raw_parts_mut(self.0, len) }
    }
}

impl Drop for SystemVSegment {
    fn drop(&mut self) {
        // SAFETY: nobody has borrowed the segment.
        unsafe { libc::shmdt(self.0.cast()) };
    }
}

/// Pages that one mapping writes and another reads. They are never unmapped.
struct SharedMapping {
    written: *mut u8,
    read: *const u8,
    len: usize,
}

impl SharedMapping {
    fn new(len: usize) -> Self {
        let file = memfd_create(c"shared", MemfdFlags::CLOEXEC).expect("a file");
        ftruncate(&file, len as u64).expect("pages");
        let map = |rights| {
            // SAFETY: a new mapping at an address of the kernel's choice.
            let mapped = unsafe {
                mmap(
                    std::ptr::null_mut(),
                    len,
                    rights,
                    MapFlags::SHARED,
                    &file,
                    0,
                )
            };
            mapped.expect("addresses").cast::<u8>()
        };
        Self {
            written: map(ProtFlags::READ | ProtFlags::WRITE),
            read: map(ProtFlags::READ),
            len,
        }
    }

    fn fill(&self, value: u8) {
        // SAFETY: the mapping has as many bytes, and no reference to the pages is kept beyond a use.
        unsafe { self.written.write_bytes(value, self.len) };
    }

    fn view(&self) -> &[u8] {
        // SAFETY: the mapping has as many bytes, and nothing is written as long as they are borrowed.
        unsafe { std::slice::from_raw_parts(self.read, self.len) }
    }
}
