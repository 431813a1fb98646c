//! Adding to elements of shared memory: `y += a·x`, as ARMCI's accumulate does (Nieplocha and others
//! 2002, §2).
//!
//! As with [copies](super::copy), no access to shared memory is Rust's. Where the processor has AVX2,
//! whole cache lines are added to in place, in `asm!` blocks. What is left, and all of it elsewhere, is
//! copied out, added to and copied in again. Both round alike: the product first, then the sum. That
//! nobody else adds to the elements meanwhile is for the caller to see to, by a lock.

use bytemuck::{Pod, Zeroable};

use super::copy;

/// What elements are, to those who add to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Number {
    /// `i32` and `u32`, which wrap around.
    I32,
    /// `i64` and `u64`, which wrap around.
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
    /// All of them, each at its number.
    pub const ALL: [Number; 6] = [
        Number::I32,
        Number::I64,
        Number::F32,
        Number::F64,
        Number::C32,
        Number::C64,
    ];

    /// Bytes of an element: a power of two.
    #[inline]
    pub fn size(self) -> usize {
        match self {
            Number::I32 | Number::F32 => 4,
            Number::I64 | Number::F64 | Number::C32 => 8,
            Number::C64 => 16,
        }
    }
}

/// What all elements are multiplied by before they are added: a number, and what it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Factor {
    number: Number,
    /// The value, from the first byte on.
    value: Value,
}

/// Most bytes of a number.
const WIDEST: usize = 16;

#[derive(Clone, Copy, PartialEq, Debug, Pod, Zeroable)]
#[repr(C, align(16))]
struct Value([u8; WIDEST]);

impl Factor {
    /// The factor that these bytes are, if there are as many as the number has.
    #[inline]
    pub fn from_bytes(number: Number, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != number.size() {
            return None;
        }
        let mut value = Value([0; WIDEST]);
        // Each length known, so that nothing is called.
        match bytes.len() {
            4 => value.0[..4].copy_from_slice(bytes),
            8 => value.0[..8].copy_from_slice(bytes),
            _ => value.0.copy_from_slice(bytes),
        }
        Some(Self { number, value })
    }

    /// What the elements are.
    #[inline]
    pub fn number(&self) -> Number {
        self.number
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.value.0[..self.number.size()]
    }

    /// Adds the multiple of each element of `data` to the one of `sums`, memory of the caller's own.
    ///
    /// # Panics
    /// If there are not equally many bytes.
    pub fn add_to(&self, sums: &mut [u8], data: &[u8]) {
        assert_eq!(sums.len(), data.len(), "as many elements as sums");
        // SAFETY: 1., 2. and 3. follow from the borrows and their lengths.
        unsafe { add(sums.as_mut_ptr(), data.as_ptr(), data.len(), self) };
    }

    #[inline]
    fn value<T: Pod>(&self) -> T {
        bytemuck::pod_read_unaligned(&self.value.0[..size_of::<T>()])
    }
}

/// Adds the multiple of each element at `src` to the one at `dst`: `len` bytes, whole elements.
///
/// # Safety
/// 1. `src` is readable for `len` bytes and nobody writes to it meanwhile.
/// 2. `dst` is mapped, readable and writable for `len` bytes; all concurrent accesses to it are
///    atomic ones or come from outside this program's view (peers, `asm!`, the kernel).
/// 3. The two do not overlap.
#[inline]
pub(super) unsafe fn add(dst: *mut u8, src: *const u8, len: usize, factor: &Factor) {
    // SAFETY: handed on.
    let done = unsafe { lines::add(dst, src, len, factor) };
    let (dst, src, len) = (dst.wrapping_add(done), src.wrapping_add(done), len - done);
    // SAFETY: handed on, of what is left.
    unsafe {
        match factor.number {
            Number::I32 => rest::<i32>(dst, src, len, factor),
            Number::I64 => rest::<i64>(dst, src, len, factor),
            Number::F32 => rest::<f32>(dst, src, len, factor),
            Number::F64 => rest::<f64>(dst, src, len, factor),
            Number::C32 => rest::<[f32; 2]>(dst, src, len, factor),
            Number::C64 => rest::<[f64; 2]>(dst, src, len, factor),
        }
    }
}

