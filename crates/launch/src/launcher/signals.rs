//! Signals as something to read, so that no handler ever runs.
#![allow(unsafe_code, reason = "signal masks and signalfd are the C library's")]

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::process::Signal;

/// What the launcher hears: the ends of children, and what it passes on.
const HEARD: [Signal; 9] = [
    Signal::CHILD,
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
    Signal::CONT,
];

/// The set of signals a thread blocks.
#[derive(Clone, Copy)]
struct Mask(libc::sigset_t);

impl Mask {
    fn of(signals: &[Signal]) -> Mask {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initializes the set it is given, and sigaddset
        // changes an initialized one; every number is a signal's.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
            }
            Mask(set.assume_init())
        }
    }

    /// Makes this the calling thread's mask. Safe to call between fork and exec.
    fn set(&self) -> io::Result<()> {
        // SAFETY: the set is initialized, and no old one is asked for.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// Blocks a signal for the calling thread.
pub(super) fn block(signal: Signal) -> io::Result<()> {
    block_all(&Mask::of(&[signal])).map(drop)
}

/// Blocks more signals for the calling thread, and gives the mask it had.
fn block_all(more: &Mask) -> io::Result<Mask> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: `more` is initialized, and on success the old mask is written to `before`.
    unsafe {
        match libc::pthread_sigmask(libc::SIG_BLOCK, &more.0, before.as_mut_ptr()) {
            0 => Ok(Mask(before.assume_init())),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// The ends of children, told to this process while this lives.
///
/// A process inherits from whoever started it that SIGCHLD is ignored. The kernel then reaps its
/// children and tells it nothing, so that a launcher would wait for ranks that ended long ago.
pub(super) struct Ends {
    before: libc::sigaction,
}

impl Ends {
    /// Begins to hear them, whatever was done with SIGCHLD before.
    pub(super) fn hear() -> io::Result<Ends> {
        let mut default = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all zeros are a value of the structure; the set in it is initialized again as
        // the C library wants it, and the rest says: the default, with no flag such as the one
        // that leaves no zombies.
        let default = unsafe {
            libc::sigemptyset(&raw mut (*default.as_mut_ptr()).sa_mask);
            (*default.as_mut_ptr()).sa_sigaction = libc::SIG_DFL;
            default.assume_init()
        };
        let mut before = MaybeUninit::uninit();
        // SAFETY: the new action is initialized, and on success the old one is written to `before`.
        unsafe {
            match libc::sigaction(libc::SIGCHLD, &default, before.as_mut_ptr()) {
                0 => Ok(Ends {
                    before: before.assume_init(),
                }),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // SAFETY: the action is one that was in force before, and no old one is asked for.
        unsafe { libc::sigaction(libc::SIGCHLD, &self.before, ptr::null_mut()) };
    }
}

/// What this process did with signals before the job: programs that it starts begin with that.
#[derive(Clone, Copy)]
pub(super) struct Before {
    mask: Mask,
    ignored_ends: bool,
}

impl Before {
    /// Makes it what the calling thread does. Safe to call between fork and exec.
    pub(super) fn restore(&self) -> io::Result<()> {
        if self.ignored_ends {
            // SAFETY: ignoring a signal runs no code of this process.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        }
        self.mask.set()
    }
}

/// Whether this process ignores a signal.
fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is given; the old one is written to `action`, which is a value
    // of its type before that, too.
    let action = unsafe {
        libc::sigaction(signal.as_raw(), ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// The signals this process hears, blocked while this lives.
pub(super) struct Signals {
    fd: OwnedFd,
    before: Before,
}

impl Signals {
    /// Begins to hear them, in the calling thread and those it starts.
    ///
    /// What was ignored, as SIGHUP is under `nohup`, is not heard: a signal that is blocked would
    /// arrive all the same.
    pub(super) fn hear(ends: &Ends) -> io::Result<Signals> {
        let heard = HEARD.into_iter().filter(|signal| !is_ignored(*signal));
        let heard = Mask::of(&heard.collect::<Vec<_>>());
        let mask = block_all(&heard)?;
        // SAFETY: the set is initialized; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &heard.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            mask.set()?;
            return Err(error);
        }
        // SAFETY: signalfd made the descriptor, and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let ignored_ends = ends.before.sa_sigaction == libc::SIG_IGN;
        let before = Before { mask, ignored_ends };
        Ok(Signals { fd, before })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// What was before, for programs that are started.
    pub(super) fn before(&self) -> Before {
        self.before
    }

    /// The next signal that came, if one did.
    pub(super) fn next(&self) -> Option<Signal> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: `info` has room for the `size` bytes that may be written to it.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if usize::try_from(got) != Ok(size) {
            return None;
        }
        // SAFETY: a signalfd gives whole structures, and one was read.
        let info = unsafe { info.assume_init() };
        Signal::from_named_raw(i32::try_from(info.ssi_signo).ok()?)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // What is pending now acts as it would have on the launcher without a job.
        let _ = self.before.mask.set();
    }
}

const _: () = assert!(mem::size_of::<libc::signalfd_siginfo>() == 128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_read_and_does_not_act() {
        // To the thread and not the process, whose other threads block nothing.
        std::thread::spawn(|| {
            let ends = Ends::hear().unwrap();
            let signals = Signals::hear(&ends).unwrap();
            assert_eq!(signals.next(), None);
            // SAFETY: the calling thread exists.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) };
            assert_eq!(signals.next(), Some(Signal::USR1));
            assert_eq!(signals.next(), None);
        })
        .join()
        .unwrap();
    }
}
