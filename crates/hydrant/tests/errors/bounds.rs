//! Elements that are not there, lengths that do not fit together, and sums that overflow.

use hydrant::{Error, Foreign, GlobalPtr, Signal, Stride};

use crate::{
    errors::fixture::{Fixture, LEN},
    support::{builder, good, local},
};

/// Each operation given is refused for indices beyond the end, up to the largest.
macro_rules! out_of_bounds {
    (|$index:ident| $($operation:expr),+ $(,)?) => {
        for $index in [LEN, LEN + 1, usize::MAX / 8, usize::MAX / 8 + 1, usize::MAX - 1, usize::MAX] {
            $(refused!(
                $operation,
                Error::OutOfBounds { len: LEN, .. },
                format!("index {}", $index),
                format!("there are {LEN}")
            );)+
        }
    };
}

#[test_on(shared, veiled, pinned)]
fn of_contiguous_access() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let (m, to) = (&f.memory, job.right());
        let mut data = [7];
        out_of_bounds!(
            |index| m.put(to, index, &[1]),
            m.put_value(to, index, 1),
            m.put_nb(to, index, vec![1]),
            m.get(to, index, &mut data),
            m.get_value(to, index),
            m.get_nb(to, index, 1),
            job.scope(|s| s.put(m, to, index, &[1]).map(drop)),
            m.local()?.load(index),
            m.local()?.store(index, 1),
            m.local()?.read(index, &mut data),
            m.local()?.write(index, &[1]),
        );
        // Begins inside, ends outside.
        let long = [1; LEN + 1];
        let mut into = [7; LEN + 1];
        refused!(
            m.put(to, 0, &long),
            Error::OutOfBounds { .. },
            "17 elements at index 0"
        );
        refused!(
            m.put(to, LEN - 1, &[1, 2]),
            Error::OutOfBounds { .. },
            "2 elements at index 15"
        );
        refused!(
            m.get(to, 0, &mut into),
            Error::OutOfBounds { .. },
            "17 elements at index 0"
        );
        refused!(
            m.get_nb(to, 1, usize::MAX),
            Error::OutOfBounds { .. },
            usize::MAX
        );
        refused!(
            m.put_nb(to, 15, vec![1, 2]),
            Error::OutOfBounds { .. },
            "index 15"
        );
        refused!(
            m.local()?.write(15, &[1, 2]),
            Error::OutOfBounds { .. },
            "index 15"
        );
        assert_eq!((data, into), ([7], [7; LEN + 1]));
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn of_ranges_to_fill() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let (m, to) = (&f.memory, job.right());
        let backwards = std::ops::Range { start: 5, end: 3 };
        for range in [
            0..LEN + 1,
            LEN..LEN + 1,
            LEN + 1..LEN + 1,
            3..usize::MAX,
            backwards,
        ] {
            let start = format!("index {}", range.start);
            refused!(
                m.fill(to, range.clone(), 1),
                Error::OutOfBounds { len: LEN, .. },
                start
            );
            refused!(
                m.local()?.fill(range, 1),
                Error::OutOfBounds { len: LEN, .. },
                start
            );
        }
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn of_atomics_and_signals() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let (m, to) = (&f.memory, job.right());
        out_of_bounds!(
            |index| m.fetch_add(to, index, 1),
            m.fetch_and(to, index, 1),
            m.fetch_or(to, index, 1),
            m.fetch_xor(to, index, 1),
            m.add(to, index, 1),
            m.and(to, index, 1),
            m.or(to, index, 1),
            m.xor(to, index, 1),
            m.swap(to, index, 1),
            m.compare_swap(to, index, 0, 1),
            m.atomic_load(to, index),
            m.atomic_store(to, index, 1),
            m.signal(to, index, Signal::Add(1)),
            job.wait_until(m, index, |_| true),
            // The data would fit: it must not be put if the signal cannot be given.
            m.put_signal(to, 0, &[1], m, index, Signal::Add(1)),
            // And the other way round.
            m.put_signal(to, index, &[1], m, 0, Signal::Add(1)),
        );
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn of_runs_and_indices() {
    let runs = |start, run, stride, count| Stride {
        start,
        run,
        stride,
        count,
    };
    local(2, |job| {
        let f = Fixture::new(job)?;
        let (m, to) = (&f.memory, job.right());
        let data = [1; 8];
        let mut into = [7; 8];
        for bad in [
            runs(0, 2, 5, 4),  // the last run leaves the memory by one
            runs(15, 8, 8, 1), // the only run does
            runs(LEN, 1, 1, 8),
            runs(usize::MAX, 2, 2, 4),
            runs(0, 2, usize::MAX / 2, 4), // the last start overflows
            runs(1, 2, usize::MAX, 4),
        ] {
            refused!(
                m.put_strided(to, bad, &data),
                Error::OutOfBounds { len: LEN, .. },
                "there are 16"
            );
            refused!(
                m.get_strided(to, bad, &mut into),
                Error::OutOfBounds { .. },
                "there are 16"
            );
        }
        for bad in [
            runs(0, 3, 3, 2),
            runs(0, usize::MAX, 1, 2),
            runs(0, 2, 2, 0),
        ] {
            refused!(
                m.put_strided(to, bad, &data),
                Error::LengthMismatch { left: 8, .. },
                "8 against"
            );
            refused!(
                m.get_strided(to, bad, &mut into),
                Error::LengthMismatch { .. },
                "8 against"
            );
        }
        refused!(
            m.put_strided(to, runs(0, 4, 3, 2), &data),
            Error::LengthMismatch {
                left: 3,
                right: 4,
                ..
            },
            "overlap",
            "3 against 4"
        );
        // The bad index comes last: nothing before it may be written.
        refused!(
            m.put_indexed(to, &[0, 1, 16], &[1, 2, 3]),
            Error::OutOfBounds { index: 16, .. },
            "index 16"
        );
        refused!(
            m.get_indexed(to, &[0, usize::MAX], &mut into[..2]),
            Error::OutOfBounds { .. },
            usize::MAX
        );
        refused!(
            m.put_indexed(to, &[0, 1], &[1]),
            Error::LengthMismatch {
                left: 2,
                right: 1,
                ..
            },
            "2 against 1"
        );
        refused!(
            m.get_indexed(to, &[0], &mut into),
            Error::LengthMismatch { .. },
            "1 against 8"
        );
        assert_eq!(into, [7; 8]);
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn of_pointers_into_symmetric_memory() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let to = job.right();
        refused!(
            f.memory.pointer(to, LEN + 1),
            Error::OutOfBounds { .. },
            "there are 16"
        );
        refused!(
            f.memory.pointer(to, usize::MAX),
            Error::OutOfBounds { .. },
            "there are 16"
        );
        let first = f.memory.pointer(to, 0)?;
        let mut into = [7; 2];
        for (pointer, count) in [
            (first.offset(LEN as isize), 1),
            (first.offset(LEN as isize - 1), 2),
            (first.offset(LEN as isize + 1), 1),
            (first.offset(-1), 1),
            (first.offset(isize::MAX), 1),
            (first.offset(isize::MIN + 1), 1),
        ] {
            refused!(
                job.put_to(pointer, &[1; 2][..count]),
                Error::OutOfBounds { .. },
                "there are 16"
            );
            refused!(
                job.get_from(pointer, &mut into[..count]),
                Error::OutOfBounds { .. },
                "there are 16"
            );
            refused!(
                job.scope(|s| s.put_to(pointer, &[1; 2][..count]).map(drop)),
                Error::OutOfBounds { .. },
                "there are 16"
            );
        }
        assert_eq!(into, [7; 2]);
        f.check(job)
    });
}

