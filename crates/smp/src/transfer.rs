//! Reading and writing memory outside the segments.
//!
//! The kernel does it where it may. Where it may not (ptrace rules), the two ranks do it by
//! messages: the owner copies, in its poll, through a [`SelfCopy`](crate::foreign::SelfCopy).
//! A long access then goes in pieces, and is complete when each was answered.

#![allow(unsafe_code)] // copies to addresses that the caller of the conduit vouched for

use std::{
    collections::HashMap,
    sync::{atomic::AtomicU64, atomic::Ordering::Relaxed},
};

use hydrant_conduit::{
    Delivery, Error, Key, Message, Posted, Rank, Remote, ReplyPort, Sent, Sink, Ticket,
};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    extents::{self, Guard, Handle},
    foreign::{self, Refusal, Way},
    shared::{Shared, forbids},
};

/// Messages of this kind write to the owner's memory: \[ticket, key, offset\].
const WRITE: u8 = Message::KINDS;
/// Messages of this kind read it: \[ticket, key, offset, length, where it goes\].
const READ: u8 = Message::KINDS + 1;

/// How a piece ended, in the tag of its answer.
mod status {
    pub(super) const DONE: u16 = 0;
    pub(super) const REVOKED: u16 = 1;
    pub(super) const OUT_OF_EXTENT: u16 = 2;
    pub(super) const BAD_ADDRESS: u16 = 3;
}

/// Accesses by message that are under way.
#[derive(Default)]
pub(crate) struct Transfers {
    /// By ticket.
    open: Mutex<HashMap<u64, Transfer>>,
    /// How many there are whose end was not handed up.
    count: AtomicU64,
    /// The next ticket.
    next: AtomicU64,
}

struct Transfer {
    peer: Rank,
    way: Way,
    local: Local,
    remote: Remote,
    len: usize,
    /// Bytes asked for so far, and answered so far.
    asked: usize,
    answered: usize,
    /// Every byte has left the local memory, and the layer above was told.
    left: bool,
    /// Why it failed, if a piece did: nothing more is asked for then.
    failed: Option<Error>,
}

/// Own memory that the caller vouched for until the transfer is complete.
struct Local(*mut u8);
// SAFETY: the conduit's contract: valid until complete, whichever thread completes it.
unsafe impl Send for Local {}

impl Transfers {
    /// Whether any is under way. Costs a load.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Transfer>> {
        self.open.lock()
    }
}

/// One access, by whichever way this peer allows.
///
/// # Safety
/// `local` is readable or writable, as `way` needs, for `len` bytes until complete.
pub(crate) unsafe fn access(
    shared: &Shared,
    peer: Rank,
    way: Way,
    local: *mut u8,
    remote: Remote,
    len: usize,
) -> Result<Posted, Error> {
    shared.alive(peer)?;
    if len == 0 {
        return Ok(Posted::Done);
    }
    // Checked as a whole, also where it then goes in pieces: what cannot all be done is not
    // begun.
    let place = Place::find(shared, peer, remote, len)?;
    if shared.by_kernel(peer) {
        // SAFETY: handed on.
        match unsafe { foreign::copy(shared.pid(peer), way, local, place.addr, len) } {
            Ok(()) => return Ok(Posted::Done),
            Err(Refusal::Forbidden) => shared.forbidden(peer)?,
            Err(refusal) => return Err(refused(refusal, peer, place.addr, len)),
        }
    }
    drop(place);
    let transfers = &shared.transfers;
    let ticket = transfers.next.fetch_add(1, Relaxed);
    let transfer = Transfer {
        peer,
        way,
        local: Local(local),
        remote,
        len,
        asked: 0,
        answered: 0,
        left: way == Way::In,
        failed: None,
    };
    transfers.open().insert(ticket, transfer);
    transfers.count.fetch_add(1, Relaxed);
    advance(shared, None);
    Ok(Posted::Pending(Ticket(ticket)))
}

/// Whether the kernel copies from and to this peer.
pub(crate) fn attaches(shared: &Shared, peer: Rank) -> bool {
    let mut byte = 0_u8;
    // Nothing is mapped at zero, which the kernel finds out once it knows that it may look.
    // SAFETY: `byte` is writable by nobody else.
    let mut try_it = || unsafe { foreign::copy(shared.pid(peer), Way::In, &raw mut byte, 0, 1) };
    shared.alive(peer).is_ok()
        && shared.by_kernel(peer)
        && matches!(try_it(), Ok(()) | Err(Refusal::Address))
}

/// Reads a peer's memory by the kernel.
pub(crate) fn read_attached(
    shared: &Shared,
    peer: Rank,
    addr: u64,
    into: &mut [u8],
) -> Result<(), Error> {
    shared.alive(peer)?;
    let len = into.len();
    // SAFETY: `into` is borrowed mutably.
    let copied = unsafe { foreign::copy(shared.pid(peer), Way::In, into.as_mut_ptr(), addr, len) };
    copied.map_err(|refusal| refused(refusal, peer, addr, len))
}

