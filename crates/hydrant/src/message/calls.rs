//! Questions to other ranks, and the answers that are waited for.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use parking_lot::{Mutex, MutexGuard};

use crate::{
    Error, Rank, Result,
    progress::{For, On, Progress},
};

/// Questions that were asked and not yet answered, and answers that nobody took yet.
#[derive(Default)]
pub(crate) struct Calls {
    /// By number; none until the answer comes.
    open: Mutex<HashMap<u64, Option<Result<Vec<u8>>>>>,
    /// The next question's number.
    next: AtomicU64,
}

impl Calls {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, Option<Result<Vec<u8>>>>> {
        self.open.lock()
    }

    /// Asks `rank` by the message that `send` sends under the number given, and waits for what
    /// [`end`](Self::end) takes for that number.
    ///
    /// # Errors
    /// What `send` returns, what the answer says, [`Error::PeerLost`].
    pub(crate) fn ask(
        &self,
        progress: &Progress,
        rank: Rank,
        send: impl FnOnce(u64) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let id = self.begin();
        let mut result = None;
        let waited = send(id).and_then(|()| {
            progress.wait(On::Rank(rank), For::Message, || {
                result = self.take(id);
                result.is_some()
            })
        });
        if let Err(error) = waited {
            self.forget(id);
            return Err(error);
        }
        result.unwrap_or(Err(Error::PeerLost(rank)))
    }

    fn begin(&self) -> u64 {
        let id = self.next.fetch_add(1, Relaxed);
        self.open().insert(id, None);
        id
    }

    /// An answer came; `false` if nobody waits for it.
    pub(crate) fn end(&self, id: u64, result: Result<Vec<u8>>) -> bool {
        match self.open().get_mut(&id) {
            Some(slot) => {
                *slot = Some(result);
                true
            }
            None => false,
        }
    }

    fn take(&self, id: u64) -> Option<Result<Vec<u8>>> {
        let mut open = self.open();
        let result = open.get_mut(&id)?.take()?;
        open.remove(&id);
        Some(result)
    }

    fn forget(&self, id: u64) {
        self.open().remove(&id);
    }
}
