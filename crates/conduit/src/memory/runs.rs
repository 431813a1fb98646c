//! Copies of many runs of equal length between a window and private memory: loops in loops, as the
//! strided transfers of ARMCI have them. All of it is checked once, so that a run costs its copy
//! and two additions. Short runs of common lengths are moved by instructions for just that length.

use std::{array, mem::MaybeUninit, slice};

use super::{copy, window::Fault};

/// Most loops of a [`Runs`].
pub const MOST_LOOPS: usize = 17;

/// Runs of bytes in loops, the inmost first.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// Bytes in a run.
    run: usize,
    /// The first `depth` of them are there; most runs have one or two.
    loops: [MaybeUninit<Loop>; MOST_LOOPS],
    depth: usize,
    /// From the first byte to behind the last one: in the window, and in private memory.
    spans: [usize; 2],
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Loop {
    count: usize,
    /// Bytes from one turn to the next: in the window, and in private memory.
    steps: [usize; 2],
}

/// Which side of a copy is what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    IntoWindow,
    OutOfWindow,
}

impl Runs {
    /// One run of so many bytes.
    #[inline]
    pub fn new(run: usize) -> Self {
        Self {
            run,
            loops: [MaybeUninit::uninit(); MOST_LOOPS],
            depth: 0,
            spans: [run; 2],
            count: 1,
        }
    }

    /// One run of so many bytes instead. Runs are large: who fills some in place copies none.
    #[inline]
    pub fn reset(&mut self, run: usize) {
        (self.run, self.depth) = (run, 0);
        (self.spans, self.count) = ([run; 2], 1);
    }

    /// All that there is so far, `count` times: each time so many bytes further in the window and
    /// in private memory.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`] if that is further than any memory reaches, or a loop more than
    /// [`MOST_LOOPS`].
    #[inline]
    pub fn repeat(
        &mut self,
        count: usize,
        in_window: usize,
        in_private: usize,
    ) -> Result<(), Fault> {
        let steps = [in_window, in_private];
        let spans = array::from_fn(|side| {
            let further = steps[side].checked_mul(count.saturating_sub(1));
            further.and_then(|further| further.checked_add(self.spans[side]))
        });
        let ([Some(window), Some(private)], Some(runs)) = (spans, self.count.checked_mul(count))
        else {
            return Err(Fault::OutOfBounds);
        };
        let next = self.loops.get_mut(self.depth).ok_or(Fault::OutOfBounds)?;
        next.write(Loop { count, steps });
        self.depth += 1;
        self.spans = [window, private];
        self.count = runs;
        Ok(())
    }

    /// How many runs there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.count.saturating_mul(self.run)
    }

    /// Calls `each` with where every run begins, counted from the first: in the window, and in private
    /// memory.
    ///
    /// # Errors
    /// The first that `each` returns.
    #[inline]
    pub fn try_each<E>(
        &self,
        mut each: impl FnMut(usize, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.count {
            0 => Ok(()),
            _ => turns(self.filled(), [0; 2], &mut each),
        }
    }

    /// Bytes of each run.
    #[inline]
    pub fn run(&self) -> usize {
        self.run
    }

    fn filled(&self) -> &[Loop] {
        let loops = self.loops[..self.depth].as_ptr().cast::<Loop>();
        // SAFETY: `repeat` has written the first `depth` loops, and nothing else changes either.
        unsafe { slice::from_raw_parts(loops, self.depth) }
    }

    /// Bytes from the first to behind the last: in the window, and in private memory.
    pub(super) fn spans(&self) -> [usize; 2] {
        match self.count {
            0 => [0; 2],
            _ => self.spans,
        }
    }

    /// Copies all runs.
    ///
    /// # Safety
    /// 1. Of the side that is read, the [span](Self::spans) is readable, and of the side that is
    ///    written, writable; nobody else touches private memory meanwhile.
    /// 2. All concurrent accesses to the window's side are as in [`copy::store`].
    /// 3. The two do not overlap.
    pub(super) unsafe fn copy(&self, direction: Direction, dst: *mut u8, src: *const u8) {
        if self.count == 0 {
            return;
        }
        match direction {
            // SAFETY: handed on.
            Direction::IntoWindow => unsafe { self.by_length::<true>(dst, src) },
            // SAFETY: handed on.
            Direction::OutOfWindow => unsafe { self.by_length::<false>(dst, src) },
        }
    }

    /// # Safety
    /// As [`copy`](Self::copy), and there are runs.
    unsafe fn by_length<const IN: bool>(&self, dst: *mut u8, src: *const u8) {
        let (loops, run) = (self.filled(), self.run);
        macro_rules! lengths {
            ($($bytes:literal)+; $($chunk:literal..$below:literal)+) => {
                match run {
                    // SAFETY: handed on; each run has so many bytes.
                    $($bytes => walk::<IN, _>(loops, dst, src, &|dst, src| unsafe {
                        copy::fixed::<$bytes, IN>(dst, src);
                    }),)+
                    // SAFETY: the same; a run is no shorter than the chunk.
                    $($chunk..$below => walk::<IN, _>(loops, dst, src, &|dst, src| unsafe {
                        copy::chunks::<$chunk, IN>(dst, src, run);
                    }),)+
                    // SAFETY: handed on.
                    _ => walk::<IN, _>(loops, dst, src, &|dst, src| unsafe {
                        copy::any::<IN>(dst, src, run);
                    }),
                }
            };
        }
        lengths!(1 2 4 8 16 32 64; 2..4 4..8 8..16 16..32 32..64 64..257);
    }
}

