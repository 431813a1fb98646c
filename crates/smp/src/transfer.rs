//! Access to memory outside the segments.
//!
//! The kernel makes the copies where it may. Where ptrace rules forbid that, the two ranks exchange
//! messages: the owner copies, in its poll, through a [`SelfCopy`](crate::foreign::SelfCopy). A
//! long access is then split into pieces, and is complete when each was answered.

#![allow(unsafe_code)] // copies to addresses whose validity the conduit's caller guarantees

use std::sync::atomic::Ordering::Relaxed;

use hydrant_conduit::{
    Delivery, Error, Key, Message, Posted, Rank, Remote, ReplyPort, Sent, Sink, Ticket,
};

use crate::{
    extents::{self, ExtentGuard, ExtentHandle},
    foreign::{self, CopyDirection, CopyRefusal},
    open_transfers::{LocalAddress, MessageTransfer},
    shared::{SharedState, forbids},
};

/// Messages of this kind write to the owner's memory: \[ticket, key, offset\].
const WRITE: u8 = Message::KINDS;
/// Messages of this kind read from the owner's memory: \[ticket, key, offset, length, offset in the
/// answer\].
const READ: u8 = Message::KINDS + 1;

/// The outcome of a piece, in the tag of its answer.
mod status {
    pub(super) const DONE: u16 = 0;
    pub(super) const REVOKED: u16 = 1;
    pub(super) const OUT_OF_EXTENT: u16 = 2;
    pub(super) const BAD_ADDRESS: u16 = 3;
}

/// Makes one access, by the route that this peer allows.
///
/// # Safety
/// 1. `local` is readable or writable, as `way` needs, for `len` bytes until the access is
///    complete.
pub(crate) unsafe fn access(
    shared: &SharedState,
    peer: Rank,
    way: CopyDirection,
    local: *mut u8,
    remote: Remote,
    len: usize,
) -> Result<Posted, Error> {
    shared.alive(peer)?;
    if len == 0 {
        return Ok(Posted::Done);
    }
    // The whole range is checked before the first piece. An access that cannot be complete is not
    // begun.
    let place = HeldAddress::find(shared, peer, remote, len)?;
    if shared.by_kernel(peer) {
        // SAFETY: 1. condition 1 of this function.
        match unsafe { foreign::copy(shared.pid(peer), way, local, place.addr, len) } {
            Ok(()) => return Ok(Posted::Done),
            Err(CopyRefusal::Forbidden) => shared.forbidden(peer)?,
            Err(refusal) => return Err(refused(refusal, peer, place.addr, len)),
        }
    }
    drop(place);
    let transfers = &shared.transfers;
    let ticket = transfers.next.fetch_add(1, Relaxed);
    let transfer = MessageTransfer {
        peer,
        way,
        local: LocalAddress(local),
        remote,
        len,
        asked: 0,
        answered: 0,
        left: way == CopyDirection::In,
        failed: None,
    };
    transfers.open().insert(ticket, transfer);
    transfers.count.fetch_add(1, Relaxed);
    advance(shared, None);
    Ok(Posted::Pending(Ticket(ticket)))
}

/// Returns true if the kernel copies from and to this peer.
pub(crate) fn attaches(shared: &SharedState, peer: Rank) -> bool {
    let mut byte = 0_u8;
    // Nothing is mapped at zero. The kernel notices that only after it has checked the permission.
    // SAFETY: 1. `byte` is a local variable that nothing else uses.
    let mut probe =
        || unsafe { foreign::copy(shared.pid(peer), CopyDirection::In, &raw mut byte, 0, 1) };
    shared.alive(peer).is_ok()
        && shared.by_kernel(peer)
        && matches!(probe(), Ok(()) | Err(CopyRefusal::Address))
}

