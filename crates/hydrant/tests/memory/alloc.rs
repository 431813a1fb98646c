//! Symmetric memory: zeroed, aligned, given back.

use hydrant::{AllocOptions, Error, HugePages, Rank, Strategy};

use crate::support::{builder, good, local};

const MIB: usize = 1 << 20;

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

#[test_on(real)]
fn what_is_freed_goes_back_and_comes_zeroed() {
    good(builder().heap(32 * MIB).run_local(2, |job| {
        let before = resident();
        let idle = job.counters().heap_bytes;
        for round in 1..=50_u8 {
            let memory = job.alloc::<u8>(8 * MIB)?;
            assert!(
                memory.local()?.to_vec().iter().all(|byte| *byte == 0),
                "round {round}"
            );
            assert_eq!(job.counters().heap_bytes, idle + 8 * MIB as u64);
            job.barrier()?;
            memory.fill(job.right(), 0..8 * MIB, round)?;
            job.barrier()?;
            assert_eq!(memory.local()?.load(8 * MIB - 1)?, round);
            job.free(memory)?;
            assert_eq!(job.counters().heap_bytes, idle);
        }
        job.barrier()?;
        // 800 MiB were written to; both ranks map both parts, and allocators keep some.
        assert!(
            resident() < before + 100 * MIB,
            "{} MiB stayed",
            (resident() - before) / MIB
        );
        assert!(job.counters().heap_peak >= 8 * MIB as u64);
        job.barrier()
    }));
}

#[test_on(real)]
fn pieces_of_all_sizes_share_the_heap() {
    good(builder().heap(4 * MIB).run_local(3, |job| {
        let mut held = Vec::new();
        for number in 0..200_usize {
            let elements = number * 7919 % 5000;
            let memory = job.alloc::<u32>(elements)?;
            assert_eq!(memory.len(), elements);
            assert_eq!(memory.is_empty(), elements == 0);
            memory.fill(job.right(), 0..elements, number as u32)?;
            held.push((number, memory));
            if held.len() > 12 {
                job.barrier()?;
                let (number, memory) = held.swap_remove(number % 12);
                assert!(
                    memory
                        .local()?
                        .to_vec()
                        .iter()
                        .all(|seen| *seen == number as u32)
                );
                job.free(memory)?;
            }
        }
        job.barrier()?;
        for (number, memory) in held {
            assert!(
                memory
                    .local()?
                    .to_vec()
                    .iter()
                    .all(|seen| *seen == number as u32)
            );
            job.free(memory)?;
        }
        let all = job.alloc::<u8>(4 * MIB - job.counters().heap_bytes as usize)?;
        job.free(all)
    }));
}

#[test_on(real)]
#[allow(unsafe_code)] // to see the address
fn aligned_as_asked() {
    local(2, |job| {
        for align in [1, 64, 4096, 65_536, 2 * MIB] {
            let odd = job.alloc::<u8>(5000)?;
            let options = AllocOptions {
                align,
                ..AllocOptions::default()
            };
            let memory = job.alloc_with::<u64>(10, options)?;
            // SAFETY: nobody writes to it, and the slice is dropped at once.
            let addr = unsafe { memory.local_slice()? }.as_ptr().addr();
            assert!(addr.is_multiple_of(align), "{addr:#x} for {align}");
            job.free(odd)?;
            job.free(memory)?;
        }
        Ok(())
    });
}

/// An element aligned to more than anything that segments are sure to be.
#[derive(Clone, Copy)]
#[repr(C, align(4_194_304))]
struct Vast([u8; 4 * MIB]);

// SAFETY: bytes, and no padding.
#[allow(unsafe_code)]
unsafe impl bytemuck::Zeroable for Vast {}
// SAFETY: the same.
#[allow(unsafe_code)]
unsafe impl bytemuck::Pod for Vast {}

/// A slice is aligned for its elements, or there is none.
#[test_on(real)]
#[allow(unsafe_code)] // to see the address
fn slices_of_elements_aligned_to_more_than_segments() {
    local(3, |job| {
        let memory = job.alloc::<Vast>(2)?;
        let at = memory.local()?.as_ptr();
        // SAFETY: nobody writes to it, and the slice is dropped at once.
        let shared = unsafe { memory.local_slice() }.map(<[Vast]>::as_ptr);
        // SAFETY: nobody else uses it, and the slice is dropped at once.
        let exclusive = unsafe { memory.local_slice_mut() }.map(|slice| slice.as_ptr());
        for start in [shared, exclusive] {
            match start {
                Ok(start) => assert!(start.is_aligned() && start == at),
                Err(Error::Misaligned { align, .. }) => {
                    assert!(align == 4 * MIB && !at.is_aligned());
                }
                Err(other) => panic!("{other}"),
            }
        }
        job.free(memory)
    });
}

#[test_on(real)]
fn huge_pages_if_there_are_any() {
    local(2, |job| {
        let options = |huge| AllocOptions {
            huge,
            ..AllocOptions::default()
        };
        let memory = job.alloc_with::<u64>(MIB, options(HugePages::Try))?;
        assert!(memory.local()?.to_vec().iter().all(|element| *element == 0));
        // Or a quick rank's put is here before this one has looked.
        job.barrier()?;
        memory.put(job.right(), MIB - 1, &[7])?;
        job.barrier()?;
        assert_eq!(memory.local()?.load(MIB - 1)?, 7);
        match job.alloc_with::<u64>(MIB, options(HugePages::Require)) {
            Ok(memory) => job.free(memory)?,
            Err(error @ Error::OutOfMemory { .. }) => {
                assert!(
                    error.to_string().contains("transparent_hugepage"),
                    "{error}"
                );
            }
            Err(other) => panic!("{other}"),
        }
        job.free(memory)
    });
}

#[test_on(real)]
fn a_job_of_one_and_jobs_one_after_the_other() {
    for seed in 0..30_u64 {
        let ends = local(1 + seed as u32 % 4, |job| {
            let memory = job.alloc::<u64>(100)?;
            memory.put(job.right(), 50, &[seed; 50])?;
            assert_eq!(memory.get_value(job.right(), 99)?, seed);
            assert_eq!(
                memory.get_value(job.right(), 0)?,
                0,
                "an older job's memory"
            );
            job.barrier()?;
            Ok(job.rank())
        });
        assert_eq!(ends, (0..1 + seed as u32 % 4).map(Rank).collect::<Vec<_>>());
    }
}

/// What a rank has under way when it frees the memory ends before that is anybody else's.
#[test_on(real)]
fn what_is_under_way_does_not_reach_the_next_allocation() {
    const ELEMENTS: usize = 1 << 18;
    for strategy in [Strategy::Bounce, Strategy::Firehose, Strategy::PinDown] {
        let ends = builder().registration(strategy).run_local(3, |job| {
            for round in 0..4 {
                let memory = job.alloc::<u64>(ELEMENTS)?;
                let put = memory.put_nb(job.right(), 0, vec![round; ELEMENTS])?;
                let got = memory.get_nb(job.left(), 0, ELEMENTS)?;
                job.free(memory)?;
                let next = job.alloc::<u64>(ELEMENTS)?;
                next.local()?.fill(0..ELEMENTS, 77)?;
                put.wait()?;
                assert!(got.wait()?.iter().all(|it| [0, round].contains(it)));
                job.barrier()?;
                assert_eq!(next.local()?.to_vec(), vec![77; ELEMENTS], "{strategy}");
                job.free(next)?;
            }
            Ok(())
        });
        good(ends);
    }
}
