//! The conduit over an RDMA NIC.

#![allow(unsafe_code)] // implements the contract's unsafe methods

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use hydrant_conduit::{
    Access, AccessKind, Atomic, Caps, Clock, Conduit, Error, Footprint, Key, Listens, Membership,
    Message, Permission, Posted, Rank, Remote, Segments, Sent, Sink, Sleep, Sleeper, Standing,
    WakeCause, WakeWord, Window, memory::Place as Memory,
};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    commands::ControlCommand,
    connection::{self, Opcode},
    datagram::Datagram,
    inbox::VerbsInbox,
    memlock::memlock_error,
    message::{self, MessageRole},
    nic::MemoryRegion,
    shared::VerbsShared,
    table,
};

/// How long a rank that leaves in good order waits for the delivery of its messages.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a thread sleeps at a time while another thread polls.
const MOMENT: Duration = Duration::from_micros(100);
/// How many polls find another thread polling before one waits for that thread.
const FUTILE: u32 = 64;

/// The conduit over an RDMA NIC.
pub struct Verbs {
    /// What all threads of the rank share.
    pub(crate) shared: Arc<VerbsShared>,
    /// Locked by the thread that polls.
    inbox: Mutex<VerbsInbox>,
    /// Counts polls that found another thread polling.
    futile: AtomicU32,
    /// The control thread, joined on drop.
    control: Option<JoinHandle<()>>,
    /// The registration of the whole address space, if the NIC supports on-demand paging.
    pub(crate) everything: Option<MemoryRegion>,
}

impl Verbs {
    pub(crate) fn new(
        shared: Arc<VerbsShared>,
        control: JoinHandle<()>,
        everything: Option<MemoryRegion>,
    ) -> Self {
        Self {
            shared,
            inbox: Mutex::new(VerbsInbox::new()),
            futile: AtomicU32::new(0),
            control: Some(control),
            everything,
        }
    }

    /// Returns the port that this rank uses.
    pub fn port(&self) -> &crate::Port {
        &self.shared.endpoint.nic().port
    }

    fn segment_part(&self, offset: usize, len: usize) -> Result<(), Error> {
        let endpoint = &self.shared.endpoint;
        (endpoint.segment()).check(endpoint.rank(), offset, len)
    }

    /// Polls for news to hand up: messages, credits to send, ended operations. Returns `None` if
    /// another thread is polling.
    fn poll_for_news(&self) -> Option<bool> {
        let shared = &*self.shared;
        let ended =
            shared.completions.poll_all_sent(&shared.peers) || shared.completions.has_ended();
        if ended || !shared.loopback.is_empty() {
            return Some(true);
        }
        Some(self.try_inbox()?.check_arrivals(shared))
    }

