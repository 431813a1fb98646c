//! Arguments and results of calls that exceed a message. Their owner lends them and sends their
//! address, and the peer gets them.
//!
//! ```text
//! request CALL    args id, key, bytes           the argument is lent until the answer or BEGUN
//!                 args id, key, bytes, 1        the same, for a one-way call
//! request RESULT  args id                       BEGUN: the argument was got
//! request RESULT  args id, handler, key, bytes  LENT: the result is lent until RELEASED
//!                 args key                      RELEASED: the result was got
//! ```

use std::{any::Any, pin::Pin, sync::Arc};

use hydrant_conduit::{Conduit, Message, Standing};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::status;
use crate::{
    Error, Rank, Result,
    progress::{Progress, in_handler, kind},
};

/// The guard of bytes lent to peers. Its drop ends the loan.
pub(crate) type LoanGuard = Box<dyn Any + Send>;

/// A boxed future.
pub(crate) type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Lends bytes to peers and gets theirs. A higher room implements it.
pub(crate) trait Rendezvous: Send + Sync {
    /// Lends `bytes`, and returns their key. The future is ready at once where this thread may
    /// wait.
    fn lend(&self, bytes: Vec<u8>) -> BoxedFuture<Result<(u64, LoanGuard)>>;

    /// Gets `len` bytes that `from` has lent.
    fn fetch(&self, from: Rank, key: u64, len: u64) -> BoxedFuture<Result<Vec<u8>>>;
}

/// The arguments and results of a rank that exceed a message.
pub(crate) struct Large {
    pub(super) rendezvous: Box<dyn Rendezvous>,
    /// Results that callers have not got yet, by caller and key. `None` once the job is over.
    given: Mutex<Option<FxHashMap<(Rank, u64), LoanGuard>>>,
}

impl Large {
    pub(crate) fn new(rendezvous: Box<dyn Rendezvous>) -> Self {
        Self {
            rendezvous,
            given: Mutex::new(Some(FxHashMap::default())),
        }
    }

    /// Keeps a result until `caller` has got it.
    pub(super) fn give(&self, conduit: &dyn Conduit, caller: Rank, key: u64, lent: LoanGuard) {
        let mut locked = self.given.lock();
        let Some(given) = &mut *locked else {
            drop(locked);
            return end_loans(lent);
        };
        given.insert((caller, key), lent);
        // Callers that have ended get nothing any more.
        let gone = given.extract_if(|(rank, _), _| conduit.standing(*rank) != Standing::Present);
        let gone: Vec<_> = gone.collect();
        drop(locked);
        end_loans(gone);
    }

    /// Ends the loan of a result that `caller` got, or could not get. Returns `false` if no such
    /// result was lent. Always returns `true` if the caller or this rank's job has ended.
    pub(super) fn release(&self, conduit: &dyn Conduit, caller: Rank, key: u64) -> bool {
        let mut locked = self.given.lock();
        let Some(given) = &mut *locked else {
            return true;
        };
        let lent = given.remove(&(caller, key));
        drop(locked);
        let known = lent.is_some() || conduit.standing(caller) != Standing::Present;
        end_loans(lent);
        known
    }

    /// Ends all loans, because the job is over.
    pub(super) fn close(&self) {
        let given = self.given.lock().take();
        drop(given);
    }

    /// Gets the result that `from` lends, and releases it.
    ///
    /// # Errors
    /// The errors of the get. [`Error::PeerLost`] if the loan was revoked: only a leaving rank does
    /// that.
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

/// Ends loans during a poll, which may not wait for their users.
pub(super) fn end_loans<T>(lent: T) {
    in_handler(|| drop(lent));
}
