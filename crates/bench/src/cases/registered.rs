//! Put and get where memory must be registered, beside a bare queue pair.
//!
//! Rank 0 works on the part of rank 1 while rank 1 waits in a barrier. On a *hit* both sides lie in
//! symmetric memory that the warm-up registered. On a *miss* every operation goes to a bucket that
//! no operation used before.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::time::Duration;

use hydrant::{Stride, Symmetric};
use hydrant_ofi::BareAccess;

use super::{attend, round_trip};
use crate::ensemble::Ensemble;
use crate::error::BenchError;
use crate::measure::{Side, median};
use crate::network::{self, BULK, BareNetwork, LARGEST, PARTNER};
use crate::row::{Goal, Row};
use crate::timing::Timing;

/// The most operations in flight.
const AT_ONCE: usize = 16;

/// The puts of a batch.
const BATCH: usize = 64;

/// Words in a row of the strided accesses, and words from one row to the next.
const ROW: usize = 8;
const STRIDE: usize = 16;
/// Rows of one access.
const ROWS: [usize; 3] = [16, 128, 1024];

/// Buckets for misses: more than are used, so that none is used twice.
const FRESH: usize = 1 << 14;

/// The bytes of a bucket where the settings do not say.
const PAGE: usize = 4096;

/// The step from one miss to the next, so that misses form no sequence. It is odd, so that every
/// bucket gets its turn.
const STEP: usize = 6151;

/// The accepted factors over a bare write and read of a word on a hit.
const HIT: [f64; 2] = [1.03, 1.05];

/// The accepted factor over bare writes in a batch.
const BATCHED: f64 = 1.1;

/// The accepted factors over a bare round trip for a put and a get on a miss.
const MISS: [f64; 2] = [3.0, 3.5];

/// The share of the bare bandwidth to reach: for the shortest of [`BULK`], and for the others.
const RATE: [f64; 2] = [0.99, 0.97];

/// Measures operations of rank 0 on the memory of rank 1.
pub(crate) fn run(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let field = e.job.alloc::<u64>(LARGEST / size_of::<u64>())?;
    let registered = Registered { e, field: &field };
    registered.words()?;
    // A loop without calls never ends its turn in virtual time.
    if !e.is_virtual {
        registered.computing()?;
    }
    let bulk = if e.quick { &BULK[..2] } else { &BULK[..] };
    for bytes in bulk {
        registered.bulk(*bytes)?;
    }
    let rows = if e.quick { &ROWS[..1] } else { &ROWS[..] };
    for count in rows {
        registered.rows(*count)?;
    }
    e.job.free(field)?;
    misses(e)
}

struct Registered<'a> {
    e: &'a Ensemble<'a>,
    field: &'a Symmetric<u64>,
}

