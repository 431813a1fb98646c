//! The shared-memory conduit.

#![allow(unsafe_code)] // implements the contract's unsafe methods

use std::{
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Release},
    },
    time::Duration,
};

use hydrant_conduit::{
    Access, AccessKind, Backoff, Caps, Clock, Conduit, Delivery, Error, Footprint, FreePlaces, Key,
    Membership, Message, Permission, Posted, Rank, Remote, Segments, Sent, Sink, Sleep, Sleeper,
    Standing, WakeWord, Window,
};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    extents::{self, ExtentHandle},
    foreign::CopyDirection,
    inbox::RingInbox,
    latch::Latch,
    layout::HUGE,
    notify::{self, SleepKind},
    shared::{SharedState, standing},
    transfer,
    watch::ProcessWatch,
};

/// The number of checks of a hazard, each followed by a yield, before the first sleep.
const HAZARD_YIELDS: u32 = 99;
/// The length of each sleep while a hazard is held.
const HAZARD_TICK: Duration = Duration::from_micros(50);

/// The conduit between ranks of one host.
pub struct Smp {
    /// The state that every part of the conduit uses.
    pub(crate) shared: Arc<SharedState>,
    /// Held by the thread that takes messages.
    inbox: Latch<RingInbox>,
    /// This rank's free entries for extents.
    free: Mutex<FreePlaces>,
    /// The last field: its thread stops before the rest is dropped.
    _watch: ProcessWatch,
}

impl Smp {
    pub(crate) fn new(shared: SharedState) -> Result<Self, Error> {
        let shared = Arc::new(shared);
        let own = std::process::id();
        let peers = (0..shared.shape.ranks() as u32)
            .map(|rank| (Rank(rank), shared.pid(Rank(rank))))
            .filter(|(_, pid)| *pid != own)
            .collect();
        let watch = ProcessWatch::start(peers, {
            let shared = Arc::clone(&shared);
            move |peer| shared.mark_gone(peer)
        })?;
        let extents = u32::try_from(shared.shape.extents).unwrap_or(u32::MAX);
        Ok(Self {
            inbox: Latch::new(RingInbox::new(shared.shape.ranks())),
            free: Mutex::new(FreePlaces::new(extents)),
            shared,
            _watch: watch,
        })
    }

    /// Returns true if there is work, so that the caller must not sleep. With `room`, the sleeper
    /// is also notified of room. A reply may have got stuck since the caller chose `room`, and then
    /// the caller must choose again.
    fn has_news(&self, room: bool) -> bool {
        let mut inbox = self.inbox.lock();
        inbox.waiting(&self.shared) || !room && inbox.is_stuck()
    }

    fn free(&self) -> MutexGuard<'_, FreePlaces> {
        self.free.lock()
    }

    fn segment_part(&self, offset: usize, len: usize) -> Result<usize, Error> {
        let segment = self.shared.caps.segment;
        if len > segment || offset > segment - len {
            return Err(Error::OutOfExtent {
                peer: self.shared.rank,
                offset: offset as u64,
                len: len as u64,
                extent: segment as u64,
            });
        }
        Ok(self.shared.shape.segment(self.shared.rank.index()) + offset)
    }

    /// Posts an access to a segment or to foreign memory.
    ///
    /// # Safety
    /// 1. and 2. as [`Conduit::post`].
    unsafe fn access(
        &self,
        peer: Rank,
        way: CopyDirection,
        local: *mut u8,
        remote: Remote,
        len: usize,
    ) -> Result<Posted, Error> {
        self.shared.alive(peer)?;
        if remote.key != Key::SEGMENT {
            // SAFETY: 1. and 2. The caller's conditions 1 and 2.
            return unsafe { transfer::access(&self.shared, peer, way, local, remote, len) };
        }
        let window = &self.shared.windows[peer.index()];
        let offset = usize::try_from(remote.offset).unwrap_or(usize::MAX);
        let copied = match way {
            CopyDirection::Out => {
                // SAFETY: `local` is readable for `len` bytes, by the caller's condition 1.
                let from = unsafe { std::slice::from_raw_parts(local, len) };
                window.write(offset, from)
            }
            CopyDirection::In => {
                // SAFETY: `local` is writable for `len` bytes and nothing else uses them, by the
                // caller's condition 1.
                let to = unsafe { std::slice::from_raw_parts_mut(local, len) };
                window.read(offset, to)
            }
        };
        copied.map_err(|_| Error::OutOfExtent {
            peer,
            offset: remote.offset,
            len: len as u64,
            extent: window.len() as u64,
        })?;
        Ok(Posted::Done)
    }
}

