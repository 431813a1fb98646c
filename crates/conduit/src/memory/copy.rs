//! Copies between private memory and memory that other processes may be touching.
//!
//! A racing `copy_nonoverlapping` is undefined behaviour. So are atomic accesses of different
//! sizes to the same bytes, unless they are ordered otherwise, and nobody keeps one rank from
//! putting four bytes where another gets eight, or where a third changes a word: ranks may be
//! threads of one process. So no copy is an atomic access of Rust's. Words are moved by one
//! instruction each, in an `asm!` block, and longer copies call the C library's `memcpy` from one:
//! the compiler knows nothing of what the block does to the memory it is given, so the copy means
//! what the machine does, as when another process did it. There, a race gives torn data, never
//! worse, and an aligned word is never torn. What is left to Rust's atomics are the atomic
//! operations on words, each of one size for as long as the memory has one type.
//!
//! Where `asm!` is not written here, and under miri, words are atomics of their own size.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::moves;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Up to this length, a copy word by word is faster than a call, on processors without moves of our own.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
const SMALL: usize = 64;

/// Bytes of a cache line. A copy of a line is inlined as a few moves.
const LINE: usize = 64;

/// Returns whether a word of so many bytes can be moved as one: x86-64 moves words at any address.
#[inline(always)]
fn is_word(at: *const u8, bytes: usize) -> bool {
    cfg!(all(target_arch = "x86_64", not(miri))) || at.addr().is_multiple_of(bytes)
}