    /// Locks the inbox, unless another thread polls.
    fn try_inbox(&self) -> Option<MutexGuard<'_, VerbsInbox>> {
        self.inbox.try_lock()
    }

    /// Waits now and then for the thread that holds the inbox. That thread may have lost its core
    /// to this one. Without the wait, this thread would poll in vain as long as the scheduler lets
    /// it.
    #[cold]
    fn wait_for_inbox(&self) -> Option<MutexGuard<'_, VerbsInbox>> {
        let tries = self.futile.fetch_add(1, Relaxed);
        match tries % FUTILE {
            0 if tries > 0 => self.inbox.try_lock_for(MOMENT),
            _ => None,
        }
    }

    /// Returns the error for memory that could not be registered.
    fn registration_error(
        &self,
        cause: &io::Error,
        addr: u64,
        len: u64,
        permission: Permission,
    ) -> Error {
        let peer = self.shared.endpoint.rank();
        // SAFETY: nothing is stored through this place.
        let memory = unsafe { Memory::new(addr, len) };
        match cause.raw_os_error() {
            // The kernel has several error numbers for memory that is not mapped.
            Some(_) if !memory.pin(permission) => Error::BadAddress { peer, addr, len },
            Some(libc::EFAULT | libc::EINVAL) => Error::BadAddress { peer, addr, len },
            Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN) => {
                memlock_error(cause).unwrap_or(Error::Exhausted {
                    what: "memory regions of the NIC, or memory to pin",
                    limit: self.shared.endpoint.nic().limits.regions.into(),
                    remedy: "register less: HYDRANT_M, HYDRANT_MAXVICTIM",
                })
            }
            _ => Error::System {
                what: "registering memory",
                cause: cause.to_string(),
            },
        }
    }

    /// Posts an atomic operation of the NIC.
    ///
    /// # Safety
    /// As [`Conduit::post`], 1: until the operation is complete, `was` is writable and nobody else
    /// uses it.
    unsafe fn atomic(
        &self,
        peer: Rank,
        word: Remote,
        operation: Atomic,
        was: *mut u64,
    ) -> Result<Posted, Error> {
        let shared = &*self.shared;
        shared.peers.standings().present(peer)?;
        if shared.endpoint.caps().atomics.is_none() {
            let what = "an atomic operation of the network";
            let cause = "not every rank's NIC has them".to_owned();
            return Err(Error::System { what, cause });
        }
        let Remote { key, offset } = word;
        if !offset.is_multiple_of(8) {
            return Err(Error::Misaligned { peer, addr: offset });
        }
        let own = peer == shared.endpoint.rank();
        if own {
            self.check_own(word, 8)?;
        }
        let key = key.0;
        let rkey = table::rkey_in(word.key).ok_or(Error::Revoked { peer, key })?;
        let ticket = if own {
            shared.peers.own_ticket()
        } else {
            shared.peers.ticket()
        };
        let (operands, swaps) = match operation {
            Atomic::Add(value) => ([value, 0], false),
            Atomic::CompareSwap { expected, value } => ([expected, value], true),
        };
        let mut connection = shared.peers.get(peer).connection().lock();
        if connection.has_ended() {
            let what = "reaching own memory through the NIC";
            let cause = "it failed before".to_owned();
            return Err(if own {
                Error::System { what, cause }
            } else {
                Error::PeerLost(peer)
            });
        }
        let atomic = connection::RdmaAtomic {
            ticket,
            operands,
            swaps,
            remote: offset,
            key,
            rkey,
            was: was.expose_provenance(),
            word: None,
        };
        // SAFETY: 1. The NIC writes to a registered word of the pool. 2. The operation owns that
        // word, and the caller's condition holds for `was`. 3. `rkey` opens memory that its owner
        // registered for writing.
        unsafe {
            (shared.peers).post(
                peer,
                &mut connection,
                connection::RdmaOperation::Atomic(atomic),
            )
        };
        drop(connection);
        if own {
            return shared
                .completions
                .wait_for_own(&shared.peers, ticket)
                .map(|()| Posted::Done);
        }
        Ok(Posted::Pending(ticket))
    }
}

// SAFETY: 1. An operation ends by its completion, or when its queue pair is in the error state and
//            its work was flushed. In both cases the NIC is done with it. Tickets count up.
//         2. The NIC checks key, range and access, and deregisters before `deregister` returns.
//         3. `window` returns the one segment, and `decommit` checks that the range lies in it.
//         4. These values come from `shared`, where they never change.
unsafe impl Conduit for Verbs {
    fn rank(&self) -> Rank {
        self.shared.endpoint.rank()
    }

    fn size(&self) -> u32 {
        self.shared.endpoint.size()
    }

    fn caps(&self) -> &Caps {
        self.shared.endpoint.caps()
    }

    fn port(&self) -> String {
        self.shared.endpoint.nic().port.name()
    }

    fn footprint(&self) -> Footprint {
        self.shared.endpoint.footprint()
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        permission: Permission,
    ) -> Result<Key, Error> {
        let exhausted = || Error::Exhausted {
            what: "extents registered at once",
            limit: self.shared.table.limit() as u64,
            remedy: "raise HYDRANT_EXTENTS",
        };
        let slot = self.shared.table.reserve().ok_or_else(exhausted)?;
        let (start, bytes) = (addr.expose_provenance() as u64, len as u64);
        let region = (len > 0).then(|| {
            // SAFETY: 1. and 2. The caller's conditions 1 and 2.
            let region =
                unsafe { MemoryRegion::new(self.shared.endpoint.nic(), addr, len, permission) };
            region.map_err(|cause| self.registration_error(&cause, start, bytes, permission))
        });
        let (region, writable) = (region.transpose()?, permission == Permission::ReadWrite);
        (slot.fill(region, start, bytes, writable)).ok_or_else(exhausted)
    }

    fn deregister(&self, key: Key) -> Result<(), Error> {
        let (peer, word) = (self.shared.endpoint.rank(), key.0);
        let removed = self.shared.table.remove(key);
        let (region, slot) = removed.ok_or(Error::Revoked { peer, key: word })?;
        // The slot becomes free once the NIC has deregistered the memory.
        drop(region);
        drop(slot);
        Ok(())
    }

