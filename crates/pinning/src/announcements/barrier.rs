//! An asymmetric barrier between threads that store and then load: [`light`] costs a frequent
//! thread nothing, and [`heavy`] costs a rare one a system call (`membarrier`, Linux 4.14).
//!
//! One thread stores A, calls `light` and loads B. Another stores B, calls `heavy` and loads A. At
//! least one of them sees what the other stored. Under loom and miri both are full barriers.

use crate::sync::{Ordering::SeqCst, fence};

#[cfg(not(any(loom, miri)))]
mod system {
    use std::sync::OnceLock;
    use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

    use rustix::thread::{MembarrierCommand, membarrier};

    pub(super) fn is_there() -> bool {
        static IS_THERE: OnceLock<bool> = OnceLock::new();
        *IS_THERE.get_or_init(|| {
            let registered = membarrier(MembarrierCommand::RegisterPrivateExpedited);
            // A filter may know only the first of the two calls.
            let tried = registered.and_then(|()| membarrier(MembarrierCommand::PrivateExpedited));
            tried.is_ok()
        })
    }

    #[inline(always)]
    pub(super) fn light() {
        compiler_fence(SeqCst);
    }

    pub(super) fn heavy() {
        membarrier(MembarrierCommand::PrivateExpedited)
            .expect("the system grants the process a memory barrier as before");
    }
}

#[cfg(any(loom, miri))]
mod system {
    use crate::sync::{Ordering::SeqCst, fence};

    pub(super) fn is_there() -> bool {
        true
    }

    pub(super) fn light() {
        fence(SeqCst);
    }

    pub(super) fn heavy() {}
}

/// Returns true if the system makes barriers in all threads of the process. Otherwise the two
/// functions below order nothing.
pub(super) fn is_there() -> bool {
    system::is_there()
}

/// The side of the frequent threads.
#[inline(always)]
pub(super) fn light() {
    system::light();
}

/// The side of the rare thread.
///
/// # Panics
///
/// If the system takes the barrier away that it granted.
pub(super) fn heavy() {
    fence(SeqCst);
    system::heavy();
}
