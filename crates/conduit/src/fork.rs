//! Tells the process that began something from a child that was forked from it.
//!
//! A child of `fork` has a copy of everything, but its parent's peers, threads, descriptors and registrations are not
//! its own. So an object keeps the [`Origin`] that created it, and checks that before it touches anything shared with
//! the parent. The check costs two loads and no system call.
//!
//! The number of the process lies on a page that the kernel clears in each child (`MADV_WIPEONFORK`, Linux 4.14). So
//! a child of `_Fork` or of the bare system call is recognized, too. On other kernels a handler of `pthread_atfork`
//! clears the number; only the C library's `fork` calls that handler. The handler also does the work that cannot wait
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

/// The process's number before there is a page: no child is recognized yet.
static BEFORE: AtomicU64 = AtomicU64::new(FIRST);
/// Points to the process's number.
static NUMBER: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const BEFORE).cast_mut());
/// The number for the next child that begins something. `fork` copies it, so that no descendant has the number of an
/// ancestor.
static NEXT: AtomicU64 = AtomicU64::new(FIRST + 1);
/// Functions that a child runs at once.
static HOOKS: [AtomicPtr<()>; 4] = [const { AtomicPtr::new(ptr::null_mut()) }; 4];

/// The process that began something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin(u64);

impl Origin {
    /// This process. A forked child may begin things of its own.
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

    /// Returns true in that process itself, and false in a child of it.
    #[inline(always)]
    pub fn is_here(self) -> bool {
        number().load(Relaxed) == self.0
    }
}

/// A thing that is active in one process: from its begin until it [ends](Self::end), and never in a child. The check
/// costs as much as the one of an origin.
#[derive(Debug)]
pub struct Presence(AtomicU64);

/// The number that no process has.
const NOWHERE: u64 = u64::MAX;

impl Presence {
    /// Begins, in this process.
    pub fn new(origin: Origin) -> Self {
        Self(AtomicU64::new(origin.0))
    }

    /// Ends.
    pub fn end(&self) {
        self.0.store(NOWHERE, SeqCst);
    }

    /// Returns whether it is active, in this process.
    #[inline(always)]
    pub fn is_here(&self) -> bool {
        number().load(Relaxed) == self.0.load(SeqCst)
    }
}

/// Returns whether this process was forked from one that had begun something.
#[inline]
pub fn is_child() -> bool {
    number().load(Relaxed) != FIRST
}

/// Registers `hook` to run in each child of the C library's `fork`, before `fork` returns there, in the child's only
/// thread. The hook may do only what a signal handler may, because threads that the child lacks may hold locks. A
/// second registration of the same hook does nothing.
///
/// # Panics
/// If there are more than four hooks; this workspace's crates have fewer.
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

/// The word that children find cleared. The first call creates it.
fn prepared() -> &'static AtomicU64 {
    let before = (&raw const BEFORE).cast_mut();
    if NUMBER.load(Acquire) == before {
        // Without a page, only the handler recognizes children. If two threads come here at once, one has made its
        // page in vain.
        let word = page().unwrap_or_else(|| Box::leak(Box::default()));
        word.store(FIRST, Relaxed);
        let set = NUMBER.compare_exchange(before, ptr::from_ref(word).cast_mut(), AcqRel, Acquire);
        if set.is_ok() {
            // SAFETY: the handler only stores, and calls hooks, which by their contract are safe there.
            let refused = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
            if refused != 0 {
                let cause = io::Error::from_raw_os_error(refused);
                tracing::warn!(%cause, "children of this process may keep its shared memory");
            }
        }
    }
    number()
}

/// A zeroed word on a page that is cleared in children, if the kernel supports that.
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
    // SAFETY: the mapping made above. A kernel without this advice changes nothing.
    let _ = unsafe { libc::madvise(page, len, libc::MADV_WIPEONFORK) };
    // SAFETY: a zeroed page that is never unmapped; nothing else refers to it.
    Some(unsafe { &*page.cast::<AtomicU64>() })
}

/// Runs in a child, before `fork` returns there.
extern "C" fn forked() {
    number().store(0, Release);
    for slot in &HOOKS {
        let hook = slot.load(Acquire);
        if !hook.is_null() {
            // SAFETY: only `in_child` stores there, and it stores such functions.
            let hook = unsafe { mem::transmute::<*mut (), fn()>(hook) };
            hook();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `child` in a child made by `fork`, and returns its exit status.
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
            // A grandchild is neither process.
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