/// Why the kernel did not copy `len` bytes from or to `addr` of a peer.
fn refused(refusal: Refusal, peer: Rank, addr: u64, len: usize) -> Error {
    match refusal {
        Refusal::Address => Error::BadAddress {
            peer,
            addr,
            len: len as u64,
        },
        Refusal::Gone => Error::PeerLost(peer),
        Refusal::Forbidden => forbids(),
        Refusal::Other(cause) => Error::system("copying to or from a peer's memory", cause),
    }
}

/// The address of a remote place, held in force while it is used.
struct Place<'a> {
    addr: u64,
    _guard: Option<Guard<'a>>,
}

impl<'a> Place<'a> {
    fn find(shared: &'a Shared, owner: Rank, remote: Remote, len: usize) -> Result<Self, Error> {
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
        let handle = Handle::from_word(remote.key.0);
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

/// Sends as many pieces as there is room for, and ends the transfers with lost peers.
pub(crate) fn advance(shared: &Shared, mut sink: Option<&mut dyn Sink>) -> usize {
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
    // After that: while there are any, another thread that waits sleeps only briefly.
    shared.transfers.count.fetch_sub(count as u64, Relaxed);
    count
}

impl Transfer {
    /// Asks for as many pieces as there is room for.
    fn ask(&mut self, shared: &Shared, ticket: u64) -> Result<(), Error> {
        shared.both_alive(self.peer)?;
        let most = shared.caps.max_payload;
        while self.asked < self.len && self.failed.is_none() {
            let len = most.min(self.len - self.asked);
            let offset = self.remote.offset.wrapping_add(self.asked as u64);
            let key = self.remote.key.0;
            let sent = match self.way {
                Way::Out => {
                    // SAFETY: readable until complete, the contract of `access`.
                    let piece = unsafe {
                        std::slice::from_raw_parts(self.local.0.wrapping_add(self.asked), len)
                    };
                    shared.push(self.peer, WRITE, &[ticket, key, offset], piece)?
                }
                Way::In => {
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

/// The owner's side: one piece.
///
/// # Errors
/// [`Error::Malformed`] if the message follows no rule; it gets no answer.
// Apart from the poll, whose stack frame it would make longer than a page.
#[inline(never)]
pub(crate) fn serve(
    shared: &Shared,
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
            let outcome = Place::find(shared, shared.rank, remote, delivery.payload.len())
                .map_err(|error| status_of(&error))
                .and_then(|place| {
                    // SAFETY: the extent is in force, so its owner lent it for writing; with
                    // `Key::ANY` the peer vouched for the change.
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
            let outcome = Place::find(shared, shared.rank, remote, len)
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

/// How a piece ended, and how long its extent is.
fn status_of(error: &Error) -> (u16, u64) {
    match error {
        Error::OutOfExtent { extent, .. } => (status::OUT_OF_EXTENT, *extent),
        Error::BadAddress { .. } => (status::BAD_ADDRESS, 0),
        _ => (status::REVOKED, 0),
    }
}

/// The asker's side: the answer to one piece.
///
/// # Errors
/// [`Error::Malformed`] if the answer follows no rule; it has no effect.
#[inline(never)]
pub(crate) fn answered(
    shared: &Shared,
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
        // What was asked of a peer that ended since is forgotten already.
        return match shared.both_alive(peer) {
            Ok(()) => Err(malformed("the answer to a question that was not asked")),
            Err(_) => Ok(()),
        };
    };
    if len > transfer.asked - transfer.answered {
        return Err(malformed("an answer longer than the question"));
    }
    match delivery.tag {
        status::DONE if transfer.way == Way::In => {
            if delivery.payload.len() != len || at > transfer.len - len {
                return Err(malformed("an answer of another length"));
            }
            // SAFETY: at + len <= the length that the caller of `access` vouched for.
            unsafe {
                let to = transfer.local.0.add(at);
                to.copy_from_nonoverlapping(delivery.payload.as_ptr(), len);
            }
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
        // Nothing more will be asked for, nothing is outstanding.
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

    /// What a rank takes for the place of an extent only the extent's owner can have written: not a third rank whose
    /// memory is overwritten.
    #[test]
    fn nobody_can_change_what_another_rank_lends() {
        let ranks = start(3);
        let mut lent = [0_u8; 64];
        // SAFETY: it stays there until the extent is gone.
        let key = unsafe { ranks[1].register(lent.as_mut_ptr(), 64, Permission::ReadWrite) };
        let key = key.expect("there is room for one");
        let index = Handle::from_word(key.0).index as usize;
        for rank in &ranks {
            let shared = &rank.shared;
            let entry = &raw const shared.entries(Rank(1))[index];
            let hazard = &raw const shared.hazards(Rank(1))[0];
            for at in [entry.addr() as u64, hazard.addr() as u64] {
                let mut there = [0; 8];
                shared.self_copy.get(at, &mut there).expect("all can read");
                // SAFETY: what was there is written once more.
                let written = unsafe { shared.self_copy.put(at, &there) };
                assert_eq!(written.is_ok(), rank.rank() == Rank(1));
            }
        }
        ranks[1].deregister(key).expect("it is in force");
        ranks.iter().for_each(|rank| rank.leave(true));
    }
}
