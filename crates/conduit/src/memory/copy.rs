//! Copies between private memory and memory that other processes may be touching.
//!
//! A racing `copy_nonoverlapping` is undefined behaviour. Small aligned copies are
//! therefore made of relaxed atomic accesses, which compile to plain moves. Longer ones
//! call the C library's `memcpy` from an `asm!` block: the compiler knows nothing of what
//! the block does to the memory it is given, so the copy means what the machine does, which
//! is byte-wise relaxed accesses. Either way a race gives torn data, never worse.

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use std::sync::atomic::AtomicU8;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

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
        unsafe {
            AtomicU64::from_ptr(dst.cast()).store(src.cast::<u64>().read_unaligned(), Relaxed)
        }
    } else if len == 4 && dst.addr().is_multiple_of(4) {
        // SAFETY: (1), (2); the address is a multiple of 4.
        unsafe {
            AtomicU32::from_ptr(dst.cast()).store(src.cast::<u32>().read_unaligned(), Relaxed)
        }
    } else if len <= SMALL && (dst.addr() | len).is_multiple_of(8) {
        for at in (0..len).step_by(8) {
            // SAFETY: (1), (2); at + 8 <= len, and the address is a multiple of 8.
            unsafe {
                let word = src.add(at).cast::<u64>().read_unaligned();
                AtomicU64::from_ptr(dst.add(at).cast()).store(word, Relaxed);
            }
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
        unsafe {
            dst.cast::<u64>()
                .write_unaligned(AtomicU64::from_ptr(src.cast_mut().cast()).load(Relaxed))
        }
    } else if len == 4 && src.addr().is_multiple_of(4) {
        // SAFETY: as in `store`; the address is a multiple of 4.
        unsafe {
            dst.cast::<u32>()
                .write_unaligned(AtomicU32::from_ptr(src.cast_mut().cast()).load(Relaxed))
        }
    } else if len <= SMALL && (src.addr() | len).is_multiple_of(8) {
        for at in (0..len).step_by(8) {
            // SAFETY: as in `store`; at + 8 <= len, and the address is a multiple of 8.
            unsafe {
                let word = AtomicU64::from_ptr(src.add(at).cast_mut().cast()).load(Relaxed);
                dst.add(at).cast::<u64>().write_unaligned(word);
            }
        }
    } else {
        // SAFETY: handed on.
        unsafe { bulk(dst, src, len) }
    }
}

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
