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
pub(super) struct Mask(libc::sigset_t);

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
    pub(super) fn set(&self) -> io::Result<()> {
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

/// The signals this process hears, blocked while this lives.
pub(super) struct Signals {
    fd: OwnedFd,
    before: Mask,
}

impl Signals {
    /// Begins to hear them, in the calling thread and those it starts.
    pub(super) fn hear() -> io::Result<Signals> {
        let heard = Mask::of(&HEARD);
        let before = block_all(&heard)?;
        // SAFETY: the set is initialized; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &heard.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            before.set()?;
            return Err(error);
        }
        // SAFETY: signalfd made the descriptor, and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Signals { fd, before })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The mask from before, for programs that are started.
    pub(super) fn before(&self) -> Mask {
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
        let _ = self.before.set();
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
            let signals = Signals::hear().unwrap();
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
