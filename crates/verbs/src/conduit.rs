//! The conduit over an RDMA NIC.

#![allow(unsafe_code)] // implements the contract's unsafe methods

use std::{
    io,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{
            AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use hydrant_conduit::{
    Access, Atomic, Caps, Clock, Conduit, Error, Key, Membership, Message, Operation, Permission,
    Posted, Rank, Remote, Segments, Sent, Sink, Sleep, Sleeper, Standing, WakeWord, Window,
    memory::Place as Memory,
};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    attach::pinned_out,
    control::{Command, Datagram},
    inbox::Inbox,
    lane::{self, Work},
    message::{self, Sort},
    nic::Region,
    shared::Shared,
    sleepers::{Listens, Woken},
    table,
};

/// How long a rank that leaves in good order waits until peers have what it sent.
const DELIVERY: Duration = Duration::from_secs(5);

/// How long to sleep at a time while another thread polls.
const MOMENT: Duration = Duration::from_micros(100);
/// Polls that find another thread polling, for one that waits for it.
const FUTILE: u32 = 64;

/// The conduit over an RDMA NIC.
pub struct Verbs {
    pub(crate) shared: Arc<Shared>,
    inbox: Mutex<Inbox>,
    /// Polls that found another thread polling.
    futile: AtomicU32,
    control: Option<JoinHandle<()>>,
    pub(crate) everything: Option<Region>,
}

impl Verbs {
    pub(crate) fn new(
        shared: Arc<Shared>,
        control: JoinHandle<()>,
        everything: Option<Region>,
    ) -> Self {
        Self {
            shared,
            inbox: Mutex::new(Inbox::new()),
            futile: AtomicU32::new(0),
            control: Some(control),
            everything,
        }
    }

    /// The port that this rank uses.
    pub fn port(&self) -> &crate::Port {
        &self.shared.nic.port
    }

    fn segment_part(&self, offset: usize, len: usize) -> Result<(), Error> {
        (self.shared.segment).check(self.shared.rank, offset, len)
    }

    /// Whether something has arrived, or ended, that nobody was told of; unless another thread is
    /// about to find out.
    fn has_news(&self) -> Option<bool> {
        if self.shared.reap_all() || self.shared.has_ended() || !self.shared.loopback.is_empty() {
            return Some(true);
        }
        Some(self.try_inbox()?.has_arrived(&self.shared))
    }

    /// The inbox, unless another thread polls.
    fn try_inbox(&self) -> Option<MutexGuard<'_, Inbox>> {
        self.inbox.try_lock()
    }

    /// The inbox, which another thread has. That may have lost its core to this one, which would
    /// then look for nothing as long as the scheduler lets it: now and then it waits.
    #[cold]
    fn patient_inbox(&self) -> Option<MutexGuard<'_, Inbox>> {
        let tries = self.futile.fetch_add(1, Relaxed);
        match tries % FUTILE {
            0 if tries > 0 => self.inbox.try_lock_for(MOMENT),
            _ => None,
        }
    }

    fn arm(&self) -> io::Result<()> {
        self.shared.sent.arm()?;
        self.shared.received.arm()
    }

    /// Why memory could not be registered.
    fn refusal(&self, cause: &io::Error, addr: u64, len: u64, permission: Permission) -> Error {
        let peer = self.shared.rank;
        // SAFETY: nothing is stored by way of this place.
        let memory = unsafe { Memory::new(addr, len) };
        match cause.raw_os_error() {
            // The kernel calls what is not there by several names.
            Some(_) if !memory.pin(permission) => Error::BadAddress { peer, addr, len },
            Some(libc::EFAULT | libc::EINVAL) => Error::BadAddress { peer, addr, len },
            Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN) => {
                pinned_out(cause).unwrap_or(Error::Exhausted {
                    what: "memory regions of the NIC, or memory to pin",
                    limit: self.shared.nic.limits.regions.into(),
                    remedy: "register less: HYDRANT_M, HYDRANT_MAXVICTIM",
                })
            }
            _ => Error::System {
                what: "registering memory",
                cause: cause.to_string(),
            },
        }
    }

    /// An atomic operation of the NIC.
    ///
    /// # Safety
    /// As [`Conduit::post`], 1: the NIC stores to `was` until the operation is complete.
    unsafe fn atomic(
        &self,
        peer: Rank,
        word: Remote,
        operation: Atomic,
        was: *mut u64,
    ) -> Result<Posted, Error> {
        let shared = &*self.shared;
        shared.standings.present(peer)?;
        if shared.caps.atomics.is_none() {
            let what = "an atomic operation of the network";
            let cause = "not every rank's NIC has them".to_owned();
            return Err(Error::System { what, cause });
        }
        let Remote { key, offset } = word;
        if !offset.is_multiple_of(8) {
            return Err(Error::Misaligned { peer, addr: offset });
        }
        let own = peer == shared.rank;
        if own {
            self.check_own(word, 8)?;
        }
        let key = key.0;
        let rkey = table::remote(word.key).ok_or(Error::Revoked { peer, key })?;
        let ticket = if own {
            shared.own_ticket()
        } else {
            shared.ticket()
        };
        let (operands, swaps) = match operation {
            Atomic::Add(value) => ([value, 0], false),
            Atomic::CompareSwap { expected, value } => ([expected, value], true),
        };
        let mut lane = shared.peer(peer).lane.lock();
        if lane.state == lane::State::Ended {
            let what = "reaching own memory through the NIC";
            let cause = "it failed before".to_owned();
            return Err(match own {
                true => Error::System { what, cause },
                false => Error::PeerLost(peer),
            });
        }
        let atomic = lane::Atomic {
            ticket,
            operands,
            swaps,
            remote: offset,
            key,
            rkey,
            was: was.expose_provenance(),
            word: None,
        };
        shared.ask(peer, &mut lane, Work::Atomic(atomic));
        drop(lane);
        if own {
            return shared.wait_for_own(ticket).map(|()| Posted::Done);
        }
        Ok(Posted::Pending(ticket))
    }
}

