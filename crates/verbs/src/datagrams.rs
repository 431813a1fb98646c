//! The queue pair for datagrams. They may get lost; a sender that needs an answer resends.
//!
//! The queue key is drawn at random and told to the job's ranks alone. So NICs drop datagrams of
//! strangers before these take a buffer, or break the queue pair by their length. A datagram that
//! guesses the key still lacks the job's secret.

#![allow(unsafe_code)] // passes parts of a buffer to the NIC

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, OnceLock},
};

use crate::{
    address::EndpointAddress,
    datagram::{Datagram, DatagramKind},
    nic::{AddressHandle, CompletionChannel, CompletionQueue, Nic, NicBuffer, QueuePair, blank},
};
use parking_lot::{Mutex, MutexGuard};

/// Most datagrams in flight.
const SENDS: u32 = 128;
/// Buffers to receive datagrams into.
const RECEIVES: u32 = 256;
/// Bytes of the global routing header that the NIC puts before a datagram.
const GRH: usize = 40;
const SLOT: usize = 128;
const _: () = assert!(GRH + Datagram::BYTES <= SLOT);

pub(crate) struct Datagrams {
    /// The unreliable queue pair. All ranks know its number.
    pair: QueuePair,
    /// Completions of sends. A thread polls it when it needs a slot to send from.
    sent: Arc<CompletionQueue>,
    /// Completions of receives. The control thread polls it.
    received: Arc<CompletionQueue>,
    /// Wakes the control thread when a datagram arrives.
    channel: Arc<CompletionChannel>,
    /// The slots: first those to receive into, then those to send from.
    buffer: NicBuffer,
    /// Slots to send from that the NIC does not hold.
    free: Mutex<Vec<u32>>,
    /// The queue key, drawn by this rank, which datagrams to it must carry.
    key: u32,
    /// Address handles by rank, each made on the first send to the rank.
    handles: Box<[OnceLock<AddressHandle>]>,
    /// The NIC that makes the handles.
    nic: Arc<Nic>,
}

impl Datagrams {
    /// Bytes that are registered for datagrams.
    pub(crate) const BYTES: usize = (SENDS + RECEIVES) as usize * SLOT;

    pub(crate) fn new(nic: &Arc<Nic>, ranks: u32) -> io::Result<Self> {
        let channel = CompletionChannel::new(nic)?;
        let sent = CompletionQueue::new(&channel, SENDS)?;
        let received = CompletionQueue::new(&channel, RECEIVES)?;
        let key = draw_key()?;
        let datagrams = Self {
            pair: QueuePair::datagrams(nic, [&sent, &received], [SENDS, RECEIVES], key)?,
            sent,
            received,
            channel,
            buffer: NicBuffer::new(nic, (SENDS + RECEIVES) as usize * SLOT)?,
            free: Mutex::new((RECEIVES..RECEIVES + SENDS).collect()),
            key,
            handles: (0..ranks).map(|_| OnceLock::new()).collect(),
            nic: Arc::clone(nic),
        };
        for slot in 0..RECEIVES {
            datagrams.post_receive(slot)?;
        }
        Ok(datagrams)
    }

    pub(crate) fn number(&self) -> u32 {
        self.pair.number
    }

    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// Sends a datagram, or drops it if no slot is free.
    pub(crate) fn send(&self, rank: u32, address: &EndpointAddress, datagram: &Datagram) {
        if let Err(cause) = self.try_send(rank, address, datagram) {
            tracing::debug!(%cause, rank, "a datagram was not sent");
        }
    }

    fn try_send(
        &self,
        rank: u32,
        address: &EndpointAddress,
        datagram: &Datagram,
    ) -> io::Result<()> {
        let handle = &self.handles[rank as usize];
        if handle.get().is_none() {
            let _ = handle.set(AddressHandle::new(&self.nic, address)?);
        }
        // Locked until the send is posted, so that a renewed queue pair has nothing posted to it.
        let mut free = self.free();
        let (Some(handle), Some(slot)) = (handle.get(), self.take_send_slot(&mut free)) else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let at = self.buffer.at(slot as usize * SLOT, SLOT);
        // SAFETY: `at` is within the buffer. The slot was free, so nobody else reads or writes it.
        unsafe { at.cast::<Datagram>().write_unaligned(*datagram) };
        let data = [
            at.expose_provenance() as u64,
            Datagram::BYTES as u64,
            self.buffer.lkey().into(),
        ];
        let receiver = [address.datagrams, address.datagrams_key];
        // SAFETY: 1. The buffer is registered as long as the queue pair lives. 2. The slot is taken
        // until its completion frees it.
        let sent = unsafe { (self.pair).send_datagram(slot.into(), data, handle, receiver) };
        if sent.is_err() {
            free.push(slot);
        }
        sent
    }

