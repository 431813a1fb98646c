//! Whether this process is the one that began something, or a child that was forked from it.
//!
//! A child of `fork` has a copy of everything, but no part in it: its parent's peers, threads, descriptors and
//! registrations are not its own. So what is begun keeps its [`Origin`], and asks it before it touches anything that
//! the parent has, too. To ask costs two loads and no system call.
//!
//! The number of the process lies on a page that the kernel clears in each child (`MADV_WIPEONFORK`, Linux 4.14), so
//! that a child of `_Fork` or of the bare system call is known for one, too. Where the kernel does not, a handler of
//! `pthread_atfork` clears it, which only `fork` of the C library calls. That handler also does what cannot wait
//! until the child calls something: see [`in_child`].
//!
//! A child of `vfork` or `posix_spawn` runs in its parent's memory until it calls `exec`, and counts as the parent.

#![allow(unsafe_code)] // maps the page, and has a handler called

use std::{
    io, mem, ptr,
    sync::atomic::{
        AtomicPtr, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    },
};

/// The number of the first process. It is not 0, which the kernel leaves in a child.
const FIRST: u64 = 1;

/// Where the process's number lies before it has a page: no child is known yet.
static BEFORE: AtomicU64 = AtomicU64::new(FIRST);
/// Where the process's number lies.
static NUMBER: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const BEFORE).cast_mut());
/// The number that the next child to begin something gets. It is copied by `fork`, so that no descendant has the number
/// of an ancestor.
static NEXT: AtomicU64 = AtomicU64::new(FIRST + 1);
/// What a child does at once.
static HOOKS: [AtomicPtr<()>; 4] = [const { AtomicPtr::new(ptr::null_mut()) }; 4];

/// The process that began something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin(u64);

impl Origin {
    /// This process. A child that was forked may begin things of its own.
    pub fn here() -> Self {
        let word = prepared();
        match word.load(Relaxed) {
            0 => {
                let fresh = NEXT.fetch_add(1, Relaxed);
                let set = word.compare_exchange(0, fresh, AcqRel, Acquire);
                Self(set.map_or_else(|other| other, |_| fresh))
            }
            number => Self(number),
        }
    }

    /// Whether this is still that process, and not a child of it.
    #[inline(always)]
    pub fn is_here(self) -> bool {
        number().load(Relaxed) == self.0
    }
}

/// Whether something goes on in this process: from when it began until it [ends](Self::end), and never in a child.
/// To ask costs no more than to ask for the origin.
#[derive(Debug)]
pub struct Presence(AtomicU64);

/// The number of no process.
const NOWHERE: u64 = u64::MAX;

impl Presence {
    /// It goes on here.
    pub fn new(origin: Origin) -> Self {
        Self(AtomicU64::new(origin.0))
    }

    /// It goes on no more.
    pub fn end(&self) {
        self.0.store(NOWHERE, SeqCst);
    }

    /// Whether it goes on, in this process.
    #[inline(always)]
    pub fn is_here(&self) -> bool {
        number().load(Relaxed) == self.0.load(SeqCst)
    }
}

/// Whether this process was forked from one that had begun something.
#[inline]
pub fn is_child() -> bool {
    number().load(Relaxed) != FIRST
}

/// Has `hook` be called in each child that the C library's `fork` makes, before `fork` returns there, in the one thread
/// that the child has. It may only do what a signal handler may: locks may be held by threads that the child has not. To
/// ask twice for the same is to ask once.
///
/// # Panics
/// If more than four are asked for, which this workspace's crates do not.
pub fn in_child(hook: fn()) {
    prepared();
    let hook: *mut () = (hook as *const ()).cast_mut();
    let is_set = HOOKS.iter().any(|slot| {
        let set = slot.compare_exchange(ptr::null_mut(), hook, AcqRel, Acquire);
        set.is_ok() || set == Err(hook)
    });
    assert!(is_set, "there is room for each hook of the workspace");
}

#[inline(always)]
fn number() -> &'static AtomicU64 {
    // SAFETY: it points to a static or to a page that is never unmapped; both hold an aligned word.
    unsafe { &*NUMBER.load(Acquire) }
}

