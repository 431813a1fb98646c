//! A put or get between memory and itself, which only `unsafe` slices make possible.

#![allow(unsafe_code)] // borrows memory that peers could reach; none does here

use hydrant::{Error, Stride};

use crate::{
    errors::fixture::{Fixture, LEN},
    support::local,
};

#[test_on(shared, veiled, pinned)]
fn of_source_and_target() {
    local(1, |job| {
        let f = Fixture::new(job)?;
        let (m, me) = (&f.memory, job.rank());
        // SAFETY: nothing writes while the slice lives: every put from it is refused.
        let own = unsafe { m.local_slice()? };
        let addr = format!("{:#x}", own[4..].as_ptr().addr());
        let bytes = "32 bytes";
        refused!(
            m.put(me, 4, &own[4..8]),
            Error::Overlap { len: 32, .. },
            addr,
            bytes
        );
        refused!(m.put(me, 1, &own[4..8]), Error::Overlap { .. }, addr, bytes);
        refused!(m.put(me, 7, &own[4..8]), Error::Overlap { .. }, addr, bytes);
        refused!(
            job.put_to(m.pointer(me, 2)?, &own[4..8]),
            Error::Overlap { .. },
            addr
        );
        refused!(
            job.scope(|s| s.put(m, me, 2, &own[4..8]).map(drop)),
            Error::Overlap { .. },
            addr
        );
        refused!(
            job.scope(|s| s.put_to(m.pointer(me, 2)?, &own[4..8]).map(drop)),
            Error::Overlap { .. },
            addr
        );
        refused!(m.local()?.write(6, &own[4..8]), Error::Overlap { .. }, addr);
        // Runs and elements before the overlapping one must not be put, either.
        let runs = Stride {
            start: 0,
            run: 2,
            stride: 5,
            count: 2,
        };
        refused!(
            m.put_strided(me, runs, &own[4..8]),
            Error::Overlap { .. },
            addr
        );
        refused!(
            m.put_indexed(me, &[0, 1, 2, 7], &own[4..8]),
            Error::Overlap { .. },
            addr
        );
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn of_a_get_into_its_source() {
    local(1, |job| {
        let f = Fixture::new(job)?;
        let (m, me) = (&f.memory, job.rank());
        // SAFETY: nobody else touches this part while the slice lives: every get is refused.
        let own = unsafe { m.local_slice_mut()? };
        refused!(
            m.get(me, 2, &mut own[4..8]),
            Error::Overlap { len: 32, .. },
            "32 bytes"
        );
        refused!(
            m.local()?.read(2, &mut own[4..8]),
            Error::Overlap { .. },
            "32 bytes"
        );
        refused!(
            job.get_from(m.pointer(me, 2)?, &mut own[4..8]),
            Error::Overlap { .. },
            "32 bytes"
        );
        let runs = Stride {
            start: 0,
            run: 2,
            stride: 5,
            count: 2,
        };
        refused!(
            m.get_strided(me, runs, &mut own[4..8]),
            Error::Overlap { .. },
            "32 bytes"
        );
        refused!(
            m.get_indexed(me, &[0, 1, 2, 7], &mut own[4..8]),
            Error::Overlap { .. },
            "32 bytes"
        );
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn but_neighbours_do_not_overlap() {
    local(1, |job| {
        let memory = job.alloc::<u64>(LEN)?;
        memory.put(job.rank(), 0, &[1, 2, 3, 4])?;
        // SAFETY: the puts write to elements 4 to 11 of which the slice has none.
        let own = unsafe { &memory.local_slice()?[..4] };
        memory.put(job.rank(), 4, own)?;
        memory.put_nb(job.rank(), 8, own.to_vec())?.wait()?;
        assert_eq!(
            memory.local()?.to_vec()[..12],
            [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4]
        );
        Ok(())
    });
}
