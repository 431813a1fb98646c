//! The conduit of ranks whose memory is accessed through played NICs.

#![allow(unsafe_code)] // implements the contract's unsafe methods

use std::{sync::Arc, thread::JoinHandle, time::Duration};

use hydrant_conduit::{
    Access, Caps, Clock, Conduit, Delivery, Error, Footprint, Key, Membership, Message, Permission,
    Posted, Rank, Remote, Segments, Sent, Sink, Sleep, Sleeper, Standing, WakeWord, Window,
    memory::{Place, Segment, take},
};
use hydrant_smp::upon::{self, BadAddress, CopyDirection, SelfCopy, available_memory};
use parking_lot::Mutex;

use crate::{
    core::{LocalMemory, PinCore, PinOperation},
    listener::NicListener,
    pipe::{Pipe, discard},
    table::{AccessRefusal, Span},
    thread,
};
/// Most bytes of a write whose data the processor hands to the NIC, like the inline data of a work
/// request.
pub(crate) const INLINE: usize = 128;

/// The conduit of ranks whose memory is accessed through played NICs.
pub struct Pinned {
    /// The state that the threads share.
    core: Arc<PinCore>,
    /// The capabilities of the conduit.
    caps: Caps,
    /// The rank's own segment.
    segment: Segment,
    /// The pipe for operations of the rank on itself, made on first use.
    loopback: Mutex<Option<Pipe>>,
    /// The socket to which peers send their pipes.
    listener: Arc<NicListener>,
    /// The NIC thread and the thread that takes calls, joined on drop.
    threads: Vec<JoinHandle<()>>,
}

impl Pinned {
    pub(crate) fn start(
        core: Arc<PinCore>,
        listener: NicListener,
        segment: Segment,
        caps: Caps,
    ) -> Result<Self, Error> {
        let mut pinned = Self {
            core,
            caps,
            segment,
            loopback: Mutex::new(None),
            listener: Arc::new(listener),
            threads: Vec::new(),
        };
        let core = Arc::clone(&pinned.core);
        let nic = spawn("hydrant-nic", move || thread::run(&core))?;
        pinned.threads.push(nic);
        let (core, listener) = (Arc::clone(&pinned.core), Arc::clone(&pinned.listener));
        let calls = spawn("hydrant-calls", move || {
            while let Some(caller) = listener.next() {
                core.add_caller(caller);
            }
        })?;
        pinned.threads.push(calls);
        Ok(pinned)
    }

    fn local_error(&self, refusal: AccessRefusal, key: Key, addr: usize, len: usize) -> Error {
        refusal.error(self.core.rank(), key, addr as u64, len as u64)
    }

    fn segment_part(&self, offset: usize, len: usize) -> Result<Place, Error> {
        self.segment.check(self.core.rank(), offset, len)?;
        let window = &self.segment.window;
        // SAFETY: nothing is stored through this place.
        Ok(unsafe { Place::new((window.addr() + offset) as u64, len as u64) })
    }

    /// Posts an access to memory of any rank.
    ///
    /// # Safety
    /// As [`Conduit::post`].
    unsafe fn access(
        &self,
        peer: Rank,
        way: CopyDirection,
        remote: Remote,
        local: *mut u8,
        len: usize,
        key: Key,
    ) -> Result<Posted, Error> {
        self.core.check_alive(peer)?;
        if len == 0 {
            return Ok(Posted::Done);
        }
        let is_own = peer == self.core.rank();
        if is_own && remote.key == Key::ANY {
            // SAFETY: 1. and 2. The caller's conditions 1 and 2.
            return unsafe { self.copy(way, remote.offset, local, len) };
        }
        let is_inline = way == CopyDirection::Out && key == Key::ANY && len <= INLINE;
        if !is_inline {
            let span = Span::whole(local.addr() as u64, len);
            (self.core.table.check(key, way, span))
                .map_err(|refusal| self.local_error(refusal, key, local.addr(), len))?;
        }
        let operation = PinOperation {
            ticket: self.core.ticket(),
            way,
            remote,
            local: LocalMemory(local),
            key,
            inline_data: None,
            len,
        };
        if is_own {
            // SAFETY: the operation's memory is valid until it is complete, by the caller's
            // condition 1 of `Conduit::post`. It is complete when this call returns.
            unsafe { self.loop_back(&operation)? };
            return Ok(Posted::Done);
        }
        let inline_data = is_inline.then(|| {
            // SAFETY: the memory is readable for `len` bytes until this returns, by condition 1 of
            // `Conduit::post`.
            unsafe { take(local, len) }
        });
        let operation = PinOperation {
            inline_data,
            ..operation
        };
        let ticket = operation.ticket;
        self.core.post(peer, operation)?;
        Ok(Posted::Pending(ticket))
    }