/// Reads a peer's memory through the kernel.
pub(crate) fn read_attached(
    shared: &SharedState,
    peer: Rank,
    addr: u64,
    into: &mut [u8],
) -> Result<(), Error> {
    shared.alive(peer)?;
    let len = into.len();
    // SAFETY: 1. `into` is borrowed mutably.
    let copied = unsafe {
        foreign::copy(
            shared.pid(peer),
            CopyDirection::In,
            into.as_mut_ptr(),
            addr,
            len,
        )
    };
    copied.map_err(|refusal| refused(refusal, peer, addr, len))
}

/// Makes the error for a refusal to copy `len` bytes from or to `addr` of a peer.
fn refused(refusal: CopyRefusal, peer: Rank, addr: u64, len: usize) -> Error {
    match refusal {
        CopyRefusal::Address => Error::BadAddress {
            peer,
            addr,
            len: len as u64,
        },
        CopyRefusal::Gone => Error::PeerLost(peer),
        CopyRefusal::Forbidden => forbids(),
        CopyRefusal::Other(cause) => Error::system("copying to or from a peer's memory", cause),
    }
}

/// The address of remote memory. The guard keeps the extent in force while the address is used.
struct HeldAddress<'a> {
    addr: u64,
    _guard: Option<ExtentGuard<'a>>,
}

impl<'a> HeldAddress<'a> {
    fn find(
        shared: &'a SharedState,
        owner: Rank,
        remote: Remote,
        len: usize,
    ) -> Result<Self, Error> {
        if remote.key == Key::ANY {
            return Ok(Self {
                addr: remote.offset,
                _guard: None,
            });
        }
        let revoked = Error::Revoked {
            peer: owner,
            key: remote.key.0,
        };
        let handle = ExtentHandle::from_word(remote.key.0);
        let Some(entry) = shared.entries(owner).get(handle.index as usize) else {
            return Err(revoked);
        };
        let hazards = shared.hazards(shared.rank);
        let (guard, addr, extent) = loop {
            match extents::enter(hazards, entry, owner.0, handle) {
                Ok(Some(entered)) => break entered,
                Ok(None) => std::thread::yield_now(),
                Err(()) => return Err(revoked),
            }
        };
        let len = len as u64;
        if len > extent || remote.offset > extent - len {
            return Err(Error::OutOfExtent {
                peer: owner,
                offset: remote.offset,
                len,
                extent,
            });
        }
        Ok(Self {
            addr: addr + remote.offset,
            _guard: Some(guard),
        })
    }
}

/// Requests as many pieces as there is room for, and ends the transfers with lost peers.
pub(crate) fn advance(shared: &SharedState, mut sink: Option<&mut dyn Sink>) -> usize {
    let mut ended = Vec::new();
    let mut left = Vec::new();
    let mut open = shared.transfers.open();
    for (&ticket, transfer) in open.iter_mut() {
        if let Err(lost) = transfer.ask(shared, ticket) {
            transfer.failed = Some(lost);
            transfer.asked = transfer.len;
            transfer.answered = transfer.len;
        }
        if transfer.answered == transfer.len {
            ended.push(ticket);
        } else if sink.is_some() && !transfer.left && transfer.asked == transfer.len {
            transfer.left = true;
            left.push(ticket);
        }
    }
    let Some(sink) = &mut sink else { return 0 };
    let ended: Vec<_> = (ended.into_iter())
        .filter_map(|ticket| Some((ticket, open.remove(&ticket)?.failed)))
        .collect();
    drop(open);
    let count = ended.len();
    for ticket in left {
        sink.local(Ticket(ticket));
    }
    for (ticket, failed) in ended {
        sink.complete(Ticket(ticket), failed.map_or(Ok(()), Err));
    }
    // The count decreases last: while it is not 0, another thread that waits sleeps only briefly.
    shared.transfers.count.fetch_sub(count as u64, Relaxed);
    count
}

