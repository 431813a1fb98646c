//! Accumulates into elements of shared memory: `y += a·x`, as ARMCI's accumulate does (Nieplocha
//! and others 2002, §2).
//!
//! As with [copies](super::copy), Rust makes no access to shared memory. If the processor has
//! [vectors](sums), they add in place, in `asm!` blocks. The remaining elements are copied
//! out, added to, and copied in again, as are all elements on other processors. Both ways round
//! alike: the product first, then the sum. The caller must hold a lock against others who add to
//! the same elements.

use bytemuck::{Pod, Zeroable};

use super::copy::{self, Each, WindowDirection};

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod sums;

/// The types of elements that can be accumulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Number {
    /// `i32` and `u32`, which wrap.
    I32,
    /// `i64` and `u64`, which wrap.
    I64,
    /// `f32`.
    F32,
    /// `f64`.
    F64,
    /// Two `f32`, the real part first.
    C32,
    /// Two `f64`, the real part first.
    C64,
}

impl Number {
    /// All types, each at the index of its number.
    pub const ALL: [Number; 6] = [
        Number::I32,
        Number::I64,
        Number::F32,
        Number::F64,
        Number::C32,
        Number::C64,
    ];

    /// Returns the bytes of an element: a power of two.
    #[inline]
    pub fn size(self) -> usize {
        match self {
            Number::I32 | Number::F32 => 4,
            Number::I64 | Number::F64 | Number::C32 => 8,
            Number::C64 => 16,
        }
    }
}

/// The factor of an accumulation, and the type of its elements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Factor {
    number: Number,
    /// The value, from the first byte on.
    value: FactorBytes,
}

/// The most bytes of an element.
const WIDEST: usize = 16;

#[derive(Clone, Copy, PartialEq, Debug, Pod, Zeroable)]
#[repr(C, align(16))]
struct FactorBytes([u8; WIDEST]);

impl Factor {
    /// Makes a factor of these bytes. Returns `None` if their number is not that of an element.
    #[inline]
    pub fn from_bytes(number: Number, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != number.size() {
            return None;
        }
        let mut value = FactorBytes([0; WIDEST]);
        // The lengths are constants, so that no function is called.
        match bytes.len() {
            4 => value.0[..4].copy_from_slice(bytes),
            8 => value.0[..8].copy_from_slice(bytes),
            _ => value.0.copy_from_slice(bytes),
        }
        Some(Self { number, value })
    }

    /// Returns the type of the elements.
    #[inline]
    pub fn number(&self) -> Number {
        self.number
    }

    /// Returns the factor's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.value.0[..self.number.size()]
    }

    /// Adds the multiple of each element of `data` to that of `sums`, which is private memory.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn add_to(&self, sums: &mut [u8], data: &[u8]) {
        assert_eq!(sums.len(), data.len(), "as many elements as sums");
        // SAFETY: 1., 2. and 3. follow from the borrows and their lengths.
        unsafe { add(sums.as_mut_ptr(), data.as_ptr(), data.len(), self) };
    }

    /// Returns the address of the value, from which 16 bytes are readable whatever the type.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    pub(super) fn at(&self) -> *const u8 {
        self.value.0.as_ptr()
    }

    #[inline]
    pub(super) fn value<T: Pod>(&self) -> T {
        bytemuck::pod_read_unaligned(&self.value.0[..size_of::<T>()])
    }
}

/// Adds the multiple of each element at `src` to that at `dst`: `len` bytes, whole elements.
///
/// # Safety
/// 1. `src` is readable for `len` bytes, and nobody writes to it meanwhile.
/// 2. `dst` is mapped, readable and writable for `len` bytes. All concurrent accesses to it are
///    atomic or outside this program's view (peers, `asm!`, the kernel).
/// 3. The two ranges do not overlap.
#[inline]
pub(super) unsafe fn add(dst: *mut u8, src: *const u8, len: usize, factor: &Factor) {
    struct SingleRun(*mut u8, *const u8);
    impl Each for SingleRun {
        #[inline(always)]
        fn each(self, add: impl Fn(*mut u8, *const u8)) {
            add(self.0, self.1);
        }
    }
    // SAFETY: 1., 2. and 3. the conditions of this function, for its only run.
    unsafe { each(len, factor, SingleRun(dst, src)) }
}

/// Adds the multiples of runs of `len` bytes each, whole elements, to others.
///
/// # Safety
/// The conditions 1, 2 and 3 of [`add`], for each run.
#[inline]
pub(super) unsafe fn each(len: usize, factor: &Factor, runs: impl Each) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len > factor.number.size() {
        // SAFETY: 1., 2. and 3. the conditions of this function.
        return unsafe { sums::each(len, factor, runs) };
    }
    // SAFETY: 1., 2. and 3. the conditions of this function.
    unsafe { add_one_by_one(len, factor, runs) }
}

/// Like [`each`], without vectors.
///
/// # Safety
/// The conditions 1, 2 and 3 of [`each`].
#[inline]
pub(super) unsafe fn add_one_by_one(len: usize, factor: &Factor, runs: impl Each) {
    macro_rules! elements {
        ($($number:ident $type:ty),+) => {
            match factor.number {
                $(Number::$number => {
                    let factor: $type = factor.value();
                    // SAFETY: 1., 2. and 3. the conditions of this function, for one run.
                    runs.each(|dst, src| unsafe { add_rest(dst, src, len, factor) });
                })+
            }
        };
    }
    elements!(I32 i32, I64 i64, F32 f32, F64 f64, C32 [f32; 2], C64 [f64; 2]);
}

