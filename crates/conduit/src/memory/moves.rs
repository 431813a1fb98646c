//! Copies of runs of a few hundred bytes: moved by instructions for just their length, which is looked
//! at once for many runs. To call the C library for each would take longer than the copy. And copies
//! of any length between addresses at which the C library's are slow.

use std::arch::asm;

use super::{
    copy::{self, Each},
    vectors::Vectors,
};

/// Longer runs are copied by the C library, which aligns what it writes.
pub(super) const LONGEST: usize = 512;

/// Copies runs of `run` bytes each, at least one and no more than [`LONGEST`], to shared memory or from
/// there.
///
/// # Safety
/// As [`store`](super::copy::store) or [`load`](super::copy::load), of each run.
pub(super) unsafe fn each(run: usize, runs: impl Each) {
    match run {
        // SAFETY: 1. handed on; 2. as was matched.
        ..32 => unsafe { short(run, runs) },
        // SAFETY: 1. handed on; 2. as was matched; 3. those are the processor's.
        _ => unsafe { long(Vectors::here(), run, runs) },
    }
}

/// The shortest copy that takes more than one such run.
const LONGER: usize = LONGEST + 1;

/// The C library does longer copies: beyond the first cache the memory limits the speed of any copy.
const LONGEST_BY_VECTORS: usize = 16 << 10;

/// Copies any number of bytes, to shared memory or from there. Up to 64 bytes use the vectors of all processors, so
/// that no check for longer ones is needed. Longer copies use the longest vectors there are. For a few thousand bytes
/// the C library takes up to twice as long where it uses the processor's string instructions.
///
/// # Safety
/// As [`store`](super::copy::store) or [`load`](super::copy::load).
#[inline(never)]
pub(super) unsafe fn any(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: 1. handed on; 2. all processors have the vectors.
    unsafe {
        match len {
            64 => move_64(dst, src),
            65..=128 => chunks::<64, 16>(dst, src, len),
            32..64 => chunks::<32, 16>(dst, src, len),
            16..32 => chunks::<16, 16>(dst, src, len),
            8..16 => chunks::<8, 16>(dst, src, len),
            _ => any_other(dst, src, len),
        }
    }
}

/// As [`any`], of fewer than 8 bytes or more than 128: by itself, because what it keeps in registers would have to be
/// saved for the others, too.
///
/// # Safety
/// As there.
#[inline(never)]
unsafe fn any_other(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: 1. handed on; 2. those are the processor's; 3. none is shorter or longer.
    unsafe {
        match len {
            ..32 => short(len, One(dst, src)),
            32..=LONGEST => long(Vectors::here(), len, One(dst, src)),
            LONGER..=LONGEST_BY_VECTORS => long_way(dst, src, len),
            _ => copy::bulk(dst, src, len),
        }
    }
}

/// A run by itself.
struct One(*mut u8, *const u8);

impl Each for One {
    #[inline(always)]
    fn each(self, act: impl Fn(*mut u8, *const u8)) {
        act(self.0, self.1);
    }
}

/// The C library copies by the processor's string instructions from here on, at the least.
const STRINGS: usize = 2048;
/// And up to here: beyond the caches it moves vectors itself.
const MOST_BY_STRINGS: usize = 1 << 20;
/// Where pages begin.
const PAGE: usize = 4096;
/// How near in their pages two addresses must be.
const NEAR: usize = 32;

/// Whether a copy is better done by [`long_way`]. Some processors (Zen 3 and 4, at least) take ten to
/// twenty times as long for string instructions if what is written lies a few bytes further in its page
/// than what is read: they take each load for one of what was just stored. So it is between a large
/// buffer of the C library's allocator, which begins 16 bytes behind a page, and memory that begins a page.
#[inline]
pub(super) fn is_slow_by_strings(dst: *mut u8, src: *const u8, len: usize) -> bool {
    let ahead = dst.addr().wrapping_sub(src.addr()) % PAGE;
    (STRINGS..MOST_BY_STRINGS).contains(&len) && (1..NEAR).contains(&ahead)
}