impl MessageTransfer {
    /// Requests as many pieces as there is room for.
    fn ask(&mut self, shared: &SharedState, ticket: u64) -> Result<(), Error> {
        shared.both_alive(self.peer)?;
        let most = shared.caps.max_payload;
        while self.asked < self.len && self.failed.is_none() {
            let len = most.min(self.len - self.asked);
            let offset = self.remote.offset.wrapping_add(self.asked as u64);
            let key = self.remote.key.0;
            let sent = match self.way {
                CopyDirection::Out => {
                    // SAFETY: by condition 1 of `access`, the bytes are readable until the transfer
                    // is complete.
                    let piece = unsafe {
                        std::slice::from_raw_parts(self.local.0.wrapping_add(self.asked), len)
                    };
                    shared.push(self.peer, WRITE, &[ticket, key, offset], piece)?
                }
                CopyDirection::In => {
                    let args = [ticket, key, offset, len as u64, self.asked as u64];
                    shared.push(self.peer, READ, &args, &[])?
                }
            };
            if sent == Sent::Full {
                break;
            }
            self.asked += len;
        }
        Ok(())
    }
}

/// Serves one piece, on the owner's side.
///
/// # Errors
/// [`Error::Malformed`] if the message follows no rule. It then gets no answer.
// Not inlined into the poll, whose stack frame it would make longer than a page.
#[inline(never)]
pub(crate) fn serve(
    shared: &SharedState,
    delivery: &Delivery<'_>,
    port: &mut dyn ReplyPort,
) -> Result<(), Error> {
    let malformed = |what| Error::Malformed {
        peer: delivery.from,
        what,
    };
    match (delivery.kind, delivery.args) {
        (WRITE, &[ticket, key, offset]) => {
            let remote = Remote {
                key: Key(key),
                offset,
            };
            let outcome = HeldAddress::find(shared, shared.rank, remote, delivery.payload.len())
                .map_err(|error| status_of(&error))
                .and_then(|place| {
                    // SAFETY: 1. The extent is in force, so its owner lent it for writing. With
                    // `Key::ANY` the peer guarantees that the change is tolerated.
                    unsafe { shared.self_copy.put(place.addr, delivery.payload) }
                        .map_err(|_| (status::BAD_ADDRESS, 0))
                });
            let (code, extent) = outcome.err().unwrap_or((status::DONE, 0));
            let args = [ticket, delivery.payload.len() as u64, extent];
            port.reply(&answer(WRITE, code, &args, &[]))
        }
        (READ, &[ticket, key, offset, len, at]) => {
            let len = usize::try_from(len)
                .ok()
                .filter(|len| *len <= shared.caps.max_payload)
                .ok_or_else(|| malformed("asks for more bytes than a message carries"))?;
            let remote = Remote {
                key: Key(key),
                offset,
            };
            let mut buffer = vec![0; len];
            let outcome = HeldAddress::find(shared, shared.rank, remote, len)
                .map_err(|error| status_of(&error))
                .and_then(|place| {
                    (shared.self_copy.get(place.addr, &mut buffer))
                        .map_err(|_| (status::BAD_ADDRESS, 0))
                });
            let (code, extent) = outcome.err().unwrap_or((status::DONE, 0));
            if code != status::DONE {
                buffer.clear();
            }
            let args = [ticket, len as u64, extent, at];
            port.reply(&answer(READ, code, &args, &buffer))
        }
        _ => Err(malformed("an unknown kind of message")),
    }
}

fn answer<'a>(kind: u8, tag: u16, args: &'a [u64], payload: &'a [u8]) -> Message<'a> {
    Message {
        kind,
        tag,
        args,
        payload,
    }
}

/// Returns the status of a failed piece, and the length of its extent.
fn status_of(error: &Error) -> (u16, u64) {
    match error {
        Error::OutOfExtent { extent, .. } => (status::OUT_OF_EXTENT, *extent),
        Error::BadAddress { .. } => (status::BAD_ADDRESS, 0),
        _ => (status::REVOKED, 0),
    }
}

