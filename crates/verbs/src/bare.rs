//! The bare network, to compare with: one connected queue pair between two ranks, and nothing of
//! the conduit.
//!
//! It does what perftest does: one thread posts and polls, nothing is locked, every wait spins.
//! There is no flow control but what a loop keeps by itself, and a peer that ends is noticed only
//! by the requests that it no longer answers. A benchmark's reference, and for nothing else.

#![allow(unsafe_code)] // posts work on memory of its own

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytemuck::{Pod, Zeroable};
use hydrant_conduit::{Permission, memory::PAGE};

use crate::{
    Options,
    address::EndpointAddress,
    device, ffi,
    nic::{
        CompletionChannel, CompletionQueue, ConnectAttributes, MemoryRegion, Nic, NicBuffer,
        QueuePair, RequestBatch, SharedQueue, WorkRequest, blank,
    },
};

/// Requests under way at once, at most.
const DEPTH: usize = 64;
/// Bytes that the NIC is asked to take along, the most it grants first.
const INLINE: [u32; 4] = [220, 128, 64, 0];
/// Receive buffers, of which a ping-pong uses one at a time.
const RECEIVES: u64 = 4;
/// Of so many messages one is signaled.
const UNSIGNALED: u32 = 16;
/// Bytes of the longest message.
const MESSAGE: usize = PAGE;
/// The first PSN of both ends.
const FIRST_PSN: u32 = 0x51;
/// 67 ms: far above any answer of a peer that lives, soft-RoCE in a virtual machine included.
const ACK_TIMEOUT: u8 = 14;

/// One end of the bare network.
pub struct Bare {
    pair: QueuePair,
    sends: Arc<CompletionQueue>,
    receives: Arc<CompletionQueue>,
    buffers: Arc<SharedQueue>,
    /// The first half is read and written from here, the second by the peer.
    memory: NicBuffer,
    half: usize,
    /// The buffers for messages: one to send from, then those to receive into.
    messages: NicBuffer,
    sent: u32,
    peer: Option<EndAddress>,
    nic: Arc<Nic>,
}

/// What an end tells the other.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct EndAddress {
    address: EndpointAddress,
    pair: u32,
    rkey: u32,
    addr: u64,
}

/// What is done to the peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// It is written.
    Write,
    /// It is read.
    Read,
}

impl Bare {
    /// ResultWords of a [`address`](Self::address).
    pub const ADDRESS_WORDS: usize = size_of::<EndAddress>() / size_of::<u64>();

    /// An end with so many bytes of registered memory on each side of its operations, on the
    /// device that a rank of this number uses.
    ///
    /// # Errors
    /// Why there is no device, or what it refuses.
    pub fn open(options: &Options, rank: u32, bytes: usize) -> io::Result<Self> {
        let ports = device::ports(&options.devices, options.gid_index).map_err(io::Error::other)?;
        let nic = Nic::open(ports[rank as usize % ports.len()].clone())?;
        let channel = CompletionChannel::new(&nic)?;
        let sends = CompletionQueue::new(&channel, 2 * DEPTH as u32)?;
        let receives = CompletionQueue::new(&channel, 2 * RECEIVES as u32)?;
        let buffers = Arc::new(SharedQueue::new(&nic, RECEIVES as u32)?);
        let pair = connectable(&nic, &sends, &receives, &buffers)?;
        let half = bytes.next_multiple_of(PAGE);
        let bare = Self {
            memory: NicBuffer::open_to_peers(&nic, 2 * half)?,
            messages: NicBuffer::new(&nic, (1 + RECEIVES as usize) * MESSAGE)?,
            pair,
            sends,
            receives,
            buffers,
            half,
            sent: 0,
            peer: None,
            nic,
        };
        for buffer in 0..RECEIVES {
            bare.receive(buffer)?;
        }
        Ok(bare)
    }

    /// Bytes that it keeps registered.
    pub fn registered_bytes(&self) -> usize {
        2 * self.half + (1 + RECEIVES as usize) * MESSAGE
    }

    /// What the other end is to be told.
    pub fn address(&self) -> [u64; Self::ADDRESS_WORDS] {
        let exposed = self.memory.at(self.half, self.half);
        let port = &self.nic.port;
        let address = EndpointAddress {
            gid: port.gid,
            mtu: port.mtu,
            lid: port.lid,
            reads: self.nic.limits.reads_answered.into(),
            ..EndpointAddress::zeroed()
        };
        bytemuck::cast(EndAddress {
            address,
            pair: self.pair.number,
            rkey: self.memory.rkey(),
            addr: exposed.expose_provenance() as u64,
        })
    }

    /// Connects to the end whose address this is. Nothing may be asked of it before that has done
    /// the same.
    ///
    /// # Errors
    /// What the device says.
    pub fn connect(&mut self, end: [u64; Self::ADDRESS_WORDS]) -> io::Result<()> {
        let end: EndAddress = bytemuck::cast(end);
        self.pair.connect(&ConnectAttributes {
            address: &end.address,
            number: end.pair,
            psn: FIRST_PSN,
            timeout: ACK_TIMEOUT,
        })?;
        self.peer = Some(end);
        Ok(())
    }

    /// Writes or reads so many bytes, and waits for the completion.
    ///
    /// # Errors
    /// What the network says.
    #[inline]
    pub fn once(&mut self, direction: Direction, len: usize) -> io::Result<()> {
        self.post(direction, 0, len)?;
        self.completed(1)
    }