impl Registered<'_> {
    /// One comparison on rank 0, of `count` operations at a time: the medians of one operation.
    fn compare(
        &self,
        case: &str,
        [bytes, at_once]: [usize; 2],
        access: BareAccess,
        ours: Side<'_>,
    ) -> hydrant::Result<Option<(Timing, Option<f64>)>> {
        let what = format!("{case}, {bytes} bytes");
        let each = |nanos: f64| nanos / at_once as f64;
        let Some(network) = &self.e.network else {
            let timings = self.e.solo_timings(&what, [ours])?;
            return Ok(timings.map(|[ours]| (ours.each_of(at_once), None)));
        };
        let operate = |bare: &mut BareNetwork| match at_once {
            1 => bare.once(access, bytes),
            _ => bare.stream(access, bytes, at_once as u64),
        };
        let mut bare = |count| {
            let bare = &mut *network.borrow_mut();
            self.e
                .timed(count, |_| Ok(operate(bare).map_err(BenchError::Network)?))
        };
        let timings = self.e.solo_timings(&what, [&mut bare, ours])?;
        Ok(timings.map(|[bare, ours]| (ours.each_of(at_once), Some(each(bare.median())))))
    }

    /// Operations of eight bytes, from the call to the completion.
    fn words(&self) -> hydrant::Result<()> {
        let (e, field) = (self.e, self.field);
        // SAFETY: 1. only rank 0 uses its own part, and only by this slice; its operations reach
        // only the partner's part; 2. the field is freed after this.
        #[allow(unsafe_code)]
        let one = RefCell::new(unsafe { own_part(field, 1) }?);
        let [to_put, to_get] = HIT.map(|times| e.uncrowded(Goal::AtMostTimes(times)));
        let put = self.compare("put, hit", [8, 1], BareAccess::Write, &mut |count| {
            let from = &one.borrow()[0];
            self.e
                .timed(count, |_| field.put(PARTNER, 0, black_box(&from[..1])))
        })?;
        let get = self.compare("get, hit", [8, 1], BareAccess::Read, &mut |count| {
            let into = &mut one.borrow_mut()[0];
            self.e
                .timed(count, |_| field.get(PARTNER, 0, black_box(&mut into[..1])))
        })?;
        let batch = self.compare(
            "puts in a scope",
            [8, BATCH],
            BareAccess::Write,
            &mut |count| {
                let from = &one.borrow()[0];
                self.e.timed(count, |_| {
                    e.job.scope(|scope| {
                        for (index, word) in from[..BATCH].chunks(1).enumerate() {
                            scope.put(field, PARTNER, index, black_box(word))?;
                        }
                        Ok(())
                    })
                })
            },
        )?;
        let to_batch = e.uncrowded(Goal::AtMostTimes(BATCHED));
        for (case, medians, goal) in [
            ("put, hit", put, to_put),
            ("get, hit", get, to_get),
            ("64 puts in a scope, each", batch, to_batch),
        ] {
            if let Some((ours, bare)) = medians {
                let row = e.timed_row("rma", case, &ours).bytes(8);
                let row = bare.map_or(row.clone(), |bare| row.against(bare).goal_if(goal));
                e.row(row)?;
            }
        }
        Ok(())
    }

    /// Operations of eight bytes on the memory of a peer that computes and calls nothing of Hydrant.
    fn computing(&self) -> hydrant::Result<()> {
        let (e, field) = (self.e, self.field);
        let over = e.job.alloc::<u64>(1)?;
        let mut turn = 0;
        let mut beside_computing = |work: &dyn Fn() -> hydrant::Result<()>, count| {
            turn += 1;
            match e.rank() {
                0 => {
                    let took = e.timed(count, |_| work())?;
                    over.put_value(PARTNER, 0, turn)?;
                    return Ok(took);
                }
                rank if rank == PARTNER.0 => {
                    // Loads from own memory make no progress.
                    let own = over.local()?;
                    while own.load(0)? < turn {
                        std::hint::spin_loop();
                    }
                }
                _ => {}
            }
            Ok(Duration::ZERO)
        };
        let put = || field.put(PARTNER, 0, black_box(&[1]));
        let get = || field.get(PARTNER, 0, black_box(&mut [0]));
        for (case, work) in [
            (
                "put, hit, the peer computes",
                &put as &dyn Fn() -> hydrant::Result<()>,
            ),
            ("get, hit, the peer computes", &get),
        ] {
            let timings = e.together_timings(case, [&mut |count| beside_computing(work, count)])?;
            if let Some([ours]) = timings {
                e.row(e.timed_row("rma", case, &ours).bytes(8))?;
            }
        }
        e.job.free(over)
    }

    /// `count` rows of 64 bytes in one call, and in sequence.
    fn rows(&self, count: usize) -> hydrant::Result<()> {
        let field = self.field;
        let rows = Stride {
            start: 0,
            run: ROW,
            stride: STRIDE,
            count,
        };
        // SAFETY: as in `words`.
        #[allow(unsafe_code)]
        let own = RefCell::new(unsafe { own_part(field, 1) }?);
        let bytes = count * ROW * size_of::<u64>();
        let each = |each: &dyn Fn(usize) -> hydrant::Result<()>| {
            (0..count).try_for_each(|row| each(row * STRIDE))
        };
        let puts = self.e.solo_timings(
            &format!("put, {count} rows"),
            [
                &mut |count| {
                    let from = &own.borrow()[0][..bytes / size_of::<u64>()];
                    self.e
                        .timed(count, |_| field.put_strided(PARTNER, black_box(rows), from))
                },
                &mut |count| {
                    let from = &own.borrow()[0][..ROW];
                    self.e.timed(count, |_| {
                        each(&|at| field.put(PARTNER, at, black_box(from)))
                    })
                },
            ],
        )?;
        let gets = self.e.solo_timings(
            &format!("get, {count} rows"),
            [
                &mut |count| {
                    let into = &mut own.borrow_mut()[0][..bytes / size_of::<u64>()];
                    self.e
                        .timed(count, |_| field.get_strided(PARTNER, black_box(rows), into))
                },
                &mut |count| {
                    self.e.timed(count, |_| {
                        each(&|at| {
                            let into = &mut own.borrow_mut()[0][..ROW];
                            field.get(PARTNER, at, black_box(into))
                        })
                    })
                },
            ],
        )?;
        for (name, medians) in [("put", puts), ("get", gets)] {
            let Some([strided, each]) = medians else {
                continue;
            };
            let bytes = bytes as u64;
            let case = format!("{name}_strided, rows of 64");
            let e = self.e;
            e.row(e.timed_row("rma", case, &strided).bytes(bytes))?;
            let case = format!("{name} of each row of 64");
            e.row(e.timed_row("rma", case, &each).bytes(bytes))?;
        }
        Ok(())
    }

    /// Bandwidth: as many operations in flight as the memory has room for.
    fn bulk(&self, bytes: usize) -> hydrant::Result<()> {
        let (job, field) = (self.e.job, self.field);
        let at_once = (LARGEST / bytes).min(AT_ONCE);
        let words = bytes / size_of::<u64>();
        // The pieces are adjacent, as on the bare side.
        let all = field.len() / words;
        // SAFETY: as in `words`.
        #[allow(unsafe_code)]
        let mut pieces = unsafe { own_part(field, all) }?;
        pieces.truncate(at_once);
        let pieces = RefCell::new(pieces);
        let put = self.compare("put", [bytes, at_once], BareAccess::Write, &mut |count| {
            let pieces = pieces.borrow();
            self.e.timed(count, |_| {
                job.scope(|scope| {
                    for (index, piece) in pieces.iter().enumerate() {
                        scope.put(field, PARTNER, index * words, &piece[..])?;
                    }
                    Ok(())
                })
            })
        })?;
        let get = self.compare("get", [bytes, at_once], BareAccess::Read, &mut |count| {
            let mut pieces = pieces.borrow_mut();
            self.e.timed(count, |_| {
                job.scope(|scope| {
                    for (index, piece) in pieces.iter_mut().enumerate() {
                        scope.get(field, PARTNER, index * words, &mut piece[..words])?;
                    }
                    Ok(())
                })
            })
        })?;
        let part = if bytes == BULK[0] { RATE[0] } else { RATE[1] };
        let goal = self.e.uncrowded(Goal::AtLeastTimes(part));
        for (case, medians) in [("put bandwidth, hit", put), ("get bandwidth, hit", get)] {
            if let Some((ours, bare)) = medians {
                let rate = |nanos: f64| bytes as f64 / nanos * 1e3;
                let ours = ours.map(rate);
                let row = self
                    .e
                    .row_of("rma", case, "MB/s", &ours)
                    .bytes(bytes as u64);
                let row = bare.map_or(row.clone(), |bare| row.against(rate(bare)).goal_if(goal));
                self.e.row(row)?;
            }
        }
        Ok(())
    }
}