/// Adds to elements one by one, a stretch of them at a time.
///
/// # Safety
/// As [`add`].
#[inline]
unsafe fn rest<T: Element>(mut dst: *mut u8, mut src: *const u8, mut len: usize, factor: &Factor) {
    const STRETCH: usize = 64;
    let factor: T = factor.value();
    if len == size_of::<T>() {
        let (mut sum, mut more) = (T::zeroed(), T::zeroed());
        // SAFETY: 1., 2. 3. The sum is this function's own.
        unsafe { copy::load((&raw mut sum).cast(), dst, len) };
        // SAFETY: 1.
        unsafe {
            (&raw mut more)
                .cast::<u8>()
                .copy_from_nonoverlapping(src, len)
        };
        let sum = sum.plus(factor, more);
        // SAFETY: as above.
        return unsafe { copy::store(dst, (&raw const sum).cast(), len) };
    }
    while len >= size_of::<T>() {
        let bytes = (len / size_of::<T>() * size_of::<T>()).min(STRETCH);
        let mut sums = [0; STRETCH];
        // SAFETY: 1., 2. `bytes` are left on both sides. 3. The stretch is this function's own.
        unsafe { copy::load(sums.as_mut_ptr(), dst, bytes) };
        // SAFETY: 1. `bytes` are left there, and nobody writes to them.
        let more = unsafe { std::slice::from_raw_parts(src, bytes) };
        for (sum, more) in
            (sums[..bytes].chunks_exact_mut(size_of::<T>())).zip(more.chunks_exact(size_of::<T>()))
        {
            let total: T = T::plus(
                bytemuck::pod_read_unaligned(sum),
                factor,
                bytemuck::pod_read_unaligned(more),
            );
            sum.copy_from_slice(bytemuck::bytes_of(&total));
        }
        // SAFETY: as above.
        unsafe { copy::store(dst, sums.as_ptr(), bytes) };
        (dst, src, len) = (
            dst.wrapping_add(bytes),
            src.wrapping_add(bytes),
            len - bytes,
        );
    }
}

trait Element: Pod {
    /// `self + factor × more`.
    fn plus(self, factor: Self, more: Self) -> Self;
}

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl Element for $type {
            #[inline]
            fn plus(self, factor: Self, more: Self) -> Self {
                self.wrapping_add(factor.wrapping_mul(more))
            }
        }
    )+};
}

