//! Columns of matrices: rows of one word each, a stride apart on both sides. The references are a
//! loop over words, as the original ARMCI copies short rows, and a call of `memcpy` for each row.

use std::cell::RefCell;
use std::hint::black_box;

use super::peer::ArmciSection;
use super::{Cases, ones};
use crate::bare::{BarePlace, By, ColumnShape};
use crate::row::{Goal, Row};

/// Rows of a column.
const ROWS: [usize; 5] = [4, 16, 64, 256, 1024];
const QUICK_ROWS: [usize; 2] = [4, 1024];

/// Bytes from a row to the next: within a page, and beyond it. Beyond a page, all rows fall into
/// the same few sets of a cache.
const STRIDES: [usize; 2] = [256, 8192];

const WORD: usize = size_of::<u64>();

/// Measures mapped memory only, because there is no reference loop for other memory. Collective.
pub(super) fn run(cases: &Cases<'_>) -> hydrant::Result<()> {
    let rows = if cases.e.quick {
        &QUICK_ROWS[..]
    } else {
        &ROWS
    };
    // The other ranks wait in the barrier below: each sees a partner of its own.
    if let Some(place) = cases.peer.place.as_ref().filter(|_| cases.e.rank() == 0) {
        for stride in STRIDES {
            for rows in rows {
                sized(cases, place, *rows, stride)?;
            }
        }
    }
    cases.e.job.barrier()
}

fn sized(cases: &Cases<'_>, place: &BarePlace, rows: usize, stride: usize) -> hydrant::Result<()> {
    let column = ColumnShape {
        run: 1,
        rows,
        stride: stride / WORD,
    };
    let (section, data) = (
        ArmciSection::column(&column),
        RefCell::new(ones((column.span() * WORD) as u64)),
    );
    let copied = |by| {
        let data = &data;
        move |count| Ok(place.copy_column_in(by, &data.borrow(), column, count))
    };
    let mut put = |count| {
        let from = &data.borrow()[..];
        cases.timed(count, |_| cases.peer.put_column(from, black_box(&section)))
    };
    let medians = cases.e.alone(
        &format!("put, {rows} rows {stride} apart"),
        [&mut copied(By::Words), &mut copied(By::Memcpy), &mut put],
    )?;
    add_row(cases, "put", (rows, stride), medians)?;
    let copied = |by| {
        let data = &data;
        move |count| Ok(place.copy_column_out(by, &mut data.borrow_mut(), column, count))
    };
    let mut get = |count| {
        let to = &mut data.borrow_mut()[..];
        cases.timed(count, |_| cases.peer.get_column(to, black_box(&section)))
    };
    let medians = cases.e.alone(
        &format!("get, {rows} rows {stride} apart"),
        [&mut copied(By::Words), &mut copied(By::Memcpy), &mut get],
    )?;
    add_row(cases, "get", (rows, stride), medians)
}

/// Adds a row for each of the two loops. A result that meets both goals meets that of the faster
/// loop.
fn add_row(
    cases: &Cases<'_>,
    operation: &str,
    (rows, stride): (usize, usize),
    [words, memcpy, ours]: [f64; 3],
) -> hydrant::Result<()> {
    let goal = cases.e.uncrowded(Goal::AtMostTimes(1.05));
    for (beside, bare) in [("words", words), ("memcpy", memcpy)] {
        let case = format!("{operation}, column, {stride} B apart, beside {beside}");
        let row = Row::new("armci", case, "ns", ours).bytes((rows * WORD) as u64);
        cases.e.row(row.against(bare).goal_if(goal))?;
    }
    Ok(())
}