    /// Writes or reads `count` pieces of `len` bytes, one beside the other in both memories and
    /// round again, as many at once as the queue and the memory have room for; waits for all.
    ///
    /// # Errors
    /// What the network says.
    pub fn stream(&mut self, direction: Direction, len: usize, count: u64) -> io::Result<()> {
        let places = (self.half / len.max(1)).max(1) as u64;
        let mut under_way = 0;
        for index in 0..count {
            if under_way == DEPTH {
                self.completed(1)?;
                under_way -= 1;
            }
            self.post(direction, (index % places) as usize * len, len)?;
            under_way += 1;
        }
        self.completed(under_way)
    }

    /// Sends so many bytes, and waits for as many back.
    ///
    /// # Errors
    /// What the network says.
    #[inline]
    pub fn ping(&mut self, len: usize) -> io::Result<()> {
        self.send(len)?;
        self.received()
    }

    /// The other end of [`ping`](Self::ping).
    ///
    /// # Errors
    /// What the network says.
    #[inline]
    pub fn pong(&mut self, len: usize) -> io::Result<()> {
        self.received()?;
        self.send(len)
    }

    /// Registers memory of this process and gives it back: how long each took.
    ///
    /// # Errors
    /// What the device says.
    pub fn register(&self, memory: &mut [u8]) -> io::Result<[Duration; 2]> {
        let start = Instant::now();
        // SAFETY: nobody is told the key, and the memory is borrowed until it is given back.
        let region = unsafe {
            MemoryRegion::new(
                &self.nic,
                memory.as_mut_ptr(),
                memory.len(),
                Permission::ReadWrite,
            )
        }?;
        let registered = start.elapsed();
        drop(region);
        Ok([registered, start.elapsed() - registered])
    }

    #[inline]
    fn post(&self, direction: Direction, offset: usize, len: usize) -> io::Result<()> {
        let peer = self.peer.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        if offset > self.half || len > self.half - offset {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let inline = direction == Direction::Write && len <= self.pair.inline;
        let mut batch = RequestBatch::new();
        batch.push(&WorkRequest {
            id: 0,
            opcode: match direction {
                Direction::Write => ffi::IBV_WR_RDMA_WRITE,
                Direction::Read => ffi::IBV_WR_RDMA_READ,
            },
            addr: self.memory.at(offset, len).expose_provenance() as u64,
            len: u32::try_from(len).map_err(io::Error::other)?,
            lkey: self.memory.lkey(),
            remote: peer.addr + offset as u64,
            rkey: peer.rkey,
            inline,
            operands: None,
            immediate: 0,
        });
        batch.signal_last();
        // SAFETY: memory of our own under its key, there until the completion, for `self` stays
        // and its queue pair goes before its memory.
        unsafe { self.pair.post(&mut batch) }
    }

    /// Waits for so many completions of what was posted.
    #[inline]
    fn completed(&self, count: usize) -> io::Result<()> {
        (0..count).try_for_each(|_| next(&self.sends).map(drop))
    }

    fn send(&mut self, len: usize) -> io::Result<()> {
        if len > MESSAGE {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut batch = RequestBatch::new();
        batch.push(&WorkRequest {
            id: 0,
            opcode: ffi::IBV_WR_SEND,
            addr: self.messages.at(0, len).expose_provenance() as u64,
            len: len as u32,
            lkey: self.messages.lkey(),
            remote: 0,
            rkey: 0,
            inline: len <= self.pair.inline,
            operands: None,
            immediate: 0,
        });
        self.sent += 1;
        let signaled = self.sent.is_multiple_of(UNSIGNALED);
        if signaled {
            batch.signal_last();
        }
        // SAFETY: as in `once`; the buffer is only read.
        unsafe { self.pair.post(&mut batch) }?;
        if signaled { self.completed(1) } else { Ok(()) }
    }

    /// Waits for a message, and gives its buffer to the NIC again.
    #[inline]
    fn received(&self) -> io::Result<()> {
        let buffer = next(&self.receives)?;
        self.receive(buffer)
    }

    fn receive(&self, buffer: u64) -> io::Result<()> {
        let addr = self.messages.at((1 + buffer as usize) * MESSAGE, MESSAGE);
        let lkey = self.messages.lkey();
        // SAFETY: registered under its key, and the NIC's alone until the completion.
        unsafe { self.buffers.post(buffer, addr, MESSAGE as u32, lkey) }
    }
}

/// A queue pair that takes along as much as the NIC grants.
fn connectable(
    nic: &Arc<Nic>,
    sends: &Arc<CompletionQueue>,
    receives: &Arc<CompletionQueue>,
    buffers: &Arc<SharedQueue>,
) -> io::Result<QueuePair> {
    let mut last = io::Error::from(io::ErrorKind::Unsupported);
    for inline in INLINE {
        match QueuePair::connected(nic, sends, receives, buffers, 2 * DEPTH as u32, inline) {
            Ok(pair) => return Ok(pair),
            Err(cause) => last = cause,
        }
    }
    Err(last)
}

/// The next completion: what it names.
#[inline]
fn next(queue: &CompletionQueue) -> io::Result<u64> {
    let mut completion = [blank()];
    while queue.poll(&mut completion) == 0 {
        std::hint::spin_loop();
    }
    let [completion] = completion;
    match completion.status {
        ffi::IBV_WC_SUCCESS => Ok(completion.wr_id),
        status => Err(io::Error::other(format!(
            "the bare network failed with status {status}"
        ))),
    }
}
