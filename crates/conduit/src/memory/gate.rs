//! A gate to a window: the checks of a put or get of a few bytes, in one comparison. It can be
//! shut.
//!
//! One number bounds an access: the length of the window, or zero once the gate is shut. One
//! comparison therefore checks that the memory is alive and that the elements are within it.

use std::{
    mem,
    ops::Deref,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytemuck::Pod;

use super::{
    Column, Window,
    copy::{self, WindowDirection},
};

/// Bytes of a word.
const WORD: usize = 8;

/// A window, and the bound for [`put`](Self::put) and similar accesses.
#[derive(Debug)]
pub struct Gate {
    window: Window,
    /// The bytes of the window while the gate is open, else zero. Never more, because no other
    /// check is made.
    open: AtomicUsize,
}

impl Gate {
    /// Makes an open gate.
    pub fn new(window: Window) -> Self {
        let open = AtomicUsize::new(window.len());
        Self { window, open }
    }

    /// Shuts the gate. Accesses that have passed it continue.
    pub fn shut(&self) {
        self.open.store(0, Relaxed);
    }

    /// Copies elements in, from element `index` on. Returns false, and copies nothing, if the gate
    /// is shut. It also does so if the elements do not fit, overlap their target, or are none.
    /// Otherwise it calls `first` once, before the copy. After the copy, the state that `first`
    /// needs would occupy registers during the copy. `first` gets the number of bytes, which is a
    /// constant for a word.
    #[inline(always)]
    pub fn put<T: Pod>(&self, index: usize, data: &[T], first: impl Fn(usize)) -> bool {
        let Some(dst) = self.apart(index, data) else {
            return false;
        };
        let bytes = mem::size_of_val(data);
        if bytes == WORD {
            first(WORD);
            // SAFETY: 1. `data` is borrowed. 2. `apart` checked that the target is in the window.
            // 3. `apart` checked that the two do not overlap.
            unsafe { copy::store(dst, data.as_ptr().cast(), WORD) };
        } else {
            first(bytes);
            // SAFETY: 1., 2. and 3. as above.
            unsafe { copy::store(dst, data.as_ptr().cast(), bytes) };
        }
        true
    }

    /// Copies elements out, from element `index` on. The result and `first` are as for
    /// [`put`](Self::put).
    #[inline(always)]
    pub fn get<T: Pod>(&self, index: usize, data: &mut [T], first: impl Fn(usize)) -> bool {
        let Some(src) = self.apart(index, data) else {
            return false;
        };
        let bytes = mem::size_of_val(data);
        if bytes == WORD {
            first(WORD);
            // SAFETY: 1., 2. and 3. as in `put`; `data` is borrowed mutably.
            unsafe { copy::load(data.as_mut_ptr().cast(), src, WORD) };
        } else {
            first(bytes);
            // SAFETY: 1., 2. and 3. as above.
            unsafe { copy::load(data.as_mut_ptr().cast(), src, bytes) };
        }
        true
    }

    /// Copies a column in, its first element from `src` to `offset`. Returns false, and copies
    /// nothing, if the gate is shut or the column leaves the window. It also does so if the
    /// column's span shares a byte with that of the other side. `first` is as for
    /// [`put`](Self::put).
    ///
    /// # Safety
    /// 1. Each element at `src` is readable.
    /// 2. Nobody writes to the elements meanwhile.
    #[inline(always)]
    pub unsafe fn put_column(
        &self,
        offset: usize,
        src: *const u8,
        column: &Column,
        first: impl FnOnce(),
    ) -> bool {
        let Some(dst) = self.apart_from_column(offset, src, column) else {
            return false;
        };
        first();
        // SAFETY: 1. conditions 1 and 2 of this function, and the window has the span. 2. The
        // window's conditions. 3. `apart_from_column` checked it.
        unsafe { column.copy(WindowDirection::IntoWindow, dst, src) };
        true
    }

    /// Like [`put_column`](Self::put_column), in the other direction: copies the first element from
    /// `offset` to `dst`.
    ///
    /// # Safety
    /// 1. Each element at `dst` is writable.
    /// 2. Nobody else uses the elements meanwhile.
    #[inline(always)]
    pub unsafe fn get_column(
        &self,
        offset: usize,
        dst: *mut u8,
        column: &Column,
        first: impl FnOnce(),
    ) -> bool {
        let Some(src) = self.apart_from_column(offset, dst, column) else {
            return false;
        };
        first();
        // SAFETY: 1., 2. and 3. as in `put_column`.
        unsafe { column.copy(WindowDirection::OutOfWindow, dst, src) };
        true
    }

    /// Stores one element. Returns false if it is not in the window, or the gate is shut.
    #[inline(always)]
    pub fn store<T: Pod>(&self, index: usize, value: T) -> bool {
        let Some(dst) = self.within::<T>(index, 1) else {
            return false;
        };
        let value = bytemuck::bytes_of(&value);
        // SAFETY: 1. and 3. the value is a local variable. 2. `within` checked that the target is
        // in the window.
        unsafe { copy::store(dst, value.as_ptr(), value.len()) };
        true
    }

    /// Loads one element. Returns `None` if it is not in the window, or the gate is shut.
    #[inline(always)]
    pub fn load<T: Pod>(&self, index: usize) -> Option<T> {
        let src = self.within::<T>(index, 1)?;
        let mut value = T::zeroed();
        let into = bytemuck::bytes_of_mut(&mut value);
        // SAFETY: 1., 2. and 3. as in `store`.
        unsafe { copy::load(into.as_mut_ptr(), src, into.len()) };
        Some(value)
    }

    /// Returns the address of `count` elements from `index` on, if the window holds them and the
    /// gate is open.
    #[inline(always)]
    fn within<T>(&self, index: usize, count: usize) -> Option<*mut u8> {
        let room = self.open.load(Relaxed).checked_div(size_of::<T>())?;
        // In this order neither side can overflow.
        if count > room || index > room - count {
            return None;
        }
        Some(self.window.as_ptr().wrapping_add(index * size_of::<T>()))
    }

    /// Returns the address of a column from `offset` on. `None` if the window does not hold it, its
    /// span shares a byte with the span at `private`, or the gate is shut.
    #[inline(always)]
    fn apart_from_column(
        &self,
        offset: usize,
        private: *const u8,
        column: &Column,
    ) -> Option<*mut u8> {
        let [here, there] = column.spans()?;
        let open = self.open.load(Relaxed);
        // In this order neither side can overflow.
        if here > open || offset > open - here {
            return None;
        }
        let at = self.window.as_ptr().wrapping_add(offset);
        // One span ends before the other begins, in either order.
        let ahead = private.addr().wrapping_sub(at.addr());
        (ahead >= here && ahead.wrapping_neg() >= there).then_some(at)
    }

    /// Like [`within`](Self::within), but returns `None` also if the elements overlap `data`, which
    /// has the same length.
    #[inline(always)]
    fn apart<T>(&self, index: usize, data: &[T]) -> Option<*mut u8> {
        let here = self.within::<T>(index, data.len())?;
        let (bytes, there) = (mem::size_of_val(data), data.as_ptr().addr());
        // Two ranges of equal length overlap if one begins less than that length from the other, on
        // either side. That is one comparison. Empty ranges pass only if they begin at the same
        // address, which does no harm.
        let distance = here.addr().wrapping_sub(there);
        let is_apart = distance.wrapping_add(bytes.wrapping_sub(1)) >= (2 * bytes).wrapping_sub(1);
        is_apart.then_some(here)
    }
}

impl Deref for Gate {
    type Target = Window;

    #[inline]
    fn deref(&self) -> &Window {
        &self.window
    }
}

impl Clone for Gate {
    fn clone(&self) -> Self {
        Self {
            window: self.window.clone(),
            open: AtomicUsize::new(self.open.load(Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_elements_in_the_window_pass() {
        let gate = Gate::new(Window::private(60));
        for (index, count, fits) in [
            (0, 7, true),
            (6, 1, true),
            (7, 1, false),
            (0, 8, false),
            (usize::MAX, 1, false),
            (usize::MAX / 8 + 1, 1, false),
            (3, 4, true),
            (4, 4, false),
        ] {
            let mut data: Vec<u64> = (1..=count).collect();
            assert_eq!(
                gate.put(index, &data, |_| ()),
                fits,
                "put {count} at {index}"
            );
            let sent = std::mem::replace(&mut data, vec![0; count as usize]);
            assert_eq!(
                gate.get(index, &mut data, |_| ()),
                fits,
                "get {count} at {index}"
            );
            assert_eq!(data == sent, fits, "{count} at {index}");
            let has_one = index < 7;
            assert_eq!(gate.store(index, 9_u64), has_one, "store at {index}");
            assert_eq!(
                gate.load::<u64>(index).is_some(),
                has_one,
                "load at {index}"
            );
        }
        assert!(!gate.put::<u64>(0, &[], |_| ()) && !gate.get::<u64>(60, &mut [], |_| ()));
    }

    #[test]
    fn elements_of_each_size_arrive_at_their_target() {
        fn each<const N: usize>(gate: &Gate)
        where
            [u8; N]: Pod,
        {
            gate.fill(0, 1024, 0).unwrap();
            let data: Vec<[u8; N]> = (0..1024 / N / 2)
                .map(|at| [(at % 251) as u8 + 1; N])
                .collect();
            for len in 1..=data.len() {
                assert!(gate.put(1, &data[..len], |_| ()));
                let mut back = vec![[0; N]; len];
                assert!(gate.get(1, &mut back, |_| ()));
                assert_eq!(back, data[..len], "{len} of {N} bytes");
                assert_eq!(gate.load::<[u8; N]>(len + 1), Some([0; N]));
                assert_eq!(gate.load::<[u8; N]>(0), Some([0; N]));
            }
        }
        let gate = Gate::new(Window::private(1024));
        each::<1>(&gate);
        each::<3>(&gate);
        each::<4>(&gate);
        each::<8>(&gate);
        each::<16>(&gate);
        each::<24>(&gate);
    }

    #[test]
    fn nothing_passes_a_shut_gate() {
        let gate = Gate::new(Window::private(64));
        assert!(gate.store(0, 5_u64));
        gate.shut();
        assert!(!gate.put(0, &[1_u8], |_| ()) && !gate.get(0, &mut [1_u8], |_| ()));
        assert!(!gate.store(0, 1_u8) && gate.load::<u8>(0).is_none());
        assert_eq!(
            gate.read(0, &mut [0]),
            Ok(()),
            "the window itself is as it was"
        );
    }

    #[test]
    fn elements_that_overlap_their_target_are_refused() {
        let gate = Gate::new(Window::private(64));
        let base = gate.as_ptr();
        for (index, start, count) in
            (0..6).flat_map(|i| (0..12).flat_map(move |s| (1..6).map(move |c| (i, s, c))))
        {
            // SAFETY: the range is in bounds of the window, which no other thread writes to.
            // Overlapping ranges are refused.
            let data = unsafe { std::slice::from_raw_parts(base.wrapping_add(start), count) };
            let shared = (index..index + count).any(|byte| (start..start + count).contains(&byte));
            assert_eq!(
                gate.put(index, data, |_| ()),
                !shared,
                "{index} {start} {count}"
            );
        }
    }
}
