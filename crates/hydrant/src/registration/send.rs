//! Sends the messages of the outbox, and copies the own memory that they name.

#![allow(unsafe_code)] // reads memory of operations that wait, and moves what the engine asked for

use hydrant_conduit::{Access, Key, Local, Posted, Remote, Sent, Window};
use hydrant_pinning::{Data, EngineMessage};

use super::{Registration, outbox::OutboxEntry};
use crate::{
    Rank,
    counters::Count,
    progress::{Backlog, kind},
};

impl Registration {
    /// Sends the messages for which there is room. A caller that finds no room need not retry:
    /// another thread of the rank does, by
    /// [`Progress::wake_for_backlog`](crate::progress::Progress).
    pub(crate) fn flush(&self) {
        if self.send_waiting() {
            self.progress.tally.one(Count::RegistrationStalls);
            self.progress.wake_for_backlog();
        }
    }

    /// Returns whether messages may wait to be sent to a peer, or be on their way in another thread.
    #[cold]
    pub(crate) fn has_news_for(&self, peer: Rank) -> bool {
        // A thread that tells the engine of a change adds its messages before it unlocks the engine.
        drop(self.engine.lock());
        self.outbox.lock().has_for(peer.0)
    }

    /// Sends the messages for which there is room. Returns whether messages wait for room now and
    /// none did before.
    fn send_waiting(&self) -> bool {
        let mut outbox = self.outbox.lock();
        if self.progress.has_backlog_of(Backlog::Along) {
            self.progress.set_backlog(Backlog::Along, false);
        }
        let pass = outbox.begin();
        while let Some((peer, mut packet, mut room)) = outbox.take(pass) {
            room.clear();
            if let Some(OutboxEntry::Engine(message, _)) = &packet.leading {
                message.encode(&mut room);
            }
            let leading = room.len();
            if let OutboxEntry::Engine(message, Data::Own { addr, len }) = &packet.last {
                message.encode(&mut room);
                // SAFETY: the buffer belongs to an operation in flight. The caller of `begin` keeps it
                //         readable until the operation is done or locally complete. Local completion
                //         comes after this message, because its entry stands behind it in the queue.
                //         Remote completion comes later still, or when the peer is lost. In that case
                //         the message was dropped before, under this lock.
                unsafe { append(&mut room, *addr, *len as usize) };
            }
            drop(outbox);
            let sent = self.send_queued(Rank(peer), &mut packet.last, leading, &mut room);
            outbox = self.outbox.lock();
            match sent {
                Sent::Yes => outbox.sent(peer, &packet, room),
                Sent::Full => outbox.put_back(pass, peer, packet, room),
            }
        }
        // Set with the lock held, so that the bit matches the queues.
        (self.progress).set_backlog(Backlog::Registration, outbox.is_stuck())
    }

    /// Sends one message behind `leading` bytes of another that are in `room` already. If own data
    /// follows the message, both are there too; otherwise the message is encoded here.
    fn send_queued(
        &self,
        to: Rank,
        entry: &mut OutboxEntry,
        leading: usize,
        room: &mut Vec<u8>,
    ) -> Sent {
        let (kind, tag, key) = match entry {
            OutboxEntry::Engine(message, data) => {
                self.write_message(to, message, data, room);
                (kind::REGISTRATION, leading as u16, None)
            }
            OutboxEntry::Loan { tag, key, .. } => (kind::LOAN, *tag, Some(*key)),
            OutboxEntry::LocallyComplete(op) => {
                self.report_local_completion(*op);
                return Sent::Yes;
            }
        };
        let message = hydrant_conduit::Message {
            kind,
            tag,
            args: key.as_slice(),
            payload: room,
        };
        match self.progress.conduit().send(to, &message) {
            Ok(Sent::Full) => return Sent::Full,
            Ok(Sent::Yes) => self.progress.tally.one(Count::RegistrationMessages),
            // The peer is gone. Waiters see its standing.
            Err(_) => {}
        }
        Sent::Yes
    }

