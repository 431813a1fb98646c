//! Posting: messages of the stream, and accesses.

#![allow(unsafe_code)] // hands memory to the library

use std::{
    ptr,
    sync::atomic::Ordering::{Acquire, Relaxed},
};

use hydrant_conduit::{Error, Message, Rank, Sent, Standing};

use crate::{
    commands::LinkCommand,
    fabric::{LocalBuffer, PostResult, RemoteBuffer},
    keys,
    message::{self, ControlKind, StreamRole},
    peers::{Link, OfiPeer, Phase},
    shared::OfiShared,
    slots::{AccessDirection, AccessRecord, OUTSIDE, SendBuffer},
    socket_address,
};

/// A message without contents.
pub(crate) const EMPTY: Message<'static> = Message {
    kind: 0,
    tag: 0,
    args: &[],
    payload: &[],
};

impl OfiShared {
    /// Returns a peer.
    ///
    /// # Errors
    /// [`Error::System`] if the provider does not take its address.
    #[inline]
    pub(crate) fn peer(&self, rank: Rank) -> Result<&OfiPeer, Error> {
        self.peers.get(&self.fabric, rank)
    }

    /// Begins a peer without a job at this address, with a number that was free.
    ///
    /// # Errors
    /// [`Error::System`] if the provider does not take its address.
    pub(crate) fn begin_peer(&self, number: Rank, name: &[u8]) -> Result<(), Error> {
        let address = self.fabric.insert(name)?;
        let at = socket_address::parse(name).filter(|_| self.fabric.is_over_tcp());
        let peer = self.peers.begin(number, address, at);
        peer.note_heard(self.now_ms());
        Ok(())
    }

    /// Ends a peer without a job, of which nothing is in flight.
    ///
    /// # Errors
    /// [`Error::System`] if the provider keeps its address.
    pub(crate) fn retire_peer(&self, peer: &OfiPeer) -> Result<(), Error> {
        self.fabric.remove(self.peers.retire(peer))
    }

