//! Landings: registered parts of a receive's buffer, to which the sender writes (ARMCI §3,
//! zero-copy; Tezuka §2). The receiver registers its own side and tells the sender the address. The
//! sender needs no firehose.
//!
//! A landing is as long as may be registered at once. Bytes that share a bucket with other memory
//! are copied in parts. Once a landing is complete, the receiver clears the next one. A landing
//! lasts until the sender has reported that it is complete. If the sender is lost, it lasts until
//! it is deregistered.

#![allow(unsafe_code)] // registers the buffers of receives

use std::{ops::Range, slice, sync::Arc};

use hydrant_pinning::Strategy;

use super::{TwoSided, protocol::LongProtocol, request::RawBuffer, wire::LandingSpan};
use crate::{
    Rank,
    transfer::{self, Transfer},
};

/// The least number of bytes to register at once, if as many are left. A clear and its answer then
/// bring as much as many parts. A landing of less than half of that is not used.
const LEAST: usize = 128 << 10;

/// A part of a buffer, registered until this is dropped.
pub(super) struct Landing {
    buffer: transfer::TransferBuffer<'static>,
    /// Bytes before and after it that are copied in parts.
    copied: u64,
    /// Bytes of the message that the landing and its copied surroundings take.
    bytes: usize,
    /// The sender is lost.
    is_lost: bool,
}

impl TwoSided {
    /// Returns whether long messages of a peer are written to landings. The other strategies
    /// register each side in their own way, so that they can be compared.
    pub(super) fn uses_landings(&self, from: Rank) -> bool {
        let strategy = self.transfer.registration().map(|it| it.strategy());
        matches!(strategy, Some(Strategy::Auto | Strategy::Firehose))
            && self.protocols.long == LongProtocol::Written(usize::MAX)
            && self.progress.conduit().window(from).is_none()
    }
}

impl Landing {
    /// Registers the next part of a message, within `next` of the buffer. Returns the landing, and
    /// the span to tell its sender. Returns `None` if too few bytes fill whole buckets, or there is
    /// no room to register them now. Also returns `None` if they are registered in pieces too short
    /// for a landing.
    ///
    /// # Safety
    /// Until the landing is dropped:
    /// 1. The buffer stays allocated.
    /// 2. Nobody else uses the bytes of `next`.
    pub(super) unsafe fn new(
        transfer: &Arc<Transfer>,
        buffer: RawBuffer,
        next: Range<usize>,
    ) -> Option<(Self, LandingSpan)> {
        let bucket = transfer.bucket();
        if next.len() < bucket {
            return None;
        }
        let len = next.len().min(transfer.registered_at_once().max(LEAST));
        // SAFETY: 1. and 2. The bytes of `next` lie in the buffer, and nobody else uses them.
        let memory = unsafe { slice::from_raw_parts_mut(buffer.at.wrapping_add(next.start), len) };
        let mut buffer = transfer.to_be_written(memory);
        let (to, before, len) = buffer.lend(0)?;
        // A rest shorter than a bucket is not worth another clear.
        let left = next.len() - before - len;
        let after = if left < bucket { left } else { 0 };
        let bytes = before + len + after;
        if bytes < next.len().min(LEAST / 2) {
            buffer.mark_unlent();
            return None;
        }
        let place = LandingSpan {
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
            is_lost: false,
        };
        Some((landing, place))
    }

    /// Returns the bytes of the message that the landing takes, copied ones included.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether all bytes may have arrived. Only copied bytes are counted.
    pub(super) fn may_be_whole(&self, landed: u64) -> bool {
        !self.is_lost && landed >= self.copied
    }

    /// Ends the landing, because the sender has reported that it writes no more.
    pub(super) fn release(&mut self) {
        self.buffer.mark_unlent();
    }

    /// Notes that the sender is lost. Returns whether that is new.
    pub(super) fn mark_lost(&mut self) -> bool {
        !std::mem::replace(&mut self.is_lost, true)
    }

    /// Ends the landing of a lost sender, which may still write there.
    pub(super) async fn revoke(&mut self) {
        self.buffer.revoke().await;
    }
}
