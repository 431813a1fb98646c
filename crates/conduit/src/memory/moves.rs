//! Copies of runs of a few hundred bytes: moved by instructions for just their length, which is looked
//! at once for many runs. To call the C library for each would take longer than the copy.

use std::arch::asm;

use super::{copy::Each, vectors::Vectors};

/// Longer runs are copied by the C library, which aligns what it writes.
pub(super) const LONGEST: usize = 512;

/// Copies runs of `run` bytes each, at least one and no more than [`LONGEST`], to shared memory or from
/// there.
///
/// # Safety
/// As [`store`](super::copy::store) or [`load`](super::copy::load), of each run.
pub(super) unsafe fn each(run: usize, runs: impl Each) {
    match run {
        // SAFETY: handed on.
        ..32 => unsafe { short(run, runs) },
        // SAFETY: handed on; those are the processor's.
        _ => unsafe { long(Vectors::here(), run, runs) },
    }
}

/// What copies runs of each of the lengths, and of those between others.
macro_rules! lengths {
    ($run:ident $runs:ident $vector:literal; $($bytes:literal)+; $($chunk:literal..$below:literal)+) => {
        match $run {
            // SAFETY: the caller's promise; each run has so many bytes.
            $($bytes => $runs.each(|dst, src| unsafe { piece::<$bytes, $vector>(dst, src) }),)+
            // SAFETY: the same; a run is no shorter than the chunk.
            $($chunk..$below => $runs.each(|dst, src| unsafe {
                chunks::<$chunk, $vector>(dst, src, $run);
            }),)+
            // None is shorter or longer.
            _ => {}
        }
    };
}

/// # Safety
/// As [`each`], of runs of less than 32 bytes.
unsafe fn short(run: usize, runs: impl Each) {
    lengths!(run runs 16; 1 2 4 8 16; 2..4 4..8 8..16 16..32);
}

/// # Safety
/// As [`each`], of runs of 32 bytes at least; the processor has the vectors.
unsafe fn long(vectors: Vectors, run: usize, runs: impl Each) {
    match vectors {
        Vectors::Sse2 => lengths!(run runs 16; 32 64; 32..64 64..513),
        Vectors::Avx2 => lengths!(run runs 32; 32 64 128 256; 32..64 64..128 128..513),
        Vectors::Avx512 => {
            lengths!(run runs 64; 32 64 128 256 512; 32..64 64..128 128..256 256..513)
        }
    }
    vectors.end();
}

/// Copies `len` bytes, `N` at least: `N` at a time, and those at the end once more where they are not a
/// multiple.
///
/// # Safety
/// As [`piece`], of all of them.
#[inline(always)]
unsafe fn chunks<const N: usize, const VECTOR: usize>(dst: *mut u8, src: *const u8, len: usize) {
    let last = len - N;
    let mut at = 0;
    while at < last {
        // SAFETY: handed on; at + N < len.
        unsafe { piece::<N, VECTOR>(dst.wrapping_add(at), src.wrapping_add(at)) }
        at += N;
    }
    // SAFETY: handed on.
    unsafe { piece::<N, VECTOR>(dst.wrapping_add(last), src.wrapping_add(last)) }
}

/// Copies `N` bytes, a power of two, by vectors of `VECTOR` bytes at most.
///
/// # Safety
/// As [`each`]; the processor has such vectors.
#[inline(always)]
unsafe fn piece<const N: usize, const VECTOR: usize>(dst: *mut u8, src: *const u8) {
    // SAFETY: handed on.
    unsafe {
        match (N, VECTOR) {
            (1, _) => move_1(dst, src),
            (2, _) => move_2(dst, src),
            (4, _) => move_4(dst, src),
            (8, _) => move_8(dst, src),
            (16, _) => move_16(dst, src),
            (32, 16) => move_32(dst, src),
            (32, _) => move_32_avx(dst, src),
            (64, 16) => move_64(dst, src),
            (64, 32) => move_64_avx(dst, src),
            (64, _) => move_64_avx512(dst, src),
            (128, 32) => move_128_avx(dst, src),
            (128, _) => move_128_avx512(dst, src),
            (256, 32) => chunks::<128, 32>(dst, src, 256),
            (256, _) => move_256_avx512(dst, src),
            _ => chunks::<256, 64>(dst, src, 512),
        }
    }
}

