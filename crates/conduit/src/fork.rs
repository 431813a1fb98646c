//! Tells the process that created an object from a child forked from it.
//!
//! A child of `fork` has a copy of everything, but not its parent's peers, threads, descriptors and
//! registrations. Each object therefore keeps the [`CreatorProcess`] that created it, and checks it before
//! it touches anything shared with the parent. The check costs two loads and no system call.
//!
//! The process's number is on a page that the kernel clears in each child (`MADV_WIPEONFORK`, Linux
//! 4.14). A child of `_Fork` or of the bare system call is therefore recognized, too. On other
//! kernels a handler of `pthread_atfork` clears the number. Only the C library's `fork` calls that
//! handler. The handler also does the work that cannot wait for the child's first call: see
//! [`in_child`].
//!
//! A child of `vfork` or `posix_spawn` runs in its parent's memory until it calls `exec`, and
//! counts as the parent.

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

/// The process's number before the page exists. No child is recognized yet.
static BEFORE: AtomicU64 = AtomicU64::new(FIRST);
/// Points to the process's number.
static NUMBER: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const BEFORE).cast_mut());
/// The number for the next child that creates an object. `fork` copies it, so that no descendant
/// has the number of an ancestor.
static NEXT: AtomicU64 = AtomicU64::new(FIRST + 1);
/// Functions that run in a child at once.
static HOOKS: [AtomicPtr<()>; 8] = [const { AtomicPtr::new(ptr::null_mut()) }; 8];

/// The process that created an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreatorProcess(u64);

impl CreatorProcess {
    /// Returns this process. A forked child may create objects of its own.
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

    /// Returns true in the process itself, and false in a child of it.
    #[inline(always)]
    pub fn is_here(self) -> bool {
        number().load(Relaxed) == self.0
    }
}

/// The presence of an object in one process, from its creation until it [ends](Self::end). A child
/// never has it. The check costs as much as that of an origin.
#[derive(Debug)]
pub struct Presence(AtomicU64);

/// A number that no process has.
const NOWHERE: u64 = u64::MAX;

impl Presence {
    /// Begins the presence in the process `origin`.
    pub fn new(origin: CreatorProcess) -> Self {
        Self(AtomicU64::new(origin.0))
    }

    /// Ends the presence.
    pub fn end(&self) {
        self.0.store(NOWHERE, SeqCst);
    }

    /// Returns true if the object is present in this process.
    #[inline(always)]
    pub fn is_here(&self) -> bool {
        number().load(Relaxed) == self.0.load(SeqCst)
    }
}

/// Returns true if this process was forked from one that had created an object.
#[inline]
pub fn is_child() -> bool {
    number().load(Relaxed) != FIRST
}

/// Registers `hook` to run in each child of the C library's `fork`, before `fork` returns there, in
/// the child's only thread. The hook may do only what a signal handler may, because threads that
/// the child lacks may hold locks. A second registration of the same hook does nothing.
///
/// # Panics
/// If there are more than eight hooks. This workspace's crates have fewer.
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
    // SAFETY: the pointer leads to a static or to a page that is never unmapped. Both hold an
    // aligned word.
    unsafe { &*NUMBER.load(Acquire) }
}

/// Returns the word that is cleared in children. The first call creates it.
fn prepared() -> &'static AtomicU64 {
    let before = (&raw const BEFORE).cast_mut();
    if NUMBER.load(Acquire) == before {
        // Without a page, only the handler recognizes children. If two threads arrive here at once,
        // one has made its page in vain.
        let word = page().unwrap_or_else(|| Box::leak(Box::default()));
        word.store(FIRST, Relaxed);
        let set = NUMBER.compare_exchange(before, ptr::from_ref(word).cast_mut(), AcqRel, Acquire);
        if set.is_ok() {
            // SAFETY: the handler only stores, and calls hooks, whose contract makes them safe
            // there.
            let refused = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
            if refused != 0 {
                let cause = io::Error::from_raw_os_error(refused);
                tracing::warn!(%cause, "children of this process may keep its shared memory");
            }
        }
    }
    number()
}

/// Returns a zeroed word on a page that is cleared in children, if the kernel supports that.
fn page() -> Option<&'static AtomicU64> {
    let len = mem::size_of::<AtomicU64>();
    // SAFETY: the call makes a new mapping and affects no other.
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
    // SAFETY: the range is the mapping made above. A kernel without this advice changes nothing.
    let _ = unsafe { libc::madvise(page, len, libc::MADV_WIPEONFORK) };
    // SAFETY: the page is zeroed and never unmapped, and nothing else refers to it.
    Some(unsafe { &*page.cast::<AtomicU64>() })
}

/// Runs in a child, before `fork` returns there.
extern "C" fn forked() {
    number().store(0, Release);
    for slot in &HOOKS {
        let hook = slot.load(Acquire);
        if !hook.is_null() {
            // SAFETY: only `in_child` stores there, and it stores functions of this type.
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
            // SAFETY: the call ends the child.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: the status is a local variable.
        unsafe { libc::waitpid(pid as libc::pid_t, &raw mut status, 0) };
        status
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no other process")]
    fn a_child_is_not_the_origin_of_its_parents_objects() {
        let here = CreatorProcess::here();
        let presence = Presence::new(here);
        // SAFETY: the child loads and stores words, and ends.
        let fork = || unsafe { libc::fork() }.into();
        let status = in_a_child(fork, || {
            if presence.is_here() {
                return false;
            }
            let own = (!here.is_here() && is_child()).then(CreatorProcess::here);
            // A grandchild is neither process.
            // SAFETY: as above.
            let fork = || unsafe { libc::fork() }.into();
            let grandchild = |own: CreatorProcess| {
                in_a_child(fork, || {
                    !here.is_here() && !own.is_here() && CreatorProcess::here() != here
                })
            };
            own.is_some_and(|own| own != here && own.is_here() && grandchild(own) == 0)
        });
        assert_eq!(status, 0);
        assert!(here.is_here() && CreatorProcess::here() == here && presence.is_here());
        presence.end();
        assert!(!presence.is_here());
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no other process")]
    fn a_child_of_the_bare_system_call_is_recognized() {
        let here = CreatorProcess::here();
        // SAFETY: the call is like `fork` without the C library's part. The child loads words and
        // ends.
        let fork = || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        assert_eq!(in_a_child(fork, || !here.is_here()), 0);
        assert!(here.is_here());
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no other process")]
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
