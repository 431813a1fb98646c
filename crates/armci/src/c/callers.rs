//! The number of a C program's call site, computed from its call stack. Strategies that predict use
//! it (Li 2011, §3.1, the signature of a registration). A Rust caller is known by its source
//! location. C has none, so the return addresses are read along the frame pointers.
//!
//! This library's functions keep frame pointers if it is built so, as `cargo xtask install` does.
//! Otherwise no stack is read. The depth known beyond the caller depends on whether the program was
//! built with `-fno-omit-frame-pointer`. Without it, the word in place of a frame pointer is
//! usually no address further up in the stack, which ends the walk. If it is one, the program's
//! data there counts as a return address. That is harmless, but the number may differ between uses
//! from the same place, and these are not predicted.

use std::{cell::Cell, hash::Hasher, ops::Range, sync::LazyLock};

use rustc_hash::FxHasher;

use crate::Armci;

/// The number of return addresses that make up the number, from the caller of this library's
/// function upwards.
const DEPTH: usize = 6;

/// The greatest distance of two frames in bytes. A word farther away is hardly a frame pointer.
/// Between there may be memory that a program protects, such as the guard of a coroutine's stack
/// within the thread's own.
const APART: usize = 64 << 10;

/// True if the functions of this library keep frame pointers.
static KEEPS_FRAMES: LazyLock<bool> = LazyLock::new(keeps_frames);

thread_local! {
    /// The bounds of the thread's stack; zero until they are first needed.
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Runs `act`, under the number of the C caller if a strategy predicts by it.
#[inline(always)]
pub(super) fn from_caller<R>(armci: &'static Armci, act: impl FnOnce(&'static Armci) -> R) -> R {
    if !armci.is_foreseen {
        return act(armci);
    }
    match site_of(frame()) {
        Some(site) => hydrant::at_site(site, || act(armci)),
        None => act(armci),
    }
}

/// The frame pointer of the function into which this is inlined, if it keeps one; otherwise any
/// number.
#[inline(always)]
fn frame() -> usize {
    let frame: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction only reads a register.
    unsafe {
        std::arch::asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction only reads a register.
    unsafe {
        std::arch::asm!("mov {}, x29", out(reg) frame, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        frame = 0;
    }
    frame
}

/// The number of the stack from a frame on; `None` without frame pointers.
#[inline(never)]
fn site_of(frame: usize) -> Option<u64> {
    if !*KEEPS_FRAMES {
        return None;
    }
    let mut hasher = FxHasher::default();
    let mut addresses = addresses(frame, stack()?).peekable();
    addresses.peek()?;
    addresses.for_each(|address| hasher.write_usize(address));
    // The number is neither 0, which means no call site, nor one of the highest, which have other
    // meanings.
    Some(hasher.finish() >> 8 | 1)
}

/// The return addresses from a frame on.
fn addresses(frame: usize, stack: Range<usize>) -> impl Iterator<Item = usize> {
    let within = move |frame: &usize| {
        frame.is_multiple_of(align_of::<[usize; 2]>())
            && *frame >= stack.start
            && *frame <= stack.end.saturating_sub(size_of::<[usize; 2]>())
    };
    let first = Some(frame).filter(|first| first.wrapping_sub(stack.start) <= APART);
    let frames = std::iter::successors(first.filter(&within), move |frame| {
        let next = read(*frame);
        // Stacks grow downwards, so the caller's frame is at a higher address.
        let is_near = |next: &usize| (1..=APART).contains(&next.wrapping_sub(*frame));
        Some(next).filter(is_near).filter(&within)
    });
    frames
        .map(|frame| read(frame + size_of::<usize>()))
        .take_while(|address| *address != 0)
        .take(DEPTH)
}

/// Reads a word of the thread's own stack, above the frame of the caller.
fn read(address: usize) -> usize {
    let word = std::ptr::with_exposed_provenance::<usize>(address);
    // SAFETY: 1. `addresses` passes aligned words between the own frame and the end of the thread's stack.
    //            These stay mapped while the thread runs, if the program protects none of them
    //            (docs/foresight.md).
    //         2. Any word is a number, even one that is being written.
    unsafe { word.read_volatile() }
}

/// The thread's stack, from this frame upwards.
fn stack() -> Option<Range<usize>> {
    let (mut low, mut end) = STACK.get();
    if end == 0 {
        (low, end) = ask_for_stack()?;
        STACK.set((low, end));
    }
    let here = frame_of_this(&low);
    (low..end).contains(&here).then_some(here..end)
}

/// The address of a variable. No frame of a caller lies below it.
fn frame_of_this(variable: &usize) -> usize {
    std::ptr::from_ref(variable).addr()
}

/// The bounds of the thread's stack, as the system knows them.
fn ask_for_stack() -> Option<(usize, usize)> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the call has no conditions.
    let thread = unsafe { libc::pthread_self() };
    // SAFETY: the thread is this one, and `attributes` has room.
    let got = unsafe { libc::pthread_getattr_np(thread, attributes.as_mut_ptr()) };
    if got != 0 {
        return None;
    }
    let (mut low, mut len) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes were initialized above, and both results have room.
    let got =
        unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut len) };
    // SAFETY: the attributes were initialized above, and are not used again.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    let low = low.addr();
    (got == 0).then_some((low, low.checked_add(len)?))
}

