//! Accesses past an allocation are refused, whatever lies behind it. `c/borders.c` tries all
//! operations from C, on every network.
#![allow(unsafe_code)] // memory is named by its address

use armci::{Armci, Error};
use hydrant::{ConduitKind, Job};

/// Runs `body` at two processes, on each of two networks.
fn on_each(body: impl Fn(&Armci) + Sync) {
    for conduit in [ConduitKind::Smp, ConduitKind::Pinned] {
        let builder = Job::builder().unwrap().heap(32 << 20).conduit(conduit);
        let ends = builder.run_local(2, |job| {
            body(&Armci::new(job, Some(1 << 20)).unwrap());
            job.barrier()
        });
        ends.into_iter().for_each(|end| end.unwrap());
    }
}

#[test]
fn no_allocation_begins_where_another_ends() {
    on_each(|armci| {
        let other = 1 - armci.me();
        for bytes in [1, 63, 64, 128, 4096, 8192] {
            let parts: Vec<_> = (0..4).map(|_| armci.malloc(bytes).unwrap()).collect();
            for part in &parts {
                let (at, past) = (part[other as usize], bytes as usize);
                let mut word = [0_u8; 16];
                // SAFETY: 1. The buffer has `bytes` bytes, and no other thread uses it.
                // 2. The destination belongs to another process.
                let put = |at: usize, bytes| unsafe {
                    armci.put(
                        word.as_ptr(),
                        part[other as usize].wrapping_add(at),
                        bytes,
                        other,
                    )
                };
                put(past - 1, 1).unwrap();
                put(past, 0).unwrap();
                let cause = put(past, 1).unwrap_err();
                assert!(matches!(cause, Error::UnknownAddress { .. }), "{cause}");
                let cause = put(past - 1, 2).unwrap_err();
                assert!(
                    matches!(cause, Error::PastAllocation { left: 1, .. }),
                    "{cause}"
                );
                let before = at.wrapping_sub(1);
                // SAFETY: 1. The buffer has room for one byte, and no other thread uses it.
                // 2. The source belongs to another process.
                let got = unsafe { armci.get(before, word.as_mut_ptr(), 1, other) };
                assert!(got.is_err(), "a byte before {at:?}");
            }
            armci.job().barrier().unwrap();
            for part in parts {
                armci.free(part[armci.me() as usize]).unwrap();
            }
        }
    });
}

#[test]
fn the_whole_limit_is_one_allocation_and_nothing_outside_is_accessible() {
    on_each(|armci| {
        let all = armci.malloc_local(1 << 20).unwrap();
        let word = 7_u8;
        for at in [all.wrapping_sub(1), all.wrapping_add(1 << 20)] {
            // SAFETY: 1. The source is one byte of this function.
            // 2. If the byte were written, it would lie in this process's arena.
            let put = unsafe { armci.put(&raw const word, at, 1, armci.me()) };
            assert!(matches!(put, Err(Error::UnknownAddress { .. })), "{put:?}");
        }
        armci.free(all).unwrap();
        let none = armci.malloc_local(0).unwrap();
        armci.free(none).unwrap();
    });
}