/// Copies any number of bytes from 512 on by vectors. It goes backwards if the target's offset in its page is
/// slightly above the source's. So no load has the page offset of a recent store, which processors would take for the
/// same place.
///
/// # Safety
/// As [`store`](super::copy::store) or [`load`](super::copy::load).
#[inline(never)]
pub(super) unsafe fn long_way(dst: *mut u8, src: *const u8, len: usize) {
    let vectors = Vectors::here();
    let ahead = dst.addr().wrapping_sub(src.addr()) % PAGE;
    let from_behind = (1..PAGE / 2).contains(&ahead);
    // SAFETY: 1. handed on; 2. those are the processor's.
    unsafe {
        match (vectors, from_behind) {
            (Vectors::Sse2, false) => chunks::<64, 16>(dst, src, len),
            (Vectors::Sse2, true) => chunks_from_behind::<64, 16>(dst, src, len),
            (Vectors::Avx2, false) => chunks::<128, 32>(dst, src, len),
            (Vectors::Avx2, true) => chunks_from_behind::<128, 32>(dst, src, len),
            (Vectors::Avx512, false) => chunks::<256, 64>(dst, src, len),
            (Vectors::Avx512, true) => chunks_from_behind::<256, 64>(dst, src, len),
        }
    }
    vectors.end();
}

/// What is written at once past the caches: a line of them.
const PAST: usize = 64;

/// Copies past the caches, and lets nothing be seen of what is stored behind it before the copy is.
///
/// # Safety
/// As [`store`](super::copy::store).
pub(super) unsafe fn past_caches(dst: *mut u8, src: *const u8, len: usize) {
    let head = dst.addr().wrapping_neg() % PAST;
    let (head, lines) = match len.checked_sub(head) {
        Some(rest) => (head, rest / PAST * PAST),
        None => (len, 0),
    };
    // SAFETY: 1. handed on, of a part; 2. in the loop the target is a multiple of 64.
    unsafe {
        copy::store(dst, src, head);
        for at in (head..head + lines).step_by(PAST) {
            past_64(dst.wrapping_add(at), src.wrapping_add(at));
        }
        let rest = head + lines;
        copy::store(dst.wrapping_add(rest), src.wrapping_add(rest), len - rest);
        // SAFETY: it orders stores, and touches nothing.
        asm!("sfence", options(nostack, preserves_flags));
    }
}

/// # Safety
/// 1. As [`past_caches`], of 64 bytes.
/// 2. `dst` is a multiple of 16.
#[inline(always)]
unsafe fn past_64(dst: *mut u8, src: *const u8) {
    // SAFETY: it loads bytes that are readable and stores them where they may be stored (1.), at an
    // address that is aligned as `movntps` wants it (2.), and nothing else.
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
/// 1. As [`each`].
/// 2. `run` is less than 32.
unsafe fn short(run: usize, runs: impl Each) {
    lengths!(run runs 16; 1 2 4 8 16; 2..4 4..8 8..16 16..32);
}

/// # Safety
/// 1. As [`each`].
/// 2. `run` is 32 at least.
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

/// As [`chunks`], with the last chunks first.
///
/// # Safety
/// The same.
#[inline(always)]
unsafe fn chunks_from_behind<const N: usize, const VECTOR: usize>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
) {
    let mut at = len - N;
    while at > 0 {
        // SAFETY: handed on; at + N <= len.
        unsafe { piece::<N, VECTOR>(dst.wrapping_add(at), src.wrapping_add(at)) }
        at = at.saturating_sub(N);
    }
    // SAFETY: handed on.
    unsafe { piece::<N, VECTOR>(dst, src) }
}

/// Copies `N` bytes, a power of two, by vectors of `VECTOR` bytes at most.
///
/// # Safety
/// 1. As [`each`].
/// 2. The processor has such vectors.
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
        /// 1. As [`each`], of the bytes in its name.
        /// 2. The processor has the vectors in its name.
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

/// Moves of elements of so many bytes, each a step further than the one before. The loop is part of the block: so it
/// has its counters in registers, whatever is around it. Stores of such to the stack fill the queue in which those to
/// lines far away wait.
macro_rules! columns {
    ($($name:ident [$($value:tt)+] $load:literal $store:literal;)+) => {$(
        /// # Safety
        /// 1. As [`each`], of `count` elements of the bytes in its name.
        /// 2. There is one, at least.
        #[inline(always)]
        pub(super) unsafe fn $name(
            dst: *mut u8,
            src: *const u8,
            [to, from]: [usize; 2],
            count: usize,
        ) {
            // SAFETY: it loads elements that are readable and stores them where they may be stored (1.), as many as
            // there are (2.), and nothing else.
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
                // SAFETY: both have so many bytes, of this test's own.
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
                // SAFETY: both have so many bytes, of this test's own.
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
            // SAFETY: both have so many bytes, of this test's own.
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