/// Takes the answer to one piece, on the requester's side.
///
/// # Errors
/// [`Error::Malformed`] if the answer follows no rule. It then has no effect.
#[inline(never)]
pub(crate) fn answered(
    shared: &SharedState,
    delivery: &Delivery<'_>,
    sink: &mut dyn Sink,
) -> Result<(), Error> {
    let peer = delivery.from;
    let malformed = |what| Error::Malformed { peer, what };
    let (ticket, len, extent, at) = match (delivery.kind, delivery.args) {
        (WRITE, &[ticket, len, extent]) => (ticket, len as usize, extent, 0),
        (READ, &[ticket, len, extent, at]) => (ticket, len as usize, extent, at as usize),
        _ => return Err(malformed("an unknown kind of reply")),
    };
    let mut open = shared.transfers.open();
    let Some(transfer) = open
        .get_mut(&ticket)
        .filter(|transfer| transfer.peer == peer)
    else {
        // Transfers with a peer that has ended since are forgotten already.
        return match shared.both_alive(peer) {
            Ok(()) => Err(malformed("the answer to a question that was not asked")),
            Err(_) => Ok(()),
        };
    };
    if len > transfer.asked - transfer.answered {
        return Err(malformed("an answer longer than the question"));
    }
    match delivery.tag {
        status::DONE if transfer.way == CopyDirection::In => {
            if delivery.payload.len() != len || at > transfer.len - len {
                return Err(malformed("an answer of another length"));
            }
            let to = transfer.local.0.wrapping_add(at);
            // SAFETY: by condition 1 of `access`, `transfer.len` bytes are writable, and
            // `at + len` is at most that. The payload has `len` bytes, in memory of a ring.
            unsafe { to.copy_from_nonoverlapping(delivery.payload.as_ptr(), len) };
        }
        status::DONE => {}
        code => {
            let offset = transfer.remote.offset;
            transfer.failed.get_or_insert(match code {
                status::OUT_OF_EXTENT => Error::OutOfExtent {
                    peer,
                    offset,
                    len: transfer.len as u64,
                    extent,
                },
                status::BAD_ADDRESS => Error::BadAddress {
                    peer,
                    addr: offset,
                    len: transfer.len as u64,
                },
                _ => Error::Revoked {
                    peer,
                    key: transfer.remote.key.0,
                },
            });
        }
    }
    transfer.answered += len;
    if transfer.failed.is_some() && transfer.asked == transfer.answered {
        // No more pieces will be requested, and none is outstanding.
        transfer.asked = transfer.len;
        transfer.answered = transfer.len;
    }
    drop(open);
    advance(shared, Some(sink));
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use hydrant_conduit::{Conduit, Membership, Permission};

    use super::*;
    use crate::inbox::tests::start;

    /// Only an extent's owner can write the entry that others read. No third rank can redirect an
    /// access to the memory of its choice.
    #[test]
    fn no_rank_can_change_the_extents_of_another() {
        let ranks = start(3);
        let mut lent = [0_u8; 64];
        // SAFETY: the array lives until the extent is deregistered.
        let key = unsafe { ranks[1].register(lent.as_mut_ptr(), 64, Permission::ReadWrite) };
        let key = key.expect("there is room for one");
        let index = ExtentHandle::from_word(key.0).index as usize;
        for rank in &ranks {
            let shared = &rank.shared;
            let entry = &raw const shared.entries(Rank(1))[index];
            let hazard = &raw const shared.hazards(Rank(1))[0];
            for at in [entry.addr() as u64, hazard.addr() as u64] {
                let mut there = [0; 8];
                shared.self_copy.get(at, &mut there).expect("all can read");
                // SAFETY: 1. The same bytes are written again.
                let written = unsafe { shared.self_copy.put(at, &there) };
                assert_eq!(written.is_ok(), rank.rank() == Rank(1));
            }
        }
        ranks[1].deregister(key).expect("it is in force");
        ranks.iter().for_each(|rank| rank.leave(true));
    }
}
