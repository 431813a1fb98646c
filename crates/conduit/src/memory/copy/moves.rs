//! Copies of runs of a few hundred bytes, and long copies at unfavourable addresses.

use std::arch::asm;

use super::{super::vectors::Vectors, Each, bulk, store};

/// The longest run that is copied here. The C library copies longer runs, and aligns its stores.
pub(super) const LONGEST: usize = 512;

/// Copies runs of `run` bytes each, between 1 and [`LONGEST`], to or from shared memory.
///
/// # Safety
/// 1. The conditions of [`store`] or [`load`](super::load), for each run.
pub(super) unsafe fn each(run: usize, runs: impl Each) {
    match run {
        // SAFETY: 1. condition 1 of this function. 2. The length was matched.
        ..32 => unsafe { short(run, runs) },
        // SAFETY: 1. condition 1 of this function. 2. The length was matched. 3. These are the
        // processor's vectors.
        _ => unsafe { long(Vectors::here(), run, runs) },
    }
}

/// The shortest run that is not copied as a single run.
const LONGER: usize = LONGEST + 1;

/// The longest copy by vectors. The C library makes longer copies: beyond the first cache, memory
/// limits the speed of any copy.
const LONGEST_BY_VECTORS: usize = 16 << 10;

/// Copies any number of bytes, to or from shared memory. Copies up to 64 bytes use the vectors that
/// all processors have, so they need no check for longer vectors. Longer copies use the processor's
/// longest vectors. For a few thousand bytes the C library takes up to twice as long if it uses the
/// processor's string instructions.
///
/// # Safety
/// 1. The conditions of [`store`] or [`load`](super::load).
#[inline(never)]
pub(super) unsafe fn any(dst: *mut u8, src: *const u8, len: usize) {
    macro_rules! chunks_of {
        ($bytes:literal) => {
            // SAFETY: 1. condition 1 of this function. 2. All processors have these vectors.
            unsafe { chunks::<$bytes, 16>(dst, src, len) }
        };
    }
    match len {
        // SAFETY: 1. condition 1 of this function. 2. All processors have these vectors.
        64 => unsafe { move_64(dst, src) },
        65..=128 => chunks_of!(64),
        32..64 => chunks_of!(32),
        16..32 => chunks_of!(16),
        8..16 => chunks_of!(8),
        // SAFETY: 1. condition 1 of this function.
        _ => unsafe { any_other(dst, src, len) },
    }
}

/// Like [`any`], for fewer than 8 bytes or more than 128. It is a function of its own, because the
/// other copies would have to save its registers, too.
///
/// # Safety
/// 1. Condition 1 of [`any`].
#[inline(never)]
unsafe fn any_other(dst: *mut u8, src: *const u8, len: usize) {
    let one = SingleCopy(dst, src);
    match len {
        // SAFETY: 1. condition 1 of this function. 2. The length was matched.
        ..32 => unsafe { short(len, one) },
        // SAFETY: 1. condition 1 of this function. 2. The length was matched. 3. These are the
        // processor's vectors.
        32..=LONGEST => unsafe { long(Vectors::here(), len, one) },
        // SAFETY: 1. condition 1 of this function.
        LONGER..=LONGEST_BY_VECTORS => unsafe { long_way(dst, src, len) },
        // SAFETY: the conditions of `store` or `load`, by condition 1 of this function.
        _ => unsafe { bulk(dst, src, len) },
    }
}

/// A single run.
struct SingleCopy(*mut u8, *const u8);

impl Each for SingleCopy {
    #[inline(always)]
    fn each(self, act: impl Fn(*mut u8, *const u8)) {
        act(self.0, self.1);
    }
}

/// The least bytes for which the C library uses the processor's string instructions.
const STRINGS: usize = 2048;
/// The most bytes for which it does. Beyond the caches it moves vectors.
const MOST_BY_STRINGS: usize = 1 << 20;
/// The bytes of a page.
const PAGE: usize = 4096;
/// The distance of two page offsets at which string instructions are slow.
const NEAR: usize = 32;

/// Returns true if [`long_way`] is better for a copy. Some processors (at least Zen 3 and 4) take
/// ten to twenty times as long for string instructions if the target's page offset is a few bytes
/// above the source's. They take each load for one of the bytes just stored. This happens between a
/// large buffer of the C library's allocator, which begins 16 bytes into a page, and memory that
/// begins a page.
#[inline]
pub(super) fn is_slow_by_strings(dst: *mut u8, src: *const u8, len: usize) -> bool {
    let ahead = dst.addr().wrapping_sub(src.addr()) % PAGE;
    (STRINGS..MOST_BY_STRINGS).contains(&len) && (1..NEAR).contains(&ahead)
}

