//! Signals read from a descriptor, so that no handler ever runs.
#![allow(unsafe_code, reason = "signal masks and signalfd are the C library's")]

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::process::Signal;

/// The signals that the launcher reads: the ends of children, and the signals it passes on.
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

/// The signals that ask a process to end.
const ENDS: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];

/// A signal mask of a thread.
#[derive(Clone, Copy)]
struct Mask(libc::sigset_t);

impl Mask {
    fn of(signals: &[Signal]) -> Mask {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the function writes a whole set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: sigemptyset has initialized the set.
        let mut set = unsafe { set.assume_init() };
        for signal in signals {
            // SAFETY: the set is initialized, and the number is a signal's.
            unsafe { libc::sigaddset(&mut set, signal.as_raw()) };
        }
        Mask(set)
    }

    /// Sets the calling thread's mask. Safe to call between fork and exec.
    fn set(&self) -> io::Result<()> {
        // SAFETY: the set is initialized, and the null pointer asks for no old mask.
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

/// Blocks more signals for the calling thread, and returns its mask before.
fn block_all(more: &Mask) -> io::Result<Mask> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: `more` is initialized, and `before` has room for the old mask.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &more.0, before.as_mut_ptr()) } {
        // SAFETY: on success the call has written the old mask.
        0 => Ok(Mask(unsafe { before.assume_init() })),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Notification of the ends of children, while this value lives.
///
/// A process may inherit an ignored SIGCHLD from its parent. The kernel then reaps its children
/// without notice. A launcher would wait for ranks that ended long ago.
pub(super) struct ChildEnds {
    before: libc::sigaction,
}

impl ChildEnds {
    /// Starts the notification, whatever the disposition of SIGCHLD was before.
    pub(super) fn listen() -> io::Result<ChildEnds> {
        // The default action without flags: children become zombies until they are reaped.
        let default = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all zeros are a value of the structure.
        let mut default = unsafe { default.assume_init() };
        default.sa_sigaction = libc::SIG_DFL;
        // SAFETY: the function writes a whole set.
        unsafe { libc::sigemptyset(&mut default.sa_mask) };
        let mut before = MaybeUninit::uninit();
        // SAFETY: the new action is initialized, and `before` has room for the old one.
        match unsafe { libc::sigaction(libc::SIGCHLD, &default, before.as_mut_ptr()) } {
            0 => {
                // SAFETY: on success the call has written the old action.
                let before = unsafe { before.assume_init() };
                Ok(ChildEnds { before })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for ChildEnds {
    fn drop(&mut self) {
        // SAFETY: the action was in force before, and the null pointer asks for no old action.
        unsafe { libc::sigaction(libc::SIGCHLD, &self.before, ptr::null_mut()) };
    }
}

/// The signal dispositions of this process before the job, with which its children begin.
#[derive(Clone, Copy)]
pub(super) struct Before {
    mask: Mask,
    ignored_ends: bool,
}

impl Before {
    /// Restores the dispositions in the calling thread. Safe to call between fork and exec.
    pub(super) fn restore(&self) -> io::Result<()> {
        if self.ignored_ends {
            // SAFETY: to ignore a signal runs no code of this process.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        }
        self.mask.set()
    }
}

/// Returns true if this process ignores a signal.
fn is_ignored(signal: Signal) -> bool {
    // SAFETY: all zeros are a value of the structure.
    let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    // SAFETY: the null pointer passes no new action, and `action` has room for the old one.
    unsafe { libc::sigaction(signal.as_raw(), ptr::null(), &mut action) };
    action.sa_sigaction == libc::SIG_IGN
}

/// Blocks those signals that are not ignored. Returns a descriptor that reads them, and the thread's mask before.
fn hold(signals: &[Signal]) -> io::Result<(OwnedFd, Mask)> {
    let held = signals.iter().copied();
    let held = held.filter(|signal| !is_ignored(*signal));
    let held = Mask::of(&held.collect::<Vec<_>>());
    let before = block_all(&held)?;
    // SAFETY: the set is initialized; -1 requests a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &held.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        before.set()?;
        return Err(error);
    }
    // SAFETY: signalfd made the descriptor, and nothing else owns it.
    Ok((unsafe { OwnedFd::from_raw_fd(fd) }, before))
}

/// The signals that ask a process to end (SIGHUP, SIGINT, SIGQUIT and SIGTERM), held back while this value lives. So
/// the process can put in order what it has changed. They act when this is dropped, in the thread that made it.
///
/// The descriptor can be read once such a signal waits. Signals that were ignored are still ignored. Other threads of
/// the process must block the signals, too.
pub struct EndSignals {
    fd: OwnedFd,
    before: Mask,
}

impl EndSignals {
    /// Begins to hold the signals back, in the calling thread and those that it starts.
    ///
    /// # Errors
    /// The system's, if the process has no descriptors left.
    pub fn hold() -> io::Result<Self> {
        let (fd, before) = hold(&ENDS)?;
        Ok(Self { fd, before })
    }
}

impl AsFd for EndSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for EndSignals {
    fn drop(&mut self) {
        let _ = self.before.set();
    }
}

/// The signals that this process reads. They are blocked while this value lives.
pub(super) struct Signals {
    fd: OwnedFd,
    before: Before,
}

impl Signals {
    /// Starts to read signals, in the calling thread and the threads it starts.
    ///
    /// An ignored signal, such as SIGHUP under `nohup`, is not read: a blocked signal would arrive
    /// even if it is ignored.
    pub(super) fn listen(ends: &ChildEnds) -> io::Result<Signals> {
        let (fd, mask) = hold(&HEARD)?;
        let ignored_ends = ends.before.sa_sigaction == libc::SIG_IGN;
        let before = Before { mask, ignored_ends };
        Ok(Signals { fd, before })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the dispositions before the job, for programs that the launcher starts.
    pub(super) fn before(&self) -> Before {
        self.before
    }

    /// Returns the next pending signal.
    pub(super) fn next(&self) -> Option<Signal> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: `info` has room for the `size` bytes that the call may write.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if usize::try_from(got) != Ok(size) {
            return None;
        }
        // SAFETY: a signalfd returns whole structures, and the call read one.
        let info = unsafe { info.assume_init() };
        Signal::from_named_raw(i32::try_from(info.ssi_signo).ok()?)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // A signal that is pending now acts on the launcher as it would without a job.
        let _ = self.before.mask.set();
    }
}

const _: () = assert!(mem::size_of::<libc::signalfd_siginfo>() == 128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_read_and_does_not_act() {
        // The signal goes to a thread. The process's other threads do not block it.
        std::thread::spawn(|| {
            let ends = ChildEnds::listen().unwrap();
            let signals = Signals::listen(&ends).unwrap();
            assert_eq!(signals.next(), None);
            // SAFETY: the call has no conditions.
            let this = unsafe { libc::pthread_self() };
            // SAFETY: the calling thread exists.
            unsafe { libc::pthread_kill(this, libc::SIGUSR1) };
            assert_eq!(signals.next(), Some(Signal::USR1));
            assert_eq!(signals.next(), None);
        })
        .join()
        .unwrap();
    }
}
