//! Which place of a C program calls: a number for its call stack, for strategies that predict (Li 2011, §3.1, the
//! signature of a registration). Rust callers are known by their source location; C has none, so the return
//! addresses are read along the frame pointers.
//!
//! The functions of this library keep frame pointers where it is built so, as `cargo xtask install` does; where
//! they do not, no stack is read. How far the stack is known beyond the caller depends on whether the program was
//! built with `-fno-omit-frame-pointer`: what is read instead of a frame pointer is mostly no address further up in
//! the stack, which ends the walk, or else one whose words are the program's data. That is harmless but for the number,
//! which may then differ between uses from the same place, so that these are not foreseen.

use std::{cell::Cell, hash::Hasher, ops::Range, sync::LazyLock};

use rustc_hash::FxHasher;

use crate::Armci;

/// Return addresses that make a number, from the caller of this library's function upwards.
const DEPTH: usize = 6;

/// Frames are no farther apart. What is farther is hardly a frame pointer, and there may be memory between that a
/// program protects: the guard of a coroutine's stack within the thread's own.
const APART: usize = 64 << 10;

/// Whether the functions of this library keep frame pointers.
static ARE_KEPT: LazyLock<bool> = LazyLock::new(are_kept);

thread_local! {
    /// Where the thread's stack lies; nowhere before that was asked for.
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Runs what a function of C does, under the number of its caller if somebody predicts by that.
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

/// The frame pointer of the function that this is inlined into, if it keeps one; else any number.
#[inline(always)]
fn frame() -> usize {
    let frame: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it reads a register.
    unsafe {
        std::arch::asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("mov {}, x29", out(reg) frame, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        frame = 0;
    }
    frame
}

/// The number of the stack from a frame on; none if no frames are kept.
#[inline(never)]
fn site_of(frame: usize) -> Option<u64> {
    if !*ARE_KEPT {
        return None;
    }
    let mut hasher = FxHasher::default();
    let mut addresses = addresses(frame, stack()?).peekable();
    addresses.peek()?;
    addresses.for_each(|address| hasher.write_usize(address));
    // Neither 0, which stands for no place, nor one of the highest, which stand for others.
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
        // Stacks grow downwards.
        let is_near = |next: &usize| (1..=APART).contains(&next.wrapping_sub(*frame));
        Some(next).filter(is_near).filter(&within)
    });
    frames
        .map(|frame| read(frame + size_of::<usize>()))
        .take_while(|address| *address != 0)
        .take(DEPTH)
}

/// A word of the thread's own stack, above the frame of whoever asks.
fn read(address: usize) -> usize {
    let word = std::ptr::with_exposed_provenance::<usize>(address);
    // SAFETY: 1. `addresses` hands in aligned words between the own frame and the end of the thread's stack, which
    //            stay mapped while the thread is here, if the program protects none of them (docs/foresight.md).
    //         2. Any word is a number, one that is just written to as well.
    unsafe { word.read_volatile() }
}

/// Where the thread's stack lies, from this frame upwards.
fn stack() -> Option<Range<usize>> {
    let (mut low, mut end) = STACK.get();
    if end == 0 {
        (low, end) = ask_for_stack()?;
        STACK.set((low, end));
    }
    let here = frame_of_this(&low);
    (low..end).contains(&here).then_some(here..end)
}

/// The address of a variable, below which nothing of the callers lies.
fn frame_of_this(variable: &usize) -> usize {
    std::ptr::from_ref(variable).addr()
}

/// The bounds of the thread's stack, as the system knows them.
fn ask_for_stack() -> Option<(usize, usize)> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the thread is this one, and there is room for its attributes.
    let got = unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) };
    if got != 0 {
        return None;
    }
    let (mut low, mut len) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes were initialized, and there is room for both.
    let got =
        unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut len) };
    // SAFETY: they were initialized, and are not used again.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    let low = low.addr();
    (got == 0).then_some((low, low.checked_add(len)?))
}

/// Whether a function of this library that is called by another has its frame below that one's, and points to it.
fn are_kept() -> bool {
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

    /// A stack of so many frames, the lowest first, with these return addresses.
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
    fn return_addresses_are_those_along_the_frames() {
        let words = frames(&[11, 12, 13]);
        let stack = bounds(&words);
        let found: Vec<_> = addresses(stack.start, stack.clone()).collect();
        assert_eq!(found, [11, 12, 13]);
        let many = frames(&[7; 20]);
        let stack = bounds(&many);
        assert_eq!(addresses(stack.start, stack.clone()).count(), DEPTH);
    }

    #[test]
    fn what_is_no_frame_pointer_ends_the_walk() {
        for wrong in [0, 3, usize::MAX, usize::MAX - 15] {
            let mut words = frames(&[11, 12, 13]);
            words[2] = wrong;
            let stack = bounds(&words);
            let found: Vec<_> = addresses(stack.start, stack.clone()).collect();
            assert_eq!(found, [11, 12], "{wrong:#x}");
            assert_eq!(addresses(wrong, stack.clone()).count(), 0);
        }
        // Back down, where the walk would have no end.
        let mut words = frames(&[11, 12, 13]);
        let stack = bounds(&words);
        words[4] = stack.start;
        assert_eq!(addresses(stack.start, stack.clone()).count(), 3);
        // A frame whose return address would lie beyond the end.
        assert_eq!(
            addresses(stack.end - size_of::<usize>(), stack.clone()).count(),
            0
        );
    }

    #[test]
    fn the_stack_of_each_thread_has_its_variables() {
        let here = || {
            let variable = 0_usize;
            let at = std::ptr::from_ref(&variable).addr();
            let (low, end) = ask_for_stack().expect("a thread has a stack");
            assert!((low..end).contains(&at));
        };
        here();
        std::thread::spawn(here).join().expect("as here");
    }
}