/// Copies any number of bytes from 512 on by vectors. The copy goes backwards if the target's page
/// offset is slightly above the source's. No load then has the page offset of a recent store, which
/// processors would take for the same address.
///
/// # Safety
/// 1. The conditions of [`store`] or [`load`](super::load).
#[inline(never)]
pub(super) unsafe fn long_way(dst: *mut u8, src: *const u8, len: usize) {
    let vectors = Vectors::here();
    let ahead = dst.addr().wrapping_sub(src.addr()) % PAGE;
    let from_behind = (1..PAGE / 2).contains(&ahead);
    macro_rules! by {
        ($chunks:ident, $bytes:literal, $vector:literal) => {
            // SAFETY: 1. condition 1 of this function. 2. These are the processor's vectors.
            unsafe { $chunks::<$bytes, $vector>(dst, src, len) }
        };
    }
    match (vectors, from_behind) {
        (Vectors::Sse2, false) => by!(chunks, 64, 16),
        (Vectors::Sse2, true) => by!(chunks_from_behind, 64, 16),
        (Vectors::Avx2, false) => by!(chunks, 128, 32),
        (Vectors::Avx2, true) => by!(chunks_from_behind, 128, 32),
        (Vectors::Avx512, false) => by!(chunks, 256, 64),
        (Vectors::Avx512, true) => by!(chunks_from_behind, 256, 64),
    }
    vectors.end();
}

/// The bytes of one write past the caches: a cache line.
const PAST: usize = 64;