    /// Performs an operation of the rank on itself: the local NIC does both sides.
    ///
    /// # Safety
    /// The operation's memory is valid until this returns.
    unsafe fn loop_back(&self, operation: &PinOperation) -> Result<(), Error> {
        let &PinOperation {
            way,
            remote,
            local,
            key,
            len,
            ..
        } = operation;
        let mut loopback = self.loopback.lock();
        let pipe = match &mut *loopback {
            Some(pipe) => pipe,
            none => none.insert(Pipe::new()?),
        };
        let table = &self.core.table;
        let local_span = Span::whole(local.0.addr() as u64, len);
        let remote_span = Span::whole(remote.offset, len);
        let local_error = |refusal| self.local_error(refusal, key, local.0.addr(), len);
        let remote_error = |refusal: AccessRefusal| {
            refusal.error(self.core.rank(), remote.key, remote.offset, len as u64)
        };
        let mut at = 0;
        while at < len {
            let bytes = pipe.piece().min(len - at);
            let (local_part, remote_part) =
                (local_span.part(at, bytes), remote_span.part(at, bytes));
            let landed = match way {
                CopyDirection::Out if key == Key::ANY => {
                    // SAFETY: 1. The memory is readable for `len` bytes, by condition 1 of
                    // `Conduit::post`.
                    if !unsafe { pipe.fill(local.0.wrapping_add(at), bytes) } {
                        return Err(local_error(AccessRefusal::BadAddress));
                    }
                    table
                        .pull(remote.key, remote_part, &pipe.ends)
                        .map_err(remote_error)
                }
                CopyDirection::Out => {
                    table
                        .push(key, local_part, &pipe.ends)
                        .map_err(local_error)?;
                    table
                        .pull(remote.key, remote_part, &pipe.ends)
                        .map_err(remote_error)
                }
                CopyDirection::In => {
                    table
                        .push(remote.key, remote_part, &pipe.ends)
                        .map_err(remote_error)?;
                    table.pull(key, local_part, &pipe.ends).map_err(local_error)
                }
            };
            if let Err(error) = landed {
                discard(&pipe.ends, bytes);
                return Err(error);
            }
            at += bytes;
        }
        Ok(())
    }

    /// Copies with the processor, to or from any address of this process.
    ///
    /// # Safety
    /// As [`Conduit::post`].
    unsafe fn copy(
        &self,
        way: CopyDirection,
        addr: u64,
        local: *mut u8,
        len: usize,
    ) -> Result<Posted, Error> {
        // SAFETY: `local` is valid for the copy, by the caller's condition 1. The memory at `addr`
        // bears the change, by condition 2.
        let copied = match unsafe { upon::copy(std::process::id(), way, local, addr, len) } {
            Err(upon::CopyRefusal::Forbidden) => {
                let pipe = SelfCopy::new()?;
                match way {
                    CopyDirection::Out => {
                        // SAFETY: the memory is readable for `len` bytes, by condition 1 of
                        // `Conduit::post`.
                        let from = unsafe { std::slice::from_raw_parts(local, len) };
                        // SAFETY: the process bears the change at the address, by condition 2 of
                        // `Conduit::post`.
                        unsafe { pipe.put(addr, from) }
                    }
                    CopyDirection::In => {
                        // SAFETY: the memory is writable for `len` bytes and nobody else uses it,
                        // by condition 1 of `Conduit::post`.
                        let to = unsafe { std::slice::from_raw_parts_mut(local, len) };
                        pipe.get(addr, to)
                    }
                }
            }
            copied => copied.map_err(|_| BadAddress),
        };
        copied.map_err(|BadAddress| Error::BadAddress {
            peer: self.core.rank(),
            addr,
            len: len as u64,
        })?;
        Ok(Posted::Done)
    }
}

// SAFETY: 1. An initiator removes an operation before it stores the event of its end. Tickets count
//            up. Operations of the rank on itself are done when the call returns.
//         2. NIC threads move data only from and to pages of the table. The table checks key, range
//            and permission, and a deregistration waits for the users of the extent.
//         3. `window` returns the one segment, and `segment_part` checks the range to decommit.
//         4. These values come from the core and from `caps`, where they never change.
unsafe impl Conduit for Pinned {
    fn rank(&self) -> Rank {
        self.core.rank()
    }

