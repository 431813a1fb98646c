//! Threads that register own memory in the background.

use std::{sync::Arc, thread};

use super::Transfer;
use crate::{Result, registration::BulkRegistration};

impl Transfer {
    /// Registers own memory in the background, before its use. The memory is symmetric, or it is exposed.
    pub(crate) fn register_in_background(
        self: &Arc<Self>,
        addr: u64,
        len: u64,
    ) -> BulkRegistration {
        let Some(registration) = self.registration() else {
            return BulkRegistration::nothing(&self.progress);
        };
        let (handle, threads) = registration.ask_in_background(addr, len);
        for _ in 0..threads {
            let transfer = Arc::clone(self);
            let work = move || {
                if let Some(registration) = transfer.registration() {
                    registration.register_waiting();
                }
            };
            let thread = thread::Builder::new().name("hydrant-register".to_owned());
            match thread.spawn(work) {
                Ok(thread) => registration.keep_thread(thread),
                Err(cause) => {
                    tracing::warn!(%cause, "no thread registers memory in the background");
                    registration.register_waiting();
                }
            }
        }
        handle
    }

    /// As [`register_in_background`](Self::register_in_background), for a part of the own segment.
    ///
    /// # Errors
    /// The launcher's.
    pub(crate) fn register_block_in_background(
        self: &Arc<Self>,
        offset: usize,
        len: usize,
    ) -> Result<BulkRegistration> {
        let addr = match self.registration() {
            Some(registration) => registration.own_segment()? + offset as u64,
            None => 0,
        };
        Ok(self.register_in_background(addr, len as u64))
    }

    /// Ends the threads. Memory that waits stays unregistered.
    pub(crate) fn stop_background(&self) {
        if let Some(registration) = self.registration() {
            registration.stop_background();
        }
    }
}
