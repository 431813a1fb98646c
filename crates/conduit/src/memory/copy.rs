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

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Up to here, word by word is faster than the call.
const SMALL: usize = 64;

/// Copies private memory into shared memory.
///
/// # Safety
/// 1. `src` is readable for `len` bytes and nobody writes to it meanwhile.
/// 2. `dst` is mapped and writable for `len` bytes; all concurrent accesses to it are
///    atomic ones or come from outside this program's view (peers, `asm!`, the kernel).
/// 3. The two do not overlap.
#[inline]
pub(super) unsafe fn store(dst: *mut u8, src: *const u8, len: usize) {
    if len == 8 && dst.addr().is_multiple_of(8) {
        // SAFETY: (1), (2); the address is a multiple of 8.
        unsafe { put_8(dst, src.cast::<u64>().read_unaligned()) }
    } else if len == 4 && dst.addr().is_multiple_of(4) {
        // SAFETY: (1), (2); the address is a multiple of 4.
        unsafe { put_4(dst, src.cast::<u32>().read_unaligned()) }
    } else if len <= SMALL && (dst.addr() | len).is_multiple_of(8) {
        for at in (0..len).step_by(8) {
            // SAFETY: (1), (2); at + 8 <= len, and the address is a multiple of 8.
            unsafe { put_8(dst.add(at), src.add(at).cast::<u64>().read_unaligned()) }
        }
    } else {
        // SAFETY: handed on.
        unsafe { bulk(dst, src, len) }
    }
}

/// Copies shared memory into private memory.
///
/// # Safety
/// As [`store`], with the roles of `dst` and `src` exchanged.
#[inline]
pub(super) unsafe fn load(dst: *mut u8, src: *const u8, len: usize) {
    if len == 8 && src.addr().is_multiple_of(8) {
        // SAFETY: as in `store`; the address is a multiple of 8.
        unsafe { dst.cast::<u64>().write_unaligned(take_8(src)) }
    } else if len == 4 && src.addr().is_multiple_of(4) {
        // SAFETY: as in `store`; the address is a multiple of 4.
        unsafe { dst.cast::<u32>().write_unaligned(take_4(src)) }
    } else if len <= SMALL && (src.addr() | len).is_multiple_of(8) {
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

/// Copies `N` bytes, a power of two up to 64, into shared memory or out of it: without a call.
///
/// # Safety
/// As [`store`] if they go `IN`, else as [`load`].
#[inline(always)]
pub(super) unsafe fn fixed<const N: usize, const IN: bool>(dst: *mut u8, src: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: handed on.
    unsafe {
        match N {
            1 => move_1(dst, src),
            2 => move_2(dst, src),
            4 => move_4(dst, src),
            8 => move_8(dst, src),
            16 => move_16(dst, src),
            32 => move_32(dst, src),
            64 => move_64(dst, src),
            _ => any::<IN>(dst, src, N),
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: handed on.
    unsafe {
        any::<IN>(dst, src, N)
    }
}

/// Copies so many bytes, `N` at least, into shared memory or out of it: `N` at a time without a
/// call, and those at the end once more where they are not a multiple.
///
/// # Safety
/// As [`store`] if they go `IN`, else as [`load`].
#[inline(always)]
pub(super) unsafe fn chunks<const N: usize, const IN: bool>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
) {
    let chunk = |at: usize| {
        // SAFETY: handed on; at + N <= len.
        unsafe { fixed::<N, IN>(dst.wrapping_add(at), src.wrapping_add(at)) }
    };
    let mut at = 0;
    while at < len - N {
        chunk(at);
        at += N;
    }
    chunk(len - N);
}

/// Copies bytes into shared memory, or out of it.
///
/// # Safety
/// As [`store`] if they go `IN`, else as [`load`].
#[inline(always)]
pub(super) unsafe fn any<const IN: bool>(dst: *mut u8, src: *const u8, len: usize) {
    match IN {
        // SAFETY: handed on.
        true => unsafe { store(dst, src, len) },
        // SAFETY: handed on.
        false => unsafe { load(dst, src, len) },
    }
}

/// Moves of so many bytes from one place to another, either of which may be shared: all loads come
/// before the stores.
macro_rules! moves {
    ($($name:ident $class:ident [$($value:ident),+] [$($line:literal),+];)+) => {$(
        /// # Safety
        /// As [`store`] or [`load`], of the bytes in its name.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        #[inline(always)]
        unsafe fn $name(dst: *mut u8, src: *const u8) {
            // SAFETY: it loads bytes that are readable and stores them where they may be stored,
            // and nothing else.
            unsafe {
                std::arch::asm!(
                    $($line,)+
                    to = in(reg) dst,
                    from = in(reg) src,
                    $($value = out($class) _,)+
                    options(nostack, preserves_flags),
                );
            }
        }
    )+};
}

moves! {
    move_1 reg_byte [a] ["mov {a}, byte ptr [{from}]", "mov byte ptr [{to}], {a}"];
    move_2 reg [a] ["movzx {a:e}, word ptr [{from}]", "mov word ptr [{to}], {a:x}"];
    move_4 reg [a] ["mov {a:e}, dword ptr [{from}]", "mov dword ptr [{to}], {a:e}"];
    move_8 reg [a] ["mov {a}, qword ptr [{from}]", "mov qword ptr [{to}], {a}"];
    move_16 xmm_reg [a] ["movups {a}, [{from}]", "movups [{to}], {a}"];
    move_32 xmm_reg [a, b] [
        "movups {a}, [{from}]", "movups {b}, [{from} + 16]",
        "movups [{to}], {a}", "movups [{to} + 16], {b}"
    ];
    move_64 xmm_reg [a, b, c, d] [
        "movups {a}, [{from}]", "movups {b}, [{from} + 16]",
        "movups {c}, [{from} + 32]", "movups {d}, [{from} + 48]",
        "movups [{to}], {a}", "movups [{to} + 16], {b}",
        "movups [{to} + 32], {c}", "movups [{to} + 48], {d}"
    ];
}

/// Moves of one word, put to shared memory and taken from it.
macro_rules! word {
    ($put:ident, $take:ident, $word:ty, $atomic:ident, $store:literal, $load:literal) => {
        /// # Safety
        /// Condition 2 of [`store`], for a word at a multiple of its size.
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
        /// Condition 2 of [`store`], for a word at a multiple of its size that is only read.
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
unsafe fn bulk(dst: *mut u8, src: *const u8, len: usize) {
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