    fn size(&self) -> u32 {
        self.core.smp.size()
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn footprint(&self) -> Footprint {
        self.core.smp.footprint()
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        permission: Permission,
    ) -> Result<Key, Error> {
        // SAFETY: 1. and 2. The caller's conditions 1 and 2.
        unsafe { self.core.table.register(addr.addr(), len, permission) }
    }

    fn deregister(&self, key: Key) -> Result<(), Error> {
        self.core.table.deregister(key)
    }

    unsafe fn post(&self, access: &Access) -> Result<Posted, Error> {
        use hydrant_conduit::AccessKind::{Atomic, Get, Put};
        let (peer, local, len) = (access.peer, access.local, access.len);
        let way = match access.kind {
            Put => CopyDirection::Out,
            Get => CopyDirection::In,
            Atomic(_) => return Err(self.caps.no_atomics()),
        };
        // SAFETY: the caller's conditions 1 and 2; `CopyDirection::Out` only reads local memory.
        unsafe { self.access(peer, way, access.remote, local.addr, len, local.key) }
    }

    #[inline]
    fn send(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, Error> {
        self.core.smp.send(peer, message)
    }

    fn handled(&self, peer: Rank) -> (u64, u64) {
        self.core.smp.handled(peer)
    }

    fn poll(&self, sink: &mut dyn Sink) -> usize {
        let count = self.core.smp.poll(sink);
        if self.core.is_open() {
            count + self.core.deliver(sink, false)
        } else {
            count
        }
    }

    fn poll_past(&self, kind: u8, of: Option<Rank>, sink: &mut dyn Sink) -> usize {
        let count = self.core.smp.poll_past(kind, of, sink);
        if self.core.is_open() {
            count + self.core.deliver(sink, false)
        } else {
            count
        }
    }

    fn drain(&self, sink: &mut dyn Sink) -> usize {
        self.core.smp.drain(sink) + self.core.deliver(sink, true)
    }

    fn take(&self, kind: u8, take: &mut dyn FnMut(&Delivery<'_>) -> bool) -> bool {
        self.core.smp.take(kind, take) || self.core.is_open()
    }
}

impl Segments for Pinned {
    fn window(&self, peer: Rank) -> Option<&Window> {
        (peer == self.rank()).then_some(&self.segment.window)
    }

    fn commit(&self, offset: usize, len: usize) -> Result<(), Error> {
        let place = self.segment_part(offset, len)?;
        let available = available_memory();
        if len as u64 > available || !place.pin(Permission::ReadWrite) {
            return Err(Error::OutOfMemory {
                wanted: len as u64,
                available,
            });
        }
        Ok(())
    }

    fn commit_huge(&self, offset: usize, len: usize) -> Result<usize, Error> {
        self.commit(offset, len).map(|()| 0)
    }

    fn decommit(&self, offset: usize, len: usize) {
        if self.segment_part(offset, len).is_ok() {
            self.segment.discard(offset, len);
        }
    }
}

impl Membership for Pinned {
    fn standing(&self, peer: Rank) -> Standing {
        self.core.smp.standing(peer)
    }

    fn first_lost(&self) -> Option<Rank> {
        self.core.smp.first_lost()
    }

    fn changes(&self) -> u64 {
        self.core.changes()
    }

    fn publish(&self, number: u64) {
        self.core.smp.publish(number);
    }

    fn published(&self, peer: Rank) -> Option<u64> {
        self.core.smp.published(peer)
    }

    fn come_to_end(&self, come: bool) {
        self.core.smp.come_to_end(come);
    }

    fn has_come_to_end(&self, peer: Rank) -> bool {
        self.core.smp.has_come_to_end(peer)
    }

    fn endings(&self) -> u64 {
        self.core.smp.endings()
    }

    fn leave(&self, orderly: bool) {
        self.core.smp.leave(orderly);
    }

    fn expel(&self, peer: Rank) {
        self.core.smp.expel(peer);
    }
}

impl Sleep for Pinned {
    fn wake_word(&self, peer: Rank) -> Option<&WakeWord> {
        (peer == self.rank())
            .then(|| self.core.smp.wake_word(peer))
            .flatten()
    }

    fn wait(&self, sleeper: Sleeper, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        // The order matters: events first, as for messages.
        self.core.smp.wait(sleeper, timeout, &mut || {
            sleeper != Sleeper::Nap && self.core.has_events() || ready()
        });
    }

    fn notify(&self, peer: Rank) {
        self.core.smp.notify(peer);
    }

    fn wake(&self, peer: Rank) {
        self.core.smp.wake(peer);
    }
}

impl Clock for Pinned {
    fn now(&self) -> Duration {
        self.core.smp.now()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.core.stop();
        self.listener.shut();
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed its message.
            let _ = thread.join();
        }
    }
}

/// Starts a thread of the conduit, which sleeps most of the time.
fn spawn(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, Error> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(256 << 10)
        .spawn(work)
        .map_err(|cause| Error::system("starting a thread of the NIC", cause))
}