/// Adds to elements one by one.
///
/// # Safety
/// The conditions 1, 2 and 3 of [`add`].
#[inline(always)]
pub(super) unsafe fn add_rest<T: AccumulateElement>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    factor: T,
) {
    for at in (0..len).step_by(size_of::<T>()) {
        let (mut sum, dst) = (T::zeroed(), dst.wrapping_add(at));
        let (out, len) = (WindowDirection::OutOfWindow, size_of::<T>());
        // SAFETY: 1. and 3. the sum is a local variable. 2. condition 2 of this function: an
        // element is left.
        unsafe { copy::element(out, (&raw mut sum).cast(), dst, len) };
        // SAFETY: condition 1 of this function: an element is left.
        let more = unsafe { src.wrapping_add(at).cast::<T>().read_unaligned() };
        sum = sum.plus(factor, more);
        // SAFETY: 1., 2. and 3. as for the copy above.
        unsafe {
            copy::element(
                WindowDirection::IntoWindow,
                dst,
                (&raw const sum).cast(),
                len,
            )
        };
    }
}

pub(super) trait AccumulateElement: Pod {
    /// `self + factor × more`.
    fn plus(self, factor: Self, more: Self) -> Self;
}

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl AccumulateElement for $type {
            #[inline]
            fn plus(self, factor: Self, more: Self) -> Self {
                self.wrapping_add(factor.wrapping_mul(more))
            }
        }
    )+};
}

macro_rules! floats {
    ($($type:ty),+) => {$(
        impl AccumulateElement for $type {
            #[inline]
            fn plus(self, factor: Self, more: Self) -> Self {
                self + factor * more
            }
        }
        impl AccumulateElement for [$type; 2] {
            #[inline]
            fn plus(self, [re, im]: Self, more: Self) -> Self {
                [
                    self[0] + (re * more[0] - im * more[1]),
                    self[1] + (re * more[1] + im * more[0]),
                ]
            }
        }
    )+};
}

integers!(i32, i64);
floats!(f32, f64);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::Window;

    /// Adds to the elements at `at` of a window with other elements around them, and compares with
    /// a plain loop.
    fn check<T: AccumulateElement + PartialEq + std::fmt::Debug>(
        number: Number,
        at: usize,
        [factor, start, step]: [T; 3],
        count: usize,
    ) {
        let mut old = vec![start; count];
        for index in 1..count {
            old[index] = old[index - 1].plus(step, old[index - 1]);
        }
        let more: Vec<T> = old.iter().rev().map(|it| step.plus(start, *it)).collect();
        let size = size_of::<T>();
        let window = Window::private(at + count * size + 64);
        window.fill(0, window.len(), 0x5a).unwrap();
        window.write(at, bytemuck::cast_slice(&old)).unwrap();
        let factor_bytes = Factor::from_bytes(number, bytemuck::bytes_of(&factor)).unwrap();
        window
            .accumulate(at, bytemuck::cast_slice(&more), &factor_bytes)
            .unwrap();
        let right: Vec<T> = (old.iter().zip(&more))
            .map(|(old, more)| old.plus(factor, *more))
            .collect();
        let mut all = vec![0; window.len()];
        window.read(0, &mut all).unwrap();
        assert_eq!(
            &all[at..at + count * size],
            bytemuck::cast_slice::<T, u8>(&right)
        );
        let others = all[..at].iter().chain(&all[at + count * size..]);
        assert!(others.into_iter().all(|byte| *byte == 0x5a));
    }

    proptest! {
        #[test]
        fn every_type_of_element_is_accumulated_as_by_a_loop(
            at in 0_usize..40,
            count in 0_usize..200,
            long in any::<[i64; 3]>(),
            int in any::<[i32; 3]>(),
            double in prop::array::uniform3(-1.5_f64..1.5),
        ) {
            check(Number::I64, at, long, count);
            check(Number::I32, at, int, count);
            check(Number::F64, at, double, count);
            check(Number::F32, at, double.map(|it| it as f32), count);
            let [a, b, c] = double;
            check(Number::C64, at, [[a, b], [b, c], [c, a]], count);
            check(Number::C32, at, [[a, b], [b, c], [c, a]].map(|it| it.map(|it| it as f32)), count);
        }
    }

    #[test]
    fn elements_outside_the_window_change_nothing() {
        let window = Window::private(64);
        let one = Factor::from_bytes(Number::F64, &1.0_f64.to_le_bytes()).unwrap();
        for at in [57, 64, usize::MAX] {
            assert!(window.accumulate(at, &[1; 8], &one).is_err());
        }
        assert_eq!(window.load::<[u64; 8]>(0), Ok([0; 8]));
        assert_eq!(Factor::from_bytes(Number::C64, &[0; 8]), None);
    }

    #[test]
    fn types_of_elements_are_at_their_index() {
        for (at, number) in Number::ALL.into_iter().enumerate() {
            assert_eq!(number as usize, at);
        }
    }
}