// SAFETY: 1. The kernel and the windows copy before a call returns. A transfer by messages leaves
// the table of open transfers before its end is reported, under a ticket that counts up.
// 2. `transfer` enters an extent by a hazard and checks the range. `deregister` revokes the handle,
//    whose generation counts the grants of its entry, and waits for the hazards that name it.
// 3. Windows are checked parts of the mapping. `segment_part` checks the part that is decommitted.
// 4. All four come from `shared`, which does not change.
unsafe impl Conduit for Smp {
    fn rank(&self) -> Rank {
        self.shared.rank
    }

    fn size(&self) -> u32 {
        self.shared.shape.ranks as u32
    }

    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    fn footprint(&self) -> Footprint {
        self.shared.shape.footprint()
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        _access: Permission,
    ) -> Result<Key, Error> {
        let limit = self.shared.shape.extents;
        let index = self.free().take().ok_or(Error::Exhausted {
            what: "extents registered at once",
            limit,
            remedy: "raise HYDRANT_EXTENTS",
        })?;
        let entry = &self.shared.entries(self.shared.rank)[index as usize];
        Ok(Key(entry.grant(index, addr as u64, len as u64).word()))
    }

    fn deregister(&self, key: Key) -> Result<(), Error> {
        let shared = &self.shared;
        let handle = ExtentHandle::from_word(key.0);
        let revoked = (shared.entries(shared.rank).get(handle.index as usize))
            .is_some_and(|entry| entry.revoke(handle));
        if !revoked {
            return Err(Error::Revoked {
                peer: shared.rank,
                key: key.0,
            });
        }
        for rank in (0..shared.shape.ranks() as u32).map(Rank) {
            // The hazards of a process that ended keep their value, but it accesses nothing. The
            // standing does not tell that: a rank that is lost because one of its threads panicked
            // has other threads that still copy. A hazard is held for one copy by the kernel, so
            // the wait ends with that copy. Or the process ends, which its `pidfd` reports.
            let mut backoff = Backoff::new(0, HAZARD_YIELDS);
            while !extents::settled(shared.hazards(rank), shared.rank.0, handle)
                && !shared.is_buried(rank)
            {
                backoff.pause_or_sleep(HAZARD_TICK);
            }
        }
        self.free().give_back(handle.index);
        Ok(())
    }

    unsafe fn post(&self, access: &Access) -> Result<Posted, Error> {
        let (peer, local, len) = (access.peer, access.local.addr, access.len);
        let way = match access.kind {
            AccessKind::Put => CopyDirection::Out,
            AccessKind::Get => CopyDirection::In,
            AccessKind::Atomic(_) => return Err(self.shared.caps.no_atomics()),
        };
        // SAFETY: 1. and 2. The caller's conditions 1 and 2. `CopyDirection::Out` only reads `local`.
        unsafe { self.access(peer, way, local, access.remote, len) }
    }

