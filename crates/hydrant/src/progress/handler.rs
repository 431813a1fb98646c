//! Whether a thread is in a handler, where nothing may wait.

use std::cell::Cell;

use crate::{Error, Result};

thread_local! {
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// Runs a handler: within it nothing may wait.
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

/// Whether this thread may wait for `what`: in a handler nothing may. For layers on top of this one that
/// hold locks of their own while they wait, which a handler may find taken by the thread that it interrupts.
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
