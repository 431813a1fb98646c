//! A collective in the background is gone on with by any thread of the rank.

use std::{cell::Cell, rc::Rc};

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let count = Rc::new(Cell::new(0));
        let counted = Rc::clone(&count);
        let begun = job.all_reduce_with_nb(vec![1_u64], move |a, b| {
            counted.set(counted.get() + 1);
            a + b
        })?;
        begun.wait().map(drop)
    })
}
