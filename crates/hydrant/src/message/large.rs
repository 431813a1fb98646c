//! Arguments and results of calls that no message takes: whoever has them lends them, the message
//! says where, and the other side gets them one-sidedly.
//!
//! ```text
//! request CALL    args id, key, bytes           the argument lies there; until the answer, or BEGUN
//!                 args id, key, bytes, 1        the same, for a one-way call
//! request RESULT  args id                       BEGUN: the argument was got, and the result may take its time
//! request RESULT  args id, handler, key, bytes  LENT: the result lies there; until RELEASED
//!                 args key                      RELEASED: it was got
//! ```

use std::{any::Any, pin::Pin, sync::Arc};

use hydrant_conduit::{Conduit, Message, Standing};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::answer::status;
use crate::{
    Error, Rank, Result,
    progress::{Progress, in_handler, kind},
};

/// Bytes that are lent to peers until this is dropped.
pub(crate) type Lent = Box<dyn Any + Send>;

/// A future without a name.
pub(crate) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Lends bytes to peers and gets theirs; done by a room above.
pub(crate) trait Rendezvous: Send + Sync {
    /// Lends `bytes`: by which key. Ready at once where this thread may wait.
    fn lend(&self, bytes: Vec<u8>) -> Later<Result<(u64, Lent)>>;

    /// Gets `len` bytes that `from` lent.
    fn fetch(&self, from: Rank, key: u64, len: u64) -> Later<Result<Vec<u8>>>;
}

/// What a rank knows of long arguments and results.
pub(crate) struct Large {
    pub(super) rendezvous: Box<dyn Rendezvous>,
    /// Results that callers have not got yet, by caller and key; none once the job is over.
    given: Mutex<Option<FxHashMap<(Rank, u64), Lent>>>,
}

impl Large {
    pub(crate) fn new(rendezvous: Box<dyn Rendezvous>) -> Self {
        Self {
            rendezvous,
            given: Mutex::new(Some(FxHashMap::default())),
        }
    }

    /// Keeps a result until `caller` has got it.
    pub(super) fn give(&self, conduit: &dyn Conduit, caller: Rank, key: u64, lent: Lent) {
        let mut locked = self.given.lock();
        let Some(given) = &mut *locked else {
            drop(locked);
            return let_go(lent);
        };
        given.insert((caller, key), lent);
        // Who has ended gets nothing any more.
        let gone = given.extract_if(|(rank, _), _| conduit.standing(*rank) != Standing::Present);
        let gone: Vec<_> = gone.collect();
        drop(locked);
        let_go(gone);
    }

    /// `caller` has got a result, or could not; `false` if none was given. Of one that has ended, and
    /// when the job is over here, nothing is known any more.
    pub(super) fn released(&self, conduit: &dyn Conduit, caller: Rank, key: u64) -> bool {
        let mut locked = self.given.lock();
        let Some(given) = &mut *locked else {
            return true;
        };
        let lent = given.remove(&(caller, key));
        drop(locked);
        let known = lent.is_some() || conduit.standing(caller) != Standing::Present;
        let_go(lent);
        known
    }

    /// The job is over.
    pub(super) fn close(&self) {
        let given = self.given.lock().take();
        drop(given);
    }

    /// Gets what `from` lent as a result, and says so.
    ///
    /// # Errors
    /// As the get; [`Error::PeerLost`] if it was taken back, which only a rank does that leaves.
    pub(super) async fn result(
        self: Arc<Self>,
        progress: Arc<Progress>,
        (from, key, len): (Rank, u64, u64),
    ) -> Result<Vec<u8>> {
        let bytes = self.rendezvous.fetch(from, key, len).await;
        let released = Message {
            kind: kind::RESULT,
            tag: status::RELEASED,
            args: &[key],
            payload: &[],
        };
        let _ = progress.send_result(from, &released);
        match bytes {
            Err(Error::Revoked { .. }) => Err(Error::PeerLost(from)),
            other => other,
        }
    }
}

/// Ends loans in the midst of a poll, which may not wait for that.
pub(super) fn let_go<T>(lent: T) {
    in_handler(|| drop(lent));
}