    /// Puts a message into the stream to a peer.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    pub(crate) fn send(
        &self,
        peer: &OfiPeer,
        role: StreamRole,
        message: &Message<'_>,
    ) -> Result<Sent, Error> {
        let is_request = role == StreamRole::Request;
        if is_request && peer.counts.is_full(self.limits.window) {
            return Ok(Sent::Full);
        }
        let Some(mut slot) = self.sends.take() else {
            return Ok(Sent::Full);
        };
        slot.len = message::encode(role, message, self.sends.bytes(&mut slot));
        self.push(peer, slot, role)
    }

    /// Puts an encoded message into the stream to a peer.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    pub(crate) fn push(
        &self,
        peer: &OfiPeer,
        slot: SendBuffer,
        role: StreamRole,
    ) -> Result<Sent, Error> {
        let is_request = role == StreamRole::Request;
        let mut guard = peer.link.lock();
        let link = &mut *guard;
        if link.phase == Phase::Ended {
            self.sends.release(slot);
            return Err(Error::PeerLost(peer.rank));
        }
        if is_request {
            if peer.counts.is_full(self.limits.window) {
                self.sends.release(slot);
                return Ok(Sent::Full);
            }
            peer.counts.note_sent();
        }
        self.release_known(peer, link);
        link.kept.push_back(slot);
        link.sent = link.sent.wrapping_add(1);
        if role != StreamRole::Control {
            link.sent_above = link.sent_above.wrapping_add(1);
        }
        if link.phase == Phase::Up {
            self.post_messages(peer, link);
        } else {
            self.bring_up(peer, link);
        }
        Ok(Sent::Yes)
    }

    /// Puts a message between conduits into the stream to a peer. It is dropped if the peer has ended.
    pub(crate) fn send_control(&self, peer: &OfiPeer, kind: ControlKind, args: &[u64]) {
        let message = Message {
            kind: kind as u8,
            args,
            ..EMPTY
        };
        if let Ok(Sent::Full) = self.send(peer, StreamRole::Control, &message) {
            tracing::error!(peer = %peer.rank, "no buffer is left for a message between conduits");
            self.commands
                .push(LinkCommand::Lose(peer.rank, "no buffer is left for it"));
        }
    }

    /// Makes sure that a session will be asked for.
    pub(crate) fn bring_up(&self, peer: &OfiPeer, link: &mut Link) {
        if link.phase == Phase::Unused {
            link.phase = Phase::Down;
            link.down_since = std::time::Instant::now();
            link.next_hello = link.down_since;
            self.commands.push(LinkCommand::Attend(peer.rank));
        }
    }

    /// Frees the buffers of messages that the peer has.
    #[inline]
    pub(crate) fn release_known(&self, peer: &OfiPeer, link: &mut Link) {
        let known = peer.counts.known();
        while let Some(slot) = link.take_known(known) {
            self.sends.release(slot);
        }
    }

    /// Posts the messages that were not, as far as the provider takes them.
    #[inline]
    pub(crate) fn post_messages(&self, peer: &OfiPeer, link: &mut Link) {
        let token = link.token;
        while let Some((number, slot)) = link.next_unposted() {
            let bytes = self.sends.bytes(slot);
            message::stamp(bytes, token, peer.me(), number, peer.counts.to_report());
            let (result, completes) =
                (self.sends).post(slot, peer.rank.0, peer.address(), self.limits.inject);
            link.in_flight += u32::from(completes);
            match result {
                PostResult::Taken => {
                    link.posted = number;
                    peer.note_spoken(self.now_ms());
                }
                PostResult::Busy => return self.peers.list(peer.rank, link),
                PostResult::Refused(code) => return self.refuse(peer, link, code),
            }
        }
    }

    #[cold]
    fn refuse(&self, peer: &OfiPeer, link: &mut Link, code: isize) {
        let cause = self.fabric.error_text(code);
        tracing::debug!(%cause, peer = %peer.rank, "the provider refused an operation");
        self.break_link(peer, link);
    }

    /// Sends a message outside the stream, which has no number. It may be lost.
    pub(crate) fn send_unnumbered(
        &self,
        peer: &OfiPeer,
        role: StreamRole,
        token: u64,
        payload: &[u8],
    ) -> PostResult {
        self.send_outside(peer, role, [token, 0], payload)
    }

    /// As [`send_unnumbered`](Self::send_unnumbered), with the number of the last message of the stream.
    fn send_outside(
        &self,
        peer: &OfiPeer,
        role: StreamRole,
        [token, last]: [u64; 2],
        payload: &[u8],
    ) -> PostResult {
        let Some(mut slot) = self.sends.take() else {
            return PostResult::Busy;
        };
        let message = Message { payload, ..EMPTY };
        let bytes = self.sends.bytes(&mut slot);
        let len = message::encode(role, &message, bytes);
        message::stamp(
            bytes,
            token,
            peer.me(),
            last as u32,
            peer.counts.to_report(),
        );
        slot.len = len;
        let is_counted = self.listening.is_some();
        let to = if is_counted {
            peer.note_outside();
            OUTSIDE | peer.rank.0
        } else {
            u32::MAX
        };
        let (result, completes) = (self.sends).post(&slot, to, peer.address(), self.limits.inject);
        if is_counted && !completes {
            peer.end_outside();
        }
        if result == PostResult::Taken {
            peer.note_spoken(self.now_ms());
        }
        self.sends.release(slot);
        result
    }

    /// Sends the counts alone, and the number of the last message that was posted. A provider loses messages without a
    /// word when their connection breaks, and the peer misses the last ones only if it learns of them.
    pub(crate) fn send_counts(&self, peer: &OfiPeer, link: &Link) -> PostResult {
        if link.phase != Phase::Up {
            return PostResult::Busy;
        }
        let numbers = [link.token, link.posted.into()];
        self.send_outside(peer, StreamRole::Counts, numbers, &[])
    }

    /// Posts an access, or queues it.
    ///
    /// # Safety
    /// For the record at this index:
    /// 1. Its local memory is valid until the access has ended, as [`Conduit::post`](hydrant_conduit::Conduit::post)
    ///    says.
    /// 2. For a write, the peer bears the change of its memory.
    pub(crate) unsafe fn start_access(&self, peer: &OfiPeer, index: u32) -> Result<(), Error> {
        let mut guard = peer.link.lock();
        let link = &mut *guard;
        if link.phase == Phase::Ended {
            drop(guard);
            self.accesses.give_back(index);
            return Err(Error::PeerLost(peer.rank));
        }
        link.queue.push_back(index);
        if link.phase == Phase::Up {
            self.post_accesses(peer, link);
        } else {
            self.bring_up(peer, link);
        }
        Ok(())
    }

    /// Posts the queued accesses, as far as the provider takes them. A rank that has left posts none: peers that got its
    /// leave take their memory back, and do not wait for it.
    #[inline]
    pub(crate) fn post_accesses(&self, peer: &OfiPeer, link: &mut Link) {
        if self.peers.standings.of(self.rank) != Standing::Present {
            return self.drop_accesses(link);
        }
        while let Some(index) = link.queue.front().copied() {
            let all = self.in_flight.load(Relaxed);
            if link.in_flight >= self.limits.per_peer || all >= self.limits.all {
                return self.peers.list(peer.rank, link);
            }
            let record = *self.accesses.record(index);
            let known = |link: &Link| link.known_keys.contains(&record.key.0);
            if !self.is_plausible(&record) || link.is_cautious && !known(link) {
                link.queue.pop_front();
                self.ask_about(peer, link, index);
                continue;
            }
            let number = match record.direction {
                AccessDirection::Write => link.written + 1,
                AccessDirection::Read => 0,
            };
            if number != 0 {
                self.accesses.record(index).number = number;
            }
            // SAFETY: 1. and 2. The caller of `start_access` promised that for each queued access.
            match unsafe { self.post_access(peer, link, index, &record) } {
                PostResult::Taken => {
                    link.queue.pop_front();
                    link.in_flight += 1;
                    self.in_flight.fetch_add(1, Relaxed);
                    link.written = link.written.max(number);
                }
                PostResult::Busy => return self.peers.list(peer.rank, link),
                PostResult::Refused(code) => return self.refuse(peer, link, code),
            }
        }
    }

    #[cold]
    fn drop_accesses(&self, link: &mut Link) {
        for index in link.queue.drain(..) {
            self.finish(index, Err(Error::PeerLost(self.rank)));
        }
    }

    /// Hands an access to the library.
    ///
    /// # Safety
    /// As [`start_access`](Self::start_access).
    unsafe fn post_access(
        &self,
        peer: &OfiPeer,
        link: &Link,
        index: u32,
        record: &AccessRecord,
    ) -> PostResult {
        let epoch = link.token & u64::from(u32::MAX);
        let local = LocalBuffer {
            addr: ptr::with_exposed_provenance_mut(record.local),
            len: record.piece(),
            descriptor: record.descriptor(),
        };
        let key = if self.fabric.chooses_keys() {
            record.key.0
        } else {
            link.known_as.keys.of(record.key)
        };
        let addr = if self.fabric.by_address() {
            record.addr
        } else {
            record.addr.wrapping_sub(keys::start_of(record.key))
        };
        let remote = RemoteBuffer {
            peer: peer.address(),
            addr,
            key,
        };
        let context = self.accesses.context(index);
        match record.direction {
            // SAFETY: 1. The caller's condition 1. 2. The context is the entry's own, and the entry is posted again only
            // after its completion. 3. The caller's condition 2.
            AccessDirection::Write => unsafe {
                let shown = u64::from(peer.me()) | epoch << 32;
                (self.fabric).write(local, remote, Some(shown), context)
            },
            // SAFETY: 1. The caller's condition 1. 2. As above.
            AccessDirection::Read => unsafe { self.fabric.read(local, remote, context) },
        }
    }

    /// Returns true if an access may be within its extent. Libraries compute with its address, so one that no process
    /// has is not posted.
    #[inline]
    fn is_plausible(&self, record: &AccessRecord) -> bool {
        let end = record.addr.checked_add(record.len as u64);
        let is_address = end.is_some_and(|end| end <= keys::END_OF_MEMORY);
        is_address && (self.fabric.chooses_keys() || record.addr >= keys::start_of(record.key))
    }

    /// Asks the peer whether it permits an access. Its verdict continues the access.
    pub(crate) fn ask_about(&self, peer: &OfiPeer, link: &mut Link, index: u32) {
        let record = {
            let mut record = self.accesses.record(index);
            // A write that is posted again gets another number.
            record.number = u64::MAX;
            *record
        };
        let writes = u64::from(record.direction == AccessDirection::Write);
        let question = [
            index.into(),
            record.key.0,
            record.addr,
            record.len as u64,
            writes,
        ];
        // Without a buffer the link breaks, and the peer is asked when it is up again.
        let Some(mut slot) = self.sends.take() else {
            link.unknown.push(index);
            return self.break_link(peer, link);
        };
        link.asked_about.push(index);
        let message = Message {
            kind: ControlKind::Query as u8,
            args: &question,
            ..EMPTY
        };
        let bytes = self.sends.bytes(&mut slot);
        slot.len = message::encode(StreamRole::Control, &message, bytes);
        link.kept.push_back(slot);
        link.sent = link.sent.wrapping_add(1);
        self.post_messages(peer, link);
    }

    /// Posts what waits, for all listed peers.
    #[inline]
    pub(crate) fn flush(&self) {
        for rank in self.peers.take_listed() {
            let Some(peer) = self.peers.known(rank) else {
                continue;
            };
            let mut guard = peer.link.lock();
            let link = &mut *guard;
            link.is_listed = false;
            if link.phase == Phase::Up {
                self.post_messages(peer, link);
                self.post_accesses(peer, link);
            }
        }
    }

    /// Returns true if the peer's link was up or is.
    pub(crate) fn was_up(peer: &OfiPeer) -> bool {
        peer.was_up.load(Acquire)
    }
}
