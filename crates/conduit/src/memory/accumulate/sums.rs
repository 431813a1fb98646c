//! `y += a·x` of many runs by the processor's vectors, in place. The instructions are chosen once
//! for all runs.

use std::arch::asm;

use super::{
    super::{copy::Each, vectors::Vectors},
    Factor, Number, add_one_by_one, add_rest,
};

/// Bytes of a vector.
const AVX2: usize = 32;
const AVX512: usize = 64;

/// The least bytes of a run that is not in the first cache. Beyond that cache, each vector that
/// crosses a line costs as much as two lines. The longest vectors all do so at unaligned elements.
const FAR: usize = 24 << 10;

/// Adds the multiples of runs of `len` bytes each, whole elements, to others.
///
/// # Safety
/// 1. The conditions 1, 2 and 3 of [`add`](super::add), for each run.
pub(super) unsafe fn each(len: usize, factor: &Factor, runs: impl Each) {
    let vectors = match Vectors::here() {
        Vectors::Avx512 if len >= FAR => Vectors::Avx2,
        vectors => vectors,
    };
    // SAFETY: 1. condition 1 of this function. 2. These are the processor's vectors.
    unsafe { by_vectors(vectors, len, factor, runs) }
}

/// # Safety
/// 1. Condition 1 of [`each`].
/// 2. The processor has the vectors.
unsafe fn by_vectors(vectors: Vectors, len: usize, factor: &Factor, runs: impl Each) {
    macro_rules! long {
        ($lines:ident, $masked:ident) => {{
            let (lines, masked) = (len / AVX512 * AVX512, mask(len % AVX512));
            runs.each(|dst, src| {
                if lines != 0 {
                    // SAFETY: 1. the conditions 1 and 2 of this function. 2. The lines are whole
                    // vectors, and there are some.
                    unsafe { $lines(dst, src, lines, factor) };
                }
                if masked != 0 {
                    let (dst, src) = (dst.wrapping_add(lines), src.wrapping_add(lines));
                    // SAFETY: 1. the conditions 1 and 2 of this function. 2. The masked words are
                    // the elements after the lines.
                    unsafe { $masked(dst, src, masked, factor) };
                }
            });
        }};
    }
    macro_rules! half {
        ($lines:ident, $type:ty) => {{
            let (lines, value) = (len / AVX2 * AVX2, factor.value::<$type>());
            runs.each(|dst, src| {
                if lines != 0 {
                    // SAFETY: 1. the conditions 1 and 2 of this function. 2. The lines are whole
                    // vectors, and there are some.
                    unsafe { $lines(dst, src, lines, factor) };
                }
                if lines != len {
                    let (dst, src) = (dst.wrapping_add(lines), src.wrapping_add(lines));
                    // SAFETY: 1., 2. and 3. condition 1 of this function, for the elements after
                    // the lines.
                    unsafe { add_rest(dst, src, len - lines, value) };
                }
            });
        }};
    }
    match (vectors, factor.number()) {
        // SAFETY: condition 1 of this function.
        (Vectors::Sse2, _) => return unsafe { add_one_by_one(len, factor, runs) },
        (Vectors::Avx512, Number::I32) => long!(i32_avx512, i32_masked),
        (Vectors::Avx512, Number::I64) => long!(i64_avx512, i64_masked),
        (Vectors::Avx512, Number::F32) => long!(f32_avx512, f32_masked),
        (Vectors::Avx512, Number::F64) => long!(f64_avx512, f64_masked),
        (_, Number::I32) => half!(i32_avx2, i32),
        (_, Number::I64) => half!(i64_avx2, i64),
        (_, Number::F32) => half!(f32_avx2, f32),
        (_, Number::F64) => half!(f64_avx2, f64),
        (_, Number::C32) => half!(c32_avx2, [f32; 2]),
        (_, Number::C64) => half!(c64_avx2, [f64; 2]),
    }
    vectors.end();
}

/// Returns a bit for each four of `bytes` bytes, which are less than a vector.
fn mask(bytes: usize) -> u32 {
    (1 << (bytes / 4)) - 1
}

