//! The conduit over libfabric.

#![allow(unsafe_code)] // implements the contract's unsafe methods

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use hydrant_conduit::{
    Access, AccessKind, Caps, Clock, Conduit, Error, Footprint, Key, Listens, Membership, Message,
    Permission, Posted, Rank, Segments, Sent, Sink, Sleep, Sleeper, Standing, WakeWord, Window,
    memory::Place as Memory,
};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    choice::OfferedEndpoint,
    commands::LinkCommand,
    fabric::RegionRequest,
    ffi,
    inbox::OfiInbox,
    message::{ControlKind, StreamRole},
    peers::Phase,
    shared::OfiShared,
    slots::AccessDirection,
};

/// How long a rank that leaves in good order waits for the delivery of its messages.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// The sleeps in a row without news after which the descriptor is not believed for a moment: while a provider connects,
/// and at other times.
const FEW_EMPTY: u32 = 16;
const MANY_EMPTY: u32 = 4096;
/// How long a thread sleeps at a time while another thread polls.
const MOMENT: Duration = Duration::from_micros(100);
/// How many polls find another thread polling before one waits for that thread.
const FUTILE: u32 = 64;
/// How often a key is drawn again that the provider has in use.
const MOST_KEYS: u32 = 16;

/// The conduit over libfabric.
pub struct Ofi {
    /// The state that all threads of the rank share.
    pub(crate) shared: Arc<OfiShared>,
    /// Locked by the thread that polls.
    inbox: Mutex<OfiInbox>,
    /// Counts polls that found another thread polling.
    futile: AtomicU32,
    /// Counts sleeps in a row that the descriptor of the completion queue ended without news.
    empty: AtomicU32,
    /// The control thread, joined on drop.
    control: Option<JoinHandle<()>>,
}

impl Ofi {
    pub(crate) fn new(shared: Arc<OfiShared>, control: JoinHandle<()>) -> Self {
        Self {
            shared,
            inbox: Mutex::new(OfiInbox::new()),
            futile: AtomicU32::new(0),
            empty: AtomicU32::new(0),
            control: Some(control),
        }
    }

    /// Returns the provider, as `tcp`.
    pub fn provider(&self) -> String {
        self.shared.fabric.offer().provider()
    }

    fn segment_part(&self, offset: usize, len: usize) -> Result<(), Error> {
        self.shared.segment.check(self.shared.rank, offset, len)
    }

    /// Collects what arrived. Returns true if there is something for a poll, or `None` if another thread is at it.
    fn collect_news(&self) -> Option<bool> {
        let shared = &*self.shared;
        let mut inbox = self.try_inbox()?;
        let mut collector = shared.collector.try_lock()?;
        collector.collect(shared, false);
        Some(collector.has_news() || !shared.loopback.is_empty() || inbox.has_debts())
    }