    /// Takes a slot to send from. Polls for completed sends if no slot is free.
    fn take_send_slot(&self, free: &mut Vec<u32>) -> Option<u32> {
        if free.is_empty() {
            let mut done = [blank(); 16];
            loop {
                let count = self.sent.poll(&mut done);
                free.extend(done[..count].iter().map(|sent| sent.wr_id as u32));
                if count < done.len() {
                    break;
                }
            }
        }
        free.pop()
    }

    /// Passes the datagrams that arrived to `each`, at most as many as there are buffers. Returns
    /// whether more may wait. Only the control thread calls this; the bound leaves it time for its
    /// other work.
    pub(crate) fn take(
        &self,
        secret: [u8; 16],
        mut each: impl FnMut(DatagramKind, Datagram),
    ) -> io::Result<bool> {
        let mut done = [blank(); 16];
        let (mut failed, mut taken) = (false, 0);
        let more = loop {
            let count = self.received.poll(&mut done);
            for completion in &done[..count] {
                if completion.status != crate::ffi::IBV_WC_SUCCESS {
                    failed = true;
                    continue;
                }
                let slot = completion.wr_id as u32;
                let len = (completion.byte_len as usize).min(SLOT);
                let good = len > GRH;
                let at = self.buffer.at(slot as usize * SLOT, SLOT);
                // SAFETY: the range is within the buffer, and the NIC gave the slot back with this
                // completion.
                let bytes = unsafe { std::slice::from_raw_parts(at, len) };
                let ranks = self.handles.len() as u32;
                let read = good.then(|| Datagram::parse(&bytes[GRH..], secret, ranks));
                self.post_receive(slot)?;
                if let Some((kind, datagram)) = read.flatten() {
                    each(kind, datagram);
                }
            }
            taken += count;
            if count == 0 || taken >= RECEIVES as usize {
                break count != 0;
            }
        };
        if failed {
            self.renew()?;
        }
        Ok(more)
    }

    /// Resets the queue pair after a failure. Soft-RoCE fails it when no route to a peer exists,
    /// for example while the link is down. Peers know its number, so the queue pair keeps it.
    /// Datagrams in flight are lost.
    fn renew(&self) -> io::Result<()> {
        tracing::debug!("the queue pair for datagrams failed: it is renewed");
        let mut free = self.free();
        self.pair.renew(self.key)?;
        let mut done = [blank(); 16];
        while self.sent.poll(&mut done) + self.received.poll(&mut done) > 0 {}
        *free = (RECEIVES..RECEIVES + SENDS).collect();
        (0..RECEIVES).try_for_each(|slot| self.post_receive(slot))
    }

    /// The descriptor that becomes readable when a datagram arrives, once armed.
    pub(crate) fn channel(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Arms the channel for the next datagram.
    pub(crate) fn arm(&self) -> io::Result<()> {
        self.channel.clear();
        self.received.arm()
    }

    fn post_receive(&self, slot: u32) -> io::Result<()> {
        let at = self.buffer.at(slot as usize * SLOT, SLOT);
        // SAFETY: 1. The buffer is registered as long as the queue pair lives. 2. The slot was read
        // by now; it comes back with the completion that names it.
        unsafe { (self.pair).receive(slot.into(), at, SLOT as u32, self.buffer.lkey()) }
    }

    fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        self.free.lock()
    }
}

/// Draws a queue key that nobody guesses. The highest bit is zero, because it marks keys of the
/// system.
fn draw_key() -> io::Result<u32> {
    let mut key = [0; 4];
    rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_ne_bytes(key) & (u32::MAX >> 1))
}
