//! Copies between private memory and memory that other processes may access at the same time.
//!
//! A racing `copy_nonoverlapping` is undefined behaviour. So are atomic accesses of different sizes
//! to the same bytes, unless other synchronization orders them. Ranks may be threads of one
//! process, and nothing keeps them apart. One rank may put four bytes where another gets eight, or
//! where a third changes a word. Therefore no copy here is an atomic access of Rust's.
//!
//! One instruction in an `asm!` block moves a word. Longer copies call the C library's `memcpy`
//! from such a block. The compiler knows nothing of the block's effect on the memory. The copy thus
//! means what the machine does, as if another process had made it. A race then gives torn data,
//! nothing worse, and an aligned word is never torn. Only the atomic operations on words are Rust's
//! atomics. Each has one size for as long as the memory has one type.
//!
//! On processors without `asm!` here, and under miri, words are atomics of their own size.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod moves;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The most bytes for which a copy word by word is faster than a call, on processors without our
/// own moves.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
const SMALL: usize = 64;

/// Bytes of a cache line. A copy of a line is inlined as a few moves.
const LINE: usize = 64;

/// Returns true if a word of this many bytes can be moved as one. x86-64 moves words at any
/// address.
#[inline(always)]
fn is_word(at: *const u8, bytes: usize) -> bool {
    cfg!(all(target_arch = "x86_64", not(miri))) || at.addr().is_multiple_of(bytes)
}

