//! The rendezvous for long arguments and results of calls: the sender exposes them, and the
//! receiver gets them.

use std::sync::{Arc, Weak};

use super::handles;
use crate::{
    Error, GlobalPtr, Rank, Result,
    memory::{Exposed, Registry},
    message::{BoxedFuture, LoanGuard, Rendezvous},
    transfer::Transfer,
};

/// Lends and gets the buffers of a job. It does not keep the job alive.
pub(crate) struct Buffers {
    transfer: Weak<Transfer>,
    memory: Arc<Registry>,
}

impl Buffers {
    pub(crate) fn new(transfer: &Arc<Transfer>, memory: &Arc<Registry>) -> Self {
        Self {
            transfer: Arc::downgrade(transfer),
            memory: Arc::clone(memory),
        }
    }
}

impl Rendezvous for Buffers {
    fn lend(&self, bytes: Vec<u8>) -> BoxedFuture<Result<(u64, LoanGuard)>> {
        let transfer = self.transfer.upgrade();
        let memory = Arc::clone(&self.memory);
        Box::pin(async move {
            let transfer = transfer.ok_or(Error::JobOver)?;
            let exposed = Exposed::owning_later(&transfer, &memory, bytes).await?;
            Ok((exposed.key().0, Box::new(exposed) as LoanGuard))
        })
    }

    fn fetch(&self, from: Rank, key: u64, len: u64) -> BoxedFuture<Result<Vec<u8>>> {
        let transfer = self.transfer.upgrade();
        let memory = Arc::clone(&self.memory);
        Box::pin(async move {
            let transfer = transfer.ok_or(Error::JobOver)?;
            transfer.learn_of(from, key).await?;
            // The zeroed memory is not touched, because the peer may claim a length that it does
            // not have.
            let zeros = usize::try_from(len).ok();
            let zeros = zeros.and_then(|len| bytemuck::allocation::try_zeroed_vec::<u8>(len).ok());
            let buffer = zeros.ok_or(Error::MessageTooLong {
                len: usize::try_from(len).unwrap_or(usize::MAX),
                limit: isize::MAX as usize,
            })?;
            let place = GlobalPtr::extent(transfer.progress.id, from, key, 0);
            match handles::get_from(&transfer, &memory, place, buffer).map_err(Error::from) {
                Ok(get) => get.await,
                // The loan has ended since it became known, and a task cannot ask again.
                Err(Error::InHandler { .. }) => Err(transfer.why_unknown(from)),
                Err(cause) => Err(cause),
            }
        })
    }
}
