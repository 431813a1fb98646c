//! Sections of arrays of two and three dimensions, between a contiguous buffer and an array, over
//! size. The reference is a hand-written loop over their rows.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Duration;

use super::peer::ArmciSection;
use super::{Cases, FACTOR, ones};
use crate::bare::SectionShape;
use crate::row::Goal;

pub(super) fn run(cases: &Cases<'_>) -> hydrant::Result<()> {
    for dimensions in [2, 3] {
        for bytes in cases.coarse_sizes(64) {
            sized(cases, dimensions, bytes)?;
        }
    }
    Ok(())
}

fn sized(cases: &Cases<'_>, dimensions: u32, bytes: u64) -> hydrant::Result<()> {
    let (peer, data) = (cases.peer, RefCell::new(ones(bytes)));
    let shape = SectionShape::new(dimensions, data.borrow().len());
    let section = ArmciSection::new(&shape);
    let place = peer.place.as_ref();
    let case = |operation: &str| format!("{operation}, {dimensions}-D");
    let copies = cases.of_many(bytes, Goal::AtMostTimes(1.1));
    let sums = cases.of_many(bytes, Goal::AtMostTimes(1.15));
    // Where memory is not mapped, the loop does puts and gets of the rows.
    let each_row = |count, each: &mut dyn FnMut(usize) -> hydrant::Result<()>| {
        cases.timed(count, |_| {
            let mut outcome = Ok(());
            shape.rows(|here, _| {
                if outcome.is_ok() {
                    outcome = each(here);
                }
            });
            outcome
        })
    };
    cases.compare(
        &case("put"),
        bytes,
        Some(&mut |count| {
            let from = &data.borrow()[..];
            match place {
                Some(place) => Ok(place.copy_section_in(from, shape, count)),
                None => each_row(count, &mut |here| peer.put(&from[here..][..shape.run])),
            }
        }),
        &mut |count| {
            let from = &data.borrow()[..];
            cases.timed(count, |_| peer.put_section(from, black_box(&section)))
        },
        copies,
    )?;
    cases.compare(
        &case("get"),
        bytes,
        Some(&mut |count| {
            let to = &mut data.borrow_mut()[..];
            match place {
                Some(place) => Ok(place.copy_section_out(to, shape, count)),
                None => each_row(count, &mut |here| peer.get(&mut to[here..][..shape.run])),
            }
        }),
        &mut |count| {
            let to = &mut data.borrow_mut()[..];
            cases.timed(count, |_| peer.get_section(to, black_box(&section)))
        },
        copies,
    )?;
    let mut add = |count| {
        Ok(place.map_or(Duration::ZERO, |place| {
            place.add_section(FACTOR, &data.borrow(), shape, count)
        }))
    };
    cases.compare(
        &case("accumulate"),
        bytes,
        place.is_some().then_some(&mut add),
        &mut |count| {
            let from = &data.borrow()[..];
            cases.timed(count, |_| {
                peer.accumulate_section(from, black_box(&section))
            })
        },
        sums,
    )?;
    Ok(())
}
