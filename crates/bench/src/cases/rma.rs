//! Put and get in all their forms, beside bare copies.
//!
//! Rank 0 works on the part of rank 1 while rank 1 waits in a barrier. Bare copies use the same
//! buffers, because copies of equal length differ by a tenth if only their addresses do.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Duration;

use hydrant::{Level, Rank, Section, Signal, Stride, Symmetric};

use super::partner_place;
use crate::bare::BarePlace;
use crate::ensemble::Ensemble;
use crate::measure::Side;
use crate::network::PARTNER;
use crate::row::{Goal, Row};

/// The largest size of the sweep.
const LARGEST: u64 = 4 << 20;

/// Words in a row of the strided copies, and the words from one row to the next.
const ROW: usize = 8;
const STRIDE: usize = 16;

/// The rank whose memory is written and read.
const PEER: Rank = PARTNER;

/// Measures operations of rank 0 on the memory of rank 1.
pub(crate) fn run(e: &Ensemble<'_>) -> hydrant::Result<()> {
    // Strided rows spread over twice their bytes.
    let words = 2 * LARGEST as usize / size_of::<u64>();
    let field = e.job.alloc::<u64>(words)?;
    let signal = e.job.alloc::<u64>(1)?;
    // SAFETY: 1. `field` is freed at the end, after the last use; 2. rank 0 alone reads and writes
    // this memory, one operation at a time.
    #[allow(unsafe_code)]
    let bare = unsafe { partner_place(&field)? };
    let rma = Rma {
        e,
        bare,
        field: &field,
        signal: &signal,
    };
    for bytes in e.sizes(8, LARGEST) {
        rma.blocking(bytes)?;
    }
    rma.values()?;
    // The forms below differ only by a fixed cost for each operation, so every fourth size is
    // enough.
    let coarse = if e.quick { 1 } else { 2 };
    for bytes in e.sizes(8, LARGEST).into_iter().step_by(coarse) {
        rma.non_blocking_forms(bytes)?;
    }
    for bytes in e.sizes(64, LARGEST).into_iter().step_by(coarse) {
        rma.strided(bytes)?;
    }
    e.job.free(signal)?;
    e.job.free(field)
}

struct Rma<'a> {
    e: &'a Ensemble<'a>,
    bare: BarePlace,
    field: &'a Symmetric<u64>,
    signal: &'a Symmetric<u64>,
}

