//! Sections of random arrays, against elements counted one by one.

use std::ops::Range;

use hydrant::{Error, Foreign, Job, Level, Pod, Result, Section};
use hydrant_base::Random;
use proptest::prelude::*;

use crate::support::{builder, good, local};

/// Most elements of a section.
const MAX_ELEMENTS: usize = 3000;

/// A section, its elements in order, and a length of memory that holds them.
struct Shape {
    section: Section,
    elements: Vec<usize>,
    len: usize,
}

impl Shape {
    /// A part of an array that has so many elements along each axis.
    fn of(dice: &mut Random, counts: &[usize]) -> Self {
        let ranges: Vec<Range<usize>> = (counts.iter())
            .map(|count| {
                let start = dice.below(3);
                start..start + count
            })
            .collect();
        let shape: Vec<usize> = (ranges.iter().rev())
            // The array is to stay small: few axes are much longer than their range.
            .map(|range| range.end + dice.below(2))
            .collect();
        let shape: Vec<usize> = shape.into_iter().rev().collect();
        let mut elements = vec![0];
        for (extent, range) in shape.iter().zip(&ranges) {
            let along = |outer: usize| range.clone().map(move |at| outer * extent + at);
            elements = elements.into_iter().flat_map(along).collect();
        }
        Self {
            section: Section::of(&shape, &ranges).expect("it is small"),
            len: shape.iter().product(),
            elements,
        }
    }

    /// As many elements in levels that interleave or go round as they like, some of them twice.
    fn to_be_read(dice: &mut Random, counts: &[usize]) -> Self {
        let start = dice.below(5);
        let (run, levels) = counts.split_last().expect("an axis");
        let levels: Vec<Level> = (levels.iter().rev())
            .map(|count| Level {
                count: *count,
                stride: dice.below(40),
            })
            .collect();
        let mut elements: Vec<usize> = (start..start + run).collect();
        for level in &levels {
            let turn = |turn| elements.iter().map(move |at| at + turn * level.stride);
            elements = (0..level.count).flat_map(turn).collect();
        }
        Self {
            section: Section::new(start, *run, &levels).expect("it is small"),
            len: elements.iter().max().map_or(start, |last| last + 1) + dice.below(3),
            elements,
        }
    }
}

/// How many elements along each of up to nine axes.
fn counts(dice: &mut Random) -> Vec<usize> {
    let axes = 1 + dice.below(9);
    let mut counts = vec![1; axes];
    for axis in 0..axes {
        let most = [2, 3, 5, 70][dice.below(4)];
        counts[axis] = 1 + dice.below(most);
        let padded = counts.iter().map(|count| count + 2);
        if counts.iter().product::<usize>() > MAX_ELEMENTS
            || padded.product::<usize>() > 40 * MAX_ELEMENTS
        {
            counts[axis] = 1;
        }
    }
    if dice.below(12) == 0 {
        counts[dice.below(axes)] = 0;
    }
    counts
}

/// The same number of elements, along other axes.
fn regrouped(dice: &mut Random, counts: &[usize]) -> Vec<usize> {
    let mut others = counts.to_vec();
    match dice.below(4) {
        0 => others = vec![counts.iter().product()],
        1 => others.reverse(),
        2 if others.len() > 1 => {
            let last = others.pop().expect("two axes");
            *others.last_mut().expect("two axes") *= last;
        }
        _ => {}
    }
    others
}

/// Each rank puts a section to its right neighbour, and gets one from there.
fn steps<T: Pod + PartialEq + std::fmt::Debug>(
    job: &Job,
    dice: &mut Random,
    steps: usize,
    element: impl Fn(usize) -> T,
) -> Result<()> {
    for step in 0..steps {
        let counts = counts(dice);
        let there = Shape::of(dice, &counts);
        let others = regrouped(dice, &counts);
        let here = if dice.below(2) == 0 {
            Shape::of(dice, &others)
        } else {
            Shape::to_be_read(dice, &others)
        };
        let value = |rank: u32, at: usize| element(at * 31 + step * 7 + rank as usize * 1009);
        let old = element(step);
        let memory = job.alloc::<T>(there.len)?;
        memory.local()?.fill(0..there.len, old)?;
        let own = job.rank().0;
        let data: Vec<T> = (0..here.len).map(|at| value(own, at)).collect();
        job.barrier()?;
        memory.put_section(job.right(), &there.section, &data, &here.section)?;
        job.quiet()?;
        job.barrier()?;
        let mut right = vec![old; there.len];
        for (to, from) in there.elements.iter().zip(&here.elements) {
            right[*to] = value(job.left().0, *from);
        }
        assert_eq!(memory.local()?.to_vec(), right, "{:?}", there.section);
        // And back, into an array of another shape.
        let into = Shape::of(dice, &others);
        let mut got = vec![old; into.len];
        memory.get_section(job.right(), &there.section, &mut got, &into.section)?;
        let mut right = vec![old; into.len];
        for (to, from) in into.elements.iter().zip(&here.elements) {
            right[*to] = data[*from];
        }
        assert_eq!(got, right, "{:?}", into.section);
        job.barrier()?;
        job.free(memory)?;
    }
    Ok(())
}