    /// Encodes a message without own data, and appends the data that the peer asked for. If the
    /// data is refused now, it stays refused, even if the answer is sent later.
    fn write_message(
        &self,
        to: Rank,
        message: &mut EngineMessage,
        data: &mut Data,
        bytes: &mut Vec<u8>,
    ) {
        let (region, addr, len) = match *data {
            Data::Own { .. } => return,
            Data::None => return message.encode(bytes),
            Data::Asked { region, addr, len } => (region, addr, len as usize),
        };
        let before = bytes.len();
        message.encode(bytes);
        let start = bytes.len();
        bytes.resize(start + len, 0);
        let (lent, place) = (&self.lent, (addr, len as u64));
        let into = &mut bytes[start..];
        if !lent.while_lent(to, region, place, || self.load(addr, into)) {
            bytes.truncate(before);
            message.refuse(lent.why_not(to, region, place));
            *data = Data::None;
            message.encode(bytes);
        }
    }

    /// Copies own memory that a peer asked for. Returns `false` if the memory is not mapped.
    pub(super) fn load(&self, addr: u64, into: &mut [u8]) -> bool {
        if let Some((own, offset)) = self.in_own_segment(addr)
            && own.read(offset, into).is_ok()
        {
            return true;
        }
        let from = Remote {
            key: Key::ANY,
            offset: addr,
        };
        self.note_named(addr, into.len() as u64);
        let to = Local::unregistered(into.as_mut_ptr());
        let access = Access::get(self.progress.rank, from, to, into.len());
        // SAFETY: `into` is borrowed, and the copy is done on return.
        let read = unsafe { self.progress.conduit().post(&access) };
        matches!(read, Ok(Posted::Done))
    }

    /// Copies data of a peer into own memory. Returns `false` if the memory is not mapped or not
    /// writable.
    pub(super) fn store(&self, addr: u64, data: &[u8]) -> bool {
        if let Some((own, offset)) = self.in_own_segment(addr)
            && own.write(offset, data).is_ok()
        {
            return true;
        }
        let to = Remote {
            key: Key::ANY,
            offset: addr,
        };
        self.note_named(addr, data.len() as u64);
        let from = Local::unregistered(data.as_ptr().cast_mut());
        let access = Access::put(self.progress.rank, to, from, data.len());
        // SAFETY: `data` is borrowed, and the copy is done on return. The memory is lent to peers, so
        // others may write to it at any time.
        let written = unsafe { self.progress.conduit().post(&access) };
        matches!(written, Ok(Posted::Done))
    }

    /// Returns the offset of an address in the own segment. The segment is mapped and writable as a
    /// whole, so no system call is needed.
    fn in_own_segment(&self, addr: u64) -> Option<(&Window, usize)> {
        let base = self.segments.of(self.progress.rank).ok()?;
        let window = self.progress.conduit().window(self.progress.rank)?;
        let offset = usize::try_from(addr.checked_sub(base)?).ok()?;
        Some((window, offset))
    }
}

/// Appends a copy of memory.
///
/// # Safety
/// 1. `len` bytes at `addr` are readable.
unsafe fn append(bytes: &mut Vec<u8>, addr: u64, len: usize) {
    let from = std::ptr::with_exposed_provenance::<u8>(addr as usize);
    bytes.reserve(len);
    let end = bytes.len();
    let spare = bytes.spare_capacity_mut().as_mut_ptr().cast::<u8>();
    // SAFETY: the caller's condition 1 for `from`. `spare` has room for `len` bytes, reserved above,
    //         and nothing else refers to them.
    unsafe { spare.copy_from_nonoverlapping(from, len) };
    // SAFETY: the `len` bytes behind the end are within the capacity, and were initialized above.
    unsafe { bytes.set_len(end + len) };
}
