//! Copies of many runs of equal length between a window and private memory: nested loops, as in
//! ARMCI's strided transfers. All bounds are checked once, so a run costs its copy and two
//! additions.

use std::{array, mem::MaybeUninit, slice};

use super::{
    copy::{self, Each, WindowDirection},
    window::Fault,
};

/// The most loops of a [`Runs`].
pub const MOST_LOOPS: usize = 17;

/// Runs of bytes in nested loops, the innermost first.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// The bytes of a run.
    run: usize,
    /// The first `depth` loops are filled in. Most runs have one or two.
    loops: [MaybeUninit<Loop>; MOST_LOOPS],
    depth: usize,
    /// The bytes from the first to behind the last: in the window, and in private memory.
    spans: [usize; 2],
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Loop {
    count: usize,
    /// The bytes from one turn to the next: in the window, and in private memory.
    steps: [usize; 2],
}

impl Runs {
    /// Describes one run of `run` bytes.
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

    /// Changes this to one run of `run` bytes. A `Runs` is large, and a caller that fills it in
    /// place avoids copies.
    #[inline]
    pub fn reset(&mut self, run: usize) {
        (self.run, self.depth) = (run, 0);
        (self.spans, self.count) = ([run; 2], 1);
    }

    /// Repeats all runs so far `count` times, each time these bytes further in the window and in
    /// private memory. Runs and loops that are contiguous on both sides are merged: into fewer,
    /// longer runs, or into fewer loops.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`] if the runs exceed any memory, or the loops exceed [`MOST_LOOPS`].
    #[inline]
    pub fn repeat(
        &mut self,
        count: usize,
        in_window: usize,
        in_private: usize,
    ) -> Result<(), Fault> {
        if count <= 1 || self.count == 0 {
            self.count *= count;
            return Ok(());
        }
        let steps = [in_window, in_private];
        let spans = array::from_fn(|side| {
            let further = steps[side].checked_mul(count - 1);
            further.and_then(|further| further.checked_add(self.spans[side]))
        });
        let ([Some(window), Some(private)], Some(runs)) = (spans, self.count.checked_mul(count))
        else {
            return Err(Fault::OutOfBounds);
        };
        if self.depth == 0 && steps == [self.run; 2] {
            (self.run, self.spans) = (window, [window; 2]);
            return Ok(());
        }
        match self.last() {
            Some(last) if last.is_contiguous_with(steps) => last.count *= count,
            _ => {
                let next = self.loops.get_mut(self.depth).ok_or(Fault::OutOfBounds)?;
                next.write(Loop { count, steps });
                self.depth += 1;
            }
        }
        (self.spans, self.count) = ([window, private], runs);
        Ok(())
    }

    /// Returns the outermost loop.
    #[inline]
    fn last(&mut self) -> Option<&mut Loop> {
        let last = self.loops[..self.depth].last_mut()?;
        // SAFETY: `repeat` has written the first `depth` loops, and this is one of them.
        Some(unsafe { last.assume_init_mut() })
    }

    /// Returns the number of runs.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the bytes of all runs.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.count.saturating_mul(self.run)
    }

    /// Returns the bytes of each run.
    #[inline]
    pub fn run(&self) -> usize {
        self.run
    }

    fn filled(&self) -> &[Loop] {
        let loops = self.loops[..self.depth].as_ptr().cast::<Loop>();
        // SAFETY: `repeat` has written the first `depth` loops, and nothing else changes `loops` or
        // `depth`.
        unsafe { slice::from_raw_parts(loops, self.depth) }
    }

    /// Returns the bytes from the first to behind the last: in the window, and in private memory.
    #[inline]
    pub fn spans(&self) -> [usize; 2] {
        match self.count {
            0 => [0; 2],
            _ => self.spans,
        }
    }

    /// Returns all runs as one part.
    #[inline]
    fn whole(&self) -> RunsPart<'_> {
        let (outmost, within) = match self.filled() {
            [] => (&ONCE, &[][..]),
            [within @ .., outmost] => (outmost, within),
        };
        RunsPart {
            run: self.run,
            outmost,
            within,
            start: [0; 2],
            span: self.spans[0],
        }
    }

    /// Splits the runs into parts, and calls `each` with every part, in order. `room` returns the
    /// most bytes of a part in the window, from its start, counted from the first run. A part of
    /// one run may exceed that.
    ///
    /// # Errors
    /// The first error of `each`.
    #[inline]
    pub fn try_parts<E>(
        &self,
        room: impl Fn(usize) -> usize,
        mut each: impl FnMut(RunsPart<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.count == 0 || self.run == 0 {
            return Ok(());
        }
        let whole = self.whole();
        if whole.span <= room(0) {
            return each(whole);
        }
        whole.try_parts(&room, &mut each)
    }

    /// Copies all runs, in order.
    ///
    /// # Safety
    /// 1. All runs are readable on the side that is read, and writable on the other. Nobody else
    ///    touches the private memory meanwhile.
    /// 2. All concurrent accesses to the window's side are as in [`copy::store`].
    /// 3. The two sides do not overlap.
    #[inline]
    pub(super) unsafe fn copy(&self, direction: WindowDirection, dst: *mut u8, src: *const u8) {
        if self.count == 0 || self.run == 0 {
            return;
        }
        let nest = self.whole().nest(direction, dst, src);
        // SAFETY: 1., 2. and 3. the conditions of this function. A run has bytes.
        unsafe { copy::each(self.run, direction, nest) }
    }
}