/// Copies private memory into shared memory.
///
/// # Safety
/// 1. `src` is readable for `len` bytes, and nobody writes to it meanwhile.
/// 2. `dst` is mapped and writable for `len` bytes. All concurrent accesses to it are atomic or
///    outside this program's view (peers, `asm!`, the kernel).
/// 3. The two ranges do not overlap.
#[inline]
pub(super) unsafe fn store(dst: *mut u8, src: *const u8, len: usize) {
    if len == 8 && is_word(dst, 8) {
        // SAFETY: condition 1 of this function.
        let word = unsafe { src.cast::<u64>().read_unaligned() };
        // SAFETY: condition 2 of this function. `is_word` checked the address.
        unsafe { put_8(dst, word) }
    } else if len == 4 && is_word(dst, 4) {
        // SAFETY: condition 1 of this function.
        let word = unsafe { src.cast::<u32>().read_unaligned() };
        // SAFETY: condition 2 of this function. `is_word` checked the address.
        unsafe { put_4(dst, word) }
    } else if cfg!(all(target_arch = "x86_64", not(miri))) && len == LINE {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: 1., 2. and 3. the conditions of this function.
        unsafe {
            moves::move_64(dst, src);
        }
    } else {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: 1., 2. and 3. the conditions of this function.
        unsafe {
            moves::any(dst, src, len);
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        if len <= SMALL && (dst.addr() | len).is_multiple_of(8) {
            for at in (0..len).step_by(8) {
                // SAFETY: condition 1 of this function; at + 8 <= len.
                let word = unsafe { src.wrapping_add(at).cast::<u64>().read_unaligned() };
                // SAFETY: condition 2 of this function; at + 8 <= len, and the address is a
                // multiple of 8.
                unsafe { put_8(dst.wrapping_add(at), word) }
            }
        } else {
            // SAFETY: 1., 2. and 3. the conditions of this function.
            unsafe { bulk(dst, src, len) }
        }
    }
}

/// Like [`store`], past the caches: for bytes that other processors have in their caches from an
/// earlier copy, and will read next. To take each line from them first takes several times as long
/// as the copy. A thread that sees a later store sees the bytes.
///
/// # Safety
/// The conditions 1, 2 and 3 of [`store`].
pub(super) unsafe fn store_past_caches(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: 1., 2. and 3. the conditions of this function.
    unsafe {
        moves::past_caches(dst, src, len);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: 1., 2. and 3. the conditions of this function.
    unsafe {
        store(dst, src, len);
    }
}

/// Copies shared memory into private memory.
///
/// # Safety
/// The conditions of [`store`], with the roles of `dst` and `src` exchanged.
#[inline]
pub(super) unsafe fn load(dst: *mut u8, src: *const u8, len: usize) {
    if len == 8 && is_word(src, 8) {
        // SAFETY: as in `store`. `is_word` checked the address.
        let word = unsafe { take_8(src) };
        // SAFETY: as in `store`.
        unsafe { dst.cast::<u64>().write_unaligned(word) }
    } else if len == 4 && is_word(src, 4) {
        // SAFETY: as in `store`. `is_word` checked the address.
        let word = unsafe { take_4(src) };
        // SAFETY: as in `store`.
        unsafe { dst.cast::<u32>().write_unaligned(word) }
    } else if cfg!(all(target_arch = "x86_64", not(miri))) && len == LINE {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: 1., 2. and 3. the conditions of this function.
        unsafe {
            moves::move_64(dst, src);
        }
    } else {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: 1., 2. and 3. the conditions of this function.
        unsafe {
            moves::any(dst, src, len);
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        if len <= SMALL && (src.addr() | len).is_multiple_of(8) {
            for at in (0..len).step_by(8) {
                // SAFETY: as in `store`; at + 8 <= len, and the address is a multiple of 8.
                let word = unsafe { take_8(src.wrapping_add(at)) };
                // SAFETY: as in `store`; at + 8 <= len.
                unsafe { dst.wrapping_add(at).cast::<u64>().write_unaligned(word) }
            }
        } else {
            // SAFETY: 1., 2. and 3. the conditions of this function.
            unsafe { bulk(dst, src, len) }
        }
    }
}

/// The direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WindowDirection {
    IntoWindow,
    OutOfWindow,
}

impl WindowDirection {
    /// Orders a pair of the window's and the private side as written side, read side.
    #[inline]
    pub(super) fn order<T>(self, [window, private]: [T; 2]) -> [T; 2] {
        match self {
            WindowDirection::IntoWindow => [window, private],
            WindowDirection::OutOfWindow => [private, window],
        }
    }
}

/// Many runs of one length.
pub(super) trait Each {
    /// Calls `act` with the target and the source of each run, in order.
    fn each(self, act: impl Fn(*mut u8, *const u8));
}

/// Copies runs of `run` bytes each, at least one.
///
/// # Safety
/// 1. The conditions of [`store`] for copies into a window, else of [`load`], for each run.
#[inline]
#[cfg_attr(all(target_arch = "x86_64", not(miri)), allow(unused_variables))] // the moves work in either direction
pub(super) unsafe fn each(run: usize, direction: WindowDirection, runs: impl Each) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    match run {
        // SAFETY: 1. condition 1 of this function; the length was matched.
        ..=moves::LONGEST => unsafe { moves::each(run, runs) },
        // SAFETY: 1. condition 1 of this function, for one run.
        _ => runs.each(|dst, src| unsafe { moves::any(dst, src, run) }),
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    match direction {
        // SAFETY: 1., 2. and 3. the conditions of this function, for one run.
        WindowDirection::IntoWindow => runs.each(|dst, src| unsafe { store(dst, src, run) }),
        // SAFETY: 1., 2. and 3. the conditions of this function, for one run.
        WindowDirection::OutOfWindow => runs.each(|dst, src| unsafe { load(dst, src, run) }),
    }
}

/// Copies an element of `len` bytes.
///
/// # Safety
/// The conditions of [`store`] for a copy into a window, else of [`load`].
#[inline(always)]
pub(super) unsafe fn element(direction: WindowDirection, dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    match len {
        // SAFETY: 1. the conditions of this function, for the matched length. 2. needs no vectors.
        4 => return unsafe { moves::move_4(dst, src) },
        // SAFETY: 1. the conditions of this function, for the matched length. 2. needs no vectors.
        8 => return unsafe { moves::move_8(dst, src) },
        // SAFETY: 1. the conditions of this function, for the matched length. 2. all processors
        // have these vectors.
        16 => return unsafe { moves::move_16(dst, src) },
        _ => {}
    }
    match direction {
        // SAFETY: 1., 2. and 3. the conditions of this function.
        WindowDirection::IntoWindow => unsafe { store(dst, src, len) },
        // SAFETY: 1., 2. and 3. the conditions of this function.
        WindowDirection::OutOfWindow => unsafe { load(dst, src, len) },
    }
}

/// Copies elements of 4, 8 or 16 bytes, at least one. `steps` has the bytes from one element to the
/// next, at the target and at the source.
///
/// # Safety
/// The conditions of [`store`] for copies into a window, else of [`load`], for each element.
#[inline(always)]
#[cfg_attr(all(target_arch = "x86_64", not(miri)), allow(unused_variables))] // the moves work in either direction
pub(super) unsafe fn column(
    direction: WindowDirection,
    (dst, src): (*mut u8, *const u8),
    steps: [usize; 2],
    element: usize,
    count: usize,
) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    match element {
        // SAFETY: 1. the conditions of this function. 2. there is at least one element.
        4 => unsafe { moves::column_4(dst, src, steps, count) },
        // SAFETY: 1. the conditions of this function. 2. there is at least one element.
        8 => unsafe { moves::column_8(dst, src, steps, count) },
        // SAFETY: 1. the conditions of this function. 2. there is at least one element.
        _ => unsafe { moves::column_16(dst, src, steps, count) },
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for at in 0..count {
        let [to, from] = steps.map(|step| step * at);
        let (dst, src) = (dst.wrapping_add(to), src.wrapping_add(from));
        // SAFETY: the conditions of this function, for one element.
        unsafe { self::element(direction, dst, src, element) }
    }
}

/// Moves of one word to and from shared memory.
macro_rules! word {
    ($put:ident, $take:ident, $word:ty, $atomic:ident, $store:literal, $load:literal) => {
        /// # Safety
        /// Condition 2 of [`store`], for a word for which [`is_word`] is true.
        #[inline(always)]
        unsafe fn $put(dst: *mut u8, value: $word) {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: the instruction stores the word, which condition 2 permits, and nothing else.
            unsafe {
                std::arch::asm!(
                    $store,
                    at = in(reg) dst,
                    value = in(reg) value,
                    options(nostack, preserves_flags),
                );
            }
            #[cfg(not(all(target_arch = "x86_64", not(miri))))]
            // SAFETY: by condition 2 the address is of a writable word, aligned as `is_word`
            // demands, and all concurrent accesses to it are atomic.
            unsafe {
                $atomic::from_ptr(dst.cast()).store(value, Relaxed)
            }
        }

        /// # Safety
        /// Condition 2 of [`store`], for a word for which [`is_word`] is true, and which is only
        /// read.
        #[inline(always)]
        unsafe fn $take(src: *const u8) -> $word {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            {
                let value: $word;
                // SAFETY: the instruction loads the word, which is mapped, and changes nothing.
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
            // SAFETY: by condition 2 the address is of a mapped word, aligned as `is_word` demands,
            // and all concurrent accesses to it are atomic.
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
    // SAFETY: `memset` writes `len` bytes at `dst`, which condition 2 permits. It follows the C
    // calling convention, whose clobbers are declared.
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
        // SAFETY: by condition 2 the byte is writable, since `at < len`, and all concurrent
        // accesses to it are atomic.
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

/// Copies any number of bytes.
///
/// # Safety
/// The conditions of [`store`] or [`load`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(super) unsafe fn bulk(dst: *mut u8, src: *const u8, len: usize) {
    if moves::is_slow_by_strings(dst, src, len) {
        // SAFETY: 1. the condition of this function.
        return unsafe { moves::long_way(dst, src, len) };
    }
    // SAFETY: `memcpy` reads `len` bytes at `src` and writes them to `dst`, which the conditions of
    // this function permit. It follows the C calling convention, whose clobbers are declared.
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

/// Copies any number of bytes, byte by byte. For processors without `asm!` here, and for miri.
///
/// # Safety
/// The conditions of [`store`] or [`load`].
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn bulk(dst: *mut u8, src: *const u8, len: usize) {
    for at in 0..len {
        // SAFETY: the conditions of this function permit both accesses, since `at < len`. A
        // volatile read of the private side is as good as an atomic one, and needs no write
        // permission on it.
        unsafe { AtomicU8::from_ptr(dst.add(at)).store(src.add(at).read_volatile(), Relaxed) }
    }
}
