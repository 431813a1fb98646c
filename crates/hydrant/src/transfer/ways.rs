//! Two ways for many runs in one call, and what each took lately.
//!
//! Each run may be an operation of the network, or all are packed into messages that the peer's
//! processor unpacks. Which is faster depends on the network, on what is registered and on how busy
//! the peer is, so it is measured: by calls of about as many runs of about the same length.

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

/// How many runs in one call go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Each as an operation of the network.
    Pieces,
    /// In messages.
    Packed,
}

const WAYS: [Way; 2] = [Way::Pieces, Way::Packed];

/// What a call is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// It gets, and does not put.
    pub(crate) gets: bool,
    /// Runs; bytes of all of them.
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// Longer runs are not packed: a network moves each without the copies for less than that.
const LONGEST: usize = 4096;
/// Classes of runs by length, to powers of two.
const LENGTHS: usize = 13;
/// Classes of calls by how many runs there are; the last is that of all longer ones.
const COUNTS: usize = 10;
/// Calls of a class that try both ways in turns.
const TRIALS: u32 = 6;
/// One call in so many tries the way that took longer, if it did not take many times as long.
const AGAIN: u32 = 64;
const MANY_TIMES: u64 = 8;
/// One call in so many tries it whatever it took.
const HOPELESS: u32 = 4096;

/// What both ways took.
#[derive(Default)]
pub(crate) struct Ways {
    cells: [[[Cell; COUNTS]; LENGTHS]; 2],
}

#[derive(Default)]
struct Cell {
    /// Calls that chose.
    calls: AtomicU32,
    /// Nanoseconds a run, by way; zero if that was not tried.
    took: [AtomicU32; WAYS.len()],
}

impl Ways {
    /// Which way a call goes. Of what is to be put or got by a call of this shape.
    pub(crate) fn choose(&self, shape: Shape) -> Way {
        let Some(cell) = self.cell(shape) else {
            return Way::Pieces;
        };
        let call = cell.calls.fetch_add(1, Relaxed);
        if call < TRIALS {
            return WAYS[call as usize % WAYS.len()];
        }
        let [pieces, packed] = WAYS.map(|way| u64::from(cell.took[way as usize].load(Relaxed)));
        let (better, other) = match packed < pieces {
            true => (Way::Packed, Way::Pieces),
            false => (Way::Pieces, Way::Packed),
        };
        let is_near = pieces.max(packed) / MANY_TIMES < pieces.min(packed);
        let tries_again = match is_near {
            true => call.is_multiple_of(AGAIN),
            false => call.is_multiple_of(HOPELESS),
        };
        if tries_again { other } else { better }
    }

    /// A call of this shape took so long that way.
    pub(crate) fn took(&self, shape: Shape, way: Way, time: Duration) {
        let Some(cell) = self.cell(shape) else { return };
        let took = &cell.took[way as usize];
        let nanos = time.as_nanos() / shape.count.max(1) as u128;
        let now = u32::try_from(nanos).unwrap_or(u32::MAX).max(1);
        let before = took.load(Relaxed);
        // Good news is believed at once: a call may have waited for a registration or for the
        // scheduler, and none is faster than it can be.
        let known = match before {
            0 => now,
            before if now < before => now,
            before => before.saturating_add((now - before).min(before) / 4),
        };
        took.store(known, Relaxed);
    }

    /// Where calls of the same class are noted, if there is a choice.
    fn cell(&self, shape: Shape) -> Option<&Cell> {
        let Shape { gets, count, bytes } = shape;
        if count < 2 || bytes / count > LONGEST {
            return None;
        }
        let length = (bytes / count).max(1).ilog2() as usize;
        let many = (count.ilog2() as usize - 1).min(COUNTS - 1);
        Some(&self.cells[usize::from(gets)][length][many])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        gets: false,
        count: 100,
        bytes: 6400,
    };

    /// How many of so many calls were packed, where each way takes so many microseconds.
    fn packed(ways: &Ways, calls: u32, [pieces, packed]: [u64; 2]) -> u32 {
        let mut count = 0;
        for _ in 0..calls {
            let way = ways.choose(SHAPE);
            let took = match way {
                Way::Pieces => pieces,
                Way::Packed => packed,
            };
            ways.took(SHAPE, way, Duration::from_micros(took));
            count += u32::from(way == Way::Packed);
        }
        count
    }

    #[test]
    fn the_faster_way_is_taken_nearly_always() {
        assert!(packed(&Ways::default(), 1000, [30, 10]) > 970);
        assert!(packed(&Ways::default(), 1000, [10, 30]) < 30);
        // Nor is time lost on what takes far longer.
        assert_eq!(packed(&Ways::default(), 1000, [10, 1000]), TRIALS / 2);
    }

    #[test]
    fn what_changes_is_found_out() {
        let ways = Ways::default();
        packed(&ways, 1000, [10, 20]);
        // It took so long for a while, as when the peer was busy, and does no more.
        assert!(packed(&ways, 2000, [20, 5]) > 1500);
        assert!(packed(&ways, 2000, [5, 20]) < 500);
    }

    #[test]
    fn a_slow_start_is_forgotten() {
        let ways = Ways::default();
        let first = ways.choose(SHAPE);
        assert_eq!(first, Way::Pieces);
        ways.took(SHAPE, first, Duration::from_millis(9));
        assert!(packed(&ways, 1000, [10, 30]) < 30);
    }

    #[test]
    fn classes_are_apart_and_cover_every_shape() {
        let ways = Ways::default();
        let put = |count, bytes| Shape {
            gets: false,
            count,
            bytes,
        };
        for bytes in [0, 1, 2, 100, 1 << 20, usize::MAX] {
            assert_eq!(ways.choose(put(1, bytes)), Way::Pieces);
        }
        assert_eq!(ways.choose(put(2, 2 * LONGEST + 2)), Way::Pieces);
        for count in [2, 1000, usize::MAX / LONGEST] {
            for len in [1, 7, LONGEST] {
                let mut seen = WAYS.map(|_| 0);
                for _ in 0..TRIALS {
                    let way = ways.choose(put(count, count * len));
                    ways.took(put(count, count * len), way, Duration::ZERO);
                    seen[way as usize] += 1;
                }
                assert_eq!(seen, [TRIALS / 2; 2], "{count} runs of {len}");
            }
        }
    }
}
