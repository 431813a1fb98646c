//! Columns of matrices: elements of a few bytes at equal steps on both sides. Most short runs of
//! programs are such columns. One loop over elements of one size needs fewer checks than general
//! [runs](super::Runs).

use super::copy::{self, WindowDirection};

/// Elements at equal steps, in a window and in private memory.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    element: usize,
    count: usize,
    /// Bytes from one element to the next: in the window, and in private memory.
    steps: [usize; 2],
}

impl Column {
    /// Makes a column of `count` elements of `element` bytes each, with these steps in the window
    /// and in private memory. Returns `None` if another copy suits better: without elements, for a
    /// size other than 4, 8 or 16 bytes, or without gaps on both sides.
    #[inline(always)]
    pub fn new(element: u32, count: u32, steps: [u32; 2]) -> Option<Self> {
        let gaps = steps.map(|step| step ^ element);
        let is_column = count > 0 && matches!(element, 4 | 8 | 16) && gaps[0] | gaps[1] != 0;
        is_column.then(|| Self {
            element: element as usize,
            count: count as usize,
            steps: steps.map(|step| step as usize),
        })
    }

    /// Returns the number of elements.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the bytes of all elements. The product cannot overflow if a window has their span.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.count.saturating_mul(self.element)
    }

    /// Returns the bytes from the first element to behind the last: in the window, and in private
    /// memory. `None` if no memory is that long.
    #[inline(always)]
    pub fn spans(&self) -> Option<[usize; 2]> {
        let span = |step: usize| {
            let further = step.checked_mul(self.count - 1)?;
            further.checked_add(self.element)
        };
        Some([span(self.steps[0])?, span(self.steps[1])?])
    }

    /// Copies all elements, in order.
    ///
    /// # Safety
    /// 1. All elements are readable on the side that is read, and writable on the other. Nobody
    ///    else touches the private memory meanwhile.
    /// 2. All concurrent accesses to the window's side are as in [`copy::store`].
    /// 3. The two sides do not overlap.
    #[inline(always)]
    pub(super) unsafe fn copy(&self, direction: WindowDirection, dst: *mut u8, src: *const u8) {
        let steps = direction.order(self.steps);
        // SAFETY: 1., 2. and 3. the conditions of this function. `new` has checked that there is an
        // element, and its size.
        unsafe { copy::column(direction, (dst, src), steps, self.element, self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Gate, Window};
    use super::*;

    /// Bytes of the window, and of private memory.
    const BYTES: usize = 400;

    #[test]
    fn elements_arrive_as_by_single_copies_and_gaps_stay() {
        let data: Vec<u8> = (0..BYTES).map(|at| (at * 7 % 251) as u8 + 1).collect();
        let shapes = [4, 8, 16].into_iter().flat_map(|element| {
            let steps = [0, 1, element, element + 4, 40];
            let both = move |there| steps.map(move |here| [there, here]);
            let columns = steps.into_iter().flat_map(both);
            columns.flat_map(move |steps| [1, 2, 7].map(|count| (element, count, steps)))
        });
        for (element, count, steps) in shapes {
            let Some(column) = Column::new(element, count, steps) else {
                assert_eq!(steps, [element; 2], "only those that follow each other");
                continue;
            };
            let (gate, model) = (Gate::new(Window::private(BYTES)), Window::private(BYTES));
            let size = element as usize;
            let places = |at: u32| steps.map(|step| (at * step) as usize);
            for at in 0..count {
                let [there, here] = places(at);
                model.write(3 + there, &data[5 + here..][..size]).unwrap();
            }
            // SAFETY: 1., 2. and 3. the data is this test's own, and a window's memory is apart
            // from it.
            assert!(unsafe { gate.put_column(3, data[5..].as_ptr(), &column, || ()) });
            let all = |window: &Window| {
                let mut bytes = vec![0; BYTES];
                window.read(0, &mut bytes).unwrap();
                bytes
            };
            assert_eq!(all(&gate), all(&model), "{column:?}");
            let (mut back, mut right) = (vec![0; BYTES], vec![0; BYTES]);
            for at in 0..count {
                let [there, here] = places(at);
                model
                    .read(3 + there, &mut right[5 + here..][..size])
                    .unwrap();
            }
            // SAFETY: as above.
            assert!(unsafe { gate.get_column(3, back[5..].as_mut_ptr(), &column, || ()) });
            assert_eq!(back, right, "{column:?}");
        }
    }

    #[test]
    fn other_shapes_are_no_column() {
        assert!(Column::new(8, 0, [8, 16]).is_none());
        assert!(Column::new(12, 2, [16, 16]).is_none());
        assert!(Column::new(8, 2, [8, 8]).is_none());
        let longest = Column::new(16, u32::MAX, [u32::MAX, 16]).expect("it is one");
        let spans = longest.spans().expect("addresses have 64 bits");
        assert_eq!(spans, [0xffff_fffd_0000_0012, 0xf_ffff_fff0]);
    }

    #[test]
    fn columns_outside_the_window_or_behind_a_shut_gate_are_not_copied() {
        let gate = Gate::new(Window::private(64));
        let column = Column::new(8, 3, [24, 16]).expect("it is one");
        let mut data = [1_u8; 40];
        let fits = |at: usize, data: &mut [u8; 40]| {
            // SAFETY: 1. and 2. the data is this test's own.
            let put = unsafe { gate.put_column(at, data.as_ptr(), &column, || ()) };
            // SAFETY: as above.
            let got = unsafe { gate.get_column(at, data.as_mut_ptr(), &column, || ()) };
            assert_eq!(put, got, "at {at}");
            put
        };
        for (at, right) in [(0, true), (8, true), (9, false), (usize::MAX - 7, false)] {
            assert_eq!(fits(at, &mut data), right, "at {at}");
        }
        let base = gate.as_ptr();
        for (at, right) in [(0, false), (1, false), (39, false)] {
            // SAFETY: 1. and 2. the data is in the window, whose bytes are this test's own.
            let put = unsafe { gate.put_column(8, base.wrapping_add(at), &column, || ()) };
            assert_eq!(put, right, "from {at} bytes behind the window's start");
        }
        gate.shut();
        assert!(!fits(0, &mut data));
    }
}
