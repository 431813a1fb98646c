//! Tracks whether a thread runs a handler, in which nothing may wait.

use std::cell::Cell;

use crate::{Error, Result};

thread_local! {
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// Runs a handler. Nothing may wait in it.
pub(crate) fn in_handler<R>(handler: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IN_HANDLER.with(|flag| flag.set(self.0));
        }
    }
    let _restore = Restore(IN_HANDLER.with(|flag| flag.replace(true)));
    handler()
}

/// Checks that this thread may wait in the call named `what`: a handler may not. For layers above
/// this crate that hold locks of their own while they wait. A handler may interrupt the thread that
/// holds such a lock.
///
/// # Errors
/// [`Error::InHandler`] in a handler.
#[inline]
pub fn may_wait(what: &'static str) -> Result<()> {
    if IN_HANDLER.with(Cell::get) {
        Err(Error::InHandler { what })
    } else {
        Ok(())
    }
}