macro_rules! floats {
    ($($type:ty),+) => {$(
        impl Element for $type {
            #[inline]
            fn plus(self, factor: Self, more: Self) -> Self {
                self + factor * more
            }
        }
        impl Element for [$type; 2] {
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

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod lines {
    use super::Factor;

    /// Nothing is done here.
    ///
    /// # Safety
    /// None is needed.
    pub(super) unsafe fn add(_: *mut u8, _: *const u8, _: usize, _: &Factor) -> usize {
        0
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod lines {
    use std::arch::asm;

    use super::{Factor, Number};

    /// Bytes that each turn of a loop adds to.
    const LINE: usize = 64;

    /// A loop over lines: `$begin` loads the factor, `$vector` makes of the 32 bytes that `ymm0`
    /// has what is added.
    macro_rules! add_lines {
        ($dst:ident, $src:ident, $count:ident, $factor:ident,
         [$($begin:literal),+], [$($vector:literal),+], $plus:literal) => {{
            asm!(
                $($begin,)+
                "2:",
                "vmovups ymm0, [{src}]",
                $($vector,)+
                concat!($plus, " ymm0, ymm0, [{dst}]"),
                "vmovups [{dst}], ymm0",
                "vmovups ymm0, [{src} + 32]",
                $($vector,)+
                concat!($plus, " ymm0, ymm0, [{dst} + 32]"),
                "vmovups [{dst} + 32], ymm0",
                "add {src}, 64",
                "add {dst}, 64",
                "dec {count}",
                "jnz 2b",
                "vzeroupper",
                src = inout(reg) $src => _,
                dst = inout(reg) $dst => _,
                count = inout(reg) $count => _,
                factor = in(reg) $factor,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm14") _, out("xmm15") _,
                options(nostack),
            )
        }};
    }

    /// Adds to whole lines in place, if the processor can: how many bytes are done.
    ///
    /// # Safety
    /// As [`add`](super::add).
    #[inline]
    pub(super) unsafe fn add(dst: *mut u8, src: *const u8, len: usize, factor: &Factor) -> usize {
        let count = len / LINE;
        if count == 0 || !std::arch::is_x86_feature_detected!("avx2") {
            return 0;
        }
        // SAFETY: handed on; `count` lines are no more than `len` bytes, and not none.
        unsafe { whole(dst, src, count, factor) };
        count * LINE
    }

    /// # Safety
    /// 1. As [`add`](super::add), for `count` lines. 2. `count` is not 0. 3. There is AVX2.
    #[inline(never)]
    unsafe fn whole(dst: *mut u8, src: *const u8, count: usize, factor: &Factor) {
        let at = factor.value.0.as_ptr();
        // SAFETY: (1) each turn reads and writes the next line of both, and (2) there are `count`; the
        // factor has 16 bytes, of which no more is read; (3); the registers that change are named.
        unsafe {
            match factor.number {
                Number::I32 => add_lines!(
                    dst,
                    src,
                    count,
                    at,
                    ["vpbroadcastd ymm15, dword ptr [{factor}]"],
                    ["vpmulld ymm0, ymm0, ymm15"],
                    "vpaddd"
                ),
                // A product of 64 bits is made of three of 32.
                Number::I64 => add_lines!(
                    dst,
                    src,
                    count,
                    at,
                    [
                        "vpbroadcastq ymm15, qword ptr [{factor}]",
                        "vpsrlq ymm14, ymm15, 32"
                    ],
                    [
                        "vpsrlq ymm1, ymm0, 32",
                        "vpmuludq ymm1, ymm1, ymm15",
                        "vpmuludq ymm2, ymm0, ymm14",
                        "vpaddq ymm1, ymm1, ymm2",
                        "vpsllq ymm1, ymm1, 32",
                        "vpmuludq ymm0, ymm0, ymm15",
                        "vpaddq ymm0, ymm0, ymm1"
                    ],
                    "vpaddq"
                ),
                Number::F32 => add_lines!(
                    dst,
                    src,
                    count,
                    at,
                    ["vbroadcastss ymm15, dword ptr [{factor}]"],
                    ["vmulps ymm0, ymm0, ymm15"],
                    "vaddps"
                ),
                Number::F64 => add_lines!(
                    dst,
                    src,
                    count,
                    at,
                    ["vbroadcastsd ymm15, qword ptr [{factor}]"],
                    ["vmulpd ymm0, ymm0, ymm15"],
                    "vaddpd"
                ),
                // The real parts of the factor times both parts; its imaginary part times both,
                // exchanged; the one from the other in even places, together in odd ones.
                Number::C32 => add_lines!(
                    dst,
                    src,
                    count,
                    at,
                    [
                        "vbroadcastss ymm14, dword ptr [{factor}]",
                        "vbroadcastss ymm15, dword ptr [{factor} + 4]"
                    ],
                    [
                        "vpermilps ymm1, ymm0, 0xb1",
                        "vmulps ymm0, ymm0, ymm14",
                        "vmulps ymm1, ymm1, ymm15",
                        "vaddsubps ymm0, ymm0, ymm1"
                    ],
                    "vaddps"
                ),
                Number::C64 => add_lines!(
                    dst,
                    src,
                    count,
                    at,
                    [
                        "vbroadcastsd ymm14, qword ptr [{factor}]",
                        "vbroadcastsd ymm15, qword ptr [{factor} + 8]"
                    ],
                    [
                        "vpermilpd ymm1, ymm0, 0x5",
                        "vmulpd ymm0, ymm0, ymm14",
                        "vmulpd ymm1, ymm1, ymm15",
                        "vaddsubpd ymm0, ymm0, ymm1"
                    ],
                    "vaddpd"
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::Window;

    /// Adds to elements at `at` of a window that has others around them, as the loop does that anybody
    /// would write.
    fn check<T: Element + PartialEq + std::fmt::Debug>(
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
        fn every_number_is_added_to_as_a_loop_does(
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
    fn what_leaves_the_window_changes_nothing() {
        let window = Window::private(64);
        let one = Factor::from_bytes(Number::F64, &1.0_f64.to_le_bytes()).unwrap();
        for at in [57, 64, usize::MAX] {
            assert!(window.accumulate(at, &[1; 8], &one).is_err());
        }
        assert_eq!(window.load::<[u64; 8]>(0), Ok([0; 8]));
        assert_eq!(Factor::from_bytes(Number::C64, &[0; 8]), None);
    }

    #[test]
    fn numbers_are_at_their_number() {
        for (at, number) in Number::ALL.into_iter().enumerate() {
            assert_eq!(number as usize, at);
        }
    }
}