// SAFETY: 1. An operation ends by its completion, or when its queue pair is in the error state and
//            its work was flushed; then the NIC is done with it. Tickets are counted up.
//         2. The NIC checks key, range and access, and deregisters before `deregister` returns.
//         3. `window` is the one segment, and what is decommitted is checked to lie in it.
//         4. They come from `shared`, which does not change.
unsafe impl Conduit for Verbs {
    fn rank(&self) -> Rank {
        self.shared.rank
    }

    fn size(&self) -> u32 {
        self.shared.size
    }

    fn caps(&self) -> &Caps {
        &self.shared.caps
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
        let place = self.shared.table.reserve().ok_or_else(exhausted)?;
        let (start, bytes) = (addr.expose_provenance() as u64, len as u64);
        let region = (len > 0).then(|| {
            // SAFETY: the same contract.
            let region = unsafe { Region::new(&self.shared.nic, addr, len, permission) };
            region.map_err(|cause| self.refusal(&cause, start, bytes, permission))
        });
        let (region, writable) = (region.transpose()?, permission == Permission::ReadWrite);
        (place.fill(region, start, bytes, writable)).ok_or_else(exhausted)
    }

    fn deregister(&self, key: Key) -> Result<(), Error> {
        let (peer, word) = (self.shared.rank, key.0);
        let removed = self.shared.table.remove(key);
        let (region, place) = removed.ok_or(Error::Revoked { peer, key: word })?;
        // When the NIC has let go of the memory, the place is free.
        drop(region);
        drop(place);
        Ok(())
    }

    unsafe fn post(&self, access: &Access) -> Result<Posted, Error> {
        let (peer, remote, key) = (access.peer, access.remote, access.local.key);
        if let Operation::Atomic(operation) = access.operation {
            let was = access.local.addr.cast();
            // SAFETY: the same contract.
            return unsafe { self.atomic(peer, remote, operation, was) };
        }
        let (addr, len) = (access.local.addr.expose_provenance(), access.len);
        // SAFETY: a put only reads it, and for a get it is writable by nobody else until the
        //         operation is complete, says the caller (1).
        let memory = unsafe { Memory::new(addr as u64, len as u64) };
        match (access.operation, access.waits) {
            (Operation::Put, true) => self.access::<true>(peer, true, remote, memory, key),
            (Operation::Put, false) => self.access::<false>(peer, true, remote, memory, key),
            (_, true) => self.access::<true>(peer, false, remote, memory, key),
            (_, false) => self.access::<false>(peer, false, remote, memory, key),
        }
    }