/// Calls `each` with where every run begins, from `at` on.
fn turns<E, C: FnMut(usize, usize) -> Result<(), E>>(
    loops: &[Loop],
    mut at: [usize; 2],
    each: &mut C,
) -> Result<(), E> {
    let Some((outmost, within)) = loops.split_last() else {
        return each(at[0], at[1]);
    };
    for _ in 0..outmost.count {
        match within {
            [] => each(at[0], at[1])?,
            within => turns(within, at, each)?,
        }
        // Behind the last turn it may be beyond what memory has.
        at = array::from_fn(|side| at[side].wrapping_add(outmost.steps[side]));
    }
    Ok(())
}

/// Calls `copy` for each run with where it goes and where it comes from.
fn walk<const IN: bool, C: Fn(*mut u8, *const u8)>(
    loops: &[Loop],
    mut dst: *mut u8,
    mut src: *const u8,
    copy: &C,
) {
    let Some((outmost, within)) = loops.split_last() else {
        return copy(dst, src);
    };
    let (to, from) = match outmost.steps {
        [window, private] if IN => (window, private),
        [window, private] => (private, window),
    };
    for _ in 0..outmost.count {
        match within {
            [] => copy(dst, src),
            within => walk::<IN, C>(within, dst, src, copy),
        }
        dst = dst.wrapping_add(to);
        src = src.wrapping_add(from);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Window;
    use super::*;

    #[test]
    fn each_run_is_called_in_order() {
        let mut runs = Runs::new(4);
        let all = |runs: &Runs| {
            let mut all = Vec::new();
            let each = |there, here| {
                all.push((there, here));
                Ok::<_, Fault>(())
            };
            runs.try_each(each).map(|()| all)
        };
        assert_eq!(all(&runs), Ok(vec![(0, 0)]));
        runs.repeat(2, 10, 4).unwrap();
        runs.repeat(2, 100, 8).unwrap();
        assert_eq!(all(&runs), Ok(vec![(0, 0), (10, 4), (100, 8), (110, 12)]));
        runs.repeat(0, 1, 1).unwrap();
        assert_eq!(all(&runs), Ok(Vec::new()));
    }

    /// A run's length and loops: few turns, short steps.
    fn shape() -> impl Strategy<Value = (usize, Vec<(usize, usize, usize)>)> {
        let run = prop_oneof![0_usize..20, Just(64), Just(72), Just(128), Just(200)];
        (
            run,
            prop::collection::vec((0_usize..4, 0_usize..80, 0_usize..80), 0..5),
        )
    }

    proptest! {
        #[test]
        fn loops_copy_what_single_copies_do((run, loops) in shape(), offset in 0_usize..9, from in 0_usize..9) {
            const BYTES: usize = 2048;
            let mut runs = Runs::new(run);
            let mut starts = vec![(offset, from)];
            for (count, window, private) in loops {
                runs.repeat(count, window, private).expect("it is small");
                let turns = 0..count;
                starts = turns.flat_map(|turn| {
                    let further = move |(w, p): &(usize, usize)| (w + turn * window, p + turn * private);
                    starts.iter().map(further).collect::<Vec<_>>()
                }).collect();
            }
            prop_assert_eq!(runs.count(), starts.len());
            let data: Vec<u8> = (0..BYTES).map(|at| (at * 7 % 251) as u8).collect();
            let (window, model) = (Window::private(BYTES), Window::private(BYTES));
            window.write_runs(offset, &data, from, &runs).expect("it fits");
            for (there, here) in &starts {
                model.write(*there, &data[*here..here + run]).expect("it fits");
            }
            let all = |window: &Window| {
                let mut bytes = vec![0; BYTES];
                window.read(0, &mut bytes).expect("it fits");
                bytes
            };
            prop_assert_eq!(all(&window), all(&model));
            window.write(0, &data).expect("it fits");
            let (mut got, mut right) = (vec![0; BYTES], vec![0; BYTES]);
            window.read_runs(offset, &mut got, from, &runs).expect("it fits");
            for (there, here) in &starts {
                window.read(*there, &mut right[*here..here + run]).expect("it fits");
            }
            prop_assert_eq!(got, right);
        }
    }

    #[test]
    fn nothing_outside_is_reached_on_either_side() {
        let window = Window::private(64);
        let mut runs = Runs::new(8);
        runs.repeat(3, 20, 10).expect("it is small");
        let mut data = [1; 28];
        assert_eq!(window.write_runs(16, &data, 0, &runs), Ok(()));
        let refused = Err(Fault::OutOfBounds);
        assert_eq!(window.write_runs(17, &data, 0, &runs), refused);
        assert_eq!(window.write_runs(16, &data, 1, &runs), refused);
        assert_eq!(window.read_runs(usize::MAX, &mut data, 0, &runs), refused);
        assert_eq!(window.read_runs(0, &mut data, usize::MAX, &runs), refused);
        assert_eq!(runs.repeat(usize::MAX, 2, 0), refused);
        assert_eq!(runs.repeat(3, 0, usize::MAX / 2), refused);
        assert_eq!(runs.repeat(usize::MAX, 0, 0), refused);
        let mut deep = Runs::new(1);
        for _ in 0..MOST_LOOPS {
            deep.repeat(1, 1, 1).expect("there is room");
        }
        assert_eq!(deep.repeat(1, 1, 1), refused);
        let mut none = Runs::new(8);
        none.repeat(2, 100, 100).expect("it is small");
        none.repeat(0, 100, 100).expect("it is small");
        assert_eq!(window.write_runs(64, &data, 28, &none), Ok(()));
    }
}