    unsafe fn post(&self, access: &Access) -> Result<Posted, Error> {
        let (peer, remote, key) = (access.peer, access.remote, access.local.key);
        if let AccessKind::Atomic(operation) = access.kind {
            let was = access.local.addr.cast();
            // SAFETY: the caller's condition 1.
            return unsafe { self.atomic(peer, remote, operation, was) };
        }
        let (addr, len) = (access.local.addr.expose_provenance(), access.len);
        // SAFETY: the caller's condition 1: a put only reads the memory, and for a get nobody else
        // uses it until the operation is complete.
        let memory = unsafe { Memory::new(addr as u64, len as u64) };
        let opcode = match access.kind {
            AccessKind::Put => Opcode::Write,
            _ => Opcode::Read,
        };
        if access.waits {
            // SAFETY: the caller's conditions 1 and 2.
            unsafe { self.access::<true>(peer, opcode, remote, memory, key) }
        } else {
            // SAFETY: the caller's conditions 1 and 2.
            unsafe { self.access::<false>(peer, opcode, remote, memory, key) }
        }
    }

    fn send(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, Error> {
        let shared = &*self.shared;
        shared.endpoint.caps().check(message)?;
        shared.peers.standings().present(peer)?;
        if peer == shared.endpoint.rank() {
            let sent = shared.loopback.send(shared.endpoint.window(), message);
            if sent == Sent::Yes {
                shared.completions.sleepers().wake_listening();
            }
            return Ok(sent);
        }
        let link = shared.peers.get(peer);
        let (credits, window) = (link.credits(), shared.endpoint.window());
        let is_full = || credits.is_full(window);
        if is_full() {
            return Ok(Sent::Full);
        }
        let Some(mut slot) = shared.peers.pool().slots().take() else {
            return Ok(Sent::Full);
        };
        let served = credits.served();
        let bytes = shared.peers.pool().slots().bytes(&mut slot);
        let (immediate, len) = message::encode(MessageRole::Request, message, served, bytes);
        let mut connection = link.connection().lock();
        if connection.has_ended() {
            shared.peers.pool().slots().give_back(slot);
            return Err(Error::PeerLost(peer));
        }
        if is_full() {
            shared.peers.pool().slots().give_back(slot);
            return Ok(Sent::Full);
        }
        credits.note_credited(served);
        credits.note_sent();
        (shared.peers).post_send(peer, &mut connection, slot, len, immediate);
        Ok(Sent::Yes)
    }

    fn handled(&self, peer: Rank) -> (u64, u64) {
        if peer == self.shared.endpoint.rank() {
            return self.shared.loopback.progress();
        }
        match self.shared.peers.existing(peer.0) {
            Some(peer) => peer.credits().await_handled(),
            None => (0, 0),
        }
    }

    fn poll(&self, sink: &mut dyn Sink) -> usize {
        let inbox = self.try_inbox().or_else(|| self.wait_for_inbox());
        inbox.map_or(0, |mut inbox| inbox.poll(&self.shared, sink))
    }

    fn drain(&self, sink: &mut dyn Sink) -> usize {
        self.shared.completions.poll_all_sent(&self.shared.peers);
        let mut inbox = self.inbox.lock();
        let mut count = 0;
        // The messages that can have arrived by now are bounded. Later ones may wait.
        for _ in 0..=2 * self.shared.endpoint.window() * self.shared.endpoint.size() {
            match inbox.poll(&self.shared, sink) {
                0 => break,
                delivered => count += delivered,
            }
        }
        count
    }
}

impl Segments for Verbs {
    fn window(&self, peer: Rank) -> Option<&Window> {
        (peer == self.shared.endpoint.rank()).then_some(&self.shared.endpoint.segment().window)
    }

    fn commit(&self, offset: usize, len: usize) -> Result<(), Error> {
        // Pages that were never committed, or were given back, read as zero and become memory when
        // touched.
        self.segment_part(offset, len)
    }

    fn commit_huge(&self, offset: usize, len: usize) -> Result<usize, Error> {
        self.segment_part(offset, len).map(|()| 0)
    }

    fn decommit(&self, offset: usize, len: usize) {
        if self.segment_part(offset, len).is_ok() {
            self.shared.endpoint.segment().discard(offset, len);
        }
    }
}

impl Membership for Verbs {
    fn standing(&self, peer: Rank) -> Standing {
        self.shared.peers.standings().of(peer)
    }