/// By the kernel and by messages, with more than a ring holds: the last byte too many must
/// keep the first from being written.
#[test_on(shared, veiled, pinned)]
fn of_exposed_buffers() {
    const BUFFER: usize = 100_000;
    for way in [Foreign::Auto, Foreign::ProcessVm, Foreign::Messages] {
        good(builder().smp_foreign(way).run_local(2, |job| {
            let f = Fixture::new(job)?;
            let pointers = job.alloc::<GlobalPtr<u32>>(1)?;
            let exposed = job.expose(vec![9_u32; BUFFER])?;
            refused!(
                exposed.pointer(BUFFER + 1),
                Error::OutOfBounds { len: BUFFER, .. },
                BUFFER
            );
            pointers.put(job.right(), 0, &[exposed.pointer(0)?])?;
            job.barrier()?;
            let theirs = pointers.local()?.load(0)?;
            let data = vec![1; BUFFER + 1];
            let mut into = vec![7; BUFFER + 1];
            for (pointer, count) in [
                (theirs, BUFFER + 1),
                (theirs.offset(1), BUFFER),
                (theirs.offset(BUFFER as isize), 1),
                (theirs.offset(-1), 2),
                (theirs.offset(isize::MAX), 1),
            ] {
                let there = format!("there are {BUFFER}");
                refused!(
                    job.put_to(pointer, &data[..count]),
                    Error::OutOfBounds { len: BUFFER, .. },
                    there
                );
                refused!(
                    job.get_from(pointer, &mut into[..count]),
                    Error::OutOfBounds { .. },
                    there
                );
                refused!(
                    job.scope(|s| s.put_to(pointer, &data[..count]).map(drop)),
                    Error::OutOfBounds { .. },
                    there
                );
                refused!(
                    job.scope(|s| s.get_from(pointer, &mut into[..count]).map(drop)),
                    Error::OutOfBounds { .. },
                    there
                );
            }
            assert!(into.iter().all(|element| *element == 7));
            job.barrier()?;
            assert!(
                exposed.take_back().iter().all(|element| *element == 9),
                "{way:?}"
            );
            f.check(job)
        }));
    }
}