impl Rma<'_> {
    /// One comparison on rank 0. It reports the medians as a row, which `goal` may judge.
    fn compare(
        &self,
        case: &str,
        bytes: u64,
        goal: Option<Goal>,
        bare: Side<'_>,
        ours: Side<'_>,
    ) -> hydrant::Result<Option<[f64; 2]>> {
        let medians = self
            .e
            .solo(&format!("{case}, {bytes} bytes"), [bare, ours])?;
        if let Some([bare, ours]) = medians {
            self.e.row(
                Row::new("rma", case, "ns", ours)
                    .bytes(bytes)
                    .against(bare)
                    .goal_if(goal),
            )?;
        }
        Ok(medians)
    }

    fn blocking(&self, bytes: u64) -> hydrant::Result<()> {
        let (e, field, bare) = (self.e, self.field, &self.bare);
        let data = data(bytes);
        let goal = e.uncrowded(Goal::Within(2.0, "ns")).filter(|_| bytes == 8);
        let medians = self.compare(
            "put",
            bytes,
            goal,
            &mut |count| Ok(bare.copy_in(&data, count)),
            &mut |count| e.timed(count, |_| field.put(PEER, 0, black_box(&data[..]))),
        )?;
        let judged = [64 << 10, 1 << 20].contains(&bytes);
        if let Some([bare, ours]) = medians.filter(|_| judged) {
            let rate = |nanos: f64| bytes as f64 / nanos;
            let row = Row::new("rma", "put bandwidth", "GB/s", rate(ours)).bytes(bytes);
            e.row(
                row.against(rate(bare))
                    .goal_if(e.uncrowded(Goal::AtLeastTimes(0.98))),
            )?;
        }
        let into = RefCell::new(data);
        self.compare(
            "get",
            bytes,
            goal,
            &mut |count| Ok(bare.copy_out(&mut into.borrow_mut(), count)),
            &mut |count| {
                let into = &mut into.borrow_mut()[..];
                e.timed(count, |_| field.get(PEER, 0, black_box(&mut *into)))
            },
        )?;
        Ok(())
    }

    fn values(&self) -> hydrant::Result<()> {
        let (field, bare) = (self.field, &self.bare);
        self.compare(
            "put, known length",
            8,
            None,
            &mut |count| Ok(bare.store(count)),
            &mut |count| self.e.timed(count, |i| field.put(PEER, 0, black_box(&[i]))),
        )?;
        self.compare(
            "put_value",
            8,
            None,
            &mut |count| Ok(bare.store(count)),
            &mut |count| {
                self.e
                    .timed(count, |i| field.put_value(PEER, 0, black_box(i)))
            },
        )?;
        self.compare(
            "get_value",
            8,
            None,
            &mut |count| Ok(bare.load(count)),
            &mut |count| {
                self.e.timed(count, |_| {
                    black_box(field.get_value(PEER, 0)?);
                    Ok(())
                })
            },
        )?;
        Ok(())
    }

    /// Non-blocking forms, fill, and put with a signal.
    fn non_blocking_forms(&self, bytes: u64) -> hydrant::Result<()> {
        let (job, field, bare) = (self.e.job, self.field, &self.bare);
        let data = data(bytes);
        let copy_in = |count| Ok(bare.copy_in(&data, count));
        self.compare(
            "put in a scope",
            bytes,
            None,
            &mut { copy_in },
            &mut |count| {
                let in_scope = || {
                    job.scope(|scope| {
                        for _ in 0..count {
                            scope.put(field, PEER, 0, black_box(&data[..]))?;
                        }
                        Ok(())
                    })
                };
                once(in_scope)
            },
        )?;
        let buffer = RefCell::new(data.clone());
        self.compare(
            "get in a scope",
            bytes,
            None,
            &mut |count| Ok(bare.copy_out(&mut buffer.borrow_mut(), count)),
            &mut |count| {
                let into = &mut buffer.borrow_mut()[..];
                // One buffer cannot be lent twice at a time, so each get has a scope.
                self.e.timed(count, |_| {
                    job.scope(|scope| scope.get(field, PEER, 0, black_box(&mut *into)).map(drop))
                })
            },
        )?;
        self.compare(
            "put_nb and wait",
            bytes,
            None,
            &mut |count| Ok(bare.copy_in(&buffer.borrow(), count)),
            &mut |count| {
                let mut owned = buffer.take();
                let took = self.e.timed(count, |_| {
                    owned = field.put_nb(PEER, 0, std::mem::take(&mut owned))?.wait()?;
                    Ok(())
                });
                buffer.replace(owned);
                took
            },
        )?;
        self.compare("put_signal", bytes, None, &mut { copy_in }, &mut |count| {
            self.e.timed(count, |i| {
                let from = black_box(&data[..]);
                field.put_signal(PEER, 0, from, self.signal, 0, Signal::Set(i))
            })
        })?;
        let words = data.len();
        self.compare(
            "fill",
            bytes,
            None,
            &mut |count| Ok(bare.fill(bytes as usize, count)),
            &mut |count| {
                self.e
                    .timed(count, |_| field.fill(PEER, 0..words, black_box(0)))
            },
        )?;
        Ok(())
    }

    /// Rows of 64 bytes, 128 bytes apart in the peer's memory.
    fn strided(&self, bytes: u64) -> hydrant::Result<()> {
        let (field, bare) = (self.field, &self.bare);
        let data = RefCell::new(data(bytes));
        let count = data.borrow().len() / ROW;
        let rows = Stride {
            start: 0,
            run: ROW,
            stride: STRIDE,
            count,
        };
        self.compare(
            "put_strided",
            bytes,
            None,
            &mut |count| Ok(bare.copy_rows_in(&data.borrow(), ROW, STRIDE, count)),
            &mut |count| {
                let from = &data.borrow()[..];
                self.e
                    .timed(count, |_| field.put_strided(PEER, black_box(rows), from))
            },
        )?;
        self.compare(
            "get_strided",
            bytes,
            None,
            &mut |count| Ok(bare.copy_rows_out(&mut data.borrow_mut(), ROW, STRIDE, count)),
            &mut |count| {
                let into = &mut data.borrow_mut()[..];
                self.e
                    .timed(count, |_| field.get_strided(PEER, black_box(rows), into))
            },
        )?;
        // The same rows, as sections along two axes of an array.
        let level = Level {
            count,
            stride: STRIDE,
        };
        let there = Section::new(0, ROW, &[level])?;
        let here = Section::run(0, data.borrow().len())?;
        self.compare(
            "put_section",
            bytes,
            None,
            &mut |count| Ok(bare.copy_rows_in(&data.borrow(), ROW, STRIDE, count)),
            &mut |count| {
                let from = &data.borrow()[..];
                self.e.timed(count, |_| {
                    field.put_section(PEER, black_box(&there), from, &here)
                })
            },
        )?;
        self.compare(
            "get_section",
            bytes,
            None,
            &mut |count| Ok(bare.copy_rows_out(&mut data.borrow_mut(), ROW, STRIDE, count)),
            &mut |count| {
                let into = &mut data.borrow_mut()[..];
                self.e.timed(count, |_| {
                    field.get_section(PEER, black_box(&there), into, &here)
                })
            },
        )?;
        Ok(())
    }
}

fn data(bytes: u64) -> Vec<u64> {
    vec![7; bytes as usize / size_of::<u64>()]
}

/// The time of one call that holds a whole batch.
fn once(batch: impl FnOnce() -> hydrant::Result<()>) -> hydrant::Result<Duration> {
    let start = std::time::Instant::now();
    batch()?;
    Ok(start.elapsed())
}
