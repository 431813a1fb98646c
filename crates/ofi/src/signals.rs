//! The actions of signals, which libraries change when they are loaded.
//!
//! Debian 12's libfabric 1.17 loads libraries of Intel's old networks (libinfinipath 3.3, libpsm2 11.2). Their
//! constructors take SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGILL and SIGABRT from the program: each prints a backtrace and
//! ends the process with status 1. A program that has `hydrant-ofi` in it keeps its own actions.

#![allow(unsafe_code)] // reads and sets actions

use std::mem::MaybeUninit;

use libc::{c_int, sigaction};

/// The signals that a library may take. The others are of the kernel or of real time.
const SIGNALS: std::ops::RangeInclusive<c_int> = 1..=31;

/// The actions of all signals.
pub(crate) struct SignalActions(Vec<(c_int, sigaction)>);

impl SignalActions {
    /// Returns the actions of this process.
    pub(crate) fn now() -> Self {
        Self(SIGNALS.filter_map(|it| Some((it, action(it)?))).collect())
    }

    /// Sets the actions that have changed since.
    pub(crate) fn restore(&self) {
        for (signal, before) in &self.0 {
            let is_other =
                action(*signal).is_some_and(|now| now.sa_sigaction != before.sa_sigaction);
            if is_other {
                // SAFETY: the action was this process's before, and is valid.
                unsafe { sigaction(*signal, before, std::ptr::null_mut()) };
            }
        }
    }
}

/// Returns the action of a signal.
fn action(signal: c_int) -> Option<sigaction> {
    let mut action = MaybeUninit::uninit();
    // SAFETY: without a new action the call only writes the present one.
    let outcome = unsafe { sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call has written it.
    (outcome == 0).then(|| unsafe { action.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_takes_no_signal() {
        let actions = || -> Vec<usize> {
            let all = SignalActions::now().0;
            all.iter().map(|(_, it)| it.sa_sigaction).collect()
        };
        let before = actions();
        if let Err(why) = crate::library::library() {
            return hydrant_testing::left_out(why);
        }
        assert_eq!(actions(), before);
    }
}