/// Loops over vectors. The first list loads the factor. The second turns the vector in the first
/// register into the addend. The last instruction adds it.
macro_rules! vectors {
    ($($name:ident $bytes:literal $register:literal [$($begin:literal),+] [$($vector:literal),+] $plus:literal;)+) => {$(
        /// # Safety
        /// 1. The conditions 1 and 2 of [`by_vectors`].
        /// 2. `len` is a multiple of the vector, and not 0.
        #[inline(always)]
        unsafe fn $name(dst: *mut u8, src: *const u8, len: usize, factor: &Factor) {
            // SAFETY: each turn reads and writes the next vector of both sides (1.), up to the last
            // of `len` bytes (2.). At most the 16 bytes of the factor are read. All changed
            // registers are declared.
            unsafe {
                asm!(
                    $($begin,)+
                    "2:",
                    concat!("vmovups ", $register, ", [{src} + {at}]"),
                    $($vector,)+
                    concat!($plus, " ", $register, ", ", $register, ", [{dst} + {at}]"),
                    concat!("vmovups [{dst} + {at}], ", $register),
                    concat!("add {at}, ", $bytes),
                    "jnz 2b",
                    src = in(reg) src.wrapping_add(len),
                    dst = in(reg) dst.wrapping_add(len),
                    at = inout(reg) len.wrapping_neg() => _,
                    factor = in(reg) factor.at(),
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm14") _, out("xmm15") _,
                    options(nostack),
                );
            }
        }
    )+};
}

vectors! {
    i32_avx2 "32" "ymm0" ["vpbroadcastd ymm15, dword ptr [{factor}]"]
        ["vpmulld ymm0, ymm0, ymm15"] "vpaddd";
    // A product of 64 bits is made of three products of 32.
    i64_avx2 "32" "ymm0" ["vpbroadcastq ymm15, qword ptr [{factor}]", "vpsrlq ymm14, ymm15, 32"]
        [
            "vpsrlq ymm1, ymm0, 32", "vpmuludq ymm1, ymm1, ymm15",
            "vpmuludq ymm2, ymm0, ymm14", "vpaddq ymm1, ymm1, ymm2", "vpsllq ymm1, ymm1, 32",
            "vpmuludq ymm0, ymm0, ymm15", "vpaddq ymm0, ymm0, ymm1"
        ] "vpaddq";
    f32_avx2 "32" "ymm0" ["vbroadcastss ymm15, dword ptr [{factor}]"]
        ["vmulps ymm0, ymm0, ymm15"] "vaddps";
    f64_avx2 "32" "ymm0" ["vbroadcastsd ymm15, qword ptr [{factor}]"]
        ["vmulpd ymm0, ymm0, ymm15"] "vaddpd";
    // Multiplies both parts by the factor's real part, and the exchanged parts by its imaginary
    // part. Subtracts the second product in even places, and adds it in odd ones.
    c32_avx2 "32" "ymm0"
        ["vbroadcastss ymm14, dword ptr [{factor}]", "vbroadcastss ymm15, dword ptr [{factor} + 4]"]
        [
            "vpermilps ymm1, ymm0, 0xb1", "vmulps ymm0, ymm0, ymm14",
            "vmulps ymm1, ymm1, ymm15", "vaddsubps ymm0, ymm0, ymm1"
        ] "vaddps";
    c64_avx2 "32" "ymm0"
        ["vbroadcastsd ymm14, qword ptr [{factor}]", "vbroadcastsd ymm15, qword ptr [{factor} + 8]"]
        [
            "vpermilpd ymm1, ymm0, 0x5", "vmulpd ymm0, ymm0, ymm14",
            "vmulpd ymm1, ymm1, ymm15", "vaddsubpd ymm0, ymm0, ymm1"
        ] "vaddpd";
    i32_avx512 "64" "zmm0" ["vpbroadcastd zmm15, dword ptr [{factor}]"]
        ["vpmulld zmm0, zmm0, zmm15"] "vpaddd";
    i64_avx512 "64" "zmm0" ["vpbroadcastq zmm15, qword ptr [{factor}]"]
        ["vpmullq zmm0, zmm0, zmm15"] "vpaddq";
    f32_avx512 "64" "zmm0" ["vbroadcastss zmm15, dword ptr [{factor}]"]
        ["vmulps zmm0, zmm0, zmm15"] "vaddps";
    f64_avx512 "64" "zmm0" ["vbroadcastsd zmm15, qword ptr [{factor}]"]
        ["vmulpd zmm0, zmm0, zmm15"] "vaddpd";
}

