//! The whole address space: memory that was never registered.

#![allow(unsafe_code)] // that is what it is

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use hydrant::Foreign;

use crate::support::{builder, good};

const WORDS: usize = 30_000;

#[test_on(real)]
fn any_memory_can_be_written_and_read() {
    for way in [Foreign::Auto, Foreign::ProcessVm, Foreign::Messages] {
        good(
            builder()
                .anywhere(true)
                .smp_foreign(way)
                .run_local(3, |job| {
                    // Atomics, so that this program bears the change.
                    let own: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(1)).collect();
                    let addresses = job.alloc::<u64>(1)?;
                    addresses.put_value(job.left(), 0, own.as_ptr().addr() as u64)?;
                    job.barrier()?;
                    let theirs = addresses.local()?.load(0)?;
                    let data: Vec<u64> = (0..WORDS as u64)
                        .map(|i| i ^ u64::from(job.rank().0) << 40)
                        .collect();
                    let bytes: &[u8] = bytemuck::cast_slice(&data[1..]);
                    // SAFETY: the bytes are atomics of a peer that waits in the barrier.
                    unsafe { job.put_anywhere(job.right(), theirs + 8, bytes)? };
                    let mut back = vec![0; bytes.len()];
                    // SAFETY: as above.
                    unsafe { job.get_anywhere(job.right(), theirs + 8, &mut back)? };
                    assert_eq!(back, bytes);
                    job.barrier()?;
                    assert_eq!(own[0].load(SeqCst), 1, "the word before it was written");
                    let from = u64::from(job.left().0) << 40;
                    let intact =
                        |(i, word): (usize, &AtomicU64)| word.load(SeqCst) == i as u64 ^ from;
                    assert!(own.iter().enumerate().skip(1).all(intact));
                    job.barrier()
                }),
        );
    }
}