/// A loop of one turn.
const ONCE: Loop = Loop {
    count: 1,
    steps: [0; 2],
};

/// A part of the [`Runs`]: some turns of one loop, and everything within it.
#[derive(Clone, Copy, Debug)]
pub struct RunsPart<'a> {
    run: usize,
    /// A reference, like all loops. A value that was just written word by word is slow to read at
    /// once.
    outmost: &'a Loop,
    within: &'a [Loop],
    /// The start, counted from the first run: in the window, and in private memory.
    start: [usize; 2],
    /// The bytes from the first to behind the last, in the window.
    span: usize,
}

impl<'a> RunsPart<'a> {
    /// Returns the start, counted from the first run: in the window, and in private memory.
    #[inline]
    pub fn start(&self) -> [usize; 2] {
        self.start
    }

    /// Returns the bytes from the first to behind the last, in the window.
    #[inline]
    pub fn span(&self) -> usize {
        self.span
    }

    /// Returns the bytes of each run.
    #[inline]
    pub fn run(&self) -> usize {
        self.run
    }

    /// Splits itself into parts within `room`.
    fn try_parts<E>(
        self,
        room: &impl Fn(usize) -> usize,
        each: &mut impl FnMut(RunsPart<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Loop { count, steps } = *self.outmost;
        let span = self.span - steps[0] * (count - 1);
        let (mut start, mut left) = (self.start, count);
        while left > 0 {
            let turns = (room(start[0]).checked_sub(span)).map(|more| match more {
                // A known result saves the division.
                more if more < steps[0] => 1,
                more => (more.checked_div(steps[0])).map_or(left, |further| left.min(further + 1)),
            });
            match (turns, self.within) {
                (None, [within @ .., outmost]) => {
                    let one = RunsPart {
                        outmost,
                        within,
                        start,
                        span,
                        ..self
                    };
                    one.try_parts(room, each)?;
                }
                (turns, within) => {
                    let count = turns.unwrap_or(1);
                    each(RunsPart {
                        outmost: &Loop { count, steps },
                        within,
                        start,
                        span: span + steps[0] * (count - 1),
                        ..self
                    })?;
                }
            }
            let turns = turns.unwrap_or(1);
            left -= turns;
            // Behind the last turn the address may exceed the memory.
            start =
                array::from_fn(|side| start[side].wrapping_add(steps[side].wrapping_mul(turns)));
        }
        Ok(())
    }

    /// Returns the part's runs. `dst` and `src` are those of the first of all runs.
    #[inline]
    pub(super) fn nest(self, direction: WindowDirection, dst: *mut u8, src: *const u8) -> Nest<'a> {
        let [to, from] = direction.order(self.start);
        Nest {
            outmost: self.outmost,
            within: self.within,
            direction,
            dst: dst.wrapping_add(to),
            src: src.wrapping_add(from),
        }
    }
}

impl Loop {
    /// Returns true if this loop ends where the next turn of an outer loop with `steps` begins.
    #[inline]
    fn is_contiguous_with(&self, steps: [usize; 2]) -> bool {
        let ends = self.steps.map(|step| step.checked_mul(self.count));
        ends == steps.map(Some)
    }
}

/// Nested loops, with the target and the source of the first run.
pub(super) struct Nest<'a> {
    outmost: &'a Loop,
    within: &'a [Loop],
    direction: WindowDirection,
    dst: *mut u8,
    src: *const u8,
}

impl Each for Nest<'_> {
    #[inline(always)]
    fn each(self, act: impl Fn(*mut u8, *const u8)) {
        let Self {
            direction,
            dst,
            src,
            ..
        } = self;
        turns(self.outmost, self.within, direction, (dst, src), &act);
    }
}