/// Copies private memory into shared memory.
///
/// # Safety
/// 1. `src` is readable for `len` bytes and nobody writes to it meanwhile.
/// 2. `dst` is mapped and writable for `len` bytes; all concurrent accesses to it are
///    atomic ones or come from outside this program's view (peers, `asm!`, the kernel).
/// 3. The two do not overlap.
#[inline]
pub(super) unsafe fn store(dst: *mut u8, src: *const u8, len: usize) {
    if len == 8 && is_word(dst, 8) {
        // SAFETY: (1), (2); it is a word's address.
        unsafe { put_8(dst, src.cast::<u64>().read_unaligned()) }
    } else if len == 4 && is_word(dst, 4) {
        // SAFETY: (1), (2); it is a word's address.
        unsafe { put_4(dst, src.cast::<u32>().read_unaligned()) }
    } else if cfg!(all(target_arch = "x86_64", not(miri))) && len == LINE {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: handed on.
        unsafe {
            moves::move_64(dst, src);
        }
    } else {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: handed on.
        unsafe {
            moves::any(dst, src, len);
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        if len <= SMALL && (dst.addr() | len).is_multiple_of(8) {
            for at in (0..len).step_by(8) {
                // SAFETY: (1), (2); at + 8 <= len, and the address is a multiple of 8.
                unsafe { put_8(dst.add(at), src.add(at).cast::<u64>().read_unaligned()) }
            }
        } else {
            // SAFETY: handed on.
            unsafe { bulk(dst, src, len) }
        }
    }
}

/// As [`store`], past the caches: for bytes that other processors have in theirs, from a copy before, and
/// are to read next. To take each line from them first takes several times as long as the copy. Whoever sees
/// what is stored behind it sees the bytes.
///
/// # Safety
/// As [`store`].
pub(super) unsafe fn store_past_caches(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: handed on.
    unsafe {
        moves::past_caches(dst, src, len);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: handed on.
    unsafe {
        store(dst, src, len);
    }
}

/// Copies shared memory into private memory.
///
/// # Safety
/// As [`store`], with the roles of `dst` and `src` exchanged.
#[inline]
pub(super) unsafe fn load(dst: *mut u8, src: *const u8, len: usize) {
    if len == 8 && is_word(src, 8) {
        // SAFETY: as in `store`; it is a word's address.
        unsafe { dst.cast::<u64>().write_unaligned(take_8(src)) }
    } else if len == 4 && is_word(src, 4) {
        // SAFETY: as in `store`; it is a word's address.
        unsafe { dst.cast::<u32>().write_unaligned(take_4(src)) }
    } else if cfg!(all(target_arch = "x86_64", not(miri))) && len == LINE {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: handed on.
        unsafe {
            moves::move_64(dst, src);
        }
    } else {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: handed on.
        unsafe {
            moves::any(dst, src, len);
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        if len <= SMALL && (src.addr() | len).is_multiple_of(8) {
            for at in (0..len).step_by(8) {
                // SAFETY: as in `store`; at + 8 <= len, and the address is a multiple of 8.
                unsafe {
                    dst.add(at)
                        .cast::<u64>()
                        .write_unaligned(take_8(src.add(at)))
                }
            }
        } else {
            // SAFETY: handed on.
            unsafe { bulk(dst, src, len) }
        }
    }
}

/// Which side of a copy is what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    IntoWindow,
    OutOfWindow,
}

impl Direction {
    /// What the side has that is written, and what the side that is read, of what the window has and
    /// private memory.
    #[inline]
    pub(super) fn order<T>(self, [window, private]: [T; 2]) -> [T; 2] {
        match self {
            Direction::IntoWindow => [window, private],
            Direction::OutOfWindow => [private, window],
        }
    }
}

/// Many runs of one length.
pub(super) trait Each {
    /// Calls `act` for each, in order, with where it goes and where it comes from.
    fn each(self, act: impl Fn(*mut u8, *const u8));
}

/// Copies runs of `run` bytes each, one at least.
///
/// # Safety
/// As [`store`] if they go into a window, else as [`load`], of each run.
#[inline]
#[cfg_attr(all(target_arch = "x86_64", not(miri)), allow(unused_variables))] // it moves either way
pub(super) unsafe fn each(run: usize, direction: Direction, runs: impl Each) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    match run {
        // SAFETY: handed on.
        ..=moves::LONGEST => unsafe { moves::each(run, runs) },
        // SAFETY: handed on.
        _ => runs.each(|dst, src| unsafe { moves::any(dst, src, run) }),
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    match direction {
        // SAFETY: handed on.
        Direction::IntoWindow => runs.each(|dst, src| unsafe { store(dst, src, run) }),
        // SAFETY: handed on.
        Direction::OutOfWindow => runs.each(|dst, src| unsafe { load(dst, src, run) }),
    }
}

/// Copies an element of so many bytes.
///
/// # Safety
/// As [`store`] if it goes into a window, else as [`load`].
#[inline(always)]
pub(super) unsafe fn element(direction: Direction, dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: handed on; the length is that of each.
    unsafe {
        match len {
            4 => return moves::move_4(dst, src),
            8 => return moves::move_8(dst, src),
            16 => return moves::move_16(dst, src),
            _ => {}
        }
    }
    match direction {
        // SAFETY: handed on.
        Direction::IntoWindow => unsafe { store(dst, src, len) },
        // SAFETY: handed on.
        Direction::OutOfWindow => unsafe { load(dst, src, len) },
    }
}

/// Copies elements of 4, 8 or 16 bytes, one at least, each so many bytes further than the one before: where they go, and
/// where they come from.
///
/// # Safety
/// As [`store`] if they go into a window, else as [`load`], of each.
#[inline(always)]
#[cfg_attr(all(target_arch = "x86_64", not(miri)), allow(unused_variables))] // it moves either way
pub(super) unsafe fn column(
    direction: Direction,
    (dst, src): (*mut u8, *const u8),
    steps: [usize; 2],
    element: usize,
    count: usize,
) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: handed on; there is one.
    unsafe {
        match element {
            4 => moves::column_4(dst, src, steps, count),
            8 => moves::column_8(dst, src, steps, count),
            _ => moves::column_16(dst, src, steps, count),
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for at in 0..count {
        let [to, from] = steps.map(|step| step * at);
        let (dst, src) = (dst.wrapping_add(to), src.wrapping_add(from));
        // SAFETY: handed on, of one.
        unsafe { self::element(direction, dst, src, element) }
    }
}

/// Moves of one word, put to shared memory and taken from it.
macro_rules! word {
    ($put:ident, $take:ident, $word:ty, $atomic:ident, $store:literal, $load:literal) => {
        /// # Safety
        /// Condition 2 of [`store`], for a word that [is one](is_word).
        #[inline(always)]
        unsafe fn $put(dst: *mut u8, value: $word) {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: it stores the word, which is ours to store, and nothing else.
            unsafe {
                std::arch::asm!(
                    $store,
                    at = in(reg) dst,
                    value = in(reg) value,
                    options(nostack, preserves_flags),
                );
            }
            #[cfg(not(all(target_arch = "x86_64", not(miri))))]
            // SAFETY: the caller's promise.
            unsafe {
                $atomic::from_ptr(dst.cast()).store(value, Relaxed)
            }
        }

        /// # Safety
        /// Condition 2 of [`store`], for a word that [is one](is_word) and is only read.
        #[inline(always)]
        unsafe fn $take(src: *const u8) -> $word {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            {
                let value: $word;
                // SAFETY: it loads the word, which is mapped, and changes nothing.
                unsafe {
                    std::arch::asm!(
                        $load,
                        at = in(reg) src,
                        value = out(reg) value,
                        options(nostack, preserves_flags),
                    );
                }
                value
            }
            #[cfg(not(all(target_arch = "x86_64", not(miri))))]
            // SAFETY: the caller's promise.
            unsafe {
                $atomic::from_ptr(src.cast_mut().cast()).load(Relaxed)
            }
        }
    };
}

word!(
    put_8,
    take_8,
    u64,
    AtomicU64,
    "mov qword ptr [{at}], {value}",
    "mov {value}, qword ptr [{at}]"
);
word!(
    put_4,
    take_4,
    u32,
    AtomicU32,
    "mov dword ptr [{at}], {value:e}",
    "mov {value:e}, dword ptr [{at}]"
);

/// Sets shared memory to one byte value.
///
/// # Safety
/// Condition 2 of [`store`].
pub(super) unsafe fn fill(dst: *mut u8, value: u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: `memset` writes `len` bytes at `dst`, which are ours to write; it follows the
    // C calling convention, whose clobbers are declared.
    unsafe {
        std::arch::asm!(
            "call {memset}",
            memset = sym libc_memset,
            inout("rdi") dst => _,
            inout("rsi") usize::from(value) => _,
            inout("rdx") len => _,
            clobber_abi("C"),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for at in 0..len {
        // SAFETY: at < len.
        unsafe { AtomicU8::from_ptr(dst.add(at)).store(value, Relaxed) }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe extern "C" {
    #[link_name = "memcpy"]
    fn libc_memcpy(dst: *mut u8, src: *const u8, len: usize) -> *mut u8;
    #[link_name = "memset"]
    fn libc_memset(dst: *mut u8, value: i32, len: usize) -> *mut u8;
}

/// A copy of any length.
///
/// # Safety
/// As [`store`] or [`load`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(super) unsafe fn bulk(dst: *mut u8, src: *const u8, len: usize) {
    if moves::is_slow_by_strings(dst, src, len) {
        // SAFETY: handed on.
        return unsafe { moves::long_way(dst, src, len) };
    }
    // SAFETY: `memcpy` reads `len` bytes at `src` and writes them to `dst`, which the
    // caller vouches for; it follows the C calling convention, whose clobbers are declared.
    unsafe {
        std::arch::asm!(
            "call {memcpy}",
            memcpy = sym libc_memcpy,
            inout("rdi") dst => _,
            inout("rsi") src => _,
            inout("rdx") len => _,
            clobber_abi("C"),
        );
    }
}

/// A copy of any length, byte by byte: for machines whose `asm!` is not written here, and
/// for miri.
///
/// # Safety
/// As [`store`] or [`load`].
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn bulk(dst: *mut u8, src: *const u8, len: usize) {
    for at in 0..len {
        // SAFETY: at < len. A volatile read of the private side is as good as an atomic
        // one, and needs no write permission on it.
        unsafe { AtomicU8::from_ptr(dst.add(at)).store(src.add(at).read_volatile(), Relaxed) }
    }
}