/// Copies past the caches. A later store is not visible before the copy.
///
/// # Safety
/// 1. The conditions of [`store`].
pub(super) unsafe fn past_caches(dst: *mut u8, src: *const u8, len: usize) {
    let head = dst.addr().wrapping_neg() % PAST;
    let (head, lines) = match len.checked_sub(head) {
        Some(rest) => (head, rest / PAST * PAST),
        None => (len, 0),
    };
    // SAFETY: condition 1 of this function, for the first part.
    unsafe { store(dst, src, head) };
    for at in (head..head + lines).step_by(PAST) {
        // SAFETY: 1. condition 1 of this function, for a line. 2. The target is a multiple of 64.
        unsafe { past_64(dst.wrapping_add(at), src.wrapping_add(at)) };
    }
    let rest = head + lines;
    // SAFETY: condition 1 of this function, for the last part.
    unsafe { store(dst.wrapping_add(rest), src.wrapping_add(rest), len - rest) };
    // SAFETY: the instruction orders stores, and touches no memory.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

/// # Safety
/// 1. Condition 1 of [`past_caches`], for 64 bytes.
/// 2. `dst` is a multiple of 16.
#[inline(always)]
unsafe fn past_64(dst: *mut u8, src: *const u8) {
    // SAFETY: the block loads readable bytes and stores them to writable memory (1.), at an address
    // that is aligned for `movntps` (2.), and nothing else.
    unsafe {
        asm!(
            "movups {a}, [{from}]", "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]", "movups {d}, [{from} + 48]",
            "movntps [{to}], {a}", "movntps [{to} + 16], {b}",
            "movntps [{to} + 32], {c}", "movntps [{to} + 48], {d}",
            to = in(reg) dst,
            from = in(reg) src,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies runs of each listed length, and of the lengths between the listed chunks.
macro_rules! lengths {
    ($run:ident $runs:ident $vector:literal; $($bytes:literal)+; $($chunk:literal..$below:literal)+) => {
        match $run {
            // SAFETY: 1. and 2. the conditions of the calling function; each run has this many
            // bytes.
            $($bytes => $runs.each(|dst, src| unsafe { piece::<$bytes, $vector>(dst, src) }),)+
            // SAFETY: 1. and 2. the conditions of the calling function; a run is no shorter than
            // the chunk.
            $($chunk..$below => $runs.each(|dst, src| unsafe {
                chunks::<$chunk, $vector>(dst, src, $run);
            }),)+
            // No run is shorter or longer.
            _ => {}
        }
    };
}

/// # Safety
/// 1. Condition 1 of [`each`].
/// 2. `run` is less than 32.
unsafe fn short(run: usize, runs: impl Each) {
    lengths!(run runs 16; 1 2 4 8 16; 2..4 4..8 8..16 16..32);
}

/// # Safety
/// 1. Condition 1 of [`each`].
/// 2. `run` is at least 32.
/// 3. The processor has the vectors.
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

/// Copies `len` bytes, at least `N`: `N` at a time. If `len` is not a multiple of `N`, the last `N`
/// bytes overlap the ones before.
///
/// # Safety
/// The conditions 1 and 2 of [`piece`], for all bytes.
#[inline(always)]
unsafe fn chunks<const N: usize, const VECTOR: usize>(dst: *mut u8, src: *const u8, len: usize) {
    let last = len - N;
    let mut at = 0;
    while at < last {
        // SAFETY: 1. and 2. the conditions of this function; at + N < len.
        unsafe { piece::<N, VECTOR>(dst.wrapping_add(at), src.wrapping_add(at)) }
        at += N;
    }
    // SAFETY: 1. and 2. the conditions of this function, for the last `N` bytes.
    unsafe { piece::<N, VECTOR>(dst.wrapping_add(last), src.wrapping_add(last)) }
}

/// Like [`chunks`], with the last chunks first.
///
/// # Safety
/// The conditions 1 and 2 of [`chunks`].
#[inline(always)]
unsafe fn chunks_from_behind<const N: usize, const VECTOR: usize>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
) {
    let mut at = len - N;
    while at > 0 {
        // SAFETY: 1. and 2. the conditions of this function; at + N <= len.
        unsafe { piece::<N, VECTOR>(dst.wrapping_add(at), src.wrapping_add(at)) }
        at = at.saturating_sub(N);
    }
    // SAFETY: 1. and 2. the conditions of this function, for the first `N` bytes.
    unsafe { piece::<N, VECTOR>(dst, src) }
}

/// Copies `N` bytes, a power of two, by vectors of at most `VECTOR` bytes.
///
/// # Safety
/// 1. Condition 1 of [`each`], for `N` bytes.
/// 2. The processor has such vectors.
#[inline(always)]
unsafe fn piece<const N: usize, const VECTOR: usize>(dst: *mut u8, src: *const u8) {
    macro_rules! by {
        ($move:ident) => {
            // SAFETY: 1. and 2. the conditions of this function: the move copies `N` bytes by
            // vectors of at most `VECTOR` bytes.
            unsafe { $move(dst, src) }
        };
        ($bytes:literal, $vector:literal) => {
            // SAFETY: 1. and 2. the conditions of this function: `N` is a multiple of these bytes.
            unsafe { chunks::<$bytes, $vector>(dst, src, N) }
        };
    }
    match (N, VECTOR) {
        (1, _) => by!(move_1),
        (2, _) => by!(move_2),
        (4, _) => by!(move_4),
        (8, _) => by!(move_8),
        (16, _) => by!(move_16),
        (32, 16) => by!(move_32),
        (32, _) => by!(move_32_avx),
        (64, 16) => by!(move_64),
        (64, 32) => by!(move_64_avx),
        (64, _) => by!(move_64_avx512),
        (128, 32) => by!(move_128_avx),
        (128, _) => by!(move_128_avx512),
        (256, 32) => by!(128, 32),
        (256, _) => by!(move_256_avx512),
        _ => by!(256, 64),
    }
}

/// Moves of a fixed number of bytes, to or from shared memory. All loads come before the stores.
macro_rules! moves {
    ($($name:ident [$($value:tt)+] [$($line:literal),+];)+) => {$(
        /// # Safety
        /// 1. Condition 1 of [`each`], for the bytes in its name.
        /// 2. The processor has the vectors in its name.
        #[inline(always)]
        pub(super) unsafe fn $name(dst: *mut u8, src: *const u8) {
            // SAFETY: the block loads readable bytes and stores them to writable memory (1.), with
            // vectors of this processor (2.), and nothing else.
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
    // Longer registers have no class if not all processors have them.
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

/// Moves of elements at equal steps. The loop is part of the block, so its counters are in
/// registers, whatever code is around it. Counters on the stack would fill the store queue, in
/// which stores to distant lines wait.
macro_rules! columns {
    ($($name:ident [$($value:tt)+] $load:literal $store:literal;)+) => {$(
        /// # Safety
        /// 1. Condition 1 of [`each`], for `count` elements of the bytes in its name.
        /// 2. `count` is at least 1.
        #[inline(always)]
        pub(super) unsafe fn $name(
            dst: *mut u8,
            src: *const u8,
            [to, from]: [usize; 2],
            count: usize,
        ) {
            // SAFETY: the block loads `count` readable elements and stores them to writable memory
            // (1.). `count` is not 0 (2.), so the loop ends with the last element. It touches
            // nothing else.
            unsafe {
                asm!(
                    ".p2align 4",
                    "2:",
                    $load,
                    $store,
                    "add {to}, {to_step}",
                    "add {from}, {from_step}",
                    "dec {count}",
                    "jnz 2b",
                    to = inout(reg) dst => _,
                    from = inout(reg) src => _,
                    count = inout(reg) count => _,
                    to_step = in(reg) to,
                    from_step = in(reg) from,
                    $($value)+,
                    options(nostack),
                );
            }
        }
    )+};
}

columns! {
    column_4 [a = out(reg) _] "mov {a:e}, dword ptr [{from}]" "mov dword ptr [{to}], {a:e}";
    column_8 [a = out(reg) _] "mov {a}, qword ptr [{from}]" "mov qword ptr [{to}], {a}";
    column_16 [a = out(xmm_reg) _] "movups {a}, [{from}]" "movups [{to}], {a}";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_bytes_arrives_and_nothing_else_is_touched() {
        let from: Vec<u8> = (0..40_000).map(|at| (at * 7 % 251 + 1) as u8).collect();
        let lens = (0..700).chain([4095, 4096, 4097, 16 << 10, (16 << 10) + 1, 39_000]);
        for len in lens {
            for (start, first) in [(64, 0), (65, 3), (80, 16), (0, 64)] {
                let mut to = vec![0; len + 200];
                // SAFETY: both buffers have this many bytes, and are this test's own.
                unsafe { any(to[start..].as_mut_ptr(), from[first..].as_ptr(), len) };
                assert_eq!(to[start..][..len], from[first..][..len], "{len} bytes");
                let around = [&to[..start], &to[start + len..]].concat();
                assert!(around.iter().all(|byte| *byte == 0), "{len} bytes");
            }
        }
    }

    #[test]
    fn copies_past_the_caches_arrive_and_touch_nothing_else() {
        let from: Vec<u8> = (0..1000).map(|at| (at * 7 % 251 + 1) as u8).collect();
        for start in [0, 1, 15, 16, 63, 64] {
            for len in [0, 1, 17, 63, 64, 65, 200, 700] {
                let mut to = vec![0_u8; 900];
                // SAFETY: both buffers have this many bytes, and are this test's own.
                unsafe { past_caches(to[start..].as_mut_ptr(), from[3..].as_ptr(), len) };
                assert_eq!(to[start..][..len], from[3..][..len], "{start}, {len} bytes");
                let around = [&to[..start], &to[start + len..]].concat();
                assert!(around.iter().all(|byte| *byte == 0), "{start}, {len} bytes");
            }
        }
    }

    #[test]
    fn long_copies_between_near_addresses_arrive() {
        let from: Vec<u8> = (0..5 * PAGE).map(|at| (at * 7 % 251 + 1) as u8).collect();
        let mut to = vec![0_u8; 6 * PAGE];
        let at = from.as_ptr().addr() % PAGE + PAGE - to.as_ptr().addr() % PAGE;
        for (ahead, len) in [(1, 2048), (16, 3 * PAGE + 77), (31, 4 * PAGE), (16, 4099)] {
            to.fill(0);
            let start = (at + ahead) % PAGE;
            let dst = to[start..].as_mut_ptr();
            assert!(is_slow_by_strings(dst, from.as_ptr(), len));
            // SAFETY: both buffers have this many bytes, and are this test's own.
            unsafe { long_way(dst, from.as_ptr(), len) };
            assert_eq!(
                to[start..][..len],
                from[..len],
                "{ahead} ahead, {len} bytes"
            );
            let around = [&to[..start], &to[start + len..]].concat();
            assert!(
                around.iter().all(|byte| *byte == 0),
                "{ahead} ahead, {len} bytes"
            );
        }
        let (dst, src) = (to.as_mut_ptr(), to.as_ptr());
        assert!(
            !is_slow_by_strings(dst, src, 4 * PAGE),
            "the same place in a page"
        );
        assert!(!is_slow_by_strings(dst.wrapping_add(NEAR), src, 4 * PAGE));
        assert!(!is_slow_by_strings(dst.wrapping_add(1), src, STRINGS - 1));
    }

    #[test]
    fn each_length_is_copied_by_each_kind_of_vectors() {
        let from: Vec<u8> = (0..LONGEST).map(|at| (at * 7 % 251 + 1) as u8).collect();
        for vectors in Vectors::all() {
            for len in 1..=LONGEST {
                let mut to = vec![0; LONGEST + 2];
                let one = SingleCopy(to[1..].as_mut_ptr(), from.as_ptr());
                match len {
                    // SAFETY: 1. both buffers have this many bytes, and are this test's own.
                    // 2. The length was matched.
                    ..32 => unsafe { short(len, one) },
                    // SAFETY: 1. and 2. as above. 3. The processor has all these vectors.
                    _ => unsafe { long(vectors, len, one) },
                }
                assert_eq!(to[1..=len], from[..len], "{vectors:?}, {len} bytes");
                assert_eq!((to[0], to[len + 1]), (0, 0), "{vectors:?}, {len} bytes");
            }
        }
    }
}
