//! Messages to peers, in the order the engine decided them.

use std::{collections::VecDeque, sync::atomic::Ordering::Relaxed};

use hydrant_conduit::{Key, Posted, Remote, Sent, Window};
use hydrant_pinning::{Data, Message};
use rustc_hash::FxHashMap;

use super::{Registration, lock};
use crate::{Rank, am::kind, counters::Count, job::Core};

/// What waits to be sent. Bounded by the operations under way, here and at peers.
#[derive(Default)]
pub(super) struct Outbox {
    /// By peer. Those of peers that were sent anything stay, for what is sent next.
    queues: FxHashMap<u32, VecDeque<(Message, Data)>>,
    /// Peers for which something waits.
    waiting: Vec<u32>,
    bytes: Vec<u8>,
}

impl Outbox {
    pub(super) fn push(&mut self, to: u32, message: Message, data: Data) {
        let queue = self.queues.entry(to).or_default();
        if queue.is_empty() {
            self.waiting.push(to);
        }
        queue.push_back((message, data));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Core {
    /// Sends what there is room for.
    pub(crate) fn flush(&self) {
        let Some(registration) = &self.registration else {
            return;
        };
        let mut outbox = lock(&registration.outbox);
        let Outbox {
            queues,
            waiting,
            bytes,
        } = &mut *outbox;
        registration.stuck.store(false, Relaxed);
        waiting.retain(|peer| {
            let Some(queue) = queues.get_mut(peer) else {
                return false;
            };
            while let Some((message, data)) = queue.front_mut() {
                bytes.clear();
                self.write_message(registration, Rank(*peer), message, *data, bytes);
                let sent = self.conduit.send(
                    Rank(*peer),
                    &hydrant_conduit::Message {
                        kind: kind::REGISTRATION,
                        tag: 0,
                        args: &[],
                        payload: bytes,
                    },
                );
                match sent {
                    Ok(Sent::Full) => {
                        registration.stuck.store(true, Relaxed);
                        return true;
                    }
                    Ok(Sent::Yes) => self.tally.one(Count::RegistrationMessages),
                    // The peer is gone; who waits for it is told by its standing.
                    Err(_) => {}
                }
                queue.pop_front();
            }
            false
        });
    }

    /// Whether messages wait for room.
    pub(crate) fn is_stuck(&self) -> bool {
        (self.registration.as_ref()).is_some_and(|registration| registration.stuck.load(Relaxed))
    }

    fn write_message(
        &self,
        registration: &Registration,
        to: Rank,
        message: &mut Message,
        data: Data,
        bytes: &mut Vec<u8>,
    ) {
        message.encode(bytes);
        let start = bytes.len();
        let (addr, len) = match data {
            Data::None => return,
            Data::Own { addr, len } | Data::Asked { addr, len } => (addr, len as usize),
        };
        bytes.resize(start + len, 0);
        let copied = match data {
            Data::Own { .. } => {
                let from = std::ptr::with_exposed_provenance::<u8>(addr as usize);
                // SAFETY: the buffer of an operation that is under way: the caller of
                // `begin_far` promised that it is readable until the operation is done, and
                // the engine says so only after the peer has answered this message.
                unsafe {
                    bytes
                        .as_mut_ptr()
                        .add(start)
                        .copy_from_nonoverlapping(from, len)
                };
                true
            }
            _ => {
                let into = &mut bytes[start..];
                (registration.lent).while_lent(to, addr, len as u64, || self.load(addr, into))
            }
        };
        if !copied {
            bytes.clear();
            message.refuse(registration.lent.why_not(to, addr, len as u64));
            message.encode(bytes);
        }
    }

    /// Copies from own memory that a peer asked for; `false` where it is not mapped.
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
        // SAFETY: `into` is borrowed, and the copy is done on return.
        let read = unsafe {
            (self.conduit).read(self.rank, from, into.as_mut_ptr(), into.len(), Key::ANY)
        };
        matches!(read, Ok(Posted::Done))
    }

    /// Copies to own memory for a peer; `false` where it is not mapped or not writable.
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
        // SAFETY: the memory is lent to peers, so that it bears being written; the copy is done
        // on return.
        let written =
            unsafe { (self.conduit).write(self.rank, to, data.as_ptr(), data.len(), Key::ANY) };
        matches!(written, Ok(Posted::Done))
    }

    /// Where an address lies in the own segment, which is mapped and writable from end to end:
    /// nothing has to be asked of the kernel.
    fn in_own_segment(&self, addr: u64) -> Option<(&Window, usize)> {
        let base = (self.registration.as_ref()?).base(self.rank)?;
        let window = self.conduit.window(self.rank)?;
        let offset = usize::try_from(addr.checked_sub(base)?).ok()?;
        Some((window, offset))
    }
}