/// Calls `act` with the target and the source of each run.
#[inline(always)]
fn turns<A: Fn(*mut u8, *const u8)>(
    outmost: &Loop,
    within: &[Loop],
    direction: WindowDirection,
    (mut dst, mut src): (*mut u8, *const u8),
    act: &A,
) {
    let [to, from] = direction.order(outmost.steps);
    for _ in 0..outmost.count {
        match within {
            [] => act(dst, src),
            // Most runs have two loops, which need no call for each row.
            [rows] => {
                let [to, from] = direction.order(rows.steps);
                let (mut dst, mut src) = (dst, src);
                for _ in 0..rows.count {
                    act(dst, src);
                    (dst, src) = (dst.wrapping_add(to), src.wrapping_add(from));
                }
            }
            [within @ .., outmost] => deep(outmost, within, direction, (dst, src), act),
        }
        // Behind the last turn the address may exceed the memory.
        (dst, src) = (dst.wrapping_add(to), src.wrapping_add(from));
    }
}

/// Like [`turns`], for more than two loops.
fn deep<A: Fn(*mut u8, *const u8)>(
    outmost: &Loop,
    within: &[Loop],
    direction: WindowDirection,
    at: (*mut u8, *const u8),
    act: &A,
) {
    turns(outmost, within, direction, at, act);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Factor, Number, Window};
    use super::*;

    /// Returns the start of every run, counted from the first: in the window, and in private
    /// memory.
    fn starts_of(runs: &Runs) -> Vec<(usize, usize)> {
        let mut starts = match runs.count() {
            0 => vec![],
            _ => vec![(0, 0)],
        };
        for Loop { count, steps } in runs.filled() {
            starts = (0..*count)
                .flat_map(|turn| {
                    let further = steps.map(|step| turn * step);
                    starts
                        .iter()
                        .map(move |at| (at.0 + further[0], at.1 + further[1]))
                        .collect::<Vec<_>>()
                })
                .collect();
        }
        starts
    }

    #[test]
    fn runs_are_visited_in_order() {
        let mut runs = Runs::new(4);
        assert_eq!(starts_of(&runs), [(0, 0)]);
        runs.repeat(2, 10, 4).unwrap();
        runs.repeat(2, 100, 8).unwrap();
        assert_eq!(starts_of(&runs), [(0, 0), (10, 4), (100, 8), (110, 12)]);
        runs.repeat(0, 1, 1).unwrap();
        assert_eq!(starts_of(&runs), []);
    }

    /// The length of a run, and loops of few turns and short steps.
    fn shape() -> impl Strategy<Value = (usize, Vec<(usize, usize, usize)>)> {
        let run = prop_oneof![
            0_usize..20,
            Just(64),
            Just(72),
            Just(128),
            Just(200),
            Just(512),
            Just(520)
        ];
        (
            run,
            prop::collection::vec((0_usize..4, 0_usize..80, 0_usize..80), 0..5),
        )
    }

    proptest! {
        #[test]
        fn loops_copy_as_single_copies_do((run, loops) in shape(), offset in 0_usize..9, from in 0_usize..9, room in 16_usize..600) {
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
            prop_assert_eq!(runs.bytes(), starts.len() * run);
            let named: Vec<_> = (starts_of(&runs).into_iter())
                .flat_map(|(there, here)| (0..runs.run()).map(move |byte| (offset + there + byte, from + here + byte)))
                .collect();
            let bytes = starts.iter().flat_map(|(there, here)| (0..run).map(move |byte| (there + byte, here + byte)));
            prop_assert_eq!(named, bytes.collect::<Vec<_>>());
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
            let (parts, each) = (Window::private(BYTES), Window::private(BYTES));
            // Borders every 16, 32 or more bytes.
            let left = |further: usize| room - (offset + further) % room;
            let factor = Factor::from_bytes(Number::I32, &[3, 0, 0, 0]).expect("it fits");
            if run % 4 == 0 {
                runs.try_parts(left, |part| {
                    let [there, _] = part.start();
                    let is_one = part.span() == runs.run();
                    assert!(is_one || part.span() <= left(there), "{part:?}");
                    // SAFETY: the runs are in the data, as was checked above.
                    unsafe { parts.accumulate_part_from(offset, data[from..].as_ptr(), part, &factor) }
                }).expect("it fits");
                for (there, here) in &starts {
                    each.accumulate(*there, &data[*here..here + run], &factor).expect("it fits");
                }
                prop_assert_eq!(all(&parts), all(&each));
            }
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
    fn runs_outside_either_side_are_refused() {
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
            deep.repeat(2, 3, 2).expect("there is room");
        }
        assert_eq!(deep.repeat(2, 3, 2), refused);
        let mut none = Runs::new(8);
        none.repeat(2, 100, 100).expect("it is small");
        none.repeat(0, 100, 100).expect("it is small");
        assert_eq!(window.write_runs(64, &data, 28, &none), Ok(()));
    }
}
