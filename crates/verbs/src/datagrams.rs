//! The queue pair for datagrams. They may get lost; who needs an answer asks again.
//!
//! Its key is drawn by its rank, which tells it to the job's ranks alone. So NICs drop what strangers
//! send before it takes a buffer, or breaks the queue pair by its length; and what guesses the key
//! still lacks the job's secret, which each datagram shows.

#![allow(unsafe_code)] // lends parts of a buffer to the NIC

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

/// Datagrams that may be on their way at once.
const SENDS: u32 = 128;
/// Buffers for datagrams that come.
const RECEIVES: u32 = 256;
/// What the NIC puts before a datagram.
const GRH: usize = 40;
const SLOT: usize = 128;
const _: () = assert!(GRH + Datagram::BYTES <= SLOT);

pub(crate) struct Datagrams {
    /// The unreliable queue pair, under a number that all ranks know.
    pair: QueuePair,
    /// Where what was sent completes; polled by who needs a slot to send from.
    sent: Arc<CompletionQueue>,
    /// Where what arrived completes; polled by the control thread.
    received: Arc<CompletionQueue>,
    /// Tells the control thread of what arrives.
    channel: Arc<CompletionChannel>,
    /// The slots: first those that are received into, then those that are sent from.
    buffer: NicBuffer,
    /// Slots to send from that are not with the NIC.
    free: Mutex<Vec<u32>>,
    /// The queue key, drawn by this rank: what datagrams to it show.
    key: u32,
    /// By rank, made when the rank is first spoken to.
    handles: Box<[OnceLock<AddressHandle>]>,
    /// What handles are made with.
    nic: Arc<Nic>,
}

impl Datagrams {
    /// Registered for datagrams.
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

    /// Sends a datagram, if there is room.
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
        // Held until it is posted: a queue pair that is renewed has nothing posted to it.
        let mut free = self.free();
        let (Some(handle), Some(slot)) = (handle.get(), self.take_send_slot(&mut free)) else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let at = self.buffer.at(slot as usize * SLOT, SLOT);
        // SAFETY: within the buffer; the slot was free, so that nobody else reads or writes it.
        unsafe { at.cast::<Datagram>().write_unaligned(*datagram) };
        let what = [
            at.expose_provenance() as u64,
            Datagram::BYTES as u64,
            self.buffer.lkey().into(),
        ];
        let whom = [address.datagrams, address.datagrams_key];
        // SAFETY: registered as long as the queue pair lives; free again at its completion.
        let sent = unsafe { self.pair.send_datagram(slot.into(), what, handle, whom) };
        if sent.is_err() {
            free.push(slot);
        }
        sent
    }

    /// A slot to send from. Those that were sent from are looked for when there is no other.
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

    /// Takes what came, and no more at once than there are buffers; whether there may be more.
    /// For the one thread that looks after datagrams, which has other things to do, too.
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
                // SAFETY: within the buffer; the NIC gave the slot back with this completion.
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

    /// The queue pair failed, and will take nothing any more: soft-RoCE has it fail when there is
    /// no way to a peer, as while the link is down. Peers know its number, so it stays the same
    /// one; what was under way is lost, as datagrams may be.
    fn renew(&self) -> io::Result<()> {
        tracing::debug!("the queue pair for datagrams failed: it is renewed");
        let mut free = self.free();
        self.pair.renew(self.key)?;
        let mut done = [blank(); 16];
        while self.sent.poll(&mut done) + self.received.poll(&mut done) > 0 {}
        *free = (RECEIVES..RECEIVES + SENDS).collect();
        (0..RECEIVES).try_for_each(|slot| self.post_receive(slot))
    }

    /// The descriptor that tells of datagrams, once armed.
    pub(crate) fn channel(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Has the channel tell of the next datagram.
    pub(crate) fn arm(&self) -> io::Result<()> {
        self.channel.clear();
        self.received.arm()
    }

    fn post_receive(&self, slot: u32) -> io::Result<()> {
        let at = self.buffer.at(slot as usize * SLOT, SLOT);
        // SAFETY: registered as long as the queue pair lives; the slot comes back with the
        // completion that names it, and its bytes were read by then.
        unsafe { (self.pair).receive(slot.into(), at, SLOT as u32, self.buffer.lkey()) }
    }

    fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        self.free.lock()
    }
}

/// A key that nobody guesses; the highest bit would say that it is the system's.
fn draw_key() -> io::Result<u32> {
    let mut key = [0; 4];
    rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_ne_bytes(key) & (u32::MAX >> 1))
}
