//! The queue pairs by which peers reach this rank.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::nic::QueuePair;

/// The connection that one peer made to this rank. Only the control thread changes it.
#[derive(Default)]
pub(crate) struct IncomingConnection {
    /// The number of connections that the peer had made before.
    epoch: u32,
    /// The queue pair that answers the peer. `None` before the peer first connects, or after it is
    /// lost.
    pair: Option<QueuePair>,
    /// The PSN that the pair expected when the peer first asked after the connection broke.
    expected_psn: Option<u32>,
    /// True if receive slots were made for the peer's messages.
    has_slots: bool,
}

/// The kinds of request to connect, judged by the existing connection.
pub(crate) enum ConnectRequest {
    /// The queue pair of this number already answered it.
    Answered(u32),
    /// The request is older than the last answered one.
    Stale,
    /// The request needs a new queue pair.
    New,
}

impl IncomingConnection {
    /// Classifies a request to connect. `oneself`: the peer is this rank, which uses a new queue
    /// pair for each try.
    pub(crate) fn classify(&self, epoch: u32, oneself: bool) -> ConnectRequest {
        match &self.pair {
            Some(_) if oneself => ConnectRequest::New,
            Some(pair) if self.epoch == epoch => ConnectRequest::Answered(pair.number),
            Some(_) if self.epoch.wrapping_sub(epoch) < u32::MAX / 2 => ConnectRequest::Stale,
            _ => ConnectRequest::New,
        }
    }

    pub(crate) fn has_slots(&self) -> bool {
        self.has_slots
    }

    /// Notes that receive slots were made for the peer's messages.
    pub(crate) fn set_has_slots(&mut self) {
        self.has_slots = true;
    }

    /// Installs a new queue pair that answers the peer. Returns the old pair.
    pub(crate) fn replace(&mut self, pair: QueuePair, epoch: u32) -> Option<QueuePair> {
        self.epoch = epoch;
        self.expected_psn = None;
        self.pair.replace(pair)
    }

    /// Removes and returns the queue pair, so that nothing answers the peer.
    pub(crate) fn take_pair(&mut self) -> Option<QueuePair> {
        self.pair.take()
    }

    /// Returns the PSN that the connection of this epoch expects next, or `None` for any other
    /// epoch. `find` asks the queue pair, on the first call only.
    pub(crate) fn expected_psn(
        &mut self,
        epoch: u32,
        find: impl FnOnce(&QueuePair) -> std::io::Result<u32>,
    ) -> Option<std::io::Result<u32>> {
        let pair = self.pair.as_ref().filter(|_| self.epoch == epoch)?;
        let found = self.expected_psn.map_or_else(|| find(pair), Ok);
        self.expected_psn = found.as_ref().ok().copied();
        Some(found)
    }
}

/// The peer behind each queue pair, for pairs that answer and for retired ones.
#[derive(Default)]
pub(crate) struct IncomingPairs {
    /// The peer's rank by the number of the queue pair. The control thread adds entries; the thread
    /// that polls removes them.
    ranks: RwLock<FxHashMap<u32, u32>>,
    /// Queue pairs that no longer answer, whose messages may still be unread.
    retired: Mutex<Vec<QueuePair>>,
    /// True if `retired` has entries.
    any_retired: AtomicBool,
}

impl IncomingPairs {
    pub(crate) fn add(&self, number: u32, rank: u32) {
        self.ranks.write().insert(number, rank);
    }

    /// Returns the rank whose messages arrive by a queue pair.
    pub(crate) fn sender(&self, number: u32) -> Option<u32> {
        self.ranks.read().get(&number).copied()
    }

    /// Halts a queue pair and retires it. Its arrived messages are still delivered.
    pub(crate) fn retire(&self, pair: QueuePair) {
        if let Err(cause) = pair.halt() {
            tracing::debug!(%cause, "a queue pair was not halted");
        }
        self.retired.lock().push(pair);
        self.any_retired.store(true, Relaxed);
    }

    /// Takes the queue pairs that retired so far. The caller then checks whether their messages
    /// were read.
    #[inline]
    pub(crate) fn take_retired(&self) -> Option<Vec<QueuePair>> {
        if !self.any_retired.load(Relaxed) {
            return None;
        }
        let mut retired = self.retired.lock();
        self.any_retired.store(false, Relaxed);
        Some(std::mem::take(&mut *retired))
    }

    /// Puts back queue pairs whose messages may still be unread.
    pub(crate) fn put_back_retired(&self, mut pairs: Vec<QueuePair>) {
        self.retired.lock().append(&mut pairs);
        self.any_retired.store(true, Relaxed);
    }

    /// Forgets queue pairs whose messages were all read.
    pub(crate) fn forget(&self, pairs: &[QueuePair]) {
        let mut ranks = self.ranks.write();
        for pair in pairs {
            ranks.remove(&pair.number);
        }
    }
}