/// The local part of symmetric memory, in `pieces` pieces.
///
/// # Safety
/// While the pieces are used:
/// 1. Nobody else reads or writes that part.
/// 2. It is not freed.
#[allow(unsafe_code, clippy::mut_from_ref)] // as `Symmetric::local_slice_mut`
unsafe fn own_part(field: &Symmetric<u64>, pieces: usize) -> hydrant::Result<Vec<&mut [u64]>> {
    // SAFETY: the caller's conditions 1 and 2.
    let own = unsafe { field.local_slice_mut() }?;
    let words = own.len() / pieces;
    Ok(own.chunks_mut(words).collect())
}

/// Eight bytes to and from a bucket that was never used before. In one case the peer only handles
/// messages, and misses follow each other or come after pauses. In the other case the peer waits in
/// a barrier and may sleep there.
fn misses(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let job = e.job;
    let bucket = job.settings().bucket.unwrap_or(PAGE) / size_of::<u64>();
    let [put, get] = MISS.map(|times| e.uncrowded(Goal::AtMostTimes(times)));
    for (gets, case, goal) in [(false, "put, miss", put), (true, "get, miss", get)] {
        let fresh = job.alloc::<u64>(FRESH * bucket)?;
        // The memory is touched first, because page faults are not to be measured.
        fresh.local()?.fill(0..FRESH * bucket, 1)?;
        // The local side is ready: one word of symmetric memory, used before.
        let own = job.alloc::<u64>(1)?;
        // SAFETY: 1. only this rank knows `own`, and uses it only by this slice; 2. until it is
        // freed.
        #[allow(unsafe_code)]
        let word = RefCell::new(unsafe { own_part(&own, 1) }?);
        let used = Cell::new(0_usize);
        let once = |index| {
            let word = &mut word.borrow_mut()[0];
            if gets {
                fresh.get(PARTNER, index, black_box(&mut word[..]))
            } else {
                fresh.put(PARTNER, index, black_box(&word[..]))
            }
        };
        let next = || used.replace(used.get() + 1) * STEP % FRESH * bucket;
        let in_a_row = |count| e.timed(count, |_| once(next()));
        // Each miss is a sample of its own, so that a miss delayed by the scheduler does not spoil
        // the rest.
        let one_by_one = |count: u64| {
            let mut took = Vec::with_capacity(count as usize);
            for _ in 0..count {
                let index = next();
                took.push(e.timed(1, |_| once(index))?.as_secs_f64());
                // The second operation needs the result of the miss, and so waits until the peer
                // has finished its part.
                once(index)?;
            }
            Ok(Duration::from_secs_f64(median(&mut took) * count as f64))
        };
        let (over, mut batch) = (job.alloc::<u64>(1)?, 0);
        let mut attended = |work: &dyn Fn(u64) -> hydrant::Result<Duration>, count| {
            batch += 1;
            match e.rank() {
                0 => {
                    let took = work(count)?;
                    over.put_value(PARTNER, 0, batch)?;
                    return Ok(took);
                }
                rank if rank == PARTNER.0 => attend(e, &over, batch)?,
                _ => {}
            }
            Ok(Duration::ZERO)
        };
        let moves = || job.registration().map_or(0, |stats| stats.moves);
        let before = moves();
        let row_of_them = format!("{case}, one after the other");
        // The answer is the same on every rank, also on ranks without the bare network.
        let has_bare = network::is_known(job);
        let mut turn = 0;
        let mut beside_bare = |case: &str, work: &dyn Fn(u64) -> hydrant::Result<Duration>| {
            let ours: Side<'_> = &mut |count| attended(work, count);
            if !has_bare {
                let timings = e.together_timings(case, [ours])?;
                return Ok(timings.map(|[ours]| (ours, None)));
            }
            let bare: Side<'_> = &mut |count| round_trip(e, &mut turn, 8, count);
            let timings = e.together_timings(case, [bare, ours])?;
            Ok::<_, hydrant::Error>(timings.map(|[bare, ours]| (ours, Some(bare.median()))))
        };
        let apart = beside_bare(case, &one_by_one)?;
        let close = beside_bare(&row_of_them, &in_a_row)?;
        let asleep = format!("{case}, the peer waits in a barrier");
        let waits = e.solo_timings(&asleep, [&mut { one_by_one }])?;
        if let (Some(apart), Some(close), Some([waits])) = (apart, close, waits) {
            for (case, (ours, bare)) in [(case, apart), (&row_of_them, close)] {
                let row = e.timed_row("rma", case, &ours).bytes(8);
                e.row(match bare {
                    Some(bare) => row.against(bare).goal_if(goal),
                    None => row,
                })?;
            }
            e.row(e.timed_row("rma", asleep, &waits).bytes(8))?;
            let share = 100.0 * (moves() - before) as f64 / used.get().max(1) as f64;
            e.row(Row::new(
                "rma",
                format!("{case}: share that missed"),
                "%",
                share,
            ))?;
        }
        job.free(over)?;
        job.free(own)?;
        job.free(fresh)?;
    }
    Ok(())
}