    fn send(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, Error> {
        let shared = &*self.shared;
        shared.caps.check(message)?;
        shared.standings.present(peer)?;
        if peer == shared.rank {
            return Ok(shared.loopback.send(shared, message));
        }
        let state = shared.peer(peer);
        let window = u64::from(shared.window);
        let full = || {
            state
                .sent
                .load(Relaxed)
                .saturating_sub(state.handled.load(Relaxed))
                >= window
        };
        if full() {
            return Ok(Sent::Full);
        }
        let Some(mut slot) = shared.roads.slots.take() else {
            return Ok(Sent::Full);
        };
        let done = state.done.load(Relaxed);
        let bytes = shared.roads.slots.bytes(&mut slot);
        let (front, len) = message::encode(Sort::Request, message, done, bytes);
        let mut lane = state.lane.lock();
        if lane.state == lane::State::Ended {
            shared.roads.slots.give_back(slot);
            return Err(Error::PeerLost(peer));
        }
        if full() {
            shared.roads.slots.give_back(slot);
            return Ok(Sent::Full);
        }
        state.told.store(done, Relaxed);
        state.sent.fetch_add(1, Relaxed);
        let len = len as u32;
        shared.ask(peer, &mut lane, Work::Send { slot, len, front });
        Ok(Sent::Yes)
    }

    fn handled(&self, peer: Rank) -> (u64, u64) {
        match self.shared.known(peer.0) {
            Some(peer) => (peer.handled.load(Relaxed), peer.sent.load(Relaxed)),
            None => (0, 0),
        }
    }

    fn poll(&self, sink: &mut dyn Sink) -> usize {
        let inbox = self.try_inbox().or_else(|| self.patient_inbox());
        inbox.map_or(0, |mut inbox| inbox.poll(&self.shared, sink))
    }

    fn drain(&self, sink: &mut dyn Sink) -> usize {
        self.shared.reap_all();
        let mut inbox = self.inbox.lock();
        let mut count = 0;
        // What can have arrived by now is bounded; what arrives meanwhile may wait.
        for _ in 0..=2 * self.shared.window * self.shared.size {
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
        (peer == self.shared.rank).then_some(&self.shared.segment.window)
    }

    fn commit(&self, offset: usize, len: usize) -> Result<(), Error> {
        // What was never committed, or was given back, is zero and becomes memory when touched.
        self.segment_part(offset, len)
    }

    fn commit_huge(&self, offset: usize, len: usize) -> Result<usize, Error> {
        self.segment_part(offset, len).map(|()| 0)
    }

    fn decommit(&self, offset: usize, len: usize) {
        if self.segment_part(offset, len).is_ok() {
            self.shared.segment.discard(offset, len);
        }
    }
}

impl Membership for Verbs {
    fn standing(&self, peer: Rank) -> Standing {
        self.shared.standings.of(peer)
    }

    fn first_lost(&self) -> Option<Rank> {
        self.shared.standings.first_lost()
    }

    fn changes(&self) -> u64 {
        self.shared.standings.changes()
    }

    fn leave(&self, orderly: bool) {
        let shared = &*self.shared;
        if shared.left.swap(true, SeqCst) {
            return;
        }
        // What was sent is delivered before the end is told.
        let since = Instant::now();
        while orderly && since.elapsed() < DELIVERY {
            shared.reap();
            shared.flush();
            let kept = self
                .try_inbox()
                .is_none_or(|mut inbox| inbox.send_kept(shared));
            if !kept && shared.is_quiet() {
                break;
            }
            thread::sleep(Duration::from_micros(50));
        }
        shared.standings.end(shared.rank, orderly);
        shared.commands.give(Command::Leave(orderly));
        shared.sleepers.wake_all();
    }

    fn expel(&self, peer: Rank) {
        self.shared.commands.give(Command::Expel(peer));
    }
}

impl Sleep for Verbs {
    fn wake_word(&self, peer: Rank) -> Option<&WakeWord> {
        (peer == self.shared.rank).then_some(&self.shared.segment.wake_word)
    }

    fn wait(&self, sleeper: Sleeper, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        let listens = match sleeper {
            Sleeper::Nap => Listens::No,
            _ => Listens::Yes,
        };
        let seat = match self.shared.sleepers.sit(listens) {
            Ok(seat) => seat,
            Err(cause) => {
                tracing::error!(%cause, "a thread that should sleep cannot");
                return thread::yield_now();
            }
        };
        if listens == Listens::No {
            if !ready() {
                seat.sleep(None, timeout);
            }
            return;
        }
        if let Err(cause) = self.arm() {
            tracing::error!(%cause, "a thread that should sleep cannot");
            return thread::yield_now();
        }
        let timeout = match self.has_news() {
            Some(true) => return,
            Some(false) => timeout,
            // Who polls now may have looked before the queues were armed; and perhaps it only needs
            // this core to go on.
            None => Some(timeout.unwrap_or(MOMENT).min(MOMENT)),
        };
        // After that: what another thread was handing up, with the inbox held, is there to see.
        if ready() {
            return;
        }
        let channel = &self.shared.channel;
        if seat.sleep(Some(channel.as_fd()), timeout) == Woken::Channel && channel.clear() {
            seat.tell_others();
        }
    }

    fn notify(&self, peer: Rank) {
        if peer == self.shared.rank {
            self.shared.sleepers.wake_all();
        }
    }

    fn wake(&self, peer: Rank) {
        let shared = &*self.shared;
        if peer == shared.rank {
            shared.sleepers.wake_all();
        } else if let Some(place) = shared.places.get(peer.index()) {
            let number = shared.wakes.fetch_add(1, Relaxed);
            let wake = Datagram::wake(shared.rank.0, number).sealed(shared.secret);
            // Known before the answer can come.
            shared.commands.give(Command::SeeAwake(peer, number));
            shared.post.send(peer.0, place, &wake);
        }
    }
}

impl Clock for Verbs {
    fn now(&self) -> Duration {
        self.shared.started.elapsed()
    }
}

impl Drop for Verbs {
    fn drop(&mut self) {
        self.leave(false);
        self.shared.commands.give(Command::Stop);
        if let Some(control) = self.control.take()
            && control.join().is_err()
        {
            tracing::error!("the thread for connections panicked");
        }
    }
}
