//! Operations on memory of the caller's, memory whose pages come later, and memory of several types.

#![allow(unsafe_code)] // what is tested asks for promises

use hydrant::{AllocOptions, Error, Result};

use crate::support::local;

#[test_on(every, native)]
fn puts_and_gets_on_the_callers_memory() {
    local(2, |job| {
        const LEN: usize = 20_000;
        let memory = job.alloc::<u64>(LEN)?;
        let source: Vec<u64> = (0..LEN as u64)
            .map(|at| at + u64::from(job.rank().0))
            .collect();
        let mut into = vec![0; LEN];
        // SAFETY: both buffers live until all is complete, and nobody else uses them.
        let mut puts = [(0, 1), (1, 100), (101, LEN - 101)]
            .into_iter()
            .map(|(at, count)| unsafe {
                memory.put_raw_nb(job.right(), at, source[at..].as_ptr(), count)
            })
            .collect::<Result<Vec<_>>>()?;
        puts[1].wait_local()?;
        for put in &mut puts {
            put.wait()?;
            assert!(put.is_complete());
            assert!(matches!(put.wait(), Err(Error::OutOfTurn { .. })) || put.test()?);
        }
        // SAFETY: as above.
        let mut get = unsafe { memory.get_raw_nb(job.right(), 0, into.as_mut_ptr(), LEN)? };
        while !get.test()? {}
        assert_eq!(into, source);
        // SAFETY: nothing is begun.
        let refused = unsafe { memory.put_raw_nb(job.right(), 1, source.as_ptr(), LEN) };
        assert!(matches!(refused.map(drop), Err(Error::OutOfBounds { .. })));
        // One that is dropped is waited for.
        // SAFETY: `source` lives until `quiet` has returned.
        drop(unsafe { memory.put_raw_nb(job.right(), 0, source[1..].as_ptr(), LEN - 1)? });
        job.quiet()?;
        job.barrier()?;
        assert_eq!(memory.local()?.load(0)?, 1 + u64::from(job.left().0));
        job.barrier()
    });
}

/// More small puts than a network takes at once: what waits its turn has not left its source.
#[test_on(every, native)]
fn a_source_is_free_when_it_is_said_to_be() {
    local(2, |job| {
        const PUTS: usize = 500;
        const LEN: usize = 12;
        let memory = job.alloc::<u64>(PUTS * LEN)?;
        let mut source = [0_u64; LEN];
        let mut open = Vec::new();
        for number in 0..PUTS {
            source.fill(number as u64 + 1);
            // SAFETY: it is changed when it is free, and lives until all is complete.
            let put = unsafe { memory.put_raw_nb(job.right(), number * LEN, source.as_ptr(), LEN) };
            let mut put = put?;
            put.wait_local()?;
            source.fill(u64::MAX);
            open.push(put);
        }
        (open.iter_mut()).try_for_each(|put| put.wait())?;
        job.barrier()?;
        let mine = memory.local()?;
        for at in 0..PUTS * LEN {
            assert_eq!(mine.load(at)?, (at / LEN) as u64 + 1, "element {at}");
        }
        job.barrier()
    });
}

#[test_on(every, native)]
fn reserved_memory_is_committed_in_parts() {
    local(2, |job| {
        let options = AllocOptions {
            reserve: true,
            ..AllocOptions::default()
        };
        let memory = job.alloc_with::<u64>(1 << 16, options)?;
        job.commit(&memory, 1000, 5000)?;
        job.barrier()?;
        memory.put(job.right(), 1000, &[7; 5000])?;
        job.barrier()?;
        assert_eq!(memory.local()?.load(5999)?, 7);
        let refused = job.commit(&memory, 1 << 16, 1);
        assert!(matches!(refused, Err(Error::OutOfBounds { .. })));
        // What it holds stays.
        job.commit(&memory, 0, 1 << 16)?;
        assert_eq!(memory.local()?.load(1000)?, 7);
        job.barrier()?;
        job.free(memory)
    });
}

#[test_on(every, native)]
fn one_memory_has_elements_of_several_types() {
    local(2, |job| {
        let bytes = job.alloc::<u8>(44)?;
        let (words, halves) = (bytes.cast::<u64>(), bytes.cast::<u32>());
        assert_eq!((words.len(), halves.len()), (5, 11));
        halves.put_value(job.right(), 3, 9)?;
        job.barrier()?;
        assert_eq!(words.local()?.load(1)?, 9 << 32);
        job.barrier()?;
        if !job.has_native_atomics() {
            assert_eq!(words.fetch_add(job.right(), 1, 1)?, 9 << 32);
        }
        assert_eq!(words.pointer(job.rank(), 1)?.rank(), job.rank());
        job.barrier()?;
        job.free(bytes)?;
        assert!(matches!(words.get_value(job.right(), 0), Err(Error::Freed)));
        Ok(())
    });
}