/// The word that children find cleared; made by the first call.
fn prepared() -> &'static AtomicU64 {
    let before = (&raw const BEFORE).cast_mut();
    if NUMBER.load(Acquire) == before {
        // Where there is no page, children are known by the handler alone. Of two threads that come here at once, one
        // has made its page in vain.
        let word = page().unwrap_or_else(|| Box::leak(Box::default()));
        word.store(FIRST, Relaxed);
        let set = NUMBER.compare_exchange(before, ptr::from_ref(word).cast_mut(), AcqRel, Acquire);
        if set.is_ok() {
            // SAFETY: the handler only stores, and calls hooks, which promise the same.
            let refused = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
            if refused != 0 {
                let cause = io::Error::from_raw_os_error(refused);
                tracing::warn!(%cause, "children of this process may keep its shared memory");
            }
        }
    }
    number()
}

/// A word, zero, on a page that is cleared in children, as far as the kernel does that.
fn page() -> Option<&'static AtomicU64> {
    let len = mem::size_of::<AtomicU64>();
    // SAFETY: a fresh mapping that touches no other.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping made above. A kernel that does not know the advice changes nothing.
    let _ = unsafe { libc::madvise(page, len, libc::MADV_WIPEONFORK) };
    // SAFETY: a page, zeroed, that is never unmapped; nobody else knows it.
    Some(unsafe { &*page.cast::<AtomicU64>() })
}

/// Runs in a child, before `fork` returns there.
extern "C" fn forked() {
    number().store(0, Release);
    for slot in &HOOKS {
        let hook = slot.load(Acquire);
        if !hook.is_null() {
            // SAFETY: only `in_child` stores there, what was such a function.
            let hook = unsafe { mem::transmute::<*mut (), fn()>(hook) };
            hook();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a child made by `fork` finds: its exit status.
    fn in_a_child(fork: impl FnOnce() -> libc::c_long, child: impl FnOnce() -> bool) -> i32 {
        let pid = fork();
        assert!(pid >= 0, "this process can have a child");
        if pid == 0 {
            let status = i32::from(!child());
            // SAFETY: it ends the child.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: the status is a local.
        unsafe { libc::waitpid(pid as libc::pid_t, &raw mut status, 0) };
        status
    }

    #[test]
    fn a_child_is_not_where_its_parent_began() {
        let here = Origin::here();
        let goes_on = Presence::new(here);
        // SAFETY: the child loads and stores words, and ends.
        let fork = || unsafe { libc::fork() }.into();
        let status = in_a_child(fork, || {
            if goes_on.is_here() {
                return false;
            }
            let own = (!here.is_here() && is_child()).then(Origin::here);
            // A grandchild is neither.
            // SAFETY: as above.
            let fork = || unsafe { libc::fork() }.into();
            let grandchild = |own: Origin| {
                in_a_child(fork, || {
                    !here.is_here() && !own.is_here() && Origin::here() != here
                })
            };
            own.is_some_and(|own| own != here && own.is_here() && grandchild(own) == 0)
        });
        assert_eq!(status, 0);
        assert!(here.is_here() && Origin::here() == here && goes_on.is_here());
        goes_on.end();
        assert!(!goes_on.is_here());
    }

    #[test]
    fn the_child_of_the_bare_system_call_is_known_too() {
        let here = Origin::here();
        // SAFETY: as `fork`, without what the C library does; the child loads words and ends.
        let fork = || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        assert_eq!(in_a_child(fork, || !here.is_here()), 0);
        assert!(here.is_here());
    }

    #[test]
    fn hooks_run_in_children_alone() {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        fn hook() {
            CALLS.fetch_add(1, Relaxed);
        }
        in_child(hook);
        in_child(hook);
        // SAFETY: as above.
        let fork = || unsafe { libc::fork() }.into();
        assert_eq!(in_a_child(fork, || CALLS.load(Relaxed) == 1), 0);
        assert_eq!(CALLS.load(Relaxed), 0);
        let spawned = std::process::Command::new("true").status();
        assert!(spawned.is_ok_and(|status| status.success()));
        assert!(!is_child());
    }
}
