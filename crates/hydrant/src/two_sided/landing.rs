//! A place in the buffer of a receive that its message's sender is told, and writes to (ARMCI §3, zero-copy; Tezuka
//! §2): the receiver registers its own side, and the sender asks nobody for a firehose.
//!
//! A place is as much as may be registered at once. What shares a bucket with other memory goes in parts. Once all of a
//! place has come, the receiver clears the next one. A place lasts until the sender has said that all of it was
//! written; if the sender is lost, until nothing is registered there any more.

#![allow(unsafe_code)] // has the memory of a receive registered

use std::{ops::Range, slice, sync::Arc};

use hydrant_pinning::Strategy;

use super::{TwoSided, protocol::Long, request::Buffer, wire::Place};
use crate::{
    Rank,
    transfer::{self, Transfer},
};

/// Bytes that are registered at once at least, if as many are left, so that a clear and its answer bring as much as many
/// parts. A place of less than half of that is not asked for.
const LEAST: usize = 128 << 10;

/// A place in a buffer. It is registered until this is dropped.
pub(super) struct Landing {
    buffer: transfer::Buffer<'static>,
    /// Bytes around it that go in parts.
    copied: u64,
    /// Bytes of the message that it is for.
    bytes: usize,
    /// The sender is lost.
    is_given_up: bool,
}

impl TwoSided {
    /// Whether messages of a peer come to places that it is told. The other strategies have each their own way to
    /// register either side, which is what they are compared for.
    pub(super) fn tells_places(&self, from: Rank) -> bool {
        let strategy = self.transfer.registration().map(|it| it.strategy());
        matches!(strategy, Some(Strategy::Auto | Strategy::Firehose))
            && self.protocols.long == Long::Written(usize::MAX)
            && self.progress.conduit().window(from).is_none()
    }
}

impl Landing {
    /// Registers what comes next of a message, those bytes of the buffer at most, and what its sender is told of it.
    /// None if too few of them fill whole buckets, there is no room to register them now, or they are registered already
    /// in pieces too short for that.
    ///
    /// # Safety
    /// Until this is dropped:
    /// 1. The buffer stays allocated.
    /// 2. Nobody else uses these bytes.
    pub(super) unsafe fn new(
        transfer: &Arc<Transfer>,
        buffer: Buffer,
        next: Range<usize>,
    ) -> Option<(Self, Place)> {
        let bucket = transfer.bucket();
        if next.len() < bucket {
            return None;
        }
        let len = next.len().min(transfer.registered_at_once().max(LEAST));
        // SAFETY: 1., 2.; they lie in the buffer.
        let memory = unsafe { slice::from_raw_parts_mut(buffer.at.add(next.start), len) };
        let mut buffer = transfer.to_be_written(memory);
        let (to, before, len) = buffer.lend(0)?;
        // What is left of the last bucket is worth no clear of its own.
        let left = next.len() - before - len;
        let after = if left < bucket { left } else { 0 };
        let bytes = before + len + after;
        if bytes < next.len().min(LEAST / 2) {
            buffer.is_done();
            return None;
        }
        let place = Place {
            key: to.key.0,
            offset: to.offset,
            before: before as u64,
            len: len as u64,
            after: after as u64,
        };
        let landing = Self {
            buffer,
            copied: place.before + place.after,
            bytes,
            is_given_up: false,
        };
        Some((landing, place))
    }

    /// Bytes of the message that it is for.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether all of it may be there: what is copied is counted.
    pub(super) fn may_be_whole(&self, landed: u64) -> bool {
        !self.is_given_up && landed >= self.copied
    }

    /// The sender has said that it writes there no more.
    pub(super) fn is_done(&mut self) {
        self.buffer.is_done();
    }

    /// Its sender is lost: whether that is new.
    pub(super) fn give_up(&mut self) -> bool {
        !std::mem::replace(&mut self.is_given_up, true)
    }

    /// Ends it, though its sender may write there yet.
    pub(super) async fn until_taken_back(&mut self) {
        self.buffer.until_taken_back().await;
    }
}
