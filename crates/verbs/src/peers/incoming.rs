//! The queue pairs by which peers reach this rank.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::nic::QueuePair;

/// The connection that one peer made to this rank. The control thread alone changes it.
#[derive(Default)]
pub(crate) struct IncomingConnection {
    /// How many connections the peer had made before.
    epoch: u32,
    /// What answers the peer; none before it first connects, or when it is lost.
    pair: Option<QueuePair>,
    /// The PSN that the pair expected when the peer first asked, for the connection broke.
    expected_psn: Option<u32>,
    /// Whether the peer's messages have receive slots here.
    has_slots: bool,
}

/// What a request to connect is, by what is there.
pub(crate) enum ConnectRequest {
    /// It was answered before: by the queue pair of this number.
    Answered(u32),
    /// It is older than what was answered last.
    Stale,
    New,
}

impl IncomingConnection {
    /// `oneself`: whether the peer is this rank, whose every try is with another queue pair.
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

    /// The peer's messages have receive slots from now on.
    pub(crate) fn set_has_slots(&mut self) {
        self.has_slots = true;
    }

    /// A new queue pair answers the peer: the one that did so before.
    pub(crate) fn replace(&mut self, pair: QueuePair, epoch: u32) -> Option<QueuePair> {
        self.epoch = epoch;
        self.expected_psn = None;
        self.pair.replace(pair)
    }

    /// Nothing answers the peer from now on: what did.
    pub(crate) fn take_pair(&mut self) -> Option<QueuePair> {
        self.pair.take()
    }

    /// The PSN that the connection of this epoch, which broke, expects next; `None` if it is not
    /// the one that is there. `find` asks the queue pair, once.
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

/// Which peer's messages come in by which queue pair, of those that answer and those that did.
#[derive(Default)]
pub(crate) struct IncomingPairs {
    /// The peer's rank, by the number of the queue pair. Filled by the control thread, emptied by
    /// who polls.
    ranks: RwLock<FxHashMap<u32, u32>>,
    /// Queue pairs that answer nothing any more, of which messages may still be unread.
    retired: Mutex<Vec<QueuePair>>,
    /// Whether there are such.
    any_retired: AtomicBool,
}

impl IncomingPairs {
    pub(crate) fn add(&self, number: u32, rank: u32) {
        self.ranks.write().insert(number, rank);
    }

    /// The rank whose messages come in by a queue pair.
    pub(crate) fn sender(&self, number: u32) -> Option<u32> {
        self.ranks.read().get(&number).copied()
    }

    /// A queue pair answers nothing from now on. What came by it is still delivered.
    pub(crate) fn retire(&self, pair: QueuePair) {
        if let Err(cause) = pair.halt() {
            tracing::debug!(%cause, "a queue pair was not halted");
        }
        self.retired.lock().push(pair);
        self.any_retired.store(true, Relaxed);
    }

    /// Those that retired so far, for who then looks whether anything of them is unread.
    #[inline]
    pub(crate) fn take_retired(&self) -> Option<Vec<QueuePair>> {
        if !self.any_retired.load(Relaxed) {
            return None;
        }
        let mut retired = self.retired.lock();
        self.any_retired.store(false, Relaxed);
        Some(std::mem::take(&mut *retired))
    }

    /// Something of these may still be unread.
    pub(crate) fn put_back_retired(&self, mut pairs: Vec<QueuePair>) {
        self.retired.lock().append(&mut pairs);
        self.any_retired.store(true, Relaxed);
    }

    /// Nothing of these is unread: they go.
    pub(crate) fn forget(&self, pairs: &[QueuePair]) {
        let mut ranks = self.ranks.write();
        for pair in pairs {
            ranks.remove(&pair.number);
        }
    }
}