    /// Locks the inbox, unless another thread polls.
    fn try_inbox(&self) -> Option<MutexGuard<'_, OfiInbox>> {
        self.inbox.try_lock()
    }

    /// Waits now and then for the thread that holds the inbox. That thread may have lost its core to this one.
    #[cold]
    fn wait_for_inbox(&self) -> Option<MutexGuard<'_, OfiInbox>> {
        let tries = self.futile.fetch_add(1, Relaxed);
        match tries % FUTILE {
            0 if tries > 0 => self.inbox.try_lock_for(MOMENT),
            _ => None,
        }
    }

    /// Notes that a thread looks after arrivals.
    #[inline]
    fn pay_attention(&self) {
        let attention = &self.shared.attention;
        attention.store(attention.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Ends a key, and waits by `fence` until the accesses that began before have landed.
    fn remove(&self, key: Key, fence: impl FnOnce()) -> Result<(), Error> {
        let (peer, word) = (self.shared.rank, key.0);
        let removed = self.shared.table.remove(key);
        let (region, slot) = removed.ok_or(Error::Revoked { peer, key: word })?;
        let was_registered = region.is_some();
        // The slot becomes free once nobody accesses the memory any more.
        drop(region);
        if was_registered {
            if self.shared.peers.standings.of(peer) == Standing::Lost {
                // Nobody answers a fence, or has reported the end of its accesses.
                self.shared.cut_off_all();
            } else {
                fence();
            }
        }
        drop(slot);
        Ok(())
    }

    /// Registers memory that peers may access under a new key.
    ///
    /// # Safety
    /// As [`Conduit::register`].
    unsafe fn register_anew(
        &self,
        addr: *mut u8,
        len: usize,
        permission: Permission,
    ) -> Result<Key, Error> {
        let shared = &*self.shared;
        let exhausted = || Error::Exhausted {
            what: "extents registered at once",
            limit: shared.table.limit() as u64,
            remedy: "raise HYDRANT_EXTENTS",
        };
        let (start, bytes) = (addr.expose_provenance() as u64, len as u64);
        let writable = permission == Permission::ReadWrite;
        for _ in 0..MOST_KEYS {
            let slot = shared.table.reserve().ok_or_else(exhausted)?;
            let key = slot.key(start).ok_or_else(exhausted)?;
            if len == 0 {
                return Ok(slot.fill(key, None, start, bytes, writable));
            }
            let request = RegionRequest {
                addr,
                len,
                permission,
                key: shared.keys.of(key),
            };
            // SAFETY: the caller's conditions: the memory bears what peers do with the key.
            match unsafe { shared.fabric.register(request) } {
                Ok(region) => {
                    let key = if shared.fabric.chooses_keys() {
                        Key(region.key())
                    } else {
                        key
                    };
                    return Ok(slot.fill(key, Some(region), start, bytes, writable));
                }
                // Another extent has the same key by chance, where keys are short. The next slot has another.
                Err(code) if code == ffi::FI_ENOKEY as i32 => slot.skip(),
                Err(libc::EFAULT) => {
                    let (peer, addr, len) = (shared.rank, start, bytes);
                    return Err(Error::BadAddress { peer, addr, len });
                }
                Err(code) => {
                    return Err(shared.fabric.refusal("registering memory", code as isize));
                }
            }
        }
        Err(exhausted())
    }
}

// SAFETY: 1. An operation ends by its completion. If its peer ended, the connection is shut down, and its operations with
//            the provider end by their completion, too. Tickets count up.
//         2. The provider checks key, range and access when an access begins. `deregister` ends the key, and waits until
//            accesses that began before have landed. Of `deregister_unused` the caller promises that there are none. A peer is
//            cut off before it counts as lost, and all are if this rank does.
//         3. `window` returns the one segment, and `decommit` checks that the range lies in it.
//         4. These values come from `shared`, where they never change.
unsafe impl Conduit for Ofi {
    fn rank(&self) -> Rank {
        self.shared.rank
    }

    fn size(&self) -> u32 {
        self.shared.peers.size()
    }

    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    fn port(&self) -> String {
        OfferedEndpoint::of(self.shared.fabric.offer()).to_string()
    }

    fn footprint(&self) -> Footprint {
        self.shared.footprint
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        permission: Permission,
    ) -> Result<Key, Error> {
        let (peer, start, bytes) = (
            self.shared.rank,
            addr.expose_provenance() as u64,
            len as u64,
        );
        // SAFETY: nothing is stored through this place.
        let memory = unsafe { Memory::new(start, bytes) };
        // A software provider takes any range, and its process dies when a peer accesses one that is not mapped.
        if len > 0 && !memory.pin(permission) {
            return Err(Error::BadAddress {
                peer,
                addr: start,
                len: bytes,
            });
        }
        // SAFETY: the caller's conditions.
        unsafe { self.register_anew(addr, len, permission) }
    }

    fn deregister(&self, key: Key) -> Result<(), Error> {
        self.remove(key, || self.shared.fence())
    }

    unsafe fn deregister_unused(&self, key: Key) -> Result<(), Error> {
        self.remove(key, || ())
    }

    unsafe fn post(&self, access: &Access) -> Result<Posted, Error> {
        let (peer, remote, key) = (access.peer, access.remote, access.local.key);
        let direction = match access.kind {
            AccessKind::Put => AccessDirection::Write,
            AccessKind::Get => AccessDirection::Read,
            AccessKind::Atomic(_) => return Err(self.shared.caps.no_atomics()),
        };
        let (addr, len) = (access.local.addr.expose_provenance(), access.len);
        // SAFETY: the caller's condition 1: a put only reads the memory, and for a get nobody else uses it until the
        // operation is complete.
        let memory = unsafe { Memory::new(addr as u64, len as u64) };
        // SAFETY: the caller's conditions 1 and 2.
        unsafe { self.access(peer, direction, remote, memory, key) }
    }

    fn send(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, Error> {
        let shared = &*self.shared;
        shared.check_stall();
        shared.caps.check(message)?;
        shared.peers.standings.present(peer)?;
        if peer == shared.rank {
            let sent = shared.loopback.send(shared.limits.window, message);
            if sent == Sent::Yes {
                shared.sleepers.wake_listening();
            }
            return Ok(sent);
        }
        shared.send(shared.peer(peer)?, StreamRole::Request, message)
    }

    fn handled(&self, peer: Rank) -> (u64, u64) {
        if peer == self.shared.rank {
            return self.shared.loopback.progress();
        }
        let known = self.shared.peers.known(peer.0);
        known.map_or((0, 0), |peer| peer.counts.progress())
    }

    fn poll(&self, sink: &mut dyn Sink) -> usize {
        self.pay_attention();
        let inbox = self.try_inbox().or_else(|| self.wait_for_inbox());
        inbox.map_or(0, |mut inbox| inbox.poll(&self.shared, sink))
    }

    fn drain(&self, sink: &mut dyn Sink) -> usize {
        let mut inbox = self.inbox.lock();
        let mut count = 0;
        // The messages that can have arrived by now are bounded. Later ones may wait.
        for _ in 0..=2 * self.shared.limits.window * self.shared.peers.size() {
            match inbox.poll(&self.shared, sink) {
                0 => break,
                delivered => count += delivered,
            }
        }
        count
    }
}

impl Segments for Ofi {
    fn window(&self, peer: Rank) -> Option<&Window> {
        (peer == self.shared.rank).then_some(&self.shared.segment.window)
    }

    fn commit(&self, offset: usize, len: usize) -> Result<(), Error> {
        // Pages that were never committed, or were given back, read as zero and become memory when touched.
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

impl Membership for Ofi {
    fn standing(&self, peer: Rank) -> Standing {
        if !self.shared.peers.are_ranks() && peer != self.shared.rank {
            // A number that no peer ever had counts as lost.
            let Some(_) = self.shared.peers.known(peer.0) else {
                return Standing::Lost;
            };
        }
        self.shared.peers.standings.of(peer)
    }

    fn first_lost(&self) -> Option<Rank> {
        self.shared.peers.standings.first_lost()
    }

    fn changes(&self) -> u64 {
        self.shared.peers.standings.changes()
    }

    fn come_to_end(&self, come: bool) {
        let shared = &*self.shared;
        if let Some(number) = shared.peers.standings.announce_end(shared.rank, come) {
            shared.commands.push(LinkCommand::ComeToEnd(number));
        }
    }

    fn has_come_to_end(&self, peer: Rank) -> bool {
        self.shared.peers.standings.has_come_to_end(peer)
    }

    fn endings(&self) -> u64 {
        self.shared.peers.standings.endings()
    }

    fn leave(&self, orderly: bool) {
        let shared = &*self.shared;
        if !shared.begin_to_leave() {
            return;
        }
        // Sent messages are delivered before peers learn that this rank leaves: both go by the stream.
        let since = Instant::now();
        let is_settled = || {
            (shared.peers.all_known()).all(|peer| {
                let link = peer.link.lock();
                link.phase != Phase::Up || link.posted == link.sent && link.queue.is_empty()
            })
        };
        while orderly && since.elapsed() < DELIVERY_TIMEOUT && !is_settled() {
            if let Some(mut collector) = shared.collector.try_lock() {
                collector.collect(shared, true);
            }
            thread::sleep(Duration::from_micros(50));
        }
        shared.peers.standings.end(shared.rank, orderly);
        shared.commands.push(LinkCommand::Leave(orderly));
        shared.sleepers.wake_all();
    }

    fn expel(&self, peer: Rank) {
        if self.shared.listening.is_some() {
            return self.shared.commands.push(LinkCommand::Abandon(peer));
        }
        self.shared.commands.push(LinkCommand::Expel(peer));
    }
}

impl Sleep for Ofi {
    fn wake_word(&self, peer: Rank) -> Option<&WakeWord> {
        (peer == self.shared.rank).then_some(&self.shared.segment.wake_word)
    }

    fn wait(&self, sleeper: Sleeper, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        self.pay_attention();
        let listens = match sleeper {
            Sleeper::Nap => Listens::No,
            _ => Listens::Yes,
        };
        let waiter = match self.shared.sleepers.enter(listens) {
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
        let timeout = match self.collect_news() {
            Some(true) => return,
            Some(false) => timeout,
            // The thread that collects now may need this core to continue.
            None => Some(timeout.unwrap_or(MOMENT).min(MOMENT)),
        };
        // This check comes last: results that another thread handed up with the inbox locked are visible now.
        if ready() {
            return;
        }
        let fabric = &self.shared.fabric;
        let empty = self.empty.load(Relaxed);
        // While a provider connects, its descriptor is ready all the time. It is also ready for each part of a long
        // access.
        let is_idle = empty > MANY_EMPTY || empty > FEW_EMPTY && self.shared.peers.any_down();
        if is_idle {
            self.empty.store(0, Relaxed);
            waiter.sleep(None, Some(timeout.unwrap_or(MOMENT).min(MOMENT / 2)));
            return;
        }
        if !fabric.may_sleep() {
            // The provider has something to do, which the next poll does.
            self.empty.store(empty + 1, Relaxed);
            return;
        }
        let woken = waiter.sleep(Some(fabric.wait_descriptor()), timeout);
        if woken == hydrant_conduit::WakeCause::Channel {
            match self.collect_news() {
                Some(false) => self.empty.fetch_add(1, Relaxed),
                _ => self.empty.swap(0, Relaxed),
            };
            waiter.notify_others();
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
        } else if let Ok(peer) = shared.peer(peer) {
            shared.send_control(peer, ControlKind::Wake, &[]);
        }
    }
}

impl Clock for Ofi {
    fn now(&self) -> Duration {
        self.shared.started.elapsed()
    }
}

impl Drop for Ofi {
    fn drop(&mut self) {
        self.leave(false);
        self.shared.commands.push(LinkCommand::Stop);
        if let Some(control) = self.control.take()
            && control.join().is_err()
        {
            tracing::error!("the thread for connections panicked");
        }
        if self.shared.listening.is_some() {
            // A provider over TCP crashes if it is closed in the middle of a peer's write (libfabric 1.17.0).
            self.shared.cut_off_rest();
        }
    }
}
