//! Sections that leave memory, that do not fit together, and that overlap.

#![allow(unsafe_code)] // borrows memory that peers could reach; none does here

use std::ops::Range;

use hydrant::{Error, Level, Section};

use crate::{
    errors::fixture::{Fixture, LEN},
    support::local,
};

fn level(count: usize, stride: usize) -> Level {
    Level { count, stride }
}

#[test_on(shared, veiled, pinned)]
fn that_are_none() {
    let most = usize::MAX;
    for bad in [
        Section::new(0, 1, &[level(most, 2)]),
        Section::new(0, most, &[level(2, 1)]),
        Section::new(2, 1, &[level(2, most - 1)]),
        Section::new(most, 2, &[]),
        Section::new(0, 2, &[level(most, 0)]),
        Section::new(0, 1, &[level(1 << 40, 0), level(1 << 40, 0)]),
        Section::of(&[most, most], &[1..2, 0..1]),
        Section::of(&[2, 1 << 40, 1 << 40], &[0..1, 5..6, 7..8]),
    ] {
        refused!(
            bad,
            Error::SectionOverflow { .. },
            "further than any memory"
        );
    }
    refused!(
        Section::run(7, 2).and_then(|section| section.offset(most - 8)),
        Error::SectionOverflow { .. },
        most - 8
    );
    refused!(
        Section::new(0, 1, &[level(1, 1); 9]),
        Error::SectionLevels {
            levels: 9,
            limit: 8
        },
        "9 levels",
        "8 are possible"
    );
    refused!(
        Section::of(&[2; 10], &[const { 0..2 }; 10]),
        Error::SectionLevels { .. },
        "8 are possible"
    );
    refused!(
        Section::of(&[4, 4, 4], &[0..4, 1..2]),
        Error::LengthMismatch {
            left: 3,
            right: 2,
            ..
        },
        "3 against 2"
    );
    let backwards = Range { start: 3, end: 2 };
    for (range, said) in [
        (2..5, "3 elements at index 2"),
        (5..5, "index 5"),
        (backwards, "index 3"),
    ] {
        refused!(
            Section::of(&[9, 4], &[0..9, range]),
            Error::OutOfBounds { len: 4, .. },
            said,
            "there are 4"
        );
    }
}

#[test_on(shared, veiled, pinned)]
fn that_leave_memory_or_differ() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let (m, to) = (&f.memory, job.right());
        let data = [1; 8];
        let mut into = [7; 8];
        let packed = Section::run(0, 4)?;
        for (bad, said) in [
            (
                Section::new(0, 2, &[level(2, LEN - 1)])?,
                "17 elements at index 0",
            ),
            (
                Section::new(1, 1, &[level(2, 5), level(2, 10)])?,
                "16 elements at index 1",
            ),
            (Section::run(LEN - 3, 4)?, "4 elements at index 13"),
            (packed.offset(usize::MAX - 4)?, "4 elements"),
        ] {
            refused!(
                m.put_section(to, &bad, &data, &packed),
                Error::OutOfBounds { len: LEN, .. },
                said,
                "there are 16"
            );
            refused!(
                m.get_section(to, &bad, &mut into, &packed),
                Error::OutOfBounds { len: LEN, .. },
                said
            );
        }
        for bad in [
            Section::run(5, 4)?,
            Section::new(0, 2, &[level(2, 7)])?,
            packed.offset(usize::MAX - 4)?,
        ] {
            refused!(
                m.put_section(to, &packed, &data, &bad),
                Error::OutsideBuffer { len: 8, .. },
                format!("index {}", bad.start()),
                "it has 8"
            );
            refused!(
                m.get_section(to, &packed, &mut into, &bad),
                Error::OutsideBuffer { len: 8, .. },
                "it has 8"
            );
        }
        for other in [
            Section::run(0, 5)?,
            Section::new(0, 1, &[level(3, 2)])?,
            Section::run(8, 0)?,
        ] {
            refused!(
                m.put_section(to, &packed, &data, &other),
                Error::LengthMismatch { left: 4, .. },
                format!("4 against {}", other.len())
            );
            refused!(
                m.get_section(to, &packed, &mut into, &other),
                Error::LengthMismatch { left: 4, .. },
                format!("4 against {}", other.len())
            );
        }
        let nothing = Section::run(LEN + 1, 0)?;
        refused!(
            m.put_section(to, &nothing, &data, &Section::run(0, 0)?),
            Error::OutOfBounds { .. },
            "index 17"
        );
        assert_eq!(into, [7; 8]);
        f.check(job)
    });
}

/// What is written must not name an element twice; what is read may.
#[test_on(shared, veiled, pinned)]
fn that_overlap_themselves() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let (m, to) = (&f.memory, job.right());
        let data = [1; 6];
        let mut into = [7; 9];
        let packed = Section::run(0, 6)?;
        for twice in [
            Section::new(0, 3, &[level(2, 2)])?,
            Section::new(0, 1, &[level(6, 0)])?,
            Section::new(0, 1, &[level(3, 2), level(2, 4)])?,
        ] {
            refused!(
                m.put_section(to, &twice, &data, &packed),
                Error::SectionOverlap { elements: 6, .. },
                "6 elements",
                format!("within {}", twice.span())
            );
            refused!(
                m.get_section(to, &packed, &mut into, &twice),
                Error::SectionOverlap { elements: 6, .. },
                "6 elements"
            );
            let mut copy = [7; 6];
            m.get_section(to, &twice, &mut copy, &packed)?;
            assert!(copy.iter().all(|element| *element >= 1000));
        }
        assert_eq!(into, [7; 9]);
        // These interleave and name none twice.
        let woven = Section::new(0, 1, &[level(3, 2), level(2, 3)])?;
        m.get_section(to, &packed, &mut into, &woven)?;
        assert!([1, 6, 8].iter().all(|between| into[*between] == 7));
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn of_memory_and_itself() {
    local(1, |job| {
        let f = Fixture::new(job)?;
        let (m, me) = (&f.memory, job.rank());
        let runs = Section::new(0, 1, &[level(2, 5)])?;
        let first = Section::run(0, 2)?;
        // SAFETY: nobody else touches this part while the slice lives: every access is refused.
        let own = unsafe { m.local_slice_mut()? };
        refused!(
            m.put_section(me, &runs, &own[4..8], &first),
            Error::Overlap { len: 32, .. },
            "32 bytes"
        );
        refused!(
            m.get_section(me, &runs, &mut own[4..8], &first),
            Error::Overlap { len: 32, .. },
            "32 bytes"
        );
        f.check(job)?;
        // Between the runs there is room for a buffer.
        // SAFETY: the put writes to elements 0 and 5, of which the slice has none.
        let between = unsafe { &m.local_slice()?[1..5] };
        m.put_section(me, &runs, between, &first)
    });
}
