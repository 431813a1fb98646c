//! What reaches past an allocation is refused, whatever lies behind it. The operations themselves are
//! tried from C (`c/borders.c`), on every network.
#![allow(unsafe_code)] // memory is named by its address

use armci::{Armci, Error};
use hydrant::{ConduitKind, Job};

/// Each of two processes with what it is to find of its own and of the other's.
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
                // SAFETY: the buffer has so many bytes; the other process uses none of its own.
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
                // SAFETY: as above.
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
fn all_that_the_limit_allows_is_had_at_once_and_nothing_outside_of_it_named() {
    on_each(|armci| {
        let all = armci.malloc_local(1 << 20).unwrap();
        let word = 7_u8;
        for at in [all.wrapping_sub(1), all.wrapping_add(1 << 20)] {
            // SAFETY: one byte; if it were written, it would be of this process's arena.
            let put = unsafe { armci.put(&raw const word, at, 1, armci.me()) };
            assert!(matches!(put, Err(Error::UnknownAddress { .. })), "{put:?}");
        }
        armci.free(all).unwrap();
        let none = armci.malloc_local(0).unwrap();
        armci.free(none).unwrap();
    });
}