    #[inline]
    fn send(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, Error> {
        self.shared.caps.check(message)?;
        self.shared.push_message(peer, message)
    }

    fn handled(&self, peer: Rank) -> (u64, u64) {
        self.shared.writer(peer).progress()
    }

    fn drain(&self, sink: &mut dyn Sink) -> usize {
        let mut inbox = self.inbox.lock();
        let mut count = 0;
        // Each poll takes at least one of the messages that had arrived, and a ring holds no more
        // than that many. Later messages may wait.
        for _ in 0..=self.shared.shape.slots {
            let more = inbox.poll(&self.shared, sink);
            count += more;
            if more == 0 {
                break;
            }
        }
        drop(inbox);
        count + transfer::advance(&self.shared, Some(sink))
    }

    fn poll(&self, sink: &mut dyn Sink) -> usize {
        let mut count = 0;
        if let Some(mut inbox) = self.inbox.try_lock() {
            count = inbox.poll(&self.shared, sink);
        }
        if self.shared.transfers.any() {
            count += transfer::advance(&self.shared, Some(sink));
        }
        count
    }

    fn poll_past(&self, kind: u8, of: Option<Rank>, sink: &mut dyn Sink) -> usize {
        let mut count = 0;
        if let Some(mut inbox) = self.inbox.try_lock() {
            count = inbox.poll_past(&self.shared, kind, of, sink);
        }
        if self.shared.transfers.any() {
            count += transfer::advance(&self.shared, Some(sink));
        }
        count
    }

    fn take(&self, kind: u8, take: &mut dyn FnMut(&Delivery<'_>) -> bool) -> bool {
        let others = match self.inbox.try_lock() {
            Some(mut inbox) => inbox.take_requests(&self.shared, kind, take),
            None => false,
        };
        others || self.shared.transfers.any()
    }
}

impl Segments for Smp {
    fn window(&self, peer: Rank) -> Option<&Window> {
        self.shared.windows.get(peer.index())
    }

    fn commit(&self, offset: usize, len: usize) -> Result<(), Error> {
        let at = self.segment_part(offset, len)?;
        self.shared.mapping.commit(at, len)
    }

    fn commit_huge(&self, offset: usize, len: usize) -> Result<usize, Error> {
        let at = self.segment_part(offset, len)?;
        if !at.is_multiple_of(HUGE) || !len.is_multiple_of(HUGE) {
            self.shared.mapping.commit(at, len)?;
            return Ok(0);
        }
        let huge = self.shared.mapping.commit_huge(at, len)?;
        if huge == 0 {
            self.shared.mapping.commit(at, len)?;
        }
        Ok(huge)
    }

    fn decommit(&self, offset: usize, len: usize) {
        if let Ok(at) = self.segment_part(offset, len) {
            self.shared.mapping.decommit(at, len);
        }
    }

    fn attaches(&self, peer: Rank) -> bool {
        transfer::attaches(&self.shared, peer)
    }

    fn read_attached(&self, peer: Rank, addr: u64, into: &mut [u8]) -> Result<(), Error> {
        transfer::read_attached(&self.shared, peer, addr, into)
    }
}

impl Membership for Smp {
    fn standing(&self, peer: Rank) -> Standing {
        self.shared.standing(peer)
    }

    fn first_lost(&self) -> Option<Rank> {
        let rank = self.shared.first_lost[0].load(Acquire).checked_sub(1)?;
        u32::try_from(rank).ok().map(Rank)
    }

    fn changes(&self) -> u64 {
        self.shared.changes[0].load(Acquire)
    }

    fn publish(&self, number: u64) {
        self.shared.published[self.shared.rank.index()][0].store(number, Release);
    }

    fn published(&self, peer: Rank) -> Option<u64> {
        let word = self.shared.published.get(peer.index())?;
        Some(word[0].load(Acquire))
    }

    fn come_to_end(&self, come: bool) {
        self.shared.come_to_end(come);
    }

    fn has_come_to_end(&self, peer: Rank) -> bool {
        self.shared.has_come_to_end(peer)
    }

    fn endings(&self) -> u64 {
        self.shared.endings[0].load(Acquire)
    }

    fn leave(&self, orderly: bool) {
        let how = if orderly {
            standing::LEFT
        } else {
            standing::LOST
        };
        self.shared.end(self.shared.rank, how);
        self.shared.wake_all();
    }

    fn expel(&self, peer: Rank) {
        self.shared.expel(peer);
    }
}

impl Sleep for Smp {
    fn wake_word(&self, peer: Rank) -> Option<&WakeWord> {
        self.shared.notify_words.get(peer.index())
    }

    fn wait(&self, sleeper: Sleeper, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        let shared = &self.shared;
        let armed = match sleeper {
            Sleeper::Service => SleepKind::Service,
            Sleeper::Application | Sleeper::Room => SleepKind::Application,
            Sleeper::Memory => SleepKind::Memory,
            Sleeper::Nap => SleepKind::Nothing,
        };
        let room = match sleeper {
            Sleeper::Room => true,
            Sleeper::Nap => false,
            Sleeper::Service | Sleeper::Application | Sleeper::Memory => {
                self.inbox.lock().is_stuck()
            }
        };
        // Transfers by message may wait for room, which no notification reports.
        let timeout = if shared.transfers.any() {
            Some(timeout.map_or(TRANSFER_TICK, |timeout| timeout.min(TRANSFER_TICK)))
        } else {
            timeout
        };
        notify::sleep(
            &shared.notify_words[shared.rank.index()].bits,
            armed,
            timeout,
            room,
            shared.barrier(sleeper == Sleeper::Service),
            // The news is checked first. A message that another thread was handling, with the inbox
            // locked, is then there for `ready` to see.
            &mut || sleeper != Sleeper::Nap && self.has_news(room) || ready(),
        );
    }

    fn notify(&self, peer: Rank) {
        notify::store(&self.shared.notify_words[peer.index()].bits);
    }

    fn wake(&self, peer: Rank) {
        notify::wake(&self.shared.notify_words[peer.index()].bits);
    }
}

impl Clock for Smp {
    fn now(&self) -> Duration {
        self.shared.started.elapsed()
    }
}

/// The pause between two checks for room for transfers by message.
const TRANSFER_TICK: Duration = Duration::from_millis(1);

impl Drop for Smp {
    fn drop(&mut self) {
        // A rank that never left is lost to the others.
        if self.shared.standing(self.shared.rank) == Standing::Present {
            self.leave(false);
        }
    }
}