    fn first_lost(&self) -> Option<Rank> {
        self.shared.peers.standings().first_lost()
    }

    fn changes(&self) -> u64 {
        self.shared.peers.standings().changes()
    }

    fn come_to_end(&self, come: bool) {
        let shared = &*self.shared;
        if let Some(number) = (shared.peers.standings()).announce_end(shared.endpoint.rank(), come)
        {
            shared
                .peers
                .commands()
                .push(ControlCommand::ComeToEnd(number));
        }
    }

    fn has_come_to_end(&self, peer: Rank) -> bool {
        self.shared.peers.standings().has_come_to_end(peer)
    }

    fn endings(&self) -> u64 {
        self.shared.peers.standings().endings()
    }

    fn leave(&self, orderly: bool) {
        let shared = &*self.shared;
        if !shared.begin_to_leave() {
            return;
        }
        // Sent messages are delivered before peers learn that this rank leaves.
        let since = Instant::now();
        while orderly && since.elapsed() < DELIVERY_TIMEOUT {
            shared.completions.poll_sent(&shared.peers);
            shared.peers.flush();
            let kept = self
                .try_inbox()
                .is_none_or(|mut inbox| inbox.send_kept(shared));
            if !kept && shared.peers.settle() {
                break;
            }
            thread::sleep(Duration::from_micros(50));
        }
        shared
            .peers
            .standings()
            .end(shared.endpoint.rank(), orderly);
        shared.peers.commands().push(ControlCommand::Leave(orderly));
        shared.completions.sleepers().wake_all();
    }

    fn expel(&self, peer: Rank) {
        self.shared
            .peers
            .commands()
            .push(ControlCommand::Expel(peer));
    }
}

impl Sleep for Verbs {
    fn wake_word(&self, peer: Rank) -> Option<&WakeWord> {
        (peer == self.shared.endpoint.rank()).then_some(&self.shared.endpoint.segment().wake_word)
    }

    fn wait(&self, sleeper: Sleeper, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        let listens = match sleeper {
            Sleeper::Nap => Listens::No,
            _ => Listens::Yes,
        };
        let waiter = match self.shared.completions.sleepers().enter(listens) {
            Ok(waiter) => waiter,
            Err(cause) => {
                tracing::error!(%cause, "a thread that should sleep cannot");
                return thread::yield_now();
            }
        };
        if listens == Listens::No {
            if !ready() {
                waiter.sleep(None, timeout);
            }
            return;
        }
        if let Err(cause) = self.shared.completions.arm() {
            tracing::error!(%cause, "a thread that should sleep cannot");
            return thread::yield_now();
        }
        let timeout = match self.poll_for_news() {
            Some(true) => return,
            Some(false) => timeout,
            // The thread that polls now may have polled before the queues were armed. It may also
            // need this core to continue.
            None => Some(timeout.unwrap_or(MOMENT).min(MOMENT)),
        };
        // This check comes last: results that another thread handed up with the inbox locked are
        // visible now.
        if ready() {
            return;
        }
        let completions = &self.shared.completions;
        let woken = waiter.sleep(Some(completions.channel()), timeout);
        if woken == WakeCause::Channel && completions.clear_channel() {
            waiter.notify_others();
        }
    }

    fn notify(&self, peer: Rank) {
        if peer == self.shared.endpoint.rank() {
            self.shared.completions.sleepers().wake_all();
        }
    }

    fn wake(&self, peer: Rank) {
        let shared = &*self.shared;
        if peer == shared.endpoint.rank() {
            shared.completions.sleepers().wake_all();
        } else if let Some(address) = shared.endpoint.addresses().get(peer.index()) {
            let number = shared.next_wake();
            let wake = Datagram::wake(shared.endpoint.rank().0, number)
                .with_secret(shared.endpoint.secret());
            // The control thread learns of the wake before the acknowledgement can arrive.
            shared
                .peers
                .commands()
                .push(ControlCommand::ConfirmWake(peer, number));
            shared.datagrams.send(peer.0, address, &wake);
        }
    }
}

impl Clock for Verbs {
    fn now(&self) -> Duration {
        self.shared.endpoint.now()
    }
}

impl Drop for Verbs {
    fn drop(&mut self) {
        self.leave(false);
        self.shared.peers.commands().push(ControlCommand::Stop);
        if let Some(control) = self.control.take()
            && control.join().is_err()
        {
            tracing::error!("the thread for connections panicked");
        }
    }
}