/// Returns true if a called function of this library has its frame below its caller's frame, and points to it.
fn keeps_frames() -> bool {
    #[inline(never)]
    fn outer() -> bool {
        let above = frame();
        std::hint::black_box(inner(std::hint::black_box(above)))
    }
    #[inline(never)]
    fn inner(above: usize) -> bool {
        let (own, Some(stack)) = (frame(), stack()) else {
            return false;
        };
        let is_a_frame = own.is_multiple_of(align_of::<usize>()) && stack.contains(&own);
        std::hint::black_box(is_a_frame && own < above && read(own) == above)
    }
    outer()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack with one frame for each return address, the lowest frame first.
    fn frames(returns: &[usize]) -> Vec<usize> {
        let mut words = vec![0; 2 * returns.len() + 2];
        let start = words.as_ptr().expose_provenance();
        for (number, address) in returns.iter().enumerate() {
            words[2 * number] = start + (number + 1) * size_of::<[usize; 2]>();
            words[2 * number + 1] = *address;
        }
        words
    }

    fn bounds(words: &[usize]) -> Range<usize> {
        let start = words.as_ptr().expose_provenance();
        start..start + size_of_val(words)
    }

    #[test]
    fn return_addresses_are_read_along_the_frames() {
        let words = frames(&[11, 12, 13]);
        let stack = bounds(&words);
        let found: Vec<_> = addresses(stack.start, stack.clone()).collect();
        assert_eq!(found, [11, 12, 13]);
        let many = frames(&[7; 20]);
        let stack = bounds(&many);
        assert_eq!(addresses(stack.start, stack.clone()).count(), DEPTH);
    }

    #[test]
    fn a_word_that_is_no_frame_pointer_ends_the_walk() {
        for wrong in [0, 3, usize::MAX, usize::MAX - 15] {
            let mut words = frames(&[11, 12, 13]);
            words[2] = wrong;
            let stack = bounds(&words);
            let found: Vec<_> = addresses(stack.start, stack.clone()).collect();
            assert_eq!(found, [11, 12], "{wrong:#x}");
            assert_eq!(addresses(wrong, stack.clone()).count(), 0);
        }
        // A pointer back down must not make the walk endless.
        let mut words = frames(&[11, 12, 13]);
        let stack = bounds(&words);
        words[4] = stack.start;
        assert_eq!(addresses(stack.start, stack.clone()).count(), 3);
        // This frame's return address would lie beyond the end of the stack.
        assert_eq!(
            addresses(stack.end - size_of::<usize>(), stack.clone()).count(),
            0
        );
    }

    #[test]
    fn each_threads_variables_lie_in_its_stack() {
        let here = || {
            let variable = 0_usize;
            let at = std::ptr::from_ref(&variable).addr();
            let (low, end) = ask_for_stack().expect("a thread has a stack");
            assert!((low..end).contains(&at));
        };
        here();
        std::thread::spawn(here).join().expect("the thread passes");
    }
}