fn mix(ranks: u32, seed: u64, foreign: Foreign) {
    good(builder().smp_foreign(foreign).run_local(ranks, |job| {
        let dice = &mut Random::new(seed);
        steps(job, dice, 4, |number| number as u8)?;
        steps(job, dice, 2, |number| number as u32)?;
        steps(job, dice, 3, |number| number as u64)?;
        steps(job, dice, 2, |number| [number as u16, number as u16 / 3, 7])
    }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test_on(every, native)]
    fn sections_by_the_kernel(ranks in 1_u32..4, seed: u64) {
        mix(ranks, seed, Foreign::ProcessVm);
    }

    #[test_on(every, native)]
    fn sections_by_messages(ranks in 1_u32..4, seed: u64) {
        mix(ranks, seed, Foreign::Messages);
    }
}

/// Both sides go down their columns first, so that neighbours come last.
#[test_on(every, native)]
fn columns_first_on_both_sides() {
    local(2, |job| {
        let memory = job.alloc::<u64>(64)?;
        let columns = |stride| {
            let (down, across) = (
                Level { count: 4, stride },
                Level {
                    count: 3,
                    stride: 1,
                },
            );
            Section::new(0, 1, &[down, across])
        };
        let (to, from) = (columns(5)?, columns(3)?);
        let data: Vec<u64> = (1..=12).collect();
        memory.put_section(job.right(), &to, &data, &from)?;
        job.barrier()?;
        let right = [
            1, 2, 3, 0, 0, 4, 5, 6, 0, 0, 7, 8, 9, 0, 0, 10, 11, 12, 0, 0,
        ];
        assert_eq!(memory.local()?.to_vec()[..20], right);
        for rank in job.ranks() {
            let mut back = vec![0; 12];
            memory.get_section(rank, &to, &mut back, &from)?;
            assert_eq!(back, data);
        }
        job.barrier()
    });
}

/// Parts, rows and sections of what is one's own, against a copy.
#[test_on(every, native)]
fn own_memory_in_view() {
    local(2, |job| {
        let (rows, columns) = (7, 5);
        let grid = job.alloc::<u32>(3 + rows * columns)?;
        let all = grid.local()?;
        let mut right: Vec<u32> = (0..all.len() as u32).collect();
        all.write(0, &right)?;
        let own = all.part(3..all.len())?;
        assert_eq!(own.len(), rows * columns);
        assert_eq!(own.load(0)?, 3);
        assert_eq!(own.as_ptr(), all.as_ptr().wrapping_add(3));
        for (number, row) in own.rows(columns)?.enumerate() {
            let at = 3 + number * columns;
            assert_eq!(row.to_vec(), right[at..at + columns]);
            row.part(1..4)?.fill(1..3, 77)?;
            right[at + 2..at + 4].fill(77);
            row.store(4, number as u32)?;
            right[at + 4] = number as u32;
        }
        assert_eq!(all.to_vec(), right);
        let tile = Section::of(&[rows, columns], &[2..6, 1..4])?;
        let mut seen = [0; 12];
        own.read_section(&tile, &mut seen)?;
        let there = |at: usize| 3 + (2 + at / 3) * columns + 1 + at % 3;
        for (at, value) in seen.iter().enumerate() {
            assert_eq!(*value, right[there(at)]);
        }
        let new: Vec<u32> = (500..512).collect();
        own.write_section(&tile, &new)?;
        (new.iter().enumerate()).for_each(|(at, value)| right[there(at)] = *value);
        assert_eq!(all.to_vec(), right);
        // Down its columns first.
        let rows_of = |count, stride| Level { count, stride };
        let turned = Section::new(0, 1, &[rows_of(rows, columns), rows_of(columns, 1)])?;
        let mut across = vec![0; rows * columns];
        own.read_section(&turned, &mut across)?;
        for (at, value) in across.iter().enumerate() {
            assert_eq!(*value, right[3 + at % rows * columns + at / rows]);
        }
        let refused = own.read_section(&tile, &mut [0; 11]);
        assert!(
            matches!(refused, Err(Error::LengthMismatch { .. })),
            "{refused:?}"
        );
        let refused = own.part(10..35)?.write_section(&tile, &new);
        assert!(
            matches!(refused, Err(Error::OutOfBounds { .. })),
            "{refused:?}"
        );
        let twice = Section::new(0, 6, &[rows_of(2, 3)])?;
        let refused = own.write_section(&twice, &new);
        assert!(
            matches!(refused, Err(Error::SectionOverlap { .. })),
            "{refused:?}"
        );
        assert!(matches!(
            own.part(std::ops::Range { start: 4, end: 3 }).map(drop),
            Err(Error::OutOfBounds { .. })
        ));
        assert!(matches!(
            own.rows(4).map(drop),
            Err(Error::LengthMismatch { .. })
        ));
        assert!(matches!(
            own.rows(0).map(drop),
            Err(Error::LengthMismatch { .. })
        ));
        assert_eq!(own.part(9..9)?.rows(0)?.count(), 0);
        assert_eq!(all.to_vec(), right);
        job.barrier()
    });
}

/// A tile of each neighbour's grid by pointer, of symmetric memory and of an exposed buffer.
#[test_on(every, native)]
fn by_pointer() {
    local(3, |job| {
        let own = job.rank();
        let symmetric = job.alloc::<u32>(60)?;
        let exposed = job.expose(vec![0_u32; 60])?;
        let tile = Section::of(&[5, 10], &[1..4, 2..6])?;
        let column = Section::of(&[12, 3], &[0..12, 1..2])?;
        let data: Vec<u32> = (0..36).map(|at| own.0 * 100 + at).collect();
        for mine in [symmetric.pointer(own, 10)?, exposed.pointer(10)?] {
            let right = job.all_gather(&[mine])?[job.right().index()];
            job.put_section_to(right, &tile, &data, &column)?;
            job.barrier()?;
            let mut back = [7; 60];
            job.get_from(mine.offset(-10), &mut back)?;
            let mut expected = [0; 60];
            for number in 0..12 {
                let (row, along) = (number / 4, number % 4);
                let at = 10 + (row + 1) * 10 + along + 2;
                expected[at] = job.left().0 * 100 + number as u32 * 3 + 1;
            }
            assert_eq!(back, expected);
            let mut tiles = [0; 36];
            job.get_section_from(right, &tile, &mut tiles, &column)?;
            let put = (0..36).map(|at| if at % 3 == 1 { data[at] } else { 0 });
            assert!(put.eq(tiles), "{tiles:?}");

            // What leaves the memory, at either end, leaves it as it was.
            job.barrier()?;
            let past = Section::new(
                30,
                4,
                &[Level {
                    count: 3,
                    stride: 9,
                }],
            )?;
            for (pointer, section) in [(right, past), (right.offset(-30), tile)] {
                let put = job.put_section_to(pointer, &section, &data, &column);
                assert!(matches!(put, Err(Error::OutOfBounds { .. })), "{put:?}");
                let got = job.get_section_from(pointer, &section, &mut tiles, &column);
                assert!(matches!(got, Err(Error::OutOfBounds { .. })), "{got:?}");
            }
            // Nor is room made for so many runs as nobody has.
            let every = |stride| {
                Section::new(
                    0,
                    1,
                    &[Level {
                        count: 1 << 40,
                        stride,
                    }],
                )
            };
            let put = job.put_section_to(right, &every(2)?, &data, &every(0)?);
            assert!(matches!(put, Err(Error::OutOfBounds { .. })), "{put:?}");
            let twice = Section::new(
                0,
                4,
                &[Level {
                    count: 3,
                    stride: 2,
                }],
            )?;
            let put = job.put_section_to(right, &twice, &data, &column);
            assert!(matches!(put, Err(Error::SectionOverlap { .. })), "{put:?}");
            let put = job.put_section_to(right, &tile, &data, &Section::run(0, 11)?);
            assert!(matches!(put, Err(Error::LengthMismatch { .. })), "{put:?}");
            let put = job.put_section_to(right, &tile, &data[..30], &column);
            assert!(matches!(put, Err(Error::OutsideBuffer { .. })), "{put:?}");
            job.barrier()?;
            job.get_from(mine.offset(-10), &mut back)?;
            assert_eq!(back, expected);
            job.barrier()?;
        }
        job.barrier()
    });
}