/// Moves of so many bytes from one place to another, either of which may be shared: all loads come
/// before the stores.
macro_rules! moves {
    ($($name:ident [$($value:tt)+] [$($line:literal),+];)+) => {$(
        /// # Safety
        /// As [`each`], of the bytes in its name; the processor has the vectors in its name.
        #[inline(always)]
        pub(super) unsafe fn $name(dst: *mut u8, src: *const u8) {
            // SAFETY: it loads bytes that are readable and stores them where they may be stored,
            // and nothing else.
            unsafe {
                asm!(
                    $($line,)+
                    to = in(reg) dst,
                    from = in(reg) src,
                    $($value)+,
                    options(nostack, preserves_flags),
                );
            }
        }
    )+};
}

moves! {
    move_1 [a = out(reg_byte) _] ["mov {a}, byte ptr [{from}]", "mov byte ptr [{to}], {a}"];
    move_2 [a = out(reg) _] ["movzx {a:e}, word ptr [{from}]", "mov word ptr [{to}], {a:x}"];
    move_4 [a = out(reg) _] ["mov {a:e}, dword ptr [{from}]", "mov dword ptr [{to}], {a:e}"];
    move_8 [a = out(reg) _] ["mov {a}, qword ptr [{from}]", "mov qword ptr [{to}], {a}"];
    move_16 [a = out(xmm_reg) _] ["movups {a}, [{from}]", "movups [{to}], {a}"];
    move_32 [a = out(xmm_reg) _, b = out(xmm_reg) _] [
        "movups {a}, [{from}]", "movups {b}, [{from} + 16]",
        "movups [{to}], {a}", "movups [{to} + 16], {b}"
    ];
    move_64 [a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _] [
        "movups {a}, [{from}]", "movups {b}, [{from} + 16]",
        "movups {c}, [{from} + 32]", "movups {d}, [{from} + 48]",
        "movups [{to}], {a}", "movups [{to} + 16], {b}",
        "movups [{to} + 32], {c}", "movups [{to} + 48], {d}"
    ];
    // Longer registers have no class where not all processors have them.
    move_32_avx [out("xmm0") _] ["vmovups ymm0, [{from}]", "vmovups [{to}], ymm0"];
    move_64_avx [out("xmm0") _, out("xmm1") _] [
        "vmovups ymm0, [{from}]", "vmovups ymm1, [{from} + 32]",
        "vmovups [{to}], ymm0", "vmovups [{to} + 32], ymm1"
    ];
    move_128_avx [out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _] [
        "vmovups ymm0, [{from}]", "vmovups ymm1, [{from} + 32]",
        "vmovups ymm2, [{from} + 64]", "vmovups ymm3, [{from} + 96]",
        "vmovups [{to}], ymm0", "vmovups [{to} + 32], ymm1",
        "vmovups [{to} + 64], ymm2", "vmovups [{to} + 96], ymm3"
    ];
    move_64_avx512 [out("xmm0") _] ["vmovups zmm0, [{from}]", "vmovups [{to}], zmm0"];
    move_128_avx512 [out("xmm0") _, out("xmm1") _] [
        "vmovups zmm0, [{from}]", "vmovups zmm1, [{from} + 64]",
        "vmovups [{to}], zmm0", "vmovups [{to} + 64], zmm1"
    ];
    move_256_avx512 [out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _] [
        "vmovups zmm0, [{from}]", "vmovups zmm1, [{from} + 64]",
        "vmovups zmm2, [{from} + 128]", "vmovups zmm3, [{from} + 192]",
        "vmovups [{to}], zmm0", "vmovups [{to} + 64], zmm1",
        "vmovups [{to} + 128], zmm2", "vmovups [{to} + 192], zmm3"
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One(*mut u8, *const u8);

    impl Each for One {
        fn each(self, copy: impl Fn(*mut u8, *const u8)) {
            copy(self.0, self.1);
        }
    }

    #[test]
    fn each_length_is_copied_by_each_kind_of_vectors() {
        let from: Vec<u8> = (0..LONGEST).map(|at| (at * 7 % 251 + 1) as u8).collect();
        for vectors in Vectors::all() {
            for len in 1..=LONGEST {
                let mut to = vec![0; LONGEST + 2];
                let one = One(to[1..].as_mut_ptr(), from.as_ptr());
                // SAFETY: both have so many bytes, of this test's own.
                unsafe {
                    match len {
                        ..32 => short(len, one),
                        _ => long(vectors, len, one),
                    }
                }
                assert_eq!(to[1..=len], from[..len], "{vectors:?}, {len} bytes");
                assert_eq!((to[0], to[len + 1]), (0, 0), "{vectors:?}, {len} bytes");
            }
        }
    }
}