/// Adds to the elements of one vector that a mask selects.
macro_rules! masked {
    ($($name:ident $broadcast:literal $size:literal $times:literal $plus:literal;)+) => {$(
        /// # Safety
        /// 1. The conditions 1 and 2 of [`by_vectors`], for the words of four bytes that have a bit
        ///    in the mask.
        /// 2. The selected words are whole elements.
        #[inline(always)]
        unsafe fn $name(dst: *mut u8, src: *const u8, mask: u32, factor: &Factor) {
            // SAFETY: words without a bit are neither read nor written, and the others are as
            // conditions 1 and 2 say. At most the 16 bytes of the factor are read. All changed
            // registers are declared.
            unsafe {
                asm!(
                    "kmovw k1, {mask:e}",
                    concat!($broadcast, " zmm15, ", $size, " ptr [{factor}]"),
                    "vmovups zmm0{{k1}}{{z}}, [{src}]",
                    "vmovups zmm1{{k1}}{{z}}, [{dst}]",
                    concat!($times, " zmm0, zmm0, zmm15"),
                    concat!($plus, " zmm0, zmm0, zmm1"),
                    "vmovups [{dst}]{{k1}}, zmm0",
                    src = in(reg) src,
                    dst = in(reg) dst,
                    mask = in(reg) mask,
                    factor = in(reg) factor.at(),
                    out("xmm0") _, out("xmm1") _, out("xmm15") _,
                    out("k1") _,
                    options(nostack, preserves_flags),
                );
            }
        }
    )+};
}

masked! {
    i32_masked "vpbroadcastd" "dword" "vpmulld" "vpaddd";
    i64_masked "vpbroadcastq" "qword" "vpmullq" "vpaddq";
    f32_masked "vbroadcastss" "dword" "vmulps" "vaddps";
    f64_masked "vbroadcastsd" "qword" "vmulpd" "vaddpd";
}

#[cfg(test)]
mod tests {
    use super::*;

    struct SingleRun(*mut u8, *const u8);

    impl Each for SingleRun {
        fn each(self, add: impl Fn(*mut u8, *const u8)) {
            add(self.0, self.1);
        }
    }

    #[test]
    fn each_kind_of_vectors_adds_like_single_elements() {
        let float = |at: usize| (at as f32 - 40.25).to_ne_bytes();
        let double = |at: usize| (at as f64 * 0.3 - 7.7).to_ne_bytes();
        for number in Number::ALL {
            let wide = matches!(number, Number::F64 | Number::C64);
            let bytes: Vec<u8> = if wide {
                (0..64).flat_map(double).collect()
            } else {
                (0..128).flat_map(float).collect()
            };
            let (x, y, size) = (&bytes[..300], &bytes[100..400], number.size());
            let factor = Factor::from_bytes(number, &bytes[size..2 * size]).expect("it fits");
            for (vectors, len) in
                Vectors::all().flat_map(|it| (size..256).step_by(size).map(move |len| (it, len)))
            {
                let (mut sums, mut right) = (y.to_vec(), y.to_vec());
                let run = SingleRun(sums.as_mut_ptr(), x.as_ptr());
                // SAFETY: 1. both sides have this many bytes, of this test's own. 2. The processor
                // has all these vectors.
                unsafe { by_vectors(vectors, len, &factor, run) };
                let run = SingleRun(right.as_mut_ptr(), x.as_ptr());
                // SAFETY: 1. both sides have this many bytes, of this test's own.
                unsafe { add_one_by_one(len, &factor, run) };
                assert_eq!(sums, right, "{vectors:?}, {number:?}, {len} bytes");
            }
        }
    }
}
