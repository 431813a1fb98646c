//! The whole address space of a peer: GASNet's EVERYTHING segment.
//!
//! Memory that is named by its address gets firehoses where its owner hears of changes of memory
//! (`HYDRANT_MONITOR`). Elsewhere its pages may come and go unseen, so it is not kept registered, unless the
//! program [lends](crate::Job::lend_anywhere) memory that it knows to stay mapped.

#![allow(unsafe_code)] // writes to any address that the caller names

use hydrant_conduit::{Key, Remote};

use std::sync::Arc;

use crate::{Error, Rank, Result, counters::Count, transfer::Transfer};

/// Puts bytes to any address of a peer.
///
/// # Safety
/// As [`Job::put_anywhere`](crate::Job::put_anywhere).
///
/// # Errors
/// As [`Job::put_anywhere`](crate::Job::put_anywhere).
#[track_caller]
pub(crate) unsafe fn put(transfer: &Transfer, rank: Rank, addr: u64, data: &[u8]) -> Result<()> {
    let progress = &transfer.progress;
    (progress.tally).add_each([(Count::Puts, 1), (Count::PutBytes, data.len() as u64)]);
    (transfer.write(rank, anywhere(addr), data)).map_err(|cause| as_refused(cause, rank))?;
    progress.conduit().notify(rank);
    Ok(())
}

/// Gets bytes from any address of a peer.
///
/// # Safety
/// As [`Job::get_anywhere`](crate::Job::get_anywhere).
///
/// # Errors
/// As [`Job::get_anywhere`](crate::Job::get_anywhere).
#[track_caller]
pub(crate) unsafe fn get(
    transfer: &Transfer,
    rank: Rank,
    addr: u64,
    data: &mut [u8],
) -> Result<()> {
    let progress = &transfer.progress;
    (progress.tally).add_each([(Count::Gets, 1), (Count::GetBytes, data.len() as u64)]);
    (transfer.read(rank, anywhere(addr), data)).map_err(|cause| as_refused(cause, rank))
}

/// A loan of own memory that stays mapped; made by
/// [`Job::lend_anywhere`](crate::Job::lend_anywhere).
#[must_use = "the loan ends when it is dropped"]
pub struct AnywhereLoan {
    transfer: Arc<Transfer>,
    /// `None` if the network needs no registration.
    key: Option<Key>,
}

impl AnywhereLoan {
    /// Lends memory to peers that name it by its address.
    ///
    /// # Safety
    /// As [`Job::lend_anywhere`](crate::Job::lend_anywhere).
    ///
    /// # Errors
    /// As [`Job::lend_anywhere`](crate::Job::lend_anywhere).
    pub(crate) unsafe fn new(transfer: &Arc<Transfer>, addr: *mut u8, len: usize) -> Result<Self> {
        let key = transfer.lend_steady(addr.expose_provenance() as u64, len as u64)?;
        Ok(Self {
            transfer: Arc::clone(transfer),
            key,
        })
    }
}

impl Drop for AnywhereLoan {
    fn drop(&mut self) {
        if let Some(key) = self.key
            && !self.transfer.progress.is_forked()
            && !(self.transfer.progress).abort_on_unwind(|| self.transfer.unlend_steady(key))
        {
            let cause = Error::InHandler {
                what: "the end of a loan",
            };
            tracing::error!(%cause, "lent memory may still be registered");
        }
    }
}

/// Converts the error of a peer that lends no memory by address.
fn as_refused(cause: Error, rank: Rank) -> Error {
    match cause {
        Error::Revoked { .. } => Error::AnywhereRefused { rank },
        cause => cause,
    }
}

fn anywhere(addr: u64) -> Remote {
    Remote {
        key: Key::ANY,
        offset: addr,
    }
}
